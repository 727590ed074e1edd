"""PyTerrier: a transformer that re-ranks texts and learns from feedback, and an estimator for simulated users."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from pairrank import rankers, sim
from pairrank.data.dataset import Dataset
from pairrank.errors import DataError, MissingExtraError
from pairrank.features.text import TextFeatures
from pairrank.integrations.text_reranker import IMPRESSION, ROW, Reranker, TextReranker
from pairrank.rankers import Ranker
from pairrank.sim.records import Records
from pairrank.types import FloatArray

try:
    import pandas as pd
    import pyterrier as pt
except ImportError:
    raise MissingExtraError("pyterrier", "pyterrier") from None


class PairRankTransformer(pt.Transformer):
    """Re-ranks texts query by query; rows carry their way back in ``impression_id`` and ``impression_row``.

    >>> found = pd.DataFrame({"qid": "1", "query": "tea", "docno": ["a", "b"], "text": ["coffee", "green tea"]})
    >>> rerank = PairRankTransformer()
    >>> results = (pt.Transformer.from_df(found) >> rerank).search("tea")
    >>> rerank.feedback(results.head(1))  # the rows that were cited
    1

    Parameters
    ----------
    reranker : the model; a new `TextReranker` by default. top_n : rows to keep per query; None keeps all.
    text : column of the documents' text; further columns are metadata.
    """

    def __init__(self, reranker: Reranker | None = None, *, top_n: int | None = None, text: str = "text") -> None:
        super().__init__()
        self.reranker, self.top_n, self.text = reranker or TextReranker(), top_n, text

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """A frame with qid, query, docno and text, in the order of ``rank`` or ``score`` where those are given."""
        pt.validate.result_frame(inp, extra_columns=["query", self.text], context=self)
        parts = [self._query(_in_order(group)) for _, group in inp.groupby("qid", sort=False)]
        if parts:
            return pd.concat(parts, ignore_index=True)
        return inp.assign(score=np.zeros(0), rank=np.zeros(0, int), **{IMPRESSION: "", ROW: 0})

    def _query(self, group: pd.DataFrame) -> pd.DataFrame:
        shown = self.reranker.rerank(**_asked(group, self.text), top_n=self.top_n)
        marks = {IMPRESSION: shown.impression_id, ROW: list(shown.order)}
        return _ranked(group.iloc[list(shown.order)].assign(score=shown.relevance, **marks))

    def feedback(self, rows: pd.DataFrame) -> int:
        """Learn from the rows that were of use; how many lists were new."""
        return self.reranker.feedback_on(rows.to_dict(orient="records"))


class PairRankEstimator(pt.Estimator):
    """A ranker that ``fit`` lets learn online from simulated users, and ``transform`` scores with.

    Documents' features stand in the column ``features``, as PyTerrier's own pipelines leave them; without that column
    they are those of the texts, by `TextFeatures`.

    >>> found = pd.DataFrame({"qid": "1", "query": "tea", "docno": ["a", "b"], "text": ["coffee", "green tea"]})
    >>> qrels = pd.DataFrame({"qid": ["1"], "docno": ["b"], "label": [1]})
    >>> online = PairRankEstimator(clicks="navigational", rounds=50).fit(found, qrels)
    >>> online.transform(found).sort_values("rank")["docno"].tolist()
    ['b', 'a']
    >>> len(online.records.columns["online_ndcg"])  # of the lists that users were shown
    50

    Parameters
    ----------
    ranker : name of a ranker, with options in brackets. clicks : name of the simulated users.
    rounds : lists that are shown. k : documents per list. seed : of ranker and users.
    text : column of the documents' text, where there are no features. extract : makes features of it.

    Attributes
    ----------
    model : the `pairrank.rankers.Ranker`, None before ``fit``. records : of the simulation, a row per round.
    """

    def __init__(
        self,
        ranker: str = "pairrank",
        *,
        clicks: str = "navigational",
        rounds: int = 1000,
        k: int = 10,
        seed: int = 0,
        text: str = "text",
        extract: TextFeatures | None = None,
    ) -> None:
        super().__init__()
        self.ranker, self.clicks, self.rounds, self.k, self.seed = ranker, clicks, rounds, k, seed
        self.text, self.extract = text, extract or TextFeatures()
        self.model: Ranker | None = None
        self.records: Records | None = None

    def fit(
        self,
        topics_or_res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        topics_or_res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
    ) -> Self:
        """Show ``rounds`` lists of the training queries to simulated users, and learn from their clicks.

        Held-out NDCG@10 in ``records`` is that of the validation queries, or of the training queries without them.
        """
        train = self._dataset(topics_or_res_tr, qrels_tr)
        held_out = train if topics_or_res_va is None else self._dataset(topics_or_res_va, qrels_va)
        model = rankers.make(self.ranker, n_features=train.n_features, seed=self.seed)
        splits = (train, held_out)
        self.records = sim.simulate(
            splits, ranker=model, clicks=self.clicks, rounds=self.rounds, seed=self.seed, k=self.k, panel=0, ideal=""
        )
        self.model = model
        return self

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score by what was learned; no exploration."""
        if self.model is None:
            raise DataError("the estimator has learned nothing yet; call fit first")
        frame = _in_order(inp)
        parts = [self.model.score(self._features(rows)) for _, rows in frame.groupby("qid", sort=False)]
        return _ranked(frame.assign(score=np.concatenate([np.zeros(0), *parts])))

    def transform_outputs(self, inp_cols: list[str]) -> list[str]:
        """The columns that come out of those that go in."""
        return [*inp_cols, *(name for name in ("score", "rank") if name not in inp_cols)]

    def _features(self, frame: pd.DataFrame) -> FloatArray:
        """(n_docs, n_features); rows of a query stand together, in the order that came in."""
        if "features" in frame:
            pt.validate.result_frame(frame, extra_columns=["features"], context=self)
            return np.stack(list(frame["features"])).astype(np.float64)
        pt.validate.result_frame(frame, extra_columns=["query", self.text], context=self)
        groups = frame.groupby("qid", sort=False)
        return np.concatenate([self.extract(**_asked(group, self.text)) for _, group in groups])

    def _dataset(self, results: pd.DataFrame, qrels: pd.DataFrame | None) -> Dataset:
        if qrels is None or len(results) == 0:
            raise DataError("there are no results or no qrels; expected both to learn from")
        frame = _in_order(results)
        labels = {(str(row.qid), str(row.docno)): row.label for row in qrels.itertuples()}
        found = [labels.get((str(row.qid), str(row.docno)), 0) for row in frame.itertuples()]
        grades = np.maximum(np.nan_to_num(np.array(found, dtype=float)), 0).astype(np.int64)
        sizes = frame.groupby("qid", sort=False).size()
        X = self._features(frame)
        return Dataset(
            features=X,
            grades=grades,
            offsets=np.cumsum([0, *sizes.to_list()]).astype(np.int64),
            query_ids=np.array([str(qid) for qid in sizes.index]),
            feature_ids=np.arange(1, X.shape[1] + 1),
            name="pyterrier",
        )


def _asked(group: pd.DataFrame, text: str) -> dict[str, Any]:
    """The query of some rows, their documents with the column ``text``, and their scores where there are any."""
    texts = group[text].astype(object).where(group[text].notna(), "")  # a category takes no new text
    documents = [{"text": t, "metadata": row} for t, row in zip(texts, group.to_dict(orient="records"), strict=True)]
    scores = group["score"].to_numpy(float) if "score" in group else None
    return {"query": str(group["query"].iloc[0]), "documents": documents, "scores": scores}


def _ranked(frame: pd.DataFrame) -> pd.DataFrame:
    """With the column ``rank``, by score within each query: `pt.model.add_ranks`, which warns today."""
    places = frame.groupby("qid", sort=False)["score"].rank(ascending=False, method="first").astype(int)
    return frame.assign(rank=places - 1 + pt.model.FIRST_RANK)


def _in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of a query together, best first by ``rank``, else by ``score``, else as they came."""
    queries = {qid: place for place, qid in enumerate(dict.fromkeys(frame["qid"]))}
    keys = [frame["qid"].map(queries).to_numpy(float)]
    if "rank" in frame:
        keys.append(frame["rank"].to_numpy(float))
    elif "score" in frame:
        keys.append(-np.nan_to_num(frame["score"].to_numpy(float), nan=-math.inf))
    return frame.iloc[np.lexsort(keys[::-1])]
