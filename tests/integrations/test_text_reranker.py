"""The re-ranker that all adapters share: its start, its feedback, its bounds, its file; here and by a service."""

from __future__ import annotations

import asyncio
import copy
import math
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairrank import archive
from pairrank.errors import (
    ExpiredImpressionError,
    FileFormatError,
    InputError,
    OptionError,
    StorageError,
    UnknownNameError,
)
from pairrank.features.text import TextFeatures
from pairrank.integrations import Reranked, TextReranker
from pairrank.upstream import RerankEndpoint

QUERY = "how to brew green tea"
TEXTS = [
    "Coffee is brewed with boiling water.",
    "Green tea wants water of eighty degrees.",
    "A tea pot of cast iron.",
    "To brew green tea, steep the leaves for two minutes.",
    "Black tea wants boiling water.",
]


def test_it_starts_with_the_order_that_came_in() -> None:
    shown = TextReranker(explore=False).rerank(QUERY, TEXTS)
    assert shown.order == (0, 1, 2, 3, 4)
    rng = np.random.default_rng(0)
    kept = []
    for seed in range(40):
        many = [" ".join(rng.choice(list("abcdefghij"), rng.integers(3, 40))) for _ in range(10)]
        kept.append(TextReranker(seed=seed).rerank("a b c", many, top_n=3).order[0] == 0)
    assert np.mean(kept) > 0.9, "exploration may not trade the first document away before anything is known"


def test_it_learns_what_is_of_use() -> None:
    """The document that is cited shares most words with the question, and comes last."""
    reranker = TextReranker()
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(60)]
    for round_number in range(60):
        asked = list(rng.choice(words, 4, replace=False))
        texts = [" ".join(rng.choice(words, 8)) for _ in range(5)] + [" ".join([*asked, *rng.choice(words, 4)])]
        shown = reranker.rerank(" ".join(asked), texts, top_n=3 if round_number else 6)
        reranker.feedback(shown.impression_id, set(shown.order) & {5})
    assert reranker.rerank(" ".join(asked), texts).order[0] == 5


def test_relevance_falls_along_the_list_whatever_the_scores() -> None:
    for scores in [(0.1, 0.9, 0.9), (1e9, -1e9, 0.0), (2.0, 2.0, 2.0), (0.5,)]:
        relevance = Reranked("x", tuple(range(len(scores))), scores).relevance
        assert all(0 < value < 1 for value in relevance)
        assert all(np.diff(relevance) < 0)


def test_feedback_is_taken_once_and_names_what_is_wrong() -> None:
    reranker = TextReranker(max_open=2)
    first, second, third = (reranker.rerank(QUERY, TEXTS, top_n=2) for _ in range(3))
    weights = reranker.ranker.weights
    with pytest.raises(ExpiredImpressionError, match="no longer open: the last 2 are kept"):
        reranker.feedback(first.impression_id, [0])
    with pytest.raises(UnknownNameError, match="no list of this re-ranker is called 'nonsense'"):
        reranker.feedback("nonsense", [0])
    for flags in ([False, True], [True, "a"]):  # not row numbers, although True == 1
        with pytest.raises(InputError, match="was not in this list; expected row numbers"):
            reranker.feedback(third.impression_id, flags)
    for wrong in (None, second.order[0], [[second.order[0]]]):
        with pytest.raises(InputError, match=r"^useful is .*; expected row numbers that rerank returned"):
            reranker.feedback(second.impression_id, wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="row 99 was not in this list"):
        reranker.feedback(second.impression_id, [second.order[0], 99])
    with pytest.raises(InputError, match="carries no impression_id"):
        reranker.feedback_on([{}])
    np.testing.assert_array_equal(reranker.ranker.weights, weights)
    assert reranker.feedback(second.impression_id, [second.order[1]]) is True
    learned = reranker.ranker.weights
    assert not np.array_equal(learned, weights)
    assert reranker.feedback(second.impression_id, [second.order[0]]) is False
    np.testing.assert_array_equal(reranker.ranker.weights, learned)
    assert reranker.feedback_on(third.marks()[1:]) == 1
    assert reranker.feedback_on(third.marks()[1:]) == 0


def test_a_list_of_another_process_is_not_taken_for_an_own_one() -> None:
    """Workers with a re-ranker each, or one before and after a restart, count their lists alike."""
    one, other = TextReranker(), TextReranker()
    theirs, ours = one.rerank(QUERY, TEXTS), other.rerank("cast iron", TEXTS[::-1])
    assert theirs.impression_id != ours.impression_id
    with pytest.raises(UnknownNameError, match="no list of this re-ranker is called"):
        other.feedback_on(theirs.marks()[:1])
    assert not other.ranker.state["learned"].any()


def test_lists_that_are_gone_do_not_keep_others_from_being_learned() -> None:
    reranker = TextReranker(max_open=2)
    gone, first, second = (reranker.rerank(QUERY, TEXTS) for _ in range(3))
    with pytest.raises(ExpiredImpressionError, match="no longer open"):
        reranker.feedback_on([shown.marks()[0] for shown in (first, gone, second)])
    assert [reranker.feedback(shown.impression_id, []) for shown in (first, second)] == [False, False]


@pytest.mark.parametrize("row", [None, float("nan"), "x", 1.5])
def test_marks_that_a_frame_has_lost_are_told(row: object) -> None:
    reranker = TextReranker()
    shown = reranker.rerank(QUERY, TEXTS)
    for marks in ({"impression_id": shown.impression_id, "impression_row": row}, {"impression_id": row}):
        with pytest.raises(InputError, match="a document carries no impression_id"):
            reranker.feedback_on([marks])
    assert reranker.feedback_on([{"impression_id": shown.impression_id, "impression_row": np.float64(2)}]) == 1


def test_a_copy_goes_on_by_itself() -> None:
    one = TextReranker(max_open=7)
    waiting = one.rerank(QUERY, TEXTS)
    copies = [copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
    for other in copies:
        assert other.feedback(waiting.impression_id, [waiting.order[2]])
    assert one.feedback(waiting.impression_id, [waiting.order[2]])
    following = one.rerank(QUERY, TEXTS)
    assert [other.rerank(QUERY, TEXTS) for other in copies] == [following, following]


def test_a_file_continues_where_it_stopped(tmp_path: Path) -> None:
    one = TextReranker(TextFeatures(numbers=("views",)), max_open=7, seed=3)
    waiting = one.rerank(QUERY, TEXTS, top_n=3)
    done = one.rerank(QUERY, TEXTS)
    one.feedback(done.impression_id, [done.order[1]])
    one.save(tmp_path / "reranker")
    other = TextReranker.load(tmp_path / "reranker")
    assert (other.features, other.max_open) == (one.features, 7)
    assert other.feedback(done.impression_id, [0]) is False
    for reranker in (one, other):
        assert reranker.feedback(waiting.impression_id, [waiting.order[2]])
    assert [one.rerank(QUERY, TEXTS) for _ in range(5)] == [other.rerank(QUERY, TEXTS) for _ in range(5)]
    assert one.ranker.digest() == other.ranker.digest()


def test_a_file_holds_any_number_of_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = TextReranker(max_open=2000)
    shown = [one.rerank(QUERY, TEXTS) for _ in range(150)]
    for done in shown[:50]:
        one.feedback(done.impression_id, done.order[:1])
    monkeypatch.setattr(archive, "MAX_HEADER", 4000)  # 16 MiB is as little for a hundred thousand lists
    one.save(tmp_path / "reranker")
    other = TextReranker.load(tmp_path / "reranker")
    assert [other.feedback(waiting.impression_id, [0]) for waiting in shown] == [False] * 50 + [True] * 100


def test_older_files_have_an_array_for_each_list(tmp_path: Path) -> None:
    one = TextReranker()
    waiting, done = one.rerank(QUERY, TEXTS), one.rerank(QUERY, TEXTS)
    impression = one._open[waiting.impression_id]
    one.feedback(done.impression_id, [1])
    told = {"features": TextFeatures.version, "numbers": [], "dates": [], "explore": True, "max_open": 7}
    told |= {"open": [waiting.impression_id], "closed": [done.impression_id]}
    bodies = {"ranker": one.ranker, f"open.{waiting.impression_id}": impression}
    arrays = {name: np.frombuffer(thing.to_bytes(), dtype=np.uint8) for name, thing in bodies.items()}
    archive.write_atomically(tmp_path / "older", archive.sealed(archive.pack("text re-ranker", told, arrays)))
    other = TextReranker.load(tmp_path / "older")
    assert [other.feedback(done.impression_id, [0]), other.feedback(waiting.impression_id, [2])] == [False, True]


def test_files_that_are_not_ours_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reranker = TextReranker()
    reranker.ranker.save(tmp_path / "ranker")
    with pytest.raises(FileFormatError, match="holds a ranker; expected a text re-ranker"):
        TextReranker.load(tmp_path / "ranker")
    with pytest.raises(StorageError, match="cannot read"):
        TextReranker.load(tmp_path / "nothing")
    monkeypatch.setattr(TextFeatures, "version", "text-9")
    reranker.save(tmp_path / "other")
    monkeypatch.undo()
    with pytest.raises(FileFormatError, match="learned from features text-9; this PairRank makes text-1"):
        TextReranker.load(tmp_path / "other")


@pytest.mark.parametrize("max_open", [0, True, 1.5])
def test_bounds_are_whole_numbers(max_open: object) -> None:
    with pytest.raises(OptionError, match="max_open"):
        TextReranker(max_open=max_open)  # type: ignore[arg-type]


def test_an_upstream_score_is_a_feature() -> None:
    asked = []

    def upstream(query: str, texts: list[str]) -> list[float]:
        asked.append((query, texts))
        return [float("eighty" in text) for text in texts]

    reranker = TextReranker(upstream=upstream)
    for _ in range(60):
        shown = reranker.rerank(QUERY, TEXTS)
        reranker.feedback(shown.impression_id, [1])
    assert asked[0] == (QUERY, TEXTS)
    weights = dict(zip(reranker.features.names, reranker.ranker.weights, strict=True))
    assert weights["upstream"] > 0.1


def test_an_upstream_that_fails_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    reranker = TextReranker(upstream=RerankEndpoint("http://127.0.0.1:1/v1/rerank", timeout=1.0), explore=False)
    assert reranker.rerank(QUERY, TEXTS).order == (0, 1, 2, 3, 4)
    assert "ranked without the upstream's scores" in caplog.text


def test_threads_share_it() -> None:
    reranker = TextReranker()
    problems = []

    def work() -> None:
        try:
            for _ in range(20):
                shown = reranker.rerank(QUERY, TEXTS)
                assert reranker.feedback(shown.impression_id, [3])
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert reranker.ranker.n_ranked == 80


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_waits_until_no_thread_is_inside(
    monkeypatch: pytest.MonkeyPatch, in_a_fork: Callable[..., int | None]
) -> None:
    reranker, inside, score = TextReranker(), threading.Event(), TextReranker().ranker.score

    def slowly(X: object) -> object:
        inside.set()
        time.sleep(0.2)
        return score(X)

    monkeypatch.setattr(reranker.ranker, "score", slowly)
    thread = threading.Thread(target=reranker.rerank, args=(QUERY, TEXTS))
    thread.start()
    inside.wait()
    code = in_a_fork(reranker.rerank, QUERY, TEXTS)
    thread.join()
    assert code == 0


def test_async() -> None:
    async def main() -> tuple[bool, bool, int]:
        reranker = TextReranker()
        one, two = await asyncio.gather(*(reranker.arerank(QUERY, TEXTS, top_n=2) for _ in range(2)))
        first = await reranker.afeedback(one.impression_id, [one.order[0]])
        again = await reranker.afeedback(one.impression_id, [one.order[0]])
        with pytest.raises(InputError, match="expected row numbers"):
            await reranker.afeedback(two.impression_id, 0)  # type: ignore[arg-type]
        return first, again, await reranker.afeedback_on(two.marks())

    assert asyncio.run(main()) == (True, False, 1)


@pytest.mark.parametrize("trust", ["a", math.nan, None])
def test_a_trust_that_is_no_number_is_refused(trust: Any) -> None:
    with pytest.raises(OptionError, match="trust is"):
        TextReranker(trust=trust)
