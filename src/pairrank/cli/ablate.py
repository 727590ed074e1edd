"""``pairrank ablate``: one choice of PairRank's varied, all else equal; drift; attacks."""

from __future__ import annotations

import argparse

from pairrank.cli import experiment_options
from pairrank.lab import ablations, tuned_options

_EPILOG = """\
studies:
  pairs        which pairs of a list are learned from: adjacent (the paper), matched (the authors' program), all,
               averaged (the expectation of matched)
  refine       the transitive closure of certain orders, off (the paper) and on (the authors' program)
  alpha        the width of confidence: Lemma 1's, and constants
  lambda       the penalty, with the summed loss (the paper) and the mean loss (the authors' program)
  exploration  conservative, random, and none at all
  remedies     the way from the paper's ranker to our default, one change after the other
  z            how many standard deviations make an order certain
  options      our default, with one of its options changed at a time
  drift        users who come to want something else halfway, and users who do not: forgetting, and other rankers
  hostile      no attackers among the users, 10 %, 20 % and 30 %: our default, and other rankers

The last four vary plain pairrank, the others pairrank-c. In the last two other rankers take part as they are.

examples:
  pairrank ablate MQ2008 --study pairs --rounds 2000 --seeds 10 --out ablation-pairs
  pairrank ablate MQ2008 --study hostile --clicks informational --out hostile
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Vary one choice of PairRank's with all else equal, and draw one figure of what it changes."
    parser.epilog = _EPILOG
    parser.add_argument("--study", required=True, choices=tuple(ablations.STUDIES), help="what varies")
    parser.add_argument("--ranker", metavar="NAME", help="whose choice (default: the study's own)")
    parser.add_argument("--out", required=True, metavar="DIR", help="where records, figure and report go")
    experiment_options.add_on_data(parser, rounds=2000, seeds=10)


def run(args: argparse.Namespace) -> None:
    base = args.ranker or ablations.STUDIES[args.study].base
    experiment = ablations.experiment(
        args.study,
        experiment_options.protocol(args),
        command=experiment_options.command(args),
        base=tuned_options.applied(base, experiment_options.settings(args)),
        users=experiment_options.users(args),
        seeds=args.seeds,
    )
    experiment_options.run_experiment(experiment, args)
