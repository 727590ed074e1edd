"""λ from the features themselves, so that neither their number nor their unit has to be known.

θ ~ N(0, I/λ) expects the scores of two documents to differ by ‖x_i - x_j‖/√λ. With λ = 3 E‖x_i - x_j‖², the mean taken
over the documents of the first lists, that is 0.58 for a usual pair, whatever the features. Multiplying all features
by c multiplies λ by c², and every score, width and list stays as it was.
"""

from __future__ import annotations

from typing import Any

from pairrank.types import FloatArray

STRENGTH = 3.0
# Lists that λ is taken from; after the 1st, 2nd, 4th, ... of them it is set anew. Later lists are too much alike.
LISTS = 64
LEAST = 1e-9


class Scale:
    """The running mean of E‖x_i - x_j‖² over lists, until there were enough of them."""

    def __init__(self, n_features: int) -> None:
        # Until the first clicks every score is zero and nothing is certain, so this matters to nothing but warm starts:
        # features spread evenly over [0, 1] would have it.
        self.start = STRENGTH * n_features / 6.0
        self._total, self._lists = 0.0, 0

    def stop(self) -> None:
        """λ is what it is: a prior was given."""
        self._lists = LISTS

    def watch(self, documents: FloatArray) -> float | None:
        """See a list's documents (k, d); λ, when it is time to set it anew."""
        k = len(documents)
        if k < 2 or self._lists >= LISTS:
            return None
        self._lists += 1
        # Σ_ij ‖x_i - x_j‖² = 2k Σ ‖x_i - mean‖², over k(k - 1) pairs.
        self._total += 2.0 / (k - 1) * float(((documents - documents.mean(axis=0)) ** 2).sum())
        due = self._lists & (self._lists - 1) == 0
        # Lists of equal documents tell nothing, and λ must not vanish.
        return max(STRENGTH * self._total / self._lists, LEAST) if due else None

    def state(self) -> dict[str, float]:
        """Everything that changes, by name."""
        return {"scale_total": self._total, "scale_lists": self._lists}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self._total, self._lists = float(state["scale_total"]), int(state["scale_lists"])
