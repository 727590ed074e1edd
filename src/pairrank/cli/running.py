"""What the commands that run experiments have in common: where runs are run, and how progress and failures show."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pairrank.sim import RunSpec, Summary

ENGINES = ("serial", "processes", "ray")


def add_options(parser: argparse.ArgumentParser, *, engine: str = "processes") -> None:
    """Add ``--engine`` and what goes with it."""
    group = parser.add_argument_group("where runs are run")
    group.add_argument("--engine", choices=ENGINES, default=engine, help=f"all give equal records (default: {engine})")
    group.add_argument("--jobs", type=positive, metavar="N", help="runs at once (default: one per core)")
    group.add_argument("--address", metavar="ADDRESS", help="of a Ray cluster (default: one of its own, here)")
    group.add_argument(
        "--resume",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep runs that are done and go on with those that were interrupted (the default)",
    )


def run_all(specs: Sequence[RunSpec], args: argparse.Namespace, out: str | None) -> list[Summary]:
    """Run the specs as the options say, with a progress bar."""
    from pairrank.cli.progress import progress
    from pairrank.lab import executors

    with progress(sum(spec.rounds for spec in specs), "rounds") as report:
        return executors.run_all(
            specs,
            out,
            args.engine,
            jobs=args.jobs,
            address=args.address,
            resume=args.resume,
            report=report,
        )


def run_what_can_be(specs: Sequence[RunSpec], args: argparse.Namespace, out: str) -> int:
    """Run the specs; failures are told, and do not keep the others from being reported. The exit code so far."""
    from pairrank.lab.executors import RunsFailedError

    try:
        run_all(specs, args, out)
    except RunsFailedError as problem:
        print(f"pairrank: {problem}", file=sys.stderr)
        if not problem.summaries:
            raise
        return 1
    return 0


def positive(text: str) -> int:
    """A whole number from 1."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return number


def note(*words: Any) -> None:
    """A line for whoever watches, on standard error."""
    print(*words, file=sys.stderr, flush=True)
