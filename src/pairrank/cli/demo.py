"""``pairrank demo``: all rankers, three kinds of users, embedded data, about a minute."""

from __future__ import annotations

import argparse
from dataclasses import replace

from pairrank.cli import experiment_options
from pairrank.errors import OptionError
from pairrank.lab import paper
from pairrank.lab.experiment import check_defaults

_EPILOG = """\
The table marks the best ranker for each kind of users, offline (NDCG@10 of the learned ranker on held-out queries)
and online (cNDCG@10 of the lists that users saw). report.html holds the figures, the tests and the paper's claims as
measured; open it in a browser. Ctrl-C and the same command again go on where it stopped.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare PairRank with all baselines for three kinds of users, on synthetic data that need no "
        "download; print a table and write a report with figures."
    )
    parser.epilog = _EPILOG
    parser.add_argument("--out", default="pairrank-demo", metavar="DIR", help="where to (default: pairrank-demo)")
    experiment_options.add(parser, rounds=paper.DEMO.rounds, seeds=paper.DEMO_SEEDS)
    experiment_options.add_options(parser)


def run(args: argparse.Namespace) -> None:
    experiment = paper.comparison(
        replace(paper.DEMO, rounds=args.rounds), title="PairRank in a minute", command="pairrank demo", seeds=args.seeds
    )
    try:
        check_defaults(args.out, experiment.rankers)
    except OptionError:  # a minute's work of another version: not worth a question
        args.resume = False
    experiment_options.run_experiment(experiment, args)
