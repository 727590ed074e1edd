from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from pairrank.service.playground import index as indexing
from pairrank.service.playground import users
from pairrank.service.playground.documents import Document
from pairrank.service.playground.features import FEATURES, NAMES, Features
from pairrank.service.playground.index import FIELDS, Index
from pairrank.service.playground.words import query_words, words


def document(path: str, text: str, kind: str = "function", signature: str = "()") -> Document:
    return Document(path.rpartition(".")[2], path, path.partition(".")[0], kind, signature, text)


DOCUMENTS = [
    document("json.loads", "Parse a JSON document. The text must be a string.", signature="(text, strict=True)"),
    document("json.dumps", "Write a value as JSON text."),
    document("json", "Read and write JSON.", kind="module", signature=""),
    document("xml.parse", "Parse a document."),
    document("xml.Reader.parse", "Parse a document. Deprecated.", kind="method"),
    document("xml._Hidden", "Something else entirely: nothing to see.", kind="class"),
    document("zoo.loads", "Feed the beasts."),
]


@pytest.fixture(scope="module")
def index() -> Index:
    return indexing.build(DOCUMENTS, {"json": 9, "xml": 1})


def slow_bm25(field: str, query: str) -> list[float]:
    """BM25 with k1 = 1.2 and b = 0.75, one document and one word at a time."""
    lists = [words(getattr(d, field)) for d in DOCUMENTS]
    mean = sum(map(len, lists)) / len(lists)
    scores = []
    for found in lists:
        total = 0.0
        for word in query_words(query):
            holds = sum(word in other for other in lists)
            tf = found.count(word)
            idf = math.log(1 + (len(lists) - holds + 0.5) / (holds + 0.5))
            total += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len(found) / mean))
        scores.append(total)
    return scores


@pytest.mark.parametrize("query", ["parse json", "document", "loads", "text strict", "absent", ""])
def test_bm25_is_that_of_a_slow_twin(index: Index, query: str) -> None:
    fast = index.bm25(index.lookup(query))
    for field in FIELDS:
        np.testing.assert_allclose(fast[field], slow_bm25(field, query), rtol=1e-12, atol=1e-12)


def test_gathered_are_those_that_match_best_first(index: Index) -> None:
    found = index.gather("parse json", 3)
    assert len(found) == 3
    assert {DOCUMENTS[i].qualified for i in found} <= {
        "json.loads",
        "json.dumps",
        "json",
        "xml.parse",
        "xml.Reader.parse",
    }
    assert len(index.gather("absent", 10)) == 0
    assert [DOCUMENTS[i].qualified for i in index.gather("beasts", 10)] == ["zoo.loads"]


def test_the_index_is_built_once_and_then_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "beasts.py"
    source.write_text('"""About beasts."""')
    monkeypatch.setattr(indexing, "source_files", lambda: [("beasts", source)])
    monkeypatch.setenv("PAIRRANK_CACHE", str(tmp_path / "cache"))
    steps: list[tuple[int, int]] = []

    def opened() -> Index:
        return indexing.open_index(lambda *step: steps.append(step))

    first = opened()
    assert steps == [(1, 1)]
    assert any(d.qualified == "beasts" for d in first.documents)
    second = opened()
    assert steps == [(1, 1)]
    assert list(second.documents) == list(first.documents)
    assert second.terms == first.terms
    np.testing.assert_array_equal(second.popularity, first.popularity)
    candidates = np.arange(len(first.documents))
    np.testing.assert_array_equal(Features(second)("parse", candidates), Features(first)("parse", candidates))
    (kept,) = (tmp_path / "cache").rglob("manifest.json")
    kept.write_bytes(b"rubbish")
    opened()
    assert steps == 2 * [(1, 1)]
    monkeypatch.setattr(indexing.sys, "version", "another")
    opened()
    assert steps == 3 * [(1, 1)]


def test_a_cache_that_cannot_be_written_does_not_stop_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(indexing, "source_files", lambda: [])
    monkeypatch.setenv("PAIRRANK_CACHE", str(tmp_path / "file" / "below"))
    assert indexing.open_index().documents


def column(index: Index, query: str, name: str, paths: list[str]) -> list[float]:
    candidates = np.array([next(i for i, d in enumerate(DOCUMENTS) if d.qualified == path) for path in paths])
    return Features(index)(query, candidates)[:, NAMES.index(name)].tolist()


def test_features_say_what_their_names_say(index: Index) -> None:
    def of(query: str, name: str, *paths: str) -> list[float]:
        return column(index, query, name, list(paths))

    assert of("loads", "exact name", "json.loads", "json.dumps") == [1, 0]
    assert of("json loads", "exact path", "json.loads", "zoo.loads") == [1, 0]
    assert of("pars", "name starts", "xml.parse", "json.loads") == [1, 0]
    assert of("parse json", "words in name", "xml.parse", "json.dumps") == [1, 0]
    assert of("json loads", "words in path", "json.loads", "zoo.loads", "xml.parse") == [1, 0.5, 0]
    assert of("json document", "words in summary", "json.loads", "xml.parse", "zoo.loads") == [1, 0.5, 0]
    assert of("string", "words in text", "json.loads", "json.dumps") == [1, 0]
    # "json" stands third in one and fifth in the other: 1/(1 + words before it), then scaled.
    early = of("json", "early match", "json.loads", "json.dumps", "xml.parse")
    assert early == pytest.approx([1, (1 / 5) / (1 / 3), 0])
    assert of("json document", "phrase", "json.loads", "json.dumps") == [1, 0]
    assert of("parse", "is module", "json", "json.loads") == [1, 0]
    assert of("parse", "is method", "xml.Reader.parse", "xml.parse") == [1, 0]
    assert of("parse", "is class", "xml._Hidden", "xml.parse") == [1, 0]
    assert of("parse", "private", "xml._Hidden", "xml.parse") == [1, 0]
    assert of("parse", "deprecated", "xml.Reader.parse", "xml.parse") == [1, 0]
    assert of("parse", "depth", "json", "json.loads", "xml.Reader.parse") == [0, 0.5, 1]
    assert of("x", "module popularity", "json", "xml.parse", "zoo.loads") == pytest.approx(
        [1, math.log(2) / math.log(10), 0]
    )


def test_every_feature_is_explained_and_scaled_within_the_query(index: Index) -> None:
    X = Features(index)("parse json document", np.arange(len(DOCUMENTS)))
    assert X.shape == (len(DOCUMENTS), len(FEATURES))
    assert all(FEATURES.values())
    assert X.min() == 0
    assert X.max() == 1
    varying = X.max(axis=0) > 0
    assert (X.min(axis=0) == 0).all()
    assert (X.max(axis=0)[varying] == 1).all()
    lonely = Features(index)("parse", np.array([3]))
    assert not lonely.any()


def test_needs_are_a_function_of_seed_and_number(index: Index) -> None:
    one, again = users.need(index, 0, 7, 5), users.need(index, 0, 7, 5)
    assert (one.document, one.query) == (again.document, again.query)
    np.testing.assert_array_equal(one.grades, again.grades)
    assert len({(n.document, n.query) for n in (users.need(index, 0, i, 5) for i in range(20))}) > 5


def test_a_need_is_a_public_document_asked_for_in_its_own_words(index: Index) -> None:
    for number in range(40):
        need = users.need(index, 1, number, 5)
        wanted = DOCUMENTS[need.document]
        own = set(words(wanted.name)) | set(words(wanted.summary))
        assert set(need.query.split()) <= own
        assert need.document in need.candidates
        assert not wanted.private
        assert not wanted.deprecated
        assert (need.grades == 2).sum() == 1
        assert need.candidates[need.grades.argmax()] == need.document


def test_grades_tell_namesakes_and_look_alikes_from_others(index: Index) -> None:
    by_path = {d.qualified: i for i, d in enumerate(DOCUMENTS)}
    candidates = np.arange(len(DOCUMENTS))
    grades = dict(zip(by_path, users.grades(index, by_path["json.loads"], candidates).tolist(), strict=True))
    assert grades["json.loads"] == 2
    assert grades["zoo.loads"] == 1  # the same name
    assert grades["json"] == 0
    alike = users.grades(index, by_path["xml.parse"], candidates)
    assert alike[by_path["json.loads"]] == 1  # "parse json document" and "parse document" share two of three words
