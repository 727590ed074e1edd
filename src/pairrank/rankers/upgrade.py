"""Older files, as files of today.

Version 0.1 measured features in units of one, and held options as given instead of settings as they act: what its
presets stood for is kept here. A ranker of then goes on with its weights, its certainty and its λ; its later clicks are
learned as today, from pairs of the kind that it had.

Between 0.1 and 0.2 the default learned from pairs called "mirrored": weights and certainty stay, and later clicks are
learned from those of "shown", which took their place.

Until 0.2 the history of pairs that share no document had both documents of a pair; now it has their difference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from pairrank.errors import FileFormatError
from pairrank.features.linear import LISTS

_BEST: Mapping[str, Any] = {
    "exploration": "conservative",
    "pairs": "averaged",
    "width": "score",
    "alpha": 0.1,
    "z": 0.2,
    "loss": "sum",
    "Q": None,
    "refine": True,
    "half_life": None,
    "delta1": 0.05,
    "c_mu": 0.25,
    "tolerance": 0.01,
}
_PUBLISHED = {**_BEST, "width": "probability"}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "best": _BEST,
    "paper": {**_PUBLISHED, "pairs": "adjacent", "refine": False},
    "authors": {**_PUBLISHED, "pairs": "matched", "loss": "mean"},
}
# Options that are gone, and the value with which they did nothing.
_GONE: Mapping[str, Any] = {
    "mirrored": False,
    "confirm": False,
    "examine_next": True,
    "repeats": 0.0,
    "robust": 0.0,
    "covariance": "laplace",
    "evidence": False,
    "calibrate": False,
    "caution": 0.0,
    "stake": 0.0,
}
_POSTERIOR = (
    *("theta", "inverse", "P", "q", "n_pairs", "strayed", "pairs_part", "at_rebuild"),
    *("moved", "allowance", "contraction", "lists", "prior_P", "prior_q"),
)
_INFORMATION = {"M": "matrix", "M_inverse": "inverse", "log_det": "log_det", "M_updates": "updates"}


def from_0_1(values: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values and arrays of a ranker's file, brought to today's names."""
    options, d = values["options"], int(values["n_features"])
    state = {**values["state"], **arrays}
    settings = _settings(options, state) if values["name"] == "pairrank" else options
    new = {name: state[name] for name in ("number", "learned", "weights", "rate", "noise", "models") if name in state}
    if "theta" in state:
        state = {"prior_P": np.empty((0, 0)), "prior_q": np.empty(0)} | state
        new |= {f"posterior.{name}": state[name] for name in _POSTERIOR}
        new |= {f"posterior.{name}": value for name, value in state.items() if name.startswith("history.")}
    new |= {f"information.{name}": state[old] for old, name in _INFORMATION.items() if old in state}
    new |= {
        "units.values": np.ones(d),
        "units.lists": LISTS,
        "first.bodies": np.empty(0, dtype=np.uint8),
        "first.ends": np.empty(0, dtype=np.int64),
        "first.clicks": np.empty(0, dtype=np.bool_),
    }
    upgraded = {
        "name": values["name"],
        "n_features": d,
        "seed": values["seed"],
        "settings": settings,
        "older": [_fingerprint(values, options)],
        "left_out": [0, 0],
        "state": {name: value for name, value in new.items() if not isinstance(value, np.ndarray)},
    }
    return upgraded, {name: value for name, value in new.items() if isinstance(value, np.ndarray)}


def shown_for_mirrored(values: dict[str, Any]) -> dict[str, Any]:
    """Values of a ranker's file with pairs that there are today."""
    settings = {name: "shown" if value == "mirrored" else value for name, value in values["settings"].items()}
    return values | {"settings": settings, "older": [*values["older"], _fingerprint(values, values["settings"])]}


def differences_for_documents(state: dict[str, Any]) -> dict[str, Any]:
    """A ranker's state with one row a pair in its history, as `estimator.differences` has it."""
    names = [f"posterior.history.{part}" for part in ("documents", "winner", "loser", "ends")]
    documents, winner, loser, ends = (state[name] for name in names)
    if not len(winner):
        return state
    rows = documents[winner].astype(np.float64) - documents[loser]
    new = rows.astype(documents.dtype), winner[:0], loser[:0], ends[:, [1, 1]]
    return state | dict(zip(names, new, strict=True))


def _fingerprint(values: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """What impressions of then call their ranker."""
    text = json.dumps([values["name"], int(values["n_features"]), values["seed"], options], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _settings(options: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """PairRank's settings of then, as far as there are such settings today."""
    for name, off in _GONE.items():
        if options.get(name) not in (None, off):
            raise FileFormatError(f"it was made with {name}={options[name]!r}, which version 0.2 no longer has")
    given = {name: options[name] for name in _BEST if options.get(name) is not None}
    if options.get("estimator") == "exact":
        given["tolerance"] = 0.0
    return {
        **PRESETS[options.get("preset", "best")],
        **given,
        "lam": float(state["lam"]),
        "units": "range",
        "offsets": False,
    }
