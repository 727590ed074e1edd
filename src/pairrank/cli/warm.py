"""``pairrank warm``: compile the inner loops into numba's cache."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

# The array code that has loops.
import pairrank.rankers.pairrank  # noqa: F401
from pairrank.errors import MissingExtraError, StorageError
from pairrank.kernel import jit


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile the inner loops, once after pairrank[fast] was installed or updated; some twenty seconds. From then "
        "on every process loads them with its first ranker, in about a second. Results are the same without."
    )


def run(args: argparse.Namespace) -> None:
    if find_spec("numba") is None:
        raise MissingExtraError("numba", "fast")
    if not jit.load():
        raise StorageError(
            "nothing was compiled: PAIRRANK_COMPILED is 0, or no folder can be written to (NUMBA_CACHE_DIR names one)"
        )
    print("The inner loops are compiled.")
