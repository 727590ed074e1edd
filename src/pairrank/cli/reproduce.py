"""``pairrank reproduce``: the paper's experiments and figures on your data."""

from __future__ import annotations

import argparse

from pairrank.cli import experiment_options
from pairrank.lab import paper
from pairrank.lab.experiment import ROUNDS, SEEDS

_EPILOG = """\
Figures are numbered as in the paper: 3 offline NDCG@10, 4 cNDCG@10, 5 cosine to the ideal ranker, 6 block size at
ranks 1, 5 and 10, 7a block size by rank, 7b number of blocks; 8 is regret, which the paper only bounds. They come as
PNG and SVG with report.html, report.md and results.json. The same command resumes; pairrank report DIR makes figures
and report again from whatever runs are done, also while others still run.

examples:
  pairrank reproduce MQ2008 --out results/mq2008 --settings mq2008
  pairrank reproduce MSLR-WEB10K --fold 1 --rounds 5000 --seeds 20 --out results/mslr --engine ray --address auto
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Run all of the paper's experiments, draw its figures, test its claims and write a report."
    parser.epilog = _EPILOG
    parser.add_argument(
        "--ranker", action="append", metavar="NAME", help="beside the paper's, also file.py:Class; may be repeated"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="where records, figures and report go")
    experiment_options.add_on_data(parser, rounds=ROUNDS, seeds=SEEDS)


def run(args: argparse.Namespace) -> None:
    experiment = paper.comparison(
        experiment_options.protocol(args),
        command=experiment_options.command(args),
        more=tuple(args.ranker or ()),
        users=experiment_options.users(args),
        seeds=args.seeds,
        settings=experiment_options.settings(args),
    )
    experiment_options.run_experiment(experiment, args)
