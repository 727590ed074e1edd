"""``pairrank warmstart``: a ranker that begins with what is known already."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from pairrank import data, export, logs, rankers, threads
from pairrank.cli.export import feature_names
from pairrank.cli.fit import DEFAULT_RANKER, add_log_options, click_logs, fit_ranker
from pairrank.documents import COUNTED, Columns, Missing
from pairrank.errors import OptionError
from pairrank.features import spread
from pairrank.rankers import priors


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Make a ranker that begins with what is known already: the weights of another model, labelled data "
        "(LETOR), or click logs. --strength says how many pairs of clicks that knowledge is worth: exploration begins "
        "narrow where it knows and wide where it does not. Wrong knowledge takes several times as many rounds to be "
        "unlearned. Weights do not tell the units of their features: name data or logs beside them, and these do; else "
        "features are taken to be spread evenly over [0, 1]."
    )
    parser.epilog = (
        "examples:\n  pairrank warmstart --data MQ2008 --out model.pairrank\n"
        "  pairrank warmstart --weights old-solr-model.json --names title,body,age --strength 100 --out model.pairrank"
    )
    add_log_options(parser)
    parser.add_argument("--weights", metavar="FILE", help="a model in any format that `pairrank export` reads")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the weights (default: %(default)s)")
    parser.add_argument("--fold-normalisers", action="store_true", help="for weights over raw features")
    parser.add_argument("--data", metavar="DATA", help="labelled data: a folder, a file or a synthetic: name")
    parser.add_argument("--split", default="train", help="which split of DATA (default: %(default)s)")
    parser.add_argument("--fold", type=int, default=1, help="which fold of DATA (default: %(default)s)")
    parser.add_argument("--normalise", default="query", help="of DATA, as in simulate (default: %(default)s)")
    parser.add_argument("--strength", type=float, default=300.0, metavar="PAIRS", help="default: %(default)g")
    parser.add_argument("--ranker", default=DEFAULT_RANKER, help="which ranker, with options (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the ranker's seed (default: %(default)s)")
    parser.add_argument("--out", metavar="MODEL", required=True, help="where to write the ranker")
    parser.set_defaults(check=False)


@threads.single()
def run(args: argparse.Namespace) -> None:
    if bool(args.data) == bool(args.logs) and (args.data or not args.weights):
        raise OptionError("expected --weights FILE, --data DATA or LOGS; data or logs may stand beside weights")
    if not args.weights and (args.fold_normalisers or args.scale != 1.0 or (args.names and args.data)):
        about = "--scale, --fold-normalisers and, beside data, --names"
        raise OptionError(f"{about} are about the weights, and no --weights FILE came")
    if args.weights:
        ranker = _from_weights(args)
    elif args.data:
        ranker = _from_labels(args)
    else:
        ranker = _from_logs(args)
    ranker.save(args.out)
    print(f"{args.out}: {ranker.n_features} features, worth {args.strength:g} pairs")


def _from_weights(args: argparse.Namespace) -> Any:
    model = export.load(args.weights)
    model = model.folded() if args.fold_normalisers else model
    if model.is_normalised:
        print("pairrank: the weights are for normalised features: give the ranker such features too", file=sys.stderr)
    names = Columns.of(COUNTED, feature_names(args.names) or model.feature_names).names or ()
    weights = model.reordered(names)
    if np.isnan(weights).all():
        known = ", ".join(model.feature_names)
        raise OptionError(f"{args.weights} has none of the features {', '.join(names)}; it has {known}")
    ranker = _made(args, names)
    lam = priors.settings_of(ranker).lam
    variance = _spread(args, ranker.missing)
    if np.ndim(variance) and len(variance) != len(weights):
        raise OptionError(f"the data or logs have {len(variance)} features that vary, the weights {len(weights)}")
    priors.from_weights(args.scale * weights, lam=lam, strength=args.strength, variance=variance).apply(ranker)
    return ranker


def _made(args: argparse.Namespace, names: tuple[str, ...]) -> Any:
    """The ranker that is asked for; it keeps the names, unless they are those of features without any."""
    given = {} if names == tuple(str(place + 1) for place in range(len(names))) else {"feature_names": names}
    return rankers.make(args.ranker, n_features=len(names), seed=args.seed, **given)


def _spread(args: argparse.Namespace, missing: Missing) -> Any:
    """E[(x_i - x_j)_f²], (d,), of the data or logs that stand beside weights; else that of features over [0, 1]."""
    if args.data:
        documents = data.load(args.data, args.split, args.fold, normalise=args.normalise)
        return spread.of(documents.features, documents.offsets)
    if not args.logs:
        return priors.EVEN
    with click_logs(args) as (paths, _, how):
        return logs.spread(paths, missing=missing, **how)


def _from_labels(args: argparse.Namespace) -> Any:
    labelled = data.load(args.data, args.split, args.fold, normalise=args.normalise)
    ranker = _made(args, tuple(map(str, labelled.feature_ids.tolist())))
    lam, _, model = priors.settings_of(ranker)
    known = (labelled.features, labelled.grades, labelled.offsets)
    priors.from_labels(*known, lam=lam, strength=args.strength, model=model).apply(ranker)
    kept = " ".join(map(str, labelled.feature_ids.tolist()))
    print(
        f"pairrank: the ranker's features are these of the data, normalised by {args.normalise}: {kept}",
        file=sys.stderr,
    )
    return ranker


def _from_logs(args: argparse.Namespace) -> Any:
    found, ranker, _ = fit_ranker(args)
    if found.problems:
        print(f"{found.n_lists:,} good lists; bad rows:\n{found.problems.text()}", file=sys.stderr)
    found.prior(args.strength).apply(ranker)
    return ranker
