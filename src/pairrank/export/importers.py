"""Linear weights from elsewhere: scikit-learn estimators (live, as JSON, as .npy) and LightGBM-style text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import jsontext
from pairrank.export.model import LinearModel, MinMax, Normalisation, Standard
from pairrank.types import FloatArray


def from_sklearn(
    estimator: Any, *, name: str = "scikit-learn", feature_names: Sequence[str] | None = None
) -> LinearModel:
    """The model of a fitted linear estimator, or of a pipeline of one scaler and a linear estimator.

    The weights are ``coef_``, of shape (d,) or (1, d). The intercept is left out: it moves all scores alike.
    Names are ``feature_names_in_`` unless given. Scalers: ``StandardScaler``, and ``MinMaxScaler`` to (0, 1)
    without clipping.
    """
    steps = [step for _, step in getattr(estimator, "steps", [("", estimator)])]
    if len(steps) > 2:
        raise ExportError(f"the pipeline has {len(steps)} steps; expected a scaler and a linear estimator at most")
    coefficients = _coefficients(getattr(steps[-1], "coef_", None), type(steps[-1]).__name__)
    if feature_names is None:
        found = getattr(steps[0], "feature_names_in_", None)
        feature_names = None if found is None else [str(entry) for entry in found]
    normalisation = _scaler(steps[0], len(coefficients)) if len(steps) == 2 else None
    return LinearModel.of(coefficients, name=name, feature_names=feature_names, normaliser=normalisation)


def loads_sklearn(blob: bytes, *, source: str = "these weights") -> LinearModel:
    """A JSON object with ``coef_`` (d numbers, or one row of them), perhaps ``feature_names_in_`` and
    ``name``.

    Other entries, ``intercept_`` among them, are passed over; ``json.dumps({"coef_": model.coef_.tolist()})``
    will do.
    """
    document = jsontext.parse(blob, source)
    weights = _coefficients(document.get("coef_"), source)
    names = document.get("feature_names_in_")
    if names is not None and not (isinstance(names, list) and all(isinstance(entry, str) for entry in names)):
        raise ExportError(f"{source}: feature_names_in_ is not a list of texts")
    return LinearModel.of(weights, name=str(document.get("name", "scikit-learn")), feature_names=names)


def loads_npy(blob: bytes, *, source: str = "these weights") -> LinearModel:
    """A NumPy ``.npy`` file with (d,) or (1, d) numbers; pickled objects are refused."""
    try:
        array = np.load(io.BytesIO(blob), allow_pickle=False)
    except (ValueError, EOFError, OSError) as problem:
        raise ExportError(f"{source} is not a .npy file of plain numbers: {problem}") from None
    return LinearModel.of(_coefficients(array, source), name="numpy")


def loads_lightgbm(blob: bytes, *, source: str = "this model") -> LinearModel:
    """The text of a LightGBM model with ``linear_tree`` whose trees never split: one linear function.

    What is read: ``feature_names=`` in the head; then for each ``Tree=`` section ``num_leaves=1``,
    ``is_linear=1``, ``leaf_features=`` (numbers of features, from 0) and ``leaf_coeff=`` (as many weights;
    LightGBM has applied the shrinkage). The weights of the trees add up; ``leaf_const`` moves all scores
    alike and is left out. A tree with a split is refused: it is not linear.
    """
    lines = blob.decode("utf-8", errors="replace").splitlines()
    if not lines or lines[0].strip() != "tree":
        raise ExportError(f"{source} does not begin with the line 'tree', as LightGBM's models do")
    head, *trees = _sections(lines)
    names = head.get("feature_names", "").split()
    if not names or not trees:
        raise ExportError(f"{source} has no feature_names or no trees")
    weights = np.zeros(len(names))
    for tree in trees:
        _add_tree(weights, tree, f"tree {tree['Tree']} of {source}")
    return LinearModel.of(weights, name="lightgbm", feature_names=names)


def _sections(lines: Iterable[str]) -> list[dict[str, str]]:
    sections: list[dict[str, str]] = [{}]
    for line in lines:
        if line.strip() == "end of trees":
            break
        key, equals, value = line.partition("=")
        if key == "Tree":
            sections.append({})
        if equals:
            sections[-1][key] = value.strip()
    return sections


def _add_tree(weights: FloatArray, tree: dict[str, str], source: str) -> None:
    if tree.get("num_leaves") != "1":
        leaves = tree.get("num_leaves")
        raise ExportError(f"{source} has {leaves} leaves; expected one: trees that split are not linear")
    if tree.get("is_linear") != "1":
        return  # a constant, as LightGBM's first tree may be
    features, values = tree.get("leaf_features", "").split(), tree.get("leaf_coeff", "").split()
    if len(features) != len(values):
        raise ExportError(f"{source} has {len(features)} leaf_features and {len(values)} leaf_coeff")
    for feature, value in zip(features, values, strict=True):
        if not feature.isdigit() or int(feature) >= len(weights):
            raise ExportError(f"{source} weighs feature {feature}; expected 0 to {len(weights) - 1}")
        weights[int(feature)] += jsontext.number(value, f"a weight in {source}")


def _coefficients(value: Any, source: str) -> FloatArray:
    if value is None:
        raise ExportError(f"{source} has no coef_; expected a fitted linear estimator")
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ExportError(f"the weights in {source} are not numbers in rows of equal length") from None
    if array.ndim == 2 and len(array) == 1:
        array = array[0]
    if array.ndim != 1:
        raise ExportError(f"the weights in {source} have shape {array.shape}; expected (d,) or (1, d): one score")
    return array


def _scaler(scaler: Any, n_features: int) -> tuple[Normalisation, ...]:
    if hasattr(scaler, "data_min_") and hasattr(scaler, "data_max_"):
        if tuple(scaler.feature_range) != (0, 1) or scaler.clip:
            raise ExportError(
                "a MinMaxScaler with another range than (0, 1), or with clipping, has no place in exports"
            )
        bounds = zip(scaler.data_min_, scaler.data_max_, strict=True)
        return tuple(MinMax(float(low), float(high)) for low, high in bounds)
    if hasattr(scaler, "mean_") and hasattr(scaler, "scale_"):
        mean = np.zeros(n_features) if scaler.mean_ is None else scaler.mean_
        scale = np.ones(n_features) if scaler.scale_ is None else scaler.scale_
        return tuple(Standard(float(m), float(s)) for m, s in zip(mean, scale, strict=True))
    raise ExportError(f"a {type(scaler).__name__} has no place in exports; expected StandardScaler or MinMaxScaler")
