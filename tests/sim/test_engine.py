from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise
from math import log2
from typing import Any

import numpy as np
import pytest

from pairrank import metrics, rankers, simulate
from pairrank.data import Dataset
from pairrank.rng import Purpose, generator
from pairrank.sim import RunSpec, engine
from pairrank.sim.world import Coins, World, taught

Splits = tuple[Dataset, Dataset]


def slow_ndcg(shown: list[int], everything: list[int]) -> float:
    def dcg(listed: list[int]) -> float:
        return sum((2**g - 1) / log2(r + 1) for r, g in enumerate(listed[:10], start=1))

    ideal = dcg(sorted(everything)[::-1])
    return dcg(shown) / ideal if ideal else 0.0


@pytest.mark.parametrize("name", ["pdgd", "pairrank-c", "sgd-ranknet"])
def test_records_equal_a_plain_loop(splits: Splits, name: str) -> None:
    """The same run written out slowly, with brute force for every number."""
    train, held_out = splits
    records = simulate(splits, ranker=name, clicks="informational", rounds=60, seed=5, k=4, schedule="every:20")
    world = World(records.spec, train, held_out)
    ranker = rankers.make(name, n_features=train.n_features, seed=5)
    for t in range(60):
        asked = world.round(t)
        features, grades = train.query(asked.query)
        impression = ranker.rank(features, 4)
        clicks = world.users.clicks(grades[impression.ranking], asked.coins[impression.ranking])
        shown = impression.ranking.tolist()
        scores = ranker.score(features)
        rest = sorted(set(range(len(grades))) - set(shown), key=lambda i: (-scores[i], asked.lots[i]))
        listed = grades[[*shown, *rest]].tolist()
        assert records["query"][t] == asked.query
        assert records["clicks"][t] == clicks.sum()
        assert records["online_ndcg"][t] == pytest.approx(slow_ndcg(grades[shown].tolist(), grades.tolist()))
        assert records["regret"][t] == sum(a < b for a, b in combinations(listed, 2))
        ranker.learn(impression, clicks)
        if (t + 1) % 20 == 0:
            evaluator = metrics.NDCG(held_out.grades, held_out.offsets, 10)
            rng = generator(5, t, Purpose.TIES)
            expected = evaluator.mean(ranker.score(held_out.features), rng)
            assert records["ndcg"][t] == expected
        else:
            assert np.isnan(records["ndcg"][t])
    assert records.cndcg == pytest.approx(sum(0.9995**t * v for t, v in enumerate(records["online_ndcg"])))
    assert records.ndcg == records["ndcg"][-1]
    assert records.regret == records["regret"].sum()
    assert records["regret"].sum() > 0
    assert set(records.seconds) == {"rank", "users", "learn", "evaluate"}


def test_all_rankers_of_a_seed_meet_the_same_queries_and_coins(splits: Splits) -> None:
    spec = RunSpec(data="x", rounds=300, seed=3, ideal="")
    one = World(spec, *splits)
    other = World(replace(spec, ranker="mgd", clicks="perfect", rounds=290, k=3), *splits)
    for t in (0, 1, 127, 128, 129, 289, 5):
        a, b = one.round(t), other.round(t)
        assert a.query == b.query
        np.testing.assert_array_equal(a.coins, b.coins)
        np.testing.assert_array_equal(a.lots, b.lots)
    stranger = World(replace(spec, seed=4), *splits)
    assert (stranger.queries != one.queries).any()
    sizes = np.diff(stranger.train.offsets)
    alike = [t for t in range(300) if sizes[stranger.queries[t]] == sizes[one.queries[t]]]
    assert alike
    assert not any((stranger.round(t).coins == one.round(t).coins).any() for t in alike)


def test_queries_are_uniform_and_coins_differ_from_round_to_round(splits: Splits) -> None:
    world = World(RunSpec(data="x", rounds=6000, ideal=""), *splits)
    counts = np.bincount(world.queries, minlength=world.train.n_queries)
    expected = 6000 / world.train.n_queries
    assert ((counts - expected) ** 2 / expected).sum() < 35, "chi-squared with 11 degrees of freedom, p = 0.0002"
    coins = Coins(0, np.full(400, 3))
    assert len({coins.of(t).tobytes() for t in range(400)}) == 400


def test_a_ranker_that_knows_nothing_gains_nothing_from_sorted_files(splits: Splits) -> None:
    """Documents lie worst first (and best first in the mirror): zero weights must score the same on both."""
    train, held_out = splits
    backwards = np.concatenate([np.arange(b - 1, a - 1, -1) for a, b in pairwise(held_out.offsets)])
    mirror = replace(held_out, features=held_out.features[backwards], grades=held_out.grades[backwards])
    ranker = rankers.make("sgd-ranknet", n_features=train.n_features)
    means = []
    for dataset in (held_out, mirror):
        world = World(RunSpec(data="x", ideal=""), train, dataset)
        means.append(np.mean([world.held_out_ndcg(ranker, t) for t in range(300)]))
    assert means[0] == pytest.approx(means[1], abs=0.02)
    in_order = metrics.NDCG(mirror.grades, mirror.offsets).mean(np.zeros(len(mirror.grades)))
    assert in_order == 1.0


def test_block_statistics_are_means_over_the_panel(splits: Splits) -> None:
    records = simulate(splits, ranker="pairrank-c", rounds=30, seed=1, panel=5, schedule="every:10")
    world = World(records.spec, *splits)
    ranker = rankers.make("pairrank-c", n_features=4, seed=1)
    for t in range(30):
        asked = world.round(t)
        impression = ranker.rank(asked.features, 10)
        ranker.learn(impression, world.users.clicks(asked.grades[impression.ranking], asked.coins[impression.ranking]))
    sizes = [ranker.inspect(world.train.query(q)[0]).block_sizes for q in world.panel]
    assert len(set(world.panel)) == 5
    assert records["n_blocks"][-1] == pytest.approx(np.mean([len(s) for s in sizes]))
    for rank in (1, 5, 10):
        at = [metrics.block_size_by_rank(s)[rank - 1] for s in sizes if s.sum() >= rank]
        assert records[f"block_at_{rank}"][-1] == pytest.approx(np.mean(at))
    assert set(records.profiles) == {10, 30}
    assert len(records.profiles[30]) == max(s.sum() for s in sizes)


@pytest.mark.parametrize("name", ["pairrank", "pdgd", "pairrank(model=additive)"])
def test_models_are_judged_together_as_one_by_one(
    splits: Splits, name: str, monkeypatch: pytest.MonkeyPatch, held_out: Dataset
) -> None:
    """Whether they wait for each other, and how many do, changes no bit."""
    data = (splits[0], held_out)
    together = simulate(data, ranker=name, rounds=80, schedule="every:5")
    monkeypatch.setattr(World, "models_together", 3)
    by_threes = simulate(data, ranker=name, rounds=80, schedule="every:5")
    monkeypatch.setattr(engine, "frozen", lambda ranker: None)
    alone = simulate(data, ranker=name, rounds=80, schedule="every:5")
    assert len(np.unique(alone["ndcg"][4::5])) > 5
    for other in (by_threes, alone):
        np.testing.assert_array_equal(other["ndcg"], together["ndcg"])
        np.testing.assert_array_equal(other["regret"], together["regret"])


@pytest.mark.parametrize("name", ["pairrank", "pairrank-c(alpha=0.5)", "pairrank-r"])
def test_block_sizes_are_those_of_an_inspection(splits: Splits, name: str) -> None:
    ranker, train = rankers.make(name, n_features=4, seed=1), splits[0]
    for t in range(60):
        features, grades = train.query(t % train.n_queries)
        sizes = ranker.block_sizes(features)
        assert sizes is not None
        assert sizes.tolist() == ranker.inspect(features).block_sizes.tolist()
        impression = ranker.rank(features, 10)
        ranker.learn(impression, grades[impression.ranking] > 0)
    assert len(sizes) > 1, "something is certain by now"


def test_rankers_without_blocks_have_none(splits: Splits) -> None:
    records = simulate(splits, ranker="pdgd", rounds=5)
    assert np.isnan(records["n_blocks"]).all()
    assert records.profiles == {}


def test_the_offline_ranker_is_taught_by_labels_and_is_its_own_ideal(splits: Splits) -> None:
    records = simulate(splits, ranker="offline-ranknet", rounds=10)
    assert records["cosine"][0] == pytest.approx(1)
    assert records.ndcg > 0.9
    assert simulate(splits, ranker="pdgd", rounds=10).ndcg < records.ndcg


@pytest.mark.parametrize("options", [{}, {"model": "additive"}, {"l2": 0.1, "monotone": {0: 1}}])
def test_one_fit_serves_all_seeds_to_the_bit(
    splits: Splits, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = splits[0]
    fresh, *own = (rankers.make("offline-ranknet", n_features=4, seed=seed, **options) for seed in (2, 3, 4))
    fitted = [ranker.fit(train.features, train.grades, train.offsets).to_bytes() for ranker in own]
    taught(fresh, train)
    monkeypatch.delattr(type(fresh), "fit")
    others = [rankers.make("offline-ranknet", n_features=4, seed=seed, **options) for seed in (3, 4)]
    assert [taught(ranker, train).to_bytes() for ranker in others] == fitted


def test_cosine_prefers_known_weights(splits: Splits) -> None:
    train, held_out = splits
    theta = np.array([1.0, -1.0, 0.0, 0.5])
    ranker = rankers.make("sgd-ranknet", n_features=4)
    known = replace(train, theta=theta)
    world = World(RunSpec(data="x"), known, held_out)
    assert world.intent(0).ideal is known.theta
    assert np.isnan(world.cosine(ranker, 0)), "zero weights point nowhere"
    assert World(RunSpec(data="x", ideal=""), train, held_out).intent(0).ideal is None


def test_learning_helps(splits: Splits) -> None:
    records = simulate(splits, ranker="pairrank", clicks="perfect", rounds=400)
    assert records.ndcg > 0.9
    assert records["regret"][-100:].sum() < records["regret"][:100].sum()
