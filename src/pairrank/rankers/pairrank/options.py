"""PairRank's options: what they mean, what they may be, and the presets that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pairrank.checking import NotGiven, check_choice, check_number_in
from pairrank.errors import OptionError
from pairrank.features.spread import STRENGTH
from pairrank.rankers.pairwise import PairKind, PairwiseRanker
from pairrank.types import Float32Array

_BEST: Mapping[str, Any] = {
    "exploration": "conservative",
    "pairs": "shown",
    "offsets": True,
    "width": "score",
    "alpha": 0.1,
    "z": 0.2,
    "lam": "3 per feature",
    "units": "spread",
    "loss": "sum",
    "Q": None,
    "refine": True,
    "half_life": None,
    "delta1": 0.05,
    "c_mu": 0.25,
    "tolerance": 0.01,
}
_PUBLISHED = {**_BEST, "offsets": False, "width": "probability", "lam": 0.1, "units": "range"}
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "best": _BEST,
        "paper": {**_PUBLISHED, "pairs": "adjacent", "refine": False},
        "authors": {**_PUBLISHED, "pairs": "matched", "loss": "mean"},
    }
)
CHOICES: Mapping[str, tuple[str, ...]] = {
    "exploration": ("conservative", "random"),
    "width": ("probability", "score"),
    "units": ("spread", "range"),
    "loss": ("sum", "mean"),
}
# Lowest and highest value; the lowest itself is out where the third says so.
RANGES: Mapping[str, tuple[float, float, bool]] = {
    "z": (0.0, 1e9, False),
    "delta1": (0.0, 1.0, True),
    "c_mu": (0.0, 0.25, True),
    "tolerance": (0.0, 1.0, False),
    "Q": (0.0, 1e9, True),
    "half_life": (1.0, 1e9, False),
}


_PRESET: Any = NotGiven("preset")


@dataclass(eq=False, kw_only=True)
class PairRankOptions(PairwiseRanker):
    """What `PairRank` can be told; after it is made, every option holds the value that acts."""

    preset: Literal["best", "paper", "authors"] = field(default="best", repr=False)
    exploration: Literal["conservative", "random"] = _PRESET
    pairs: PairKind = _PRESET
    offsets: bool = _PRESET
    width: Literal["probability", "score"] = _PRESET
    alpha: float | Literal["theory"] = _PRESET
    z: float = _PRESET
    lam: float = _PRESET
    units: Literal["spread", "range"] = _PRESET
    loss: Literal["sum", "mean"] = _PRESET
    Q: float | None = _PRESET
    refine: bool = _PRESET
    half_life: float | None = _PRESET
    delta1: float = _PRESET
    c_mu: float = _PRESET
    tolerance: float = _PRESET

    name: ClassVar[str] = "pairrank"
    NO_SETTINGS: ClassVar[tuple[str, ...]] = (*PairwiseRanker.NO_SETTINGS, "preset")  # once made, nothing depends on it
    _inverse32: Float32Array | None = field(default=None, init=False, repr=False)  # H⁻¹ or M⁻¹ as `rank` uses it

    def _fill_in(self) -> None:
        check_choice("preset", self.preset, tuple(PRESETS))
        for name, value in PRESETS[self.preset].items():
            if getattr(self, name) is _PRESET:
                setattr(self, name, STRENGTH * self.n_features if value == "3 per feature" else value)

    @property
    def _unit_kind(self) -> str:
        return self.units

    def _check_options(self) -> None:
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name, (low, high, open_low) in RANGES.items():
            if getattr(self, name) is not None or name not in ("Q", "half_life"):
                check_number_in(name, getattr(self, name), low, high, open_low=open_low)
        if not isinstance(self.alpha, str) or self.alpha != "theory":
            check_number_in("alpha", self.alpha, 0.0, 1e9)
        for name in ("refine", "offsets"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} is {getattr(self, name)!r}; expected True or False")
        if self.half_life is not None and (self.loss == "mean" or self.width == "probability"):
            raise OptionError('half_life is for loss="sum" and width="score": the paper\'s M forgets nothing')
        if self.offsets and (self.loss == "mean" or self.Q is not None):
            raise OptionError('offsets are for loss="sum" without Q; leave them out')
