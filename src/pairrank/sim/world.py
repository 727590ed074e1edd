"""All of a run that does not depend on the ranker: which queries come, the users' coins, how lists are judged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pairrank import click_models, metrics, rankers
from pairrank.data.dataset import Dataset
from pairrank.errors import DataError, FeatureError, OptionError
from pairrank.rankers import Ranker
from pairrank.rankers.linear import LinearRanker
from pairrank.rankers.ranknet import OfflineRankNet
from pairrank.rng import Purpose, generator
from pairrank.sim.spec import RunSpec
from pairrank.types import BoolArray, FloatArray, IntArray

BLOCK_RANKS = (1, 5, 10)
CUTOFF = 10  # NDCG@10 everywhere, however many positions are shown
# The number of the stream that a taste is drawn from; synthetic data use the numbers below 2**42 themselves.
_TASTE = 2**42
_BATCH = 128  # rounds whose coins are drawn at once: to make a generator costs more than to draw a round's coins
# Held-out documents scored at a time: few enough to stay in the cache while model after model scores them, and where
# there is but one, so that a large split is never copied whole.
_ROWS, _MANY_ROWS = 2**10, 2**16


class Round(NamedTuple):
    """One query as it comes: its index, candidates, grades, two coins a document, and a lot that breaks ties."""

    query: int
    features: FloatArray
    grades: IntArray
    coins: FloatArray
    lots: FloatArray


class Listed(NamedTuple):
    """A query's grades and what its full list is sorted by: scores, highest first, and among equals lots; (n_docs,)."""

    grades: IntArray
    scores: FloatArray
    lots: FloatArray


class Blocks(NamedTuple):
    """Block statistics, as means over the panel: how many, the size at some ranks, and the size at every rank."""

    number: float
    at_ranks: FloatArray
    by_rank: FloatArray


class Intent(NamedTuple):
    """What users want: grades of the training documents, the judge of held-out lists, the ideal weights where known."""

    grades: IntArray
    evaluator: metrics.NDCG
    ideal: FloatArray | None


class Coins:
    """(n_docs, 3) uniforms for every round: a function of the seed, the round and the queries, never of the ranker."""

    def __init__(self, seed: int, sizes: IntArray) -> None:
        self._seed = seed
        self._sizes = sizes
        self._batch = -1
        self._rounds: list[FloatArray] = []

    def of(self, t: int) -> FloatArray:
        """The coins of round ``t``, from 0."""
        batch, place = divmod(t, _BATCH)
        if batch != self._batch:
            ends = self._sizes[batch * _BATCH : (batch + 1) * _BATCH].cumsum()
            draws = generator(self._seed, batch, Purpose.CLICKS).random((ends[-1], 3))
            self._rounds, self._batch = np.split(draws, ends[:-1]), batch
        return self._rounds[place]


class World:
    """What all rankers of one seed meet alike: the world of ``spec`` on these splits.

    Queries are drawn uniformly from the training split. Each candidate of each round has coins of its own: two
    rankers that show the same document in the same round at the same rank meet the same luck. Whether a round's user
    is an attacker, and what users want after a drift, is a function of the seed too; a larger share of attackers adds
    rounds to those of a smaller one.
    """

    def __init__(self, spec: RunSpec, train: Dataset, held_out: Dataset) -> None:
        if train.n_queries == 0 or held_out.n_features != train.n_features:
            raise OptionError(
                f"there are {train.n_queries} training queries with {train.n_features} features, and "
                f"{held_out.n_features} features in the held-out split; expected a query at least and equal features"
            )
        self.spec, self.train, self.held_out = spec, train, held_out
        self.bounds: list[int] = train.offsets.tolist()
        self.queries = generator(spec.seed, 0, Purpose.QUERIES).integers(train.n_queries, size=spec.rounds)
        panel = generator(spec.seed, 1, Purpose.QUERIES).permutation(train.n_queries)
        self.panel: list[int] = panel[: spec.panel].tolist()
        attack = generator(spec.seed, 2, Purpose.QUERIES).random(spec.rounds)
        self.users = users = click_models.make(spec.clicks, n_grades=train.n_grades)
        unruly = users if isinstance(users, click_models.Unruly) else click_models.Unruly(users, users)
        self.attackers, self.attacked = unruly.attackers, attack < unruly.hostile
        self.drift = spec.rounds if unruly.drift is None else unruly.drift
        self.intents = [Intent(train.grades, judge(held_out), ideal_weights(train, spec.ideal))]
        if unruly.drift is not None:
            weights = taste(spec.seed, train.n_features)
            judged = metrics.NDCG(regraded(held_out, weights), held_out.offsets, CUTOFF)
            self.intents.append(Intent(regraded(train, weights), judged, weights))
        self.coins = Coins(spec.seed, np.diff(train.offsets)[self.queries])
        self.ideal_dcg = judge(train).ideal
        self.gains = metrics.gain(np.arange(train.n_grades))

    def round(self, t: int) -> Round:
        """Round ``t``, from 0."""
        query = int(self.queries[t])
        rows = slice(self.bounds[query], self.bounds[query + 1])
        features, grades = self.train.features[rows], self.intent(t).grades[rows]
        coins = self.coins.of(t)
        return Round(query, features.astype(np.float64), grades, coins[:, :2], coins[:, 2])

    def intent(self, t: int) -> Intent:
        """What users want in round ``t``, from 0."""
        return self.intents[t >= self.drift]

    def clicks(self, t: int, shown: IntArray, coins: FloatArray) -> BoolArray:
        """What the user of round ``t``, from 0, clicks in a list with these grades from its top."""
        # Of their own, unchecked: users know all grades of the data that they were made for.
        return (self.attackers if self.attacked[t] else self.users)._clicks(shown, coins)

    def online_ndcg(self, query: int, shown: IntArray) -> float:
        """NDCG@10 of a shown list, given the grades from its top; 0 where the query has no relevant document.

        A drift gives a query's grades out anew, so the best possible list is worth the same under every intent.
        """
        ideal = self.ideal_dcg[query]
        top = self.gains[shown[:CUTOFF]]
        return float(top @ metrics.discount(len(top)) / ideal) if ideal > 0 else 0.0

    def listed(self, asked: Round, ranking: IntArray, ranker: Ranker) -> Listed | None:
        """What was shown, then the rest by the ranker's score; None where no document is relevant: no regret then.

        The rest's ties are broken by lot: files are often sorted by grade, and a ranker that knows nothing would look
        as if it knew the order.
        """
        if self.ideal_dcg[asked.query] == 0:
            return None
        scores, lots = np.full(len(asked.grades), np.inf), asked.lots.copy()
        if len(ranking) < len(scores):
            scores[:] = ranker.score(asked.features)
            scores[ranking] = np.inf
        lots[ranking] = np.arange(-len(ranking), 0)
        return Listed(asked.grades, scores, lots)

    def held_out_ndcg(self, ranker: Ranker, t: int) -> float:
        """The mean NDCG@10 of the held-out split over queries with a relevant document, ties broken at random."""
        features = self.held_out.features
        parts = [ranker.score(features[rows]) for rows in self._together(_MANY_ROWS)]
        return self._mean_ndcg(np.concatenate(parts), t)

    def held_out_ndcgs(self, ranker: Ranker, models: Mapping[int, FloatArray]) -> dict[int, float]:
        """`held_out_ndcg` after several rounds in one pass over the documents.

        ``models`` are the weights that ``ranker`` had, by round.
        """
        features = self.held_out.features
        scores = np.empty((len(models), len(features)))
        for rows in self._together(_ROWS) if models else ():
            X = ranker.check_features(features[rows])
            for own, weights in zip(scores, models.values(), strict=True):
                # A product per model: its bits must not depend on which models are scored together.
                own[rows] = X @ weights
        return {t: self._mean_ndcg(own, t) for t, own in zip(models, scores, strict=True)}

    def _together(self, most: int) -> list[slice]:
        """Held-out rows to score at once: lists one by one where there are gaps, which the rest of a list may fill."""
        n = len(self.held_out.features)
        ends = np.unique(self.held_out.offsets) if self._gaps else np.append(np.arange(0, n, most), n)
        return [slice(start, end) for start, end in pairwise(ends.tolist())]

    @cached_property
    def _gaps(self) -> bool:
        return bool(np.isnan(self.held_out.features.min(initial=0.0)))  # without a copy

    def _mean_ndcg(self, scores: FloatArray, t: int) -> float:
        return self.intent(t).evaluator.mean(scores, generator(self.spec.seed, t, Purpose.TIES))

    @property
    def models_together(self) -> int:
        """How many models are worth to wait for, by the memory that their scores take."""
        return max(2**22 // max(len(self.held_out.features), 1), 1)

    def cosine(self, ranker: Ranker, t: int) -> float:
        """Of the ranker's weights to the ideal ones; NaN for rankers without weights."""
        weights, ideal = getattr(ranker, "weights", None), self.intent(t).ideal
        if ideal is None or weights is None:
            return float("nan")
        return metrics.cosine(weights, ideal)

    def blocks(self, ranker: Ranker) -> Blocks | None:
        """Block statistics over the panel, or None for a ranker without blocks."""
        found = (ranker.block_sizes(self.train.query(query)[0]) for query in self.panel)
        sizes = [one for one in found if one is not None]
        if not sizes:
            return None
        by_rank = metrics.mean_by_rank([metrics.block_size_by_rank(s) for s in sizes])
        at_ranks = np.append(by_rank, np.full(BLOCK_RANKS[-1], np.nan))[np.array(BLOCK_RANKS) - 1]
        return Blocks(float(np.mean([len(s) for s in sizes])), at_ranks, by_rank)


def frozen(ranker: Ranker) -> FloatArray | None:
    """(n_features,), weights that will score as ``ranker`` scores now; None where it takes more than that."""
    if not isinstance(ranker, LinearRanker) or type(ranker).score is not LinearRanker.score:
        return None
    return ranker.weights if ranker.model == "linear" else None


def regrets(lists: Sequence[Listed]) -> IntArray:
    """(n_lists,), mis-ordered pairs of full lists."""
    if not lists:
        return np.empty(0, dtype=np.int64)
    sizes = np.array([len(one.grades) for one in lists])
    grades, scores, lots = (np.concatenate(part) for part in zip(*lists, strict=True))
    order = np.lexsort((lots, -scores, np.repeat(np.arange(len(lists)), sizes)))
    return metrics.regrets(grades[order], np.append(0, np.cumsum(sizes)))


@lru_cache(maxsize=8)
def judge(dataset: Dataset) -> metrics.NDCG:
    """NDCG@10 by the data's own labels; remembered, so that the runs of a sweep share it."""
    return metrics.NDCG(dataset.grades, dataset.offsets, CUTOFF)


def taste(seed: int, n_features: int) -> FloatArray:
    """(n_features,), the weights θ' ~ N(0, I) of another intent; a function of the seed alone."""
    return generator(seed, _TASTE, Purpose.DATA).standard_normal(n_features)


def regraded(dataset: Dataset, weights: FloatArray) -> IntArray:
    """(n_docs,), each query's own grades in the order of x·weights, highest first; ties keep the order of rows."""
    features = dataset.features
    parts = [features[i : i + _MANY_ROWS].astype(np.float64) @ weights for i in range(0, len(features), _MANY_ROWS)]
    scores = np.concatenate([np.empty(0), *parts])
    query = np.repeat(np.arange(dataset.n_queries), np.diff(dataset.offsets))
    grades = np.empty_like(dataset.grades)
    grades[np.lexsort((-scores, query))] = dataset.grades[np.lexsort((-dataset.grades, query))]
    return grades


@lru_cache(maxsize=4)
def ideal_weights(train: Dataset, ranker: str) -> FloatArray | None:
    """The data's own ideal weights, else those of ``ranker`` fitted to the labels, else None."""
    if train.theta is not None:
        return train.theta
    if not ranker:
        return None
    model = rankers.make(ranker, n_features=train.n_features)
    if not hasattr(model, "fit"):
        raise OptionError(f"ideal is {ranker!r}, which does not learn from labels; expected offline-ranknet or nothing")
    try:
        weights: FloatArray | None = getattr(taught(model, train), "weights", None)
    except (DataError, FeatureError):  # labels that prefer nothing to anything have no ideal, nor have gaps
        return None
    return weights


def taught(ranker: Ranker, train: Dataset) -> Ranker:
    """The ranker itself; one that learns from labels has done so."""
    if type(ranker) is OfflineRankNet:  # its fit draws nothing: one serves the runs of all seeds
        ranker._restore(_fitted(train, json.dumps(ranker.settings))._state())
    elif hasattr(ranker, "fit"):
        ranker.fit(train.features, train.grades, train.offsets)
    return ranker


@lru_cache(maxsize=4)
def _fitted(train: Dataset, settings: str) -> OfflineRankNet:
    model = OfflineRankNet(train.n_features, **json.loads(settings))
    return model.fit(train.features, train.grades, train.offsets)
