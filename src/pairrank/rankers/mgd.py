"""Multileave gradient descent (MGD)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from pairrank.checking import check_choice, check_whole
from pairrank.rankers import multileaving
from pairrank.rankers.dbgd import DBGD
from pairrank.types import AnyArray, BoolArray, FloatArray, IntArray


@dataclass(eq=False, kw_only=True)
class MGD(DBGD):
    """Many random directions a list: θ and all θ + δu_i are multileaved; θ moves to the mean of the winners.

        θ ← θ + η · mean{u_i : the credit of candidate i is above that of θ}.

    References: Schuth et al., "Multileave Gradient Descent for Fast Online Learning to Rank", WSDM 2016
    (team-draft); Oosterhuis et al., "Probabilistic Multileave Gradient Descent", ECIR 2016 (probabilistic).

    >>> ranker = MGD(n_features=2, seed=0, multileaving="team-draft")
    >>> shown = ranker.rank({"a": [0.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 1.0]})
    >>> ranker.learn(shown, clicks=["c"])
    True

    Parameters
    ----------
    learning_rate, decay, delta, tau : as in `DBGD`; ``tau`` is for probabilistic multileaving alone.
    n_candidates : how many directions are tried at once.
    multileaving : "probabilistic" (credit: expected clicks) or "team-draft" (credit: clicks on the team).
    """

    name: ClassVar[str] = "mgd"

    n_candidates: int = 49
    multileaving: Literal["probabilistic", "team-draft"] = "probabilistic"

    def _reset(self) -> None:
        super()._reset()
        self._candidates = check_whole("n_candidates", self.n_candidates, 1, 10_000)
        check_choice("multileaving", self.multileaving, ("probabilistic", "team-draft"))

    def _compare(self, scores: FloatArray, k: int, rng: np.random.Generator) -> tuple[IntArray, dict[str, AnyArray]]:
        if self.multileaving == "probabilistic":
            return super()._compare(scores, k, rng)
        ranking, teams = multileaving.team_draft(scores, k, rng)
        return ranking, {"teams": teams}

    def _credits(self, memory: Mapping[str, AnyArray], clicks: BoolArray) -> FloatArray:
        if self.multileaving == "probabilistic":
            return super()._credits(memory, clicks)
        return multileaving.team_credits(memory["teams"], clicks, 1 + self.n_candidates)
