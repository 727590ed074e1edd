"""``pairrank trial``: how many lists an experiment needs, and whether its verdicts can be trusted."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pairrank import archive
from pairrank.cli.experiment_options import DATA, add, positive
from pairrank.engines import cores
from pairrank.errors import OptionError
from pairrank.lab import executors, launches, trial, trial_report
from pairrank.lab.experiment import USERS
from pairrank.lab.report import tables
from pairrank.progress import progress
from pairrank.trials.launch import Guard

_EPILOG = """\
Arms are rankers by their short text (those that learn from labels are fitted to the training split, others learn from
--learn lists of it), or as-sent: the order of the data. Arm b may also be worse(noise=0.5), which is a with noise of so
many standard deviations on its scores, reversed or shuffled. Lists are served from the test split.

What is measured:
  lists until a verdict   interleaved, split, and estimated from the log of an exploring PairRank as far as that tells
                          of both arms; "fixed size" is what a plain test needs that nobody looks at before. A split
                          and a log compare the reciprocal rank of the first click
  verdicts without cause  of experiments without a difference, looked at after every hundred lists
  estimates from a log    how often 95 % intervals from PairRank's own log hold the true clicks of its order by score,
                          and of that interleaved with the order it had after half of its lists
  guarded launch          arm a (good), chance (useless) and a reversed (hostile) against the best single feature

An interrupted study begins again.

examples:
  pairrank trial MQ2008 --a offline-ranknet --b 'worse(noise=0.5)' --out trial
  pairrank trial MQ2008 --a pairrank --b as-sent --clicks navigational --null 0 --logs 0 --launches 0 --out trial
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Simulate experiments and launches, and say what they take and how far they can be trusted."
    parser.epilog = _EPILOG
    plain = trial.Study(data="")
    parser.add_argument("data", metavar="DATA", help=DATA)
    parser.add_argument("--a", default=plain.a, metavar="ARM", help=f"(default: {plain.a})")
    parser.add_argument("--b", default=plain.b, metavar="ARM", help=f"(default: {plain.b})")
    counts = {
        "experiments": "experiments with the difference",
        "lists": "lists in each at most",
        "null_experiments": "experiments without one",
        "null_lists": "lists in each",
        "logs": "logs to estimate from",
        "log_lists": "lists in each",
        "launches": "guarded launches of each kind",
        "launch_lists": "lists in each",
        "learn": "lists that rankers learn from first",
    }
    for name, told in counts.items():
        flag = "--null" if name == "null_experiments" else f"--{name.replace('_', '-')}"
        default = getattr(plain, name)
        number = positive if name.endswith("lists") else _count
        parser.add_argument(flag, dest=name, type=number, default=default, metavar="N", help=f"{told} ({default})")
    parser.add_argument("--margin", type=float, default=plain.guard.margin, help="of launches (0.02)")
    parser.add_argument("--holdout", type=float, default=plain.guard.holdout, help="of launches (0.05)")
    add(parser, k=plain.k, fold=plain.fold, normalise=plain.normalise, clicks=None, jobs=None)
    parser.add_argument("--out", required=True, metavar="DIR", help="where trial.json, trial.md and the picture go")
    parser.add_argument("--json", action="store_true", help="print the JSON instead of tables")
    parser.set_defaults(resume=None)


def _count(text: str) -> int:
    return 0 if text == "0" else positive(text)


def run(args: argparse.Namespace) -> None:
    told: dict[str, Any] = {f.name: getattr(args, f.name) for f in fields(trial.Study) if hasattr(args, f.name)}
    guard = Guard(margin=args.margin, holdout=args.holdout)
    study = trial.Study(**told | {"guard": guard, "clicks": tuple(dict.fromkeys(args.clicks or USERS))})
    if not (study.experiments or study.null_experiments or study.logs or study.launches):
        raise OptionError("experiments, null, logs and launches are all 0; nothing is left to do")
    trial.check_names(study)  # a wrong one leaves no folder behind
    executors.prepare(args.out, "", "matplotlib")
    jobs = args.jobs or cores()
    with progress(len(study.clicks), "kinds of users") as report:
        rows = trial.run(study, jobs, report)
    launched = []
    if study.launches:
        with progress(len(study.clicks) * len(launches.KINDS), "kinds of launches") as report:
            launched = launches.run(study, jobs, report)
    found = {"study": asdict(study), "users": rows, "launches": launched}
    made = _tables(study, rows, launched)
    text = "\n\n".join(f"{title}\n\n{tables.as_markdown(*table)}" for title, table in made)
    folder = Path(args.out)
    archive.write_atomically(folder / "trial.json", json.dumps(found, indent=1).encode() + b"\n")
    archive.write_atomically(folder / "trial.md", text.encode() + b"\n")
    for suffix, picture in zip((".png", ".svg"), trial_report.plate(study, rows, launched).render(), strict=True):
        archive.write_atomically(folder / f"trial{suffix}", picture)
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        print("\n\n".join(f"{title}\n{tables.as_text(*table)}" for title, table in made))


Table = tuple[list[str], list[list[str]]]


def _tables(study: trial.Study, rows: list[dict[str, Any]], launched: list[dict[str, Any]]) -> list[tuple[str, Table]]:
    made = []
    if study.experiments:
        title = f"Lists until a verdict: {study.a} against {study.b}"
        made.append((title, trial_report.lists_until_verdict(study, rows)))
    if study.null_experiments:
        made.append(("Verdicts without cause", trial_report.false_verdicts(rows)))
    if study.logs:
        made.append(("Estimates from a log", trial_report.coverage(rows)))
    if launched:
        made.append(("Guarded launch", trial_report.launched(launched)))
    return made
