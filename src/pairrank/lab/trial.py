"""How much an experiment takes, and whether it can be trusted: `pairrank.trials` over simulated users.

Two rankings of the same queries are compared in three ways: interleaved, by a split of the lists, and from a log. All
lists that a draft can give are made beforehand, so that an experiment of ten thousand lists is a few array operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pairrank import click_models as users
from pairrank import data as datasets
from pairrank import engines, rankers, short_text
from pairrank.data.dataset import Dataset
from pairrank.errors import OptionError
from pairrank.rng import Purpose, generator
from pairrank.trials import interleaving, off_policy
from pairrank.trials.launch import Guard
from pairrank.trials.verdict import first_click, log_evidence
from pairrank.types import AnyArray, BoolArray, FloatArray, IntArray

AS_SENT, WORSE, REVERSED, SHUFFLED = "as-sent", "worse", "reversed", "shuffled"
_LONGEST = 16  # positions: a draft of more has more lists than are worth enumerating
_LONG_LOG = 20  # logs in one, from which the length of one is worked out that would tell two arms apart
_NULL_BATCH = 50  # experiments of an A/A that are worked out at once
# Numbers of random streams; experiments count from 0 and stay far below.
_SPOIL, _LEARN, _PLANTED, _NULL, _LOGGED = (n * 2**40 for n in range(1, 6))


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is compared, and how often.

    a, b : the arms: a ranker's short text, or ``as-sent`` (the order of the data); b also ``worse(noise=0.5)`` (a's
        scores with noise of so many standard deviations), ``reversed`` and ``shuffled``. Rankers that learn from labels
        are fitted to the training split, the others learn from the clicks of ``learn`` lists of it.
    experiments, lists : experiments with this difference, and lists in each at most.
    null_experiments, null_lists : the same for experiments without one. every : lists between looks at those.
    logs, log_lists : logs that a third ranker is judged from, and lists in each.
    """

    data: str
    a: str = "offline-ranknet"
    b: str = "worse(noise=0.5)"
    clicks: tuple[str, ...] = ("perfect", "navigational", "informational")
    fold: int = 1
    normalise: str = "query"
    k: int = 10
    seed: int = 0
    level: float = 0.05
    learn: int = 1000
    experiments: int = 100
    lists: int = 200_000
    null_experiments: int = 1000
    null_lists: int = 10_000
    every: int = 100
    logs: int = 500
    log_lists: int = 500
    launches: int = 100
    launch_lists: int = 10_000
    guard: Guard = field(default_factory=Guard)

    def __post_init__(self) -> None:
        if not 1 <= self.k <= _LONGEST:
            raise OptionError(f"k is {self.k}; expected 1 to {_LONGEST} positions")
        if self.a.partition("(")[0].strip() in (WORSE, REVERSED):
            raise OptionError(f"arm a is {self.a!r}, which is made from arm a itself; give it as arm b")
        for of, least in {"lists": 1, "null_lists": 1, "log_lists": 2, "launch_lists": 1}.items():
            if getattr(self, of) < least:  # one list alone gives no interval
                raise OptionError(f"{of} is {getattr(self, of)}; expected {least} or more")


class Lists(NamedTuple):
    """All that may be shown for each query q; grades are -1 where a list is shorter than k.

    a, b : (q, k), grades of the two rankings. mixed : (q, m, k), of every draft. choice, team, exposure : (q, m, k),
        credits.
    """

    a: IntArray
    b: IntArray
    mixed: IntArray
    choice: FloatArray
    team: FloatArray
    exposure: FloatArray


def splits(study: Study) -> tuple[Dataset, Dataset]:
    """What rankers learn from, and what is served: the training and the test split."""
    load = partial(datasets.load, study.data, fold=study.fold, normalise=study.normalise)
    return load("train"), load("test")


def check_names(study: Study) -> None:
    """Raise for data, users or arms that are none."""
    _, served = splits(study)
    for text in study.clicks:
        Crowd(text, served.n_grades)
    for arm in (study.a, study.b):
        if (short_text.parse(arm) or (arm,))[0] in (AS_SENT, SHUFFLED, WORSE, REVERSED):
            _noise(arm)
        else:
            rankers.make(arm, n_features=served.n_features)


def _noise(arm: str) -> float:
    """How much noise ``worse`` adds; the other arms that are no rankers have no options."""
    name, options = short_text.parse(arm) or (arm, {})
    noise = options.pop("noise", 0.5) if name == WORSE else 0.5
    if options or isinstance(noise, bool) or not isinstance(noise, (int, float)) or not 0 < noise < np.inf:
        told = "worse(noise=0.5), in standard deviations of the scores" if name == WORSE else name
        raise OptionError(f"the arm is {arm!r}; expected {told}")
    return noise


def scores(study: Study, text: str, train: Dataset, served: Dataset) -> FloatArray:
    """(n,), an arm's scores of all served documents."""
    rng = generator(study.seed, _SPOIL, Purpose.DATA)
    name, _ = short_text.parse(text) or (text, {})
    if name == AS_SENT:
        return -np.arange(len(served.grades), dtype=np.float64)
    if name == SHUFFLED:
        return rng.random(len(served.grades))
    if name in (WORSE, REVERSED):
        own = scores(study, study.a, train, served)
        if name == REVERSED:
            return -own
        spoilt: FloatArray = own + _noise(text) * own.std() * rng.standard_normal(len(own))
        return spoilt
    return taught(study, text, train).score(served.features)


def taught(study: Study, text: str, train: Dataset) -> rankers.Ranker:
    """A ranker that has learned from the training split: from its labels, or from clicks."""
    ranker = rankers.make(text, n_features=train.n_features, seed=study.seed)
    if hasattr(ranker, "fit"):
        ranker.fit(train.features, train.grades, train.offsets)
        return ranker
    who = users.make(study.clicks[0], n_grades=train.n_grades)
    rng = generator(study.seed, _LEARN, Purpose.CLICKS)
    for _ in range(study.learn):
        X, grades = train.query(int(rng.integers(train.n_queries)))
        shown = ranker.rank(X, study.k)
        ranker.learn(shown, who.clicks(grades[shown.ranking], rng.random((len(shown), 2))))
    return ranker


def make_lists(study: Study, served: Dataset, a: FloatArray, b: FloatArray) -> Lists:
    """Every list of every query, from the scores of two arms."""
    rows = []
    for q, (first, second) in enumerate(zip(orders(served, a), orders(served, b), strict=True)):
        rows.append(_lists_of(np.asarray(served.query(q)[1], dtype=np.int64), first, second, study.k))
    return Lists(*(np.array(column) for column in zip(*rows, strict=True)))


def orders(served: Dataset, own: FloatArray) -> list[IntArray]:
    """Each query's documents by an arm's scores, best first."""
    return [np.argsort(-part, kind="stable") for part in np.split(own, served.offsets[1:-1])]


def _lists_of(grades: IntArray, a: IntArray, b: IntArray, k: int) -> tuple[AnyArray, ...]:
    drafts = [list_ for _, list_ in interleaving.lists(a, b, k)]
    drafts *= 2 ** (-(-k // 2)) // len(drafts)  # short lists have fewer drafts, each as many times as likely
    documents, usual = interleaving.worth(a, b, len(drafts[0].ranking))
    exposed = [[documents[d] for d in list_.ranking.tolist()] - usual for list_ in drafts]
    return (
        padded(grades[a], k, -1),
        padded(grades[b], k, -1),
        padded([grades[list_.ranking] for list_ in drafts], k, -1),
        padded([list_.credit for list_ in drafts], k, 0.0),
        padded([1.0 - 2.0 * list_.teams for list_ in drafts], k, 0.0),
        padded(exposed, k, 0.0),
    )


class Crowd:
    """Users of the dependent click model for many lists at once; ``blind`` ones click as often, whatever is there."""

    def __init__(self, text: str, n_grades: int, *, blind: bool = False) -> None:
        who = users.make(text, n_grades=n_grades)
        if not isinstance(who, users.DependentClicks) or who.stop != "click":
            raise OptionError(f"the users are {text!r}; expected a table of clicks and stops, such as navigational")
        tables = [np.full(len(row), np.mean(row)) if blind else np.array(row) for row in (who.click, who.stop_after)]
        # The last row is for positions without a document: grade -1.
        self._click, self._stop = (np.append(table, 0.0) for table in tables)

    def clicks(self, grades: IntArray, rng: np.random.Generator) -> BoolArray:
        """(n, k), which documents of ``n`` lists are clicked."""
        clicked: BoolArray = rng.random(grades.shape) < self._click[grades]
        stopped = clicked & (rng.random(grades.shape) < self._stop[grades])
        clicked &= np.cumsum(stopped, axis=-1) - stopped == 0
        return clicked

    def chances(self, grades: IntArray) -> FloatArray:
        """(k,), the probability of a click on each document of a list."""
        click = self._click[grades]
        going = np.cumprod(1.0 - click * self._stop[grades])
        found: FloatArray = click * np.append(1.0, going[:-1])
        return found

    def value(self, grades: IntArray) -> float:
        """The expected `first_click` of lists (n, k), exactly."""
        p = self._click[grades]
        unseen = np.cumprod(np.column_stack([np.ones(len(p)), 1.0 - p[:, :-1]]), axis=1)
        return float((unseen * p / np.arange(1, p.shape[1] + 1)).sum(axis=1).mean())


def interleaved(lists: Lists, credit: FloatArray, crowd: Crowd, n: int, rng: np.random.Generator) -> FloatArray:
    """(n,), outcomes of an interleaving experiment."""
    query, draft = rng.integers(len(lists.a), size=n), rng.integers(lists.mixed.shape[1], size=n)
    clicks = crowd.clicks(lists.mixed[query, draft], rng)
    outcomes: FloatArray = (credit[query, draft] * clicks).sum(axis=1) / np.maximum(clicks.sum(axis=1), 1)
    return outcomes


def split(halves: FloatArray) -> FloatArray:
    """(n,), outcomes of a split experiment: `verdict.split_outcome` with the mean so far as what is expected."""
    is_a, value = halves
    before = np.concatenate([[0.5], np.cumsum(value)[:-1] / np.arange(1, len(value))])
    outcomes: FloatArray = np.where(is_a, 2.0, -2.0) * (value - before)
    return outcomes


def halved(lists: Lists, crowd: Crowd, n: int, rng: np.random.Generator) -> FloatArray:
    """(2, n), the lists of a split: whether each one got a, and its value."""
    query, is_a = rng.integers(len(lists.a), size=n), rng.random(n) < 0.5
    grades = np.where(is_a[:, None], lists.a[query], lists.b[query])
    return np.array([is_a, first_click(crowd.clicks(grades, rng)).sum(axis=1)])


def sensitivity(study: Study, lists: Lists, crowd: Crowd) -> dict[str, Any]:
    """Lists until a verdict, by method: quantiles over the experiments, and how many verdicts were right or wrong.

    Between two arms of one value there is no right or wrong: None.
    """
    draws: dict[str, Draw] = {
        "interleave": partial(interleaved, lists, lists.choice, crowd),
        "team": partial(interleaved, lists, lists.team, crowd),
        "exposure": partial(interleaved, lists, lists.exposure, crowd),
        "split": partial(halved, lists, crowd),
    }
    better = np.sign(crowd.value(lists.a) - crowd.value(lists.b))
    found: dict[str, Any] = {"value_a": crowd.value(lists.a), "value_b": crowd.value(lists.b)}
    for name, draw in draws.items():
        outcomes = split if name == "split" else np.asarray
        long = outcomes(draw(study.lists, generator(study.seed, _PLANTED, Purpose.DATA)))
        found[name] = {"fixed_size": _fixed_size(long.mean(), long.var())}
        streams = [generator(study.seed, _PLANTED + n, Purpose.CLICKS) for n in range(study.experiments)]
        ends = [_until_decided(study, draw, outcomes, _bound(name), rng) for rng in streams]
        needed, signs = np.array([at for at, _ in ends]), np.array([sign for _, sign in ends])
        found[name] |= {
            "lists": [_whole(q) for q in np.quantile(needed, [0.5, 0.1, 0.9], method="higher")],
            "right": int((signs == better).sum()) if better else None,
            "wrong": int((signs == -better).sum()) if better else None,
            "needed": [_whole(n) for n in needed],
        }
    return found


# What came of n lists, (…, n), and the outcomes (n,) of all lists so far.
Draw = Callable[[int, np.random.Generator], FloatArray]
Outcomes = Callable[[FloatArray], FloatArray]


def _bound(name: str) -> float:
    """The largest outcome of a method."""
    return 2.0 if name.startswith("split") else 1.0


def _whole(n: float) -> int | None:
    return None if np.isinf(n) else int(n)


def _until_decided(
    study: Study, draw: Draw, outcomes: Outcomes, bound: float, rng: np.random.Generator
) -> tuple[float, int]:
    """After how many lists there is a verdict (∞: none), and for whom."""
    came = draw(min(1024, study.lists), rng)
    while True:
        found = outcomes(came)
        passed = log_evidence(found, low=-bound, high=bound) >= -np.log(study.level)
        if passed.any():
            at = int(passed.argmax()) + 1
            return at, int(np.sign(found[:at].sum()))
        if (more := min(len(found), study.lists - len(found))) == 0:
            return np.inf, 0
        came = np.concatenate([came, draw(more, rng)], axis=-1)


def _fixed_size(mean: float, variance: float) -> int | None:
    """Lists with which a plain 95 % interval is as wide as the effect: for comparison, when nobody looks before."""
    return int(np.ceil(1.96**2 * variance / mean**2)) if mean else None


def false_verdicts(study: Study, lists: Lists, same: Lists, crowd: Crowd, blind: Crowd) -> dict[str, float]:
    """The share of experiments without a difference that end with a verdict, looked at again and again.

    ``same`` are the lists of a against itself. Interleaved, a's documents then differ in nothing but their team; two
    different rankings are alike for ``blind`` users, who do not look at what they click.
    """
    kinds: dict[str, Draw] = {
        "split, a ranker against itself": lambda n, rng: split(halved(same, crowd, n, rng)),
        "interleaved by teams, a ranker against itself": partial(interleaved, same, same.team, crowd),
        "interleaved, users blind to documents": partial(interleaved, lists, lists.choice, blind),
        "split, users blind to documents": lambda n, rng: split(halved(lists, blind, n, rng)),
    }
    found = {}
    for name, draw in kinds.items():
        bound, wrong = _bound(name), 0
        for start in range(0, study.null_experiments, _NULL_BATCH):
            batch = range(start, min(start + _NULL_BATCH, study.null_experiments))
            streams = [generator(study.seed, _NULL + number, Purpose.CLICKS) for number in batch]
            outcomes = np.array([draw(study.null_lists, rng) for rng in streams])
            evidence = log_evidence(outcomes, low=-bound, high=bound, every=min(study.every, study.null_lists))
            wrong += int((evidence.max(axis=1) >= -np.log(study.level)).sum())
        found[name] = wrong / study.null_experiments
    return found


class Explorer:
    """A PairRank that has learned something and goes on exploring: whose log others are judged from."""

    def __init__(self, study: Study, train: Dataset, served: Dataset) -> None:
        self.k = study.k
        self.queries = list(served.queries())
        self._ranker = taught(study, "pairrank", train)
        self._earlier = taught(replace(study, learn=study.learn // 2), "pairrank", train)
        self._seen = [self._ranker.inspect(X) for X, _ in self.queries]
        self._draws = [off_policy.Draws(seen.certain, seen.blocks) for seen in self._seen]

    def by_score(self) -> list[IntArray]:
        """What it would show of each query if it did not explore."""
        return [seen.order[: self.k] for seen in self._seen]

    def drafted(self, q: int) -> tuple[off_policy.Draft, list[tuple[float, interleaving.Interleaved]]]:
        """A query's order by score mixed with the one after half of the lists: as a log tells of it, and all drafts."""
        X, own = self.queries[q][0], self._seen[q].order
        other, k = np.argsort(-self._earlier.score(X), kind="stable"), min(self.k, len(X))
        return off_policy.Draft(own, other, k, self._draws[q]), list(interleaving.lists(own, other, k))

    def lists(self, n: int, rng: np.random.Generator) -> tuple[list[int], list[IntArray], IntArray]:
        """``n`` lists as it shows them: the queries, the rankings, and (n, k) the grades."""
        which = rng.integers(len(self.queries), size=n).tolist()
        shown = [self._ranker.rank(self.queries[q][0], self.k).ranking for q in which]
        grades = [padded(self.queries[q][1][r], self.k, -1) for q, r in zip(which, shown, strict=True)]
        return which, shown, np.array(grades)

    def weigher(self, others: Sequence[IntArray]) -> Weigher:
        """A function of a query and a shown ranking: (4, k), its `Weights` for one that shows ``others``, and ones."""
        chances = [draws.set_chances(order) for draws, order in zip(self._draws, others, strict=True)]

        @cache
        def known(q: int, ranking: bytes) -> FloatArray:
            found = off_policy.weigh(np.frombuffer(ranking, dtype=np.int64), others[q], chances[q])
            return np.array([*(padded(part, self.k, 1.0) for part in found), np.ones(self.k)])

        return lambda q, ranking: known(q, ranking.tobytes())


def from_a_log(study: Study, explorer: Explorer, crowd: Crowd, arms: Sequence[Sequence[IntArray]]) -> dict[str, Any]:
    """How long a log must be to tell two arms apart, in the positions that a log of `Study.log_lists` tells of."""
    rng = generator(study.seed, _LOGGED, Purpose.DATA)
    which, shown, grades = explorer.lists(_LONG_LOG * study.log_lists, rng)
    earned = first_click(crowd.clicks(grades, rng))
    logs = []
    for arm in arms:
        weights = explorer.weigher(arm)
        parts = np.array([weights(q, r)[:3] for q, r in zip(which, shown, strict=True)]).transpose(1, 0, 2)
        logs.append(off_policy.Log(earned, *parts))
    told = np.logical_and(*(log.told(study.log_lists) for log in logs))
    difference = (np.where(told, logs[0].here - logs[1].here, 0.0) * earned).sum(axis=1)
    return {"fixed_size": _fixed_size(difference.mean(), difference.var()), "told": float(told.mean())}


def coverage(study: Study, explorer: Explorer, crowd: Crowd) -> dict[str, Any]:
    """How often intervals from the log of an exploring PairRank hold the truth, in the positions that the log tells of.

    Clicks per list of its order by score; and the clicks of either side where that is interleaved with what it was
    after half of its lists.
    """
    best, drafts = explorer.by_score(), [explorer.drafted(q) for q in range(len(explorer.queries))]
    weights = explorer.weigher(best)

    def told(reach: FloatArray) -> BoolArray:
        return np.logical_and.accumulate(reach >= min(off_policy.ENOUGH / study.log_lists, 1.0))

    # The truth is that of the positions that the log tells of, over all queries alike.
    alone = mixed = 0.0
    for q, (_, grades) in enumerate(explorer.queries):
        clicks = crowd.chances(grades[best[q]])
        alone += float(clicks @ told(weights(q, best[q])[2])[: len(clicks)])
        draft, lists = drafts[q]
        seen = told(draft.reach)
        mixed += sum(chance * float((seen * one.credit) @ crowd.chances(grades[one.ranking])) for chance, one in lists)

    @cache
    def drafted(q: int, ranking: bytes) -> FloatArray:
        found, credit = drafts[q][0].weigh(np.frombuffer(ranking, dtype=np.int64))
        return np.array([*(padded(part, study.k, 1.0) for part in found), padded(credit, study.k, 0.0)])

    return {
        "order by score": _covered(study, explorer, crowd, weights, alone / len(best)),
        "interleaved": _covered(study, explorer, crowd, lambda q, r: drafted(q, r.tobytes()), mixed / len(best)),
    }


Weigher = Callable[[int, IntArray], FloatArray]


def _covered(study: Study, explorer: Explorer, crowd: Crowd, weights: Weigher, truth: float) -> dict[str, Any]:
    rows = []
    for number in range(study.logs):
        rng = generator(study.seed, _LOGGED + number, Purpose.CLICKS)
        which, shown, seen = explorer.lists(study.log_lists, rng)
        *parts, worth = np.array([weights(q, r) for q, r in zip(which, shown, strict=True)]).transpose(1, 0, 2)
        found = off_policy.estimates(off_policy.Log(worth * crowd.clicks(seen, rng), *parts), level=study.level)
        rows.append([(*e.interval, e.told, e.effective) for e in found])
    names, (low, high, share, effective) = [e.method for e in found], np.array(rows).transpose(2, 0, 1)
    covered = (low <= truth) & (truth <= high)
    return {
        "truth": truth,
        "told": float(share.mean()),
        "effective": float(effective.mean()),
        "covered": dict(zip(names, covered.mean(axis=0).tolist(), strict=True)),
        "width": dict(zip(names, (high - low).mean(axis=0).tolist(), strict=True)),
    }


def padded(values: ArrayLike, k: int, missing: float) -> AnyArray:
    """(…, k), the first ``k`` values of each row (…, n), and ``missing`` where there are fewer."""
    first = np.asarray(values)[..., :k]
    return np.pad(first, [(0, 0)] * (first.ndim - 1) + [(0, k - first.shape[-1])], constant_values=missing)


def run(study: Study, jobs: int = 1, report: Callable[[int], None] = lambda done: None) -> list[dict[str, Any]]:
    """The whole study but the launches, a row per kind of users, over ``jobs`` processes."""
    return engines.over_processes(partial(_row, study), study.clicks, jobs, report)


def _row(study: Study, text: str) -> dict[str, Any]:
    train, served = splits(study)
    a, b = (scores(study, arm, train, served) for arm in (study.a, study.b))
    lists, same = make_lists(study, served, a, b), make_lists(study, served, a, a)
    crowd, blind = (Crowd(text, served.n_grades, blind=unseeing) for unseeing in (False, True))
    row: dict[str, Any] = {"clicks": text}
    row["sensitivity"] = sensitivity(study, lists, crowd) if study.experiments else {}
    row["false_verdicts"] = false_verdicts(study, lists, same, crowd, blind) if study.null_experiments else {}
    row["off_policy"] = {}
    if study.logs:
        explorer = Explorer(study, train, served)
        arms = [[order[: study.k] for order in orders(served, own)] for own in (a, b)]
        row["off_policy"] = coverage(study, explorer, crowd) | {"arms": from_a_log(study, explorer, crowd, arms)}
    return row
