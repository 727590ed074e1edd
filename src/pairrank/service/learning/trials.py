"""What a ranker's log has shown of its experiments and its launch, counted entry by entry: once, and by every replay.

The state of an experiment is a function of the entries that name it, in their order, and goes to JSON and back without
losing a bit. So it is the same after `kill -9` anywhere, on any database.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from pairrank.service.store.launches import Move
from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import Entry, ExperimentRow, RankerRow
from pairrank.trials import interleaving
from pairrank.trials.experiment import Definition, Tally
from pairrank.trials.launch import Guard, Launch

# A point of the course is kept after so many more lists than at the one before: some two hundred for a million lists.
STEP = 1.06
# Of queries, whose lists' values a launch remembers; and how many lists the mean of all counts as in a query's own.
PLACES = 1024
TOWARDS = 3.0


def value(clicks: bytes) -> float:
    """Of a list, in [0, 1]: the reciprocal rank of its first click, 0 without one.

    It told two rankings apart with fewer lists than the number of clicks or having any; see docs/guide/launch.md.
    """
    first = clicks.find(1)
    return 0.0 if first < 0 else 1.0 / (1 + first)


def twin_of(entry: Entry) -> tuple[int, int, bytes] | None:
    """Ranker, number and clicks of another ranker's impression of the same list, if it learns from it, too."""
    if entry.clicks is None or entry.trial is None or '"twin"' not in entry.trial:
        return None
    ranker_id, number = json.loads(entry.trial)["twin"]
    return ranker_id, number, entry.clicks


@dataclass(frozen=True, slots=True)
class Course:
    """An experiment's tally and how it came there.

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
        trial, came, definition = json.loads(entry.trial), json.loads(entry.signals or "{}"), self.tally.definition
        if definition.kind == "split":
            outcomes = {"click": value(entry.clicks)} | {name: float(name in came) for name in self.tally.signals}
            is_a = trial["arm"] == "a"
        else:
            places = np.arange(len(entry.clicks))
            there = {"click": np.frombuffer(entry.clicks, dtype=np.bool_)}
            there |= {name: np.isin(places, came.get(name, [])) for name in self.tally.signals}
            credit, is_a = np.array(trial["credit"], dtype=np.float64), None
            outcomes = {name: interleaving.outcome(credit, mask) for name, mask in there.items()}
        asked_again = "reformulation" in came if "reformulation" in definition.signals else None
        tally = self.tally.after(outcomes, clicked=any(entry.clicks), reformulated=asked_again, is_a=is_a)
        points = self.points
        if not points or tally.lists >= max(points[-1][1] + 1, STEP * points[-1][1]):
            low, high = tally.main.interval
            points = (*points, (entry.created, tally.lists, tally.main.effect, low, high))
        first = self.first if self.tally.lists else entry.created
        return replace(self, tally=tally, points=points, first=first, last=entry.created)

    def to_json(self) -> str:
        """As text; equal courses give equal texts."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Course:
        points = tuple((at, n, effect, low, high) for at, n, effect, low, high in values["points"])
        return cls(Tally.from_json(values["tally"]), points, values["first"], values["last"])


def course_of(row: ExperimentRow) -> Course:
    """An experiment's course as it was last published."""
    return Course(Tally.start(row.definition)) if row.state is None else Course.from_json(row.state)


@dataclass(frozen=True, slots=True)
class LaunchCourse:
    """A launch as the log has it.

    epoch : the entry that began it. good : the last version that was shown while the gain so far was not below zero.
    shadowed, agreed : lists of the shadow, and the sum over them of the share of shown documents that are also in ours.
    known : by a hash of the query, what its lists were worth in sum and how many there were; see `expected`.
    """

    launch: Launch
    epoch: int
    good: int
    shadowed: int = 0
    agreed: float = 0.0
    known: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    @classmethod
    def begun(cls, entry: Entry, before: LaunchCourse | None) -> LaunchCourse:
        """The launch after a decision. All is counted anew; only what lists are worth is still known."""
        told = json.loads(entry.trial or "")
        guard = Guard(told["margin"], told["holdout"], told["delta"])
        known = (before.launch.lists, before.launch.value) if before else (0, 0.0)
        launch = Launch(guard, told["mode"], told["auto"], *known)
        return cls(launch, entry.seq, int(entry.version or 0), known=before.known if before else {})

    def expected(self, place: str) -> float:
        """What a list of a query is guessed to be worth: the mean of those before, drawn towards that of all lists.

        Any guess that is made before is a right one; one that is near takes noise out. Queries share `PLACES`, so that
        the state stays small; where none comes twice this is about the mean of all.
        """
        usual = self.launch.value / self.launch.lists if self.launch.lists else 0.5
        total, count = self.known.get(place, (0.0, 0))
        return (total + TOWARDS * usual) / (count + TOWARDS)

    def after(self, entry: Entry, noted: Mapping[str, Any]) -> LaunchCourse:
        """The launch with one more list; one that was served in another mode than is now does not count."""
        if entry.clicks is None or noted["launch"] != self.epoch or noted["mode"] != self.launch.mode:
            return self
        worth, known, guess = value(entry.clicks), self.known, None
        if entry.query_id is not None:
            place = place_of(entry.query_id)
            guess, (total, count) = self.expected(place), known.get(place, (0.0, 0))
            known = {**known, place: (total + worth, count + 1)}
        launch = self.launch.after(noted["ours"], worth, noted.get("share"), guess)
        good = int(entry.version or 0) if noted["ours"] and launch.gain >= 0.0 else self.good
        found = replace(self, launch=launch, good=good, known=known)
        if "agreed" in noted:
            return replace(found, shadowed=self.shadowed + 1, agreed=self.agreed + noted["agreed"])
        return found

    def move(self) -> Move:
        """What acts now."""
        low, high = self.launch.gain_interval
        told = {"gain_per_list": [low, high], "lists": self.launch.guarded}
        return Move(self.epoch, self.launch.mode, self.good, told)

    def to_json(self) -> str:
        """As text; equal launches give equal texts."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LaunchCourse:
        known = {place: (total, count) for place, (total, count) in values["known"].items()}
        return cls(**{**values, "launch": Launch.from_json(values["launch"]), "known": known})


def place_of(query_id: str) -> str:
    """Where a query's lists are counted, the same on every machine."""
    return str(int.from_bytes(hashlib.sha256(query_id.encode()).digest()[:4], "big") % PLACES)


LAUNCH = 0  # in the place of an experiment's id


@dataclass(slots=True)
class Trials:
    """The courses of one ranker's experiments and of its launch; `apply` takes the entries of its log in order.

    changed : experiments that have moved since this was last emptied, `LAUNCH` among them.
    """

    store: SqlStore
    ranker_id: int
    courses: dict[int, Course] = field(default_factory=dict)
    launch: LaunchCourse | None = None
    changed: set[int] = field(default_factory=set)

    @classmethod
    def restore(cls, store: SqlStore, ranker_id: int, texts: Mapping[int, str]) -> Trials:
        values = {key: json.loads(text) for key, text in texts.items()}
        launch = LaunchCourse.from_json(values.pop(LAUNCH)) if LAUNCH in values else None
        return cls(store, ranker_id, {key: Course.from_json(state) for key, state in values.items()}, launch)

    def definitions(self) -> dict[int, Definition]:
        """The experiments on the ranker's requests, as the store has them now."""
        return {row.id: row.definition for row in self.store.experiments_of(self.ranker_id)}

    def apply(self, entry: Entry) -> None:
        """Count one entry, if it is of an experiment or of the launch."""
        key = entry.experiment_id
        if key is None:
            self._launched(entry)
            return
        course = self.courses.get(key)
        if course is None:
            course = Course(Tally.start(self.definitions()[key]))
        self.courses[key] = course.after(entry)
        self.changed.add(key)

    def _launched(self, entry: Entry) -> None:
        if entry.kind == "launch":
            self.launch = LaunchCourse.begun(entry, self.launch)
        elif self.launch is not None and entry.trial is not None and '"launch"' in entry.trial:
            self.launch = self.launch.after(entry, json.loads(entry.trial))
        else:
            return
        self.changed.add(LAUNCH)

    def texts(self, keys: Iterable[int] | None = None) -> dict[int, str]:
        """These states, or all of them, as they are stored."""
        states: dict[int, Course | LaunchCourse] = dict(self.courses)
        if self.launch is not None:
            states[LAUNCH] = self.launch
        return {key: states[key].to_json() for key in (states if keys is None else keys)}


def replayed(store: SqlStore, row: RankerRow, entries: Iterable[Entry]) -> tuple[str, ...]:
    """The names of experiments (and "launch") whose stored states are not what these entries of the log give."""
    bases = store.trial_bases(row.id)
    trials = Trials.restore(store, row.id, {key: base for key, (_, base) in bases.items() if base is not None})
    for entry in entries:
        if entry.seq > bases.get(entry.experiment_id or LAUNCH, (0, None))[0]:
            trials.apply(entry)
    stored = Trials.restore(store, row.id, store.trial_states(row.id)).texts()  # as they are written today
    found = trials.texts()
    names = {LAUNCH: "launch", **{key: definition.name for key, definition in trials.definitions().items()}}
    wrong = [key for key in found.keys() | stored.keys() if found.get(key) != stored.get(key)]
    return tuple(sorted(names.get(key, str(key)) for key in wrong))
