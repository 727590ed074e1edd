"""The command line: one module per command, imported when the command is named.

Such a module has ``configure(parser)``, which adds the options, and ``run(args)``, which may return an exit code.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from io import TextIOWrapper

from pairrank.errors import InputError, PairRankError
from pairrank.version import __version__

# By what people come for, in the order of `pairrank --help`.
FACES = {
    "begin": {
        "play": "try it in the browser: a search that learns from your clicks",
        "demo": "compare all rankers on embedded data, about a minute",
    },
    "laboratory": {
        "simulate": "compare rankers under simulated users",
        "rankers": "which rankers there are, and their options",
        "data": "look at data sets",
        "quality": "compare the default with every rival, with corrected tests",
        "reproduce": "every experiment and figure of the paper, on your data",
        "tune": "find hyper-parameters by validation performance",
        "ablate": "vary one choice of PairRank's, draw one figure",
        "trial": "how many lists an experiment needs, and what a guarded launch costs",
        "report": "make figures and report again from records",
        "figure": "draw a picture",
    },
    "service": {
        "serve": "rank and learn over HTTP, with a live page",
        "store": "verify, back up, restore or compact a store; manage keys",
        "launch": "how far users of a running service get a ranker's order",
        "experiment": "start, watch and stop experiments of a running service",
        "evaluate": "what another order would have got, from a store's log",
        "replay": "rebuild models from a store's log and compare digests",
    },
    "models": {
        "fit": "learn a ranker from click logs of any size, on one core, all cores or a Ray cluster",
        "warmstart": "start a ranker from weights, labelled data or click logs",
        "export": "write a linear model for Elasticsearch, OpenSearch, Solr, Vespa, ONNX and others",
    },
    "speed": {"warm": "compile the inner loops now, so that no process has to", "bench": "measure speed, as ratios"},
}
COMMANDS = {name: told for commands in FACES.values() for name, told in commands.items()}


class _Help(argparse.HelpFormatter):
    """Wraps what is one paragraph; several lines, with commands to be pasted among them, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of ``command`` with its options; without one, that of the whole, which lists the commands."""
    if command is not None:
        made = argparse.ArgumentParser(prog=f"pairrank {command}", formatter_class=_Help)
        module = import_module(f"pairrank.cli.{command}")
        made.set_defaults(run=module.run)
        module.configure(made)
        return made
    lines = [
        f"{face}:\n" + "\n".join(f"  {name:<11}{told}" for name, told in commands.items())
        for face, commands in FACES.items()
    ]
    top = argparse.ArgumentParser(
        prog="pairrank",
        usage="pairrank COMMAND …",
        description="Ranking that learns from clicks while it serves.",
        epilog="\n\n".join([*lines, "pairrank COMMAND --help explains one command."]),
        formatter_class=_Help,
    )
    top.add_argument("--version", action="version", version=f"pairrank {__version__}")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; exit codes: 0 done, 1 failed, 2 wrong usage."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = argparse.Namespace()
    # As in a container; by itself the first process hears nothing of it, and imports take seconds.
    if os.getpid() == 1 and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed from the start: no file that is opened may come to stand in its place
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, closefd=False))
    if isinstance(sys.stdout, TextIOWrapper):  # in a terminal without λ or … stands "?" in its place
        sys.stdout.reconfigure(errors="replace")
    try:
        args = _parsed(words)
        code: int | None = args.run(args)
        sys.stdout.flush()
        return code or 0
    except PairRankError as problem:
        print(f"pairrank: {problem}", file=sys.stderr)
        return 2 if isinstance(problem, InputError) else 1
    except KeyboardInterrupt:
        print(f"pairrank: interrupted{_kept(args)}", file=sys.stderr)
        return 130
    except OSError as problem:
        if not isinstance(problem, BrokenPipeError):
            gone = str(problem) == f"[Errno {errno.ENOENT}] {os.strerror(errno.ENOENT)}"  # os.getcwd names no file
            print(f"pairrank: {'the working folder is gone: change to another' if gone else problem}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:  # the output is what failed: it shall not do so once more at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def _parsed(words: list[str]) -> argparse.Namespace:
    """What the words ask for; wrong ones end the program with what was perhaps meant."""
    if not words or words[0].startswith("-"):  # before a command there are only --help and --version
        top = parser()
        top.parse_args(words)
        top.print_help()
        raise SystemExit(0)
    from pairrank.checking import nearest

    name = words[0]
    if name not in COMMANDS:
        parser().error(f"there is no command {name!r}{nearest(name, COMMANDS)}")
    command = parser(name)
    args, unknown = command.parse_known_args(words[1:], argparse.Namespace(words=words))
    if unknown:
        wrong = next((word for word in unknown if word.startswith("-")), unknown[0])
        flag = wrong.partition("=")[0]
        if not flag.startswith("-"):
            command.error(f"{wrong!r} is one argument too many")
        command.error(f"there is no option {flag}{nearest(flag, _flags(command))}")
    return args


def _flags(command: argparse.ArgumentParser) -> Iterator[str]:
    """The long options of a command and of what stands below it."""
    for action in command._actions:
        yield from (flag for flag in action.option_strings if flag.startswith("--"))
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _flags(below)


def _kept(args: argparse.Namespace) -> str:
    """What an interrupted command leaves behind, and how to go on."""
    if hasattr(args, "checkpoint"):
        kept = args.checkpoint or f"{args.out}.checkpoint"
        return f"; the same command goes on from {kept}" if os.path.exists(kept) else ""
    if not hasattr(args, "resume"):
        return ""
    if args.resume is None:
        return "; nothing is kept, and the same command begins again"
    if args.out is None:
        return "; nothing is kept: with --out DIR the same command goes on where it stopped"
    again = "the same command" if args.resume else "the same command without --no-resume"
    return f"; what is done is kept in {args.out}, and {again} goes on from there"
