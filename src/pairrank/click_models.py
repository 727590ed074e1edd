"""Simulated users: grades of a shown list and coins in, clicks out.

Users are frozen values with a short text that parses and prints: ``navigational``, ``position(eta=0.5)``,
``informational(stop=anywhere)``, ``file:my-users.toml``. They hold no state and draw nothing: the caller passes two
uniform numbers per shown document, so that rankers can be compared under the same luck.

All of them take two more options, for simulated runs: ``perfect(drift=2500)`` want something else after 2,500 rounds,
and among ``informational(hostile=0.1)`` every tenth is an attacker.
"""

from __future__ import annotations

import json
import os
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pairrank import archive, short_text
from pairrank.checking import check_choice, check_number_in, check_whole
from pairrank.errors import DataError, GradeError, InputError, OptionError, UnknownNameError
from pairrank.types import BoolArray, FloatArray, IntArray

STOPS = ("click", "anywhere")
_SCALES = (2, 3, 5)  # the numbers of grades that the customary tables are published for

# Click probability by grade; stop probability by grade. The three-grade rows are Table 1 of the paper.
_TABLES: Mapping[str, Mapping[int, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "perfect": {
        2: ((0.0, 1.0), (0.0,) * 2),
        3: ((0.0, 0.5, 1.0), (0.0,) * 3),
        5: ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0,) * 5),
    },
    "navigational": {
        2: ((0.05, 0.95), (0.2, 0.9)),
        3: ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
        5: ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
    },
    "informational": {
        2: ((0.4, 0.9), (0.1, 0.5)),
        3: ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
        5: ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
    },
    "almost-random": {
        2: ((0.4, 0.6), (0.5,) * 2),
        3: ((0.4, 0.5, 0.6), (0.5,) * 3),
        5: ((0.4, 0.45, 0.5, 0.55, 0.6), (0.5,) * 5),
    },
}


class Users(ABC):
    """Users who look at a list from the top and click.

    >>> users = make("navigational", n_grades=3)
    >>> coins = np.random.default_rng(seed=1).random((3, 2))
    >>> users.clicks(np.array([2, 0, 1]), coins)
    array([ True, False,  True])
    """

    @property
    @abstractmethod
    def n_grades(self) -> int:
        """Grades 0 to ``n_grades - 1`` are known; any other is a `GradeError`."""

    @abstractmethod
    def _clicks(self, grades: IntArray, coins: FloatArray) -> BoolArray:
        """`clicks` for grades that were checked."""

    def clicks(self, grades: IntArray, coins: FloatArray) -> BoolArray:
        """Which documents of a shown list are clicked.

        Parameters
        ----------
        grades : (k,) int, relevance of the shown documents, top first.
        coins : (k, 2) uniforms in [0, 1), two for each document: column 0 decides whether it is clicked, column 1
            whether the user stops there (for position-based users: whether it is looked at).

        Returns
        -------
        (k,) bool. A document is clicked with probability p when its coin is below p.
        """
        if len(grades) and not 0 <= grades.min() <= grades.max() < self.n_grades:
            raise GradeError(
                f"the list holds grades {grades.min()} to {grades.max()}; the users' table has 0 to {self.n_grades - 1}"
            )
        return self._clicks(grades, coins)


@dataclass(frozen=True)
class DependentClicks(Users):
    """The dependent click model of Guo et al. (WSDM 2009).

    The user examines from the top, clicks a document of grade g with probability ``click[g]``, and after a click
    stops with probability ``stop_after[g]``. With ``stop="anywhere"`` the stop coin is tossed at every examined
    document, clicked or not, as the authors' program does.

    >>> users = DependentClicks("hasty", click=(0.1, 0.9), stop_after=(0.0, 0.7))
    >>> users.clicks(np.array([0, 1, 1]), coins=np.full((3, 2), 0.5))  # the second, and then they stop
    array([False,  True, False])
    """

    name: str
    click: tuple[float, ...]
    stop_after: tuple[float, ...]
    stop: str = "click"
    named: bool = field(default=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_choice("stop", self.stop, STOPS)
        _check_probabilities("click", self.click)
        _check_probabilities("stop_after", self.stop_after)
        if len(self.click) != len(self.stop_after):
            raise OptionError(
                f"the table of {self.name!r} has {len(self.click)} click and {len(self.stop_after)} stops; "
                "expected one of each per grade"
            )

    @property
    def n_grades(self) -> int:  # noqa: D102
        return len(self.click)

    def _clicks(self, grades: IntArray, coins: FloatArray) -> BoolArray:
        click, stop_after = self._arrays
        clicked: BoolArray = coins[:, 0] < click[grades]
        stopped = coins[:, 1] < stop_after[grades]
        if self.stop == "click":
            stopped &= clicked
        if stopped.any():
            clicked[stopped.argmax() + 1 :] = False
        return clicked

    @cached_property
    def _arrays(self) -> tuple[FloatArray, FloatArray]:
        return np.array(self.click), np.array(self.stop_after)

    def __str__(self) -> str:
        options: dict[str, Any] = {} if self.stop == "click" else {"stop": self.stop}
        if self.named:
            return _spell(self.name, options)
        return _spell("table", {"name": self.name, "click": self.click, "stop_after": self.stop_after, **options})


@dataclass(frozen=True)
class _Attracted(Users):
    """Users to whom a document of grade g looks good with probability ε + (1 - ε)(2^g - 1)/(2^g_max - 1).

    With ``table`` the chances are those of a customary table instead, ``position(table=informational)``.
    """

    name: ClassVar[str]

    grades: int
    noise: float = 0.1
    table: str = ""

    def __post_init__(self) -> None:
        check_number_in("noise", self.noise, 0.0, 1.0)
        if self.table:
            check_choice("table", self.table, tuple(_TABLES))
            _table(self.table, self.grades)
        if self.grades < 2:
            raise OptionError(f"there are {self.grades} grades; expected 2 at least")

    @property
    def n_grades(self) -> int:
        return self.grades

    @cached_property
    def _attraction(self) -> FloatArray:
        if self.table:
            return np.array(_table(self.table, self.grades)[0])
        gain = np.exp2(np.arange(self.grades)) - 1
        attraction: FloatArray = self.noise + (1 - self.noise) * gain / gain[-1]
        return attraction

    def __str__(self) -> str:
        return self._spelt()

    def _spelt(self, **options: Any) -> str:
        noise = {} if self.noise == 0.1 else {"noise": self.noise}
        return _spell(self.name, {**options, **noise, **({"table": self.table} if self.table else {})})


@dataclass(frozen=True)
class Position(_Attracted):
    """Position-based users: rank r is looked at with probability (1/r)^η, whatever stands there.

    Joachims et al. (WSDM 2017). A document is clicked when it is looked at and looks good. With ``trust`` the upper
    ones look better than they are, by trust/r (trust bias, Agarwal et al., WWW 2019).

    >>> make("position(eta=0.5)", n_grades=5) == Position(5, eta=0.5)
    True
    >>> Position(2, eta=1.0).clicks(np.array([1, 1, 1]), coins=np.full((3, 2), 0.4))  # not looked at: the third
    array([ True,  True, False])
    """

    eta: float = 1.0
    trust: float = 0.0
    name: ClassVar[str] = "position"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number_in("eta", self.eta, 0.0, 100.0)
        check_number_in("trust", self.trust, 0.0, 1.0)

    def _clicks(self, grades: IntArray, coins: FloatArray) -> BoolArray:
        rank = np.arange(1.0, len(grades) + 1)
        examined = coins[:, 1] < rank**-self.eta
        return examined & (coins[:, 0] < self._attraction[grades] + self.trust / rank)

    def __str__(self) -> str:
        return self._spelt(eta=self.eta, **({"trust": self.trust} if self.trust else {}))


@dataclass(frozen=True)
class Cascade(_Attracted):
    """Cascade users (Craswell et al., WSDM 2008): from the top to the first document that looks good, no further.

    >>> Cascade(2).clicks(np.array([0, 1, 1]), coins=np.full((3, 2), 0.5))
    array([False,  True, False])
    """

    name: ClassVar[str] = "cascade"

    def _clicks(self, grades: IntArray, coins: FloatArray) -> BoolArray:
        clicked: BoolArray = coins[:, 0] < self._attraction[grades]
        if clicked.any():
            clicked[clicked.argmax() + 1 :] = False
        return clicked


@dataclass(frozen=True)
class Mixed(_Attracted):
    """Users of three kinds, a third each: ``position(eta=1)``, ``position(eta=0.5, trust=0.3)`` and ``cascade``.

    No single model of what was looked at is right for them. Which of them comes is told by the last bits of the first
    document's coin, on which no click depends.

    >>> Mixed(2).clicks(np.array([1, 1, 1]), coins=np.full((3, 2), 0.5))  # one of the first kind: looked at the first
    array([ True, False, False])
    """

    name: ClassVar[str] = "mixed"

    @cached_property
    def _kinds(self) -> tuple[Users, ...]:
        shared = self.grades, self.noise, self.table
        return Position(*shared, eta=1.0), Position(*shared, eta=0.5, trust=0.3), Cascade(*shared)

    def _clicks(self, grades: IntArray, coins: FloatArray) -> BoolArray:
        who = int(coins[0, 0] * 2**20 % 1 * len(self._kinds)) if len(coins) else 0
        return self._kinds[who]._clicks(grades, coins)


_ATTRACTED: Mapping[str, type[_Attracted]] = {kind.name: kind for kind in (Position, Cascade, Mixed)}


@dataclass(frozen=True)
class Unruly(Users):
    """Users of whom some attack, or who come to want something else; what they click otherwise is up to ``users``.

    Both are a matter of rounds, so the simulator sees to them: a call of `clicks` is answered by ``users``.

    Attributes
    ----------
    users : who clicks in an ordinary round. attackers : who does in an attack.
    drift : after this many rounds the intent changes; None: never.
    hostile : the probability that a round's user is an attacker.

    >>> users = make("perfect(drift=2500, hostile=0.1)", n_grades=5)
    >>> users.drift, users.hostile
    (2500, 0.1)
    """

    users: Users
    attackers: Users
    drift: int | None = None
    hostile: float = 0.0

    def __post_init__(self) -> None:
        check_number_in("hostile", self.hostile, 0.0, 1.0)
        if self.drift is not None:
            check_whole("drift", self.drift, 1)

    @property
    def n_grades(self) -> int:  # noqa: D102
        return self.users.n_grades

    def _clicks(self, grades: IntArray, coins: FloatArray) -> BoolArray:
        return self.users.clicks(grades, coins)

    def __str__(self) -> str:
        options: dict[str, Any] = {} if self.drift is None else {"drift": self.drift}
        if self.hostile:
            options["hostile"] = self.hostile
        name, _, given = str(self.users).partition("(")
        return _spell(name, options) if not given else f"{name}({given[:-1]}, {_spell('', options)[1:]}"


def names() -> list[str]:
    """The users that have a name, in alphabetical order."""
    return sorted([*_TABLES, *_ATTRACTED])


def make(text: str | os.PathLike[str], *, n_grades: int, stop: str = "click") -> Users:
    """Users by their short text, for data of ``n_grades`` grades; ``str()`` of them gives a text that makes them again.

    ``text`` is a name with or without options, ``file:PATH``, or the path of a ``.json`` or ``.toml`` file that holds
    ``click`` and ``stop_after`` (a probability per grade) and perhaps ``name``, ``stop``, ``drift`` and ``hostile``.
    ``stop`` is what counts for tables that do not say it themselves; it means nothing to position-based, cascade
    and mixed users.
    """
    check_choice("stop", stop, STOPS)
    path = _path(text)
    spelt = ("table", _read(path)) if path is not None else short_text.parse(str(text))
    if spelt is None:
        raise UnknownNameError(f"cannot read the users {text!r}; expected a name such as {names()[-2]} or file:PATH")
    name, options = spelt
    try:
        users = _unruly(name, options, n_grades, stop)
    except (TypeError, InputError) as problem:
        kind = type(problem) if isinstance(problem, InputError) else OptionError
        raise kind(f"users {str(text)!r}: {problem}") from None
    if users.n_grades < n_grades:
        raise GradeError(
            f"users {str(text)!r}: the table has {users.n_grades} grades and the data have {n_grades}; "
            "it needs one entry per grade"
        )
    return users


def canonical(text: str | os.PathLike[str], *, stop: str = "click") -> str:
    """The text as the users themselves print it: options in one order, tables of files written out."""
    return str(make(text, n_grades=_SCALES[0], stop=stop))


def _unruly(name: str, options: dict[str, Any], n_grades: int, stop: str) -> Users:
    """The users with what they have in the way of drift and attacks; none of it leaves them as they are."""
    own = {key: options.pop(key) for key in ("drift", "hostile") if key in options}
    users = _build(name, options, n_grades, stop)
    unruly = Unruly(users, _attackers(n_grades) if own.get("hostile") else users, **own)
    return users if unruly.drift is None and not unruly.hostile else unruly


def _attackers(n_grades: int) -> Users:
    """Users who want the worst on top: they click as perfect users would if grade g were g_max - g.

    On a scale without a published table the chance of a click falls evenly with the grade.
    """
    even = tuple(np.linspace(0.0, 1.0, n_grades).tolist())
    click, _ = _TABLES["perfect"].get(n_grades, (even, even))
    return DependentClicks("attackers", click[::-1], (0.0,) * n_grades)


def _build(name: str, options: dict[str, Any], n_grades: int, stop: str) -> Users:
    if name in _ATTRACTED:
        kind = _ATTRACTED[name]
        return kind(n_grades, **_only(options, *sorted(each.name for each in fields(kind) if each.name != "grades")))
    if name == "table":
        given = {"name": "table", "stop": stop, **_only(options, "name", "click", "stop_after", "stop")}
        if not (isinstance(given.get("click"), Sequence) and isinstance(given.get("stop_after"), Sequence)):
            raise OptionError("expected `click` and `stop_after`, each a list with a probability per grade")
        click, stop_after = tuple(given["click"]), tuple(given["stop_after"])
        return DependentClicks(given["name"], click, stop_after, given["stop"], named=False)
    if name not in _TABLES:
        raise UnknownNameError(f"nobody is called {name!r}; there are: {', '.join(names())}, file:PATH")
    click, stop_after = _table(name, n_grades)
    return DependentClicks(name, click, stop_after, **{"stop": stop, **_only(options, "stop")})


def _table(name: str, n_grades: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if n_grades not in _TABLES[name]:
        raise GradeError(
            f"there are tables for {', '.join(map(str, _SCALES))} grades and the data have {n_grades}; "
            "write a table of your own and give it as file:PATH"
        )
    return _TABLES[name][n_grades]


def _only(options: Mapping[str, Any], *allowed: str) -> dict[str, Any]:
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise OptionError(f"no option is called {unknown[0]!r}; there are: {', '.join(allowed)}, drift, hostile")
    return dict(options)


def _path(text: str | os.PathLike[str]) -> Path | None:
    if isinstance(text, str):
        if text.startswith("file:"):
            return Path(text.removeprefix("file:"))
        if "(" in text or not text.endswith((".json", ".toml")):
            return None
    return Path(text)


def _read(path: Path) -> dict[str, Any]:
    text = archive.read_file(path)
    try:
        table = tomllib.loads(text.decode()) if path.suffix == ".toml" else json.loads(text)
    except ValueError as problem:
        raise DataError(f"{path} cannot be read as {path.suffix[1:] or 'json'}: {problem}") from None
    if not isinstance(table, dict):
        raise DataError(f"{path} holds a {type(table).__name__}; expected a table with `click` and `stop_after`")
    return {"name": path.stem, **table}


def _spell(name: str, options: Mapping[str, Any]) -> str:
    return short_text.spell(name, {key: _plain(value) for key, value in options.items()})


def _plain(value: Any) -> Any:
    """1 for 1.0: options are printed as one would write them."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_probabilities(name: str, values: tuple[object, ...]) -> None:
    if len(values) < 2:
        raise OptionError(f"{name} has {len(values)} values; expected one per grade, two at least")
    for value in values:
        check_number_in(name, value, 0.0, 1.0)
