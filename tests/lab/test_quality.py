"""The comparison with all rivals: what a cell says of hand-made runs, and the command that makes them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pairrank.cli import main
from pairrank.errors import FileFormatError, OptionError
from pairrank.lab import executors
from pairrank.lab.analysis import quality
from pairrank.lab.experiment import CEILING, DEFAULTS, check_defaults
from pairrank.lab.outcomes import Failure
from pairrank.lab.report import contests
from pairrank.sim import Protocol, RunSpec, Summary

RUNS = [(1, seed) for seed in range(8)]
WOBBLE = np.array([0.1, -0.2, 0.3, -0.1, 0.2, -0.3, 0.15, -0.15])  # what differs between runs; its mean is zero


def made(
    ranker: str,
    *,
    ndcg: float = 0.5,
    cndcg: float | Sequence[float] = 100.0,
    users: str = "perfect",
    data: str = "synthetic:tiny",
    early: float = 0.0,
    runs: Sequence[tuple[int, int]] = RUNS,
) -> list[Summary]:
    """A run for each (fold, seed); ``early`` is added to its held-out NDCG@10 after round 100."""
    online = np.broadcast_to(np.asarray(cndcg, dtype=np.float64), (len(runs),))
    found = []
    for (fold, seed), value in zip(runs, online.tolist(), strict=True):
        spec = RunSpec(data=data, ranker=ranker, clicks=users, rounds=1000, seed=seed, fold=fold)
        rounds = spec.evaluation_rounds()
        curve = np.where(rounds == 100, ndcg + early, ndcg)
        found.append(Summary(spec, ndcg, value, 0, 1.0, tuple(curve.tolist())))
    return found


def only(found: Sequence[quality.Contest]) -> quality.Contest:
    assert len(found) == 1
    return found[0]


def test_means_and_tests_are_those_of_pairs_of_runs() -> None:
    ours, theirs = 100 + 5 * WOBBLE, 99 + 3 * WOBBLE[::-1]
    # Whatever order runs come in, fold and seed say which belong together.
    runs = made("pairrank", cndcg=ours) + made("pdgd", cndcg=theirs)[::-1]
    cell = only(quality.contests(runs, rivals=["pdgd"]))
    assert (cell.data, cell.users, cell.runs) == ("synthetic:tiny", "perfect", len(RUNS))
    assert cell.cndcg == pytest.approx({"pairrank": ours.mean(), "pdgd": theirs.mean()})
    versus = only_versus(cell.online)
    expected = stats.ttest_rel(ours, theirs)
    interval = expected.confidence_interval(0.95)
    assert versus.mean == pytest.approx((ours - theirs).mean())
    assert versus.half == pytest.approx((interval.high - interval.low) / 2)
    assert versus.p == pytest.approx(expected.pvalue), "a family of one needs no correction"


def test_two_folders_of_one_name_are_two_data_sets() -> None:
    sets = ("synthetic:linear", "synthetic:linear(seed=7)")
    assert [cell.data for cell in quality.contests([r for d in sets for r in made("pairrank", data=d)], rivals=[])] == [
        *sets
    ]
    assert quality.short_names(["a/MQ", "b/MQ", "c/MSLR"]) == {"a/MQ": "a/MQ", "b/MQ": "b/MQ", "c/MSLR": "MSLR"}


def only_versus(versus: Sequence[quality.Versus]) -> quality.Versus:
    assert len(versus) == 1
    return versus[0]


def test_all_cells_and_rivals_are_one_family() -> None:
    shifts = {("perfect", "pdgd"): 0.10, ("perfect", "mgd"): 0.15, ("navigational", "pdgd"): 0.20}
    runs = [run for users in ("perfect", "navigational") for run in made("pairrank", users=users)]
    for (users, rival), shift in shifts.items():
        runs += made(rival, users=users, cndcg=100 - shift + WOBBLE)
    found = quality.contests(runs, rivals=["pdgd", "mgd"])
    raw = {key: float(stats.ttest_1samp(shift - WOBBLE, 0).pvalue) for key, shift in shifts.items()}
    falling = sorted(raw, key=raw.__getitem__)  # Holm: the i-th smallest times the number of those left, never falling
    steps = [min(1.0, raw[key] * (len(falling) - i)) for i, key in enumerate(falling)]
    corrected = {key: max(steps[: i + 1]) for i, key in enumerate(falling)}
    told = {(cell.users, v.rival): v.p for cell in found for v in cell.online if not math.isnan(v.p)}
    assert told == pytest.approx(corrected)


@pytest.mark.parametrize(
    ("shift", "wobble", "told"),
    [
        (1.0, 0.1, ""),
        (0.1, 1.0, "not shown to be ahead of"),
        (-1.0, 0.1, "behind"),
        (0.0, 0.0, "not shown to be ahead of"),
    ],
    ids=["surely above", "above, perhaps", "surely below", "equal"],
)
def test_a_cell_is_won_online_only_when_surely_above_every_rival(shift: float, wobble: float, told: str) -> None:
    won = not told
    runs = made("pairrank") + made("mgd", cndcg=90 + WOBBLE) + made("pdgd", cndcg=100 - shift + wobble * WOBBLE)
    cell = only(quality.contests(runs, rivals=["mgd", "pdgd"]))
    assert (not cell.unbeaten) is won
    text = quality.as_markdown([cell])
    assert won or f"- while learning: {told} PDGD\n" in text
    assert "ahead of MGD" not in text
    assert ("while learning: ahead of every rival" in quality.as_text([cell])) is won


def test_one_in_a_hundred_is_asked_online_and_a_margin_offline() -> None:
    def cell(p: float, mean: float, half: float = 0.1) -> quality.Contest:
        one = (quality.Versus("pdgd", mean, half, p),)
        return quality.Contest("d", "u", 8, {}, {}, one, one, (0, 0.0), math.nan)

    assert not cell(0.009, 1.0).unbeaten
    assert cell(0.011, 1.0).unbeaten
    assert not cell(0.5, -0.001, 0.0039).ahead
    assert cell(0.5, -0.001, 0.0041).ahead, "that it is no worse must be shown, not only not disproved"
    assert not cell(0.5, 0.01, 0.0149).ahead


def test_one_run_shows_nothing() -> None:
    runs = made("pairrank", ndcg=0.4, runs=RUNS[:1]) + made("pdgd", ndcg=0.5, runs=RUNS[:1])
    cell = only(quality.contests(runs, rivals=["pdgd"]))
    assert [v.rival for v in cell.ahead] == ["pdgd"]
    for text in (quality.as_markdown([cell]), quality.as_text([cell])):
        assert "-0.1000" in text
        assert "what was learned: perhaps worse than PDGD" in text


def test_runs_of_a_fold_are_not_independent() -> None:
    runs = [(fold, seed) for fold in (1, 2, 3) for seed in range(4)]
    by_fold = np.repeat([1.0, 2.0, 6.0], 4)
    found = made("pairrank", cndcg=100 + by_fold, runs=runs) + made("pdgd", cndcg=[100.0] * 12, runs=runs)
    versus = only_versus(only(quality.contests(found, rivals=["pdgd"])).online)
    expected = stats.ttest_1samp([1.0, 2.0, 6.0], 0)
    assert versus.mean == pytest.approx(3.0)
    assert versus.p == pytest.approx(expected.pvalue)


@pytest.mark.parametrize(("rival", "kept"), [(0.4, True), (0.5, True), (0.6, False)])
def test_a_cell_is_kept_offline_where_no_rival_can_be_above_by_the_margin(rival: float, kept: bool) -> None:
    cell = only(quality.contests(made("pairrank", ndcg=0.5) + made("pdgd", ndcg=rival), rivals=["pdgd"]))
    assert (not cell.ahead) is kept
    assert ("perhaps worse than PDGD" in quality.as_markdown([cell])) is not kept


def test_runs_that_end_below_round_100_are_counted() -> None:
    fine, fallen = RUNS[:5], RUNS[5:]
    runs = made("pairrank", runs=fine, early=-0.1) + made("pairrank", runs=fallen[:2], early=0.02)
    runs += made("pairrank", runs=fallen[2:], early=0.03) + made("pdgd", early=0.3)
    cell = only(quality.contests(runs, rivals=["pdgd"]))
    assert cell.fell == (3, pytest.approx(0.03))
    assert f"3 of {len(RUNS)} (at most 0.0300)" in quality.as_markdown([cell])
    none = only(quality.contests(made("pairrank", early=-0.1) + made("pdgd"), rivals=["pdgd"]))
    assert none.fell == (0, 0.0)


def test_short_runs_cannot_fall() -> None:
    spec = RunSpec(data="synthetic:tiny", rounds=quality.EARLY)
    cell = only(quality.contests([Summary(spec, 0.1, 1.0, 0, 1.0, (0.9, 0.1))], rivals=[]))
    assert cell.fell == (0, pytest.approx(math.nan, nan_ok=True))
    assert "ended below round 100: not measured\n" in quality.as_text([cell])


def test_a_rival_that_lacks_runs_is_compared_by_those_it_has() -> None:
    some = RUNS[::2]
    runs = made("pairrank", cndcg=100 + WOBBLE) + made("pdgd", cndcg=[90.0] * len(some), runs=some)
    cell = only(quality.contests(runs, rivals=["pdgd"]))
    assert only_versus(cell.online).mean == pytest.approx((10 + WOBBLE[::2]).mean())


def test_a_rival_without_runs_is_neither_beaten_nor_ahead() -> None:
    runs = made("pairrank") + made("pdgd", cndcg=90 + WOBBLE)
    assert not only(quality.contests(runs, rivals=["pdgd"])).unbeaten
    cell = only(quality.contests(runs, rivals=["pdgd", "mgd"]))
    assert [v.rival for v in cell.unbeaten] == ["mgd"]
    assert not cell.ahead
    assert "| MGD | – | not measured | – | not measured |\n\n- while learning: not shown to be ahead of MGD" in (
        quality.as_markdown([cell])
    )


def test_without_the_subject_there_is_nothing_to_say() -> None:
    with pytest.raises(OptionError, match="no runs of pairrank"):
        quality.contests(made("pdgd"))


def test_the_ceiling_is_the_mean_over_folds_and_no_rival() -> None:
    folds = [(1, 0), (2, 0)]
    ceilings = [s for run, ndcg in zip(folds, (0.8, 0.6), strict=True) for s in made(CEILING, ndcg=ndcg, runs=[run])]
    cell = only(quality.contests(made("pairrank") + made("pdgd") + ceilings, rivals=["pdgd"]))
    assert cell.ceiling == pytest.approx((0.8 + 0.6) / 2)
    assert set(cell.ndcg) == {"pairrank", "pdgd"}
    assert math.isnan(only(quality.contests(made("pairrank"), rivals=[])).ceiling)


def ranked(cells: Sequence[dict[str, tuple[float, float]]]) -> list[quality.Contest]:
    """Cells with given means, (cNDCG, NDCG) of each ranker."""
    return [
        quality.Contest(
            "d", "u", 8, {r: b for r, (_, b) in cell.items()}, {r: a for r, (a, _) in cell.items()}, (), (), (0, 0), 0.5
        )
        for cell in cells
    ]


def test_mean_ranks_are_counted_by_hand() -> None:
    cells = [
        {"pairrank": (9.0, 0.5), "pdgd": (8.0, 0.6), "mgd": (7.0, 0.4)},
        {"pairrank": (9.0, 0.5), "pdgd": (9.0, 0.5), "mgd": (9.5, 0.4)},
    ]
    ranks, _ = quality.mean_ranks(ranked(cells))
    assert ranks == {"pairrank": (1.75, 1.75), "mgd": (2.0, 3.0), "pdgd": (2.25, 1.25)}, (
        "what is equal shares its ranks"
    )
    assert list(ranks) == ["pairrank", "mgd", "pdgd"], "the best online first"
    cells[1]["mgd"] = (9.5, math.nan)
    assert set(quality.mean_ranks(ranked(cells))[0]) == {"pairrank", "pdgd"}, "who was not measured everywhere is out"
    assert quality.mean_ranks(ranked([{"pairrank": (1.0, 1.0)}]))[0] == {}


@pytest.mark.parametrize(("k", "q"), [(2, 1.960), (4, 2.569), (10, 3.164)])
def test_the_critical_difference_is_the_published_one(k: int, q: float) -> None:
    cells = [{f"r{i}": (float(i), float(i)) for i in range(k)}] * 14
    assert quality.mean_ranks(ranked(cells))[1] == pytest.approx(q * math.sqrt(k * (k + 1) / (6 * 14)), rel=1e-3)


def test_presets_are_told_apart() -> None:
    presets = ["pairrank(preset=paper)", "pairrank(preset=authors)"]
    runs = [run for ranker in ("pairrank", *presets) for run in made(ranker, cndcg=100 + WOBBLE)]
    text = quality.as_markdown(quality.contests(runs, rivals=presets))
    labels = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| Pair")]
    assert labels == ["| PairRank", "| PairRank, preset = paper", "| PairRank, preset = authors"]
    assert "ahead of PairRank, preset = paper; PairRank, preset = authors\n" in text


def test_every_ranker_meets_every_fold_user_and_seed() -> None:
    sets = [Protocol(data="synthetic:tiny", fold=fold, rounds=7) for fold in (1, 2)]
    wanted = quality.specs(sets, rivals=["pdgd"], users=["perfect", "navigational"], seeds=3)
    runs = [spec for spec in wanted if spec.ranker != CEILING]
    assert len({spec.run_id for spec in wanted}) == len(wanted)
    assert {(s.ranker, s.fold, s.clicks, s.seed) for s in runs} == {
        (ranker, fold, users, seed)
        for ranker in ("pairrank", "pdgd")
        for fold in (1, 2)
        for users in ("perfect", "navigational")
        for seed in range(quality.FIRST_SEED, quality.FIRST_SEED + 3)
    }
    assert [s.fold for s in wanted if s.ranker == CEILING] == [1, 2]


WORDS = ["quality", "synthetic:tiny", "--rounds", "150", "--seeds", "2", "--rival", "pdgd", "--rival", "mgd"]


def records(out: Path) -> dict[str, int]:
    """When the records of each run that is done were written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in sorted(out.glob("runs/*/records.parquet"))}


def test_the_command_writes_its_tables_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*WORDS, "--clicks", "perfect", "--engine", "serial", "--out", str(tmp_path)]
    assert main(words) == 0
    said = capsys.readouterr().out.replace(str(tmp_path), "")  # whose name may have figures, too
    page = (tmp_path / "quality.md").read_text()
    assert "synthetic:tiny, perfect users, 2 runs of each" in said
    assert max(map(len, said.splitlines())) <= 100
    assert page.startswith("# pairrank against its rivals")
    assert "## synthetic:tiny, perfect users, 2 runs of each" in page
    tables, pictures, about = page.partition("## Learning on synthetic:tiny, perfect users")
    figures = [re.findall(r"[+-]?\d\S*\.\d+", text.partition("perfect users")[2]) for text in (tables, said)]
    assert pictures
    assert figures[0] == figures[1][:-1], "the same in both, but for what sure means"
    assert re.findall(r"\]\((.*)\)", about) == ["figures/learning-1-synthetic-tiny.svg"], "one cell has no mean ranks"
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".png", ".svg"}
    before = records(tmp_path)
    assert len(before) == 3 * 2 + 1, "three rankers, two seeds, and the ceiling"
    assert main(words) == 0
    assert records(tmp_path) == before, "nothing was run again"
    assert capsys.readouterr().out.replace(str(tmp_path), "") == said


def test_in_pictures_a_fold_counts_as_one_run(tmp_path: Path) -> None:
    """And each data set has a picture for every four kinds of users, below one of the ranks over all."""
    users = ("perfect", "navigational", "informational", "cascade", "mixed")
    rng = np.random.default_rng(0)
    for name in (f"Fold{fold}/{split}.txt" for fold in (1, 2) for split in ("train", "vali", "test")):
        rows = [
            f"{g} qid:{q} 1:{x:.2f} 2:{y:.2f}\n"
            for q in range(9)
            for g, x, y in zip(range(3), *rng.random((2, 3)), strict=True)
        ]
        (tmp_path / "dealt" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dealt" / name).write_text("".join(rows))
    folds = [Protocol(data=str(tmp_path / "dealt"), fold=fold, rounds=20, panel=0, ideal="") for fold in (1, 2)]
    done = executors.run_all(quality.specs(folds, rivals=["mgd"], users=users, seeds=2), tmp_path)
    found = quality.contests(done, rivals=["mgd"])
    drawn = list(contests.plates(found, done, tmp_path))
    assert [plate.name for plate in drawn] == ["mean-ranks", "learning-1-dealt-1", "learning-1-dealt-2"]
    png, svg = drawn[0].render()
    assert png.startswith(b"\x89PNG")
    assert b"<svg" in svg
    results = contests._over_folds([run.spec for run in done if run.spec.ranker != CEILING], tmp_path)
    cell = results.get("pairrank", "mixed")
    assert cell is not None
    for row, fold in zip(cell.curves["ndcg"], (1, 2), strict=True):
        runs = [r for r in done if (r.spec.ranker, r.spec.clicks, r.spec.fold) == ("pairrank", "mixed", fold)]
        assert row == pytest.approx(np.mean([run.curve for run in runs], axis=0))


def test_what_was_done_before_an_interruption_or_beside_a_failure_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt, asked = executors.attempt, list[str]()

    def stops(spec: RunSpec, *rest: Any) -> Any:
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.append(spec.run_id)
        return attempt(spec, *rest)

    monkeypatch.setattr(executors, "attempt", stops)
    words = [*WORDS, "--clicks", "perfect", "--engine", "serial", "--out", str(tmp_path)]
    assert main(words) == 130
    assert "what is done is kept" in capsys.readouterr().err
    before = records(tmp_path)
    assert list(before) == sorted(asked), "three of seven"
    monkeypatch.undo()
    left = next(run for run in (tmp_path / "runs").iterdir() if run.name in asked)
    (left / "records.parquet").unlink()
    (left / "records.parquet").mkdir()  # it cannot be written
    assert main(words) == 1
    told = capsys.readouterr()
    assert "1 of 7 runs failed; the others are unharmed" in told.err
    assert "synthetic:tiny, perfect users" in told.out
    (left / "records.parquet").rmdir()
    assert main(words) == 0
    assert len(records(tmp_path)) == 7


@pytest.mark.parametrize("folds", ["@", "@x", "@0", "@5-1", "@1,,2", "@1,5-3", "@1-2-3"])
def test_bad_folds_get_one_sentence(folds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quality", f"synthetic:tiny{folds}", "--out", str(tmp_path / "out")]) != 0
    told = capsys.readouterr().err.strip()
    assert "cannot read the folds" in told
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lacking", ["synthetic:tiny@2", "nowhere"])
def test_a_set_that_cannot_be_read_is_told_before_any_run(
    lacking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quality", lacking, *WORDS[1:], "--engine", "serial", "--out", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", [["--ranker", "pairank"], ["--rival", "pdgd(rate=1)"], ["--rival", CEILING]])
def test_a_ranker_that_is_none_is_told_before_any_run(
    wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, *wrong, "--engine", "serial", "--out", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_where_no_run_of_the_subject_ends_its_failures_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    attempt = executors.attempt

    def fails(spec: RunSpec, *rest: Any) -> Any:
        return Failure(spec, "ValueError", "no luck") if spec.ranker == "pairrank" else attempt(spec, *rest)

    monkeypatch.setattr(executors, "attempt", fails)
    assert main([*WORDS, "--clicks", "perfect", "--engine", "serial", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "2 of 7 runs failed; the others are unharmed" in told
    assert "no luck" in told


def test_what_is_named_twice_is_compared_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rounds", "5", "--seeds", "2", "--engine", "serial", "--rival", "pdgd", "--clicks", "perfect"]
    words = ["quality", "synthetic:tiny", *words, "--out", str(tmp_path)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert main(["quality", "synthetic:tiny@1", *words[1:], "--rival", "pdgd()", "--clicks", "perfect"]) == 0
    assert capsys.readouterr().out == said
    assert main([*words, "--rival", "pairrank"]) == 2
    assert "compared with itself" in capsys.readouterr().err


def test_folds_are_ranges_and_lists() -> None:
    from pairrank.cli.quality import _folds

    assert _folds("MQ") == [("MQ", 1)]
    assert _folds("a@b/MQ@1-3,5") == [("a@b/MQ", fold) for fold in (1, 2, 3, 5)]


def test_runs_with_other_defaults_are_not_mixed_in(tmp_path: Path) -> None:
    check_defaults(tmp_path, ["pairrank", "pdgd"])
    check_defaults(tmp_path, ["pairrank", "mgd"])  # the same, and another rival
    path = tmp_path / DEFAULTS
    path.write_text(path.read_text().replace('"z": 0.2', '"z": 0.4'))
    check_defaults(tmp_path, ["pdgd"])
    with pytest.raises(OptionError, match="holds runs of pairrank with other defaults"):
        check_defaults(tmp_path, ["pairrank"])
    check_defaults(tmp_path, ["pairrank"], resume=False)
    check_defaults(tmp_path, ["pairrank"])
    for damage in ("{", "7"):
        path.write_text(damage)
        with pytest.raises(FileFormatError, match="damaged"):
            check_defaults(tmp_path, ["pairrank"])


def test_what_was_not_measured_is_not_told_as_a_result() -> None:
    """Without a relevant document among the held-out queries there is no NDCG."""
    runs = made("pairrank", ndcg=math.nan) + made("pdgd", ndcg=math.nan)
    told = quality.as_text(quality.contests(runs, rivals=["pdgd"]))
    assert "what was learned: not measured\n" in told
    assert "ended below round 100: not measured\n" in told
    runs = made("pairrank") + made("pdgd")
    told = quality.as_text(quality.contests(runs, rivals=["pdgd", "mgd"]))
    assert "what was learned: no worse than any measured by 0.005\n" in told
