"""The pairs that were learned from, kept so that θ̂ can be made exact again: growing arrays of documents and pairs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from pairrank.estimator.evidence import Powers
from pairrank.kernel import jit
from pairrank.kernel.logistic import sigmoid, slope
from pairrank.kernel.pairs import Pairs, only_used
from pairrank.state import Growing, Saved
from pairrank.types import AnyArray, FloatArray, IntArray

# Documents at a time where each piece is read twice (so that it should stay in the cache), and lists at a time where it
# is multiplied.
DOCUMENTS_A_SWEEP = 2560
LISTS_A_PRODUCT = 192


class History(Saved):
    """Learned pairs as (winner, loser, weight) over rows of documents, with the sums that Newton's method needs."""

    SAVED: ClassVar[tuple[str, ...]] = ("_documents", "_asleep", "_winner", "_loser", "_weight", "_ends")

    def __init__(self, n_features: int, dtype: type[np.floating[Any]] = np.float64, n_asleep: int = 0) -> None:
        self._documents = Growing(np.empty((0, n_features), dtype=dtype))
        # Columns of the same documents that are in no sum until they are chosen.
        self._asleep = Growing(np.empty((0, n_asleep), dtype=dtype)) if n_asleep else None
        self._all_awake = False
        self._winner = Growing(np.empty(0, dtype=np.int64))
        self._loser = Growing(np.empty(0, dtype=np.int64))
        self._weight = Growing(np.empty(0))
        # Where each learned list ends, in documents and in pairs: lists are forgotten whole.
        self._ends = Growing(np.empty((0, 2), dtype=np.int64))

    def __len__(self) -> int:
        return len(self._weight)

    @property
    def n_documents(self) -> int:
        return len(self._documents)

    @property
    def n_asleep(self) -> int:
        """Columns that are in no sum."""
        return 0 if self._asleep is None else self._asleep.rows.shape[1]

    def taking_part(
        self, documents: FloatArray, pairs: Pairs, asleep: FloatArray | None
    ) -> tuple[FloatArray, Pairs, FloatArray | None]:
        """What `append` takes of a list: those of its documents that are in a pair; see `only_used`."""
        return only_used(documents, pairs, asleep)

    def append(self, documents: AnyArray, pairs: Pairs, asleep: AnyArray | None = None) -> None:
        """Add the pairs of one list over its ``documents`` (k, d), with their columns ``asleep`` (k, n_asleep)."""
        first, rows, winner, loser, weight = self.extend(len(documents), len(pairs.weight))
        rows[:], winner[:], loser[:], weight[:] = documents, pairs.winner + first, pairs.loser + first, pairs.weight
        if self._asleep is not None:
            self._asleep.extend(len(documents))[:] = asleep

    def extend(self, k: int, n: int) -> tuple[int, AnyArray, IntArray, IntArray, FloatArray]:
        """Where a list of ``k`` documents and ``n`` pairs goes: its first row; its documents, and its pairs' parts."""
        first = len(self._documents)
        self._ends.extend(1)[0] = first + k, len(self._weight) + n
        return first, self._documents.extend(k), self._winner.extend(n), self._loser.extend(n), self._weight.extend(n)

    def pull(self, theta: FloatArray) -> FloatArray:
        """Σ w σ(-x·θ) x over all pairs, (d,): minus the gradient of the pairs' loss, in one pass over the documents."""
        return self._sweep(lambda piece: piece.weight * sigmoid(piece.gaps(-theta)))

    def bend(self, theta: FloatArray, direction: FloatArray) -> FloatArray:
        """(Σ w σ'(x·θ) x xᵀ) v for a direction v (d,): the pairs' Hessian applied, without forming it."""
        return self._sweep(lambda piece: piece.weight * slope(piece.gaps(theta)) * piece.gaps(direction))

    def loss(self, theta: FloatArray) -> float:
        """Σ w log(1 + exp(-x·θ)) over all pairs."""
        return sum(float(p.weight @ np.logaddexp(0.0, -p.gaps(theta))) for p in self._pieces(self._lists_a_sweep))

    def of_powers(self, theta: FloatArray, along: FloatArray) -> Powers:
        """Of the scores x·v, for v ``along`` (d,); ``theta`` (d,) is where σ is taken."""
        both, own, pull, plain = np.zeros((len(theta), 2)), np.zeros((2, 2)), np.zeros(2), 0.0
        for piece in self._pieces(self._lists_a_sweep):
            m, ds, dz = piece.gaps(theta), piece.gaps(along), piece.gaps_of_powers(along)
            h = piece.weight * slope(m)
            forces = [piece.scatter(force).astype(piece.documents.dtype, copy=False) for force in h * dz]
            both += np.column_stack([force @ piece.documents for force in forces])
            own += (h * dz) @ dz.T
            pull += dz @ (piece.weight * sigmoid(-m))
            plain += float(h @ ds**2)
        return Powers(both, own, pull, plain)

    def furthest(self, direction: FloatArray) -> float:
        """max |x·v| over all pairs."""
        s = products(self._documents.rows, direction)
        return float(np.abs(s[self._winner.rows] - s[self._loser.rows]).max(initial=0.0))

    def _sweep(self, force: Callable[[Piece], FloatArray]) -> FloatArray:
        """Σ force x over all pairs, (d,), in pieces that stay in the cache between their two uses."""
        total = np.zeros(self._rows(slice(0)).shape[1])
        for piece in self._pieces(self._lists_a_sweep):
            total += piece.scatter(force(piece)).astype(piece.documents.dtype, copy=False).dot(piece.documents)
        return total

    @property
    def _lists_a_sweep(self) -> int:
        return max(DOCUMENTS_A_SWEEP * self.n_lists // max(self.n_documents, 1), 1)

    def curvature(
        self, theta: FloatArray, lists: slice = slice(None), dtype: type[np.floating[Any]] = np.float64
    ) -> FloatArray:
        """Σ w σ'(x·θ) x xᵀ, (d, d), over the pairs of all lists or of some, oldest first; products in ``dtype``."""
        d = self._rows(slice(0)).shape[1]
        total = np.zeros((d, d))
        for piece in self._pieces(LISTS_A_PRODUCT, lists):
            total += piece.curvature(theta, dtype)
        return total

    def _pieces(self, n: int, lists: slice = slice(None)) -> Iterator[Piece]:
        """``n`` whole lists at a time."""
        ends = self._ends.rows[lists]
        lasts = [*ends[n - 1 :: n].tolist(), ends[-1].tolist()] if len(ends) else []
        row, pair = self._ends.rows[lists.start - 1].tolist() if lists.start else (0, 0)
        winner, loser, weight = self._winner.rows, self._loser.rows, self._weight.rows
        for last_row, last_pair in lasts:
            if last_pair > pair:
                pairs = slice(pair, last_pair)
                yield Piece(self._rows(slice(row, last_row)), winner[pairs], loser[pairs], weight[pairs], row)
            row, pair = last_row, last_pair

    def _rows(self, rows: slice) -> AnyArray:
        """Some of the documents."""
        if self._all_awake and self._asleep is not None:
            return np.hstack([self._documents.rows[rows], self._asleep.rows[rows]])
        return self._documents.rows[rows]

    def awake(self) -> History:
        """The same history, to be looked at with the columns that sleep beside the others."""
        other = copy.copy(self)
        other._all_awake = True
        return other

    def differences(self) -> tuple[FloatArray, FloatArray]:
        """All pairs' feature differences (n, d), winner minus loser, and their weights (n,)."""
        D = self._documents.rows.astype(np.float64, copy=False)
        return D[self._winner.rows] - D[self._loser.rows], self._weight.rows.copy()

    def fold(self, n_lists: int, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Forget the oldest ``n_lists`` lists; their curvature (d, d) and pull (d,) at θ stay behind as the answer."""
        curvature = self.curvature(theta, slice(n_lists))
        before = self.pull(theta)
        self.drop(n_lists)
        return curvature, before - self.pull(theta)

    def choose(self, order: IntArray, n: int) -> History:
        """The same history with columns in another ``order``, those that sleep counted last; after ``n`` they sleep."""
        kept, other = self.awake()._rows(slice(None)), copy.copy(self)
        other._documents = Growing(kept[:, order[:n]])
        other._asleep = Growing(kept[:, order[n:]]) if n < len(order) else None
        return other

    def scale(self, factor: float) -> None:
        self._weight = Growing(factor * self._weight.rows)

    def drop(self, n_lists: int) -> None:
        """Forget the oldest ``n_lists`` lists."""
        ends = self._ends.rows[n_lists - 1]
        n_documents, n_pairs = ends.tolist()
        self._documents = Growing(self._documents.rows[n_documents:])
        if self._asleep is not None:
            self._asleep = Growing(self._asleep.rows[n_documents:])
        self._weight = Growing(self._weight.rows[n_pairs:])
        self._winner = Growing(self._winner.rows[n_pairs:] - n_documents)
        self._loser = Growing(self._loser.rows[n_pairs:] - n_documents)
        self._ends = Growing(self._ends.rows[n_lists:] - ends)

    def turn_round(self) -> None:
        """Put the lists in the opposite order."""
        sizes = np.diff(self._ends.rows, axis=0, prepend=0)
        rows, pairs = (np.argsort(-np.repeat(np.arange(len(sizes)), n), kind="stable") for n in sizes.T)
        place = np.argsort(rows)  # where each row goes
        self._documents = Growing(self._documents.rows[rows])
        if self._asleep is not None:
            self._asleep = Growing(self._asleep.rows[rows])
        if len(self._winner):  # there are none in `Differences`
            self._winner, self._loser = (Growing(place[kept.rows[pairs]]) for kept in (self._winner, self._loser))
        self._weight = Growing(self._weight.rows[pairs])
        self._ends = Growing(np.cumsum(sizes[::-1], axis=0))

    @property
    def n_lists(self) -> int:
        return len(self._ends)


class Piece(NamedTuple):
    """Some whole lists of the history: documents (n, d), and pairs whose rows count from ``first``."""

    documents: AnyArray
    winner: IntArray
    loser: IntArray
    weight: FloatArray
    first: int

    def gaps(self, direction: FloatArray) -> FloatArray:
        """x·v of every pair for a direction v (d,)."""
        return gaps(products(self.documents, direction), self.winner, self.loser, self.first)

    def gaps_of_powers(self, direction: FloatArray) -> FloatArray:
        """(2, n), (x·v)² and (x·v)³ of every pair's winner less those of its loser, for a direction v (d,)."""
        s = products(self.documents, direction)
        return np.array([gaps(power, self.winner, self.loser, self.first) for power in (s**2, s**3)])

    def scatter(self, force: FloatArray) -> FloatArray:
        """(n,), +force at the winner's row and -force at the loser's."""
        return scatter(self.winner, self.loser, force, self.first, len(self.documents))

    def differences(self, scale: FloatArray, dtype: type[np.floating[Any]]) -> AnyArray:
        """The winner's features less the loser's, times the pair's scale, one row a pair."""
        out = np.empty((len(scale), self.documents.shape[1]), dtype=dtype)
        differences(self.documents, self.winner, self.loser, self.first, scale, out)
        return out

    def curvature(self, theta: FloatArray, dtype: type[np.floating[Any]]) -> AnyArray:
        """Σ w σ'(x·θ) x xᵀ by whichever is less work: the pairs one by one, or DᵀLD with their sparse Laplacian L."""
        h = self.weight * slope(self.gaps(theta))
        # The product of a matrix with its own transpose is half the work of one with another.
        if len(h) <= 3 * len(self.documents):
            V = self.differences(np.sqrt(h), dtype)
            return V.T @ V
        D = self.documents.astype(dtype, copy=False)
        ends = np.concatenate([self.winner, self.loser]) - self.first
        others = np.concatenate([self.loser, self.winner]) - self.first
        both = np.concatenate([h, h]).astype(dtype, copy=False)
        L = csr_array((-both, (ends, others)), shape=(len(D), len(D)))
        degree = np.bincount(ends, both, len(D)).astype(dtype, copy=False)
        curvature: AnyArray = D.T @ (L @ D + degree[:, None] * D)
        return curvature


def products(documents: AnyArray, direction: FloatArray) -> AnyArray:
    """x·v of every document, (n,), in the documents' own precision.

    BLAS reads whole registers: beyond the end of short float32 rows it may meet anything, and flags it as invalid
    although it does not use it. What really is not finite is found where a ranker has learned.
    """
    with np.errstate(invalid="ignore"):
        products: AnyArray = documents.dot(direction.astype(documents.dtype, copy=False))
    return products


@jit.twin()
def gaps(scores: AnyArray, winner: IntArray, loser: IntArray, first: int) -> FloatArray:
    """The winner's score less the loser's for every pair, (n,), where ``first`` is the row of the first score."""
    s: FloatArray = scores.astype(np.float64, copy=False)
    return s[winner - first] - s[loser - first]


@jit.twin()
def scatter(winner: IntArray, loser: IntArray, force: FloatArray, first: int, n: int) -> FloatArray:
    """(n,), +force at the winner's row and -force at the loser's, for rows that count from ``first``."""
    total = np.bincount(winner - first, force, n) - np.bincount(loser - first, force, n)
    return total.astype(np.float64, copy=False)


@jit.twin()
def differences(
    documents: AnyArray, winner: IntArray, loser: IntArray, first: int, scale: FloatArray, out: AnyArray
) -> None:
    """The winner's features less the loser's, times the pair's ``scale``, into ``out`` (n, d)."""
    D = documents.astype(np.float64, copy=False)
    out[:] = (D[winner - first] - D[loser - first]) * scale[:, None]
