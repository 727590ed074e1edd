"""Linear weights from scikit-learn: live estimators, JSON with ``coef_``, and .npy files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from pairrank.checking import check_numbers
from pairrank.errors import ExportError
from pairrank.export import strict_json
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
    document = strict_json.parse(blob, source)
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


def _coefficients(value: Any, source: str) -> FloatArray:
    if value is None:
        raise ExportError(f"{source} has no coef_; expected a fitted linear estimator")
    array = check_numbers(f"the weights in {source}", value, ExportError)
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
        # scikit-learn divides a feature without any range by 1.
        highs = np.where(scaler.data_max_ > scaler.data_min_, scaler.data_max_, scaler.data_min_ + 1.0)
        return tuple(MinMax(float(low), float(high)) for low, high in zip(scaler.data_min_, highs, strict=True))
    if hasattr(scaler, "mean_") and hasattr(scaler, "scale_"):
        mean = np.zeros(n_features) if scaler.mean_ is None else scaler.mean_
        scale = np.ones(n_features) if scaler.scale_ is None else scaler.scale_
        return tuple(Standard(float(m), float(s)) for m, s in zip(mean, scale, strict=True))
    raise ExportError(f"a {type(scaler).__name__} has no place in exports; expected StandardScaler or MinMaxScaler")
