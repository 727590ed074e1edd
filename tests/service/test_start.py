"""A ranker of the service starts from what there is: weights of the present ranking, or a saved model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pairrank
from pairrank import PairRank
from pairrank.cli import main
from service.web import running_app

NAMES = ["text_match", "sales", "price_cents"]
WEIGHTS = {"text_match": 2.0, "sales": 0.004, "price_cents": -0.0003}


def candidates(seed: int, n: int = 30) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 3)) * [1.0, 500.0, 20_000.0]


def documents(X: np.ndarray) -> list[dict[str, object]]:
    return [{"id": f"d{row}", "features": dict(zip(NAMES, x, strict=True))} for row, x in enumerate(X.tolist())]


@pytest.mark.parametrize("variance", [None, [0.17, 4e4, 7e7]])
def test_the_first_list_is_exactly_that_of_the_weights(tmp_path: Path, variance: list[float] | None) -> None:
    start = {"weights": WEIGHTS, "strength": 300, "variance": variance}
    body = {"n_features": 3, "feature_names": NAMES, "start": start, "explore_share": 0.0}
    with running_app(tmp_path / "store.db") as client:
        assert client.put("/v1/rankers/shop", json=body).status_code == 201
        for seed in range(5):
            X = candidates(seed)
            shown = client.post("/v1/rankers/shop/rank", json={"documents": documents(X)}).json()
            expected = np.argsort(-(X @ list(WEIGHTS.values())), kind="stable")
            assert [document["id"] for document in shown["ranking"]] == [f"d{row}" for row in expected]
            assert shown["explored"] is False
        told = client.get("/v1/rankers/shop").json()["start"]
        assert told == {"weights": list(WEIGHTS.values()), "strength": 300.0, "variance": variance}


def test_with_exploration_it_begins_near_the_present_order_and_not_at_random(tmp_path: Path) -> None:
    start = {"weights": WEIGHTS, "variance": [0.17, 4e4, 7e7]}
    with running_app(tmp_path / "store.db") as client:
        client.put("/v1/rankers/warm", json={"n_features": 3, "feature_names": NAMES, "start": start})
        client.put("/v1/rankers/cold", json={"n_features": 3, "feature_names": NAMES})
        kept = {"warm": 0, "cold": 0}
        for name in kept:
            for seed in range(10):
                X = candidates(seed)
                shown = client.post(f"/v1/rankers/{name}/rank", json={"documents": documents(X), "k": 10}).json()
                best = set(np.argsort(-(X @ list(WEIGHTS.values())))[:10].tolist())
                kept[name] += len(best & {int(document["id"][1:]) for document in shown["ranking"]})
    assert kept["warm"] > 90 > 60 > kept["cold"]  # of 100: ten lists of ten


@pytest.mark.parametrize(("names", "told"), [("a,b", "2 feature_names came for 3"), ("a,b,a", "'a' twice")])
def test_names_of_a_model_are_one_per_feature(
    names: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    PairRank(3).save(tmp_path / "shop.pairrank")
    words = ["store", "import", str(tmp_path / "s.db"), str(tmp_path / "shop.pairrank"), "--ranker", "shop"]
    assert main([*words, "--names", names]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "s.db").exists()


def test_a_saved_model_goes_on_in_the_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranker = PairRank(feature_names=NAMES, seed=5)
    for seed in range(40):
        shown = ranker.rank(candidates(seed), 10)
        ranker.learn(shown, shown.features[:, 0] > 0.6)
    ranker.save(tmp_path / "shop.pairrank")
    store = str(tmp_path / "store.db")
    words = ["store", "import", store, str(tmp_path / "shop.pairrank"), "--ranker", "shop"]
    assert main(words) == 0
    assert ranker.digest() in capsys.readouterr().out
    assert main(words) == 2
    assert "there is a ranker 'shop' already" in capsys.readouterr().err
    with running_app(tmp_path / "store.db") as client:
        row = client.get("/v1/rankers/shop?wait=30").json()
        assert (row["state_digest"], row["feature_names"]) == (ranker.digest(), NAMES)
        X = candidates(100)
        answer = client.post("/v1/rankers/shop/rank", json={"documents": documents(X)}).json()
        by_score = sorted(answer["ranking"], key=lambda document: -document["score"])
        assert [document["id"] for document in by_score] == [f"d{row}" for row in np.argsort(-ranker.score(X))]
        for seed in range(101, 104):
            answer = client.post("/v1/rankers/shop/rank", json={"documents": documents(candidates(seed))}).json()
            feedback = {"impression_id": answer["impression_id"], "clicks": [answer["ranking"][3]["id"]]}
            assert client.post("/v1/rankers/shop/feedback", json=feedback).json()["status"] == "accepted"
        after = client.get("/v1/rankers/shop?wait=30").json()
        # Numbers go on from the model's own: none is taken for a list that it has learned before.
        assert (after["learned_count"], after["skipped_count"], after["set_aside"]) == (3, 0, 0)
        assert after["state_digest"] != ranker.digest()
        blob = client.get("/v1/rankers/shop/model").content
    assert main(["replay", store]) == 0
    (tmp_path / "served.pairrank").write_bytes(blob)
    assert pairrank.load(tmp_path / "served.pairrank").feature_names == tuple(NAMES)
    again = ["store", "import", store, str(tmp_path / "served.pairrank"), "--ranker", "copy"]
    assert main(again) == 0
