from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank import PairRank, metrics
from pairrank.service.log_statistics import RANKERS, LogStatistics, block_sizes, point, points, summarise
from pairrank.service.store import open_store
from pairrank.service.store.values import Config, Entry, Limits
from pairrank.service.worker.recent_candidates import Recent
from pairrank.types import FloatArray, Impression


def shown(blocks: list[int], ends: list[int] | None = None, locked: int = 0, explored: bool = True) -> Impression:
    k = len(blocks)
    memory = {} if ends is None else {"ends": np.array(ends)}
    return Impression(
        "x", 0, 0, 99, np.zeros((k, 2)), np.arange(k), np.array(blocks), explored=explored, locked=locked, memory=memory
    )


def entry(seq: int, impression: Impression, clicks: list[int]) -> Entry:
    return Entry(seq, "feedback", float(seq), None, bytes(clicks), impression.to_bytes())


@pytest.mark.parametrize(
    ("impression", "sizes"),
    [
        (shown([0, 0, 1], ends=[1, 40]), [2, 2, 39]),  # the last block runs on below what was shown
        (shown([0, 0, 1]), [2, 2, 1]),  # a ranker that notes no ends: what was shown counts
        (shown([0, 1, 2, 2], ends=[3], locked=2), [1, 1, 4, 4]),
        (shown([0, 1], locked=2), [1, 1]),
    ],
)
def test_block_sizes(impression: Impression, sizes: list[int]) -> None:
    assert block_sizes(impression).tolist() == sizes


def test_block_sizes_are_those_of_the_ranker_itself() -> None:
    rng = np.random.default_rng(0)
    ranker = PairRank(3, seed=0, lam=0.1)
    for _ in range(40):
        X = rng.random((20, 3))
        impression = ranker.rank(X, 6)
        view = ranker.inspect(X)
        expected = view.block_sizes[view.blocks[impression.ranking]]
        assert block_sizes(impression).tolist() == expected.tolist()
        assert block_sizes(Impression.from_bytes(impression.to_bytes())).tolist() == expected.tolist()
        ranker.learn(impression, X[impression.ranking, 0] > 0.6)


def listed(*entries: Entry) -> FloatArray:
    return np.array([summarise(one) for one in entries], dtype=np.float64).reshape(len(entries), -1)


def test_one_list_is_summarised() -> None:
    clicks = [0, 1, 0, 1, 0]
    told = point(listed(entry(7, shown([0, 0, 1, 2, 2], ends=[1, 2, 9]), clicks)))
    assert told["ctr"] == 1
    assert told["ndcg"] == pytest.approx(metrics.dcg(clicks) / metrics.ideal_dcg(clicks))
    assert told["explored"] == 4 / 5
    assert told["blocks"] == 3
    assert (told["size_1"], told["size_5"], told["size_10"]) == (2, 7, None)
    assert (told["time"], told["log_entry"]) == (7.0, 7)
    quiet = point(listed(entry(1, shown([0, 0], explored=False), [0, 0])))
    assert quiet["ctr"] == 0
    assert quiet["ndcg"] is None
    assert quiet["explored"] == 0
    assert summarise(Entry(1, "rollback", 0.0, 3, None, None)) is None


def test_lists_of_different_lengths_are_averaged_by_what_they_have() -> None:
    told = point(listed(entry(1, shown([0, 0, 0]), [0, 0, 0]), entry(2, shown([0] * 6, explored=False), [1] * 6)))
    assert (told["lists"], told["ctr"], told["ndcg"]) == (2, 0.5, 1.0)
    assert told["explored"] == 3 / 9  # of all positions, not of lists
    assert (told["size_1"], told["size_5"], told["size_10"]) == (4.5, 6, None)


@given(st.lists(st.lists(st.integers(0, 1), min_size=3, max_size=3), min_size=1, max_size=70), st.integers(1, 12))
def test_points_keep_the_sums_however_wide_they_are(lists: list[list[int]], most: int) -> None:
    found = points(listed(*(entry(seq, shown([0, 1, 1]), clicks) for seq, clicks in enumerate(lists, 1))), most)
    assert len(found) <= most
    assert sum(point["lists"] for point in found) == len(lists)
    assert sum(point["ctr"] * point["lists"] for point in found) == pytest.approx(sum(any(c) for c in lists))
    assert [point["log_entry"] for point in found] == sorted(point["log_entry"] for point in found)
    assert len({point["lists"] for point in found[:-1]}) <= 1  # all but the last are equally wide
    assert found[-1]["log_entry"] == len(lists)


def test_lists_of_the_rankers_looked_at_last_are_kept(tmp_path: Path) -> None:
    store, statistics = open_store(tmp_path / "store.db"), LogStatistics()
    rows = [store.create(f"r{n}", Config(2), Limits(), 0.0, "test")[0] for n in range(RANKERS + 5)]
    for row in rows:
        assert not statistics.catch_up(store, row)
        assert not statistics.catch_up(store, rows[0])  # looked at all the time
    assert len(statistics._read) == RANKERS
    assert {(row.id, row.created) for row in (rows[0], *rows[6:])} == statistics._read.keys()
    assert len(statistics.lists(rows[1])) == 0  # as one that nobody has looked at
    store.close()


def test_recent_candidates_are_bounded() -> None:
    recent = Recent(max_kept=3, max_bytes=1600)
    small = np.zeros((5, 2))  # 80 bytes
    for number in range(5):
        recent.keep(f"a{number}", ["x"] * 5, small)
    assert [recent.find(f"a{number}") is not None for number in range(5)] == [False, False, True, True, True]
    assert recent.find("b4") is None
    recent.keep("b0", ["x"], np.zeros((100, 1)))  # 800 bytes push out what is older
    assert recent.find("a3") is not None
    assert recent.find("a2") is None
    recent.keep("b1", ["x"], np.zeros((1000, 1)))  # too large for itself
    assert recent.find("b1") is None
    recent.keep("c0", ["y"], small)
    kept = recent.find("c0")
    assert kept is not None
    assert kept.ids == ["y"]
    recent.keep("c1", ["y" * 450] * 3, small)  # ids take room, too
    assert [recent.find(f"c{number}") is not None for number in (0, 1)] == [False, True]
