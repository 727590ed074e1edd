"""The paper's M_t with its inverse and determinant, kept up under updates of low rank."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pairrank.kernel.confidence import add_product, inverse_of, update_inverse
from pairrank.types import FloatArray

# Rounding in the inverse grows with the number of updates; after this many it is computed afresh from M.
REFACTOR_EVERY = 1000


class Precision:
    """M, M⁻¹ and log det M, from λI."""

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
        add_product(self.matrix, rows.T, rows.T, 1.0)
        self._updates += 1
        if self._updates % REFACTOR_EVERY:
            self.log_det += update_inverse(self.inverse, rows)
        else:
            self.inverse, self.log_det = inverse_of(self.matrix)

    def state(self) -> dict[str, Any]:
        """Everything that changes, by name."""
        return {
            "M": self.matrix,
            "M_inverse": self.inverse,
            "log_det": self.log_det,
            "M_updates": self._updates,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        for name in ("M", "M_inverse"):
            if state[name].shape != self.matrix.shape:
                raise ValueError(f"{name} has shape {state[name].shape}, expected {self.matrix.shape}")
        self.matrix, self.inverse = state["M"].copy(), state["M_inverse"].copy()
        self.log_det, self._updates = float(state["log_det"]), int(state["M_updates"])
