"""The shape of /v1/rerank: what is taken, what is refused and in which words, what is answered."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairrank.errors import InputError
from pairrank.service.http.rerank_request import RerankRequest, parse_rerank, rerank_answer


def parse(**body: Any) -> RerankRequest:
    return parse_rerank(json.dumps({"model": "m", "query": "q", "documents": ["a", "b"], **body}).encode(), 10)


def test_what_cohere_and_jina_send_is_taken() -> None:
    assert parse() == ("m", "q", ["a", "b"], None, False)
    cohere = parse(documents=[{"text": "a", "title": "t"}], top_n=3, rank_fields=None, max_chunks_per_doc=10)
    assert cohere == ("m", "q", [{"text": "a", "title": "t"}], 3, False)
    jina = parse(top_n=None, return_documents=True, truncation=False, user="me")
    assert jina.return_documents
    assert parse(model=None).model == parse(model="").model == "rerank"
    fields = parse(documents=[{"title": "A", "body": "b", "n": 1}], rank_fields=["title", "body", "n"])
    assert fields.documents[0] == {"title": "A", "body": "b", "n": 1, "text": "A\nb"}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"[]", "the body is not a JSON object with model, query and documents"),
        ({"model": 3}, "model must be a text"),
        ({"model": "m\0"}, "model must be a text"),
        ({"query": None}, "query must be a text that is not empty"),
        ({"query": " "}, "query must be a text that is not empty"),
        ({"query": "q " * 2_000_000}, "the query has 4000000 characters; at most 2500000 are allowed"),
        ({"query": ["a"]}, "query must be a text that is not empty"),
        ({"documents": []}, "documents must be a list with one document at least"),
        ({"documents": "a"}, "documents must be a list with one document at least"),
        ({"documents": None}, "documents must be a list with one document at least"),
        ({"documents": ["a"] * 11}, "there are 11 documents; at most 10 are allowed"),
        ({"documents": ["a", 3]}, r"documents\[1\] is neither a text nor an object with text"),
        ({"documents": ["a", None]}, r"documents\[1\] is neither a text nor an object with text"),
        ({"documents": [{"title": "a"}]}, r"documents\[0\] has no text; expected a string under 'text'"),
        ({"documents": [{"text": 3}]}, r"documents\[0\] has no text"),
        ({"documents": [{"title": 3}], "rank_fields": ["title"]}, r"documents\[0\] has no text"),
        ({"rank_fields": "title"}, "rank_fields must be a list of texts"),
        ({"top_n": 0}, "top_n must be a whole number of documents, 1 or more"),
        ({"top_n": 1.5}, "top_n must be"),
        ({"top_n": True}, "top_n must be"),
        ({"top_n": "3"}, "top_n must be"),
        ({"return_documents": "yes"}, "return_documents must be true or false"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(body: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        parse_rerank(body, 10) if isinstance(body, bytes) else parse(**body)
    assert "\n" not in str(caught.value)


def test_ids_and_scores() -> None:
    named = parse(documents=[{"text": "a", "id": "x", "score": 2}, {"text": "b", "id": "y", "score": True}])
    assert named.ids == ["x", "y"]
    assert parse(documents=[{"text": "a", "id": 7}, {"text": "b", "id": "x"}]).ids == ["7", "x"]
    scores = named.scores
    assert scores is not None
    assert scores[0] == 2.0
    assert math.isnan(scores[1])
    for second in ("b", {"text": "b"}, {"text": "b", "id": 7}, {"text": "b", "id": ""}, {"text": "b", "id": True}):
        request = parse(documents=[{"text": "a", "id": "7"}, second])
        assert request.ids == ["0", "1"]
        assert request.scores is None


def test_the_answer_and_the_refusal() -> None:
    request = parse(documents=["a", {"text": "b", "title": "t"}], return_documents=True)
    answer = rerank_answer(request, [1, 0], [0.9, 0.1], {"impression_id": "7-x", "model_version": 3})
    assert answer == {
        "id": "7-x",
        "object": "list",
        "model": "m",
        "results": [
            {"index": 1, "relevance_score": 0.9, "document": {"text": "b", "title": "t"}},
            {"index": 0, "relevance_score": 0.1, "document": {"text": "a"}},
        ],
        "meta": {"api_version": {"version": "1"}, "impression_id": "7-x", "model_version": 3},
        "usage": {"total_tokens": 0},
    }
    plain = rerank_answer(parse(), [0], [0.5], {"impression_id": "8-y"})
    assert plain["results"] == [{"index": 0, "relevance_score": 0.5}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("model", "query", "documents", "top_n"), JSON)))
def test_any_body_is_taken_or_refused_by_name(body: dict[str, Any]) -> None:
    try:
        request = parse_rerank(json.dumps(body).encode(), 10)
    except InputError:
        return
    assert len(request.ids) == len(request.documents)
