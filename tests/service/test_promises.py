"""What a store promises beyond its answers: on disk when it says so, swept, thinned, and told apart from its log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from scene import RETENTION, Scene

from pairrank.service.learning import learner
from pairrank.service.learning.learner import Learner
from pairrank.service.learning.replay import replay
from pairrank.service.store import SqlStore
from pairrank.service.store.log import NEWEST_KEPT, surplus
from pairrank.service.store.values import Config

DAY = 86_400.0


@pytest.fixture
def flushed(store: SqlStore, store_url: str, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each transaction of the store from now on: whether its commit waits for the disk."""
    seen: list[bool] = []
    plain = store.database.transaction
    question = "PRAGMA synchronous" if store_url.startswith("sqlite") else "SHOW synchronous_commit"

    @contextmanager
    def watched(**options: bool) -> Iterator[None]:
        with plain(**options):
            yield
            seen.append(store.database.all(question)[0][0] in (2, "on"))

    monkeypatch.setattr(store.database, "transaction", watched)
    return seen


def test_a_flush_goes_past_the_cache_of_a_drive(store: SqlStore, store_url: str) -> None:
    if store_url.startswith("sqlite"):
        assert store.database.all("PRAGMA fullfsync") == [(1,)]  # macOS flushes into that cache otherwise


def test_what_is_acknowledged_is_on_disk(store: SqlStore, flushed: list[bool]) -> None:
    scene = Scene(store)
    first, second = scene.serve(2)

    def waits(act: Callable[[], object]) -> list[bool]:
        flushed.clear()
        act()
        return list(flushed)

    assert waits(lambda: scene.feedback([first])) == [True]
    assert waits(lambda: scene.event(second, "e1")) == [True]
    assert waits(lambda: store.allocate(scene.row.id, 1)) == [True]
    scene.now += RETENTION
    assert waits(lambda: store.close_windows(scene.now)) == [True]
    assert waits(lambda: store.expire(scene.now)) == [False]  # nobody was told; the watch above does see it


def test_replay_compares_the_kept_versions_too(store: SqlStore, store_url: str) -> None:
    scene = Scene(store)
    for item in scene.serve(4):
        scene.feedback([item])
        scene.learn()
    assert replay(store, scene.row).versions_checked == 4
    with store.database.transaction():
        store.database.all("UPDATE snapshots SET digest = ? WHERE version = 2", ("0" * 64,))
    result = replay(store, scene.row)
    assert (result.wrong_versions, result.stored == result.replayed, result.same) == ((2,), True, False)
    done = subprocess.run([sys.executable, "-m", "pairrank", "replay", store_url], capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT THE SAME: kept versions 2 (" in done.stdout
    assert "another version of PairRank" in done.stdout  # after an upgrade that is what it is
    assert "pairrank store compact" in done.stdout


def test_the_learner_forgets_what_nobody_answered(store: SqlStore) -> None:
    scene = Scene(store)
    scene.serve(3)
    scene.now += RETENTION - 1
    Learner(store, clock=lambda: scene.now).step()
    assert len(store.impressions(scene.row.id)) == 3
    scene.now += 1
    Learner(store, clock=lambda: scene.now).step()
    assert store.impressions(scene.row.id) == []


def test_a_learner_learns_something_however_slow_the_store_is(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner, "STEP_SECONDS", -1.0)  # the time of a round is over before it begins
    scene = Scene(store)
    scene.feedback(scene.serve(2))
    one = Learner(store, clock=lambda: scene.now)
    for applied in (1, 2):
        one.step(publish=True)
        assert scene.row.applied == applied


def test_a_new_learner_goes_on_after_the_last_entry_that_was_looked_at(store: SqlStore) -> None:
    """Entries that the ranker refuses leave no version; they are counted once all the same."""
    scene = Scene(store)
    scene.feedback(scene.serve())
    scene.ranker = Config(2, "pdgd").make()  # its impressions are not those of the ranker that learns
    scene.feedback(scene.serve(2))
    scene.learn()
    assert (scene.row.version, scene.row.applied, scene.row.skipped) == (1, 3, 2)
    scene.feedback(scene.serve())
    scene.learn()
    assert (scene.row.version, scene.row.applied, scene.row.skipped) == (1, 4, 3)


def test_thinning_keeps_exactly_what_it_says() -> None:
    """Forty days of a version per ten minutes, and the last two hours of one per ten seconds."""
    now = 400 * DAY + 13 * 3600 + 7 * 60 + 5
    times = {now - 600 * i for i in range(40 * 144)} | {now - 10 * i for i in range(720)}
    versions = list(enumerate(sorted(times)))
    newest = {version for version, _ in versions[-NEWEST_KEPT:]}

    def last_of_each(seconds: float, youngest: float, oldest: float) -> set[int]:
        within = [(version, made) for version, made in versions if youngest <= now - made < oldest]
        return set({made // seconds: version for version, made in within}.values())

    minutes, hours, days = (
        last_of_each(60, 0, 3600),
        last_of_each(3600, 3600, DAY),
        last_of_each(DAY, DAY, 30 * DAY),
    )
    assert (len(minutes), len(hours), len(days)) == (61, 24, 30)
    kept = {version for version, _ in versions} - set(surplus(versions, now))
    assert kept == newest | minutes | hours | days
    assert surplus([(1, now - 40 * DAY)], now) == []  # the newest ten stay, however old
