from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank import PairRank, metrics
from pairrank.service.log_statistics import History, block_sizes, summarise
from pairrank.service.store.values import Entry
from pairrank.service.worker.recent_candidates import Recent
from pairrank.types import Impression


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


def test_one_list_is_summarised() -> None:
    clicks = [0, 1, 0, 1, 0]
    found = summarise(entry(7, shown([0, 0, 1, 2, 2], ends=[1, 2, 9]), clicks))
    assert found is not None
    point = found.point()
    assert point["ctr"] == 1
    assert point["ndcg"] == pytest.approx(metrics.dcg(clicks) / metrics.ideal_dcg(clicks))
    assert point["explored"] == 4 / 5
    assert point["blocks"] == 3
    assert (point["size_1"], point["size_5"], point["size_10"]) == (2, 7, None)
    assert (point["time"], point["log_entry"]) == (7.0, 7)
    quiet = summarise(entry(1, shown([0, 0], explored=False), [0, 0]))
    assert quiet is not None
    assert quiet.point()["ctr"] == 0
    assert quiet.point()["ndcg"] is None
    assert quiet.point()["explored"] == 0
    assert summarise(Entry(1, "rollback", 0.0, 3, None, None)) is None


@given(st.lists(st.lists(st.integers(0, 1), min_size=3, max_size=3), max_size=70), st.integers(1, 6))
def test_a_history_keeps_its_sums_however_it_is_joined(lists: list[list[int]], points: int) -> None:
    history = History(points)
    for seq, clicks in enumerate(lists, 1):
        history.add(entry(seq, shown([0, 1, 1]), clicks))
    found = history.points()
    assert len(found) <= 2 * points
    assert sum(point["lists"] for point in found) == len(lists)
    assert sum(point["ctr"] * point["lists"] for point in found) == pytest.approx(sum(any(c) for c in lists))
    assert [point["log_entry"] for point in found] == sorted(point["log_entry"] for point in found)
    assert len({point["lists"] for point in found[:-1]}) <= 1  # all but the last are equally wide
    if lists:
        assert found[-1]["log_entry"] == len(lists)


def test_recent_candidates_are_bounded() -> None:
    recent = Recent(max_kept=3, max_bytes=1000)
    small = np.zeros((5, 2))  # 80 bytes
    for number in range(5):
        recent.keep("a", number, ["x"] * 5, small)
    assert [recent.find("a", number) is not None for number in range(5)] == [False, False, True, True, True]
    assert recent.find("b", 4) is None
    recent.keep("b", 0, ["x"], np.zeros((100, 1)))  # 800 bytes push out what is older
    assert recent.find("a", 3) is not None
    assert recent.find("a", 2) is None
    recent.keep("b", 1, ["x"], np.zeros((1000, 1)))  # too large for itself
    assert recent.find("b", 1) is None
    recent.keep("c", 0, ["y"], small)
    kept = recent.find("c", 0)
    assert kept is not None
    assert kept.ids == ["y"]
