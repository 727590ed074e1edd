"""Estimates from a log: propensities by brute force, means by full enumeration, intervals by simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from pairrank import PairRank, click_models
from pairrank.errors import InputError
from pairrank.kernel.exploration import draw_conservative, draw_random
from pairrank.rng import Purpose, generator
from pairrank.trials import interleaving
from pairrank.trials.off_policy import ENOUGH, Draft, Draws, Log, estimates, weigh
from pairrank.trials.verdict import first_click

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
    chances = dict(every_draw(seen.certain, seen.blocks, 3, shuffled=False))
    draws = Counter(tuple(ranker.rank(X, 3).ranking.tolist()) for _ in range(800))
    assert draws.keys() <= chances.keys()
    for ranking, chance in chances.items():
        assert draws[ranking] / 800 == pytest.approx(chance, abs=5 * np.sqrt(chance / 800))


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


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_chances_of_sets_equal_brute_force(shuffled: bool, k: int) -> None:
    several = 0
    for seed in range(12):
        certain, blocks = some_certainty(seed)
        several += blocks.max() > 0
        drawn = dict(every_draw(certain, blocks, k, shuffled))
        assert sum(drawn.values()) == pytest.approx(1.0)
        draws = Draws(certain, blocks, shuffled=shuffled)
        for other in [*drawn, (4, 3, 2, 1, 0)[:k], (1, 0, 4, 2, 3)[:k]]:
            above, here = draws.set_chances(np.array(other))
            for p in range(k):
                alike = {r: c for r, c in drawn.items() if set(r[:p]) == set(other[:p])}
                assert here[p] == pytest.approx(sum(c for r, c in alike.items() if r[p] == other[p]))
                if here[p] == 0:
                    assert not here[p:].any()
                    break
                assert above[p] == pytest.approx(sum(alike.values()))
    assert several >= 3  # blocks were not all of one piece


def certain_log(earned: np.ndarray, *weights: np.ndarray) -> Log:
    """A log so long that it tells of everything that can be shown: this list, over and over."""
    return Log(*(np.repeat(np.asarray(a, dtype=float)[None], 100_000, axis=0) for a in (earned, *weights)))


def test_the_mean_is_the_other_rankers_value() -> None:
    """Over every draw and every pattern of clicks; doubly robust with any model."""
    grades, model = np.array([2, 0, 1, 0, 1]), np.array([0.6, 0.3, 0.9])
    for seed in range(4):
        certain, blocks = some_certainty(seed)
        drawn = list(every_draw(certain, blocks, 3, False))
        other = np.array(drawn[-1][0])  # one that can be shown
        chances = Draws(certain, blocks).set_chances(other)
        ips = robust = 0.0
        for ranking, chance in drawn:
            weights = weigh(np.array(ranking), other, chances)
            for clicks, p in cascade(grades[list(ranking)]):
                ips += chance * p * float(weights.here @ clicks)
                robust += chance * p * float(weights.here @ (clicks - model) + weights.above @ model)
        assert ips == pytest.approx(value(grades[other]))
        assert robust == pytest.approx(value(grades[other]))


def test_estimates_are_those_sums() -> None:
    here, above, reach = np.array([2.0, 0.0, 8.0]), np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.25, 0.125])
    earned, other = np.array([1.0, 1.0, 0.5]), np.array([0.6, 0.3, 0.9])
    log = certain_log(earned, here, above, reach)
    ips, normalised, robust = estimates(log)
    assert ips.value == pytest.approx(2.0 + 4.0)
    assert normalised.value == pytest.approx(1.0 + 0.5)
    assert robust.value == pytest.approx(1.0 + 2.0 + 4.0 * 0.5)  # each half knows what the other earned
    odd = np.arange(len(log.earned))[:, None] % 2 == 1
    mixed = Log(np.where(odd, other, log.earned), np.where(odd, 0.0, log.here), log.above, log.reach)
    first, second = 2.0 * 0.4 + 8.0 * -0.4 + 0.6 + 2.0 * 0.3 + 4.0 * 0.9, 1.0 + 2.0 + 4.0 * 0.5
    assert estimates(mixed)[2].value == pytest.approx((first + second) / 2)


@pytest.mark.parametrize("shuffled", [False, True])
def test_interleaving_outcomes_from_a_log(shuffled: bool) -> None:
    """What a draft of two rankings would get, from lists that neither made: over every draw and every click."""
    grades, model, told = np.array([2, 0, 1, 0, 1]), np.array([0.2, -0.1, 0.3]), 0
    for seed in range(6):
        certain, blocks = some_certainty(seed)
        drawn = list(every_draw(certain, blocks, 5, shuffled))
        a, b = np.array(drawn[0][0]), np.array(drawn[-1][0])
        draft = Draft(a, b, 3, Draws(certain, blocks, shuffled=shuffled))
        truth = sum(
            chance * p * float(shown.credit @ clicks)
            for chance, shown in interleaving.lists(a, b, 3)
            for clicks, p in cascade(grades[shown.ranking])
        )
        ips = robust = 0.0
        square = np.zeros(3)
        for ranking, chance in drawn:
            shown = np.array(ranking[:3])
            weights, credit = draft.weigh(shown)
            square += chance * weights.here**2
            for clicks, p in cascade(grades[shown]):
                earned = clicks * credit
                ips += chance * p * float(weights.here @ earned)
                robust += chance * p * float(weights.here @ (earned - model) + weights.above @ model)
        if (weights.reach == 0).any():  # the draft can make lists that ours never does
            continue
        told += 1
        assert ips == pytest.approx(truth)
        assert robust == pytest.approx(truth)
        assert weights.reach == pytest.approx(1.0 / square)
    assert told >= 3


def simulated(seed: int, n: int) -> tuple[Log, float]:
    """Lists of an explorer with three blocks of documents, and what another order within them would have earned."""
    rng = generator(seed, 0, Purpose.CLICKS)
    grades = np.array([1, 2, 0, 0, 1, 0])
    blocks = np.array([0, 0, 1, 1, 2, 2])
    other = np.array([1, 0, 2, 3, 4])
    chances = Draws(np.zeros((6, 6), dtype=bool), blocks).set_chances(other)
    ranked = np.argsort(blocks + rng.random((n, 6)), axis=1, kind="stable")[:, :5]
    kinds, which = np.unique(ranked, axis=0, return_inverse=True)
    weights = np.array([weigh(r, other, chances) for r in kinds])[which.reshape(-1)].transpose(1, 0, 2)
    shown = grades[ranked]
    clicks = rng.random((n, 5)) < CLICK[shown]
    stopped = clicks & (rng.random((n, 5)) < STOP[shown])
    clicks &= np.cumsum(stopped, axis=1) - stopped == 0
    return Log(clicks.astype(float), *weights), value(grades[other])


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    runs = [simulated(seed, 800) for seed in range(200)]
    for method in range(3):
        covered = [lo <= truth <= hi for log, truth in runs for lo, hi in [estimates(log)[method].interval]]
        assert np.mean(covered) >= 0.93 - 2 * np.sqrt(0.05 * 0.95 / 200)
    widths = np.mean([[np.diff(e.interval)[0] for e in estimates(log)] for log, _ in runs[:20]], axis=0)
    assert widths[2] < widths[0]  # a model takes noise out


def test_intervals_know_that_another_log_would_tell_of_other_lists() -> None:
    """Every position earns 1, and of the second one half of the lists tell."""
    told = np.column_stack([np.ones(1000), generator(0, 0, Purpose.DATA).random(1000) < 0.5])
    ips, normalised, robust = estimates(Log(np.ones((1000, 2)), told, told, told))
    for found in (normalised, robust):
        assert found.interval == pytest.approx(ips.interval)
    assert ips.interval[1] - ips.interval[0] == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(1000), rel=0.05)


def test_where_the_log_cannot_tell_it_says_so() -> None:
    log, _ = simulated(0, 2000)
    assert all(e.doubt == "" and e.effective > ENOUGH and e.told == pytest.approx(1.0) for e in estimates(log))
    few, _ = simulated(0, 60)
    assert "worth" in estimates(few)[0].doubt
    reach = log.reach.copy()
    reach[:, 2] = 0.001  # our draw shows the third as seldom as that: from there on nothing can be told
    part = estimates(Log(log.earned, log.here, log.above, reach))[0]
    known = 1 + 1 / np.log2(3)
    assert part.told == pytest.approx(known / (known + 0.5 + 1 / np.log2(5) + 1 / np.log2(6)))
    assert part.value == pytest.approx((log.here[:, :2] * log.earned[:, :2]).sum(axis=1).mean())
    assert "tells of 55 %" in part.doubt
    nothing = estimates(Log(log.earned, 0 * log.here, 0 * log.above, 0 * log.reach))
    assert all(e.value == 0 and e.told == 0 and e.doubt for e in nothing)
    for n in (0, 1, 9, 10):  # clicks in all, which may be chance
        rare = estimates(Log((np.arange(500) < n)[:, None].astype(float), *np.ones((3, 500, 1))))
        assert [e.doubt.startswith(f"all lists but {n} earned the same") for e in rare] == 3 * [n < 10]


@pytest.mark.parametrize(
    ("who", "of_first"),
    [("position(table=informational)", False), ("cascade(table=informational)", True), ("informational", True)],
)
def test_of_which_users_a_list_tells_whatever_the_order_above(who: str, of_first: bool) -> None:
    users = click_models.make(who, n_grades=3)
    coins = generator(0, 0, Purpose.CLICKS).random((20_000, 3, 2))
    one, other = (np.array([users.clicks(np.array(g), each) for each in coins]) for g in ([2, 0, 1], [0, 2, 1]))
    assert one[:, 2].mean() == pytest.approx(other[:, 2].mean(), abs=0.02)
    first, another = ((first_click(clicks) > 0)[:, 2].mean() for clicks in (one, other))
    assert (abs(first - another) < 0.02) == of_first


def test_wrong_input_says_so() -> None:
    log, _ = simulated(0, 10)
    with pytest.raises(InputError, match="shapes"):
        Log(log.earned, log.here[:5], log.above, log.reach)
