"""32-bit numbers, as search engines keep them, in the shortest decimals that read back to the same bits.

Written in this way, export, import, export gives the same text.
"""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from pairrank.errors import ExportError
from pairrank.export import strict_json
from pairrank.export.model import LinearModel, MinMax, QueryMinMax, Standard


def shortest(value: float, what: str) -> float:
    """The number with the fewest decimals that reads, in 32 bits, as ``value`` rounded to 32 bits."""
    with np.errstate(over="ignore", under="ignore"):
        short = np.float32(value)
    if not np.isfinite(short):
        raise ExportError(f"{what} is {value!r}, too large for the 32-bit numbers of this format: rescale the feature")
    return float(str(short))


def weights(model: LinearModel) -> dict[str, float]:
    """By feature, its weight as the `shortest` number."""
    return {feature: shortest(weight, f"the weight of {feature!r}") for feature, weight, _ in model.rows()}


def read(value: object, what: str) -> float:
    """The 32-bit number that an engine would read in ``value``, widened."""
    return float(np.float32(strict_json.number(value, what)))


def normaliser(entry: MinMax | Standard | QueryMinMax, feature: str) -> MinMax | Standard:
    """``entry`` with both numbers made `shortest`; refused where 32 bits leave no range or no deviation."""
    if isinstance(entry, QueryMinMax):
        raise ExportError(f"{feature!r} is normalised within the query, for which this format has no place")
    short = [shortest(v, f"the {name.replace('_', ' ')} of {feature!r}") for name, v in asdict(entry).items()]
    try:
        return type(entry)(*short)
    except ExportError:
        raise ExportError(
            f"{feature!r} has no range in 32 bits, with {entry}; shift or rescale the feature, or leave it out"
        ) from None
