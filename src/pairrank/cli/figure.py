"""``pairrank figure``: pictures for papers and read-mes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import pairrank
from pairrank import drawing
from pairrank.archive import write_atomically
from pairrank.click_models import make
from pairrank.data import load
from pairrank.errors import OptionError
from pairrank.rankers.pairrank import PairRank
from pairrank.rng import Purpose, generator

# The example: one query of an outdoor shop. Features: match in title, match in text, sales, reviews, in stock.
_EXAMPLE = {
    "Rain jacket, men": (0.9, 0.8, 0.7, 0.9, 1.0),
    "Rain jacket, women": (0.9, 0.7, 0.6, 0.8, 1.0),
    "Light rain shell": (0.6, 0.9, 0.5, 0.7, 1.0),
    "Down jacket": (0.5, 0.3, 0.9, 0.8, 1.0),
    "Fleece jacket": (0.5, 0.2, 0.8, 0.6, 1.0),
    "Rain cover for packs": (0.5, 0.6, 0.3, 0.5, 1.0),
    "Rain trousers": (0.4, 0.6, 0.4, 0.4, 0.0),
    "Jacket wash": (0.4, 0.4, 0.2, 0.3, 1.0),
}
_TASTE = (2.0, 1.5, 0.5, 1.0, 0.5)  # what the example's shoppers go by
_LEARNED = 200


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Draw pictures for documents."
    kinds = parser.add_subparsers(dest="figure", metavar="FIGURE", required=True)
    blocks = kinds.add_parser(
        "blocks",
        help="what a model is certain of for one query, as SVG",
        description="Draw the candidates of one query in score order: blocks as bands, certain orders kept, uncertain "
        "pairs joined, and what is shown. Without a model: an example, before and after learning.",
        epilog="example: pairrank figure blocks --model m.pairrank --data MQ2008 --out x.svg",
    )
    blocks.add_argument("--model", metavar="FILE", help="a model that `save` wrote")
    what = "folder, file or synthetic: name of the query's data; features are min-maxed within the query"
    blocks.add_argument("--data", help=what)
    blocks.add_argument("--split", default="test", choices=("train", "vali", "test"), help="default: test")
    blocks.add_argument("--fold", type=int, default=1, help="default: 1")
    blocks.add_argument("--query", type=int, default=0, metavar="N", help="which query of the split (default: 0)")
    blocks.add_argument("--k", type=int, default=10, help="positions to show (default: 10)")
    blocks.add_argument("--compact", action="store_true", help="narrow, for a small screen or a column")
    blocks.add_argument("--out", metavar="FILE.svg", help="default: standard output")


def run(args: argparse.Namespace) -> None:
    if (args.model is None) != (args.data is None):
        raise OptionError("--model and --data go together; without both, an example is drawn")
    if args.out is not None and not args.out.lower().endswith(".svg"):
        raise OptionError(f"--out is {args.out}; the picture is SVG: expected a name that ends in .svg")
    panels = _example() if args.model is None else [_query(args)]
    text = drawing.side_by_side(panels, compact=args.compact)
    if args.out is None:
        sys.stdout.write(text + "\n")
    else:
        write_atomically(Path(args.out), (text + "\n").encode())
        print(f"wrote {args.out}")


def _query(args: argparse.Namespace) -> drawing.Panel:
    ranker = pairrank.load(args.model)
    dataset = load(args.data, split=args.split, fold=args.fold)
    if not 0 <= args.query < dataset.n_queries:
        raise OptionError(f"--query is {args.query}; the {args.split} split has queries 0 to {dataset.n_queries - 1}")
    features, grades = dataset.query(args.query)
    inspection = ranker.inspect(features)
    if inspection is None:
        raise OptionError(f"{args.model} holds a {ranker.name}, which has no notion of blocks; expected a PairRank")
    shown = ranker.rank(features, args.k).ranking
    labels = [f"document {row + 1}, grade {grade}" for row, grade in enumerate(grades.tolist())]
    return drawing.Panel(inspection, labels, shown, heading=f"Query {dataset.query_ids[args.query]}")


def _example() -> list[drawing.Panel]:
    """The shop's ranker when it knows nothing, and after two hundred other queries of its shoppers."""
    labels, X = list(_EXAMPLE), np.array(list(_EXAMPLE.values()))
    ranker = PairRank(X.shape[1], seed=0)
    users = make("navigational", n_grades=2)
    panels = [drawing.Panel(ranker.inspect(X), labels, ranker.rank(X).ranking, heading="Before: every order is open")]
    for number in range(_LEARNED):
        rng = generator(0, number, Purpose.QUERIES)
        candidates = rng.random((12, X.shape[1]))
        wanted = candidates @ np.array(_TASTE) > 3.2
        impression = ranker.rank(candidates, 10)
        clicks = users.clicks(wanted[impression.ranking].astype(np.int64), rng.random((10, 2)))
        ranker.learn(impression, clicks)
    heading = f"After {_LEARNED} searches: only close calls stay open"
    panels.append(drawing.Panel(ranker.inspect(X), labels, ranker.rank(X).ranking, heading=heading))
    return panels
