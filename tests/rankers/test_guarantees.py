"""What every ranker promises: units do not matter, a failed step leaves no trace, and a log can stand for the lists."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import pairrank
from pairrank.errors import ClickError, FeatureError, LearningError, OptionError
from pairrank.rankers import LinearRanker, Ranker, make, names
from pairrank.rankers.pairrank import options as pairrank_options
from pairrank.types import FloatArray, Impression

D, N, K = 4, 9, 5
IDEAL = np.array([1.0, -1.0, 0.5, 0.0])
Log = list[tuple[Impression, np.ndarray]]


def candidates(rng: np.random.Generator) -> FloatArray:
    return rng.integers(0, 1024, size=(N, D)) / 1024


def clicks_on(X: FloatArray, impression: Impression, rng: np.random.Generator) -> np.ndarray:
    return rng.random(len(impression)) < 1 / (1 + np.exp(-4 * (X[impression.ranking] - 0.5) @ IDEAL))


def lists(ranker: Ranker, rounds: int, scale: FloatArray, offset: float) -> tuple[list[list[int]], FloatArray]:
    """The rankings shown in a run whose users see the same documents, whatever the features are measured in."""
    rng, found = np.random.default_rng(5), []
    for _ in range(rounds):
        X, shift = candidates(rng), np.floor(offset * rng.uniform(-1, 1, size=D))
        impression = ranker.rank(scale * X + shift, K)
        ranker.learn(impression, clicks_on(X, impression, rng))
        found.append(impression.ranking.tolist())
    scores = ranker.score(scale * X + shift)
    assert np.isfinite(scores).all()
    return found, scores


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize(
    ("scale", "offset"),
    [
        (np.full(D, 1e-6), 0.0),
        (np.full(D, 1e6), 0.0),
        (np.array([1e-6, 1e-3, 1e3, 1e6]), 0.0),
        (np.ones(D), 1e8),
        (np.array([1.0, 2.0**6, 2.0**12, 2.0**35]), 1e8),  # the last as times in milliseconds
    ],
    ids=["tiny", "huge", "mixed", "offsets", "both"],
)
def test_units_and_offsets_do_not_matter(name: str, scale: FloatArray, offset: float) -> None:
    rounds = 200
    plain, _ = lists(make(name, n_features=D, seed=3), rounds, np.ones(D), 0.0)
    # The offsets' draws must be made in both runs, so that the users are the same.
    other, _ = lists(make(name, n_features=D, seed=3), rounds, scale, offset)
    assert other == plain


def play(ranker: Ranker, rounds: int, seed: int = 0, **ranking: Any) -> Log:
    """Rounds with late feedback that comes out of order; the log is in the order of learning."""
    rng, log, waiting = np.random.default_rng(seed), [], []
    for _ in range(rounds):
        X = candidates(rng)
        impression = ranker.rank(X, K, **ranking)
        waiting.append((impression, clicks_on(X, impression, rng)))
        while len(waiting) > rng.integers(0, 6):
            entry = waiting.pop(int(rng.integers(len(waiting))))
            ranker.learn(*entry)
            log.append(entry)
    for entry in waiting:
        ranker.learn(*entry)
        log.append(entry)
    return log


def next_lists(ranker: Ranker, n: int) -> list[list[int]]:
    rng = np.random.default_rng(77)
    return [ranker.rank(candidates(rng), K).ranking.tolist() for _ in range(n)]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("rounds", [5, 100])
def test_a_step_that_fails_leaves_no_trace(name: str, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker, twin = make(name, n_features=D, seed=1), make(name, n_features=D, seed=1)
    play(ranker, rounds)
    play(twin, rounds)
    X = candidates(np.random.default_rng(9))
    impression = ranker.rank(X, K)
    assert np.array_equal(twin.rank(X, K).ranking, impression.ranking)
    learn, before, whole = type(ranker)._learn, ranker.digest(), ranker.to_bytes()
    clicks = [False, True, False, True, False]
    for error, seen in (
        (FloatingPointError, LearningError),
        (np.linalg.LinAlgError, LearningError),
        (KeyError, KeyError),
    ):

        def fail(self: Ranker, impression: Impression, clicks: np.ndarray, error: type[Exception] = error) -> None:
            learn(self, impression, clicks)  # all the work is done, and then
            raise error("no")

        with monkeypatch.context() as patch:
            patch.setattr(type(ranker), "_learn", fail)
            with pytest.raises(seen):
                ranker.learn(impression, clicks)
        assert ranker.digest() == before
        assert ranker.to_bytes() == whole
    assert ranker.learn(impression, clicks)
    assert twin.learn(impression, clicks)
    play(ranker, 20, seed=4)
    play(twin, 20, seed=4)
    assert ranker.to_bytes() == twin.to_bytes()
    assert next_lists(ranker, 20) == next_lists(twin, 20)


def test_weights_that_are_not_finite_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = make("sgd-ranknet", n_features=D)
    assert isinstance(ranker, LinearRanker)
    impression = ranker.rank(candidates(np.random.default_rng(0)))
    before = ranker.digest()

    def spoil(self: LinearRanker, impression: Impression, clicks: np.ndarray) -> None:
        self._weights = np.full(D, np.nan)

    with monkeypatch.context() as patch:
        patch.setattr(type(ranker), "_learn", spoil)
        with pytest.raises(LearningError, match="finite"):
            ranker.learn(impression, np.arange(N) == 1)
    assert ranker.digest() == before


@pytest.mark.parametrize("rounds", [10, 64, 65, 200])
@pytest.mark.parametrize("ranking", [{}, {"locked": 2}], ids=["free", "locked"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pairrank", {}),
        ("pairrank", {"half_life": 30.0}),
        ("pairrank-c", {}),
        ("pairrank", {"pairs": "matched"}),
        ("p2linrank", {}),
        ("posterior-sampling", {}),
        ("pdgd", {}),
    ],
    ids=str,
)
def test_what_is_left_out_is_recalled_to_the_bit(
    name: str, options: dict[str, Any], ranking: dict[str, Any], rounds: int
) -> None:
    ranker = make(name, n_features=D, seed=2, **options)
    log = play(ranker, rounds, **ranking)
    small = ranker.to_bytes(history=False)
    other = type(ranker).from_bytes(small)
    assert other.digest() == ranker.digest()
    assert next_lists(type(ranker).from_bytes(small), 20) == next_lists(type(ranker).from_bytes(ranker.to_bytes()), 20)
    if any(other._left_out):
        with pytest.raises(OptionError, match="recall"):
            other.learn(other.rank(candidates(np.random.default_rng(0)), K, number=10**6), np.arange(K) == 1)
        other = type(ranker).from_bytes(small)
    foreign = ranker.rank(candidates(np.random.default_rng(0)), K, number=10**6)  # shown, never learned
    ranker = type(ranker).from_bytes(ranker.to_bytes())
    other.rank(foreign.features, K, number=10**6)
    other.recall([(foreign, np.arange(K) == 1), *reversed(log)])
    assert other.to_bytes() == ranker.to_bytes()
    play(other, 80, seed=8)
    play(ranker, 80, seed=8)
    assert other.to_bytes() == ranker.to_bytes()


@pytest.mark.parametrize("name", names())
def test_lists_of_one_document_take_no_room(name: str) -> None:
    """However many there are before units are settled; a log gives back the lists beside them."""
    ranker, rng, log = make(name, n_features=D, seed=2), np.random.default_rng(0), []
    for number in range(200):
        impression = ranker.rank(candidates(rng)[: 1 if number % 2 else N], K if number < 12 else 1)
        log.append((impression, np.arange(len(impression)) == 0))
        ranker.learn(*log[-1])
        if number in (9, 30):
            other = type(ranker).from_bytes(ranker.to_bytes(history=False))
            assert other.recall(reversed(log))
            assert other.to_bytes() == ranker.to_bytes()
    assert not isinstance(ranker, LinearRanker) or len(ranker._first) <= 64


@pytest.mark.parametrize("name", names())
def test_a_file_outlives_its_defaults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = make(name, n_features=D, seed=6)
    play(ranker, 80)
    blob, settings, digest, expected = ranker.to_bytes(), ranker.settings, ranker.digest(), next_lists(ranker, 1000)
    other = {
        **{"exploration": "random", "pairs": "all", "offsets": False, "width": "score", "alpha": 0.9, "z": 3.0},
        **{"lam": 77.0, "units": "range", "loss": "sum", "Q": 2.0, "refine": False, "half_life": 9.0, "delta1": 0.5},
        **{"c_mu": 0.1, "tolerance": 0.5},
    }
    assert set(other) == set(pairrank_options.PRESETS["best"])
    monkeypatch.setattr(pairrank_options, "PRESETS", dict.fromkeys(pairrank_options.PRESETS, other))
    cls = type(ranker)
    kept = dict(cls.__init__.__kwdefaults__ or {})
    for option, value in settings.items():  # numbers of today's kind, all of them different
        if option in kept and isinstance(value, float) and not isinstance(value, bool):
            kept[option] = 0.5 * value
    monkeypatch.setattr(cls.__init__, "__kwdefaults__", kept)
    changed = [value for value in settings.values() if isinstance(value, float)]
    assert not changed or make(name, n_features=D, seed=6).settings != settings
    again = cls.from_bytes(blob)
    assert again.settings == settings
    assert again.digest() == digest
    assert next_lists(again, 1000) == expected


@pytest.mark.parametrize("name", ["pairrank", "pdgd", "mgd"])
def test_eight_threads_lose_nothing(name: str) -> None:
    ranker = make(name, n_features=D)

    def work(seed: int) -> list[int]:
        rng, numbers = np.random.default_rng(seed), []
        for _ in range(50):
            X = candidates(rng)
            impression = ranker.rank(X, K)
            assert ranker.learn(impression, clicks_on(X, impression, rng))
            assert not ranker.learn(impression, np.ones(K))
            numbers.append(impression.number)
        return numbers

    with ThreadPoolExecutor(8) as pool:
        numbers = [number for part in pool.map(work, range(8)) for number in part]
    assert sorted(numbers) == list(range(400))
    assert ranker.n_ranked == 400
    assert all(number in ranker._learned for number in numbers)
    assert np.isfinite(ranker.score(np.eye(D))).all()


def test_the_bias_of_position_is_found() -> None:
    """Users who examine position r with probability 1/r, and click what they examine by its relevance, seldom.

    For documents that are clicked with chances c_i, c_j where they are examined with e_p, e_q, the odds of the upper
    one are e_p c_i (1 - e_q c_j) : e_q c_j (1 - e_p c_i), and so close to (q/p)(c_i/c_j) as long as c is small.
    """
    ranker, rng = pairrank.PairRank(D, seed=1), np.random.default_rng(1)
    assert pairrank.PairRank(D, offsets=False).position_bias() == (0.0, 0.0)
    assert ranker.position_bias() == (0.0, 1.0)
    for _ in range(3000):
        X = rng.random((N, D))
        impression = ranker.rank(X, K)
        chance = 0.1 * np.exp(0.5 * (X[impression.ranking] - 0.5) @ IDEAL / np.linalg.norm(IDEAL))
        ranker.learn(impression, rng.random(K) < chance / np.arange(1, K + 1))
    beta, deviation = ranker.position_bias()
    assert 0.0 < deviation < 0.2
    assert abs(beta - 1.0) < 3 * deviation


@pytest.mark.parametrize("name", names())
def test_many_lists_at_once_are_as_one_by_one(name: str) -> None:
    rng = np.random.default_rng(2)
    alone, together = make(name, n_features=D, seed=4), make(name, n_features=D, seed=4)
    for _ in range(2):
        documents = [rng.random((n, D)) for n in (N, 1, 20, 3)] * 3
        one_by_one = [alone.rank(X, K) for X in documents]
        at_once = together.rank_many(iter(documents), K)
        assert [i.to_bytes() for i in at_once] == [i.to_bytes() for i in one_by_one]
        clicks = [rng.random(len(impression)) < 0.3 for impression in at_once]
        twice = [*at_once, at_once[0]]
        answers = [alone.learn(i, c) for i, c in zip(twice, [*clicks, clicks[0]], strict=True)]
        assert together.learn_many(twice, [*clicks, clicks[0]]) == answers
        assert answers[-1] is False
        assert together.to_bytes() == alone.to_bytes()


def test_of_many_lists_those_before_a_wrong_one_count() -> None:
    ranker, twin = make("pairrank", n_features=D), make("pairrank", n_features=D)
    X = np.eye(D)
    with pytest.raises(FeatureError):
        ranker.rank_many([X, X, X[:, :2], X])
    assert ranker.n_ranked == 2
    shown, clicks = ranker.rank_many([X, X, X]), [True, False, False, False]
    with pytest.raises(ClickError, match="3 impressions came with clicks for 2"):
        ranker.learn_many(shown, [clicks, clicks])
    with pytest.raises(ClickError):
        ranker.learn_many(shown, [clicks, clicks[:2], clicks])
    twin.learn(shown[0], clicks)
    assert ranker.weights.tolist() == twin.weights.tolist() != [0.0] * D
    assert ranker.learn_many(shown, [clicks] * 3) == [False, True, True]
