"""Documents centred on their list, each feature in a unit of its own, so that neither units nor offsets matter.

Only differences within a list matter to a ranking. A model therefore sees z = (x - mean of the list) / u, with one
unit u per feature that is taken from the first lists, as they come. Multiplying a feature by a constant multiplies its
unit; adding a constant to a list takes it away again: nothing changes but rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from pairrank.kernel.confidence import standardised
from pairrank.state import Saved
from pairrank.types import BoolArray, FloatArray, IntArray

# Lists that units are taken from. They are set anew after the 1st, 2nd, 4th, ... of them; later lists are too much
# alike to change a unit by more than a few per cent.
LISTS = 64
# Features that differ by less are constant: the square of such a difference has no digits left.
LEAST = 1e-100
# In units of its feature no document is seen further from the middle of its list: it is a wrong value, and clicks on it
# or beside it would outweigh a thousand lists. In raw counts there are true ones, too: by scores, which have no bounds,
# models that were learned within 30 units ranked less well than within 100 or 1,000, and no better online.
FURTHEST = 100.0
# A list in which a feature differs so many times as much as in all but a sixteenth of them holds what is no value of it
# (a date of 0, say), and sets no unit. Of fewer than 16 lists any may be as most will be.
UNUSUAL = 300.0

# Documents (k, d) of a list, and the ranges (d,) of its candidates, if known.
Seen = tuple[FloatArray, FloatArray | None]


def centred(X: FloatArray) -> FloatArray:
    """X (n, d) less the mean of its rows; exactly zero in columns that are constant.

    >>> centred(np.array([[1e8, 1.0], [1e8, 3.0]]))
    array([[ 0., -1.],
           [ 0.,  1.]])
    """
    # From the first row: a mean of equal numbers far from zero is not that number.
    away: FloatArray = X - X[0]
    away -= away.mean(axis=0)
    return away


def squared_spread(X: FloatArray) -> FloatArray:
    """(d,), E[(x_i - x_j)²] over pairs of different rows of X (n, d), n ≥ 2: Σ_ij (x_i - x_j)² = 2n Σ (x_i - mean)².

    >>> squared_spread(np.array([[0.0, 1.0], [2.0, 1.0]]))
    array([4., 0.])
    """
    spread: FloatArray = 2.0 / (len(X) - 1) * np.square(centred(X)).sum(axis=0)
    return spread


class Units(Saved):
    """The unit of every feature, from the first lists that are learned.

    ``kind`` "spread": the root of E[(x_i - x_j)²] over the shown documents, mean over the lists in which the feature
    varies. ``kind`` "range": the largest range among the candidates of a list. Features that were normalised to [0, 1]
    within each query (min-max) have a range of exactly one: then "range" changes nothing at all. Lists in which a
    feature is `UNUSUAL` are left out of both.

    Attributes
    ----------
    values : (d,), the units; 0 where a feature has not varied yet.
    lists : how many lists were watched.
    """

    SAVED: ClassVar[tuple[str, ...]] = ("values", "lists")

    def __init__(self, n_features: int, kind: str) -> None:
        self.kind = kind
        self.middle, self.missing = np.zeros(n_features), np.zeros(n_features, dtype=np.bool_)
        self.stiffness = np.empty(0)  # of functions that can bend; see `features.additive`
        self.values = np.zeros(n_features)
        self.lists = 0
        self._found: tuple[FloatArray, IntArray, FloatArray] | None = None

    def fix(self, values: FloatArray) -> None:
        """These are the units from here on: a prior, or an older model, was made in them."""
        self.values = values.copy()
        self.lists = LISTS

    def fix_units(self, units: FloatArray) -> None:
        """These are how far the columns (n_inputs,) differ, in a log's lists: the units from here on."""
        self.fix(units)

    def forget(self, columns: BoolArray) -> None:
        """Features whose line is among these ``columns`` (n_inputs,) have no unit until they vary."""
        self.values = np.where(columns[: len(self.values)], 0.0, self.values)

    def may_lack(self) -> BoolArray:
        """(d,), features in which NaN is a value: none in a linear model."""
        return self.missing

    def blocks(self) -> IntArray:
        """(b, m), the inputs of each function that can bend: a line cannot."""
        return np.empty((0, 0), dtype=np.int64)

    @property
    def precisions(self) -> FloatArray:
        """(n_inputs,), the prior's precision of every input, over λ."""
        return np.ones(self.n_inputs)

    @property
    def n_inputs(self) -> int:
        """Columns that the model sees."""
        return len(self.units)

    @property
    def n_asleep(self) -> int:
        """Columns that the model could see, but does not."""
        return 0

    @property
    def settled(self) -> bool:
        """Whether the units of all features that have varied are final."""
        return self.lists >= LISTS

    @property
    def _unseen(self) -> tuple[IntArray, FloatArray]:
        """The features without a unit, and (d,) all units with 1 for those; found again only where units change."""
        if self._found is None or self._found[0] is not self.values:
            self._found = self.values, np.flatnonzero(self.values == 0.0), np.where(self.values > 0.0, self.values, 1.0)
        return self._found[1:]

    def _vary_first(self, X: FloatArray) -> bool:
        """Whether a feature without a unit differs among the rows of X (n, d); most of these are constant for ever."""
        unseen, _ = self._unseen
        if not len(unseen):
            return False
        new = X.take(unseen, axis=1)
        return bool(np.count_nonzero(new != new[0]))  # quicker than `any`

    def inputs(self, X: FloatArray) -> FloatArray:
        """(n, d): X centred, in units. Features without a unit yet are measured by these candidates alone."""
        _, unit = self._unseen
        if self._vary_first(X):
            measured = self.measure(X, None)
            unit = np.where((self.values == 0.0) & (measured > 0.0), measured, unit)
        return standardised(np.ascontiguousarray(X), unit, FURTHEST)

    def weights(self, inner: FloatArray) -> FloatArray:
        """(d,), weights of the features as they come, from weights of the inputs ``inner`` (d,)."""
        return inner / self.units

    @property
    def units(self) -> FloatArray:
        """(n_inputs,), the unit of every column, 1 where it is not known yet."""
        return self._unseen[1]

    @property
    def owner(self) -> IntArray:
        """(n_inputs,), the feature that each column belongs to."""
        return np.arange(len(self.values))

    @property
    def partner(self) -> IntArray:
        """(n_inputs,), as `owner`; other than it only for a product of two features."""
        return self.owner

    def columns(self, X: FloatArray) -> FloatArray:
        """(n, n_inputs), what the model sees of X, neither centred nor in units."""
        return X

    def knots_of(self, feature: int) -> FloatArray:
        """Where the pieces of a feature's function end; none for a line."""
        return np.empty(0)

    def scores(self, X: FloatArray, inner: FloatArray) -> FloatArray:
        """(n,), X·θ for weights of the inputs ``inner`` (d,)."""
        return X @ self.weights(inner)

    def watch(self, X: FloatArray, ranges: FloatArray | None, earlier: Iterable[Seen]) -> bool:
        """See a list's shown documents X (k, d) and its candidates' ``ranges`` (d,), if known, after ``earlier`` lists.

        True when a unit that was in use has changed, so that what was learned in it must be learned anew. A feature
        that varies for the first time gets its unit at once; nothing was learned of it yet.
        """
        if ranges is None and (len(X) < 2 or (self.settled and not self._vary_first(X))):
            return False
        found, before = self.measure(X, ranges), self.values
        if not self.settled:
            self.lists += 1
            if not self.lists & (self.lists - 1):
                self.values = self.usual([*(self.measure(*seen) for seen in earlier), found])
                return bool((self.values != before)[before > 0.0].any())
        self.values = np.where(before == 0.0, found, before)
        return False

    def usual(self, measured: Sequence[FloatArray] | FloatArray) -> FloatArray:
        """(d,), the units by what `measure` told of several lists."""
        each = np.array(measured)
        if not len(each):
            return np.zeros(len(self.values))
        falling, few = -np.sort(-each, axis=0), np.count_nonzero(each, axis=0) // 16
        each[each > UNUSUAL * np.take_along_axis(falling, few[None], axis=0)] = 0.0
        if self.kind == "range":
            return np.asarray(each.max(axis=0))
        return np.asarray(np.sqrt(np.square(each).sum(axis=0) / np.maximum(np.count_nonzero(each, axis=0), 1)))

    def measure(self, X: FloatArray, ranges: FloatArray | None) -> FloatArray:
        """(d,), the unit that one list alone would give; 0 for features that are constant in it."""
        if self.kind == "range":
            found = np.ptp(X, axis=0) if ranges is None else ranges
        else:
            found = np.sqrt(squared_spread(X)) if len(X) > 1 else np.zeros(X.shape[1])
        return np.where(found > LEAST, found, 0.0)
