"""How the exports of an additive model rank a set's test queries, read back by the libraries that will run them.

By hand: ``python benchmarks/additive_exports.py MQ2008`` lets a ranker learn 1,000 lists of perfect users on each of
the five folds, and prints for each format the share of pairs that it orders as the ranker does, the share of queries
that it ranks so, and the largest difference of a score.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import lightgbm
import numpy as np
import onnxruntime
import xgboost

from pairrank import PairRank, data, export, simulate, threads
from pairrank.export import AdditiveModel, additive
from pairrank.types import FloatArray

FOLDS, LISTS = range(1, 6), 1000


@threads.single()
def main() -> None:
    """Print a row for every format, and what was stated for trees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    path = parser.parse_args().data
    found: dict[str, list[FloatArray]] = {}
    for fold in FOLDS:
        train, test = (data.load(path, split=split, fold=fold) for split in ("train", "test"))
        ranker = PairRank(train.n_features, model="additive")
        simulate((train, test), ranker=ranker, clicks="perfect", rounds=LISTS, panel=0, ideal="")
        model = AdditiveModel.from_ranker(ranker)
        # In 32 bits, as some of the libraries have them.
        X = np.asarray(test.features).astype(np.float32).astype(np.float64)
        ours, cuts = ranker.score(X), test.offsets[1:-1]
        ours += np.mean(model.score(X) - ours)  # a constant that no order depends on
        ends = [(function.x[0], function.x[-1]) for function in model.functions]
        within = np.all([(x >= low) & (x <= high) for (low, high), x in zip(ends, X.T, strict=True)], axis=0)
        print(f"fold {fold}: {ranker.n_inputs - train.n_features} inputs of bent functions, within {within.mean():.1%}")
        for name, score in formats(model):
            theirs = score(X)
            pairs = [alike(a, b) for a, b in zip(np.split(ours, cuts), np.split(theirs, cuts), strict=True)]
            found.setdefault(name, []).append(np.array(pairs))
            away = np.abs(theirs - ours)
            stated = "" if "leaves" not in name else f", stated {additive.largest_error(model.steps(leaves(name))):.4f}"
            print(f"  {name}: off by {away[within].max():.1e} within, {away.max():.1e} anywhere{stated}")
    for name, folds in found.items():
        same, of = np.concatenate(folds).T
        print(f"{name}: {same.sum() / of.sum():.3%} of pairs, {np.mean(same == of):.1%} of {len(of)} queries")


def alike(ours: FloatArray, theirs: FloatArray) -> tuple[int, int]:
    """How many of the pairs that we order are ordered so, and how many there are."""
    a, b = (np.sign(np.subtract.outer(s, s)) for s in (ours, theirs))
    return int(np.sum((a > 0) & (b > 0))), int(np.sum(a > 0))


def leaves(name: str) -> int:
    """Of a format's name."""
    return int(name.split()[1])


def formats(model: AdditiveModel) -> Iterator[tuple[str, Callable[[FloatArray], FloatArray]]]:
    """Names, and scores as each format gives them."""
    yield "json", additive.loads(export.dumps(model, "json")).score
    session = onnxruntime.InferenceSession(export.dumps(model, "onnx"))
    yield "onnx", lambda X: np.asarray(session.run(None, {"features": X.astype(np.float32)})[0])
    for n in (16384, 4096):
        text = export.dumps(model, "lightgbm", leaves=n).decode()
        yield f"lightgbm {n} leaves", lambda X, text=text: np.asarray(lightgbm.Booster(model_str=text).predict(X))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.json"
            path.write_bytes(export.dumps(model, "xgboost", leaves=n))
            booster = xgboost.Booster(model_file=path)
        yield (
            f"xgboost {n} leaves",
            lambda X, booster=booster: booster.predict(xgboost.DMatrix(X, feature_names=list(model.feature_names))),
        )


if __name__ == "__main__":
    main()
