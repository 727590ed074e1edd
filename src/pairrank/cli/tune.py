"""``pairrank tune``: hyper-parameters by validation performance."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

from pairrank import rankers
from pairrank.cli import experiment_options
from pairrank.engines import connected
from pairrank.errors import DataError, OptionError
from pairrank.lab import tune, tuned_options
from pairrank.sim.run import load_splits

_EPILOG = """\
Settings are drawn from a declared space per ranker and compared by successive halving; the ranker's defaults take part
to the end. The objective is measured on the validation split (offline), on the lists shown (cndcg), or half and half
(mix), as a mean over users and seeds. DIR/settings.json is what simulate, reproduce and ablate take as --settings.
The same command resumes.

example:
  pairrank tune MQ2008 --ranker pdgd --ranker pairrank-c --objective mix --out tuned
  pairrank reproduce MQ2008 --settings tuned/settings.json --out results
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Find the options of rankers that do best on the validation split."
    parser.epilog = _EPILOG
    parser.add_argument(
        "--ranker",
        action="append",
        metavar="NAME",
        help="may be repeated (default: those that the paper tunes, its own and the two RankNet baselines)",
    )
    parser.add_argument("--objective", choices=tune.OBJECTIVES, default="mix", help="(default: mix)")
    parser.add_argument("--out", required=True, metavar="DIR", help="where settings.json and the runs go")
    experiment_options.add_on_data(parser, trials=18, rounds=2000, seeds=3)


def run(args: argparse.Namespace) -> None:
    given = experiment_options.settings(args)
    told: dict[str, Any] = {f.name: getattr(args, f.name) for f in fields(tune.Task) if hasattr(args, f.name)}
    task = tune.Task(**told, users=experiment_options.users(args))
    texts = {ranker: tuned_options.applied(ranker, given) for ranker in args.ranker or tune.RANKERS}
    names = [rankers.parse(text)[0] for text in texts.values()]
    if twice := [name for name in names if names.count(name) > 1]:
        raise OptionError(f"{twice[0]} is to be tuned twice, and settings hold one answer for it; tune one at a time")
    _, validation = load_splits(task)
    # What cannot be run or tuned is told before hours of runs for the others.
    experiment_options.check(spec for text in texts.values() for spec in task.specs(text, args.rounds))
    for name in names:
        tune.space(name)
    if args.objective != "cndcg" and not validation.grades.any():
        raise DataError(
            f"{args.data}: no document of the validation split is relevant: {args.objective} cannot be measured; "
            "--objective cndcg can"
        )
    found = []
    # A Ray cluster of our own starts once, which takes many seconds.
    with connected(args.jobs, args.address) if args.engine == "ray" else nullcontext():
        for ranker, text in texts.items():
            tuned = tune.tune(text, task, lambda specs, out: experiment_options.run_all(specs, args, out), args.out)
            found.append(tuned)
            best = ", ".join(f"{name} = {value}" for name, value in tuned.options.items()) or "the defaults"
            print(f"{ranker}: {best}; {args.objective} {tuned.value:.4f}, defaults {tuned.default:.4f}", flush=True)
    path = Path(args.out) / "settings.json"
    tune.save(path, task, found, experiment_options.command(args))
    print(f"settings: {path}")
