"""How much a pair of clicks is worth: options of PairRank against repetition, contradiction and overconfidence."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from pairrank.kernel.logistic import sigmoid
from pairrank.kernel.pairs import Pairs
from pairrank.types import AnyArray, BoolArray, FloatArray

# Counters of pairs seen; two pairs that share one count for each other, which costs them a little weight.
SLOTS = 2**16
# As many pairs as calibration and confirmation start with, as surprising as expected and half of them won by position.
PSEUDO_PAIRS = 50.0
# As much information on a (pairs of margin 1 have a fifth each) as confirmation starts with, all of it for a = 1.
PSEUDO_INFORMATION = 5.0


class Repeats:
    """How often each pair of documents was learned from: the r-th time it weighs r^-ρ.

    The same pair tells less each time: its clicks share what the model cannot see of the two documents.
    """

    def __init__(self, rho: float) -> None:
        self._rho = rho
        self._counts = np.zeros(SLOTS if rho else 0, dtype=np.int64)

    def weigh(self, documents: FloatArray, pairs: Pairs) -> Pairs:
        """``pairs`` of ``documents`` (k, d) with their weights reduced, and counted."""
        if not self._rho:
            return pairs
        key = np.array([zlib.crc32(row.tobytes()) for row in documents], dtype=np.uint32)
        slots = (key[pairs.winner] ^ key[pairs.loser]) % SLOTS
        np.add.at(self._counts, slots, 1)
        return pairs._replace(weight=pairs.weight * self._counts[slots] ** (-1.0 * self._rho))

    def state(self) -> dict[str, AnyArray]:
        """Everything that changes, by name."""
        return {"repeats": self._counts}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        if state["repeats"].shape != self._counts.shape:
            raise ValueError(f"repeats has shape {state['repeats'].shape}, expected {self._counts.shape}")
        self._counts = state["repeats"].copy()


class Surprise:
    """How much more often the model is contradicted than it expects: φ = Σ w (1 - p)² / Σ w p (1 - p).

    p is the model's probability of what a pair's clicks then said, before they were learned. The ratio is one in
    expectation where the model is right, and more where it is too sure of itself; widths grow by √φ.
    """

    def __init__(self) -> None:
        self._found = self._expected = 0.25 * PSEUDO_PAIRS

    def watch(self, margins: FloatArray, weight: FloatArray) -> None:
        """Count pairs whose winners led by ``margins`` (n,) in score."""
        p = sigmoid(margins)
        self._found += float(weight @ (1.0 - p) ** 2)
        self._expected += float(weight @ (p * (1.0 - p)))

    @property
    def factor(self) -> float:
        """√φ."""
        return math.sqrt(self._found / self._expected)

    def state(self) -> dict[str, float]:
        """Everything that changes, by name."""
        return {"surprise_found": self._found, "surprise_expected": self._expected}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self._found, self._expected = float(state["surprise_found"]), float(state["surprise_expected"])


class Confirmation:
    """How far clicks on orders that the model had fixed confirm it beyond what it and position explain: a - 1.

    Where the order of two documents was a fair coin, the upper one wins by its position alone: with odds e^β, β > 0
    where users favour what stands higher. Suppose that with a fixed order a winner's chance is σ(a m + sβ) for its
    margin m in score, s = ±1 as it stood above or below; the model says a = 1. Newton's step from there:

        a - 1 ≈ Σ w m (1 - p) / Σ w m² p (1 - p),   p = σ(m + s max(β, 0)),

    over such pairs, each before it is learned. Below zero they contradict what the fair pairs have taught: the bias of
    fixed orders is stronger than what they tell, or the model is sure of too much. Above zero they tell more than the
    model dares to believe, and are worth that share of a fair pair.
    """

    def __init__(self, half_life: float | None) -> None:
        self._keep = 0.5 ** (1.0 / half_life) if half_life else 1.0
        self._excess = self._information = 0.0
        self._above = self._below = 0.5 * PSEUDO_PAIRS  # fair pairs that the upper and the lower document won

    def watch(self, margins: FloatArray, upper: BoolArray, weight: FloatArray, settled: FloatArray) -> None:
        """Count a list's pairs by their winners' ``margins`` in score and whether they were the ``upper`` of the two.

        ``settled`` is the weight of pairs in an order that the model had fixed, zero for the others; all are (n,).
        """
        doubt = 1.0 - sigmoid(margins + np.where(upper, self.lead, -self.lead))
        pull = margins * doubt
        self._excess = self._keep * self._excess + float(settled @ pull)
        self._information = self._keep * self._information + float(settled @ (pull * (margins - pull)))
        fair = weight - settled
        self._above = self._keep * self._above + float(fair @ upper)
        self._below = self._keep * self._below + float(fair @ ~upper)

    @property
    def lead(self) -> float:
        """max(β, 0): the log-odds with which position alone makes the upper of two documents win."""
        return max(math.log(self._above / self._below), 0.0)

    @property
    def share(self) -> float:
        """a - 1 within 0 to 1, nearer to 0 while little is known."""
        return min(max(self._excess / (self._information + PSEUDO_INFORMATION), 0.0), 1.0)

    def state(self) -> dict[str, float]:
        """Everything that changes, by name."""
        return {
            "confirmation_excess": self._excess,
            "confirmation_information": self._information,
            "confirmation_above": self._above,
            "confirmation_below": self._below,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self._excess = float(state["confirmation_excess"])
        self._information = float(state["confirmation_information"])
        self._above = float(state["confirmation_above"])
        self._below = float(state["confirmation_below"])


def discount_contradiction(margins: FloatArray, gamma: float) -> FloatArray:
    """min(1, (2σ(m))^γ) for winners that led by ``margins`` (n,): clicks against the model must insist."""
    return np.minimum(1.0, (2.0 * sigmoid(margins)) ** gamma)
