"""The paper's M_t with its inverse and determinant, kept up under updates of low rank."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from pairrank.kernel.confidence import inverse_of, plus_product, updated_inverse
from pairrank.state import Saved
from pairrank.types import FloatArray

# Rounding in the inverse grows with the number of updates; after this many it is computed afresh from M.
REFACTOR_EVERY = 1000


class InformationMatrix(Saved):
    """M, M⁻¹ and log det M, from λI."""

    SAVED: ClassVar[tuple[str, ...]] = ("matrix", "inverse", "log_det", "_updates")

    def __init__(self, n_features: int, lam: float) -> None:
        self.matrix = lam * np.eye(n_features)
        self.inverse = np.eye(n_features) / lam
        self.log_det = n_features * math.log(lam)
        self._updates = 0

    def start_from(self, matrix: FloatArray) -> None:
        """Start from another matrix than λI."""
        self.matrix = matrix.copy()
        self.inverse, self.log_det = inverse_of(matrix)

    def add(self, rows: FloatArray) -> None:
        """M + VᵀV for ``rows`` V (m, d)."""
        self.matrix = plus_product(self.matrix, rows.T, rows.T, 1.0)
        self._updates += 1
        if self._updates % REFACTOR_EVERY:
            self.inverse, more = updated_inverse(self.inverse, rows)
            self.log_det += more
        else:
            self.inverse, self.log_det = inverse_of(self.matrix)
