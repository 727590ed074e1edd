"""The command line: one module per command, imported when the command is named.

Such a module has ``configure(parser)``, which adds the command's options and sets ``run``, and ``run(args)``, which
returns an exit code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from importlib import import_module

from pairrank.errors import InputError, PairRankError
from pairrank.version import __version__

# In the order of `pairrank --help`.
COMMANDS = {
    "demo": "compare all rankers on embedded data, about a minute",
    "simulate": "compare rankers under simulated users",
    "reproduce": "every experiment and figure of the paper, on your data",
    "tune": "find hyper-parameters by validation performance",
    "ablate": "vary one choice of PairRank's, draw one figure",
    "calibrate": "how often certain orders are wrong, and why",
    "trial": "how many lists an experiment needs, and what a guarded launch costs",
    "quality": "compare the default with every rival, with corrected tests",
    "report": "make figures and report again from records",
    "fit": "learn a ranker from click logs of any size, on one core, all cores or a Ray cluster",
    "warmstart": "start a ranker from weights, labelled data or click logs",
    "export": "write a linear model for Elasticsearch, OpenSearch, Solr, RankLib, ONNX or as JSON",
    "data": "look at data sets",
    "serve": "rank and learn over HTTP",
    "replay": "rebuild models from a store's log and compare digests",
    "experiment": "start, watch and stop experiments of a running service",
    "launch": "how far users of a running service get a ranker's order",
    "evaluate": "what another order would have got, from a store's log",
    "store": "verify, back up, restore or compact a store; manage keys",
    "play": "try it in the browser: a search that learns from your clicks",
    "figure": "draw a picture",
    "bench": "measure speed, as ratios",
    "warm": "compile the inner loops now, so that no process has to",
}


def parser(named: Collection[str]) -> argparse.ArgumentParser:
    """The parser that knows every command, and the options of those that are ``named``."""
    top = argparse.ArgumentParser(
        prog="pairrank",
        description="Ranking that learns from clicks while it serves.",
        epilog="pairrank COMMAND --help explains one command.",
    )
    top.add_argument("--version", action="version", version=f"pairrank {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, told in COMMANDS.items():
        command = commands.add_parser(name, help=told)
        if name in named:
            import_module(f"pairrank.cli.{name}").configure(command)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; exit codes: 0 done, 1 failed, 2 wrong usage."""
    words = sys.argv[1:] if argv is None else argv
    try:
        args = parser(words[:1]).parse_args(words)  # a command comes first: before it there are only --help, --version
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
