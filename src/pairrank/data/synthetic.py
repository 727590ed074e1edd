"""Synthetic data with the shapes of real sets, by name: ``synthetic:mslr``, ``synthetic:tiny(queries=60, seed=3)``.

- ``tiny``: 60 queries of about 15 documents, 12 features, 3 grades; for tests and first steps
- ``linear``: 600 queries of about 60 documents, 136 features, 5 grades, linear relevance, little noise
- ``nonlinear``: the same with interactions, saturation and thresholds, which no linear ranker gets quite right
- ``additive``: 600 queries of about 24 documents, 20 features, 3 grades; relevance adds up a function of each feature,
  of which some rise and fall again
- ``monotone``: the same with functions that only rise or only fall: saturation, thresholds, late starts
- ``plain``: the same with lines: what ``additive`` is to be compared with
- ``interacting``: the same with products of pairs of features, which no sum of functions gets quite right
- ``mslr``: the shape of MSLR-WEB10K: 10,000 queries of about 120 documents, 136 features, 5 grades
- ``yahoo``: the shape of Yahoo! set 1: 29,921 queries of about 24 documents, 700 features of which 519 vary

Options, in brackets after the name: ``queries``, ``docs`` (mean per query), ``features``, ``noise`` (standard deviation
over that of the signal), ``relevance`` (linear, nonlinear, additive, monotone or interacting) and ``seed``.

A document has a few latent factors; features mix them (so they correlate) and pass through shapes met in real sets
(Gaussian, log-normal, counts with many zeros, shares in [0, 1], heavy tails), with a shift and scale of their own per
query. Relevance is judged on features after per-query min-max: u = x·theta + noise, cut at quantiles so that grades
have the shares of the real set. ``theta`` is known for linear relevance. Query number i is a function of (seed, i).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from pairrank import short_text
from pairrank.data.letor import Raw
from pairrank.data.normalize import Normaliser
from pairrank.errors import OptionError, UnknownNameError
from pairrank.rng import MAX_SEED, Purpose, generator
from pairrank.types import Float32Array, FloatArray, IntArray

PREFIX = "synthetic:"
VERSION = 1
RELEVANCE = ("linear", "nonlinear", "additive", "monotone", "interacting")

# Functions of a feature in [0, 1], column by column in turn.
_SHAPES: Mapping[str, tuple[Callable[[FloatArray], FloatArray], ...]] = {
    "additive": (
        lambda x: 4 * x * (1 - x),
        lambda x: np.tanh(8 * x),
        lambda x: 1 / (1 + np.exp(-20 * (x - 0.4))),
        lambda x: x,
        lambda x: np.abs(2 * x - 1),
    ),
    "monotone": (
        lambda x: np.tanh(8 * x),
        lambda x: x**4,
        lambda x: 1 / (1 + np.exp(-20 * (x - 0.4))),
        lambda x: x,
        lambda x: np.sqrt(x),
    ),
}

_FACTORS = 10
# How much queries differ in how good their answers are, in units of the signal's spread: some have none at all.
_LEVEL = 0.5
# Numbers of random streams: queries count from 0, so these are far out of their way.
_WORLD, _CALIBRATION = 2**40, 2**41
_CALIBRATION_QUERIES, _PROBED = 200, 20


@dataclass(frozen=True)
class Recipe:
    """Everything that synthetic data depend on.

    ``shares`` are the shares of grades 0, 1, ...; ``splits`` the shares of queries in train, vali and test;
    ``used`` how many features vary at all (None: all of them).
    """

    queries: int
    docs: float
    features: int
    shares: tuple[float, ...]
    noise: float
    relevance: str = "linear"
    seed: int = 0
    used: int | None = None
    splits: tuple[float, float, float] = (0.6, 0.2, 0.2)

    def identity(self, split: str) -> dict[str, Any]:
        """All that the raw data of ``split`` depend on."""
        return {"synthetic": VERSION, "split": split, "arithmetic": _arithmetic(self), **asdict(self)}

    def numbers(self, split: str) -> range:
        """The numbers of the queries of ``split``."""
        train = round(self.queries * self.splits[0])
        vali = round(self.queries * self.splits[1])
        return {
            "train": range(train),
            "vali": range(train, train + vali),
            "test": range(train + vali, self.queries),
        }[split]


_MSLR = (0.520, 0.322, 0.133, 0.018, 0.007)
_PLAIN = Recipe(600, 24, 20, (0.6, 0.3, 0.1), 0.5)
_RECIPES: Mapping[str, Recipe] = {
    "tiny": Recipe(60, 15, 12, (0.6, 0.3, 0.1), 0.5),
    "linear": Recipe(600, 60, 136, _MSLR, 0.3),
    "nonlinear": Recipe(600, 60, 136, _MSLR, 0.3, relevance="nonlinear"),
    "plain": _PLAIN,
    "additive": replace(_PLAIN, relevance="additive"),
    "monotone": replace(_PLAIN, relevance="monotone"),
    "interacting": replace(_PLAIN, relevance="interacting"),
    "mslr": Recipe(10_000, 120, 136, _MSLR, 2.0),
    # 19,944, 2,994 and 6,983 queries.
    "yahoo": Recipe(
        29_921, 23.7, 700, (0.261, 0.359, 0.285, 0.076, 0.019), 1.5, used=519, splits=(0.66655, 0.10006, 0.23339)
    ),
}
# Numbers that may be changed: their type, and from where to where.
_KNOBS: Mapping[str, tuple[type, float, float]] = {
    "queries": (int, 5, 2**31),
    "docs": (float, 1, 10_000),
    "features": (int, 1, 100_000),
    "noise": (float, 0, 1e6),
    "seed": (int, 0, MAX_SEED),
}


def names() -> list[str]:
    """The names that `parse` knows, each with its prefix."""
    return [PREFIX + name for name in _RECIPES]


def parse(text: str) -> Recipe:
    """The recipe of a name with or without knobs, as in ``synthetic:mslr(queries=2000, seed=3)``."""
    name, changes = short_text.parse(text.removeprefix(PREFIX)) or ("", {})
    if name not in _RECIPES:
        raise UnknownNameError(f"no synthetic data set is called {text!r}; there are: {', '.join(names())}")
    recipe = replace(_RECIPES[name], relevance=changes.pop("relevance", _RECIPES[name].relevance))
    if recipe.relevance not in RELEVANCE:
        raise OptionError(f"{text}: relevance is {recipe.relevance!r}; expected {' or '.join(RELEVANCE)}")
    for knob, value in changes.items():
        if knob not in _KNOBS:
            raise OptionError(f"{text}: there is no {knob!r}; expected name=value with {', '.join(_KNOBS)}, relevance")
        kind, low, high = _KNOBS[knob]
        if type(value) not in (int, kind) or not low <= value <= high:
            raise OptionError(f"{text}: {knob} is {value!r}; expected {kind.__name__}, {low} to {high:g}")
        changes[knob] = kind(value)
    return replace(recipe, **changes, used=None if "features" in changes else recipe.used)


@dataclass(frozen=True, eq=False)
class _World:
    """What all queries of a recipe share."""

    mixing: Float32Array
    tails: Float32Array
    theta: FloatArray
    partners: IntArray
    columns: IntArray


def theta(recipe: Recipe) -> FloatArray | None:
    """The weights (n_features,) that relevance follows after per-query min-max; None for non-linear relevance."""
    if recipe.relevance != "linear":
        return None
    world = _world(recipe)
    weights = np.zeros(recipe.features)
    weights[world.columns] = world.theta
    return weights


def generate(recipe: Recipe, split: str) -> Raw:
    """The raw data of a split."""
    world = _world(recipe)
    spread, cuts = _calibration(recipe, world)
    numbers = recipe.numbers(split)
    sizes = np.array([_size(recipe, number) for number in numbers], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    features = np.zeros((int(offsets[-1]), recipe.features), dtype=np.float32)
    grades = np.empty(len(features), dtype=np.int64)
    for number, start, stop in zip(numbers, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        raw, signal, noise = _query(recipe, world, number, stop - start)
        features[start:stop, world.columns] = raw
        grades[start:stop] = np.searchsorted(cuts, signal + spread * noise)
    return Raw(features, grades, offsets, np.array([str(number + 1) for number in numbers]))


@lru_cache(maxsize=64)
def _arithmetic(recipe: Recipe) -> str:
    """A hash of some queries that no split holds: the last bits of exp and of products depend on the processor."""
    world, digest = _world(recipe), hashlib.sha256()
    for number in range(_CALIBRATION, _CALIBRATION + _PROBED):
        for array in _query(recipe, world, number, _size(recipe, number)):
            digest.update(array.tobytes())
    return digest.hexdigest()


def _size(recipe: Recipe, number: int) -> int:
    """Documents of a query: gamma-distributed, as lists cut at a maximum depth are, and at least 2."""
    draw = generator(recipe.seed, number, Purpose.QUERIES).gamma(4.0, recipe.docs / 4.0)
    return int(np.clip(round(draw), 2, 8 * recipe.docs + 2))


def _world(recipe: Recipe) -> _World:
    rng = generator(recipe.seed, _WORLD, Purpose.DATA)
    used = recipe.features if recipe.used is None else recipe.used
    mixing = rng.standard_normal((_FACTORS, used), dtype=np.float32) / np.float32(_FACTORS**0.5)
    tails = rng.uniform(0.5, 2.0, used).astype(np.float32)
    # Few features matter much, many a little: as in models fitted to the real sets.
    weights = rng.standard_normal(used) * rng.exponential(1.0, used)
    columns = np.sort(rng.permutation(recipe.features)[:used])
    return _World(mixing, tails, weights / np.linalg.norm(weights), rng.permutation(used), columns)


def _query(recipe: Recipe, world: _World, number: int, n: int) -> tuple[Float32Array, FloatArray, FloatArray]:
    """Raw features (n, used), signals (n,) and noise (n,), in units of the signal's spread, of query ``number``."""
    rng = generator(recipe.seed, number, Purpose.DATA)
    factors = rng.standard_normal((n, _FACTORS), dtype=np.float32)
    used = world.mixing.shape[1]
    mixed = factors @ world.mixing
    mixed += np.float32(0.6) * rng.standard_normal((n, used), dtype=np.float32)
    shift, scale = rng.standard_normal((2, used), dtype=np.float32)
    raw = _shaped(mixed, world.tails, shift, np.exp(np.float32(0.5) * scale))
    x = Normaliser("query").apply(raw).astype(np.float64)
    signal = _signal(recipe, world, x)
    level = _LEVEL * rng.standard_normal()
    return raw, signal, level + recipe.noise * rng.standard_normal(n)


def _shaped(mixed: Float32Array, tails: Float32Array, shift: Float32Array, scale: Float32Array) -> Float32Array:
    """Correlated Gaussians through the five shapes, column by column in turn."""
    shaped = mixed * scale + shift
    shaped[:, 1::5] = np.exp(tails[1::5] * mixed[:, 1::5] + shift[1::5])
    shaped[:, 2::5] = np.floor(np.exp(1 + tails[2::5] * mixed[:, 2::5] + shift[2::5]) / 2)
    shaped[:, 3::5] = 1 / (1 + np.exp(-2 * mixed[:, 3::5] - shift[3::5]))
    shaped[:, 4::5] = (mixed[:, 4::5] ** 3 + shift[4::5]) * 100
    return shaped.astype(np.float32)


def _signal(recipe: Recipe, world: _World, x: FloatArray) -> FloatArray:
    """What a perfect judge sees in per-query min-max features ``x`` (n, used)."""
    if recipe.relevance == "linear":
        return x @ world.theta
    if recipe.relevance in _SHAPES:
        shapes = _SHAPES[recipe.relevance]
        bent = x.copy()
        for i, shape in enumerate(shapes):
            bent[:, i :: len(shapes)] = shape(x[:, i :: len(shapes)])
        return bent @ world.theta
    other = x[:, world.partners]
    if recipe.relevance == "interacting":
        return (0.5 * x + 2 * (x - 0.5) * (other - 0.5)) @ world.theta
    bent = np.where(x > 0.5, np.tanh(3 * x), 0.5 * x)  # saturates, and jumps in the middle
    return (bent * (0.4 + other)) @ world.theta


def _calibration(recipe: Recipe, world: _World) -> tuple[float, FloatArray]:
    """The signal's mean standard deviation within a query, and the utilities at which grades change.

    Both come from queries of their own, so that all splits share them.
    """
    numbers = range(_CALIBRATION, _CALIBRATION + _CALIBRATION_QUERIES)
    queries = [_query(recipe, world, number, _size(recipe, number))[1:] for number in numbers]
    spread = float(np.mean([signal.std() for signal, _ in queries]))
    utilities = np.concatenate([signal + spread * noise for signal, noise in queries])
    cuts: FloatArray = np.quantile(utilities, np.cumsum(recipe.shares)[:-1])
    return spread, cuts
