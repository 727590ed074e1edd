"""``pairrank calibrate``: how often orders that are called certain are wrong."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from pairrank import archive, click_models
from pairrank.cli.experiment_options import add, positive
from pairrank.engines import cores
from pairrank.lab import executors
from pairrank.lab.analysis import calibration
from pairrank.lab.experiment import USERS
from pairrank.lab.report import tables
from pairrank.progress import progress

_EPILOG = """\
Documents are synthetic and the ideal weights are known. The first lines are for feedback that is just what the model
assumes, one click a pair drawn from the logistic model: there the share of wrong orders is to stay below 5 %, and the
widths are to be about as wide as needed (a ratio of 1). The others are for simulated users, whose clicks depend on what
stands where: rankers that differ in one thing at a time show where over-confidence comes from.

columns:
  certain at z         what certain means: a score difference of more than z standard deviations. 1.645 is 95 %,
                       one-sided; the default is judged at its own z too, the one that decides what it keeps
  called certain       share of all pairs whose order is certain
  of these wrong       share of those that contradict the ideal weights, with its standard error over seeds
  width used / needed  the nominal width over the one that 95 % of the deviations keep to; known for logistic feedback

An interrupted study begins again.

examples:
  pairrank calibrate --out calibration
  pairrank calibrate --clicks informational --rounds 300 --seeds 5 --out calibration
"""
_ROUNDS = (30, 100, 300, 1000, 2000, 5000, 10_000)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Measure on data with known weights how often orders called certain are wrong, and why."
    parser.epilog = _EPILOG
    parser.add_argument("--out", required=True, metavar="DIR", help="where calibration.json and calibration.md go")
    parser.add_argument("--features", type=positive, default=10, metavar="N", help="of a document (default: 10)")
    add(parser, rounds=2000, seeds=20, clicks=None, jobs=None)
    parser.set_defaults(resume=None)


def run(args: argparse.Namespace) -> int:
    rounds = (*(t for t in _ROUNDS if t < args.rounds), args.rounds)
    users = tuple(dict.fromkeys(click_models.canonical(text) for text in args.clicks or USERS))
    study = calibration.Study(features=args.features, rounds=rounds, seeds=args.seeds, users=users)
    executors.prepare(args.out, "")
    with progress(len(study.cases()) * study.seeds, "runs") as report:
        rows = calibration.run(study, args.jobs or cores(), report)
    head, lines = calibration.table(rows)
    content = {"nominal": calibration.LEVEL, "seeds": study.seeds, "rows": [asdict(row) for row in rows]}
    archive.write_atomically(Path(args.out) / "calibration.json", json.dumps(content, indent=1).encode() + b"\n")
    archive.write_atomically(Path(args.out) / "calibration.md", tables.as_markdown(head, lines).encode() + b"\n")
    print(tables.as_text(head, lines))
    return 0
