"""The pairs that were learned from, kept so that θ̂ can be made exact again: growing arrays of documents and pairs."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from pairrank.kernel.logistic import sigmoid, slope
from pairrank.kernel.pairs import Pairs
from pairrank.types import AnyArray, FloatArray, IntArray

# Lists whose curvature is computed in one product.
LISTS_AT_ONCE = 512


class Growing:
    """An array that grows at its end in amortised constant time."""

    def __init__(self, start: AnyArray) -> None:
        self._room = start.copy()
        self._length = len(start)

    def __len__(self) -> int:
        return self._length

    @property
    def rows(self) -> AnyArray:
        """What has been appended so far: a view, good until the next `append`."""
        return self._room[: self._length]

    def append(self, rows: AnyArray) -> None:
        """Add ``rows`` at the end."""
        needed = self._length + len(rows)
        if needed > len(self._room):
            room = np.empty((max(needed, 2 * len(self._room), 64), *self._room.shape[1:]), dtype=self._room.dtype)
            room[: self._length] = self.rows
            self._room = room
        self._room[self._length : needed] = rows
        self._length = needed

    def drop(self, n: int) -> None:
        """Remove the first ``n`` rows."""
        kept = self._length - n
        self._room[:kept] = self._room[n : self._length].copy()
        self._length = kept


class History:
    """Learned pairs as (winner, loser, weight) over rows of documents, with the sums that Newton's method needs."""

    def __init__(self, n_features: int) -> None:
        self._documents = Growing(np.empty((0, n_features)))
        self._winner = Growing(np.empty(0, dtype=np.int64))
        self._loser = Growing(np.empty(0, dtype=np.int64))
        self._weight = Growing(np.empty(0))
        # Where each learned list ends, in documents and in pairs: lists are forgotten whole.
        self._ends = Growing(np.empty((0, 2), dtype=np.int64))

    def __len__(self) -> int:
        return len(self._weight)

    @property
    def n_documents(self) -> int:
        """Rows of documents kept."""
        return len(self._documents)

    def append(self, documents: FloatArray, pairs: Pairs) -> None:
        """Add the pairs of one list over its ``documents`` (k, d)."""
        offset = len(self._documents)
        self._documents.append(documents)
        self._winner.append(pairs.winner + offset)
        self._loser.append(pairs.loser + offset)
        self._weight.append(pairs.weight)
        self._ends.append(np.array([[len(self._documents), len(self._weight)]]))

    def pull(self, theta: FloatArray) -> FloatArray:
        """Σ w σ(-x·θ) x over all pairs, (d,): minus the gradient of the pairs' loss."""
        force = self._weight.rows * sigmoid(-self.gaps(theta))
        return self._gather(force)

    def gaps(self, theta: FloatArray) -> FloatArray:
        """x·θ of every pair, (n,)."""
        s = self._documents.rows @ theta
        gap: FloatArray = s[self._winner.rows] - s[self._loser.rows]
        return gap

    def stiffness(self, gaps: FloatArray) -> FloatArray:
        """w σ'(x·θ) of every pair, (n,), from its `gaps`."""
        h: FloatArray = self._weight.rows * slope(gaps)
        return h

    def bend(self, stiffness: FloatArray, direction: FloatArray) -> FloatArray:
        """(Σ h x xᵀ) v for a direction v (d,): the pairs' Hessian applied, without forming it."""
        return self._gather(stiffness * self.gaps(direction))

    def _gather(self, force: FloatArray) -> FloatArray:
        """Σ force x, (d,)."""
        D = self._documents.rows
        return D.T @ scatter(self._winner.rows, self._loser.rows, force, len(D))

    def curvature(self, theta: FloatArray, n_lists: int | None = None) -> FloatArray:
        """Σ w σ'(x·θ) x xᵀ, (d, d), over the pairs of all lists or of the oldest ``n_lists``."""
        d = self._documents.rows.shape[1]
        total = np.zeros((d, d))
        ends = self._ends.rows[:n_lists]
        first = np.zeros(2, dtype=np.int64)
        # In pieces of whole lists, so that the temporaries stay small.
        for stop in range(LISTS_AT_ONCE, len(ends) + LISTS_AT_ONCE, LISTS_AT_ONCE):
            last = ends[min(stop, len(ends)) - 1]
            rows, pairs = slice(first[0], last[0]), slice(first[1], last[1])
            total += _curvature(
                self._documents.rows[rows],
                self._winner.rows[pairs] - first[0],
                self._loser.rows[pairs] - first[0],
                self._weight.rows[pairs],
                theta,
            )
            first = last
        return total

    def differences(self) -> tuple[FloatArray, FloatArray]:
        """All pairs' feature differences (n, d), winner minus loser, and their weights (n,)."""
        D = self._documents.rows
        return D[self._winner.rows] - D[self._loser.rows], self._weight.rows.copy()

    def fold(self, n_lists: int, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Forget the oldest ``n_lists`` lists; their curvature (d, d) and pull (d,) at θ stay behind as the answer."""
        n_documents, n_pairs = (int(v) for v in self._ends.rows[n_lists - 1])
        curvature = self.curvature(theta, n_lists)
        before = self.pull(theta)
        self._documents.drop(n_documents)
        for column in (self._winner, self._loser, self._weight):
            column.drop(n_pairs)
        self._winner.rows[:] -= n_documents
        self._loser.rows[:] -= n_documents
        self._ends.drop(n_lists)
        self._ends.rows[:] -= (n_documents, n_pairs)
        return curvature, before - self.pull(theta)

    @property
    def n_lists(self) -> int:
        """Lists whose pairs are kept."""
        return len(self._ends)

    def state(self) -> dict[str, AnyArray]:
        """All arrays, by name."""
        return {
            "history.documents": self._documents.rows,
            "history.winner": self._winner.rows,
            "history.loser": self._loser.rows,
            "history.weight": self._weight.rows,
            "history.ends": self._ends.rows,
        }

    def restore(self, state: dict[str, AnyArray]) -> None:
        """Take over what `state` gave."""
        width = self._documents.rows.shape[1]
        if state["history.documents"].shape[1:] != (width,):
            raise ValueError(f"history has documents of another width than {width}")
        n = len(state["history.documents"])
        if len(state["history.winner"]) and max(state["history.winner"].max(), state["history.loser"].max()) >= n:
            raise ValueError("history has pairs of documents that it does not hold")
        for name in ("documents", "winner", "loser", "weight", "ends"):
            setattr(self, f"_{name}", Growing(state[f"history.{name}"]))


def _curvature(D: FloatArray, win: IntArray, lose: IntArray, weight: FloatArray, theta: FloatArray) -> FloatArray:
    """Σ w σ'(x·θ) x xᵀ by whichever is less work: the pairs one by one, or DᵀLD with their sparse Laplacian L."""
    s = D @ theta
    h = weight * slope(s[win] - s[lose])
    if len(win) <= len(D):
        V = (D[win] - D[lose]) * np.sqrt(h)[:, None]
        return V.T @ V
    ends = np.concatenate([win, lose])
    diagonal = np.bincount(ends, np.concatenate([h, h]), len(D))
    L = csr_array((np.concatenate([-h, -h]), (ends, np.concatenate([lose, win]))), shape=(len(D), len(D)))
    curvature: FloatArray = D.T @ (L @ D + diagonal[:, None] * D)
    return curvature


def scatter(winner: IntArray, loser: IntArray, force: FloatArray, n: int) -> FloatArray:
    """(n,), +force at the winner's row and -force at the loser's."""
    total = np.bincount(winner, force, n) - np.bincount(loser, force, n)
    return total.astype(np.float64, copy=False)
