"""What rankers share that learn from preferences between pairs of documents and keep a Laplace posterior of θ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from pairrank.checking import check_choice, check_lam
from pairrank.estimator import evidence
from pairrank.estimator.posterior import Posterior
from pairrank.features.additive import Additive
from pairrank.kernel import pairs
from pairrank.kernel.gaps import filled
from pairrank.kernel.logistic import sigmoid, slope
from pairrank.kernel.pairs import Pairs
from pairrank.rankers.base import State
from pairrank.rankers.linear import LinearRanker
from pairrank.rng import Purpose, generator
from pairrank.types import BoolArray, FloatArray, Impression, IntArray

# Preferences that clicks can be taken for; see `kernel.pairs`.
PairKind = Literal["adjacent", "matched", "all", "averaged", "shown"]
PAIRS: tuple[PairKind, ...] = get_args(PairKind)
# Those that clicks alone decide.
_OF_CLICKS = {"adjacent": pairs.adjacent, "all": pairs.all_pairs, "averaged": pairs.averaged, "shown": pairs.shown}

# How far θ̂ may stray from the exact minimiser, as a share of a standard deviation of the posterior.
TOLERANCE = 0.01
# Lists after which the functions of an additive model may bend.
BEND_FROM = 64


def preferred(kind: str, impression: Impression, clicks: BoolArray) -> Pairs:
    """The pairs of one list, by the name of their kind; only "matched" draws at random."""
    if kind == "matched":
        return pairs.matched(clicks, generator(impression.seed, impression.number, Purpose.LEARN))
    return _OF_CLICKS[kind](clicks)


@dataclass(eq=False, kw_only=True)
class PairwiseRanker(LinearRanker):
    """A ranker with θ̂ and H⁻¹ of the pairwise logistic loss (`estimator.posterior`)."""

    any_list: ClassVar[bool] = True
    SAVED: ClassVar[tuple[str, ...]] = (*LinearRanker.SAVED, "_posterior")

    pairs: PairKind = "averaged"
    lam: float = 30.0

    def _reset(self) -> None:
        check_lam(self.lam)
        check_choice("pairs", self.pairs, PAIRS)
        super()._reset()
        self._posterior = self._start()

    def _start(self) -> Posterior:
        """The posterior before anything was learned."""
        return Posterior(self.lam * self._units.precisions, tolerance=TOLERANCE, n_asleep=self._units.n_asleep)

    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        posterior, asleep = self._posterior, impression.memory.get("asleep")
        n_before, found = posterior.n_pairs, None
        if self.pairs == "shown":
            posterior.add_shown(impression.features, clicks, asleep)
        else:
            found = preferred(self.pairs, impression, clicks)
            posterior.add(impression.features, found, asleep)
        if posterior.n_pairs > n_before:
            self._bend()
            self._weights = self._posterior.theta[: self.n_inputs]
            self._follow(impression, clicks, found)

    def _covariance(self) -> FloatArray:
        return self._posterior.inverse[: self.n_inputs, : self.n_inputs]

    def _products(self, lists: Sequence[FloatArray]) -> IntArray:
        """(interactions, 2), by the score test: the largest g²/v of a product's gradient g and its variance v.

        v is what the product's own curvature leaves beside all inputs; both are over the first lists, at θ̂.
        """
        f, g = np.triu_indices(self.n_features, 1)
        lists = [filled(X) for X in lists]
        middle = np.median(np.concatenate(lists), axis=0)
        theta, inverse = self._posterior.theta, self._posterior.inverse
        gradient, own, both = np.zeros(len(f)), np.zeros(len(f)), np.zeros((len(theta), len(f)))
        for (impression, clicks), X in zip(self._first, lists, strict=True):
            found = preferred(self.pairs, impression, clicks)
            design, away = self._seen(impression).features, X - middle
            products = away[:, f] * away[:, g]
            x, z = (rows[found.winner] - rows[found.loser] for rows in (design, products))
            gap = x @ theta
            bent = found.weight * slope(gap)
            gradient += (found.weight * sigmoid(-gap)) @ z
            own += bent @ z**2
            both += (bent[:, None] * x).T @ z
        v = own - np.einsum("ij,ij->j", both, inverse @ both)
        score = np.where(v > 1e-9 * own, gradient**2 / np.where(v > 0.0, v, 1.0), 0.0)
        best = np.argsort(-score, kind="stable")[: self.interactions]
        return np.column_stack([f[best], g[best]])

    @property
    def _bends(self) -> bool:
        return True

    def _bend(self) -> None:
        """After 64, 128, 256, … lists: how stiff each function of an additive model is, by the evidence."""
        n = self._posterior.n_lists
        if n < BEND_FROM or n & (n - 1) or not self._bends:
            return
        units, posterior = self._units, self._posterior
        n, n_inputs = len(posterior.theta), self.n_inputs
        if not isinstance(units, Additive) or not ((old := units.places(n)) >= 0).any():
            return
        theta, inverse, history = posterior.awake(self.lam * evidence.LINE)
        score = theta.copy()
        score[n_inputs:n] = 0.0  # what explains clicks beside the documents
        powers, before = history.of_powers(theta, score), np.zeros(len(theta))
        before[:n_inputs] = self.lam * units.precisions
        found = evidence.stiffness(old, units.stiffness, self.lam, theta, inverse, powers)
        if (found == units.stiffness).all():
            return
        units.stiffness = found
        if units.n_asleep:
            units.wake(found < evidence.LINE)
        n_new = n + self.n_inputs - n_inputs
        after, order, new = np.zeros(n_new), np.arange(len(theta)), units.places(n_new)
        after[: self.n_inputs] = self.lam * units.precisions
        # Lines stay in front; what missing values are worth, and what else explains clicks, behind all that is awake.
        behind = n - self.n_features - np.sum((old >= 0) & (old < n))
        order[n_new - behind : n_new] = np.arange(n - behind, n)
        order[new[new >= 0]] = old[old >= 0]
        posterior.choose(order, n_new, after - before[order[:n_new]])

    def _seen(self, impression: Impression) -> Impression:
        units, X = self._units, impression.features
        asleep = {"asleep": units.asleep(X)} if isinstance(units, Additive) and units.n_asleep else {}
        return impression.with_features(self._design(units.inputs(X), impression), **asleep)

    def _design(self, inputs: FloatArray, impression: Impression) -> FloatArray:
        """(k, m), what the posterior learns from: ``inputs`` (k, n_inputs), and what else explains clicks."""
        return inputs

    def _follow(self, impression: Impression, clicks: BoolArray, found: Pairs | None) -> None:
        """What else changes when the posterior has learned a list's pairs; those "shown" are not told."""

    def _without_lists(self, state: State) -> tuple[State, tuple[int, int]]:
        state, (n_first, _) = super()._without_lists(state)
        lists = {name: value[:0] for name, value in state.items() if name.startswith("posterior.history.")}
        return state | lists, (n_first, self._posterior.history.n_lists)

    def _read_back(self, entries: Iterable[tuple[Impression, BoolArray]], n_first: int, n_history: int) -> bool:
        first: list[tuple[Impression, BoolArray]] = []
        posterior, history = self._posterior, self._posterior.history
        for impression, clicks in entries:
            if len(first) < n_first and self._tells_units(impression):
                first.append((impression, clicks))
            found = preferred(self.pairs, impression, clicks)
            if len(found.weight) and history.n_lists < n_history:
                seen = self._seen(impression)
                posterior.recall(seen.features, found, seen.memory.get("asleep"))
            if history.n_lists == n_history and len(first) == n_first:
                break
        all_first = super()._read_back(first, n_first, 0)
        if history.n_lists == n_history:
            history.turn_round()
            return all_first
        posterior.fold_all()
        return False
