"""``pairrank report``: figures, tables and claims again from records."""

from __future__ import annotations

import argparse

from pairrank.cli import experiment_options


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Make the figures and the report of a folder again from the records of the runs that are done; "
        "it does no harm while other runs are still under way."
    )
    parser.add_argument("out", metavar="DIR", help="the --out of demo, reproduce, ablate or simulate")


def run(args: argparse.Namespace) -> None:
    experiment_options.show_report(args.out)
