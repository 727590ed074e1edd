"""A function of its own for every feature: a line plus a smooth deviation, piecewise linear between quantiles.

The model sees φ(x) instead of x, and stays linear in it: score = Σ_f g_f(x_f) with

    g_f(x) = a_f x + Σ_j b_fj (s_fj(x) - c_fj x) + m_f [x is missing].

The knots t_0 < … < t_p of a feature are quantiles of what the first `LISTS` lists showed. s_j is sin(π j i / p) / j at
knot i, linear in between and 0 beyond the ends: the first terms of a Brownian bridge, whose wiggles cost the more the
shorter they are. c_j takes away what of s_j is a line (by regression within lists), so that deviations say nothing that
the line could say. Each column has its own unit, as the line has, and deviations are seen `STIFFNESS` times smaller in
square: under one prior N(0, 1/λ) for all weights a function starts near a line. Until the first lists are over, and for
features with fewer than three values, there is nothing but the line.

On request there are products, too: w (x_f - m_f)(x_g - m_g) for a few pairs of features, m their medians, each feature
taken within its outermost knots.

Deviations and products whose weight is held at zero can sleep: they are no inputs, and cost next to nothing, but are
told apart (`Additive.asleep`), so that it can be asked whether they should be.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from operator import is_
from typing import ClassVar, NamedTuple

import numpy as np

from pairrank.features.linear import FURTHEST, Seen, Units, centred
from pairrank.kernel.confidence import standardised
from pairrank.kernel.gaps import filled
from pairrank.types import BoolArray, FloatArray, IntArray

PIECES = 8
# Terms of the deviation: shorter wiggles than the third are noise in every set that we know, and each costs a column.
MODES = 3
# A priori the variance of a deviation's weight is this much below that of the line's.
STIFFNESS = 10.0


class Additive(Units):
    """What `features.linear.Units` is to a linear model, for an additive one: a map, its knots and its units.

    Inputs are the lines (d), then the deviations term by term, the products, and what missing values are worth.

    Attributes
    ----------
    knots : (d, PIECES + 1), rising; NaN beyond those that a feature has, all NaN where it was constant.
    few : (d,), whether a feature's knots are all the values that it took.
    middle : (d,), a feature's median: what a missing value is taken for, beside its own weight.
    missing : (d,), whether missing values were seen and have a weight of their own.
    bends : (MODES, d), the units of the deviations; 0 where there is none.
    tilts : (MODES, d), c: what of each deviation is a line.
    absences : (d,), the units of missing values; 0 where there is no such column.
    stiffness : (d + n_products,), the prior's precision of each deviation and product, over λ, as the evidence set it.
    products : (n_products, 2), the features of each product; -1 where there is none.
    product_units : (n_products,), 0 where there is none.
    sleeping : (MODES · d + n_products,), the units of the deviations and products that sleep; ``bends`` and
        ``product_units`` are 0 there.
    """

    LATER: ClassVar[tuple[str, ...]] = ("products", "product_units", "sleeping")

    SAVED: ClassVar[tuple[str, ...]] = (
        *Units.SAVED,
        *("knots", "few", "middle", "missing", "bends", "tilts", "absences", "stiffness", "fixed", *LATER),
    )

    def __init__(self, n_features: int, kind: str, n_products: int = 0) -> None:
        super().__init__(n_features, kind)
        self.knots = np.full((n_features, PIECES + 1), np.nan)
        self.few = np.zeros(n_features, dtype=np.bool_)
        self.bends, self.tilts = np.zeros((MODES, n_features)), np.zeros((MODES, n_features))
        self.absences = np.zeros(n_features)
        self.stiffness = np.ones(n_features + n_products)
        self.products, self.product_units = np.full((n_products, 2), -1), np.zeros(n_products)
        self.sleeping = np.zeros(self.bends.size + n_products)
        self.fixed = False
        self._made: Table | None = None
        self._sleepers: Additive | None = None

    def may_lack(self) -> BoolArray:
        """(d,), features in which NaN is a value: all while the first lists come, then those in which it came."""
        return self.missing if self.fixed or self.settled else np.ones(len(self.values), dtype=np.bool_)

    def _known(self, X: FloatArray) -> FloatArray:
        """X (n, d) with the list's mean for NaN that is no value any more; it was one when the list was made."""
        full = filled(X)
        return X if full is X else np.where(self.may_lack(), X, full)

    def knots_of(self, feature: int) -> FloatArray:
        own: FloatArray = self.knots[feature]
        return own[~np.isnan(own)]

    @property
    def owner(self) -> IntArray:
        return self._owner(0)

    @property
    def partner(self) -> IntArray:
        return self._owner(1)

    def _owner(self, which: int) -> IntArray:
        products = self.products[self.product_units > 0.0, which]
        parts = [np.arange(len(self.values)), np.nonzero(self.bends)[1], products, np.flatnonzero(self.absences)]
        return np.concatenate(parts, dtype=np.int64)

    def blocks(self) -> IntArray:
        """(d + n_products, MODES), the columns of each feature's deviation and of each product, -1 beyond them."""
        there = np.concatenate([self.bends.ravel(), self.product_units]) > 0.0
        places = np.where(there, len(self.values) - 1 + np.cumsum(there), -1)
        products = np.full((len(self.products), MODES), -1)
        products[:, 0] = places[self.bends.size :]
        return np.vstack([places[: self.bends.size].reshape(self.bends.shape).T, products])

    def wake(self, awake: BoolArray) -> None:
        """Make inputs of these (d + n_products,) deviations and products; the others sleep."""
        every = self.sleeping + np.append(self.bends, self.product_units)
        there = np.append(np.broadcast_to(awake[: len(self.values)], self.bends.shape), awake[len(self.values) :])
        self._inputs_are(np.where(there, every, 0.0))
        self.sleeping = np.where(there, 0.0, every)

    def _inputs_are(self, units: FloatArray) -> None:
        self.bends = units[: self.bends.size].reshape(self.bends.shape)
        self.product_units = units[self.bends.size :]

    @property
    def n_asleep(self) -> int:
        """Columns that sleep."""
        return int(np.count_nonzero(self.sleeping))

    def asleep(self, X: FloatArray) -> FloatArray:
        """(n, n_asleep), the columns that sleep, as `inputs` would give them."""
        others, d = self._others, X.shape[1]
        columns = np.ascontiguousarray(others.columns(self._known(X))[:, d : d + self.n_asleep])
        return standardised(columns, others.units[d : d + self.n_asleep], FURTHEST)

    @property
    def _others(self) -> Additive:
        """The same map with those deviations and products that sleep here, and only those."""
        if self._sleepers is None or self._sleepers.sleeping is not self.sleeping:
            self._sleepers = copy.copy(self)
            self._sleepers._inputs_are(self.sleeping)
        return self._sleepers

    def places(self, n_awake: int) -> IntArray:
        """As `blocks`, where the columns that sleep follow ``n_awake`` others."""
        asleep = self._others.blocks()
        return np.where(asleep >= 0, asleep - len(self.values) + n_awake, self.blocks())

    @property
    def units(self) -> FloatArray:
        return self._table.units

    @property
    def _table(self) -> Table:
        made_of = self.bends, self.tilts, self.product_units, self.absences, self.values
        if self._made is None or not all(map(is_, made_of, self._made.made_of)):
            parts = (self.bends, self.product_units, self.absences)
            units = np.concatenate([super().units, *(part[part > 0.0] for part in parts)])
            self._made = Table.of(made_of, units, self.knots, self.middle)
        return self._made

    def inputs(self, X: FloatArray) -> FloatArray:
        """(n, n_inputs): φ(X) centred, in units."""
        if self.n_inputs == X.shape[1]:
            return super().inputs(filled(X))
        X = self._known(X)
        columns, d = self.columns(X), X.shape[1]
        if not self._vary_first(X):
            return standardised(columns, self.units, FURTHEST)
        lines, others = np.ascontiguousarray(columns[:, :d]), np.ascontiguousarray(columns[:, d:])
        return np.hstack([super().inputs(lines), standardised(others, self.units[d:], FURTHEST)])

    def scores(self, X: FloatArray, inner: FloatArray) -> FloatArray:
        """(n,), φ(X) times the weights of the inputs ``inner`` (n_inputs,)."""
        if self.n_inputs == X.shape[1]:
            return super().scores(filled(X), inner)
        return self.columns(X) @ (inner / self.units)

    def watch(self, X: FloatArray, ranges: FloatArray | None, earlier: Iterable[Seen]) -> bool:
        """As `Units.watch`; missing values count as their list's mean, and in later lists as the lines take them."""
        full = filled(X)
        if self.fixed and full is not X:
            full = np.where(np.isnan(X) & self.missing, self.middle, full)
        return super().watch(full, ranges, ((filled(shown), known) for shown, known in earlier))

    @property
    def precisions(self) -> FloatArray:
        precisions, blocks = np.ones(self.n_inputs), self.blocks()
        precisions[blocks[blocks >= 0]] = np.repeat(self.stiffness, (blocks >= 0).sum(axis=1))
        return precisions

    def fix_pieces(
        self,
        lists: Sequence[FloatArray],
        stiffness: float = 1.0,
        products: IntArray | None = None,
        *,
        asleep: bool = False,
    ) -> None:
        """Lay the knots by the documents of these lists, once and for all, and measure the deviations in them.

        ``stiffness`` : the prior's precision of a deviation, over λ, to begin with. ``products`` (n, 2) : of which
        features there are products. ``asleep`` : whether both sleep to begin with.
        """
        self.lay_pieces(lists, stiffness, products)
        units = self.usual([self.measure(self.columns(X), None) for X in lists])
        # Lines that differ only by what missing values are taken for now.
        self.values = np.where(self.values > 0.0, self.values, units[: len(self.values)])
        self._measure_deviations(np.where(units > 0.0, units, 1.0))
        if asleep:
            self.wake(np.zeros(len(self.stiffness), dtype=np.bool_))

    def fix_units(self, units: FloatArray) -> None:
        self.fix(units[: len(self.values)])
        self._measure_deviations(units)

    def _measure_deviations(self, units: FloatArray) -> None:
        bends, products, absences = self.bends.copy(), self.product_units.copy(), self.absences.copy()
        d, n_bends, there = len(self.values), np.sum(self.bends > 0.0), products > 0.0
        bends[bends > 0.0] = np.sqrt(STIFFNESS) * units[d : d + n_bends]
        products[there] = units[d + n_bends : d + n_bends + np.sum(there)]
        absences[self.missing] = units[len(units) - np.sum(self.missing) :]
        self.bends, self.product_units, self.absences = bends, products, absences

    def lay_pieces(self, lists: Sequence[FloatArray], stiffness: float = 1.0, products: IntArray | None = None) -> None:
        """Knots by the documents of these lists; the deviations' units are 1, in which they can be measured."""
        X = np.concatenate(lists)
        lacking = np.isnan(X)
        known = [column[~gone] for column, gone in zip(X.T, lacking.T, strict=True)]
        self.missing = np.asarray(lacking.any(axis=0))
        self.middle = np.array([np.median(column) if len(column) else 0.0 for column in known])
        self.knots = np.array([knots(column) for column in known])
        self.few = np.array([len(np.unique(column)) <= PIECES + 1 for column in known])
        self.fixed, self.stiffness = True, np.full(len(self.stiffness), stiffness)
        if products is not None:  # of features that vary
            varied = products[~np.isnan(self.knots[products, 1]).any(axis=1)]
            self.products = np.append(varied, self.products[len(varied) :], axis=0)
            self.product_units = np.where(self.products[:, 0] >= 0, 1.0, 0.0)
        n_knots = np.sum(~np.isnan(self.knots), axis=1)
        self.bends = np.where(np.arange(MODES)[:, None] < n_knots - 2, 1.0, 0.0)
        self.absences = np.where(self.missing, 1.0, 0.0)
        self.tilts = self._lines_in_deviations(lists)

    def _lines_in_deviations(self, lists: Sequence[FloatArray]) -> FloatArray:
        """(MODES, d), the slope of each deviation's regression on its feature, within lists."""
        self.tilts = np.zeros_like(self.bends)
        columns = np.concatenate([centred(self.columns(X)) for X in lists])
        d, there = len(self.values), self.bends > 0.0
        squares = np.square(columns[:, :d]).sum(axis=0)
        owner = self.owner[d : d + np.count_nonzero(there)]
        products = np.einsum("ij,ij->j", columns[:, owner], columns[:, d : d + len(owner)])
        tilts = np.zeros_like(self.bends)
        tilts[there] = products / np.where(squares > 0.0, squares, 1.0)[owner]
        return tilts

    def columns(self, X: FloatArray) -> FloatArray:
        """(n, n_inputs), φ(X) as it is: neither centred nor in units."""
        d, table = X.shape[1], self._table
        out = np.empty((len(X), len(table.units)))
        lacking = np.isnan(X) if self.missing.any() or not self.fixed else None
        out[:, :d] = X if lacking is None else np.where(lacking, self.middle, X)
        end = d + len(table.owner)
        out[:, d:end] = table.deviations(out)
        for f, g in self.products[self.product_units > 0.0]:
            out[:, end] = self._within(out, f) * self._within(out, g)
            end += 1
        if lacking is not None:
            out[:, end:] = lacking[:, self.missing]
        return out

    def _within(self, X: FloatArray, feature: int) -> FloatArray:
        """(n,), how far a feature of X is above its median, within its outermost knots."""
        ends = self.knots_of(feature)
        return np.asarray(np.clip(X[:, feature], ends[0], ends[-1]) - self.middle[feature])


class Table(NamedTuple):
    """All that `Additive.columns` looks up: ``units`` (n_inputs,), and the c columns of deviations, piece by piece.

    ``owner`` (c,) are the features that they are of. A column's pieces are what lies below the first knot, what lies
    between two, and what lies above the last: ``bounds`` (PIECES + 1, c) are where the next one begins, and ``first``
    (c,) is the place of the first in ``starts``, where its way is counted from, ``at``, its value there, and ``slope``.
    """

    made_of: tuple[FloatArray, ...]
    units: FloatArray
    owner: IntArray
    bounds: FloatArray
    first: IntArray
    starts: FloatArray
    at: FloatArray
    slope: FloatArray

    @classmethod
    def of(cls, made_of: tuple[FloatArray, ...], units: FloatArray, knots: FloatArray, middle: FloatArray) -> Table:
        """``made_of`` are bends, tilts, and what else columns hang on; ``knots`` (d, PIECES + 1), ``middle`` (d,)."""
        bends, tilts = made_of[:2]
        term, owner = np.nonzero(bends)
        own, tilt, place = knots[owner], tilts[term, owner][:, None], np.arange(PIECES + 1)
        n_pieces = np.sum(~np.isnan(own), axis=1)[:, None] - 1
        wave = np.sin(np.pi * (term[:, None] + 1) * place / n_pieces) / (term[:, None] + 1)
        heights = np.where((place > 0) & (place < n_pieces), wave, 0.0)
        starts = np.hstack([own[:, :1], own])
        rises = np.pad(np.nan_to_num(np.diff(heights) / np.diff(own)), ((0, 0), (1, 1)))
        return cls(
            made_of=made_of,
            units=units,
            owner=owner,
            bounds=np.where(np.isnan(own), np.inf, own).T,
            first=np.arange(len(own)) * (PIECES + 2),
            starts=starts.ravel(),
            at=(np.hstack([heights[:, :1], heights]) - tilt * (starts - middle[owner][:, None])).ravel(),
            slope=(rises - tilt).ravel(),
        )

    def deviations(self, X: FloatArray) -> FloatArray:
        """(n, c), s_j(x) - c_j x of the documents X (n, d), less a constant."""
        x = X[:, self.owner]
        piece = np.add.reduce(x >= self.bounds[:, None], dtype=np.intp) + self.first
        found: FloatArray = self.at.take(piece) + self.slope.take(piece) * (x - self.starts.take(piece))
        return found


def knots(values: FloatArray) -> FloatArray:
    """(PIECES + 1,), quantiles of ``values`` (n,), rising, then NaN; all NaN where there are fewer than two values.

    A value that comes often counts no more than a piece's share, so that a pile of zeros takes one knot, not all.
    """
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) > PIECES + 1:
        counts = np.minimum(counts, max(len(values) // PIECES, 1))
        at = np.linspace(0.0, 1.0, PIECES + 1)
        distinct = np.unique(np.quantile(np.repeat(distinct, counts), at, method="inverted_cdf"))
    found = np.full(PIECES + 1, np.nan)
    if len(distinct) > 1:
        found[: len(distinct)] = distinct
    return found
