"""The command line: one module a command, each with ``add_parser`` and a ``run`` that returns an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from pairrank.errors import InputError, PairRankError
from pairrank.version import __version__

# In the order of `pairrank --help`. A module must import quickly: what is heavy is imported inside `run`.
COMMANDS: tuple[str, ...] = (
    "demo",
    "simulate",
    "reproduce",
    "tune",
    "ablate",
    "calibrate",
    "quality",
    "report",
    "fit",
    "warmstart",
    "export",
    "data",
    "serve",
    "replay",
    "store",
    "play",
    "figure",
    "bench",
    "completion",
)


def parser() -> argparse.ArgumentParser:
    """The parser with every command."""
    top = argparse.ArgumentParser(
        prog="pairrank",
        description="Ranking that learns from clicks while it serves.",
        epilog="pairrank COMMAND --help explains one command.",
    )
    top.add_argument("--version", action="version", version=f"pairrank {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f"pairrank.cli.{name}").add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; exit codes: 0 done, 1 failed, 2 wrong usage."""
    args = parser().parse_args(argv)
    try:
        code: int = args.run(args)
        return code
    except InputError as problem:
        print(f"pairrank: {problem}", file=sys.stderr)
        return 2
    except PairRankError as problem:
        print(f"pairrank: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("pairrank: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
