"""The history of pairs that share no document: one row a pair instead of two, so that a pass reads half as much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pairrank.estimator.history import History, Piece, products
from pairrank.kernel.pairs import Pairs
from pairrank.types import AnyArray, FloatArray


class Differences(History):
    """Learned pairs as rows, winner minus loser, that count as documents; there are no columns that sleep.

    Winners' and losers' places stay empty, and are saved so: a model without its lists has the same bytes as ever.
    """

    def taking_part(
        self, documents: FloatArray, pairs: Pairs, asleep: FloatArray | None
    ) -> tuple[FloatArray, Pairs, None]:
        """The n differences, each preferred to a last row of zeros: n + 1 rows in the place of 2n documents."""
        n = len(pairs.weight)
        rows = np.zeros((n + 1, documents.shape[1]))
        rows[:n] = documents[pairs.winner] - documents[pairs.loser]
        return rows, Pairs(np.arange(n), np.full(n, n), pairs.weight), None

    def append(self, documents: AnyArray, pairs: Pairs, asleep: AnyArray | None = None) -> None:
        n = len(pairs.weight)
        self._ends.extend(1)[0] = len(self) + n
        self._documents.extend(n)[:] = documents[:n]
        self._weight.extend(n)[:] = pairs.weight

    def furthest(self, direction: FloatArray) -> float:
        return float(np.abs(products(self._documents.rows, direction)).max(initial=0.0))

    def _pieces(self, n: int, lists: slice = slice(None)) -> Iterator[Piece]:
        return map(Rows._make, super()._pieces(n, lists))

    def differences(self) -> tuple[FloatArray, FloatArray]:
        return self._documents.rows.astype(np.float64), self._weight.rows.copy()


class Rows(Piece):
    """Some whole lists, whose rows are the pairs themselves."""

    def gaps(self, direction: FloatArray) -> FloatArray:
        return products(self.documents, direction).astype(np.float64, copy=False)

    def scatter(self, force: FloatArray) -> FloatArray:
        return force

    def differences(self, scale: FloatArray, dtype: type[np.floating[Any]]) -> AnyArray:
        scaled: AnyArray = self.documents.astype(dtype, copy=False) * scale.astype(dtype, copy=False)[:, None]
        return scaled
