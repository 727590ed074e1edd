"""Files and stores that version 0.1 (commit e98be43) and a later program (commit a3d3cbc) wrote open and go on."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from pairrank import archive, rankers
from pairrank.errors import FileFormatError
from pairrank.types import Impression

FILES = Path(__file__).resolve().parent / "older"


@pytest.mark.parametrize(
    "name",
    [
        *("0.1/pairrank", "0.1/pairrank-bounded", "0.1/pairrank-c", "0.1/pdgd", "0.1/p2linrank"),
        *("mirrored/pairrank", "mirrored/published"),  # whole, and without the lists that it keeps
    ],
)
def test_a_ranker_goes_on(name: str) -> None:
    ranker = rankers.from_bytes(gzip.decompress((FILES / f"{name}.pairrank.gz").read_bytes()))
    weights = ranker.weights
    assert np.argmax(np.abs(weights)) == 0  # it had learned that the first feature is what is clicked
    late = Impression.from_bytes((FILES / f"{name}.impression").read_bytes())  # shown before the upgrade
    assert ranker.learn(late, np.arange(len(late)) == 0)
    assert not ranker.learn(late, np.arange(len(late)) == 0)
    rng = np.random.default_rng(0)
    for _ in range(100):
        shown = ranker.rank(rng.random((12, 5)), 6)
        ranker.learn(shown, shown.features[:, 0] > 0.6)
    assert np.argmax(np.abs(ranker.weights)) == 0
    again = rankers.from_bytes(ranker.to_bytes())
    assert again.to_bytes() == ranker.to_bytes()


@pytest.mark.parametrize("name", ["pairrank-c", "pairrank(preset=authors)"])
def test_a_history_of_documents_becomes_one_of_differences(name: str) -> None:
    """The paper's pairs, saved before their differences were kept: with both documents of each pair."""
    rng = np.random.default_rng(0)
    ranker, log = rankers.make(name, n_features=5, seed=1), []
    for _ in range(100):
        log.append((shown := ranker.rank(rng.random((12, 5)), 6), shown.features[:, 0] > 0.6))
        ranker.learn(*log[-1])
    values, arrays = archive.unpack(ranker.to_bytes(), "ranker")
    part = "posterior.history."
    rows, n = arrays[f"{part}documents"], len(arrays[f"{part}weight"])
    assert len(rows) == n >= 50  # a row a pair
    arrays[f"{part}documents"] = np.repeat(rows, 2, axis=0)
    arrays[f"{part}documents"][::2] /= 2  # halves of a float's value, and so exact
    arrays[f"{part}documents"][1::2] /= -2
    arrays[f"{part}winner"], arrays[f"{part}loser"] = np.arange(0, 2 * n, 2), np.arange(1, 2 * n, 2)
    arrays[f"{part}ends"] = arrays[f"{part}ends"] * [2, 1]
    older = rankers.from_bytes(archive.pack("ranker", values, arrays))
    assert older.to_bytes() == ranker.to_bytes()
    small = archive.unpack(older.to_bytes(history=False), "ranker")[1]
    assert small.keys() == arrays.keys()  # as ever, so that the digest of a model published then is still its own
    for _ in range(20):
        log.append((shown := older.rank(rng.random((12, 5)), 6), shown.features[:, 0] > 0.6))
        assert older.learn(*log[-1])
        assert ranker.learn(*log[-1])
    assert older.to_bytes() == ranker.to_bytes()
    again = rankers.from_bytes(older.to_bytes(history=False))
    assert again.recall(reversed(log))
    assert again.to_bytes() == older.to_bytes()
    arrays[f"{part}winner"] += 2 * n
    with pytest.raises(FileFormatError, match="damaged"):
        rankers.from_bytes(archive.pack("ranker", values, arrays))


def test_what_it_was_made_with_is_what_acts() -> None:
    ranker = rankers.from_bytes(gzip.decompress((FILES / "0.1" / "pairrank.pairrank.gz").read_bytes()))
    assert (ranker.settings["z"], ranker.settings["pairs"], ranker.settings["offsets"]) == (0.2, "averaged", False)
    published = rankers.from_bytes(gzip.decompress((FILES / "0.1" / "pairrank-c.pairrank.gz").read_bytes()))
    assert (published.settings["width"], published.settings["lam"], published.settings["pairs"]) == (
        "probability",
        0.1,
        "adjacent",
    )
    mirrored = rankers.from_bytes(gzip.decompress((FILES / "mirrored" / "pairrank.pairrank.gz").read_bytes()))
    assert (mirrored.settings["pairs"], mirrored.settings["offsets"]) == ("shown", True)


@pytest.mark.parametrize("program", ["0.1", "mirrored"])
def test_a_store_goes_on(tmp_path: Path, program: str) -> None:
    store_module = pytest.importorskip("pairrank.service.store")
    from pairrank.service.learning.learner import Learner
    from pairrank.service.learning.replay import replay
    from pairrank.service.learning.verify import verify
    from pairrank.service.store.values import Feedback

    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress((FILES / program / "store.db.gz").read_bytes()))
    store = store_module.open_store(path)
    row = store.ranker("a")
    assert (row.version, row.base, row.learned, row.config.options) == (6, 6, 6, {})
    assert verify(store) == []
    assert replay(store, row).same
    learner = Learner(store, clock=lambda: 1001.0)
    while learner.step(publish=True):  # one feedback was waiting
        pass
    token = store.database.all("SELECT token FROM impressions WHERE number = 7")[0][0]  # shown before the upgrade
    sent = Feedback(row.id, 7, token, frozenset())
    assert store.feedback([sent], 1001.0)[0].status.value == "accepted"
    while learner.step(publish=True):
        pass
    row = store.ranker("a")
    assert (row.version, row.feedback_count) == (8, 8)
    assert replay(store, row).same
    assert verify(store) == []
    store.close()
