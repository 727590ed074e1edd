"""``pairrank simulate``: rankers against simulated users on labelled data."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from pairrank import archive, click_models, rankers
from pairrank.cli import experiment_options
from pairrank.errors import InputError
from pairrank.lab import tuned_options
from pairrank.lab.outcomes import RunsFailedError
from pairrank.metrics import mean_interval
from pairrank.sim import RunSpec, Summary

_EPILOG = """\
Within one seed all rankers meet the same queries and the same users' coins. With --out, Ctrl-C leaves a state that
the same command resumes, and runs that are done are not run again.

columns, also the keys of --json rows:
  ndcg, ndcg_ci    NDCG@10 of the final ranker on the test split, mean over seeds; half of its 95 % t interval
  cndcg, cndcg_ci  sum over rounds of NDCG@10 of the shown lists, discounted by 0.9995 a round; likewise
  regret           mis-ordered pairs of the full lists, summed over rounds, mean over seeds
  seconds          computing time of all seeds together
With one seed there is no interval: null.

drift and attacks:
  'perfect(drift=500)'          after 500 rounds users want something else, in clicks and in evaluation alike
  'informational(hostile=0.1)'  every tenth user wants the worst on top; evaluation does not

examples:
  pairrank simulate synthetic:tiny --ranker pairrank --ranker pdgd --clicks navigational
  pairrank simulate synthetic:tiny --ranker mine.py:Mine --ranker pairrank --seeds 5 --engine processes
  pairrank simulate MQ2008 --ranker 'pairrank-c(alpha=0.3)' --clicks perfect --rounds 2000 --seeds 5 --out results
"""


_FORMATS = {"ndcg": ".4f", "ndcg_ci": ".4f", "cndcg": ".1f", "cndcg_ci": ".1f", "regret": ".0f", "seconds": ".1f"}
_DEFAULTS = {"rounds": 1000, "seeds": 1, "fold": 1, "k": 10, "normalise": "query", "stop": "click", "settings": None}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Run rankers against simulated users and say how well they rank and how well they learned."
    parser.epilog = _EPILOG
    parser.add_argument("data", nargs="?", metavar="DATA", help=experiment_options.DATA)
    parser.add_argument(
        "--ranker", action="append", metavar="NAME", help="also file.py:Class; may be repeated (default: pairrank)"
    )
    parser.add_argument(
        "--clicks",
        action="append",
        metavar="NAME",
        help="perfect, navigational, informational, almost-random, position(eta=1), cascade, mixed or file:PATH, also "
        "with drift=ROUNDS and hostile=SHARE in brackets; may be repeated (default: navigational)",
    )
    experiment_options.add(parser, **_DEFAULTS)
    parser.add_argument("--out", metavar="DIR", help="keep the records there, as Parquet")
    parser.add_argument("--json", action="store_true", help="print a JSON array with a row per ranker and users")
    parser.add_argument("--spec", metavar="FILE", help="run exactly this: a run's spec.json, or its text")
    experiment_options.add_options(parser, engine="serial")


def run(args: argparse.Namespace) -> None:
    specs = [_given(args)] if args.spec else _specs(args)
    try:
        _tell(experiment_options.run_all(specs, args, args.out), args.json)
    except RunsFailedError as problem:
        if problem.summaries:
            _tell(problem.summaries, args.json)
        raise


def _tell(summaries: Sequence[Summary], as_json: bool) -> None:
    rows = [_row(list(group)) for _, group in groupby(summaries, key=lambda s: (s.spec.ranker, s.spec.clicks))]
    cells = [["-" if v is None else format(v, _FORMATS.get(name, "")) for name, v in row.items()] for row in rows]
    print(json.dumps(rows, indent=1) if as_json else experiment_options.fitted(list(rows[0]), cells))


def _specs(args: argparse.Namespace) -> list[RunSpec]:
    if args.data is None:
        raise InputError("there are no data; expected DATA (a folder, a file or a synthetic: name) or --spec")
    tuned = experiment_options.settings(args)
    # One spelling each, in the order given; what is named twice is run once.
    texts = [tuned_options.applied(text, tuned) for text in args.ranker or ["pairrank"]]
    names = dict.fromkeys(rankers.spell(*rankers.parse(text)) for text in texts)
    users = dict.fromkeys(click_models.canonical(text, stop=args.stop) for text in args.clicks or ["navigational"])
    protocol = experiment_options.protocol(args)
    specs = [protocol.run(name, who, seed) for name in names for who in users for seed in range(args.seeds)]
    experiment_options.check(specs)
    return specs


def _given(args: argparse.Namespace) -> RunSpec:
    without = {"data": None, "ranker": None, "clicks": None, **_DEFAULTS}
    if also := [name for name, default in without.items() if getattr(args, name) != default]:
        raise InputError(f"--spec says all that a run is, and {', '.join(also)} came too; give one of them")
    text: str = args.spec
    if text.lstrip().startswith("{"):
        return RunSpec.from_json(text)
    return RunSpec.from_json(archive.read_file(text), source=text)


def _row(runs: Sequence[Summary]) -> dict[str, Any]:
    """The seeds of one ranker and users in one row."""
    spec = runs[0].spec
    numbers: dict[str, float] = {}
    for metric in ("ndcg", "cndcg"):
        numbers[metric], numbers[f"{metric}_ci"] = map(float, mean_interval([getattr(run, metric) for run in runs]))
    numbers["regret"] = sum(run.regret for run in runs) / len(runs)
    numbers["seconds"] = sum(run.seconds for run in runs)
    known = {name: None if math.isnan(value) else value for name, value in numbers.items()}
    return {"ranker": spec.ranker, "clicks": spec.clicks, "rounds": spec.rounds, "seeds": len(runs), **known}
