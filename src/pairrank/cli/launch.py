"""``pairrank launch``: how far users of a running service get a ranker's order."""

from __future__ import annotations

import argparse
import json

from pairrank.cli.experiment import address
from pairrank.client import Client
from pairrank.errors import OptionError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say how a ranker is launched, or with --mode decide it: shadow serves the present order and learns, guarded "
        "serves ours as far as what was lost stays within the margin, free serves ours."
    )
    parser.add_argument("ranker", metavar="NAME", help="the ranker")
    parser.add_argument("--mode", choices=("shadow", "guarded", "free"))
    parser.add_argument("--margin", type=float, help="how much less a list may be worth in the mean (0.02)")
    parser.add_argument("--holdout", type=float, help="share of the lists that always get the present order (0.05)")
    parser.add_argument("--most-lost", type=float, help="share of its exposure that a document may lose (0.5)")
    parser.add_argument("--auto", action="store_true", default=None, help="go on by itself when the log allows it")
    address(parser)


def run(args: argparse.Namespace) -> None:
    given = {name: getattr(args, name) for name in ("margin", "holdout", "most_lost", "auto")}
    if args.mode is None and any(value is not None for value in given.values()):
        raise OptionError("a launch is decided with --mode shadow, guarded or free")
    with Client(args.url, key=args.key) as client:
        found = client.launch(args.ranker, args.mode, **{k: v for k, v in given.items() if v is not None})
    print(json.dumps(found) if args.json else f"{args.ranker}: {found['mode']}. {found['sentence']}")
