"""Every ranker in the registry keeps the contract; and the contract suite notices rankers that do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from pairrank import rankers
from pairrank.checks import CHECKS, Check, ContractError, check_ranker
from pairrank.errors import OptionError
from pairrank.features import linear
from pairrank.rankers.base import Draw
from pairrank.rankers.linear import LinearRanker
from pairrank.types import BoolArray, FloatArray, Impression

VARIANTS = [
    "pairrank(tolerance=0)",
    "pairrank(half_life=8)",
    "pairrank(offsets=false, pairs=averaged)",
    "pairrank(preset=authors)",
    pytest.param("pairrank(preset=paper, alpha=theory, Q=2.0)", marks=pytest.mark.slow),  # projects in every round
    "pairrank(exploration=random, pairs=matched)",
    "pairrank(preset=paper, pairs=all, refine=true)",
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", [*rankers.names(), *VARIANTS])
def test_ranker_keeps_the_contract(name: str, check: Check) -> None:
    check(lambda n_features, seed: rankers.make(name, n_features=n_features, seed=seed))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", [name for name in rankers.names() if "model" in rankers.options(name)])
def test_additive_ranker_keeps_the_contract(name: str, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "LISTS", 4)  # so that pieces are fixed while a check goes on
    check(lambda n_features, seed: rankers.make(name, n_features=n_features, seed=seed, model="additive"))


@dataclass(eq=False, kw_only=True)
class Greedy(LinearRanker):
    """A ranker that keeps the contract, to be broken in one place at a time."""

    name: ClassVar[str] = "greedy"

    def _rank(self, features: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        order = np.argsort(-(features @ self._weights), kind="stable")[:k]
        return Draw(order, np.zeros(k, dtype=np.int64), False, {})

    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        if clicks.any() and not clicks.all():
            X = impression.features
            self._weights = self._weights + 0.1 * (X[clicks].mean(axis=0) - X[~clicks].mean(axis=0))


class Repeats(Greedy):
    def _rank(self, features: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        return Draw(np.zeros(k, dtype=np.int64), np.zeros(k, dtype=np.int64), False, {})


class Impure(Greedy):
    def _rank(self, features: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        self._weights = self._weights + 1e-9
        return super()._rank(features, k, rng)


class Unseeded(Greedy):
    def _rank(self, features: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        return super()._rank(features, k, rng)._replace(ranking=np.random.default_rng().permutation(len(features))[:k])


class Upside(Greedy):
    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        super()._learn(impression, ~clicks)


class Forgetful(Greedy):
    def _state(self) -> dict[str, object]:
        return super()._state() | {"weights": np.round(self._weights, 3)}


class Hoarder(Greedy):
    def _rank(self, features: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        self.__dict__.setdefault("seen", []).append(features.copy())
        return super()._rank(features, k, rng)


class Leaky(Greedy):
    @property
    def weights(self) -> FloatArray:
        return self._weights


class InPlace(Greedy):
    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        self._weights += impression.features[clicks].mean(axis=0)


class LastQuery(Greedy):
    """Remembers the last list inside, as research scripts do."""

    _last = np.zeros((1, 6))

    def _rank(self, features: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        draw = super()._rank(features, k, rng)
        self._last = features[draw.ranking]
        return draw

    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        rows = min(len(self._last), len(clicks))
        if clicks[:rows].any():
            self._weights = self._weights + 0.1 * self._last[:rows][clicks[:rows]].mean(axis=0)


def test_a_ranker_without_a_name_is_told() -> None:
    class Nameless(LinearRanker):
        def _rank(self, features: FloatArray, k: int, rng: np.random.Generator) -> Draw:
            return Draw(np.arange(k), np.zeros(k, dtype=np.int64), False, {})

        def _learn(self, impression: Impression, clicks: BoolArray) -> None:
            pass

    with pytest.raises(OptionError, match="Nameless has no name; expected a line such as name"):
        Nameless(3)


@pytest.mark.parametrize("given", [Greedy, Greedy(3)])
def test_a_class_or_a_ranker_is_told_what_to_give(given: Any) -> None:
    with pytest.raises(OptionError, match="as in lambda n_features, seed: Greedy"):
        check_ranker(given)


def test_a_good_ranker_passes() -> None:
    check_ranker(lambda n_features, seed: Greedy(n_features, seed=seed))


@pytest.mark.parametrize("broken", [Repeats, Impure, Unseeded, Upside, Forgetful, Hoarder, Leaky, InPlace, LastQuery])
def test_a_broken_ranker_is_noticed(broken: type[Greedy]) -> None:
    with pytest.raises(ContractError):
        check_ranker(lambda n_features, seed: broken(n_features, seed=seed))
