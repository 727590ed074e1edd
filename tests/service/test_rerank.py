"""/v1/rerank: a real server, its own feedback, and clients of others that know nothing of us."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from web import running_app, running_server

from pairrank.cli import main
from pairrank.client import Client
from pairrank.errors import InputError
from pairrank.features.text import TextFeatures
from pairrank.integrations import ServiceReranker
from pairrank.service.auth import new_key
from pairrank.service.store import open_store
from pairrank.types import Impression

QUERY = "how do I brew green tea"
TEXTS = [
    "Coffee is brewed with boiling water.",
    "Green tea wants water of eighty degrees.",
    "A tea pot of cast iron.",
    "To brew green tea, steep the leaves for two minutes.",
]
ASKED = {"model": "tea", "query": QUERY, "documents": TEXTS}


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with running_server(tmp_path / "store.db") as address:
        yield address


def test_a_new_model_starts_with_the_order_that_came_in_and_learns_what_is_cited(tmp_path: Path) -> None:
    with running_app(tmp_path / "store.db") as client:
        first = client.post("/v1/rerank", json=ASKED)
        assert first.status_code == 200, first.text
        body = first.json()
        assert body["model"] == "tea"
        assert body["id"] == body["meta"]["impression_id"]
        assert {result["index"] for result in body["results"]} == {0, 1, 2, 3}
        scores = [result["relevance_score"] for result in body["results"]]
        assert scores == sorted(scores, reverse=True)
        made = client.get("/v1/rankers/tea").json()
        assert made["feature_names"] == list(TextFeatures().names)
        assert made["start"]["strength"] == 100.0
        for _ in range(60):
            shown = client.post("/v1/rerank", json=ASKED).json()
            click = {"impression_id": shown["id"], "clicks": ["3"]}
            assert client.post("/v1/rankers/tea/feedback", json=click).json() == {"status": "accepted"}
        assert client.get("/v1/rankers/tea?wait=30").json()["learned_count"] == 60
        client.post("/v1/rankers/tea/limits", json={"explore_share": 0.0})
        last = client.post("/v1/rerank", json={**ASKED, "top_n": 2, "return_documents": True}).json()
        assert last["results"][0]["index"] == 3
        assert last["results"][0]["document"] == {"text": TEXTS[3]}
        assert len(last["results"]) == 2


def test_without_exploration_a_new_model_keeps_the_order(tmp_path: Path) -> None:
    with running_app(tmp_path / "store.db") as client:
        names = list(TextFeatures(numbers=("votes",)).names)
        body = {"n_features": len(names), "feature_names": names, "explore_share": 0.0}
        prior = {"start": {"weights": [4.0, *[0.0] * (len(names) - 1)], "strength": 100.0}}
        assert client.put("/v1/rankers/tea", json={**body, **prior}).status_code == 201
        assert client.put("/v1/rankers/tea", json={**body, **prior}).status_code == 200
        assert client.put("/v1/rankers/tea", json=body).status_code == 409
        documents = [{"text": text, "id": f"d{n}", "votes": n} for n, text in enumerate(TEXTS)]
        shown = client.post("/v1/rerank", json={**ASKED, "documents": documents}).json()
        assert [result["index"] for result in shown["results"]] == [0, 1, 2, 3]
        click = {"impression_id": shown["id"], "clicks": ["d2"]}
        assert client.post("/v1/rankers/tea/feedback", json=click).json() == {"status": "accepted"}


def test_the_library_and_the_endpoint_share_a_model_and_its_log_replays(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with running_server(file) as address:
        made = httpx.post(f"{address}/v1/rerank", json=ASKED).json()
        ours = ServiceReranker("tea", address)  # the same configuration: it is found, not made
        for _ in range(5):
            shown = ours.rerank(QUERY, TEXTS, top_n=3)
            for wrong in (shown.order[1], str(shown.order[1]), None):
                with pytest.raises(InputError, match="expected row numbers that rerank returned"):
                    ours.feedback(shown.impression_id, wrong)  # type: ignore[arg-type]
            assert ours.feedback(shown.impression_id, [shown.order[1]]) is True
            assert ours.feedback(shown.impression_id, [shown.order[1]]) is False
        fed_back(address, made["id"], 2)
        assert ours.client.ranker("tea")["feedback_count"] == 6
        httpx.get(f"{address}/v1/rankers/tea?wait=30")
        ours.close()
    assert main(["replay", str(file)]) == 0  # the prior is part of the configuration that the log starts from


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"start": {"weights": [1.0]}}, "start.weights has 1 numbers; expected 2, one per feature"),
        ({"start": {"strength": 1.0}}, "weights"),
        ({"start": {"weights": [1.0, None], "variance": [1.0]}}, "start.variance has 1 numbers; expected 2"),
        ({"start": {"weights": [None, None]}}, "weights have shape"),
        ({"start": {"weights": {"a": 1.0}}}, "start.weights came by name, and there are no feature_names"),
        (
            {"start": {"weights": {"prise": 1.0}}, "feature_names": ["price", "age"]},
            "start.weights has 'prise', which is no feature; did you mean 'price'?",
        ),
        ({"start": {"weights": [1.0, 0.0]}, "ranker": "pdgd"}, "a pdgd cannot take a prior"),
    ],
)
def test_priors_that_are_not_whole_are_refused(tmp_path: Path, wrong: dict[str, Any], sentence: str) -> None:
    with running_app(tmp_path / "store.db") as client:
        refused = client.put("/v1/rankers/a", json={"n_features": 2, **wrong})
        assert refused.status_code == 422
        assert sentence in refused.json()["message"]
        half = {"n_features": 2, "start": {"weights": [1.0, None], "strength": 5.0}}
        assert client.put("/v1/rankers/a", json=half).json()["start"]["weights"] == [1.0, None]


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 400, "the body is not JSON"),
        (b"{}", 422, "query must be a text that is not empty"),
        ({**ASKED, "documents": []}, 422, "documents must be a list with one document at least"),
        ({**ASKED, "documents": [{"title": "x"}]}, 422, "documents[0] has no text"),
        ({**ASKED, "documents": ["x"] * 1_000_000}, 422, "there are 1000000 documents; at most 2000 are allowed"),
        ({**ASKED, "documents": ["x" * 9_000_000]}, 413, "the body is larger than 8388608 bytes"),
        ({**ASKED, "top_n": "3"}, 422, "top_n must be a whole number"),
        ({**ASKED, "model": "BAAI/bge"}, 404, "and it cannot be made: 'BAAI/bge' cannot name the ranker"),
        ({**ASKED, "model": "numbers"}, 422, "the ranker 'numbers' was not made for texts"),
    ],
    ids=lambda value: None if isinstance(value, (bytes, dict)) else str(value)[:30],
)
def test_malformed_bodies_are_refused_in_the_shape_of_the_family(
    tmp_path: Path, body: Any, status: int, sentence: str
) -> None:
    with running_app(tmp_path / "store.db") as client:
        client.put("/v1/rankers/numbers", json={"n_features": 2})
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        refused = client.post("/v1/rerank", headers={"content-type": "application/json"}, **sent)
        assert refused.status_code == status, refused.text
        said = refused.json()
        assert said.keys() == {"error", "message", "detail"}
        assert sentence in said["message"]
        assert said["detail"] == said["message"]
        assert len(said["message"]) < 250


def test_keys_say_who_may_make_a_model(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store.db"))
    secrets = {}
    for role in ("rank", "admin"):
        key, secrets[role] = new_key(role, [role], 0.0)
        store.put_key(key, "test")
    store.close()
    with running_app(tmp_path / "store.db") as client:

        def ask(secret: str | None) -> httpx.Response:
            headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
            return client.post("/v1/rerank", json=ASKED, headers=headers)

        refused = ask(None)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        unknown = ask(secrets["rank"])
        assert unknown.status_code == 404
        assert (
            "no ranker is called 'tea', and it cannot be made: the key 'rank' does not have the role 'admin'"
            in (unknown.json()["message"])
        )
        assert ask(secrets["admin"]).status_code == 200
        assert ask(secrets["rank"]).status_code == 200


def test_another_service_as_the_upstream(tmp_path: Path, address: str) -> None:
    """Ours behind ours: the scores of one are a feature of the other, and are done without when it is gone."""
    with running_app(tmp_path / "other.db", upstream=f"{address}/v1/rerank", upstream_model="up") as client:
        assert client.post("/v1/rerank", json=ASKED).status_code == 200
        (kept,) = client.app.state.worker.store.impressions(1, 1, 0)
        column = Impression.from_bytes(kept.body).features[:, TextFeatures().names.index("upstream")].tolist()
        assert sorted(column)[0] == 0.0
        assert sorted(column)[-1] == 1.0
    with running_app(tmp_path / "third.db", upstream="http://127.0.0.1:1/v1/rerank") as client:
        assert client.post("/v1/rerank", json=ASKED).status_code == 200


# Clients of others, unchanged, pointed at our address.


def fed_back(address: str, impression_id: str, index: int) -> None:
    with Client(address) as client:
        assert client.feedback("tea", impression_id, [str(index)]) == "accepted"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_client_of_cohere(address: str) -> None:
    cohere = pytest.importorskip("cohere", reason="pip install cohere")
    connections = httpx.Client()
    client = cohere.Client("no key", base_url=address, httpx_client=connections)
    first = client.rerank(model="tea", query=QUERY, documents=TEXTS, top_n=2, return_documents=True)
    assert len(first.results) == 2
    assert first.results[0].document.text == TEXTS[first.results[0].index]
    assert first.results[0].relevance_score > first.results[1].relevance_score
    fed_back(address, first.id, first.results[0].index)
    newer = cohere.ClientV2("no key", base_url=address, httpx_client=connections)
    second = newer.rerank(model="tea", query=QUERY, documents=TEXTS)
    fed_back(address, second.id, second.results[1].index)
    with pytest.raises(cohere.UnprocessableEntityError) as caught:
        client.rerank(model="tea", query="", documents=TEXTS)
    assert caught.value.body["message"] == "query must be a text that is not empty"
    with pytest.raises(cohere.NotFoundError):
        client.rerank(model="no/name", query=QUERY, documents=TEXTS)
    connections.close()

    async def later() -> Any:
        async with cohere.AsyncClientV2("no key", base_url=address) as other:
            return await other.rerank(model="tea", query=QUERY, documents=TEXTS, top_n=1)

    assert len(asyncio.run(later()).results) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_langchains_client_of_cohere(address: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("langchain_cohere", reason="pip install langchain-cohere")
        from langchain_cohere import CohereRerank
    from langchain_core.documents import Document

    reranker = CohereRerank(model="tea", base_url=address, cohere_api_key="none", top_n=3)
    documents = reranker.compress_documents([Document(page_content=text) for text in TEXTS], QUERY)
    reranker.client._client_wrapper.httpx_client.httpx_client.close()
    assert len(documents) == 3
    scores = [document.metadata["relevance_score"] for document in documents]
    assert scores == sorted(scores, reverse=True)


def test_haystacks_client_of_jina(address: str) -> None:
    pytest.importorskip("haystack_integrations.components.rankers.jina", reason="pip install jina-haystack")
    from haystack import Document
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.jina import JinaRanker

    ranker = JinaRanker("tea", Secret.from_token("none"), top_k=2, base_url=f"{address}/v1/rerank")
    answer = ranker.run(QUERY, [Document(content=text) for text in TEXTS])
    assert len(answer["documents"]) == 2
    assert answer["meta"]["model"] == "tea"
    with pytest.raises(RuntimeError, match="query must be a text that is not empty"):
        ranker.run(" ", [Document(content=text) for text in TEXTS])


LITELLM = """
import sys
import litellm
address, query, *texts = sys.argv[1:]
bases = {"cohere": "", "jina_ai": "/v1/rerank", "hosted_vllm": "", "infinity": "/infinity"}
for provider, path in bases.items():
    model, base = provider + "/tea", address + path
    answer = litellm.rerank(model=model, query=query, documents=texts, top_n=2, api_base=base, api_key="none")
    assert answer.results[0]["document"]["text"] == texts[answer.results[0]["index"]]
    print("RANKED", answer.id, *(result["index"] for result in answer.results))
"""


# What this release of it imports and our other extras do not bring; the rest it shares with them, at their versions.
LITELLM_NEEDS = (
    "litellm==1.108.4",
    "python-dotenv",
    "pydantic-settings",
    "typing-inspection",
    "importlib-metadata<9",
    "zipp",
    "fastuuid",
)


@pytest.mark.slow
def test_litellm(address: str, tmp_path: Path) -> None:
    """Beside the other packages: it asks for older releases of some than others do, though it works with these."""
    pytest.importorskip("openai", reason="pip install 'pairrank[llamaindex]'")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-compile",
    ]
    installed = subprocess.run([*pip, "--target", str(tmp_path / "litellm"), *LITELLM_NEEDS], capture_output=True)
    if installed.returncode:
        pytest.skip("LiteLLM cannot be installed here: pip install litellm")
    # Without the first it looks for prices on the network.
    alone = os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": str(tmp_path / "litellm")}
    script = [sys.executable, "-c", LITELLM, address, QUERY, *TEXTS]
    done = subprocess.run(script, capture_output=True, text=True, env=alone)
    shutil.rmtree(tmp_path / "litellm")
    answers = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("RANKED")]
    assert len(answers) == 4, done.stdout + done.stderr
    for impression_id, first, second in answers:
        assert first != second
        fed_back(address, impression_id, int(first))
