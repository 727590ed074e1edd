from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pairrank
from pairrank import export
from pairrank.cli import main
from pairrank.rankers import priors

from .conftest import lists


def test_from_weights_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = export.LinearModel.of([2.0, -1.0], feature_names=["title", "age"])
    (tmp_path / "old.json").write_bytes(export.dumps(model, "solr"))
    out = tmp_path / "model"
    arguments = ["warmstart", "--weights", str(tmp_path / "old.json"), "--strength", "50", "--out", str(out)]
    assert main([*arguments, "--names", "age,price,title"]) == 0
    ranker = pairrank.load(out)
    assert isinstance(ranker, pairrank.PairRank)
    expected = priors.from_weights([-1.0, np.nan, 2.0], strength=50.0)
    np.testing.assert_allclose(ranker.weights, expected.mean)
    assert "3 features, worth 50 pairs" in capsys.readouterr().out
    assert ranker.feature_names == ("age", "price", "title")  # which frames and exports go by
    assert main(arguments) == 0
    assert pairrank.load(out).feature_names == ("title", "age")
    np.save(tmp_path / "old.npy", [2.0, -1.0])
    assert main(["warmstart", "--weights", str(tmp_path / "old.npy"), "--out", str(out)]) == 0
    assert (pairrank.load(out).n_features, pairrank.load(out).feature_names) == (2, None)
    for names, words in (
        ("x,y", "none of the features x, y; it has title, age"),
        ("age,age", "twice"),
        ("age,", "empty"),
    ):
        assert main([*arguments, "--names", names]) == 2
        assert words in capsys.readouterr().err


def test_normalised_weights_are_said_to_be_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = export.LinearModel.of([2.0], normaliser=[export.MinMax(0, 4)])
    (tmp_path / "old.json").write_bytes(export.dumps(model, "json"))
    arguments = ["warmstart", "--weights", str(tmp_path / "old.json"), "--out", str(tmp_path / "model")]
    assert main(arguments) == 0
    assert "normalised" in capsys.readouterr().err
    assert main([*arguments, "--fold-normalisers", "--strength", "1e12"]) == 0
    np.testing.assert_allclose(pairrank.load(tmp_path / "model").weights, [0.5], rtol=1e-6)


def test_from_labels(tmp_path: Path) -> None:
    out = tmp_path / "model"
    assert main(["warmstart", "--data", "synthetic:tiny", "--out", str(out), "--seed", "4"]) == 0
    ranker = pairrank.load(out)
    assert ranker.seed == 4
    assert np.linalg.norm(ranker.weights) > 0


def test_features_that_do_not_vary_leave_the_names_of_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The export called feature 3 of the file 2."""
    lines = [f"{row % 2} qid:{query} 1:{row % 2} 2:7 3:{row}\n" for query in range(6) for row in range(4)]
    (tmp_path / "data.txt").write_text("".join(lines))
    arguments = ["warmstart", "--data", str(tmp_path / "data.txt"), "--out", str(tmp_path / "model")]
    assert main(arguments) == 0
    assert pairrank.load(tmp_path / "model").feature_names == ("1", "3")
    for option in (["--names", "a,b"], ["--scale", "2"], ["--fold-normalisers"]):
        assert main([*arguments, *option]) == 2
        assert "no --weights FILE came" in capsys.readouterr().err


def test_from_logs(write: Callable[..., str], tmp_path: Path) -> None:
    made = lists(100)
    made[3][0][0, 0] = np.inf
    path, weak, strong = write("a.parquet", made), tmp_path / "weak", tmp_path / "strong"
    assert main(["warmstart", path, "--strength", "10", "--out", str(weak)]) == 0
    assert main(["warmstart", path, "--strength", "1000", "--out", str(strong)]) == 0
    one, two = pairrank.load(weak), pairrank.load(strong)
    assert np.linalg.norm(one.weights) < np.linalg.norm(two.weights)
    assert (one.uncertainty() > two.uncertainty()).all()


def test_from_an_event_log(tmp_path: Path) -> None:
    features = {"b": [0.0, 0.0], "a": [1.0, 0.0]}
    documents = [{"id": name, "features": row} for name, row in features.items()]
    shown = {"type": "impression", "impression_id": "i1", "query_id": "q", "timestamp": 0, "documents": documents}
    click = {"type": "click", "impression_id": "i1", "document_id": "a", "timestamp": 1}
    (tmp_path / "events.jsonl").write_text(f"{json.dumps(shown)}\n{json.dumps(click)}\n")
    assert main(["warmstart", str(tmp_path / "events.jsonl"), "--out", str(tmp_path / "model")]) == 0
    assert pairrank.load(tmp_path / "model").weights[0] > 0


UNITS = np.array([1e-6, 1e6, 1.0, 3e4])


@pytest.mark.parametrize("source", ["labels", "logs", "weights and data", "weights and logs"])
def test_units_do_not_matter(source: str, write: Callable[..., str], tmp_path: Path) -> None:
    """A warm ranker and the same in other units agree on every score and every width, and go on agreeing."""
    rng = np.random.default_rng(7)
    rankers = []
    for number, units in enumerate((np.ones(4), UNITS)):
        made = [(X * units, clicks) for X, clicks in lists(80)]
        log, letor = write(f"{number}.parquet", made), tmp_path / f"{number}.txt"
        letor.write_text("".join(_letor(query, X, clicks) for query, (X, clicks) in enumerate(made)))
        weights = tmp_path / f"{number}.json"
        weights.write_bytes(export.dumps(export.LinearModel.of([1.0, -2.0, 0.5, 0.1] / units), "json"))
        beside = ["--data", str(letor), "--normalise", "none"] if "data" in source or source == "labels" else [log]
        known = ["--weights", str(weights)] if "weights" in source else []
        assert main(["warmstart", *known, *beside, "--out", str(tmp_path / "model")]) == 0
        rankers.append(pairrank.load(tmp_path / "model"))
    one, two = rankers
    for _ in range(50):
        X = rng.normal(size=(12, 4))
        np.testing.assert_allclose(two.score(X * UNITS), one.score(X), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(two.uncertainty() * UNITS, one.uncertainty(), rtol=1e-3)
        shown, same = one.rank(X), two.rank(X * UNITS)
        assert shown.ranking.tolist() == same.ranking.tolist()
        clicks = rng.random(12) < 0.3
        one.learn(shown, clicks)
        two.learn(same, clicks)


def _letor(query: int, X: np.ndarray, clicks: np.ndarray) -> str:
    rows = (" ".join(f"{column}:{value!r}" for column, value in enumerate(x.tolist(), 1)) for x in X)
    return "".join(f"{int(click)} qid:{query} {row}\n" for click, row in zip(clicks, rows, strict=True))


def test_weights_and_data_of_different_width(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.json").write_bytes(export.dumps(export.LinearModel.of([2.0, 1.0]), "json"))
    arguments = ["warmstart", "--weights", str(tmp_path / "old.json"), "--data", "synthetic:tiny", "--out", "x"]
    assert main(arguments) == 2
    assert "the weights 2" in capsys.readouterr().err


def test_one_source_please(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warmstart", "--out", str(tmp_path / "model")]) == 2
    assert main(["warmstart", "x", "--data", "y", "--out", str(tmp_path / "model")]) == 2
    assert "expected --weights" in capsys.readouterr().err
