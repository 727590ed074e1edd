"""The loop: a query comes, the ranker shows a list, the user clicks, the ranker learns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from pairrank.errors import OptionError
from pairrank.rankers import LinearRanker, Ranker
from pairrank.sim.records import EVALUATION_COLUMNS, PHASES, ROUND_COLUMNS, Records
from pairrank.sim.world import Listed, World, frozen, regrets
from pairrank.types import AnyArray, FloatArray

HEARTBEAT = 0.1  # seconds between looks at the clock by whoever watches a run
SEEN = 1000  # documents that the functions of an additive model are told for
_TOGETHER = 256  # lists whose regret is counted at once


@dataclass(eq=False)
class Progress:
    """How far a run has come: rounds done, and the records so far.

    What can be judged later waits, so that one pass serves many rounds; `settle` makes up for it. ``lists`` and
    ``models`` are what waits, by round from 0.
    """

    columns: dict[str, AnyArray]
    done: int = 0
    profiles: dict[int, FloatArray] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    lists: dict[int, Listed] = field(default_factory=dict)
    models: dict[int, FloatArray] = field(default_factory=dict)

    @classmethod
    def start(cls, rounds: int) -> Progress:
        """No round done of ``rounds``."""
        columns: dict[str, AnyArray] = {name: np.zeros(rounds, dtype) for name, dtype in ROUND_COLUMNS.items()}
        return cls(columns | {name: np.full(rounds, np.nan) for name in EVALUATION_COLUMNS})


def play(world: World, ranker: Ranker, progress: Progress, watch: Callable[[], bool] = lambda: True) -> bool:
    """Play the rounds that are left; True when all are done.

    ``watch`` is called between rounds, every `HEARTBEAT` seconds; when it answers False the run stops there, and
    playing on later from the same ranker and progress gives what an undisturbed run gives.
    """
    spec, columns, seconds = world.spec, progress.columns, progress.seconds
    scheduled = frozenset(spec.evaluation_rounds().tolist())
    due = perf_counter() + HEARTBEAT
    for t in range(progress.done, spec.rounds):
        asked = world.round(t)

        began = perf_counter()
        impression = ranker.rank(asked.features, spec.k)
        ranked = perf_counter()
        ranking = impression.ranking
        if len(set(ranking.tolist())) != min(spec.k, len(asked.grades)):  # a list of one good document has NDCG above 1
            raise OptionError(
                f"{ranker.name} shows the rows {ranking.tolist()} of {len(asked.grades)} in round {t + 1}; expected "
                f"{min(spec.k, len(asked.grades))} different ones: pairrank.checks finds what else is wrong with it"
            )
        shown = asked.grades[ranking]
        clicks = world.clicks(t, shown, asked.coins[ranking])
        clicked = perf_counter()
        columns["query"][t] = asked.query
        columns["clicks"][t] = np.count_nonzero(clicks)
        columns["online_ndcg"][t] = world.online_ndcg(asked.query, shown)
        if (listed := world.listed(asked, ranking, ranker)) is not None:
            progress.lists[t] = listed
        if len(progress.lists) == _TOGETHER:
            _count_regret(progress)
        judged = perf_counter()
        ranker.learn(impression, clicks)
        learned = perf_counter()
        if t + 1 in scheduled:
            _evaluate(world, ranker, progress, t)
        ended = perf_counter()

        seconds["rank"] += ranked - began
        seconds["users"] += clicked - ranked
        seconds["learn"] += learned - judged
        seconds["evaluate"] += ended - learned + judged - clicked
        progress.done = t + 1
        if ended >= due:
            if not watch():
                break
            due = perf_counter() + HEARTBEAT
    settle(world, ranker, progress)
    return progress.done == spec.rounds


def settle(world: World, ranker: Ranker, progress: Progress) -> None:
    """Judge what waits: the records of all rounds done are whole then."""
    began = perf_counter()
    _count_regret(progress)
    _judge_models(world, ranker, progress)
    progress.seconds["evaluate"] += perf_counter() - began


def _judge_models(world: World, ranker: Ranker, progress: Progress) -> None:
    for t, ndcg in world.held_out_ndcgs(ranker, progress.models).items():
        progress.columns["ndcg"][t] = ndcg
    progress.models.clear()


def _count_regret(progress: Progress) -> None:
    progress.columns["regret"][list(progress.lists)] = regrets(list(progress.lists.values()))
    progress.lists.clear()


def _evaluate(world: World, ranker: Ranker, progress: Progress, t: int) -> None:
    columns, blocks = progress.columns, world.blocks(ranker)
    weights = frozen(ranker)
    if weights is None:
        columns["ndcg"][t] = world.held_out_ndcg(ranker, t)
    else:
        progress.models[t] = weights
        if len(progress.models) >= world.models_together:
            _judge_models(world, ranker, progress)
    columns["cosine"][t] = world.cosine(ranker, t)
    if blocks is None:
        return
    columns["n_blocks"][t] = blocks.number
    columns["block_at_1"][t], columns["block_at_5"][t], columns["block_at_10"][t] = blocks.at_ranks
    if t + 1 == world.spec.rounds or str(t + 1).strip("0") == "1":  # 1, 10, 100, ...
        progress.profiles[t + 1] = blocks.by_rank


def records(world: World, ranker: Ranker, progress: Progress) -> Records:
    for column in progress.columns.values():
        column.setflags(write=False)
    functions = None
    if isinstance(ranker, LinearRanker) and ranker.model == "additive":
        functions = ranker.functions(world.train.features[:SEEN].astype(np.float64))
    return Records(world.spec, progress.columns, progress.profiles, progress.seconds, functions)
