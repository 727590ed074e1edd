"""Additive models from logs: the exact minimiser on mapped features, bent where the log says so; it goes on online."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pairrank
from pairrank import export
from pairrank.cli import main
from pairrank.errors import OptionError
from pairrank.features.additive import Additive
from pairrank.kernel import pairs
from pairrank.logs import Fit, Reason, clicklog, fit, newton, validate
from pairrank.rankers import priors
from pairrank.rankers.pairrank import PairRank
from slow_twins import minimise

Lists = list[tuple[np.ndarray, np.ndarray]]
RANKER = "pairrank(model=additive)"


def bent_lists(n: int, seed: int = 0) -> Lists:
    """Lists of eight documents of four features; what is liked is the middle of the first, and much of the second."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        X = rng.random((8, 4)).astype(np.float32)
        made.append((X, rng.random(8) < 1 / (1 + np.exp(3 - 12 * X[:, 0] * (1 - X[:, 0]) - 2 * X[:, 1]))))
    return made


@pytest.fixture
def path(write: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(clicklog, "GROUP_BYTES", 30_000)
    return write("log.parquet", bent_lists(400))


def pieces_of(found: Fit) -> Additive:
    assert isinstance(found.units, Additive)
    return found.units


def test_the_fit_is_exact_and_bends_what_is_bent(path: str) -> None:
    found = fit([path], model="additive")
    units = pieces_of(found)
    assert units.stiffness[0] < 10 < units.stiffness[1:].min()
    rows, weight = [], []
    for X, clicks in bent_lists(400):
        p = pairs.shown(clicks)
        columns = np.column_stack([units.columns(X.astype(float)), -np.log(np.arange(1, 9))])
        rows.append(columns[p.winner] - columns[p.loser])
        weight.append(p.weight)
    D, w = np.concatenate(rows), np.concatenate(weight)
    spread = np.mean([2 / 7 * np.square(c - c.mean(0)).sum(0) for c in map(units.columns, documents())], axis=0)
    np.testing.assert_allclose(found.penalty[:4], 12 * spread[:4], rtol=1e-9)
    np.testing.assert_allclose(found.penalty[[4, 8, 12]], 12 * 10 * units.stiffness[0] * spread[[4, 8, 12]], rtol=1e-9)
    P = np.diag(np.append(found.penalty, 1.0))
    theta = minimise(D, w, P, np.zeros(len(P)))[:-1]
    np.testing.assert_allclose(found.theta, theta, rtol=1e-6, atol=1e-9 * np.abs(theta).max())


def documents() -> list[np.ndarray]:
    return [X.astype(float) for X, _ in bent_lists(400)]


def test_pieces_come_from_lists_all_over_the_log(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for n_lists in (1024, 60):
        monkeypatch.setattr(newton, "LISTS", n_lists)
        expected = Additive(4, "spread")
        expected.lay_pieces(documents()[:: max(400 // n_lists, 1)])
        np.testing.assert_array_equal(pieces_of(fit([path], model="additive")).knots, expected.knots)


def test_engines_and_interruptions_change_no_bit(path: str, tmp_path: Path) -> None:
    alone = fit([path], model="additive")
    checkpoint = str(tmp_path / "checkpoint")

    def interrupt(what: str, done: int, total: int) -> None:
        if what == f"pass {alone.passes - 1}":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit([path], model="additive", checkpoint=checkpoint, progress=interrupt)
    with pytest.raises(OptionError, match="another fit"):
        fit([path], checkpoint=checkpoint)
    resumed = fit([path], model="additive", checkpoint=checkpoint)
    together = fit([path], model="additive", engine="processes", workers=2)
    for other in (resumed, together):
        assert other.theta.tobytes() == alone.theta.tobytes()
        assert other.hessian.tobytes() == alone.hessian.tobytes()
        assert other.units.units.tobytes() == alone.units.units.tobytes()
        assert other.passes == alone.passes


def test_the_command_gives_a_ranker_that_goes_on_and_out(path: str, tmp_path: Path) -> None:
    out, model = tmp_path / "model", tmp_path / "model.json"
    assert main(["fit", path, "--ranker", RANKER, "--out", str(out)]) == 0
    ranker, found = pairrank.load(out), fit([path], model="additive")
    X = documents()[0]
    np.testing.assert_allclose(ranker.score(X), found.units.columns(X) @ found.theta, rtol=1e-9)
    assert isinstance(ranker, PairRank)
    middle, end = ranker.effect(0, x=[0.5, 1.0]).value
    assert middle > end + 0.3
    assert main(["export", str(out), "--format", "json", "--out", str(model)]) == 0
    told = export.additive.loads(model.read_bytes()).score(X)
    np.testing.assert_allclose(np.diff(told), np.diff(ranker.score(X)), rtol=1e-9)
    before = ranker.effect(0, x=[0.5]).sd[0]
    rng = np.random.default_rng(1)
    for X, _ in bent_lists(140, seed=1):  # beyond the lists after which stiffness is set anew
        shown = ranker.rank(X)
        x = shown.features[:, 0]
        ranker.learn(shown, rng.random(8) < 1 / (1 + np.exp(3 - 12 * x * (1 - x))))
    assert ranker.effect(0, x=[0.5]).sd[0] < before
    assert ranker._units.stiffness[0] < 10
    again = pairrank.PairRank.from_bytes(ranker.to_bytes())
    np.testing.assert_array_equal(again.score(X), ranker.score(X))


def test_warm_starts_begin_bent(path: str, tmp_path: Path) -> None:
    out = tmp_path / "model"
    heights = []
    for source in ([path, "--strength", "10"], [path, "--strength", "1000"]):
        assert main(["warmstart", *source, "--ranker", RANKER, "--out", str(out)]) == 0
        heights.append(np.subtract(*pairrank.load(out).effect(0, x=[0.5, 1.0]).value))
    assert 0.0 < heights[0] < heights[1]
    grades = np.concatenate([clicks for _, clicks in bent_lists(400)]).astype(int)
    offsets = np.arange(0, 3201, 8)
    labelled = priors.from_labels(np.concatenate(documents()), grades, offsets, strength=1000.0, model="additive")
    ranker = PairRank(4, model="additive", monotone={1: -1})
    labelled.apply(ranker)
    assert np.subtract(*ranker.effect(0, x=[0.5, 1.0]).value) > 0.3
    assert np.ptp(ranker.effect(1).value) < 1e-6  # it rises, and may not
    with pytest.raises(OptionError, match="pieces"):
        priors.from_weights([1.0, 0.0, 0.0, 0.0], strength=10.0).apply(PairRank(4, model="additive"))


def test_missing_values_are_values_where_pieces_have_them(
    write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newton, "LISTS", 100)
    made = bent_lists(200)
    for X, clicks in made[::2]:
        X[0, 2], clicks[0] = np.nan, False
    made[1][0][0, 3] = np.nan  # in none of the lists that pieces come from
    log = write("missing.parquet", made)
    found = fit([log], model="additive")
    assert found.units.missing.tolist() == [False, False, True, False]
    assert found.problems.counts == {Reason.NOT_FINITE: 1}
    ranker = PairRank(4, model="additive")
    found.prior().apply(ranker)
    told = ranker.effect(2).missing
    assert told is not None
    assert told[0] < -2 * told[1] < 0.0
    assert validate([log], model="additive")[0].counts == {}
    assert validate([log])[0].counts == {Reason.NOT_FINITE: 101}
    events = tmp_path / "events.jsonl"
    with events.open("w") as file:
        for number, (X, clicks) in enumerate(made[:40:2]):
            rows = [{"id": str(i), "features": [None if x != x else float(x) for x in row]} for i, row in enumerate(X)]
            shown = {"type": "impression", "impression_id": str(number), "timestamp": number, "documents": rows}
            clicked = [str(i) for i in np.flatnonzero(clicks)]
            told_clicks = {"type": "feedback", "impression_id": str(number), "clicks": clicked}
            file.write(json.dumps(shown) + "\n" + json.dumps(told_clicks) + "\n")
    out = tmp_path / "model"
    assert main(["fit", str(events), "--ranker", RANKER, "--on-error", "stop", "--out", str(out)]) == 0
    assert main(["fit", str(events), "--on-error", "stop", "--out", str(out)]) == 2
