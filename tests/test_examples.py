"""The examples run as they stand."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

WAYS = ("the present order", "cold", "from the present weights, strength 100")
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_starting_from_the_present_ranking_does_not_hurt_the_first_visitors() -> None:
    table = example("present_ranking").main(["--seeds", "6"])
    present, cold, warm = (table[name] for name in table if name in WAYS)
    assert cold[0] < present[0] - 0.08
    assert warm[0] > present[0] - 0.02
    assert warm[2] > present[2] + 0.03


def test_reranking_elasticsearch_answers(capsys: pytest.CaptureFixture[str]) -> None:
    module = example("elasticsearch_rerank")
    ranker = module.main(["--times", "30"])
    printed = capsys.readouterr().out
    body = json.loads(printed[printed.index("{") :])["model"]
    weights = json.loads(body["model"]["definition"])
    ranges = {name: entry["min_max"] for name, entry in body["model"]["feature_normalizers"].items()}
    wanted = json.loads((EXAMPLES / "elasticsearch" / "clicks.json").read_text())
    for number in range(1, 4):
        answer = module.search(number, None)
        ordered, _ = module.rerank(answer, ranker, explore=False)
        before = [hit["_id"] for hit in answer["hits"]["hits"]]
        after = [hit["_id"] for hit in ordered["hits"]["hits"]]
        assert sorted(before) == sorted(after)
        assert {key: value for key, value in ordered.items() if key != "hits"} == {
            key: value for key, value in answer.items() if key != "hits"
        }
        # What users click comes further up than the engine had it.
        clicked = wanted[f"search-{number}"]
        assert sum(map(after.index, clicked)) <= sum(map(before.index, clicked))
        # The plugin, given the exported body, would order the hits as we do.
        scores = []
        for hit in answer["hits"]["hits"]:
            logged = {e["name"]: e.get("value", 0.0) for e in hit["fields"]["_ltrlog"][0]["features"]}
            scaled = {f: (logged[f] - r["minimum"]) / (r["maximum"] - r["minimum"]) for f, r in ranges.items()}
            scores.append(sum(weights[feature] * scaled[feature] for feature in weights))
        assert [before[row] for row in np.argsort(-np.array(scores), kind="stable")] == after


def test_bodies_ask_for_what_the_example_reads() -> None:
    module = example("elasticsearch_rerank")
    known = json.loads((EXAMPLES / "elasticsearch" / "featureset.json").read_text())["featureset"]
    assert [feature["name"] for feature in known["features"]] == list(module.NAMES)
    for number in range(1, 4):
        request = json.loads((EXAMPLES / "elasticsearch" / f"search-{number}.request.json").read_text())
        specs = request["ext"]["ltr_log"]["log_specs"]
        (sltr,) = (entry["sltr"] for entry in request["query"]["bool"]["filter"])
        assert specs["name"] == module.LOG
        assert (sltr["_name"], sltr["featureset"]) == (specs["named_query"], known["name"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter's own machinery
def test_the_notebook_tells_its_story(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / "story.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells), "outputs do not belong into the repository: clear them"
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert all(cell.execution_count for cell in cells)


@pytest.mark.slow
def test_warm_start_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    module = example("warmstart_curves")
    options = ["--rounds", "30", "--seeds", "2", "--strength", "1000", "--out", str(tmp_path)]
    module.main(["synthetic:tiny", *options])
    cold, warm, wrong = json.loads((tmp_path / "warmstart.json").read_text())["curves"]
    assert (cold["name"], warm["name"], wrong["name"]) == ("cold", "warm, 1000 pairs", "wrong, 1000 pairs")
    assert np.mean(warm["ndcg"], axis=0)[0] > np.mean(wrong["ndcg"], axis=0)[0]
    assert (tmp_path / "warmstart.svg").read_text().lstrip().startswith("<?xml")


@pytest.mark.slow
def test_retrieval_learns_from_citations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lancedb", reason="pip install 'pairrank[lancedb]'")
    pytest.importorskip("matplotlib")
    found = example("rag").main(["--rounds", "150", "--seeds", "3", "--out", str(tmp_path)])
    assert found == json.loads((tmp_path / "rag.json").read_text())
    assert (tmp_path / "rag.svg").read_text().lstrip().startswith("<?xml")
    assert found["never_below"]
    assert found["held_out"]["gain"][1] > 0.1, "the interval's lower end"
    assert "recall@3 on questions never asked" in capsys.readouterr().out
