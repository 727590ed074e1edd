"""PyTerrier: real pipelines over frames; no Java is needed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyterrier", reason="pip install 'pairrank[pyterrier]'")

import pandas as pd
import pyterrier as pt

from integrations.texts import ANSWER, QUESTION, TEXTS
from pairrank.errors import DataError, InputError
from pairrank.integrations.pyterrier import PairRankEstimator, PairRankTransformer

# PyTerrier's own use of pandas.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword", "ignore:There are shared pipeline components")

RESULTS = pd.DataFrame(
    [
        {"qid": qid, "query": QUESTION, "docno": f"d{n}", "text": text, "score": 6.0 - n, "rank": n}
        for qid in ("q1", "q2")
        for n, text in enumerate(TEXTS)
    ]
)
FOUND = pt.Transformer.from_df(RESULTS)
TOPICS = pd.DataFrame([{"qid": "q1", "query": QUESTION}, {"qid": "q2", "query": QUESTION}])


def test_a_pipeline_learns_what_is_cited() -> None:
    rerank = PairRankTransformer()
    pipeline = FOUND >> rerank
    for _ in range(40):
        results = pipeline(TOPICS)
        assert rerank.feedback(results[results["text"] == ANSWER]) == 2
    results = pipeline.search(QUESTION, qid="q1")
    assert results.iloc[0]["docno"] == "d3"
    assert results["rank"].tolist() == [0, 1, 2, 3, 4, 5]
    assert results["score"].is_monotonic_decreasing
    assert len((FOUND >> PairRankTransformer(top_n=2))(TOPICS)) == 4
    assert len((FOUND % 0 >> rerank)(TOPICS)) == 0
    qrels = pd.DataFrame([{"qid": qid, "docno": "d3", "label": 1} for qid in ("q1", "q2")])
    table = pt.Experiment([FOUND, pipeline], TOPICS, qrels, ["recip_rank"], names=["found", "ours"])
    assert table["recip_rank"].tolist() == [pytest.approx(1 / 4), pytest.approx(1.0)]


def world(n_queries: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Results with three features, of which the second decides the label; the first stage knows nothing of it."""
    rng = np.random.default_rng(seed)
    rows = []
    for query in range(n_queries):
        for n, x in enumerate(rng.random((10, 3))):
            row = {"qid": f"{seed}-{query}", "query": "x", "docno": f"d{n}", "score": -float(n), "features": x}
            rows.append({**row, "label": int(x[1] > 0.7)})
    frame = pt.model.add_ranks(pd.DataFrame(rows))
    return frame.drop(columns="label"), frame[["qid", "docno", "label"]]


def test_an_estimator_learns_online_from_simulated_users() -> None:
    (train, qrels), (test, test_qrels) = world(40, 1), world(40, 2)
    online = PairRankEstimator(clicks="navigational", rounds=300, k=5)
    pipeline = pt.Transformer.from_df(pd.concat([train, test])) >> online
    topics = train[["qid", "query"]].drop_duplicates()
    held_out = test[["qid", "query"]].drop_duplicates()
    pipeline.fit(topics, qrels, held_out, test_qrels)
    assert online.records is not None
    assert len(online.records.columns["online_ndcg"]) == 300
    shown = online.records.columns["online_ndcg"]
    assert shown[-100:].mean() > shown[:20].mean()
    before = pt.Transformer.from_df(test)
    table = pt.Experiment([before, pipeline], held_out, test_qrels, ["ndcg_cut_10"], names=["found", "ours"])
    assert table["ndcg_cut_10"][1] > table["ndcg_cut_10"][0] + 0.1
    weights = np.abs(online.model.weights)  # type: ignore[union-attr]
    assert weights.argmax() == 1


def test_features_far_from_zero_keep_their_digits() -> None:
    """As times in seconds since 1970 do, of which float32 tells two minutes apart."""
    frame, qrels = world(20, 1)
    far = frame.assign(features=[x + 1.7e9 for x in frame["features"]])
    near, moved = (PairRankEstimator(rounds=100).fit(each, qrels) for each in (frame, far))
    np.testing.assert_allclose(moved.model.weights, near.model.weights, rtol=1e-3)  # type: ignore[union-attr]
    for name in ("online_ndcg", "ndcg"):
        np.testing.assert_array_equal(*(each.records.columns[name] for each in (near, moved)))  # type: ignore[union-attr]


def test_a_query_is_scored_by_itself() -> None:
    """A gap is the mean of its own query's documents, whatever other queries stand in the frame."""
    frame, qrels = world(20, 1)
    gaps = [np.append(x[:-1], np.nan) if row % 3 == 0 else x for row, x in enumerate(frame["features"])]
    frame = frame.assign(features=gaps)
    online = PairRankEstimator("pairrank(missing=mean)", rounds=100).fit(frame, qrels)
    alone = pd.concat([online.transform(rows) for _, rows in frame.groupby("qid", sort=False)])
    np.testing.assert_allclose(online.transform(frame)["score"], alone["score"])


def test_an_estimator_reads_texts_where_there_are_no_features() -> None:
    qrels = pd.DataFrame([{"qid": qid, "docno": "d3", "label": 1} for qid in ("q1", "q2")])
    pipeline = FOUND >> PairRankEstimator(rounds=100, clicks="perfect")
    pipeline.fit(TOPICS, qrels, TOPICS, qrels)
    assert pipeline.search(QUESTION, qid="q2").iloc[0]["docno"] == "d3"


def test_edges() -> None:
    estimator = PairRankEstimator()
    with pytest.raises(DataError, match="learned nothing yet"):
        estimator.transform(RESULTS)
    with pytest.raises(DataError, match="no results or no qrels"):
        estimator.fit(RESULTS[:0], RESULTS[:0])
    gaps = RESULTS.assign(text=[None, float("nan"), *RESULTS["text"][2:]])
    for texts in (gaps, gaps.astype({"text": "category"})):
        assert len(PairRankTransformer().transform(texts)) == len(RESULTS)
    rerank = PairRankTransformer()
    with pytest.raises(InputError, match="a document carries no impression_id"):
        rerank.feedback(pd.concat([rerank.transform(RESULTS).head(1), RESULTS.head(1)]))
    shuffled = RESULTS.sample(frac=1.0, random_state=0)
    ordered = PairRankTransformer().transform(shuffled)
    assert set(ordered["qid"]) == {"q1", "q2"}
    assert ordered.groupby("qid").size().tolist() == [6, 6]
