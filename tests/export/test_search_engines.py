"""Models for engines that combine scores themselves, read by evaluators that share no code with the package."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

import pairrank
from pairrank import export
from pairrank.errors import ExportError
from pairrank.export import LinearModel, MinMax, QueryMinMax
from pairrank.export.model import nonnegative_weights
from pairrank.kernel import pairs
from pairrank.rankers.ranknet import SGDRankNet
from slow_twins import pair_loss

NAMES = ("bm25(title)", "attribute(age)", "closeness(field,embedding)")
FEATURES = np.random.default_rng(1).normal(size=(30, 3)) * [3.0, 100.0, 0.1] + [0.0, 50.0, 0.0]


def spread(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) for value in values]


def vespa_scores(text: str, columns: dict[str, list[float]]) -> list[float]:
    """A sum of products, one a line."""
    phase, expression = re.search(r"(first|global)-phase \{\s*expression \{(.*?)\}", text, re.S).groups()
    known = dict(columns)
    if phase == "global":  # only there all hits are known
        known |= {f"normalize_linear({name})": spread(values) for name, values in columns.items()}
    total = [0.0] * len(FEATURES)
    for term in expression.split("+\n"):
        weight, name = term.strip().split(" * ")
        total = [before + float(weight) * value for before, value in zip(total, known[name], strict=True)]
    return total


def elasticsearch_scores(body: str, columns: dict[str, list[float]]) -> list[float]:
    total = [0.0] * len(FEATURES)
    for part in json.loads(body)["retriever"]["linear"]["retrievers"]:
        values = columns[part["retriever"]["standard"]["_name"]]
        scores = spread(values) if part["normalizer"] == "minmax" else values
        total = [before + part["weight"] * score for before, score in zip(total, scores, strict=True)]
    return total


def opensearch_scores(body: str, columns: dict[str, list[float]]) -> list[float]:
    pipeline = json.loads(body)
    processor = pipeline["phase_results_processors"][0]["normalization-processor"]
    assert processor["normalization"] == {"technique": "min_max"}
    weights = processor["combination"]["parameters"]["weights"]
    assert sum(weights) == pytest.approx(1.0, abs=1e-6)
    assert all(0 <= weight <= 1 for weight in weights)
    queries = json.loads(pipeline["description"])["queries"]
    scaled = [spread(columns[name]) for name in queries]
    return [float(np.dot(weights, scores) / sum(weights)) for scores in zip(*scaled, strict=True)]


@pytest.mark.parametrize(
    ("format", "evaluate", "weights", "entries"),
    [
        ("vespa", vespa_scores, [0.5, -0.02, 3.0], (None, None, None)),
        ("vespa", vespa_scores, [0.5, -0.25, 3.0], (QueryMinMax(), None, QueryMinMax())),
        ("elasticsearch-linear", elasticsearch_scores, [0.5, 0.0, 3.0], (None, QueryMinMax(), QueryMinMax())),
        ("opensearch-hybrid", opensearch_scores, [0.5, 0.0, 3.0], (QueryMinMax(),) * 3),
    ],
)
def test_engines_rank_as_we_do(
    format: str, evaluate: Callable[..., list[float]], weights: list[float], entries: tuple[QueryMinMax | None, ...]
) -> None:
    model = LinearModel("shop-v7", np.array(weights), NAMES, entries)
    columns = {name: column.tolist() for name, column in zip(NAMES, FEATURES.T, strict=True)}
    body = export.dumps(model, format)
    scores, ours = np.array(evaluate(body.decode(), columns)), model.score(FEATURES)
    ratio = sum(weights) if format == "opensearch-hybrid" else 1.0
    np.testing.assert_allclose(scores * ratio, ours, rtol=1e-5, atol=1e-5)


def test_qdrant_gives_our_scores() -> None:
    """The formula in Qdrant's own local mode, over payload keys and the score of a prefetch."""
    qdrant = pytest.importorskip("qdrant_client")
    models = qdrant.models
    model = LinearModel.of([0.5, -0.02, 2.0], feature_names=["price", "age", "$score"])
    query = json.loads(export.dumps(model, "qdrant"))["query"]
    client = qdrant.QdrantClient(":memory:")
    client.create_collection("shop", vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 2))
    payloads = [{"price": float(x[0]), "age": float(x[1])} for x in FEATURES[:20]]
    del payloads[7]["age"]  # counts 0
    points = [
        models.PointStruct(id=place, vector=vector.tolist(), payload=payload)
        for place, (vector, payload) in enumerate(zip(vectors, payloads, strict=True))
    ]
    client.upsert("shop", points)
    wanted = [1.0, 0.5]
    found = client.query_points(
        "shop",
        prefetch=models.Prefetch(query=wanted, limit=20),
        query=models.FormulaQuery(**query),
        limit=20,
    ).points
    raw = [
        [payload["price"], payload.get("age", 0.0), float(vector @ wanted)]
        for payload, vector in zip(payloads, vectors, strict=True)
    ]
    expected = model.score(raw)
    assert [point.id for point in found] == np.argsort(-expected).tolist()
    np.testing.assert_allclose([point.score for point in found], np.sort(expected)[::-1], rtol=1e-5, atol=1e-5)
    client.close()


ALL = (QueryMinMax(), QueryMinMax(), QueryMinMax())


@pytest.mark.parametrize(
    ("model", "format", "words"),
    [
        (LinearModel("shop", np.ones(1), ("1",), (None,)), "vespa", "rank feature"),
        (LinearModel("7 up", np.ones(1), ("age",), (None,)), "vespa", "name is"),
        (LinearModel("shop", np.ones(1), ("age",), (MinMax(0, 2),)), "vespa", "fold"),
        (LinearModel("shop", np.ones(1), ("age",), (MinMax(0, 2),)), "qdrant", "fold"),
        (LinearModel("shop", np.ones(1), ("age",), (MinMax(0, 2),)), "elasticsearch-linear", "fold"),
        (LinearModel("shop", np.array([1, -1, 1.0]), NAMES, ALL), "elasticsearch-linear", r"attribute\(age\); fit"),
        (LinearModel("shop", np.array([1, -1, 1.0]), NAMES, ALL), "opensearch-hybrid", "nonnegative"),
        (LinearModel("shop", np.ones(3), NAMES, (None,) * 3), "opensearch-hybrid", "within the query"),
        (LinearModel("shop", np.zeros(3), NAMES, ALL), "opensearch-hybrid", "0 features"),
        (LinearModel("shop", np.ones(6), tuple("abcdef"), ALL * 2), "opensearch-hybrid", "6 features"),
        (LinearModel("shop", np.ones(3), NAMES, ALL), "qdrant", "qdrant cannot normalise within the query"),
        (LinearModel("shop", np.ones(3), NAMES, ALL), "onnx", "onnx cannot"),
    ],
)
def test_what_an_engine_cannot_carry_is_refused(model: LinearModel, format: str, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        export.dumps(model, format)


def test_what_depends_on_the_query_cannot_be_folded() -> None:
    with pytest.raises(ExportError, match="folding"):
        export.dumps(LinearModel("shop", np.ones(3), NAMES, ALL), "json", fold=True)


def test_equal_candidates_count_nothing() -> None:
    model = LinearModel("shop", np.ones(2), ("a", "b"), (QueryMinMax(), QueryMinMax()))
    assert model.score([[5.0, 1.0], [5.0, 3.0]]).tolist() == [0.0, 1.0]


def test_nonnegative_weights_are_the_likeliest() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        root = rng.normal(size=(6, 6))
        units = 10.0 ** rng.uniform(-6, 6, size=6)
        C, mean = root @ root.T + 0.1 * np.eye(6), rng.normal(size=6)
        H = np.linalg.inv(C)

        def distance(theta: np.ndarray, H: np.ndarray = H, mean: np.ndarray = mean) -> float:
            return float((theta - mean) @ H @ (theta - mean))

        found = nonnegative_weights(mean, C)
        assert (found >= 0).all()
        other = minimize(
            distance, np.maximum(mean, 0), bounds=[(0, None)] * 6, method="L-BFGS-B", options={"ftol": 1e-14}
        )
        assert distance(found) <= other.fun * (1 + 1e-9)
        np.testing.assert_allclose(
            nonnegative_weights(mean * units, C * np.outer(units, units)), found * units, rtol=1e-6, atol=0
        )
    assert distance(found) < distance(np.maximum(mean, 0))  # clipping is something else


def test_a_rankers_own_nonnegative_weights(tmp_path: Path) -> None:
    """Close to the exact minimum without negative weights of the same pairs, and better than clipped ones."""
    rng = np.random.default_rng(5)
    ranker = pairrank.PairRank(4, offsets=False, pairs="all")
    differences, truth = [], np.array([1.0, -1.0, 0.5, 0.0])
    for _ in range(300):
        X = rng.normal(size=(6, 4)) @ (np.eye(4) + 0.7) * [1.0, 10.0, 0.1, 1.0]
        shown = ranker.rank(X)
        clicks = rng.random(6) < 1 / (1 + np.exp(-shown.features / [1.0, 10.0, 0.1, 1.0] @ truth))
        ranker.learn(shown, clicks)
        found = pairs.all_pairs(clicks)
        differences.append(shown.features[found.winner] - shown.features[found.loser])
    ranker.save(tmp_path / "model")
    assert (ranker.weights < 0).any()
    x = np.concatenate(differences)

    def loss(theta: np.ndarray) -> float:
        return pair_loss(theta, x, np.ones(len(x)), np.zeros((4, 4)), theta)

    model = export.load(tmp_path / "model", nonnegative=True)
    assert (model.weights >= 0).all()
    scale = np.array([1.0, 10.0, 0.1, 1.0])
    best = minimize(lambda theta: loss(theta / scale), np.zeros(4), bounds=[(0, None)] * 4, method="L-BFGS-B")
    ours, clipped = loss(model.weights), loss(np.maximum(ranker.weights, 0))
    assert ours < clipped
    assert ours - best.fun < 0.1 * (clipped - best.fun)


def test_rankers_without_a_posterior_have_no_nonnegative_weights() -> None:
    with pytest.raises(ExportError, match="no posterior"):
        LinearModel.from_ranker(SGDRankNet(2), nonnegative=True)
