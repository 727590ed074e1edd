"""What the commands that run experiments have in common: where runs are run, and how progress and failures show."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from pairrank import click_models, rankers
from pairrank.data.normalize import NAMES
from pairrank.engines import ENGINES
from pairrank.lab import executors, tuned_options
from pairrank.lab.experiment import CEILING, USERS, Experiment, check_defaults
from pairrank.lab.outcomes import RunsFailedError
from pairrank.lab.report import headline, report, tables
from pairrank.progress import phase, progress
from pairrank.sim import Protocol, RunSpec, Summary
from pairrank.sim.run import load_splits

DATA = "a folder or file in LETOR format, or a synthetic: name"


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


def check(specs: Iterable[RunSpec]) -> None:
    """Refuse data, rankers and users that are none before hours of runs on and of the others."""
    sets: dict[tuple[str, int, str, str], dict[tuple[str, str], RunSpec]] = {}
    for spec in specs:
        kinds = sets.setdefault((spec.data, spec.fold, spec.normalise, spec.evaluation), {})
        kinds[spec.ranker, spec.clicks] = spec
    for kinds in sets.values():
        train, _ = load_splits(next(iter(kinds.values())))
        for ranker, who in kinds:
            rankers.make(ranker, n_features=train.n_features)
            click_models.make(who, n_grades=train.n_grades)


def run_all(specs: Sequence[RunSpec], args: argparse.Namespace, out: str | None) -> list[Summary]:
    """Run the specs as the options say, with a progress bar."""
    total = sum(spec.rounds for spec in specs)
    with progress(total, "reading data") as tell:

        def report(done: int) -> None:
            if done:
                tell(done, what="rounds" if done < total else "finishing")

        return executors.run_all(
            specs, out, args.engine, jobs=args.jobs, address=args.address, resume=args.resume, report=report
        )


def fitted(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text; on a terminal that is too narrow for it, every row on lines of its own."""
    text = tables.as_text(head, rows)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    if not width or max(map(len, text.splitlines())) <= width:
        return text
    wrap = textwrap.TextWrapper(width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    pairs = [[f"{name}\0{cell}" for name, cell in zip(head[1:], row[1:], strict=True)] for row in rows]
    stacked = [f"{row[0]}\n{wrap.fill(', '.join(told))}" for row, told in zip(rows, pairs, strict=True)]
    return "\n".join(stacked).replace("\0", " ")


def positive(text: str) -> int:
    """A whole number from 1."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return number


_OPTIONS: dict[str, dict[str, Any]] = {
    "rounds": {"type": positive, "metavar": "N", "help": "queries served"},
    "seeds": {"type": positive, "metavar": "N", "help": "runs of each kind"},
    "trials": {"type": positive, "metavar": "N", "help": "settings tried per ranker"},
    "fold": {"type": positive, "metavar": "N", "help": "fold of the data"},
    "k": {"type": positive, "metavar": "N", "help": "positions shown"},
    "normalise": {"metavar": "NAME", "help": ", ".join(NAMES)},
    "stop": {"choices": ("click", "anywhere"), "help": "where users may stop; anywhere: as in the authors' program"},
    "clicks": {"action": "append", "metavar": "NAME", "help": "users; may be repeated (default: the paper's three)"},
    "settings": {"metavar": "FILE", "help": "tuned options of the rankers: a file of pairrank tune, or a kept name"},
    "jobs": {"type": positive, "metavar": "N", "help": "processes (default: one per core)"},
}


def add(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Add the options of these names, with these defaults."""
    for name, default in defaults.items():
        option = dict(_OPTIONS[name])
        if default is not None:
            option["help"] += f" (default: {default})"
        parser.add_argument(f"--{name}", default=default, **option)


def add_on_data(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Add DATA, the options of these names, and all others of a command that runs an experiment on given data."""
    parser.add_argument("data", metavar="DATA", help=DATA)
    add(parser, **defaults, fold=1, k=10, normalise="query", stop="click", clicks=None, settings=None)
    add_options(parser)


def settings(args: argparse.Namespace) -> tuned_options.Settings:
    """The tuned options of rankers that the options name."""
    return tuned_options.load(args.settings) if args.settings else {}


def command(args: argparse.Namespace) -> str:
    """The command line as it was given, for a report: without the folders of the machine that it ran on."""
    return shlex.join(["pairrank", *(re.sub("[^=]*/(?=[^/])", "", word) for word in args.words)])


def protocol(args: argparse.Namespace) -> Protocol:
    """How runs are made, as the options say."""
    return Protocol(data=args.data, rounds=args.rounds, k=args.k, fold=args.fold, normalise=args.normalise)


def users(args: argparse.Namespace) -> tuple[str, ...]:
    """The users that the options name, each once."""
    return tuple(dict.fromkeys(click_models.canonical(text, stop=args.stop) for text in args.clicks or USERS))


def run_experiment(experiment: Experiment, args: argparse.Namespace) -> None:
    """Run an experiment and report on it; runs that fail do not keep the others from the report."""
    specs = experiment.specs()
    executors.prepare(args.out, "runs", "pyarrow", "matplotlib")
    check_defaults(args.out, experiment.rankers, args.resume)  # `run_all` asks, too, when that file is another already
    experiment.save(args.out)
    try:
        run_all(specs, args, args.out)
    except RunsFailedError as problem:
        if problem.summaries:
            show_report(args.out)
        raise
    show_report(args.out)


def show_report(out: str) -> None:
    """Write the report of a folder and print its table and claims."""
    phase("drawing figures and writing the report")
    made = report.build(out)
    results = made.results
    for who in results.users:
        head, rows = tables.leaders(results, who)
        print(f"{who} users\n{fitted(head, rows)}\n")
    print(textwrap.fill(headline.sentence(results), min(110, shutil.get_terminal_size().columns)) + "\n")
    ceiling = f"; {CEILING} sees the labels and does not compete" if CEILING in results.rankers else ""
    print(f"{tables.MARK} the best of its column, {tables.LEVEL} level with it (p ≥ 0.05){ceiling}")
    verdicts = [claim.verdict for claim in made.claims]
    told = ", ".join(f"{verdict}: {verdicts.count(verdict)}" for verdict in dict.fromkeys(verdicts))
    if told:
        print(f"the paper's claims as measured ({told})")
    if results.done < results.expected:
        print(f"{results.done} of {results.expected} runs are done; the rest is not in this report")
    for line in results.notes:
        print(f"not read: {line}")
    print(f"report: {made.html}\nfigures: {made.figures[0].parent} ({len(made.figures)} files)")
