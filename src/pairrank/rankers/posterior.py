"""θ̂ and its curvature, kept up as pairs come in: the estimators behind PairRank.

The loss is L(θ) = Σ w log(1 + exp(-x·θ)) + ½ θᵀPθ - qᵀθ. At first P = λI and q = 0, the paper's Eq. 1; a prior with
mean θ₀ has q = Pθ₀, and pairs whose history was given up live on in P and q as their quadratic model.

A list's pairs are taken in exactly against the quadratic model of everything before: a Newton iteration in the k
documents shown, O(k d²) in all. What that model has strayed by is measured whenever the gradient of the whole history
is taken again (a refresh), and the time to the next refresh is set so that the measured stray stays in ``tolerance``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pairrank.kernel.confidence import add_product, inverse_of
from pairrank.kernel.pairs import Pairs, preferences, top_used
from pairrank.kernel.settling import settle
from pairrank.rankers.history import History
from pairrank.types import FloatArray

# Below this many pairs a refresh costs next to nothing, so every list gets one.
SMALL = 256
# The curvature's weights σ'(x·θ̂) are taken anew each time many pairs have grown by this factor.
GROWTH = 1.25
MAX_STEPS = 100
# What products in float32 lose of a sum of squares.
ROUNDING = 1e-7
# Without a history, H⁻¹ is computed afresh from H after this many lists.
REFACTOR_EVERY = 1000


class Posterior:
    """θ̂, H⁻¹ and what is needed to keep them right.

    Parameters
    ----------
    lam : λ. With ``mean_loss`` the loss is the authors' mean plus λ‖θ‖², that is P = 2nλI for n pairs.
    tolerance : how far θ̂ may stray from the exact minimiser, in the H-norm (standard deviations of the posterior).
        0 refreshes after every list, to rounding.
    patient : refresh only when θ̂ may have strayed; else after every list.
    capacity : documents kept in the history; older lists are folded into P and q. 0 keeps none (bounded memory).
    sandwich : keep B, the spread of the lists' gradients, for a covariance that does not trust the model's own.
    evidence : at each rebuild set λ to γ/‖θ̂‖², γ = d - λ tr H⁻¹ the number of weights that the data determine.
    half_life : lists after which a list counts half.
    """

    def __init__(
        self,
        n_features: int,
        lam: float,
        *,
        mean_loss: bool,
        tolerance: float,
        capacity: int,
        patient: bool = True,
        sandwich: bool = False,
        evidence: bool = False,
        half_life: float | None = None,
    ) -> None:
        self.theta = np.zeros(n_features)
        self.inverse = np.eye(n_features) / lam
        # Where a tolerance is allowed, float32 halves the passes over the history at an error far below it.
        self.history = History(n_features, np.float32 if tolerance else np.float64)
        self.lam, self._mean_loss, self._capacity = lam, mean_loss, capacity
        self._tolerance, self._patient = tolerance, patient
        self.P = lam * np.eye(n_features)
        self._q = np.zeros(n_features)
        # The pairs' part of H, kept apart only where the penalty changes under it.
        self._pairs_part = np.zeros((n_features, n_features) if mean_loss else (0, 0))
        self.n_pairs = 0
        self._at_rebuild = 0  # pairs when H was last computed afresh
        # θ̂ strays from the exact minimiser in step with how far it has moved since the last refresh, so that is the
        # clock: squared distances of its moves in the H-norm, added up.
        self._moved = 0.0
        self._allowance = 0.0  # how much of it until the next refresh
        self.strayed = 0.0  # what the last refresh measured, in the H-norm
        self._contraction = 1.0  # how much of the stray a step by H⁻¹ leaves; unknown at first
        self._lists = 0  # lists taken in
        self._evidence, self._half_life = evidence, half_life
        self._spread = lam * np.eye(n_features) if sandwich else np.zeros((0, 0))  # B
        self._prior = (self.P.copy(), self._q) if half_life else None  # what is never forgotten

    def set_prior(self, mean: FloatArray, precision: FloatArray) -> None:
        """Start from a Gaussian prior instead of λI around zero."""
        self.P = precision.copy()
        self._q = precision @ mean
        if self._half_life:
            self._prior = (precision.copy(), self._q)
        if len(self._spread):
            self._spread = precision.copy()
        self.theta = mean.copy()
        self.inverse, _ = inverse_of(precision)

    def add(self, documents: FloatArray, pairs: Pairs) -> None:
        """Learn the pairs of one list over its ``documents`` (k, d)."""
        self._moved += self._take_in(*_only_used(documents, pairs))
        if self._mean_loss:
            self._moved += self._raise_penalty(len(pairs.weight))
        self.n_pairs += len(pairs.weight)
        if self.n_pairs >= self._next_rebuild and len(self.history):
            self._rebuild()
        if self._moved >= self._allowance and len(self.history):
            self._refresh()
        if self.history.n_documents > self._capacity:
            self._fold()
        if self._half_life and self._lists % self._forget_every == 0:
            self._forget(0.5 ** (self._forget_every / self._half_life))

    @property
    def covariance(self) -> FloatArray:
        """(d, d): H⁻¹, or the sandwich H⁻¹BH⁻¹."""
        return self.inverse @ self._spread @ self.inverse if len(self._spread) else self.inverse

    @property
    def _next_rebuild(self) -> float:
        """At how many pairs H⁻¹ is computed afresh: d³ is dear while there are few of them, a stale H⁻¹ later on."""
        n = max(self._at_rebuild, 4)
        return max(GROWTH * n, min(2 * n, n + 4 * len(self.theta)))

    def _take_in(self, D: FloatArray, pairs: Pairs) -> float:
        """Minimise (quadratic model so far) + (loss of these pairs), exactly; then add their curvature to H.

        With A = DH⁻¹ and K = ADᵀ the minimiser is θ + Aᵀb, where the scores s' = s + K b(s') and b(s') collects
        w σ(-(s'_w - s'_l)) with plus at winners and minus at losers: an equation in k unknowns. Returns the squared
        length of the move in the norm of H before it.
        """
        A = D @ self.inverse
        b, L, S, moved = settle(D @ self.theta, A @ D.T, preferences(pairs, len(D)))
        self.theta = self.theta + b @ A
        self._lists += 1
        if len(self._spread):
            gradient = b @ D
            self._spread += np.outer(gradient, gradient)
        if self._mean_loss:
            add_product(self._pairs_part, D.T, (L @ D).T, 1.0)
        else:
            add_product(self.inverse, A.T, (S @ A).T, -1.0)
        if self._capacity:
            self.history.append(D, pairs)
        else:
            self._keep_nothing_but_the_sum(D, L)
        return moved

    def _keep_nothing_but_the_sum(self, D: FloatArray, L: FloatArray) -> None:
        """Without a history P is all of H; now and then H⁻¹ is made afresh from it, since rounding adds up."""
        add_product(self.P, D.T, (L @ D).T, 1.0)
        self._q = self.P @ self.theta
        if self._lists % REFACTOR_EVERY == 0:
            self.P = 0.5 * (self.P + self.P.T)
            self.inverse, _ = inverse_of(self.P)

    def gradient(self) -> FloatArray:
        """∇L(θ̂), (d,), over the whole history; zero at the exact minimiser."""
        return self.P @ self.theta - self._q - self.history.pull(self.theta)

    def loss(self, theta: FloatArray) -> float:
        """L(θ), up to a constant."""
        return float(0.5 * theta @ self.P @ theta - self._q @ theta) + self.history.loss(theta)

    def _rebuild(self) -> None:
        """H⁻¹ afresh, with every pair's σ' at today's θ̂."""
        curvature = self._curvature()
        self._at_rebuild = self.n_pairs
        self.inverse, _ = inverse_of(self.P + curvature)
        if self._mean_loss:
            self._pairs_part = curvature
        if self._evidence:
            self._follow_evidence(curvature)

    def _curvature(self) -> FloatArray:
        """The history's part of H at θ̂; by products in float32 where their rounding is nothing beside the penalty."""
        if self._tolerance and self._patient:
            curvature = self.history.curvature(self.theta, dtype=np.float32)
            if ROUNDING * np.trace(curvature) < 0.01 * self.P.diagonal().min():
                return curvature
        return self.history.curvature(self.theta)

    def _follow_evidence(self, curvature: FloatArray) -> None:
        """λ by MacKay's fixed point, at most tenfold away from where it stood."""
        determined = len(self.theta) - self.lam * float(np.trace(self.inverse))
        wanted = determined / max(float(self.theta @ self.theta), 1e-12)
        self._set_lam(min(max(wanted, 0.1 * self.lam), 10.0 * self.lam), curvature)

    def change_lam(self, lam: float) -> None:
        """Another λ from here on; θ̂ follows."""
        d = len(self.theta)
        self._set_lam(lam, self.history.curvature(self.theta) if len(self.history) else np.zeros((d, d)))
        if len(self.history):
            self._refresh()
        else:
            self.theta = self.inverse @ self._q

    def _set_lam(self, lam: float, curvature: FloatArray) -> None:
        change = (lam - self.lam) * np.eye(len(self.theta))
        self.P = self.P + change
        if self._prior:
            self._prior = (self._prior[0] + change, self._prior[1])
        if len(self._spread):
            self._spread = self._spread + change
        self.lam = lam
        self.inverse, _ = inverse_of(self.P + curvature)
        self._allowance = 0.0

    @property
    def _forget_every(self) -> int:
        """Lists between two times of forgetting: an eighth of a half-life, since H⁻¹ must be made afresh."""
        return max(int(self._half_life or 0.0) // 8, 1)

    def _forget(self, factor: float) -> None:
        """All that was learned counts ``factor`` of what it did; what counts next to nothing is dropped."""
        P, q = self._prior or (self.P, self._q)
        self.P, self._q = P + factor * (self.P - P), q + factor * (self._q - q)
        if len(self._spread):
            self._spread = P + factor * (self._spread - P)
        self.history.scale(factor)
        old = self.history.n_lists - int(10 * (self._half_life or 0.0))
        if old > 0:
            self.history.drop(old)
        if len(self.history):
            self._rebuild()
            self._refresh()
        else:
            self.inverse, _ = inverse_of(self.P)
            self.theta = self.inverse @ self._q

    def _raise_penalty(self, n_new: int) -> float:
        """The authors' mean loss: the penalty grows with the pairs, so H⁻¹ is made anew, and θ̂ follows.

        Returns the squared length of θ̂'s move in the norm of H, as `_take_in` does.
        """
        rise = 2.0 * self.lam * n_new - (0.0 if self.n_pairs else self.lam)
        self.P = self.P + rise * np.eye(len(self.theta))
        self.inverse, _ = inverse_of(self.P + self._pairs_part)
        move = self.inverse @ (rise * self.theta)
        self.theta = self.theta - move
        return rise * float(self.theta @ move)

    def _refresh(self) -> None:
        """Return to the minimiser, measure how far θ̂ had strayed, and set the time of the next refresh.

        A step by the kept H⁻¹ costs one pass over the history and leaves a fraction of the stray, the contraction,
        which is measured whenever there is a second step. Where H⁻¹ is too old for that, Newton's own steps are taken.
        """
        goal = max(0.1 * self._tolerance, 1e-10)
        previous = math.inf
        for step in range(MAX_STEPS):
            gradient = self.gradient()
            move = self.inverse @ gradient
            size = math.sqrt(max(float(gradient @ move), 0.0))
            if step == 0:
                self.strayed = size
            else:
                self._contraction = min(max(size / previous, 1e-3), 1.0)
            if size > goal and self._contraction > 0.5:
                move, size = self._newton_step(gradient, goal)
            self.theta = self.theta - move
            if size * self._contraction <= goal or previous <= size < 10 * goal:
                break  # there, or so near that rounding stands in the way
            previous = size
        if self._tolerance and self._patient and self.n_pairs > SMALL:
            # The stray is in proportion to the way moved: aim at a part of the tolerance. One lucky measurement must
            # not put off the next refresh for long, and one that found too much must bring it near at once.
            aim = self._moved * 0.2 * self._tolerance / max(self.strayed, 1e-300)
            far = self.strayed > self._tolerance
            self._allowance = 0.0 if far else min(aim, 1.5 * max(self._allowance, self._moved))
        self._moved = 0.0

    def _newton_step(self, gradient: FloatArray, goal: float) -> tuple[FloatArray, float]:
        """∇²L⁻¹∇L, shortened where it would go too far, and its length in the norm of ∇²L.

        Conjugate gradients with H⁻¹ as preconditioner, to a tenth of the length or to ``goal``: no matrix is formed.
        """
        move, residual = np.zeros_like(gradient), gradient
        descent = direction = self.inverse @ residual
        before = first = float(residual @ descent)
        for _ in range(MAX_STEPS):
            if before <= max(0.01 * first, 0.01 * goal**2):
                break
            bent = self.P @ direction + self.history.bend(self.theta, direction)
            length = before / float(direction @ bent)
            move = move + length * direction
            residual = residual - length * bent
            descent = self.inverse @ residual
            after = float(residual @ descent)
            direction = descent + (after / before) * direction
            before = after
        fall = max(float(gradient @ move), 0.0)
        return self._safe_share(move, fall) * move, math.sqrt(fall)

    def _safe_share(self, move: FloatArray, fall: float) -> float:
        """How much of a Newton step to take: all of it where it moves no pair far, else as much as lowers the loss."""
        far = self.history.furthest(move)
        if far <= 1.0:
            return 1.0
        safe = math.log1p(far) / far  # self-concordance promises that this much does
        before, share = self.loss(self.theta), 1.0
        while share > safe and self.loss(self.theta - share * move) > before - 0.25 * share * fall:
            share /= 2
        return max(share, safe)

    def _fold(self) -> None:
        """Give up the oldest quarter of the history: its pairs become part of the quadratic P and q."""
        n_lists = max(self.history.n_lists // 4, 1)
        curvature, pull = self.history.fold(n_lists, self.theta)
        self.P += curvature
        self._q += curvature @ self.theta + pull

    def state(self) -> dict[str, Any]:
        """Everything that changes, by name."""
        return self.history.state() | {
            "theta": self.theta,
            "inverse": self.inverse,
            "P": self.P,
            "q": self._q,
            "pairs_part": self._pairs_part,
            "n_pairs": self.n_pairs,
            "at_rebuild": self._at_rebuild,
            "moved": self._moved,
            "allowance": self._allowance,
            "strayed": self.strayed,
            "contraction": self._contraction,
            "lists": self._lists,
            "lam": self.lam,
            "spread": self._spread,
            **({"prior_P": self._prior[0], "prior_q": self._prior[1]} if self._prior else {}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        shapes = {
            "theta": self.theta.shape,
            "inverse": self.inverse.shape,
            "P": self.P.shape,
            "q": self._q.shape,
            "spread": self._spread.shape,
            **({"prior_P": self.P.shape, "prior_q": self._q.shape} if self._prior else {}),
        }
        for name, shape in shapes.items():
            if state[name].shape != shape:
                raise ValueError(f"{name} has shape {state[name].shape}, expected {shape}")
        self.theta, self.inverse = state["theta"].copy(), state["inverse"].copy()
        self.P, self._q = state["P"].copy(), state["q"].copy()
        self._pairs_part = state["pairs_part"].copy()
        self.n_pairs, self._at_rebuild = int(state["n_pairs"]), int(state["at_rebuild"])
        self._moved, self._allowance = float(state["moved"]), float(state["allowance"])
        self.strayed, self._contraction = float(state["strayed"]), float(state["contraction"])
        self._lists, self.lam = int(state["lists"]), float(state["lam"])
        self._spread = state["spread"].copy()
        if self._prior:
            self._prior = (state["prior_P"].copy(), state["prior_q"].copy())
        self.history.restore(state)


def _only_used(documents: FloatArray, pairs: Pairs) -> tuple[FloatArray, Pairs]:
    """The documents that take part in a pair, and the pairs by their places among them."""
    if n_used := top_used(pairs, len(documents)):
        return documents[:n_used], pairs
    used = np.unique(np.concatenate([pairs.winner, pairs.loser]))
    return documents[used], Pairs(np.searchsorted(used, pairs.winner), np.searchsorted(used, pairs.loser), pairs.weight)
