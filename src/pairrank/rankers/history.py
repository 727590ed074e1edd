"""The pairs that were learned from, kept so that θ̂ can be made exact again: growing arrays of documents and pairs."""

from __future__ import annotations

import numpy as np

from pairrank.kernel.logistic import sigmoid, slope
from pairrank.kernel.pairs import Pairs
from pairrank.types import AnyArray, FloatArray, IntArray


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
        D, win, lose = self._documents.rows, self._winner.rows, self._loser.rows
        s = D @ theta
        force = self._weight.rows * sigmoid(s[lose] - s[win])
        return D.T @ scatter(win, lose, force, len(D))

    def curvature(self, theta: FloatArray, n_pairs: int | None = None, n_documents: int | None = None) -> FloatArray:
        """Σ w σ'(x·θ) x xᵀ, (d, d), over all pairs or the first ``n_pairs`` (on the first ``n_documents`` rows)."""
        D = self._documents.rows[:n_documents]
        win, lose = self._winner.rows[:n_pairs], self._loser.rows[:n_pairs]
        s = D @ theta
        h = self._weight.rows[:n_pairs] * slope(s[win] - s[lose])
        total = np.zeros((D.shape[1], D.shape[1]))
        for start in range(0, len(win), 8192):  # in pieces, so that the differences need little memory
            cut = slice(start, start + 8192)
            V = (D[win[cut]] - D[lose[cut]]) * np.sqrt(h[cut])[:, None]
            total += V.T @ V
        return total

    def differences(self) -> tuple[FloatArray, FloatArray]:
        """All pairs' feature differences (n, d), winner minus loser, and their weights (n,)."""
        D = self._documents.rows
        return D[self._winner.rows] - D[self._loser.rows], self._weight.rows.copy()

    def fold(self, n_lists: int, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Forget the oldest ``n_lists`` lists; their curvature (d, d) and pull (d,) at θ stay behind as the answer."""
        n_documents, n_pairs = (int(v) for v in self._ends.rows[n_lists - 1])
        curvature = self.curvature(theta, n_pairs, n_documents)
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


def scatter(winner: IntArray, loser: IntArray, force: FloatArray, n: int) -> FloatArray:
    """(n,), +force at the winner's row and -force at the loser's."""
    total = np.bincount(winner, force, n) - np.bincount(loser, force, n)
    return total.astype(np.float64, copy=False)
