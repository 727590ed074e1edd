"""Checks of options: what came, what was expected. Every `OptionError` about a number or a choice is worded here; and
whether an extra is installed."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairrank.errors import CutoffError, InputError, MissingExtraError, OptionError, PairRankError


class NotGiven:
    """The value of an option that is not given, written as what stands for it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def check_number_in(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> float:
    """``value`` as a float in [low, high] (``open_low``: low itself is out), or `OptionError`."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise OptionError(f"{name} is {value!r}; expected a number")
    number = value.item() if isinstance(value, np.generic) else value
    if not low <= number <= high or (open_low and number == low):
        raise OptionError(
            f"{name} is {value!r}; expected a number {'above' if open_low else 'from'} {low:g} to {high:g}"
        )
    return float(number)


def check_numbers(name: str, values: Any, error: type[InputError] = OptionError) -> NDArray[np.float64]:
    """``values`` as an array of float64, a copy, or ``error``; complex numbers and dates are none."""
    try:
        if np.asarray(values).dtype.kind in "cmM":
            raise ValueError
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise error(f"{name} cannot be read as numbers; expected rows of equal length") from None


def check_lam(lam: object) -> float:
    """λ of a penalty ½λ‖θ‖²: less than 1e-12 is lost beside one list, and H or M has no inverse then."""
    return check_number_in("lam", lam, 1e-12, 1e12)


def check_whole(name: str, value: object, low: int, high: int | None = None) -> int:
    """``value`` as a whole number from ``low`` (up to ``high``), or `OptionError`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, np.integer))
        or not low <= value <= (value if high is None else high)
    ):
        bounds = f"from {low} to {high}" if high is not None else f"{low} or more"
        raise OptionError(f"{name} is {value!r}; expected a whole number, {bounds}")
    return int(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that nothing has: the one that is meant perhaps, and all that there are."""
    from difflib import get_close_matches  # only when something is wrong

    names = sorted(known)
    close = get_close_matches(name.lower(), names, n=1)
    listed = f"there are: {', '.join(names)}"
    return f"; did you mean {close[0]!r}? ({listed})" if close else f"; {listed}"


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """``value`` if it is one of ``choices``, or `OptionError`."""
    known = tuple(choices)
    if not isinstance(value, str) or value not in known:
        raise OptionError(f"{name} is {value!r}; expected one of {', '.join(known)}")
    return str(value)


def check_positions(name: str, value: int, low: int, high: int) -> int:
    """A number of positions from ``low`` on, cut at ``high``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        raise CutoffError(f"{name} is {value!r}; expected a whole number of positions, {low} or more")
    return min(int(value), high)


def import_extra(module: str, extra: str, package: str = "") -> Any:
    """A module that an extra brings; where ``package`` (by default its first name) is missing, what installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise MissingExtraError(package or module.partition(".")[0], extra) from None
    except ImportError as problem:  # for want of memory, say, or of a library of the system
        raise PairRankError(f"{module} is installed and cannot be imported: {' '.join(str(problem).split())}") from None
