"""The fit over files equals the fit in memory, whatever the engine, the cut into files, or an interruption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import pairrank
from pairrank import logs
from pairrank.errors import DataError, LogError, OptionError, StorageError
from pairrank.kernel import pairs
from pairrank.logs import Reason, clicklog, fit, newton, validate
from pairrank.rankers import priors
from pairrank.types import FloatArray
from slow_twins import minimise, pair_hessian

from .conftest import lists

LAM = 2.0


def in_memory(made: list[tuple[np.ndarray, np.ndarray]], kind: str = "shown") -> tuple[FloatArray, FloatArray]:
    take = {
        "averaged": pairs.averaged,
        "shown": pairs.shown,
        "all": pairs.all_pairs,
        "adjacent": pairs.adjacent,
    }[kind]
    found = [(X.astype(np.float64), take(clicks)) for X, clicks in made]
    if kind == "shown":
        found = [(np.column_stack([X, -np.log(np.arange(1, len(X) + 1))]), p) for X, p in found]
    differences = np.concatenate([X[p.winner] - X[p.loser] for X, p in found])
    return differences, np.concatenate([p.weight for _, p in found])


def spread(made: list[tuple[np.ndarray, np.ndarray]]) -> FloatArray:
    """E[(x_i - x_j)²] per feature: over all pairs of a list, then over the lists that have one."""
    squares = [
        np.mean([(x - y) ** 2 for x, y in combinations(X.astype(np.float64), 2)], axis=0) for X, _ in made if len(X) > 1
    ]
    return np.asarray(np.mean(squares, axis=0))


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clicklog, "GROUP_BYTES", 4000)


@pytest.mark.parametrize("kind", ["shown", "averaged", "all", "adjacent"])
@pytest.mark.usefixtures("small_groups")
def test_equals_the_fit_in_memory(kind: str, write: Callable[..., str]) -> None:
    made = lists(400)
    paths = [write("a.parquet", made[:150]), write("b.parquet", made[150:])]
    found = fit(paths, lam=LAM, pairs=kind)
    differences, weight = in_memory(made, kind)
    penalty = LAM * spread(made)
    np.testing.assert_allclose(found.penalty, penalty, rtol=1e-12)
    P = np.diag(np.append(penalty, [1.0] if kind == "shown" else []))
    theta = minimise(differences, weight, P, np.zeros(len(P)))
    assert np.linalg.norm(found.theta - theta[:4]) <= 1e-10 * np.linalg.norm(theta)
    M = P + differences.T @ (weight[:, None] * differences)
    np.testing.assert_allclose(found.M, M[:4, :4], rtol=1e-10, atol=1e-9)
    # The covariance of the weights, whatever the bias of position.
    covariance = np.linalg.inv(pair_hessian(theta, differences, weight, P))[:4, :4]
    np.testing.assert_allclose(np.linalg.inv(found.hessian), covariance, rtol=1e-5, atol=1e-8)
    assert (found.n_lists, found.n_pairs) == (400, len(weight))
    assert found.weight == pytest.approx(weight.sum())
    assert not found.problems


@pytest.mark.parametrize("engine", ["processes", pytest.param("ray", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("small_groups")
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_all_engines_give_the_same_bits(engine: str, write: Callable[..., str]) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
    path = write("a.parquet", lists(300))
    alone, together = fit([path], lam=LAM), fit([path], lam=LAM, engine=engine, workers=2)
    assert alone.theta.tobytes() == together.theta.tobytes()
    assert alone.hessian.tobytes() == together.hessian.tobytes()
    assert alone.M.tobytes() == together.M.tobytes()


@pytest.mark.usefixtures("small_groups")
def test_a_first_guess_saves_passes_and_changes_nothing(
    write: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a.parquet", lists(1500))
    guessed = fit([path], lam=LAM)
    monkeypatch.setattr(newton, "SAMPLE", 10**9)
    plain = fit([path], lam=LAM)
    assert guessed.passes < plain.passes
    np.testing.assert_allclose(guessed.theta, plain.theta, rtol=1e-10)


@pytest.mark.usefixtures("small_groups")
def test_an_interrupted_fit_resumes(write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, checkpoint = write("a.parquet", lists(200)), str(tmp_path / "checkpoint")
    whole = fit([path], lam=LAM)
    seen: list[str] = []

    def interrupt(what: str, done: int, total: int) -> None:
        seen.append(what)
        if what == "pass 3":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit([path], lam=LAM, checkpoint=checkpoint, progress=interrupt)
    assert Path(checkpoint).exists()
    with pytest.raises(OptionError, match="another fit"):
        fit([path], lam=LAM + 1, checkpoint=checkpoint)
    seen.clear()
    (tmp_path / "again").mkdir()  # event logs and stores are joined anew in a folder of another name
    path = str(Path(path).rename(tmp_path / "again" / "a.parquet"))
    resumed = fit([path], lam=LAM, checkpoint=checkpoint, progress=lambda what, *_: seen.append(what))
    assert seen[0] == "pass 3"
    assert resumed.theta.tobytes() == whole.theta.tobytes()
    assert resumed.M.tobytes() == whole.M.tobytes()
    assert (resumed.n_pairs, resumed.passes) == (whole.n_pairs, whole.passes)
    assert not Path(checkpoint).exists()


def test_long_steps_are_halved(write: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = [(100 * X, clicks) for X, clicks in lists(60)]
    found = fit([write("a.parquet", made)], lam=1e-9, pairs="all")
    differences, weight = in_memory(made, "all")
    theta = minimise(differences, weight, np.diag(found.penalty), np.zeros(4))
    np.testing.assert_allclose(found.theta, theta, rtol=1e-8)
    monkeypatch.setattr(newton, "MAX_PASSES", 2)
    with pytest.raises(pairrank.errors.PairRankError, match="no minimum"):
        fit([write("b.parquet", made)], lam=1e-9, pairs="all")


def test_locked_positions_teach_nothing(write: Callable[..., str]) -> None:
    made = lists(200)
    tails = [(X[2:], clicks[2:]) for X, clicks in made if len(X) > 2]
    for kind in ("averaged", "adjacent"):
        whole = fit([write("b.parquet", made, locked=2)], pairs=kind)
        differences, weight = in_memory(tails, kind)
        assert whole.n_pairs == len(weight)
        theta = minimise(differences, weight, np.diag(whole.penalty), np.zeros(4))
        np.testing.assert_allclose(whole.theta, theta, rtol=1e-9)


def test_the_result_continues_online(write: Callable[..., str]) -> None:
    made = lists(300)
    ranker = pairrank.PairRank(4)
    found = fit([write("a.parquet", made)])
    found.prior().apply(ranker)
    np.testing.assert_array_equal(ranker.weights, found.theta)
    X, rng = made[0][0], np.random.default_rng(9)
    before = np.linalg.inv(found.hessian)
    for number in range(20):
        impression = ranker.rank(rng.normal(size=(8, 4)))
        ranker.learn(impression, rng.random(8) < 0.5)
        assert impression.number == number
    assert not np.array_equal(ranker.weights, found.theta)
    assert (ranker.uncertainty() < np.sqrt(np.diagonal(before))).all()
    again = pairrank.PairRank.from_bytes(ranker.to_bytes())
    np.testing.assert_array_equal(again.score(X), ranker.score(X))


def test_nothing_to_learn_from(write: Callable[..., str], tmp_path: Path) -> None:
    path = write("a.parquet", [(X, np.zeros(len(X), dtype=bool)) for X, _ in lists(5)])
    with pytest.raises(DataError, match="no pair"):
        fit([path])
    with pytest.raises(StorageError, match="no such file"):
        fit([str(tmp_path / "absent.parquet")])
    with pytest.raises(DataError, match="no list"):
        fit([])


def test_wrong_options(write: Callable[..., str]) -> None:
    path = write("a.parquet", lists(5))
    for options in ({"lam": 1e-20}, {"pairs": "matched"}, {"engine": "spark"}, {"workers": 0}, {"on_error": "cry"}):
        with pytest.raises(OptionError):
            fit([path], **options)  # type: ignore[arg-type]


def test_on_error_stop(write: Callable[..., str]) -> None:
    made = lists(20)
    made[7][0][0, 0] = np.nan
    path = write("a.parquet", made)
    with pytest.raises(LogError, match="row 7"):
        fit([path], on_error="stop")
    assert fit([path]).problems.counts == {Reason.NOT_FINITE: 1}
    problems, n_lists, _ = validate([path])
    assert (problems.counts, n_lists) == ({Reason.NOT_FINITE: 1}, 19)


def test_a_share_of_a_fit(write: Callable[..., str]) -> None:
    found = fit([write("a.parquet", lists(300))], lam=LAM)
    whole, same = found.prior(), found.prior(found.weight)
    np.testing.assert_allclose(same.mean, whole.mean, rtol=1e-8)
    np.testing.assert_allclose(same.precision, whole.precision, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(same.M, whole.M, rtol=1e-9, atol=1e-9)
    tenth = found.prior(found.weight / 10)
    # The minimiser of a tenth of the pairs' quadratic model at θ̂, whose gradient there is -Λθ̂, and the penalty.
    J = found.hessian - np.diag(found.penalty)
    gradient = 0.1 * (J @ (tenth.mean - found.theta) - found.penalty * found.theta) + found.penalty * tenth.mean
    np.testing.assert_allclose(gradient, 0.0, atol=1e-9)


def test_a_log_teaches_what_the_same_lists_teach_online(tmp_path: Path) -> None:
    shower, rng = pairrank.PairRank(4, tolerance=0.0), np.random.default_rng(5)
    shown = [(shower.rank(rng.normal(size=(9, 4)), k=6), rng.random(6) < 0.4) for _ in range(150)]
    pages = [(seen.with_features(seen.features, above=np.array(6)), clicks) for seen, clicks in shown[::3]]
    shown[::3] = pages  # lists that went on where others had ended
    with clicklog.Writer(tmp_path / "log.parquet", 4) as writer:
        for number, (impression, clicks) in enumerate(shown):
            above = int(impression.memory.get("above", 0))
            writer.add("q", float(number), list("abcdef"), impression.features, clicks, above=above)
    found = fit([str(tmp_path / "log.parquet")])
    online = pairrank.PairRank(4, tolerance=0.0)
    online.set_prior(np.zeros(4), np.diag(found.penalty))
    for impression, clicks in shown:
        online.learn(impression, clicks)
    np.testing.assert_allclose(found.theta, online.weights, rtol=1e-6, atol=1e-9)
    again = pairrank.PairRank(4)
    found.prior().apply(again)
    np.testing.assert_allclose(again.uncertainty(), online.uncertainty(), rtol=0.02)


UNITS = np.array([1e-6, 1e6, 1.0, 3e4])


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("kind", ["shown", "averaged", "all", "adjacent"])
def test_units_and_constants_do_not_matter(kind: str, write: Callable[..., str]) -> None:
    made, rng = lists(400), np.random.default_rng(3)
    plain = fit([write("a.parquet", made)], pairs=kind)
    other = [((X + rng.integers(-(10**8), 10**8, size=4)) * UNITS, clicks) for X, clicks in made]
    # 1e8 leaves 8 digits, and the unit 1e6 would take it beyond what is accepted.
    other = [(np.where(UNITS > 10, (X * UNITS), Y), clicks) for (X, clicks), (Y, _) in zip(made, other, strict=True)]
    found = fit([write("b.parquet", other)], pairs=kind)
    np.testing.assert_allclose(found.theta * UNITS, plain.theta, rtol=1e-5, atol=1e-6)
    assert found.passes == plain.passes
    again = pairrank.PairRank(4)
    found.prior(100.0).apply(again)
    np.testing.assert_allclose(again.weights * UNITS, plain.prior(100.0).mean, rtol=1e-5, atol=1e-6)


def test_a_feature_that_never_varies_changes_nothing(write: Callable[..., str]) -> None:
    made = lists(100)
    plain = fit([write("a.parquet", made)])
    same = fit([write("b.parquet", [(np.where([1, 1, 1, 0], X, 1e9 / 7), clicks) for X, clicks in made])])
    assert same.theta[3] == 0.0
    assert np.isfinite(same.hessian).all()
    # The fourth feature taught next to nothing: THETA has a 0 there.
    np.testing.assert_allclose(same.theta[:3], plain.theta[:3], atol=0.1)


@pytest.mark.parametrize("model", ["linear", "additive"])
@pytest.mark.parametrize("value", [0.0, 1.7e12])
def test_a_wrong_value_spoils_no_more_than_its_list(model: str, value: float, write: Callable[..., str]) -> None:
    """A date of 0, or in milliseconds, among seconds since 1970; with it scores hardly knew the feature any more."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(1000):
        X = np.column_stack([1.7e9 + 1e5 * rng.random(8), rng.random((8, 3))])
        made.append((X, rng.random(8) < 1.0 / (1.0 + np.exp(3.0 - 3e-5 * (X[:, 0] - 1.7e9) - X[:, 1]))))
    right = write("right.parquet", made)
    made[7][0][3, 0] = value
    wrong = write("wrong.parquet", made)
    clean, found = fit([right], model=model), fit([wrong], model=model)
    np.testing.assert_allclose(found.units.units[:4], clean.units.units[:4], rtol=0.05)
    ends = np.array([[1.7e9, 0.5, 0.5, 0.5], [1.7e9 + 1e5, 0.5, 0.5, 0.5]])
    (low, high), (far_low, far_high) = (one.units.columns(ends) @ one.theta for one in (clean, found))
    assert far_high - far_low == pytest.approx(high - low, rel=0.25 if model == "linear" else 0.6)
    assert found.theta[1] == pytest.approx(clean.theta[1], rel=0.15)
    np.testing.assert_allclose(logs.spread([wrong]), logs.spread([right]), rtol=0.05)


@pytest.mark.parametrize("stopped", ["pass 2", "pass 4"])
@pytest.mark.usefixtures("small_groups")
def test_a_fit_of_lists_with_gaps_and_wrong_values_resumes(
    stopped: str, write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is usual is of some lists, and after the pieces are laid others are good."""
    monkeypatch.setattr(newton, "LISTS", 40)
    made = [(X, clicks) for X, clicks in lists(300) if len(X) > 3][:150]
    for number, row, feature, value in [(11, 0, 1, np.nan), (13, 1, 2, np.nan), (30, 0, 3, 1e5), (33, 1, 3, 150.0)]:
        made[number][0][row, feature] = value
    path, checkpoint = write("a.parquet", made), str(tmp_path / "checkpoint")
    whole = fit([path], lam=LAM, model="additive")

    def interrupt(what: str, *_: int) -> None:
        if what == stopped:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit([path], lam=LAM, model="additive", checkpoint=checkpoint, progress=interrupt)
    resumed = fit([path], lam=LAM, model="additive", checkpoint=checkpoint)
    assert resumed.theta.tobytes() == whole.theta.tobytes()


@pytest.mark.parametrize(("on_error", "sentence"), [("skip", "no pair to learn from"), ("stop", "bad rows")])
def test_a_log_without_a_good_list_tells_why(on_error: str, sentence: str, write: Callable[..., str]) -> None:
    path = write("a.parquet", [(np.full_like(X, np.nan), clicks) for X, clicks in lists(3)])
    with pytest.raises(LogError, match=f"(?s){sentence}.* 3  not-finite"):
        fit([path], on_error=on_error)
    assert logs.spread([path]).tolist() == [1.0] * 4


@pytest.mark.parametrize("model", ["linear", "additive"])
@pytest.mark.parametrize("source", ["logs", "labels"])
def test_a_feature_that_never_varied_gets_its_unit_when_it_does(
    source: str, model: str, write: Callable[..., str]
) -> None:
    known = [(X * [1, 1, 1, 0], clicks) for X, clicks in lists(80)]
    if source == "logs":
        prior = fit([write("log.parquet", known)], model=model).prior()
    else:
        rows, clicks = map(np.concatenate, zip(*known, strict=True))
        offsets = np.cumsum([0, *(len(X) for X, _ in known)])
        prior = priors.from_labels(rows, clicks.astype(np.int64), offsets, model=model)
    learned = []
    for unit in (1.0, 1e-4, 1e6):
        ranker = pairrank.PairRank(4, model=model)
        prior.apply(ranker)
        for X, clicks in lists(30, seed=1):
            shown = ranker.rank(X * [1, 1, 1, unit], explore=False)
            ranker.learn(replace(shown, locked=0), clicks[shown.ranking])
        learned.append(ranker.score(X * [1, 1, 1, unit]))
    np.testing.assert_allclose(learned[1:], [learned[0]] * 2, atol=1e-6)
