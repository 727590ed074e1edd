"""``pairrank data``: look at data sets."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pairrank.data import known_sets, layout, load, synthetic
from pairrank.data.known_sets import Counts
from pairrank.lab.report import tables


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Look at data sets."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    inspect = actions.add_parser(
        "inspect",
        help="count what a data set holds and compare it with what is published",
        description="Count queries, documents, features and grades, and compare them with what is published for "
        "well-known sets. PATH is a folder (Fold1/train.txt, set1.train.txt, ...), a LETOR file, plain or "
        "compressed, or a synthetic: name.",
        epilog="example: pairrank data inspect MSLR-WEB10K --fold 1",
    )
    inspect.add_argument("path", metavar="PATH", help="folder, file or synthetic: name")
    inspect.add_argument("--fold", type=int, default=1, help="fold, or Yahoo set, to look at (default 1)")
    inspect.add_argument("--no-cache", action="store_true", help="read the text even if it is in the cache")
    inspect.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(args: argparse.Namespace) -> None:
    parts, varying = _parts(args)
    whole = known_sets.total(list(parts.values()))
    known = known_sets.closest(whole)
    differ = {} if known is None else known_sets.differences(whole, known)
    if args.json:
        report: dict[str, Any] = {
            "path": args.path,
            "fold": args.fold,
            "splits": {split: part.to_json() for split, part in parts.items()},
            "total": whole.to_json(),
            "varying_features": varying,
            "closest": None if known is None else known.name,
            "differences": {name: {"found": f, "published": p} for name, (f, p) in differ.items()},
        }
        print(json.dumps(report, indent=2))
        return
    print(_table(parts if len(parts) == 1 else {**parts, "total": whole}))
    print(f"\n{varying} of {whole.features} features vary over the training split; the others are dropped by default")
    if known is None:
        print("no published set has this number of features and grades")
    elif not differ:
        print(f"complete: queries, documents, features and grades are those published for {known.name}")
    else:
        print(f"the nearest published set is {known.name}, but it differs:")
        for name, (found, published) in differ.items():
            print(f"  {name}: {_figures(found)} here, {_figures(published)} published")


def _parts(args: argparse.Namespace) -> tuple[dict[str, Counts], int]:
    """Summaries by split ("all" for a single file), and the number of features that vary over the training split."""
    single = not args.path.startswith(synthetic.PREFIX) and Path(args.path).is_file()
    parts: dict[str, Counts] = {}
    varying = 0
    raw = partial(load, normalise="none", drop_constant=False, cache=not args.no_cache)
    for split in (layout.WHOLE,) if single else layout.available(args.path, args.fold):
        dataset = raw(args.path, split, args.fold)
        parts[split] = known_sets.summary(dataset)
        if split in ("train", layout.WHOLE):
            varying = int(np.count_nonzero(dataset.features.max(axis=0) > dataset.features.min(axis=0)))
    return parts, varying


def _table(parts: dict[str, Counts]) -> str:
    rows = [
        ("", *parts),
        ("queries", *(f"{part.queries:,}" for part in parts.values())),
        ("documents", *(f"{part.documents:,}" for part in parts.values())),
        ("features", *(f"{part.features:,}" for part in parts.values())),
        ("documents a query", *(f"{part.documents_per_query:.1f}" for part in parts.values())),
        ("  shortest", *(f"{part.shortest:,}" for part in parts.values())),
        ("  longest", *(f"{part.longest:,}" for part in parts.values())),
        ("queries without relevant", *(f"{part.without_relevant:,}" for part in parts.values())),
    ]
    for grade in range(max(len(part.grades) for part in parts.values())):
        shares = (
            f"{n:,} ({n / part.documents:.1%})" for part in parts.values() for n in part.grades[grade : grade + 1]
        )
        rows.append((f"grade {grade}", *shares))
    return tables.as_text(rows[0], rows[1:], right=True)


def _figures(value: int | tuple[int, ...]) -> str:
    return f"{value:,}" if isinstance(value, int) else " / ".join(f"{n:,}" for n in value)
