"""θ̂ and its curvature, kept up as pairs come in: the estimators behind PairRank.

The loss is L(θ) = Σ w log(1 + exp(-x·θ)) + ½ θᵀPθ - qᵀθ. At first P = λI and q = 0, the paper's Eq. 1; a prior with
mean θ₀ has q = Pθ₀, and pairs whose history was given up live on in P and q as their quadratic model (folded).

A list's pairs are taken in exactly against the quadratic model of everything before: a Newton iteration in the k
documents shown, O(k d²) in all. What that model has strayed by is measured whenever the gradient of the whole history
is taken again (a refresh), and the time to the next refresh is set so that the measured stray stays in ``tolerance``.

H is made afresh from the whole history (a rebuild) each time that this has grown by a quarter, or earlier where
refreshes have come to cost more than that. Where a tolerance is allowed, a rebuild goes through the history a piece per
list that comes, at the θ̂ of its beginning, so that no list has to wait for a whole pass.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from pairrank.estimator.differences import Differences
from pairrank.estimator.history import LISTS_A_PRODUCT, History
from pairrank.estimator.information_matrix import InformationMatrix
from pairrank.kernel.confidence import inverse_of, plus_product
from pairrank.kernel.list_newton import take_in, take_in_shown, takes_in_one_go
from pairrank.kernel.pairs import Pairs, shown
from pairrank.state import Saved
from pairrank.types import BoolArray, FloatArray, IntArray

# Below this many pairs a refresh costs next to nothing, so every list gets one.
SMALL = 256
# The curvature's weights σ'(x·θ̂) are taken anew each time many pairs have grown by this factor.
GROWTH = 1.25
# Refreshes that cost as much as two rebuilds of the same history.
PASSES = 12
MAX_STEPS = 100
# A long step of a refresh, in the norm of the tolerance.
LONG = 0.1
# What products in float32 lose of a sum of squares, and what of a width's square may be lost by it.
ROUNDING, LOST = 1e-7, 0.01
# Documents of the history take at most this many bytes; then the oldest quarter of the lists is folded. What folding
# costs falls with the square of the pairs' own uncertainty, and so about as one over the capacity: with 10 features .09
# of a confidence width at 20,000 documents, .4 at 5,000. This much holds 500,000 documents of 136 features.
HISTORY_BYTES = 256 * 2**20
# Nor are there more pairs than this many times the documents that there may be, which lists of up to 32 never come to.
PAIRS_A_DOCUMENT = 8


class Posterior(Saved):
    """θ̂, H⁻¹ and what is needed to keep them right.

    Parameters
    ----------
    precision : (d,), the diagonal of P at the start: λ for each weight.
    tolerance : how far θ̂ may stray from the exact minimiser, in the norm of H (standard deviations of the posterior)
        or of ``metric``. 0 refreshes after every list, to rounding.
    mean_loss : the loss is the authors' mean plus λ‖θ‖²: P = 2nλI for pairs that weigh n together.
    half_life : lists after which a list counts half; 0 forgets nothing.
    capacity : documents kept in the history; older lists are folded into P and q.
    n_free : how many weights the prior does not hold at zero; by default all.
    n_asleep : columns that are kept beside the others, with no weights, until `choose` takes them.
    metric : the matrix that confidence widths are made of, where that is not H.
    disjoint : pairs of a list share no documents, and nothing sleeps: their differences are all that is kept of them.
    """

    LATER: ClassVar[tuple[str, ...]] = ("_anchor", "_swept", "_fine", "_lag", "_passes")
    SAVED: ClassVar[tuple[str, ...]] = (
        *("theta", "inverse", "P", "q", "n_pairs", "strayed", "_pairs_part", "_at_rebuild", *LATER),
        *("_moved", "_allowance", "_contraction", "_lists", "_prior_P", "_prior_q", "history"),
    )

    def __init__(
        self,
        precision: FloatArray,
        *,
        tolerance: float,
        mean_loss: bool = False,
        half_life: float = 0.0,
        capacity: int | None = None,
        n_free: int | None = None,
        n_asleep: int = 0,
        metric: InformationMatrix | None = None,
        disjoint: bool = False,
    ) -> None:
        d = len(precision)
        self._n_free = d if n_free is None else n_free
        self._penalty = precision.copy()
        self._mean_loss, self._tolerance, self._half_life, self._metric = mean_loss, tolerance, half_life, metric
        self._capacity = max(HISTORY_BYTES // (4 * (d + n_asleep)), 1000) if capacity is None else capacity
        # Where a tolerance is allowed, float32 halves the passes over the history at an error far below it.
        kind = Differences if disjoint else History
        self.history = kind(d, np.float32 if tolerance else np.float64, n_asleep)
        self.theta, self.inverse = np.zeros(d), np.diag(1.0 / precision)
        self.P, self.q = np.diag(precision), np.zeros(d)
        # What is never forgotten, where anything is.
        self._prior_P, self._prior_q = (self.P, self.q) if half_life else (np.empty((0, 0)), np.empty(0))
        # The pairs' part of H, kept apart only where the penalty changes under it.
        self._pairs_part = np.zeros((d, d) if mean_loss else (0, 0))
        self._lag = 0.0  # by how much, in multiples of the first penalty, the penalty has grown since H⁻¹ was made
        self.n_pairs = 0
        self._at_rebuild = 0  # pairs when H was last computed afresh
        self._passes = 0  # refreshes since then
        # A rebuild on its way: the θ̂ that it is made at, the oldest lists that it has seen, and what these add up to,
        # which follows from the history and is not saved. Products are in float64 once float32 was not enough.
        self._anchor, self._swept, self._fine = self.theta, 0, False
        self._seen: FloatArray | None = None
        # θ̂ strays from the exact minimiser in step with how far it has moved since the last refresh, so that is the
        # clock: squared distances of its moves in the H-norm, added up.
        self._moved = 0.0
        self._allowance = 0.0  # how much of it until the next refresh
        self.strayed = 0.0  # what the last refresh measured, in the H-norm
        self._contraction = 1.0  # how much of the stray a step by H⁻¹ leaves; unknown at first
        self._lists = 0  # lists taken in

    def set_prior(self, mean: FloatArray, precision: FloatArray, penalty: FloatArray | None = None) -> None:
        """Start from a Gaussian prior N(mean, precision⁻¹), (d,) and (d, d), instead of the diagonal one.

        ``penalty`` (d,) is what of it is never forgotten, around zero; None: nothing of it is forgotten.
        """
        self.P, self.q = precision.copy(), precision @ mean
        if self._half_life:
            never = (self.P, self.q) if penalty is None else (np.diag(penalty), np.zeros_like(mean))
            self._prior_P, self._prior_q = never
        self.theta = mean.copy()
        self.inverse, _ = inverse_of(precision)

    def add_shown(self, documents: FloatArray, clicks: BoolArray, asleep: FloatArray | None = None) -> None:
        """`add` of the pairs `shown` of ``clicks`` (k,), to the bit; quicker, since all documents take part in them."""
        if asleep is not None or self._mean_loss or not takes_in_one_go(documents):
            return self.add(documents, shown(clicks), asleep)
        n_clicked = int(np.count_nonzero(clicks))
        if n := n_clicked * (len(clicks) - n_clicked):
            room = self.history.extend(len(documents), n)
            self.theta, self.inverse, moved = take_in_shown(documents, clicks, self.theta, self.inverse, *room)
            self._moved += moved
            self._keep_up(n)

    def add(self, documents: FloatArray, pairs: Pairs, asleep: FloatArray | None = None) -> None:
        """Learn the pairs of one list over its ``documents`` (k, d), with their columns ``asleep`` (k, n_asleep)."""
        if not len(pairs.weight):
            return
        before = self.theta
        D, pairs, asleep = self.history.taking_part(documents, pairs, asleep)
        self.theta, self.inverse, L, moved = take_in(D, pairs, self.theta, self.inverse)
        self.history.append(D, pairs, asleep)
        self._moved += moved
        if self._mean_loss:
            self._pairs_part = plus_product(self._pairs_part, D.T, L.dot(D).T, 1.0)
            self._moved += self._raise_penalty(float(pairs.weight.sum()), before)
        self._keep_up(len(pairs.weight))

    def _keep_up(self, n: int) -> None:
        """Count a list of ``n`` pairs, and do what is due then: part of a rebuild, a refresh, giving up what is old."""
        self._lists += 1
        self.n_pairs += n
        if self._swept or self.n_pairs >= self._next_rebuild:
            self._rebuild_on()
        if self._moved >= self._allowance:
            self._refresh()
        history, room = self.history, self._capacity
        while history.n_documents > room or len(history) > PAIRS_A_DOCUMENT * room:
            self._fold()
        if self._half_life and self._lists % self._forget_every == 0:
            self._forget()

    def awake(self, precision: float) -> tuple[FloatArray, FloatArray, History]:
        """θ̂ (m,) and H⁻¹ (m, m) if the columns that sleep had weights, too, of prior ``precision``, and their history.

        By one Newton step, which is exact to rounding where the precision holds these weights near zero.
        """
        d, history = len(self.theta), self.history.awake()
        m = d + self.history.n_asleep
        theta, gradient = np.zeros(m), np.zeros(m)
        theta[:d], gradient[:d] = self.theta, self.P @ self.theta - self.q
        H = history.curvature(theta)
        H[:d, :d] += self.P
        H.flat[d * (m + 1) :: m + 1] += precision
        inverse, _ = inverse_of(H)
        return theta - inverse @ (gradient - history.pull(theta)), inverse, history

    def choose(self, order: IntArray, n: int, precision: FloatArray) -> None:
        """Columns in another ``order``, those that sleep counted last; after ``n`` they sleep, with no weights.

        ``precision`` (n,) is added to the diagonal of the prior's, which is 0 for what did sleep.
        """
        self.history, keep, n_more = self.history.choose(order, n), order[:n], len(order) - len(self.theta)

        def chosen(values: FloatArray) -> FloatArray:
            return np.pad(values, (0, n_more))[np.ix_(*[keep] * values.ndim)]

        self.theta, self.q, self.P = chosen(self.theta), chosen(self.q), chosen(self.P) + np.diag(precision)
        if self._half_life:
            self._prior_q, self._prior_P = chosen(self._prior_q), chosen(self._prior_P) + np.diag(precision)
        self._anchor = self.theta
        self._rebuild()
        self._refresh()

    @property
    def n_lists(self) -> int:
        """Lists taken in, those included whose history was given up."""
        return self._lists

    @property
    def _next_rebuild(self) -> float:
        """At how many pairs H⁻¹ is computed afresh: d³ costs much while there are few, a stale H⁻¹ later on.

        A stale one also makes refreshes more frequent: once as many have passed over the history as cost two rebuilds,
        it pays to rebuild early.
        """
        n, d = max(self._at_rebuild, 4), self._n_free
        if self._passes >= PASSES:
            return n + n // 16
        return max(GROWTH * n, min(2 * n, n + 4 * d))

    def gradient(self) -> FloatArray:
        """∇L(θ̂), (d,), over the whole history; zero at the exact minimiser."""
        gradient: FloatArray = self.P.dot(self.theta) - self.q - self.history.pull(self.theta)
        return gradient

    def loss(self, theta: FloatArray) -> float:
        """L(θ), up to a constant."""
        return float(0.5 * theta @ self.P @ theta - self.q @ theta) + self.history.loss(theta)

    def _rebuild(self) -> None:
        """H⁻¹ afresh, with every pair's σ' at today's θ̂, at once."""
        self._give_up_rebuild()
        self._replace_curvature(self.history.curvature(self.theta))

    def _rebuild_on(self) -> None:
        """Begin a rebuild, or go on with it, by a piece of the history; its last piece ends it.

        Each pair's σ' is at the θ̂ of the beginning. The pieces are the same whether a rebuild was interrupted or not.
        """
        if not self._tolerance:
            return self._rebuild()
        dtype = np.float64 if self._fine else np.float32
        if not self._swept:
            self._anchor, self._seen = self.theta, None
        if self._seen is None:  # it begins, or was interrupted
            self._seen = self.history.curvature(self._anchor, slice(0, self._swept), dtype)
        stop = min(self._swept + LISTS_A_PRODUCT, self.history.n_lists)
        self._seen = self._seen + self.history.curvature(self._anchor, slice(self._swept, stop), dtype)
        self._swept = stop
        if stop == self.history.n_lists:
            self._replace_curvature(self._seen)

    def _replace_curvature(self, curvature: FloatArray) -> None:
        """H⁻¹ with another part (d, d) of the pairs; where float32 was too coarse for it, all is to be done again."""
        coarse = self._swept > 0 and not self._fine
        try:
            inverse, _ = inverse_of(self.P + curvature)
            # vᵀEv ≤ ‖E‖ |v|² and |v|² ≤ ‖H⁻¹‖ vᵀHv: what rounding E adds to the square of any width, as a share of it.
            lost = ROUNDING * float(np.trace(curvature) * np.trace(inverse))
        except np.linalg.LinAlgError:
            if not coarse:
                raise
            lost = math.inf
        if coarse and lost > LOST:
            self._fine = True
            return self._give_up_rebuild()
        self.inverse, self._at_rebuild, self._lag, self._passes = inverse, self.n_pairs, 0.0, 0
        if self._mean_loss:
            self._pairs_part = curvature
        self._give_up_rebuild()

    def _give_up_rebuild(self) -> None:
        """No rebuild is on its way: it is done, or lists that it has seen are no longer there."""
        self._swept, self._seen = 0, None

    @property
    def _forget_every(self) -> int:
        """Lists between two times of forgetting: an eighth of a half-life, since H⁻¹ must be made afresh."""
        return max(int(self._half_life) // 8, 1)

    @property
    def _forget_factor(self) -> float:
        """What all that was learned counts after each of them."""
        return float(0.5 ** (self._forget_every / self._half_life))

    def _forget(self) -> None:
        """All that was learned counts less than it did; what counts next to nothing is dropped."""
        P, q, factor = self._prior_P, self._prior_q, self._forget_factor
        self.P, self.q = P + factor * (self.P - P), q + factor * (self.q - q)
        self.history.scale(factor)
        old = self.history.n_lists - int(10 * self._half_life)
        if old > 0:
            self.history.drop(old)
        self._rebuild()
        self._refresh()

    def recall(self, documents: FloatArray, pairs: Pairs, asleep: FloatArray | None = None) -> None:
        """Take back a list that was given to `add`: the newest first, then the one before it, and so on.

        When all are there, `History.turn_round` puts them in order.
        """
        used, pairs, asleep = self.history.taking_part(documents, pairs, asleep)
        weight = pairs.weight
        if self._half_life:  # counted less so often since it came
            before = self._lists - self.history.n_lists - 1
            for _ in range(self._lists // self._forget_every - before // self._forget_every):
                weight = weight * self._forget_factor
        self.history.append(used, pairs._replace(weight=weight), asleep)

    def fold_all(self) -> None:
        """Let the quadratic model at θ̂ stand for a history that is lost, or that only a part was found of."""
        if self.history.n_lists:
            self.history.drop(self.history.n_lists)
        self.P = inverse_of(self.inverse)[0]
        self.q = self.P @ self.theta
        self._give_up_rebuild()

    def _raise_penalty(self, weight: float, before: FloatArray) -> float:
        """The authors' mean loss: the penalty grows with the pairs, and θ̂, which was ``before`` (d,), follows.

        H⁻¹ is made anew when the penalty has grown by a sixteenth of an octave. Until then it lags by a known diagonal
        R, and a step by it leaves R times the step of the gradient: at most .045 of it, and next to nothing after four.
        Returns the squared length of θ̂'s move in the norm of H, as `take_in` does.
        """
        rise = 2.0 * weight - (0.0 if self.n_pairs else 1.0)
        gradient = self._penalty * (self._lag * (self.theta - before) + rise * self.theta)
        was, self.P = self.P[0, 0], self.P.copy()
        self.P.flat[:: len(gradient) + 1] += rise * self._penalty
        self._lag += rise
        if int(16 * math.log2(self.P[0, 0])) != int(16 * math.log2(was)):
            self.inverse, self._lag = inverse_of(self.P + self._pairs_part)[0], 0.0
        moved = 0.0
        for _ in range(4 if self._lag else 1):
            move = self.inverse @ gradient
            moved += float(gradient @ move)
            self.theta = self.theta - move
            gradient = -self._lag * self._penalty * move
        return moved

    def _refresh(self) -> None:
        """Return to the minimiser, measure how far θ̂ had strayed, and set the time of the next refresh.

        A step by the kept H⁻¹ costs one pass over the history and leaves a fraction of the stray, the contraction,
        which is measured whenever there is a second step; from then on H⁻¹ is corrected by what the steps have shown.
        Where it is too old for that, Newton's own steps are taken.
        """
        self._passes += 1
        goal = max(0.1 * self._tolerance, 1e-10)
        previous, contraction, measured = math.inf, self._contraction, 0.0
        seen: list[tuple[FloatArray, FloatArray]] = []
        before = move = np.zeros_like(self.theta)
        for step in range(MAX_STEPS):
            gradient = self.gradient()
            if previous < math.inf:
                seen.append((-move, gradient - before))
            before, move = gradient, secant_step(self.inverse, gradient, seen)
            size = self._length(move, gradient)
            if step == 0:
                self.strayed = size
            elif previous < math.inf:
                # Directions in which σ is flat are long in the norm of M; one lucky step tells nothing about them.
                contraction = min(max(size / previous, 1e-3 if self._metric is None else 0.1), 1.0)
                measured = max(measured, contraction)
            if size > goal and contraction > 0.5:
                move = self._newton_step(gradient)
                size = self._length(move, gradient)
                if (share := self._safe_share(move, gradient)) < 1.0:
                    # As far from here σ' is another: neither the kept H⁻¹ nor these steps tell anything there.
                    self.theta = self.theta - share * move
                    self._rebuild()
                    seen, previous = [], math.inf
                    continue
            self.theta = self.theta - move
            # What steps of before left tells nothing of a long one, which leaves more: that one is looked after.
            known = measured > 0.0 or size < LONG
            if (known and size * contraction <= goal) or previous <= size < 10 * goal:
                break  # there, or so near that rounding stands in the way
            previous = size
        if measured:
            self._contraction = measured
        if self._tolerance and self.n_pairs > SMALL:
            # The stray is in proportion to the way moved: aim at a part of the tolerance. One lucky measurement must
            # not put off the next refresh for long, and one that found too much must bring it near at once.
            aim = self._moved * 0.3 * self._tolerance / max(self.strayed, 1e-300)
            far = self.strayed > self._tolerance
            self._allowance = 0.0 if far else min(aim, 1.5 * max(self._allowance, self._moved))
        self._moved = 0.0

    def _length(self, move: FloatArray, gradient: FloatArray) -> float:
        """Of a ``move`` (d,) = H⁻¹ ``gradient``, in the norm of the tolerance."""
        if self._metric is not None:  # of documents alone: what else explains clicks stands behind them
            move = move[: len(self._metric.matrix)]
            gradient = self._metric.matrix.dot(move)
        return math.sqrt(max(float(gradient.dot(move)), 0.0))

    def _newton_step(self, gradient: FloatArray) -> FloatArray:
        """(d,), ∇²L⁻¹∇L.

        Conjugate gradients with H⁻¹ as preconditioner, to a tenth of the length: no matrix is formed.
        """
        move, residual = np.zeros_like(gradient), gradient
        descent = direction = self.inverse @ residual
        before = first = float(residual @ descent)
        for _ in range(MAX_STEPS):
            if before <= 0.01 * first:
                break
            bent = self.P @ direction + self.history.bend(self.theta, direction)
            length = before / float(direction @ bent)
            move = move + length * direction
            residual = residual - length * bent
            descent = self.inverse @ residual
            after = float(residual @ descent)
            direction = descent + (after / before) * direction
            before = after
        return move

    def _safe_share(self, move: FloatArray, gradient: FloatArray) -> float:
        """How much of a Newton step to take: all of it where it moves no pair far, else as much as lowers the loss."""
        far = self.history.furthest(move)
        if far <= 1.0:
            return 1.0
        safe = math.log1p(far) / far  # self-concordance promises that this much does
        before, fall, share = self.loss(self.theta), max(float(gradient @ move), 0.0), 1.0
        while share > safe and self.loss(self.theta - share * move) > before - 0.25 * share * fall:
            share /= 2
        return max(share, safe)

    def _fold(self) -> None:
        """Give up the oldest quarter of the history: its pairs become part of the quadratic P and q."""
        curvature, pull = self.history.fold(max(self.history.n_lists // 4, 1), self.theta)
        self.P = self.P + curvature
        self.q = self.q + curvature @ self.theta + pull
        self._give_up_rebuild()


def secant_step(inverse: FloatArray, gradient: FloatArray, seen: list[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """(d,), H⁻¹g, where H⁻¹ (d, d) is corrected by the steps s ``seen`` and what they changed the gradient by, y.

    Nocedal's two loops for BFGS, O(d) a pair (s, y).
    """
    rest, shares = gradient, []
    known = [(s, y, float(s.dot(y))) for s, y in seen]
    known = [pair for pair in known if pair[2] > 0.0]  # the loss is convex: what is not, is rounding
    for s, y, along in reversed(known):
        shares.append(float(s.dot(rest)) / along)
        rest = rest - shares[-1] * y
    step: FloatArray = inverse.dot(rest)
    for (s, y, along), share in zip(known, reversed(shares), strict=True):
        step = step + (share - float(y.dot(step)) / along) * s
    return step
