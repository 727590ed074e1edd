"""Trials in the laboratory: many lists at once equal them one by one, and the figures are what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairrank import click_models as users
from pairrank.cli import main
from pairrank.errors import OptionError
from pairrank.lab import launches, trial, trial_report
from pairrank.rng import Purpose, generator
from pairrank.trials.launch import Guard
from pairrank.trials.verdict import Evidence, split_outcome


def study(**more: Any) -> trial.Study:
    small: dict[str, Any] = {
        "data": "synthetic:tiny",
        "clicks": ("navigational",),
        "k": 5,
        "learn": 60,
        "experiments": 0,
        "null_experiments": 0,
        "logs": 0,
        "launches": 0,
    }
    return trial.Study(**small | more)


@pytest.fixture(scope="module")
def made() -> tuple[trial.Study, trial.Lists, trial.Crowd]:
    plan = study()
    train, served = trial.splits(plan)
    a, b = (trial.scores(plan, text, train, served) for text in (plan.a, plan.b))
    return plan, trial.make_lists(plan, served, a, b), trial.Crowd("navigational", served.n_grades)


def test_a_crowd_clicks_as_its_users_do() -> None:
    grades = generator(0, 0, Purpose.DATA).integers(3, size=(200, 6))
    clicks = trial.Crowd("informational", 3).clicks(grades, generator(1, 0, Purpose.CLICKS))
    rng = generator(1, 0, Purpose.CLICKS)
    coins = np.stack([rng.random(grades.shape), rng.random(grades.shape)], axis=-1)
    who = users.make("informational", n_grades=3)
    assert clicks.tolist() == [who.clicks(row, own).tolist() for row, own in zip(grades, coins, strict=True)]
    assert not trial.Crowd("perfect", 3).clicks(np.full((5, 4), -1), rng).any()  # no document, no click


def test_the_value_of_a_list_is_exact() -> None:
    crowd, grades = trial.Crowd("navigational", 3), np.array([[0, 2, 1, -1]])
    p = np.array([0.05, 0.95, 0.5])
    assert crowd.value(grades) == pytest.approx(p[0] + (1 - p[0]) * (p[1] / 2 + (1 - p[1]) * p[2] / 3))
    many = trial.first_click(crowd.clicks(np.repeat(grades, 40_000, axis=0), generator(0, 0, Purpose.CLICKS)))
    assert many.sum(axis=1).mean() == pytest.approx(crowd.value(grades), abs=0.01)
    clicks = crowd.clicks(np.repeat(grades, 40_000, axis=0), generator(0, 1, Purpose.CLICKS))
    assert clicks.mean(axis=0) == pytest.approx(crowd.chances(grades[0]), abs=0.01)


def test_outcomes_of_a_split_are_those_of_a_list_at_a_time(made: tuple[trial.Study, trial.Lists, trial.Crowd]) -> None:
    _, lists, crowd = made
    outcomes = trial.split(trial.halved(lists, crowd, 300, generator(3, 0, Purpose.CLICKS)))
    rng = generator(3, 0, Purpose.CLICKS)
    query, is_a = rng.integers(len(lists.a), size=300), rng.random(300) < 0.5
    clicks = crowd.clicks(np.where(is_a[:, None], lists.a[query], lists.b[query]), rng)
    values, expected = trial.first_click(clicks).sum(axis=1), 0.5
    for t in range(300):
        assert outcomes[t] == pytest.approx(split_outcome(bool(is_a[t]), values[t], expected))
        expected = values[: t + 1].mean()


def test_a_split_means_the_difference(made: tuple[trial.Study, trial.Lists, trial.Crowd]) -> None:
    _, lists, crowd = made
    truth = crowd.value(lists.a) - crowd.value(lists.b)
    outcomes = trial.split(trial.halved(lists, crowd, 60_000, generator(4, 0, Purpose.CLICKS)))
    assert outcomes.mean() == pytest.approx(truth, abs=5 * outcomes.std() / np.sqrt(60_000))
    assert np.abs(outcomes).max() <= 2.0


def test_the_drafts_of_every_query_are_equally_likely(made: tuple[trial.Study, trial.Lists, trial.Crowd]) -> None:
    """Each position's credits cancel over them, which they would not if some were left out."""
    _, lists, _ = made
    assert lists.mixed.shape[1] == 2**3
    for credit in (lists.choice, lists.team, lists.exposure):
        assert np.abs(credit.mean(axis=1)).max() < 1e-12


def test_experiments_without_a_difference_seldom_end() -> None:
    [row] = trial.run(study(null_experiments=60, null_lists=1000))
    assert len(row["false_verdicts"]) == 4
    assert all(share <= 0.05 for share in row["false_verdicts"].values())


@pytest.mark.slow
def test_a_planted_difference_takes_a_tenth_of_the_lists_when_interleaved(real_data: Path) -> None:
    plan = study(data=str(real_data / "MQ2008"), clicks=("perfect",), k=10, experiments=7, lists=30_000)
    [row] = trial.run(plan)
    found = row["sensitivity"]
    assert found["value_a"] > found["value_b"]
    assert (found["interleave"]["right"], found["interleave"]["wrong"], found["split"]["wrong"]) == (7, 0, 0)
    slow = found["split"]["lists"][0] or plan.lists
    assert slow >= 10 * found["interleave"]["lists"][0]


def test_lists_until_a_verdict_are_those_of_the_verdict(made: tuple[trial.Study, trial.Lists, trial.Crowd]) -> None:
    plan, lists, crowd = made
    outcomes = trial.interleaved(lists, lists.choice, crowd, 1024, generator(2, 0, Purpose.CLICKS))
    stronger = np.clip(outcomes + 0.2, -1, 1)
    rng = generator(0, 0, Purpose.CLICKS)
    at, sign = trial._until_decided(plan, lambda n, rng: stronger[:n], np.asarray, 1.0, rng)
    evidence = reduce(Evidence.after, stronger, Evidence())
    assert (at, sign) == (evidence.decided, evidence.sign)


def test_a_long_split_forgets_no_list_on_the_way(made: tuple[trial.Study, trial.Lists, trial.Crowd]) -> None:
    """Lists are drawn some thousand at a time, and what is expected of them is known from all before."""
    plan, lists, crowd = made
    plan, lists, drawn = replace(plan, level=1e-30), lists._replace(b=lists.a[:, ::-1]), []

    def draw(n: int, rng: np.random.Generator) -> Any:
        drawn.append(trial.halved(lists, crowd, n, rng))
        return drawn[-1]

    at, sign = trial._until_decided(plan, draw, trial.split, 2.0, generator(1, 0, Purpose.CLICKS))
    assert len(drawn) > 1
    whole = trial.split(np.concatenate(drawn, axis=1))
    evidence = reduce(Evidence.after, whole, Evidence(low=-2.0, high=2.0, level=plan.level))
    assert (at, sign) == (evidence.decided, evidence.sign)


def test_between_equal_orders_no_verdict_is_right_or_wrong() -> None:
    plan = study(a="as-sent", b="as-sent", experiments=3, lists=50, null_experiments=2, null_lists=30)
    [row] = trial.run(plan)
    for method in ("interleave", "team", "split"):
        assert (row["sensitivity"][method]["right"], row["sensitivity"][method]["wrong"]) == (None, None)
    assert {line[4] for line in trial_report.lists_until_verdict(plan, [row])[1]} == {"–"}
    assert set(row["false_verdicts"].values()) == {0.0}  # fewer lists than between two looks: looked at in the end


@pytest.mark.parametrize("of", ["lists", "null_lists", "log_lists", "launch_lists"])
def test_an_experiment_has_lists(of: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OptionError, match=f"{of} is 0"):
        study(**{of: 0})
    with pytest.raises(SystemExit, match="2"):
        main(["trial", "synthetic:tiny", "--out", str(tmp_path), f"--{of.replace('_', '-')}", "0"])
    assert "1 or more" in capsys.readouterr().err


def test_a_log_of_one_list_has_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", "synthetic:tiny", "--log-lists", "1", "--out", str(tmp_path / "trial")]) == 2
    assert "log_lists is 1; expected 2 or more" in capsys.readouterr().err
    assert not (tmp_path / "trial").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        ["no-data"],
        ["synthetic:tiny", "--clicks", "nobody"],
        ["synthetic:tiny", "--clicks", "cascade"],
        ["synthetic:tiny", "--a", "x"],
        ["synthetic:tiny", "--a", "pairrank(lamda=1)"],
        ["synthetic:tiny", "--b", "worse(noise=-1)"],
        ["synthetic:tiny", "--b", "worse(nose=1)"],
        ["synthetic:tiny", "--b", "shuffled(seed=2)"],
        ["synthetic:tiny", "--b", "as-sent(k=3)"],
    ],
)
def test_a_wrong_name_leaves_no_folder(wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trial", *wrong, "--out", str(tmp_path / "trial")]) == 2
    assert wrong[-1].partition("(")[0] in capsys.readouterr().err
    assert not (tmp_path / "trial").exists()


def test_intervals_from_a_log_hold_the_truth() -> None:
    [row] = trial.run(study(logs=25, log_lists=300, a="pairrank", b="shuffled"))
    for of in ("order by score", "interleaved"):
        assert all(share >= 0.8 for share in row["off_policy"][of]["covered"].values())
        assert 0.2 < row["off_policy"][of]["told"] <= 1.0
    assert row["off_policy"]["arms"]["fixed_size"] > 0


def test_guarded_launches_keep_their_margin() -> None:
    plan = study(launches=2, launch_lists=900, guard=Guard(margin=0.05))
    rows = {row["ranker"]: row for row in launches.run(plan)}
    assert list(rows) == ["good", "useless", "hostile"]
    assert rows["hostile"]["gain"] < rows["useless"]["gain"] < 0 < rows["good"]["gain"]
    for row in rows.values():
        assert row["beyond_margin"] == 0
        assert row["gained"] >= -0.05 * 900
        assert row["at_once"] == pytest.approx(900 * row["gain"])
    assert rows["good"]["gained"] > 0
    assert max(rows["good"]["share"]) > 0


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = "--experiments 3 --lists 2000 --null 5 --null-lists 300 --logs 2 --log-lists 120 --launches 1"
    words = ["trial", "synthetic:tiny", *small.split(), "--launch-lists", "200", "--learn", "40", "--k", "4"]
    words += ["--clicks", "navigational", "--b", "as-sent"]
    assert main([*words, "--out", str(tmp_path / "one"), "--jobs", "1"]) == 0
    told = capsys.readouterr().out
    assert all(part in told for part in ("Lists until a verdict", "without cause", "from a log", "Guarded launch"))
    assert main([*words, "--out", str(tmp_path / "two"), "--jobs", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "one" / "trial.json").read_text())  # however many processes
    assert {path.name for path in (tmp_path / "one").iterdir()} == {"trial.json", "trial.md", "trial.png", "trial.svg"}


def test_the_picture_counts_experiments_that_end_without_a_verdict_as_such() -> None:
    arm = "pairrank(half_life=1000, lam=12, model=additive)"
    plan = study(a=arm, b=arm.replace("12", "24"), experiments=4, lists=500)
    needed = {"interleave": [400, None, 200, None], "split": [None] * 4}
    rows = [{"clicks": "navigational", "sensitivity": {way: {"needed": n} for way, n in needed.items()}}]
    figure = trial_report.plate(plan, rows, []).draw()
    solid, dotted = (line.get_xydata().tolist() for line in figure.axes[0].lines)
    assert solid == [[100, 0], [200, 25], [400, 50], [500, 50]]
    assert dotted == [[100, 0], [500, 0]]
    figure.draw_without_rendering()
    left, right = (axis.title.get_window_extent() for axis in figure.axes)
    assert 0 <= left.x0 < left.x1 < right.x0


def test_arms(made: tuple[trial.Study, trial.Lists, trial.Crowd]) -> None:
    plan = made[0]
    train, served = trial.splits(plan)
    own = trial.scores(plan, plan.a, train, served)
    assert (trial.scores(plan, "reversed", train, served) == -own).all()
    sent = trial.scores(plan, "as-sent", train, served)
    assert (np.diff(sent) < 0).all()
    worse = trial.scores(plan, "worse(noise=0.1)", train, served)
    assert 0.05 * own.std() < (worse - own).std() < 0.2 * own.std()
    learned = trial.scores(plan, "pairrank", train, served)
    assert np.corrcoef(learned, own)[0, 1] > 0.2  # from clicks alone


def test_wrong_input_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OptionError, match="k is 40"):
        study(k=40)
    with pytest.raises(OptionError, match="table of clicks"):
        trial.Crowd("position(eta=1)", 3)
    for words, told in (
        (["--b", "worse(noise=-1)"], "worse"),
        (["--b", "nobody"], "nobody"),
        (["--margin", "0"], "margin"),
        (["--a", "reversed"], "give it as arm b"),
        (["--a", "worse(noise=1)"], "give it as arm b"),
        (["--experiments", "0", "--null", "0", "--logs", "0", "--launches", "0"], "nothing is left to do"),
    ):
        assert main(["trial", "synthetic:tiny", "--out", str(tmp_path), "--jobs", "1", *words]) == 2
        assert told in capsys.readouterr().err


def test_a_short_log_is_compared_with_the_truth_of_what_it_tells() -> None:
    """Of fewer lists than are enough it tells where our draw is certain, and there the truth is not zero."""
    plan = study(logs=20, log_lists=60)
    (row,) = trial.run(plan)
    found = row["off_policy"]["order by score"]
    assert found["told"] > 0
    assert found["truth"] > 0
    assert min(found["covered"].values()) > 0.5
