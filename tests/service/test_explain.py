"""Why a list stands as it stands, over HTTP; and what a missing value is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from web import DOCUMENTS, TestClient, clicked, ranked, running_app

from pairrank.rankers import Ranker
from pairrank.rankers.linear import LinearRanker
from pairrank.service.http import explanation

RANK = "/v1/rankers/a/rank"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with running_app(tmp_path / "store.db") as client:
        assert client.put("/v1/rankers/a", json={"n_features": 2}).status_code == 201
        yield client


def served(client: TestClient) -> Ranker:
    item = client.app.state.worker.models._items["a"]  # type: ignore[attr-defined]
    assert isinstance(item.ranker, Ranker)
    return item.ranker


def learn(client: TestClient, lists: int = 20) -> None:
    for _ in range(lists):
        clicked(client, ranked(client), "d0")
    assert client.get("/v1/rankers/a?wait=30").json()["learned_count"] == lists
    assert ranked(client)["model_version"] == lists


def test_the_explanation_is_that_of_the_library(client: TestClient) -> None:
    learn(client)
    shown = ranked(client, explain=True, k=4)
    ids = [row["id"] for row in shown["ranking"]]
    X = np.array([document["features"] for name in ids for document in DOCUMENTS if document["id"] == name])
    ranker = served(client)
    assert isinstance(ranker, LinearRanker)
    told, why = ranker.explain(X), shown["explanation"]
    assert list(why["contributions"]) == ids
    assert [list(row.values()) for row in why["contributions"].values()] == told.contribution.tolist()
    assert list(why["contributions"][ids[0]]) == ["0", "1"]
    scores = {row["id"]: row["score"] for row in shown["ranking"]}
    middle = np.mean(list(scores.values()))
    for name, row in why["contributions"].items():
        assert sum(row.values()) == pytest.approx(scores[name] - middle)
    assert [pair["above"] for pair in why["neighbours"]] == [ids[row] for row in told.order[:-1]]
    assert [pair["below"] for pair in why["neighbours"]] == [ids[row] for row in told.order[1:]]
    assert [(p["gap"], p["width"], p["certain"]) for p in why["neighbours"]] == list(
        zip(told.gap.tolist(), told.width.tolist(), told.certain.tolist(), strict=True)
    )
    for pair in why["neighbours"]:
        assert pair["gap"] == pytest.approx(scores[pair["above"]] - scores[pair["below"]])
    assert any(pair["gap"] > 0 for pair in why["neighbours"])


def test_it_is_not_worked_out_unless_asked_for(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("worked out for nobody")

    monkeypatch.setattr(LinearRanker, "explain", never)
    assert "explanation" not in ranked(client)
    assert "explanation" not in ranked(client, explain=False)
    assert client.post(RANK, json={"documents": DOCUMENTS, "explain": True}).status_code == 500


def test_without_widths_they_are_null(client: TestClient) -> None:
    client.put("/v1/rankers/p", json={"n_features": 2, "ranker": "pdgd"})
    shown = client.post("/v1/rankers/p/rank", json={"documents": DOCUMENTS, "explain": True}).json()
    assert [pair["width"] for pair in shown["explanation"]["neighbours"]] == [None] * 4


@pytest.mark.parametrize(
    ("more", "told"), [({"explain": 1}, "explain must be true or false"), ({"explain": True}, "up to 3 documents")]
)
def test_what_cannot_be_explained_is_refused_and_nothing_is_shown(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], told: str
) -> None:
    monkeypatch.setattr(explanation, "MAX_EXPLAINED", 3)
    refused = client.post(RANK, json={"documents": DOCUMENTS, **more})
    assert refused.status_code == 422
    assert told in refused.json()["message"]
    assert client.get("/v1/rankers/a/impressions").json()["impressions"] == []
    assert ranked(client, explain=True, k=3)["explanation"]


def test_an_explanation_is_bounded_in_bytes(client: TestClient) -> None:
    """The names of all features are told again for each document; what is refused would not have been much smaller."""
    client.put(
        "/v1/rankers/w",
        json={"n_features": 1000, "ranker": "pdgd", "feature_names": ["ü" * 250 + str(i) for i in range(1000)]},
    )
    documents = [{"id": str(i), "features": {}} for i in range(70)]
    refused = client.post("/v1/rankers/w/rank", json={"documents": documents, "explain": True})
    assert refused.status_code == 422
    assert "to explain 70 documents may take" in refused.json()["message"]
    assert client.get("/v1/rankers/w/impressions").json()["impressions"] == []
    told = client.post("/v1/rankers/w/rank", json={"documents": documents, "explain": True, "k": 60})
    assert told.status_code == 200
    assert 0.9 * explanation.MAX_BYTES < len(told.content) < explanation.MAX_BYTES


def test_a_missing_value_is_what_the_ranker_says(client: TestClient) -> None:
    client.put("/v1/rankers/b", json={"n_features": 2, "options": {"missing": "mean"}, "feature_names": ["x", "y"]})
    documents = [{"id": "a", "features": [None, 1]}, {"id": "b", "features": {"y": 3}}, {"id": "c", "features": [4, 5]}]
    shown = client.post("/v1/rankers/b/rank", json={"documents": documents, "explain": True})
    assert shown.status_code == 200, shown.text
    told = client.post("/v1/rankers/b/feedback", json={"impression_id": shown.json()["impression_id"], "clicks": ["c"]})
    assert told.json() == {"status": "accepted"}
    learned = client.get("/v1/rankers/b?wait=30").json()
    assert (learned["learned_count"], learned["set_aside"]) == (1, 0)


def test_values_may_be_missing_where_documents_are_called_as_features_are(client: TestClient) -> None:
    client.put("/v1/rankers/b", json={"n_features": 2, "options": {"missing": 0}, "feature_names": ["1", "2"]})
    documents = [{"id": str(n), "features": [n, None]} for n in range(1, 4)]
    shown = client.post("/v1/rankers/b/rank", json={"documents": documents})
    assert shown.status_code == 200, shown.text


def test_null_in_an_additive_model_is_a_value(client: TestClient) -> None:
    client.put("/v1/rankers/b", json={"n_features": 2, "options": {"model": "additive"}})
    documents = [{"id": "a", "features": [None, 1]}, {"id": "b", "features": [2, 3]}]
    assert client.post("/v1/rankers/b/rank", json={"documents": documents}).status_code == 200


def test_null_elsewhere_is_refused_in_one_sentence(client: TestClient) -> None:
    documents = [{"id": "a", "features": [0, 1]}, {"id": "b", "features": [2, None]}]
    refused = client.post(RANK, json={"documents": documents})
    assert refused.status_code == 422
    assert refused.json()["message"] == (
        "document 'b', column 1 of the features is nan; expected finite numbers from -1e+13 to 1e+13; for missing "
        "values say what they mean, as in missing=0.0 or missing='mean'"
    )
