"""Group commit: what waits together is committed together, and every request gets its own answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from scene import Scene

from pairrank.errors import StorageError
from pairrank.service.store import SqlStore, open_impatient, open_store
from pairrank.service.store.values import Event, Feedback, Served, Status, Verdict
from pairrank.service.worker import group_commit as writer_module
from pairrank.service.worker.group_commit import GroupCommit


class Counting:
    """A store that counts transactions and waits before the first until told."""

    def __init__(self, store: SqlStore) -> None:
        self.store, self.calls = store, []
        self.gate = threading.Event()

    def serve(self, items: Sequence[Served]) -> None:
        self.calls.append(("serve", len(items)))
        self.gate.wait()
        self.store.serve(items)

    def feedback(self, items: Sequence[Feedback], now: float) -> list[Verdict]:
        self.calls.append(("feedback", len(items)))
        return self.store.feedback(items, now)

    def events(self, items: Sequence[Event], now: float) -> list[Verdict]:
        self.calls.append(("events", len(items)))
        return self.store.events(items, now)


def sent(item: Served) -> Feedback:
    return Feedback(item.ranker_id, item.number, item.token, frozenset(json.loads(item.ids)[:1]))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(open_store(tmp_path / "store.db"))


def test_one_transaction_for_all_that_waits(scene: Scene) -> None:
    counting = Counting(scene.store)
    items = scene.serve(4)
    row = scene.row
    fresh = [scene._served(row, scene.ranker.rank([[0.0, 1.0]] * 3, number=50 + n)) for n in range(2)]

    async def main() -> list[object]:
        writer = GroupCommit(counting, clock=lambda: scene.now)  # type: ignore[arg-type]
        waiting: list[asyncio.Future[object]] = [writer.serve(fresh[0])]  # type: ignore[list-item]
        await asyncio.sleep(0.05)  # the thread is in its first transaction now
        waiting += [writer.feedback(sent(item)) for item in items[:3]]  # type: ignore[misc]
        waiting.append(writer.feedback(sent(fresh[1])))  # type: ignore[arg-type]
        waiting.append(writer.serve(fresh[1]))  # type: ignore[arg-type]
        event = Event(row.id, items[3].number, items[3].token, "e", json.loads(items[3].ids)[0])
        waiting.append(writer.events([event, event]))  # type: ignore[arg-type]
        counting.gate.set()
        answers = await asyncio.gather(*waiting)
        await writer.close()
        return list(answers)

    answers = asyncio.run(main())
    assert counting.calls == [("serve", 1), ("serve", 1), ("feedback", 4), ("events", 2)]
    assert [a.status for a in answers[1:5]] == [Status.ACCEPTED] * 4  # type: ignore[attr-defined]
    assert [a.status for a in answers[6]] == [Status.ACCEPTED, Status.DUPLICATE]  # type: ignore[attr-defined]
    scene.store.close()


def test_a_failure_reaches_everybody_who_waited_and_nobody_else(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = scene.serve(2)

    def fail(*_: object) -> None:
        raise StorageError("full")

    async def main() -> None:
        writer = GroupCommit(scene.store, clock=lambda: scene.now)
        with monkeypatch.context() as patch:
            patch.setattr(SqlStore, "feedback", fail)
            with pytest.raises(StorageError, match="full"):
                await writer.feedback(sent(first))
        assert (await writer.feedback(sent(second))).status is Status.ACCEPTED
        await writer.close()

    asyncio.run(main())
    assert scene.row.log_seq == 1
    scene.store.close()


def test_closing_writes_what_waits(scene: Scene) -> None:
    items = scene.serve(5)

    async def main() -> list[Verdict]:
        writer = GroupCommit(scene.store, clock=lambda: scene.now)
        waiting = [writer.feedback(sent(item)) for item in items]
        await writer.close()
        return list(await asyncio.gather(*waiting))

    assert {verdict.status for verdict in asyncio.run(main())} == {Status.ACCEPTED}
    assert scene.row.log_seq == 5
    scene.store.close()


def test_too_much_waiting_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MAX_WAITING", 2)
    counting = Counting(scene.store)
    items = scene.serve(6)

    async def main() -> None:
        writer = GroupCommit(counting, clock=lambda: scene.now)  # type: ignore[arg-type]
        blocked = writer.serve(items[0]._replace(number=77))
        await asyncio.sleep(0.05)
        waiting = [writer.feedback(sent(item)) for item in items[:3]]
        with pytest.raises(StorageError, match="keep up"):
            writer.feedback(sent(items[3]))
        counting.gate.set()
        await asyncio.gather(blocked, *waiting)
        await writer.close()

    asyncio.run(main())
    scene.store.close()


def test_lists_are_written_at_once_unless_somebody_else_writes(scene: Scene, tmp_path: Path) -> None:
    row = scene.row
    shown = [scene._served(row, scene.ranker.rank([[0.0, 1.0]] * 3, number=50 + n)) for n in range(4)]
    counting = Counting(scene.store)
    counting.gate.set()
    other = open_store(tmp_path / "store.db")
    at_once = open_impatient(tmp_path / "store.db")

    async def main() -> None:
        writer = GroupCommit(counting, clock=lambda: scene.now, at_once=at_once)  # type: ignore[arg-type]
        await asyncio.gather(writer.serve(shown[0]), writer.serve(shown[1]))
        assert counting.calls == []
        with other.database.transaction():
            waiting = writer.serve(shown[2])
            await asyncio.sleep(0.05)
            assert not waiting.done()
        await waiting
        assert counting.calls == [("serve", 1)]
        last = writer.serve(shown[3])
        await writer.close()
        await last

    asyncio.run(main())
    assert [item.number for item in scene.store.impressions(row.id)] == [53, 52, 51, 50]
    for store in (other, at_once, scene.store):
        assert store is not None
        store.close()
