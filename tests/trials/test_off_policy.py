"""Estimates from a log: propensities by brute force, means by full enumeration, intervals by simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from pairrank import PairRank
from pairrank.errors import InputError, OptionError
from pairrank.kernel.exploration import draw_conservative, draw_random
from pairrank.rng import Purpose, generator
from pairrank.trials import interleaving
from pairrank.trials.off_policy import Log, draw_chances, estimates, follows

CLICK, STOP = np.array([0.1, 0.5, 0.9]), np.array([0.2, 0.5, 0.7])


def every_draw(
    certain: np.ndarray, blocks: np.ndarray, k: int, shuffled: bool
) -> Iterator[tuple[tuple[int, ...], float]]:
    """All lists with their probabilities, one step after the other, from the rule's own words."""

    def grow(shown: tuple[int, ...], chance: float) -> Iterator[tuple[tuple[int, ...], float]]:
        if len(shown) == k:
            yield shown, chance
            return
        rest = [d for d in range(len(blocks)) if d not in shown]
        block = [d for d in rest if blocks[d] == min(blocks[e] for e in rest)]
        free = [d for d in block if shuffled or not any(certain[e, d] for e in block)]
        for d in free:
            yield from grow((*shown, d), chance / len(free))

    yield from grow((), 1.0)


def some_certainty(seed: int, n: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Certain orders and blocks of a PairRank that has learned a little, for documents that it has not seen."""
    ranker = PairRank(3, seed=seed, z=0.4)
    rng = generator(seed, 0, Purpose.DATA)
    for _ in range(40):
        X = rng.random((6, 3))
        impression = ranker.rank(X, 4)
        ranker.learn(impression, rng.random(4) < impression.features[:, 0])
    seen = ranker.inspect(rng.random((n, 3)))
    return seen.certain, seen.blocks


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_chances_equal_brute_force(shuffled: bool, k: int) -> None:
    several = 0
    for seed in range(12):
        certain, blocks = some_certainty(seed)
        several += blocks.max() > 0
        drawn = dict(every_draw(certain, blocks, k, shuffled))
        assert sum(drawn.values()) == pytest.approx(1.0)
        for ranking, chance in drawn.items():
            assert draw_chances(certain, blocks, np.array(ranking), shuffled=shuffled).prod() == pytest.approx(chance)
        if not shuffled and (impossible := [(j, i) for i, j in np.argwhere(certain)]):
            assert draw_chances(certain, blocks, np.array(impossible[0])).prod() == 0.0
    assert several >= 3  # blocks were not all of one piece


def test_chances_are_those_of_the_kernel() -> None:
    certain = np.zeros((4, 4), dtype=bool)
    certain[0, 2] = certain[0, 3] = certain[1, 3] = True
    blocks, n = np.zeros(4, dtype=np.int64), 20_000
    rng = generator(0, 0, Purpose.RANK)
    for shuffled in (False, True):
        draws = Counter(
            tuple((draw_random(4, 3, rng) if shuffled else draw_conservative(certain, 3, rng)).tolist())
            for _ in range(n)
        )
        for ranking, chance in every_draw(certain, blocks, 3, shuffled):
            assert draws[ranking] / n == pytest.approx(chance, abs=5 * np.sqrt(chance / n))


def test_chances_are_those_of_a_ranker() -> None:
    ranker = PairRank(2, seed=5, z=0.5)
    X = generator(5, 1, Purpose.DATA).random((5, 2))
    for _ in range(15):
        impression = ranker.rank(X, 3)
        ranker.learn(impression, impression.features[:, 0] > 0.6)
    seen = ranker.inspect(X)
    draws = Counter(tuple(ranker.rank(X, 3).ranking.tolist()) for _ in range(800))
    for ranking, count in draws.items():
        chance = float(draw_chances(seen.certain, seen.blocks, np.array(ranking)).prod())
        assert count / 800 == pytest.approx(chance, abs=5 * np.sqrt(chance / 800))


def cascade(grades: np.ndarray) -> Iterator[tuple[np.ndarray, float]]:
    """Every pattern of clicks with its probability, for users who read down, click, and perhaps stop."""
    k = len(grades)
    for clicks in product((False, True), repeat=k):
        going, chance = 1.0, 0.0
        # Users who stopped click no more: they are with those patterns that end there.
        for p in range(k + 1):
            if not any(clicks[p:]):
                chance += going * (1.0 if p == k else 0.0)
            if p == k:
                break
            c, s = CLICK[grades[p]], STOP[grades[p]]
            if clicks[p]:
                chance += going * c * s * (not any(clicks[p + 1 :]))
                going *= c * (1 - s)
            else:
                going *= 1 - c
        yield np.array(clicks), chance


def value(grades: np.ndarray) -> float:
    return sum(p * clicks.sum() for clicks, p in cascade(grades))


@pytest.mark.parametrize("assumption", ["cascade", "list"])
def test_the_mean_is_the_other_rankers_value(assumption: str) -> None:
    """Over every draw and every pattern of clicks; doubly robust with any model."""
    grades = np.array([2, 0, 1, 0, 1])
    for seed in range(4):
        certain, blocks = some_certainty(seed)
        drawn = list(every_draw(certain, blocks, 3, False))
        other = np.array(drawn[-1][0])  # one that can be shown
        ips = robust = 0.0
        for ranking, chance in drawn:
            shown = np.array(ranking)
            ours = draw_chances(certain, blocks, shown)[None]
            for clicks, p in cascade(grades[shown]):
                log = Log(clicks[None].astype(float), ours, follows(shown, other)[None], np.ones(1))
                found = {
                    e.method: e.value for e in estimates(log, assumption=assumption, expected=np.array([0.6, 0.3, 0.9]))
                }
                ips += chance * p * found["ips"]
                robust += chance * p * found["doubly robust"]
        assert ips == pytest.approx(value(grades[other]))
        assert robust == pytest.approx(value(grades[other]))


def test_interleaving_outcomes_from_a_log() -> None:
    """What interleaving two rankings would show, from lists that neither made: the mean over every draw."""
    grades, certain, blocks = np.array([2, 0, 1, 0]), np.zeros((4, 4), dtype=bool), np.zeros(4, dtype=np.int64)
    a, b = np.array([0, 2, 1, 3]), np.array([1, 0, 3, 2])
    truth = sum(
        chance * p * interleaving.outcome(shown.credit, clicks)
        for chance, shown in interleaving.lists(a, b, 3)
        for clicks, p in cascade(grades[shown.ranking])
    )
    found = 0.0
    for ranking, chance in every_draw(certain, blocks, 3, False):
        shown = np.array(ranking)
        others = interleaving.chances(a, b, shown)
        credit = interleaving.choice_credit(a, b, shown) if others.all() else np.zeros(3)
        for clicks, p in cascade(grades[shown]):
            earned = np.zeros((1, 3))
            earned[0, -1] = interleaving.outcome(credit, clicks)
            log = Log(earned, draw_chances(certain, blocks, shown)[None], others[None], np.ones(1))
            found += chance * p * estimates(log, assumption="list")[0].value
    assert truth > 0.1
    assert found == pytest.approx(truth)


def simulated(seed: int, n: int) -> tuple[Log, float]:
    """Lists of an explorer with three blocks of documents, and what another order within them would have earned."""
    rng = generator(seed, 0, Purpose.CLICKS)
    grades = np.array([1, 2, 0, 0, 1, 0])
    blocks = np.array([0, 0, 1, 1, 2, 2])
    other = np.array([1, 0, 2, 3, 4])
    blocked = np.zeros((6, 6), dtype=bool)
    ranked = np.argsort(blocks + rng.random((n, 6)), axis=1, kind="stable")[:, :5]
    chances = np.array([draw_chances(blocked, blocks, r) for r in np.unique(ranked, axis=0)])
    which = {tuple(r): c for r, c in zip(np.unique(ranked, axis=0), chances, strict=True)}
    shown = grades[ranked]
    clicks = rng.random((n, 5)) < CLICK[shown]
    stopped = clicks & (rng.random((n, 5)) < STOP[shown])
    clicks &= np.cumsum(stopped, axis=1) - stopped == 0
    log = Log(
        clicks.astype(float),
        np.array([which[tuple(r)] for r in ranked]),
        (ranked == other).astype(float),
        np.ones(n),
    )
    return log, value(grades[other])


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    runs = [simulated(seed, 800) for seed in range(150)]
    for method in range(3):
        covered = [lo <= truth <= hi for log, truth in runs for lo, hi in [estimates(log)[method].interval]]
        assert np.mean(covered) >= 0.93 - 2 * np.sqrt(0.05 * 0.95 / 150)
    widths = np.mean([[np.diff(e.interval)[0] for e in estimates(log)] for log, _ in runs[:20]], axis=0)
    assert widths[2] < widths[0]  # doubly robust is worth its name


def test_where_the_log_cannot_tell_it_says_so() -> None:
    log, _ = simulated(0, 2000)
    assert all(e.doubt == "" and e.effective > 100 for e in estimates(log))
    few, _ = simulated(0, 60)
    assert "worth" in estimates(few)[0].doubt
    unseen = Log(log.earned, log.chances, log.others, np.full(2000, 0.8))
    assert "20 %" in estimates(unseen)[0].doubt
    nothing = Log(log.earned, log.chances, np.zeros_like(log.others), np.zeros(2000))
    assert all(e.value == 0 and e.doubt for e in estimates(nothing)[:2])


def test_wrong_input_says_so() -> None:
    log, _ = simulated(0, 10)
    with pytest.raises(OptionError, match="assumption"):
        estimates(log, assumption="none")
    with pytest.raises(InputError, match="shapes"):
        Log(log.earned, log.chances[:5], log.others, log.reached)
    with pytest.raises(InputError, match="probability zero"):
        Log(log.earned, 0 * log.chances, log.others, log.reached)
