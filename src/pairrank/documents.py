"""Documents as people have them, read into rows of numbers; clicks by id, read into one yes or no per position.

What `Ranker.rank`, ``score`` and ``inspect`` accept:

* an array (n, d), or rows that make one, or a sparse array of SciPy's;
* a mapping from ids to features, each a row of numbers or a mapping by feature name;
* a list of mappings by feature name; an entry ``"id"`` that is no feature is the document's id;
* a pandas or polars frame: columns are found by name, in any order, and others are passed over; a column ``"id"``
  that is no feature holds the ids, or else the index of a pandas frame does, where it has different texts or whole
  numbers that do more than count the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from pairrank.checking import NotGiven, check_number_in, check_whole, nearest
from pairrank.errors import ClickError, FeatureError, OptionError
from pairrank.kernel.confidence import within
from pairrank.kernel.gaps import filled
from pairrank.types import BoolArray, FloatArray, Id, check_clicks

# Squares of features stay finite, and so do sums of them. Times in milliseconds since 1970 are below.
MAX_MAGNITUDE = 1e13
MAX_FEATURES = 100_000

# What `rank` accepts: see above. Frames are known by what they can do, so that neither package is imported here.
Features = ArrayLike | Mapping[Any, Any] | Sequence[Mapping[str, Any]] | Any
Missing = float | Literal["mean"] | None


COUNTED: Any = NotGiven("len(feature_names)")  # of ``n_features``


class Documents(NamedTuple):
    """The candidates of one query: ``features`` (n, d), and their ids where they have any."""

    features: FloatArray
    ids: tuple[Id, ...] | None


@dataclass(frozen=True, slots=True)
class Columns:
    """What a ranker's features are: how many, what they are called, and what a missing value means.

    >>> columns = Columns.of(COUNTED, ["price", "rating"], missing="mean")
    >>> columns.read({"a": {"rating": 4, "price": 9.5}, "b": {"price": 7}})
    Documents(features=array([[9.5, 4. ],
           [7. , 4. ]]), ids=('a', 'b'))
    """

    n: int
    names: tuple[str, ...] | None
    missing: Missing

    @classmethod
    def of(cls, n_features: int, names: Iterable[str] | None, missing: Missing = None) -> Columns:
        """Check what a ranker was told; ``n_features`` may be left out where there are names."""
        told = None if names is None else _check_names(names)
        if n_features is COUNTED and told is None:
            raise OptionError("neither n_features nor feature_names came; expected one of them")
        n = check_whole("n_features", len(told or ()) if n_features is COUNTED else n_features, 1, MAX_FEATURES)
        if told is not None and len(told) != n:
            raise OptionError(f"{len(told)} feature_names came for {n} features; expected one each")
        if missing is not None and not (isinstance(missing, str) and missing == "mean"):
            missing = check_number_in("missing", missing, -MAX_MAGNITUDE, MAX_MAGNITUDE)
        return cls(n, told, missing)

    def read(
        self,
        given: Features,
        ids: Iterable[Id] | str | None = None,
        may_lack: BoolArray | None = None,
        ends: Sequence[int] = (),
    ) -> Documents:
        """``given`` as finite float64 rows, one at least, with ids where there are any, or `FeatureError`.

        ``ids`` are the documents' ids, or the name of the column that holds them. In the features that ``may_lack``
        (d,) names, NaN is a value like any other. Of several lists all but the last end at rows ``ends``.
        """
        if ids is None and self._plain(given):
            return Documents(given, None)
        if self.names is not None and hasattr(given, "column_names") and hasattr(given, "to_pylist"):
            check_columns(given.column_names, self.names)
            given = given.to_pylist()  # an Arrow table, of which numpy would take the columns in their order
        if isinstance(given, np.ndarray):
            rows, found = as_rows(given), None
        elif isinstance(given, Mapping):
            names, single = self.names or (), len(given) > self.n == 1  # ids may well have the name of one feature
            columns = bool(names) and set(names) <= given.keys() and not single
            if columns and not any(isinstance(row, Mapping) for row in given.values()):
                raise FeatureError(f"the keys are the features, {_some(names)}; expected documents by id, or a frame")
            rows, found = self._rows(self._named(given.values())), tuple(given)
        elif hasattr(given, "to_numpy") and hasattr(given, "columns"):
            rows, found = self._frame(given, ids)
        elif isinstance(given, (list, tuple)) and given and isinstance((listed := self._named(given))[0], Mapping):
            rows, found = self._rows(listed), self._ids_in(listed, ids)
        else:
            rows, found = as_rows(given.toarray() if hasattr(given, "toarray") else given), None
        if ids is not None:
            found = _told_ids(ids, found)
        self._check_shape(rows)
        known = None if found is None else _check_ids(found, len(rows))
        full = np.concatenate([self.filled(X) for X in np.split(rows, ends) if len(X)]) if ends else self.filled(rows)
        # Row by row in memory, as frames are not: the bits of a product depend on the layout.
        return Documents(self.check(np.ascontiguousarray(full), known, may_lack), known)

    def _plain(self, given: Features) -> TypeGuard[FloatArray]:
        """Whether ``given`` is what `read` makes of all others, as most lists are: a glance, not a dozen steps."""
        return (
            type(given) is np.ndarray
            and given.dtype == np.float64
            and given.ndim == 2
            and given.shape[1] == self.n
            and len(given) > 0
            and given.flags.c_contiguous
            and within(given, MAX_MAGNITUDE)
        )

    def check(self, X: FloatArray, ids: tuple[Id, ...] | None = None, may_lack: BoolArray | None = None) -> FloatArray:
        """``X`` (n, d) if it is all finite and within bounds, or a `FeatureError` that names document and feature."""
        self._check_shape(X)
        if within(np.ascontiguousarray(X, dtype=np.float64), MAX_MAGNITUDE):
            return X
        known = np.zeros(self.n, dtype=np.bool_) if may_lack is None else may_lack
        lacking = np.isnan(X) & known
        lacking[lacking.all(axis=1)] = False  # a document of which nothing is known cannot be ranked
        with np.errstate(invalid="ignore"):
            wrong = np.argwhere(~(np.abs(X) <= MAX_MAGNITUDE) & ~lacking)
        if len(wrong) == 0:
            return X
        row, column = wrong[0].tolist()
        where = f"row {row}" if ids is None else f"document {ids[row]!r}"
        what = f"column {column}" if self.names is None else f"feature {self.names[column]!r}"
        hint = "; for missing values say what they mean, as in missing=0.0 or missing='mean'"
        if known.any():
            hint = ", or NaN in the features in which it came among the first lists"
        raise FeatureError(
            f"{where}, {what} of the features is {X[row, column]:g}; expected finite numbers from {-MAX_MAGNITUDE:g} "
            f"to {MAX_MAGNITUDE:g}{hint if np.isnan(X[row, column]) else ''}"
        )

    def _check_shape(self, X: FloatArray) -> None:
        if X.ndim != 2:
            raise FeatureError(f"features have shape {X.shape}; expected 2-D, (n_docs, {self.n})")
        n, d = X.shape
        if d != self.n and n:
            listed = "" if self.names is None else f": {_some(self.names)}"
            raise FeatureError(f"features have {d} columns; this ranker was made for {self.n}{listed}")
        if n == 0:
            raise FeatureError("features have no rows; expected one document at least")

    def filled(self, X: FloatArray) -> FloatArray:
        """``X`` with missing values replaced by what they mean."""
        if self.missing is None:
            return X
        return filled(X) if self.missing == "mean" else np.where(np.isnan(X), self.missing, X)

    # Documents by feature name.

    def _named(self, rows: Collection[Any]) -> list[Any]:
        """``rows``, those of a pandas frame as mappings: their values are found by name, not by place."""
        if self.names is None:
            return list(rows)
        return [row.to_dict() if hasattr(row, "to_dict") and not _only_counts(row.index) else row for row in rows]

    def _rows(self, rows: Sequence[Any]) -> FloatArray:
        """Rows of numbers, or mappings by feature name, as an array."""
        if not any(isinstance(row, Mapping) for row in rows):
            return as_rows(rows)
        if not all(isinstance(row, Mapping) for row in rows):
            raise FeatureError("some documents came as mappings and some as rows of numbers; expected one or the other")
        if (names := self.names) is None:
            raise FeatureError("documents came by feature name, and this ranker has none; make it with feature_names=")
        for name in names:
            if not any(name in row for row in rows):
                raise FeatureError(_no_such(name, {key for row in rows for key in row}, "document has the feature"))
        return as_rows([[row.get(name) for name in names] for row in rows], names)

    def _ids_in(self, rows: Sequence[Mapping[str, Any]], ids: Iterable[Id] | str | None) -> tuple[Id, ...] | None:
        key = ids if isinstance(ids, str) else "id"
        if (self.names and key in self.names) or not any(key in row for row in rows):
            return None
        lacking = next((place for place, row in enumerate(rows) if key not in row), None)
        if lacking is not None:
            raise FeatureError(f"document {lacking} (counted from 0) has no {key!r}, although others have")
        return tuple(row[key] for row in rows)

    def _frame(self, frame: Any, ids: Iterable[Id] | str | None) -> tuple[FloatArray, tuple[Id, ...] | None]:
        """A pandas or polars frame: its features, and its column or index of ids."""
        present, key = list(frame.columns), ids if isinstance(ids, str) else "id"
        has_ids = key in present and not (self.names and key in self.names)
        names = self.names if self.names is not None else [name for name in present if not (has_ids and name == key)]
        check_columns(present, names)
        features = _numbers(frame, present, list(names))
        if has_ids:
            return features, tuple(frame[key].to_list())
        index = getattr(frame, "index", None)
        if index is None or isinstance(ids, str) or _only_counts(index):
            return features, None
        try:
            return features, _check_ids(tuple(index.to_list()), len(features))
        except FeatureError:  # dates, several levels, some twice: an index that nobody meant as ids
            return features, None


def clicked(clicks: Any, n_shown: int, ids: tuple[Id, ...] | None = None) -> BoolArray:
    """Clicks on a list of ``n_shown`` documents as a bool array: one yes or no per position, or the ids clicked.

    >>> clicked(["b"], 3, ("a", "b", "c"))
    array([False,  True, False])
    """
    if type(clicks) is np.ndarray and clicks.dtype == np.bool_ and clicks.shape == (n_shown,):
        return clicks.copy()
    if ids is not None and hasattr(clicks, "loc") and not _only_counts(clicks.index) and {*clicks.index} == {*ids}:
        clicks = clicks.loc[list(ids)]  # of pandas, by id in any order
    if type(clicks) is not np.ndarray:
        if isinstance(clicks, (str, Mapping)) or not isinstance(clicks, Iterable) or np.ma.is_masked(clicks):
            raise ClickError(f"clicks are {clicks!r}; expected a list of ids, or one yes or no per shown position")
        clicks = list(clicks) if isinstance(clicks, (Iterator, ValuesView)) else clicks
        clicks = clicks.to_pylist() if hasattr(clicks, "to_pylist") else clicks  # Arrow's have scalars of their own
    try:
        array = np.empty(0, dtype=object) if isinstance(clicks, (set, frozenset)) else np.asarray(clicks)
    except ValueError:
        raise ClickError("clicks are rows of different lengths; expected one yes or no per shown position") from None
    kind = array.dtype.kind
    if kind == "O" and array.size and all(isinstance(click, bool) for click in array.flat):
        array, kind = array.astype(np.bool_), "b"  # a column of a frame that once had gaps
    flags = array.shape == (n_shown,) and (kind == "b" or (kind in "iuf" and bool(np.isin(array, (0, 1)).all())))
    if ids is None or flags:
        if kind in "USO":
            raise ClickError("clicks came by id, and the documents had none when they were ranked; see rank(ids=)")
        if ids is not None and kind in "iu" and not {0, 1}.isdisjoint(ids):
            raise ClickError("clicks of 0 and 1 may be ids here or one yes or no per position; give a set, or bools")
        return check_clicks(array, n_shown)
    if kind not in "USOiu" and array.size:
        return check_clicks(array, n_shown)
    place = {id_: position for position, id_ in enumerate(ids)}
    result = np.zeros(n_shown, dtype=np.bool_)
    for id_ in clicks:
        plain = id_.item() if isinstance(id_, np.generic) else id_
        if not isinstance(plain, (str, int)) or plain not in place:
            raise ClickError(f"clicks name {plain!r}, which the impression did not show; it showed {_some(ids)}")
        result[place[plain]] = True
    return result


def numbers(values: ArrayLike) -> FloatArray:
    """``values`` as float64; `FeatureError` for dates and complex numbers, of which numpy would make some number.

    What is masked is NaN.
    """
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    array = np.asarray(values)
    if array.dtype.kind == "O":
        if any(isinstance(value, np.datetime64 | np.timedelta64) for value in array.flat):
            raise FeatureError("features hold dates or spans of time; expected numbers, such as the days since a date")
        array = np.where(_is_na(array), np.nan, array)
    if array.dtype.kind in "cmM":
        raise FeatureError(f"features are of type {array.dtype}; expected numbers, such as the days since a date")
    return array.astype(np.float64, copy=False)


# pandas' own missing value, which no float can hold: mappings made from its frames have it.
_is_na: Any = np.frompyfunc(lambda value: type(value).__name__ == "NAType", 1, 1)


def as_rows(rows: Any, names: Sequence[str] | None = None) -> FloatArray:
    """As `numbers`; `FeatureError` for whatever cannot be read."""
    try:
        return numbers(rows)
    except FeatureError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise FeatureError(_culprit(rows, names)) from None


def _culprit(rows: Any, names: Sequence[str] | None) -> str:
    """Which value is no number, where that can be told."""
    for i, row in enumerate(rows if isinstance(rows, (list, tuple)) else ()):
        for j, value in enumerate(row if isinstance(row, (list, tuple)) else ()):
            try:
                float("nan") if value is None else float(value)
            except (TypeError, ValueError, OverflowError):
                what = f"column {j}" if names is None else f"feature {names[j]!r}"
                return f"row {i}, {what} of the features is {value!r}; expected a number"
    if not isinstance(rows, (list, tuple, np.ndarray)):
        hint = ", which has to be collected first" if hasattr(rows, "collect") else ""
        return f"features are a {type(rows).__name__}{hint}; expected an array, mappings, or a pandas or polars frame"
    return "features are not numbers in rows of equal length; expected a 2-D array"


def _numbers(frame: Any, present: list[str], names: list[str]) -> FloatArray:
    """The columns ``names`` of a frame with the columns ``present``, (n, d); what is missing is NaN."""
    na = {"dtype": np.float64, "na_value": np.nan} if hasattr(frame, "iloc") else {}
    place, wanted = {name: n for n, name in enumerate(present)}, set(names)
    for name, kind in zip(present, frame.dtypes, strict=True):  # as in `numbers`: pandas' kinds, polars' own
        if name in wanted and (getattr(kind, "kind", "f") in "cmM" or getattr(kind, "is_temporal", bool)()):
            raise FeatureError(f"column {name!r} is of type {kind}; expected numbers, such as the days since a date")
    try:
        if len(place) == len(names):  # nothing but features: a frame's own selection costs more than all the rest
            return np.asarray(frame.to_numpy(**na), dtype=np.float64)[:, [place[name] for name in names]]
        return np.asarray(frame[names].to_numpy(**na), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # one by one: a column of objects may still hold numbers
        columns = []
        for name in names:
            try:
                (_,) = (column := np.asarray(frame[name].to_numpy(**na), dtype=np.float64)).shape
            except (TypeError, ValueError, OverflowError):  # no numbers, or several in a row
                raise FeatureError(f"column {name!r} of the frame is not all numbers") from None
            columns.append(column)
        return np.stack(columns, axis=1)


def check_columns(present: Iterable[str], names: Iterable[str]) -> None:
    """Refuse a frame that has not each of its columns ``names`` once."""
    counts = Counter(present)
    for name in names:
        if counts[name] != 1:
            twice = f"the frame has {counts[name]} columns {name!r}; expected one"
            raise FeatureError(twice if counts[name] else _no_such(name, counts, "column is called"))


def _only_counts(index: Any) -> bool:
    """Whether a pandas index is 0, 1, 2, … as it is when nobody has set one."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _check_names(names: Iterable[str]) -> tuple[str, ...]:
    # A set has no order.
    told = () if isinstance(names, (str, set, frozenset)) or not isinstance(names, Iterable) else tuple(names)
    if not told or not all(isinstance(name, str) and name for name in told):
        raise OptionError(f"feature_names is {names!r}; expected texts, one per feature, none of them empty")
    if len(set(told)) != len(told):
        raise OptionError(f"feature_names has {next(n for n in told if told.count(n) > 1)!r} twice; expected each once")
    return told


def _check_ids(ids: tuple[Any, ...], n: int) -> tuple[Id, ...]:
    plain = tuple(id_.item() if isinstance(id_, np.generic) else id_ for id_ in ids)
    if len(plain) != n:
        raise FeatureError(f"{len(plain)} ids came for {n} documents; expected one each")
    if len(set(map(type, plain))) > 1 or not isinstance(plain[0], (str, int)) or isinstance(plain[0], bool):
        odd = max(plain, key=lambda id_: (type(id_) is not str) + (type(id_) not in (str, int)))
        raise FeatureError(f"{odd!r} came as an id; expected ids that are all texts or all whole numbers")
    if len(set(plain)) != n:
        seen: set[Id] = set()
        twice = next(id_ for id_ in plain if id_ in seen or seen.add(id_))  # type: ignore[func-returns-value]
        raise FeatureError(f"two documents have the id {twice!r}; expected ids that are all different")
    return plain


def _told_ids(ids: Any, found: tuple[Id, ...] | None) -> tuple[Id, ...]:
    """The documents' ids, where ``ids`` are these or the name of the column that they were ``found`` in."""
    if isinstance(ids, str):
        if found is None:
            raise FeatureError(f"ids is the text {ids!r}, and the documents have no such column; expected ids")
        return found
    if not isinstance(ids, Iterable) or isinstance(ids, (bytes, set, frozenset)):  # a set has no order
        raise FeatureError(f"ids are {ids!r}; expected one text or whole number per document, or a column's name")
    return tuple(ids.to_pylist() if hasattr(ids, "to_pylist") else ids)  # Arrow's have scalars of their own


def _no_such(name: str, present: Iterable[Any], what: str) -> str:
    return f"no {what} {name!r}{nearest(name, map(str, present))}"


def _some(things: Sequence[Any]) -> str:
    return ", ".join(map(str, things[:10])) + (", …" if len(things) > 10 else "")
