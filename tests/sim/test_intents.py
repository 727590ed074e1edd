"""Drift and hostile clicks: who clicks what in which round, and what is judged by which grades."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pairrank import click_models, metrics, rankers, simulate
from pairrank.data import Dataset
from pairrank.rng import Purpose, generator
from pairrank.sim import RunSpec, engine
from pairrank.sim.world import World, regraded, taste

Splits = tuple[Dataset, Dataset]
SPEC = RunSpec(data="x", rounds=400, seed=3, k=5, ideal="", schedule="every:50")


def by_hand(dataset: Dataset, weights: np.ndarray) -> list[int]:
    """Each query's grades, highest first, to its documents by falling score."""
    grades: list[int] = []
    for features, own in dataset.queries():
        scores = features.astype(np.float64) @ weights
        order = sorted(range(len(own)), key=lambda i: -scores[i])
        given = dict(zip(order, sorted(own.tolist(), reverse=True), strict=True))
        grades += [given[i] for i in range(len(own))]
    return grades


def test_a_taste_gives_out_each_querys_own_grades_anew(splits: Splits) -> None:
    for dataset in splits:
        weights = taste(3, dataset.n_features)
        new = regraded(dataset, weights)
        assert new.tolist() == by_hand(dataset, weights)
        for start, stop in zip(dataset.offsets[:-1], dataset.offsets[1:], strict=True):
            assert sorted(new[start:stop]) == sorted(dataset.grades[start:stop])
        assert (new != dataset.grades).any()
        judge = metrics.NDCG(new, dataset.offsets, 10)
        assert judge.mean(dataset.features @ weights) == 1.0, "the taste itself is a linear model of what it wants"


def test_tastes_differ_by_seed_and_are_standard_normal() -> None:
    drawn = np.concatenate([taste(seed, 50) for seed in range(40)])
    assert len(set(drawn.tolist())) == 2000
    assert abs(drawn.mean()) < 4 / np.sqrt(2000)
    assert abs(drawn.std() - 1) < 4 / np.sqrt(4000)
    np.testing.assert_array_equal(taste(7, 12), taste(7, 12))


def test_grades_change_after_the_given_round_and_not_before(splits: Splits) -> None:
    train, _ = splits
    plain = World(replace(SPEC, clicks="perfect"), *splits)
    world = World(replace(SPEC, clicks="perfect(drift=150)"), *splits)
    new = np.array(by_hand(train, taste(3, train.n_features)))
    for t in range(400):
        asked = world.round(t)
        rows = slice(train.offsets[asked.query], train.offsets[asked.query + 1])
        np.testing.assert_array_equal(asked.grades, (train.grades if t < 150 else new)[rows])
        np.testing.assert_array_equal(asked.coins, plain.round(t).coins)
        assert asked.query == plain.round(t).query
    assert not world.attacked.any()


def test_evaluation_follows_the_intent(splits: Splits) -> None:
    train, held_out = splits
    world = World(replace(SPEC, clicks="perfect(drift=150)"), *splits)
    weights = taste(3, train.n_features)
    ranker = rankers.make("sgd-ranknet", n_features=train.n_features)
    ranker._restore(ranker._state() | {"weights": weights})
    old = metrics.NDCG(held_out.grades, held_out.offsets, 10).mean(held_out.features @ weights)
    assert world.held_out_ndcg(ranker, 149) == pytest.approx(old)
    assert old < 0.95
    assert world.held_out_ndcg(ranker, 150) == 1.0
    assert world.cosine(ranker, 150) == pytest.approx(1)
    assert np.isnan(world.cosine(ranker, 149)), "the spec names no ideal for the data's own labels"


def test_records_of_a_drifting_run_equal_those_of_a_plain_loop(splits: Splits) -> None:
    train, held_out = splits
    records = simulate(splits, ranker="pdgd", clicks="navigational(drift=60)", rounds=100, seed=5, schedule="every:20")
    users = click_models.make("navigational", n_grades=3)
    world = World(records.spec, *splits)
    ranker = rankers.make("pdgd", n_features=train.n_features, seed=5)
    new = [np.array(by_hand(d, taste(5, train.n_features))) for d in splits]
    for t in range(100):
        asked = world.round(t)
        everything = (train.grades if t < 60 else new[0])[train.offsets[asked.query] : train.offsets[asked.query + 1]]
        impression = ranker.rank(asked.features, 10)
        shown = everything[impression.ranking]
        best = np.sort(everything)[::-1]
        ideal = metrics.gain(best[:10]) @ metrics.discount(len(best[:10]))
        dcg = metrics.gain(shown) @ metrics.discount(len(shown))
        assert records["online_ndcg"][t] == pytest.approx(dcg / ideal if ideal else 0.0)
        ranker.learn(impression, users.clicks(shown, asked.coins[impression.ranking]))
        if (t + 1) % 20 == 0:
            judge = metrics.NDCG(held_out.grades if t < 60 else new[1], held_out.offsets, 10)
            rng = generator(5, t, Purpose.TIES)
            assert records["ndcg"][t] == judge.mean(ranker.score(held_out.features), rng)


def test_the_first_rounds_of_a_drifting_run_are_those_of_a_plain_one(splits: Splits) -> None:
    plain = simulate(splits, ranker="pairrank", clicks="perfect", rounds=300, seed=1)
    drifting = simulate(splits, ranker="pairrank", clicks="perfect(drift=200)", rounds=300, seed=1)
    for column in ("query", "clicks", "online_ndcg", "regret"):
        np.testing.assert_array_equal(plain[column][:200], drifting[column][:200])
    before, after = drifting["online_ndcg"][180:200].mean(), drifting["online_ndcg"][200:220].mean()
    assert after < before - 0.1


def test_attacks_come_at_the_given_rate_and_larger_shares_contain_smaller(splits: Splits) -> None:
    spec = replace(SPEC, rounds=20_000)
    worlds = [World(replace(spec, clicks=f"informational(hostile={share})"), *splits) for share in (0.1, 0.3)]
    for world, share in zip(worlds, (0.1, 0.3), strict=True):
        assert abs(world.attacked.mean() - share) < 4 * np.sqrt(share * (1 - share) / 20_000)
    assert (worlds[0].attacked <= worlds[1].attacked).all()
    np.testing.assert_array_equal(
        worlds[0].attacked, World(replace(spec, ranker="mgd", clicks="perfect(hostile=0.1)"), *splits).attacked
    )
    other = World(replace(spec, seed=4, clicks="perfect(hostile=0.1)"), *splits)
    assert (other.attacked != worlds[0].attacked).any()


def test_attackers_click_the_worst_and_everything_is_judged_by_true_grades(splits: Splits) -> None:
    world = World(replace(SPEC, clicks="informational(hostile=0.3)"), *splits)
    perfect, informational = (click_models.make(name, n_grades=3) for name in ("perfect", "informational"))
    for t in range(100):
        asked = world.round(t)
        np.testing.assert_array_equal(asked.grades, splits[0].query(asked.query)[1])
        expected = (
            perfect.clicks(2 - asked.grades, asked.coins)
            if world.attacked[t]
            else informational.clicks(asked.grades, asked.coins)
        )
        np.testing.assert_array_equal(world.clicks(t, asked.grades, asked.coins), expected)
    assert 10 < world.attacked[:100].sum() < 60
    assert len(world.intents) == 1


def test_users_who_only_attack_teach_the_reverse(splits: Splits) -> None:
    attacked = simulate(splits, ranker="pairrank", clicks="perfect(hostile=1)", rounds=300)
    plain = simulate(splits, ranker="pairrank", clicks="perfect", rounds=300)
    assert attacked["cosine"][-1] < -0.5 < 0.5 < plain["cosine"][-1]
    assert attacked.ndcg < plain.ndcg - 0.2


def test_ids_tell_such_runs_apart() -> None:
    texts = ["perfect", "perfect(drift=10)", "perfect(drift=11)", "perfect(hostile=0.1)", "perfect(hostile=0.2)"]
    texts.append("perfect(drift=10, hostile=0.1)")
    specs = [RunSpec(data="x", clicks=text) for text in texts]
    assert len({spec.run_id for spec in specs}) == len(texts)
    assert RunSpec(data="x", clicks="perfect(hostile=0.0)").run_id == specs[0].run_id
    assert RunSpec(data="x", clicks="perfect(hostile=0.1, drift=10)").run_id == specs[-1].run_id
    assert all(RunSpec.from_json(spec.to_json()).run_id == spec.run_id for spec in specs)


def test_an_interrupted_run_resumes_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "HEARTBEAT", 0.0)
    spec = replace(SPEC, data="synthetic:tiny", rounds=120, clicks="navigational(drift=60, hostile=0.2)")
    undisturbed = simulate(spec)
    for stop in (40, 60, 61):
        with pytest.raises(KeyboardInterrupt):
            simulate(spec, out=tmp_path, watch=lambda done, stop=stop: done < stop)
    assert simulate(spec, out=tmp_path).to_parquet() == undisturbed.to_parquet()
    assert undisturbed.to_parquet() != simulate(replace(spec, clicks="navigational(drift=60)")).to_parquet()
