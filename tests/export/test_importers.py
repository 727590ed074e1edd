from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from pairrank import export
from pairrank.errors import ExportError
from pairrank.export import LinearModel, MinMax, Standard, from_sklearn
from pairrank.rankers.ranknet import SGDRankNet


def fitted(estimator: object, names: list[str] | None = None) -> object:
    rng = np.random.default_rng(0)
    X = rng.normal(3, 2, size=(80, 3))
    y = X @ [1.0, -2.0, 0.5] + rng.normal(size=80)
    if names is not None:
        pandas = pytest.importorskip("pandas")
        X = pandas.DataFrame(X, columns=names)
    return estimator.fit(X, y)  # type: ignore[attr-defined]


def test_live_estimators_and_pipelines() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

    X = np.random.default_rng(1).normal(3, 2, size=(10, 3))
    for scaler, kind in ((StandardScaler(), Standard), (MinMaxScaler(), MinMax)):
        pipeline = fitted(make_pipeline(scaler, linear_model.Ridge()))
        model = from_sklearn(pipeline, feature_names=["a", "b", "c"])
        assert all(isinstance(entry, kind) for entry in model.normalisation)
        np.testing.assert_allclose(model.score(X) + pipeline[-1].intercept_, pipeline.predict(X))
    bare = fitted(linear_model.Ridge())
    assert from_sklearn(bare).weights.tolist() == bare.coef_.tolist()
    with pytest.raises(ExportError, match="RobustScaler"):
        from_sklearn(fitted(make_pipeline(RobustScaler(), linear_model.Ridge())))
    with pytest.raises(ExportError, match="3 steps"):
        from_sklearn(fitted(make_pipeline(StandardScaler(), StandardScaler(), linear_model.Ridge())))
    with pytest.raises(ExportError, match="range"):
        from_sklearn(fitted(make_pipeline(MinMaxScaler((-1, 1)), linear_model.Ridge())))
    with pytest.raises(ExportError, match="no coef_"):
        from_sklearn(linear_model.Ridge())


def test_a_constant_feature_behind_a_min_max_scaler() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    X = np.column_stack([np.arange(6.0), np.full(6, 7.0)])
    pipeline = make_pipeline(MinMaxScaler(), linear_model.Ridge()).fit(X, np.arange(6.0))
    pipeline[-1].coef_[1] = 0.5
    others = X + np.array([1.0, 3.0])
    scores = from_sklearn(pipeline).score(others)
    np.testing.assert_allclose(scores + pipeline[-1].intercept_, pipeline.predict(others))


def test_complex_weights_are_refused() -> None:
    file = io.BytesIO()
    np.save(file, np.array([1.0 + 2.0j]))
    with pytest.raises(ExportError, match="cannot be read as numbers"):
        export.loads(file.getvalue())


def test_weights_as_json_and_npy() -> None:
    text = json.dumps({"coef_": [[1.0, 2.0]], "intercept_": 3, "feature_names_in_": ["a", "b"], "name": "svm"})
    assert export.loads(text.encode()) == LinearModel.of([1, 2], name="svm", feature_names=["a", "b"])
    file = io.BytesIO()
    np.save(file, np.array([[1.0, 2.0]], dtype=np.float32))
    assert export.loads(file.getvalue()) == LinearModel.of([1, 2], name="numpy")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"coef_": [[1], [2]]}', r"\(2, 1\)"),
        ('{"coef_": ["x"]}', "cannot be read as numbers"),
        (json.dumps({"coef_": [10**400]}), "cannot be read as numbers"),
        ('{"coef_": [1], "feature_names_in_": "a"}', "list of texts"),
        ('{"coef_": [1], "feature_names_in_": ["a", "b"]}', "2 feature names"),
    ],
)
def test_wrong_weights_are_refused(text: str, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        export.loads(text.encode(), "sklearn")


def test_pickled_arrays_are_refused() -> None:
    file = io.BytesIO()
    np.save(file, np.array([{"an": "object"}], dtype=object), allow_pickle=True)
    with pytest.raises(ExportError, match="plain numbers"):
        export.loads(file.getvalue())


def test_a_rankers_file_is_a_model_too(tmp_path: Path) -> None:
    ranker = SGDRankNet(2)
    ranker._weights = np.array([0.5, -1.0])
    ranker.save(tmp_path / "model")
    assert export.load(tmp_path / "model") == LinearModel.of([0.5, -1.0])
