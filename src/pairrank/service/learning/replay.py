"""Build models again from the log alone, and compare them with what is stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pairrank import threads
from pairrank.service.learning.model import Log, Model, load_head, load_version
from pairrank.service.learning.trials import replayed
from pairrank.service.store.log import SqlStore
from pairrank.service.store.values import RankerRow


@dataclass(frozen=True, slots=True)
class Replay:
    """What the replay of one ranker's log gave."""

    name: str
    entries: int
    pending: int  # entries that the stored model has not seen yet
    version: int
    stored: str
    replayed: str
    versions_checked: int
    wrong_versions: tuple[int, ...]
    set_aside: tuple[int, ...]  # entries that made the ranker fail
    set_aside_stored: tuple[int, ...]
    wrong_trials: tuple[str, ...] = ()  # experiments whose stored states are not the log's

    @property
    def same(self) -> bool:
        """Whether the stored model, all versions kept on the way, what was set aside and all verdicts are the log's."""
        faults = self.wrong_versions or self.wrong_trials
        return self.stored == self.replayed and not faults and self.set_aside == self.set_aside_stored


@threads.single()
def replay(store: SqlStore, row: RankerRow) -> Replay:
    """Replay a ranker's log from its base up to where the stored model stands."""
    kept = {s.version: s.digest for s in store.versions(row.id) if row.base <= s.version <= row.version}
    walk = _walk(store, row, row.applied)
    model = next(walk)
    wrong: list[int] = []
    checked = 0
    for _ in walk:
        if model.version == model.applied and model.version in kept:
            checked += 1
            if model.ranker.digest() != kept[model.version]:
                wrong.append(model.version)
    return Replay(
        row.name,
        model.applied - row.base,
        row.lag,
        row.version,
        row.digest,
        model.ranker.digest(),
        checked,
        tuple(wrong),
        tuple(item.log_entry for item in model.aside),
        tuple(item.log_entry for item in store.set_aside(row.id, row.base) if item.log_entry <= row.applied),
        replayed(store, row, Log(store, row.id).entries(row.base, row.applied)),
    )


@threads.single()
def rebuild(store: SqlStore, row: RankerRow, upto: int) -> Model:
    """The model after entry ``upto``, from the base and the log alone."""
    return deque(_walk(store, row, upto), maxlen=1)[0]


def rebuild_head(store: SqlStore, row: RankerRow) -> Model:
    """The published model, from the base and the log alone; what is counted beside it stays as it was published."""
    model = rebuild(store, row, row.applied)
    model.learned, model.skipped, model.aside = row.learned, row.skipped, []
    return model


def load_whole(store: SqlStore, row: RankerRow) -> Model:
    """The published model of a ranker with the lists that it keeps.

    Those that the log does not have, since it was compacted or began with a model that had learned elsewhere, only the
    model has that it begins with.
    """
    model = load_head(store, row)
    return model if model.read_back(Log(store, row.id)) else rebuild_head(store, row)


def walked(store: SqlStore, row: RankerRow) -> Iterator[Model]:
    """As `_walk`, after each entry that changed the model."""
    return (model for model in _walk(store, row, row.applied) if model.version == model.applied)


def _walk(store: SqlStore, row: RankerRow, upto: int) -> Iterator[Model]:
    """The model that the log begins with (a new one, or the one that compaction left), then after each entry up to
    ``upto``: one and the same object, as it learns. Rollbacks go to states met on the way, not to stored ones; only the
    first is stored, with the lists that the log no longer has."""
    model, log = load_version(store, row, row.base), Log(store, row.id)
    targets = store.rollback_targets(row.id)
    yield model
    for entry in log.entries(model.applied, upto):
        model.apply(entry, log)
        if model.version == model.applied and model.version in targets:
            log.met[model.version] = model.snapshot(0.0)
        yield model
