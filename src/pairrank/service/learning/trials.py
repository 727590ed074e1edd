"""What a ranker's log has shown of its experiments: counted by the learner, entry by entry, and by every replay.

The state of an experiment is a function of the entries that name it, in their order, and goes to JSON and back without
losing a bit. So it is the same after `kill -9` anywhere, on any database.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import Entry, ExperimentRow, RankerRow
from pairrank.trials import interleaving
from pairrank.trials.experiment import Definition, Tally

# A point of the course is kept after so many more lists than at the one before: some two hundred for a million lists.
STEP = 1.06


def value(clicks: bytes) -> float:
    """Of a list, in [0, 1]: the reciprocal rank of its first click, 0 without one.

    It told two rankings apart with fewer lists than the number of clicks or having any; see docs/guide/launch.md.
    """
    first = clicks.find(1)
    return 0.0 if first < 0 else 1.0 / (1 + first)


@dataclass(frozen=True, slots=True)
class Course:
    """An experiment's tally and how it came there.

    Attributes
    ----------
    points : of some lists in the course: (when it was logged, lists, effect, low, high).
    first, last : when the first and the last list that counts were logged.
    """

    tally: Tally
    points: tuple[tuple[float, int, float, float, float], ...] = ()
    first: float = 0.0
    last: float = 0.0

    def after(self, entry: Entry) -> Course:
        """The course with one more list of the log; one that does not count leaves it as it is."""
        if entry.clicks is None or entry.trial is None or entry.counts == 0:
            return self
        trial, clicked = json.loads(entry.trial), any(entry.clicks)
        if self.tally.definition.kind == "split":
            tally = self.tally.after({"click": value(entry.clicks)}, clicked=clicked, is_a=trial["arm"] == "a")
        else:
            credit = np.array(trial["credit"], dtype=np.float64)
            told = interleaving.outcome(credit, np.frombuffer(entry.clicks, dtype=np.bool_))
            tally = self.tally.after({"click": told}, clicked=clicked)
        points = self.points
        if not points or tally.lists >= max(points[-1][1] + 1, STEP * points[-1][1]):
            low, high = tally.main.interval
            points = (*points, (entry.created, tally.lists, tally.main.effect, low, high))
        first = self.first if self.tally.lists else entry.created
        return replace(self, tally=tally, points=points, first=first, last=entry.created)

    def to_json(self) -> str:
        """As text; equal courses give equal texts."""
        values = {"tally": self.tally.to_json(), "points": self.points, "first": self.first, "last": self.last}
        return json.dumps(values, sort_keys=True)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Course:
        """The course that `to_json` wrote."""
        points = tuple((at, n, effect, low, high) for at, n, effect, low, high in values["points"])
        return cls(Tally.from_json(values["tally"]), points, values["first"], values["last"])


def course_of(row: ExperimentRow) -> Course:
    """An experiment's course as it was last published."""
    return Course(Tally.start(row.definition)) if row.state is None else Course.from_json(row.state)


@dataclass(slots=True)
class Trials:
    """The courses of one ranker's experiments; `apply` takes the entries of its log in order.

    changed : experiments that have moved since this was last emptied.
    """

    definitions: Callable[[], Mapping[int, Definition]]
    courses: dict[int, Course] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)

    @classmethod
    def restore(cls, store: SqlStore, ranker_id: int) -> Trials:
        """As published with the ranker's model."""
        texts = store.trial_states(ranker_id)
        courses = {key: Course.from_json(json.loads(text)) for key, text in texts.items()}
        return cls(_definitions(store, ranker_id), courses)

    def apply(self, entry: Entry) -> None:
        """Count one entry, if it is of an experiment."""
        key = entry.experiment_id
        if key is None:
            return
        course = self.courses.get(key)
        if course is None:
            course = Course(Tally.start(self.definitions()[key]))
        self.courses[key] = course.after(entry)
        self.changed.add(key)

    def texts(self, keys: Iterable[int]) -> dict[int, str]:
        """These states, as they are stored."""
        return {key: self.courses[key].to_json() for key in keys}


def replayed(store: SqlStore, row: RankerRow, entries: Iterable[Entry]) -> tuple[str, ...]:
    """The names of experiments whose stored states are not what these entries of the log give."""
    bases = store.trial_bases(row.id)
    known = _definitions(store, row.id)
    trials = Trials(known)
    trials.courses = {key: Course.from_json(json.loads(base)) for key, (_, base) in bases.items() if base is not None}
    for entry in entries:
        if entry.experiment_id is not None and entry.seq > bases.get(entry.experiment_id, (0, None))[0]:
            trials.apply(entry)
    found, stored = trials.texts(trials.courses), store.trial_states(row.id)
    names = {key: definition.name for key, definition in known().items()}
    wrong = [key for key in found.keys() | stored.keys() if found.get(key) != stored.get(key)]
    return tuple(sorted(names.get(key, str(key)) for key in wrong))


def _definitions(store: SqlStore, ranker_id: int) -> Callable[[], Mapping[int, Definition]]:
    return lambda: {row.id: row.definition for row in store.experiments_of(ranker_id)}
