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

LIGHTGBM = """tree
version=v4
num_class=1
max_feature_idx=2
feature_names=title body age
feature_infos=[0:1] [0:1] [0:1]

Tree=0
num_leaves=1
num_cat=0
leaf_value=0.25
is_linear=0
shrinkage=1

Tree=1
num_leaves=1
num_cat=0
leaf_value=0.5
is_linear=1
leaf_const=0.125
num_features=2
leaf_features=0 2
leaf_coeff=0.5 -1.25
shrinkage=0.1

Tree=2
num_leaves=1
is_linear=1
leaf_features=2
leaf_coeff=0.25

end of trees

feature_importances:
"""


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
        ('{"coef_": ["x"]}', "not numbers"),
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


def test_lightgbm_linear_text() -> None:
    model = export.loads(LIGHTGBM.encode())
    assert model.feature_names == ("title", "body", "age")
    assert model.weights.tolist() == [0.5, 0.0, -1.25 + 0.25]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tree\n", "forest\n", "'tree'"),
        ("num_leaves=1", "num_leaves=3", "not linear"),
        ("leaf_features=0 2", "leaf_features=0", "1 leaf_features and 2"),
        ("leaf_features=0 2", "leaf_features=0 3", "expected 0 to 2"),
        ("leaf_coeff=0.25", "leaf_coeff=nan", "finite"),
        ("feature_names=title body age", "", "no feature_names"),
    ],
)
def test_other_lightgbm_models_are_refused(old: str, new: str, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        export.loads(LIGHTGBM.replace(old, new).encode(), "lightgbm")


def test_a_rankers_file_is_a_model_too(tmp_path: Path) -> None:
    ranker = SGDRankNet(2)
    ranker._weights = np.array([0.5, -1.0])
    ranker.save(tmp_path / "model")
    assert export.load(tmp_path / "model") == LinearModel.of([0.5, -1.0])
