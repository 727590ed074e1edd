"""Additive models out of the door, read back by the libraries that will run them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import lightgbm
import numpy as np
import onnxruntime
import pandas as pd
import pytest
import xgboost

from pairrank import PairRank, cli, export
from pairrank.errors import ExportError, FeatureError, NewerFormatError
from pairrank.export import AdditiveModel, additive, trees
from pairrank.types import FloatArray

NAMES = ["text score", "stars", "flag", "price"]


def documents(rng: np.random.Generator, n: int) -> FloatArray:
    """A heavy tail, a few values, two values, and missing ones; in 32 bits, as some of the libraries have them."""
    X = np.exp(rng.normal(size=(n, 4)))
    X[:, 1] = rng.integers(1, 6, size=n)
    X[:, 2] = rng.random(n) < 0.5
    X[rng.random(n) < 0.2, 3] = np.nan
    return X.astype(np.float32).astype(np.float64)


@pytest.fixture(scope="module")
def ranker() -> PairRank:
    ranker, rng = PairRank(feature_names=NAMES, model="additive"), np.random.default_rng(0)
    for _ in range(300):
        impression = ranker.rank(documents(rng, 10), 6)
        X = impression.features
        wanted = (np.abs(X[:, 1] - 3) < 1.5) | np.isnan(X[:, 3]) | (np.abs(np.log(X[:, 0])) < 0.4)
        ranker.learn(impression, rng.random(6) < 0.1 + 0.7 * wanted)
    assert (ranker._units.stiffness < 1).sum() >= 1
    return ranker


@pytest.fixture(scope="module")
def tests() -> FloatArray:
    return documents(np.random.default_rng(1), 500)


def orders(ours: FloatArray, theirs: FloatArray) -> float:
    """The share of pairs that both order alike."""
    upper = np.triu_indices(len(ours), 1)
    a, b = (np.sign(np.subtract.outer(s, s))[upper] for s in (ours, theirs))
    return float(np.mean(a == b))


def test_the_model_scores_as_the_ranker(ranker: PairRank, tests: FloatArray) -> None:
    model = AdditiveModel.from_ranker(ranker)
    ours, theirs = ranker.score(tests), model.score(tests)
    np.testing.assert_allclose(theirs - theirs.mean(), ours - ours.mean(), atol=1e-10)
    named = AdditiveModel.from_ranker(ranker, feature_names=[f"f{number}" for number in range(tests.shape[1])])
    frame = pd.DataFrame(tests, columns=named.feature_names)
    np.testing.assert_array_equal(named.score(frame[frame.columns[::-1]]), theirs)
    beyond = 50.0 * tests
    ours, theirs = ranker.score(beyond), model.score(beyond)
    np.testing.assert_allclose(theirs - theirs.mean(), ours - ours.mean(), atol=1e-8)


def test_json_loses_nothing(ranker: PairRank, tests: FloatArray) -> None:
    model = AdditiveModel.from_ranker(ranker)
    blob = export.dumps(model, "json")
    again = additive.loads(blob)
    assert np.array_equal(again.score(tests), model.score(tests))
    assert additive.dumps(again) == blob


def test_onnx_scores_as_we_do(ranker: PairRank, tests: FloatArray) -> None:
    model = AdditiveModel.from_ranker(ranker)
    session = onnxruntime.InferenceSession(export.dumps(model, "onnx"))
    lacking = tests.copy()
    lacking[::7, 0] = np.nan  # a feature that never lacked: there is no score, here as there
    for X in (tests, 30.0 * tests, lacking, tests[:0]):
        X = X.astype(np.float32)
        (scores,) = session.run(None, {"features": X})
        np.testing.assert_allclose(scores, model.score(X), atol=1e-10)


@pytest.mark.parametrize("leaves", [64, 1000, 16384])
def test_trees_keep_to_the_stated_error(ranker: PairRank, tests: FloatArray, leaves: int, tmp_path: Path) -> None:
    model = AdditiveModel.from_ranker(ranker)
    steps = model.steps(leaves)
    assert sum(len(step.values) for step in steps) <= leaves
    error = additive.largest_error(steps)
    low, high = ([f.x[end] for f in model.functions] for end in (0, -1))
    X = np.clip(tests, low, high)
    ours = model.score(X)
    path = tmp_path / "model.json"
    path.write_bytes(export.dumps(model, "xgboost", leaves=leaves))
    booster = xgboost.Booster(model_file=path)
    scores = {"xgboost": booster.predict(xgboost.DMatrix(X, feature_names=NAMES))}
    text = export.dumps(model, "lightgbm", leaves=leaves).decode()
    scores["lightgbm"] = np.asarray(lightgbm.Booster(model_str=text).predict(X))
    for library, theirs in scores.items():
        assert np.abs(theirs - ours).max() <= error + 1e-6, library
        assert orders(ours, theirs) >= (0.999 if leaves == 16384 else 0.95), library
    assert booster.attr("largest_error") == repr(error)


def test_few_values_are_exact_and_others_within_the_error(ranker: PairRank) -> None:
    model = AdditiveModel.from_ranker(ranker)
    assert [f.few for f in model.functions] == [False, True, True, False]
    only = dataclasses.replace(model, functions=tuple(f for f in model.functions if f.few), feature_names=("a", "b"))
    X = np.array([[s, b] for s in range(1, 6) for b in (0, 1)], dtype=np.float64)
    text = export.dumps(only, "lightgbm", leaves=64).decode()
    np.testing.assert_allclose(np.asarray(lightgbm.Booster(model_str=text).predict(X)), only.score(X), atol=1e-12)
    between = np.random.default_rng(0).uniform([1.0, 0.0], [5.0, 1.0], (100, 2))  # came when the knots had been laid
    away = np.asarray(lightgbm.Booster(model_str=text).predict(between)) - only.score(between)
    assert np.abs(away).max() <= additive.largest_error(only.steps(64)) + 1e-12
    with pytest.raises(ExportError, match="two features would be called 'a_b'"):
        export.dumps(dataclasses.replace(only, feature_names=("a b", "a_b")), "lightgbm", leaves=64)
    # XGBoost makes no matrix with such names, and what LightGBM dumps with the others is no JSON.
    for format, name in (("xgboost", "price<50"), ("xgboost", "tags[0]"), ("lightgbm", '27"'), ("lightgbm", "a\\b")):
        with pytest.raises(ExportError, match=r"cannot take .* for a name"):
            export.dumps(dataclasses.replace(only, feature_names=(name, "b")), format, leaves=64)


def test_solr_adds_up_the_same_trees(ranker: PairRank, tests: FloatArray) -> None:
    model = AdditiveModel.from_ranker(ranker)
    content = json.loads(export.dumps(model, "solr", store="shop"))
    assert content["class"] == "org.apache.solr.ltr.model.MultipleAdditiveTreesModel"
    X = tests[~np.isnan(tests).any(axis=1)]

    def value(node: dict[str, object], document: dict[str, float]) -> float:
        if "value" in node:
            return float(str(node["value"]))
        limit = np.float32(str(node["threshold"])) + np.float32(1e-6)  # as Solr reads it
        side = "left" if np.float32(document[str(node["feature"])]) <= limit else "right"
        return value(node[side], document)  # type: ignore[arg-type]

    ours = [
        sum(
            float(tree["weight"]) * value(tree["root"], dict(zip(NAMES, x, strict=True)))
            for tree in content["params"]["trees"]
        )
        for x in X.tolist()
    ]
    text = export.dumps(model, "lightgbm").decode()
    np.testing.assert_allclose(ours, np.asarray(lightgbm.Booster(model_str=text).predict(X)), atol=0.02)
    assert np.mean(np.isclose(ours, np.asarray(lightgbm.Booster(model_str=text).predict(X)), atol=1e-9)) > 0.98


def test_solr_refuses_what_it_cannot_tell_apart() -> None:
    ranker, rng = PairRank(n_features=1, model="additive"), np.random.default_rng(0)
    for _ in range(70):
        impression = ranker.rank(1e-12 * rng.random((10, 1)), 6)
        ranker.learn(impression, rng.random(6) < 1e12 * impression.features[:, 0])
    model = AdditiveModel.from_ranker(ranker)
    assert export.dumps(model, "xgboost")
    with pytest.raises(ExportError, match="values of '1' lie closer together than Solr can tell"):
        export.dumps(model, "solr")


@pytest.mark.parametrize("n_days", [2, 5, 20])
def test_32_bits_are_refused_where_they_cannot_tell_values_apart(n_days: int) -> None:
    """20240101 and 20240102 are the same number there; LightGBM and ours can tell."""
    ranker, rng = PairRank(n_features=2, model="additive"), np.random.default_rng(0)
    for _ in range(70):
        days = 20240101.0 + rng.integers(0, n_days, 10)
        shown = ranker.rank(np.column_stack([days, rng.random(10)]), 6)
        ranker.learn(shown, shown.features[:, 0] > 20240101)
    model, days = AdditiveModel.from_ranker(ranker), np.column_stack([20240101.0 + np.arange(n_days), np.ones(n_days)])
    for format, told in (("xgboost", "XGBoost can tell"), ("onnx", "ONNX can tell")):
        with pytest.raises(ExportError, match=f"values of '1' lie closer together than {told}"):
            export.dumps(model, format)
    scores = np.asarray(lightgbm.Booster(model_str=export.dumps(model, "lightgbm").decode()).predict(days))
    np.testing.assert_allclose(np.diff(scores), np.diff(ranker.score(days)), atol=1e-9 if n_days < 10 else 0.01)


@pytest.mark.parametrize("few", [False, True])
def test_values_that_rounding_has_put_apart_are_no_reason_to_refuse(few: bool) -> None:
    """As those of min-max in 32 bits: the score makes next to nothing of the difference."""
    ranker, rng = PairRank(n_features=2, model="additive"), np.random.default_rng(0)

    def documents(n: int) -> FloatArray:
        piled = rng.choice([0.0, np.nextafter(np.float32(1), np.float32(0)), 1.0], n)
        return np.column_stack([np.where(rng.random(n) < (0.5 * (not few)), rng.random(n), piled), rng.random(n)])

    for _ in range(70):
        shown = ranker.rank(documents(10), 6)
        ranker.learn(shown, rng.random(6) < 0.5 * shown.features.sum(axis=1))
    model, X = AdditiveModel.from_ranker(ranker), documents(500).astype(np.float32)
    X[:, 1] = X[:, 1].clip(0.1, 0.9)  # trees stay where they are beyond the knots
    assert np.diff(model.functions[0].x).min() < 1e-7
    booster = xgboost.Booster(model_file=bytearray(export.dumps(model, "xgboost")))
    error = 1.4 * export.additive.largest_error(model.steps()) + 1e-6
    np.testing.assert_allclose(booster.inplace_predict(X), model.score(X), atol=error)
    assert export.dumps(model, "solr")
    session = onnxruntime.InferenceSession(export.dumps(model, "onnx"))
    np.testing.assert_allclose(session.run(None, {"features": X})[0], model.score(X), atol=1e-12)


def test_a_model_that_has_seen_nothing_goes_out(tests: FloatArray) -> None:
    model = AdditiveModel.from_ranker(PairRank(4, model="additive"))
    session = onnxruntime.InferenceSession(export.dumps(model, "onnx"))
    X = np.nan_to_num(tests).astype(np.float32)
    assert not session.run(None, {"features": X})[0].any()
    assert not np.asarray(lightgbm.Booster(model_str=export.dumps(model, "lightgbm").decode()).predict(X)).any()


def test_lines_without_ends_do_not_go_out_as_trees() -> None:
    ranker, rng = PairRank(2, model="additive"), np.random.default_rng(0)
    for _ in range(9):  # ends are found at list 64
        shown = ranker.rank(rng.normal(size=(8, 2)), 5)
        ranker.learn(shown, shown.features[:, 0] > 0)
    model, X = AdditiveModel.from_ranker(ranker), rng.normal(size=(8, 2))
    np.testing.assert_allclose(model.score(X), ranker.score(X), atol=1e-12)
    with pytest.raises(ExportError, match="'1' is a line without ends"):
        model.steps()


def test_the_command(ranker: PairRank, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranker.save(tmp_path / "m.pairrank")
    out = tmp_path / "m.json"
    assert cli.main(["export", str(tmp_path / "m.pairrank"), "--format", "xgboost", "--out", str(out)]) == 0
    assert "within" in capsys.readouterr().err
    assert json.loads(out.read_bytes())["learner"]["feature_names"] == NAMES
    assert cli.main(["export", str(tmp_path / "m.pairrank"), "--format", "json", "--out", str(out)]) == 0
    assert cli.main(["export", str(out), "--format", "lightgbm", "--out", str(tmp_path / "m.txt")]) == 0
    assert cli.main(["export", str(out), "--format", "ranklib"]) == 2
    assert "cannot hold a function per feature" in capsys.readouterr().err


def test_products_go_out_as_json_and_onnx_alone(tmp_path: Path) -> None:
    session = pytest.importorskip("onnxruntime").InferenceSession
    pytest.importorskip("onnx")
    ranker, rng = PairRank(4, model="additive", interactions=3), np.random.default_rng(0)
    for _ in range(140):
        X = rng.random((10, 4)).astype(np.float32)
        X[rng.random((10, 4)) < 0.05] = np.nan
        shown = ranker.rank(X)
        x = np.nan_to_num(shown.features, nan=0.5) - 0.5
        ranker.learn(shown, rng.random(10) < 1 / (1 + np.exp(-20 * x[:, 0] * x[:, 1])))
    units = ranker._units
    assert units.stiffness[4:].min() < 10
    assert sorted(units.products[units.stiffness[4:].argmin()]) == [0, 1]
    X = np.vstack([X, 3 * X, -X])  # beyond the knots, too
    X[0, 0] = np.nan
    scores = ranker.score(X)
    np.testing.assert_allclose(ranker.explain(X).contribution.sum(axis=1), scores - scores.mean(), atol=1e-12)
    assert ranker.explain(X).contribution.shape == (30, 4)
    again = PairRank.from_bytes(ranker.to_bytes())
    np.testing.assert_array_equal(again.score(X), scores)
    model = AdditiveModel.from_ranker(ranker)
    read = additive.loads(export.dumps(model, "json"))
    graph = session(export.dumps(model, "onnx"))
    (told,) = graph.run(None, {"features": X})
    assert graph.run(None, {"features": X[:0]})[0].shape == (0,)
    for other in (model.score(X), read.score(X), told):
        np.testing.assert_allclose(np.diff(other), np.diff(scores), atol=1e-12)
    with pytest.raises(ExportError, match="cannot hold products"):
        export.dumps(model, "xgboost")
    damaged = json.loads(export.dumps(model, "json"))
    for wrong, told in (
        ({"features": [0, 9]}, r"a product of the features \[0, 9\]"),
        ({"features": [0, True]}, "expected two of each"),
        ({"features": [0]}, "expected two of each"),
        ({"middles": [0.0]}, "expected two of each"),
    ):
        one = {**damaged["products"][0], **wrong}
        with pytest.raises(ExportError, match=told):
            additive.loads(json.dumps({**damaged, "products": [one]}).encode())
    for wrong_list in ([3], {"a": 1}, None):
        with pytest.raises(ExportError, match=r"'(features|products)'"):
            additive.loads(json.dumps({**damaged, "products": wrong_list}).encode())


def test_what_is_refused(ranker: PairRank, tmp_path: Path) -> None:
    model = AdditiveModel.from_ranker(ranker)
    with pytest.raises(ExportError, match="elasticsearch cannot hold a function"):
        export.dumps(model, "elasticsearch")
    with pytest.raises(ExportError, match="this model needs"):
        export.dumps(model, "xgboost", leaves=3)
    with pytest.raises(ExportError, match="this one is linear"):
        export.dumps(export.LinearModel.from_ranker(PairRank(2)), "lightgbm")
    with pytest.raises(ExportError, match="has the format 'pairrank-additive'; expected 'pairrank-linear'"):
        export.loads(export.dumps(AdditiveModel.from_ranker(ranker), "json"))
    with pytest.raises(ExportError, match="has no weights; expected a linear ranker; AdditiveModel takes"):
        export.LinearModel.from_ranker(ranker)
    with pytest.raises(ExportError, match='model="additive"'):
        AdditiveModel.from_ranker(PairRank(2))
    with pytest.raises(FeatureError):
        model.score(np.ones((2, 3)))
    ranker.save(tmp_path / "m.pairrank")
    with pytest.raises(ExportError, match="holds an additive model"):
        export.load(tmp_path / "m.pairrank")
    with pytest.raises(ExportError, match="expected 4, all different"):
        AdditiveModel.from_ranker(ranker, feature_names=["a"] * 4)
    good = json.loads(export.dumps(model, "json"))
    for change, error in (
        ({"version": 2}, NewerFormatError),
        ({"format": "other"}, ExportError),
        ({"features": [{"name": "a", "x": [2, 1], "y": [0, 0], "slope": 1}]}, ExportError),
        ({"features": [{"name": "a", "x": [1], "y": [0], "slope": "steep"}]}, ExportError),
        ({"features": ["a"]}, ExportError),
    ):
        with pytest.raises(error):
            additive.loads(json.dumps(good | change).encode())


def test_a_tree_is_as_shallow_as_can_be() -> None:
    steps = additive.Steps(np.arange(1.0, 64.0), np.arange(64.0), None, 0.0)
    tree = trees.balanced(0, steps)

    def depth(node: int) -> int:
        return 0 if node < 0 else 1 + max(depth(tree.left[node]), depth(tree.right[node]))

    assert depth(0) == 6
