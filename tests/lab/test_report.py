from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pages.stage import CONTRAST, CUT
from pairrank import simulate
from pairrank.cli import main
from pairrank.errors import FileFormatError, NewerFormatError, OptionError
from pairrank.lab.experiment import DEFAULTS, FILE, Experiment, check_defaults
from pairrank.lab.paper import RANKERS
from pairrank.lab.report import report
from pairrank.lab.report.figures import Plate
from pairrank.lab.report.report import Report
from pairrank.rankers.pdgd import PDGD
from pairrank.version import __version__

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
FIGURES = 8


@pytest.fixture(scope="module")
def built(swept: tuple[Path, Experiment], tmp_path_factory: pytest.TempPathFactory) -> Report:
    out = tmp_path_factory.mktemp("built") / "out"
    shutil.copytree(swept[0], out)
    return report.build(out)


def test_everything_is_there(built: Report) -> None:
    folder = built.html.parent
    names = {path.stem for path in built.figures}
    assert len(names) == FIGURES
    assert {path.suffix for path in built.figures} == {".png", ".svg"}
    assert all(path.stat().st_size > 0 for path in built.figures)
    text = built.html.read_text()
    for said in (
        "synthetic:tiny",
        "40 rounds",
        "2 seeds",
        f"pairrank {__version__}",
        "Holm",
        "γ = 0.9995",
        "log2(rank",
    ):
        assert said in text
    assert all(claim.text in text and claim.verdict in text for claim in built.claims)
    markdown = (folder / "report.md").read_text()
    assert all((folder / link).is_file() for link in re.findall(r"\]\((figures/[^)]+)\)", markdown))
    assert len(re.findall(r"!\[", markdown)) == FIGURES


def test_the_page_needs_nothing_else(built: Report) -> None:
    text = built.html.read_text()
    links = re.findall(r"""(?:src|href)=["']([^"']*)""", text)
    assert links
    assert all(link.startswith("data:") for link in links)
    assert "<script" not in text


def test_numbers_as_json(built: Report) -> None:
    numbers = json.loads((built.html.parent / "results.json").read_text())
    assert len(numbers["results"]) == len(RANKERS) * 3
    best = [row for row in numbers["results"] if row["best_ndcg"] and row["clicks"] == "perfect"]
    others = [r for r in numbers["results"] if r["clicks"] == "perfect" and r["ranker"] != "offline-ranknet"]
    assert [row["ndcg"] for row in best] == [max(row["ndcg"] for row in others)]
    assert {claim["verdict"] for claim in numbers["claims"]} <= {"holds", "does not hold", "not decided"}
    assert all(test["p_holm"] is None or test["p_holm"] >= test["p"] for test in numbers["comparisons"])


@pytest.mark.browser
def test_in_a_real_browser(built: Report, chromium: Browser) -> None:
    problems: list[str] = []
    page = chromium.new_page(viewport={"width": 1200, "height": 900})
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(request.url))
    page.goto(built.html.as_uri())
    # The sentence, the picture and the table come first; the rest is folded.
    assert page.inner_text(".lead").startswith("After 40 rounds of clicks PairRank has ")
    assert page.locator("img:visible").count() == 1
    assert page.locator("table:visible").count() == 1
    for summary in page.locator("summary").all():
        summary.click()
    images = page.evaluate(
        "[...document.images].map(i => [i.complete, i.naturalWidth, i.getBoundingClientRect().width])"
    )
    (ROOT / "artifacts").mkdir(exist_ok=True)
    for width in (1400, 820, 390):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme, dark in (("light", False), ("dark", True)):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls sideways"
            assert page.evaluate(CONTRAST) + page.evaluate(CUT) == []
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == dark
            page.screenshot(path=ROOT / "artifacts" / f"report-{width}-{scheme}.png")
    page.close()
    assert problems == []
    assert len(images) == FIGURES
    assert all(complete and width > 100 and shown > 100 for complete, width, shown in images)


def test_while_a_sweep_is_under_way(
    swept: tuple[Path, Experiment], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, whole = swept
    experiment = replace(whole, rankers=("pdgd", "pairrank-c"))
    out = tmp_path / "out"
    done = [spec for spec in experiment.specs() if spec.seed == 0 and spec.clicks != "informational"]
    for spec in done:
        shutil.copytree(source / "runs" / spec.run_id, out / "runs" / spec.run_id)
    experiment.save(out)
    half = next(spec for spec in experiment.specs() if spec.seed == 1)
    (out / "runs" / half.run_id).mkdir()
    (out / "runs" / half.run_id / "records.parquet").write_bytes(b"half a file")
    assert main(["report", str(out)]) == 0
    said = capsys.readouterr().out
    assert f"{len(done)} of {len(experiment.specs())} runs are done" in said
    assert str(out / "report.html") in said


def test_records_of_other_defaults_are_not_taken_for_these(tmp_path: Path) -> None:
    before = Experiment(title="", command="", data="synthetic:tiny", rankers=("pdgd", "pairrank")).resolved()
    before.save(tmp_path)
    check_defaults(tmp_path, before.rankers)
    assert before.options["pdgd"]["learning_rate"] == 0.1
    changed = {**before.options, "pairrank": {**before.options["pairrank"], "z": -1.0}}
    (tmp_path / DEFAULTS).unlink()
    replace(before, options=changed).save(tmp_path)
    with pytest.raises(OptionError, match="pairrank with other defaults"):
        check_defaults(tmp_path, before.rankers)


@pytest.mark.parametrize("command", ["simulate", "tune"])
def test_no_sweep_goes_on_among_runs_of_other_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    more = ["--trials", "1"] if command == "tune" else []
    words = [
        command,
        "synthetic:tiny",
        "--ranker",
        "pdgd",
        "--rounds",
        "8",
        "--seeds",
        "1",
        "--engine",
        "serial",
        *more,
    ]
    words += ["--out", str(tmp_path)]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out == told
    path = tmp_path / DEFAULTS
    path.write_text(path.read_text().replace('"learning_rate": 0.1', '"learning_rate": 0.2'))
    assert main(words) == 2
    assert "holds runs of pdgd with other defaults" in capsys.readouterr().err
    assert main([*words, "--no-resume"]) == 0
    assert main(words) == 0


def test_what_cannot_be_measured_is_not_drawn(tmp_path: Path) -> None:
    # Nothing relevant is held out, and lists are shorter than the ranks of the figures.
    for split, best in (("train", 1), ("test", 0)):
        lines = [f"{best * (d == 0)} qid:{q} 1:{d} 2:{(d + q) % 3}\n" for q in range(2) for d in range(3)]
        (tmp_path / f"{split}.txt").write_text("".join(lines))
    assert main(["simulate", str(tmp_path), "--rounds", "3", "--out", str(tmp_path / "out")]) == 0
    assert main(["report", str(tmp_path / "out")]) == 0


def test_a_folder_of_simulate_and_one_of_nobody(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = ["simulate", "synthetic:tiny", "--clicks", "mixed", "--normalise", "none", "--out", str(tmp_path)]
    assert main([*words, "--ranker", "pdgd", "--ranker", "pairrank", "--rounds", "12"]) == 0
    assert main([*words, "--rounds", "3"]) == 0
    monkeypatch.setattr(Plate, "render", lambda plate: (b"png", b"svg"))  # pictures take long and are tested elsewhere
    newer = tmp_path / "runs" / "ffff" / "spec.json"
    newer.parent.mkdir()
    newer.write_text('{"version": 99}')
    assert main(["report", str(tmp_path)]) == 0
    assert "PDGD" in capsys.readouterr().out
    assert "left out: 1 runs on other data, or of other rounds" in caplog.text
    text = (tmp_path / "report.md").read_text()
    assert "position, cascade and mixed are models of their own" in text
    assert "fold 1, normalisation of features: none" in text
    assert "12 rounds; 1 seed, 0; 10 documents shown" in text
    with pytest.raises(OptionError, match="no runs"):
        report.build(tmp_path / "nowhere")


def test_runs_whose_seeds_do_not_count_from_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (42, 1000):
        simulate("synthetic:tiny", ranker="pdgd", rounds=5, seed=seed, out=tmp_path)
    monkeypatch.setattr(Plate, "render", lambda plate: (b"png", b"svg"))
    assert main(["report", str(tmp_path)]) == 0
    assert "runs are done" not in capsys.readouterr().out  # nobody asked for seeds 0 to 41
    text = (tmp_path / "report.md").read_text()
    assert "2 of 2 done" in text
    assert "2 seeds, 42 to 1000" in text


def test_runs_of_an_object_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mine(PDGD):
        name = "mine"

    for ranker in (Mine(12, monotone={0: 1}), Mine(12, learning_rate=0.3), "pdgd"):
        simulate("synthetic:tiny", ranker=ranker, rounds=5, out=tmp_path)
    monkeypatch.setattr(Plate, "render", lambda plate: (b"png", b"svg"))
    assert main(["report", str(tmp_path)]) == 0
    assert "mine, decay" in capsys.readouterr().out


def test_an_experiment_that_cannot_be_read(swept: tuple[Path, Experiment], tmp_path: Path) -> None:
    experiment = swept[1]
    experiment.save(tmp_path)
    assert Experiment.load(tmp_path) == experiment
    path = tmp_path / FILE
    values: dict[str, Any] = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"format": 99}))
    with pytest.raises(NewerFormatError, match="upgrade pairrank"):
        Experiment.load(tmp_path)
    path.write_text("{")
    with pytest.raises(FileFormatError, match="damaged"):
        Experiment.load(tmp_path)
    experiment.save(tmp_path)
    with pytest.raises(OptionError, match="no finished run"):
        report.build(tmp_path)
