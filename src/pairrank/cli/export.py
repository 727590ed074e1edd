"""``pairrank export``: a linear model into a search engine, or from one format to another."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairrank import archive, export
from pairrank.data.normalize import Normaliser
from pairrank.errors import ExportError
from pairrank.export.additive import LEAVES


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a linear model in a format that search engines read. MODEL is a ranker's file, a "
        "service's store (a SQLite file or postgresql://…), a model in one of the formats written here, or weights "
        "from scikit-learn (.npy, JSON with coef_)."
    )
    parser.epilog = (
        "example:\n  pairrank export model.pairrank --format elasticsearch --name shop-v7 "
        "--names title_bm25,body_bm25,age --normaliser normaliser.json --out model.json"
    )
    parser.add_argument("model", metavar="MODEL", help="the file to read")
    formats = sorted({*export.FORMATS, *export.ADDITIVE_FORMATS})
    parser.add_argument("--format", required=True, choices=formats, help="the format to write")
    parser.add_argument(
        "--from", dest="source", choices=export.READABLE, help="the format of MODEL (default: found out)"
    )
    parser.add_argument("--ranker", metavar="NAME", help="which ranker of a store that holds several")
    parser.add_argument("--out", metavar="FILE", help="where to write (default: standard output)")
    parser.add_argument("--name", help="the model's name in the search engine (default: that of MODEL)")
    parser.add_argument(
        "--names", metavar="FILE|a,b,c", help="feature names, one a line in a file, or with commas between"
    )
    parser.add_argument(
        "--normaliser",
        metavar="FILE",
        help="JSON of the normaliser that MODEL was trained with; or query: min-max within the query",
    )
    parser.add_argument(
        "--fold", action="store_true", help="fold normalisers into the weights: same orders, raw features"
    )
    parser.add_argument(
        "--nonnegative", action="store_true", help="fit weights of which none is below 0; for engines that need it"
    )
    parser.add_argument(
        "--leaves", type=int, default=LEAVES, help="of all trees of an additive model (default: %(default)s)"
    )
    parser.add_argument("--store", default="_DEFAULT_", help="Solr's feature store (default: %(default)s)")


def run(args: argparse.Namespace) -> None:
    model = export.load_any(args.model, args.source, nonnegative=args.nonnegative, ranker=args.ranker)
    names = feature_names(args.names)
    if isinstance(model, export.AdditiveModel):
        _write_additive(args, model, names)
        return
    normaliser: Any = model.normalisation
    if args.normaliser:
        if model.is_normalised:
            raise ExportError(f"{args.model} brings its own normalisers; leave out --normaliser")
        normaliser = (
            Normaliser("query")
            if args.normaliser == "query"
            else Normaliser.from_json(archive.read_file(args.normaliser).decode("utf-8", errors="replace"))
        )
    model = export.LinearModel.of(
        model.weights, name=args.name or model.name, feature_names=names or model.feature_names, normaliser=normaliser
    )
    _write(args, export.dumps(model, args.format, fold=args.fold, store=args.store))
    if not model.is_normalised:
        print("pairrank: no normaliser: the engine must give features as the ranker saw them", file=sys.stderr)


def _write_additive(args: argparse.Namespace, model: export.AdditiveModel, names: list[str] | None) -> None:
    if args.normaliser or args.fold:
        raise ExportError("an additive model takes features as they come; leave out --normaliser and --fold")
    if names and len(names) != model.n_features:
        raise ExportError(f"{len(names)} names came for {model.n_features} features; expected one each")
    model = replace(model, name=args.name or model.name, feature_names=tuple(names or model.feature_names))
    _write(args, export.dumps(model, args.format, store=args.store, leaves=args.leaves))
    if args.format not in ("json", "onnx"):
        error = export.additive.largest_error(model.steps(args.leaves))
        print(f"pairrank: in steps; between the knots scores are within {error:.3g} of the model's", file=sys.stderr)


def _write(args: argparse.Namespace, blob: bytes) -> None:
    if args.out:
        archive.write_atomically(args.out, blob)
    else:
        sys.stdout.buffer.write(blob)
        sys.stdout.buffer.flush()


def feature_names(text: str | None) -> list[str] | None:
    """The names in ``text``: a file's lines if there is such a file, else what stands between the commas."""
    if text is None:
        return None
    path = Path(text)
    if path.is_file():
        try:
            lines = archive.read_file(path).decode("utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise ExportError(f"the names in {text} are not in UTF-8") from None
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return [name.strip() for name in text.split(",")]
