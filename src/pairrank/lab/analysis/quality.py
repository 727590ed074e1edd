"""Is the default the best there is? One ranker against rivals over data sets and users, as they come, nothing tuned.

Runs are paired by fold and seed: all rankers meet the same queries and the same coins. A cell is one data set with one
kind of users. Online (cNDCG) a cell is won when the mean is above every rival's with p < 0.01, by the paired t test
under Holm's correction over all cells and rivals. Offline (held-out NDCG@10 after the last round) it is kept when it is
shown to be no worse than any rival by `MARGIN`: the lower end of the 95 % interval of the difference is above -MARGIN,
without correction. Over several folds what is averaged is folds, since runs of one fold are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import indent

import numpy as np

from pairrank.errors import OptionError
from pairrank.lab.analysis.aggregate import METRICS, holm, paired_test
from pairrank.lab.experiment import CEILING, USERS
from pairrank.lab.report import styles, tables
from pairrank.metrics import with_interval
from pairrank.sim import Protocol, RunSpec, Summary
from pairrank.sim.spec import canonical, data_name
from pairrank.types import FloatArray

SUBJECT = "pairrank"
RIVALS = (
    "pdgd",
    "mgd",
    "dbgd",
    "epsilon-greedy",
    "sgd-ranknet",
    "p2linrank",
    "posterior-sampling",
    "pairrank-memory",
    "pairrank(preset=paper)",
    "pairrank(preset=authors)",
)
EARLY = 100  # rounds: a run that ends below where it stood here has unlearned
ONLINE_P = 0.01
NEMENYI_P = 0.05
# How far the held-out NDCG@10 may be below a rival's and still count as no worse.
MARGIN = 0.005
# The paper's users, and ones whose clicks carry a bias of position or of trust, or end at the first, alone and mixed:
# all of them noisy.
WHO = (
    *USERS,
    "position(eta=1, table=informational)",
    "position(eta=0.5, table=informational)",
    "position(eta=0.5, trust=0.3, table=informational)",
    "cascade(table=informational)",
    "mixed(table=informational)",
)
LEGEND = f"our lead: our mean less the rival's, ± half its 95 % interval; * sure (p < {ONLINE_P}, Holm)"
_HEAD = ["ranker", "cNDCG@10", "our lead", "NDCG@10", "our lead"]
_RANKS_HEAD = ["ranker", "mean rank, cNDCG@10", "NDCG@10"]
NOT_MEASURED = "not measured"  # no runs, none long enough, or no held-out query with a relevant document
# Seeds that no constant of a ranker was chosen on.
FIRST_SEED = 2000


@dataclass(frozen=True)
class Versus:
    """A rival in a cell: the mean difference to it, half its 95 % interval, and p after correction."""

    rival: str
    mean: float
    half: float
    p: float


@dataclass(frozen=True)
class Contest:
    """A data set with one kind of users.

    data, users, runs : what, who, and how many runs of each ranker.
    ndcg, cndcg : each ranker's mean. offline, online : the subject against each rival.
    fell : the subject's runs that end with held-out NDCG@10 below that of round 100, and by how much at most; NaN where
        they had no more rounds than that.
    ceiling : held-out NDCG@10 of the ranker that was trained on labels, or NaN.
    """

    data: str
    users: str
    runs: int
    ndcg: Mapping[str, float]
    cndcg: Mapping[str, float]
    offline: tuple[Versus, ...]
    online: tuple[Versus, ...]
    fell: tuple[int, float]
    ceiling: float

    @property
    def unbeaten(self) -> list[Versus]:
        """Online, the rivals that the subject is not surely above: without any the cell is won."""
        return [v for v in self.online if not (v.mean > 0 and v.p < ONLINE_P)]

    @property
    def ahead(self) -> list[Versus]:
        """Offline, the rivals that may be above by `MARGIN`: any, after one run; one without runs tells nothing."""
        return [v for v in self.offline if math.isfinite(v.mean) and not v.mean - v.half >= -MARGIN]


def specs(
    protocols: Sequence[Protocol],
    *,
    subject: str = SUBJECT,
    rivals: Sequence[str] = RIVALS,
    users: Sequence[str],
    seeds: int,
) -> list[RunSpec]:
    """The runs by some protocols, one for each fold of each data set; the ceiling needs one short run per fold."""
    wanted = [
        protocol.run(ranker, who, seed)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
        for protocol in protocols
        for who in users
        for ranker in (subject, *rivals)
    ]
    return wanted + [replace(protocol, rounds=1).run(CEILING, users[0], 0) for protocol in protocols]


def contests(summaries: Iterable[Summary], *, subject: str = SUBJECT, rivals: Sequence[str] = RIVALS) -> list[Contest]:
    """What the runs say, cell by cell; a cell of which runs are missing is compared by those that pair up.

    A rival without any counts as not beaten, and not as ahead.
    """
    runs: dict[tuple[str, str], dict[str, dict[tuple[int, int], Summary]]] = {}
    ceilings: dict[str, list[float]] = {}
    for summary in summaries:
        spec = summary.spec
        if spec.ranker == CEILING:
            ceilings.setdefault(spec.data, []).append(summary.ndcg)
        else:
            runs.setdefault((spec.data, spec.clicks), {}).setdefault(spec.ranker, {})[spec.fold, spec.seed] = summary
    rivals = [canonical(rival) for rival in rivals]
    found = [(key, of) for key, of in runs.items() if canonical(subject) in of]
    if not found:
        raise OptionError(f"there are no runs of {subject}; nothing can be compared")
    subject, names = canonical(subject), short_names({data for (data, _), _ in found})
    versus = {metric: _corrected([of for _, of in found], subject, rivals, metric) for metric in METRICS}
    return [
        Contest(
            data=names[data],
            users=who,
            runs=len(of[subject]),
            ndcg={ranker: _mean(of[ranker].values(), "ndcg") for ranker in of},
            cndcg={ranker: _mean(of[ranker].values(), "cndcg") for ranker in of},
            offline=versus["ndcg"][i],
            online=versus["cndcg"][i],
            fell=_fell(of[subject].values()),
            ceiling=float(np.mean(ceilings.get(data, [math.nan]))),
        )
        for i, ((data, who), of) in enumerate(found)
    ]


def mean_ranks(found: Sequence[Contest]) -> tuple[dict[str, tuple[float, float]], float]:
    """Each ranker's mean rank over the cells, online and held out, best first; and what two must differ by.

    Nemenyi's critical difference of k rankers over N cells is q √(k (k + 1) / 6N), with √2 q the 95 % quantile of the
    studentised range (Demšar, JMLR 2006). Who lacks a figure in some cell takes no part; of fewer than two nothing is
    told.
    """
    from scipy.stats import rankdata, studentized_range  # a second to import

    means = [[getattr(cell, metric) for cell in found] for metric in reversed(METRICS)]
    names = [r for r in found[0].ndcg if all(math.isfinite(row.get(r, math.nan)) for rows in means for row in rows)]
    k, n = len(names), len(found)
    if k < 2:
        return {}, math.nan
    online, offline = (
        rankdata([[-row[name] for name in names] for row in rows], axis=1).mean(axis=0) for rows in means
    )
    critical = studentized_range.ppf(1 - NEMENYI_P, k, math.inf) * math.sqrt(k * (k + 1) / (12 * n))
    ranks = dict(zip(names, zip(online.tolist(), offline.tolist(), strict=True), strict=True))
    return dict(sorted(ranks.items(), key=lambda item: item[1])), float(critical)


def short_names(sets: Iterable[str]) -> dict[str, str]:
    """The last part of each data set's path, or all of it where two have the same last part."""
    short = {data: data_name(data) for data in sets}
    return {data: name if list(short.values()).count(name) == 1 else data for data, name in short.items()}


def _mean(runs: Iterable[Summary], metric: str) -> float:
    return float(np.mean([getattr(run, metric) for run in runs]))


def _corrected(
    found: Sequence[Mapping[str, Mapping[tuple[int, int], Summary]]], subject: str, rivals: Sequence[str], metric: str
) -> list[tuple[Versus, ...]]:
    """The subject against every rival in every cell, corrected over all of them."""
    tests = [
        [(rival, *paired_test(_differences(of[subject], of.get(rival, {}), metric))) for rival in rivals]
        for of in found
    ]
    p = iter(holm(test[3] for row in tests for test in row))
    return [tuple(Versus(rival, mean, half, next(p)) for rival, mean, half, _ in row) for row in tests]


def _differences(
    ours: Mapping[tuple[int, int], Summary], theirs: Mapping[tuple[int, int], Summary], metric: str
) -> FloatArray:
    """Paired differences, one per seed; over several folds one per fold, since runs of a fold are not independent."""
    by_fold: dict[int, list[float]] = {}
    for fold, seed in ours.keys() & theirs.keys():
        difference = getattr(ours[fold, seed], metric) - getattr(theirs[fold, seed], metric)
        by_fold.setdefault(fold, []).append(difference)
    if len(by_fold) > 1:
        return np.array([np.mean(by_fold[fold]) for fold in sorted(by_fold)])
    return np.array(sorted(difference for values in by_fold.values() for difference in values))


def _fell(runs: Iterable[Summary]) -> tuple[int, float]:
    falls = [
        run.curve[int(np.searchsorted(run.spec.evaluation_rounds(), EARLY))] - run.ndcg
        for run in runs
        if run.spec.rounds > EARLY
    ]
    return sum(fall > 0 for fall in falls), max([0.0, *falls]) if falls else math.nan


def as_markdown(found: Sequence[Contest], subject: str = SUBJECT) -> str:
    """A table per data set and users, with what came out."""
    return "\n\n".join(
        f"## {title}\n\n{tables.as_markdown(head, rows)}\n\n" + "\n".join(f"- {line}" for line in told)
        for title, head, rows, told in _parts(found, subject)
    )


def as_text(found: Sequence[Contest], subject: str = SUBJECT) -> str:
    """The same for a terminal."""
    parts = [
        f"{title}\n" + indent("\n".join([tables.as_text(head, rows, right=True), *told, ""]), "  ")
        for title, head, rows, told in _parts(found, subject)
    ]
    return "\n".join([*parts, LEGEND])


_Part = tuple[str, list[str], list[tables.Row], list[str]]  # title, head, a row per ranker, what came out


def _parts(found: Sequence[Contest], subject: str) -> Iterator[_Part]:
    """A part for each data set with one kind of users, and one over several of them."""
    yield from _cells(found, subject)
    ranks, critical = mean_ranks(found)
    if len(found) > 1 and ranks:
        looks = styles.of_rankers(list(ranks))
        rows = [[looks[ranker].label, f"{online:.2f}", f"{offline:.2f}"] for ranker, (online, offline) in ranks.items()]
        told = f"not told apart: two whose mean ranks differ by less than {critical:.2f} (Nemenyi, p ≥ {NEMENYI_P})"
        yield f"Over all {len(found)} of these", _RANKS_HEAD, rows, [told]


def _cells(found: Sequence[Contest], subject: str) -> Iterator[_Part]:
    for cell in found:
        leads = {v.rival: (_lead(v, 1), _lead(o, 4)) for v, o in zip(cell.online, cell.offline, strict=True)}
        looks = styles.of_rankers(list(dict.fromkeys((canonical(subject), *cell.cndcg, *leads))))
        rows = []
        for ranker, look in looks.items():
            cndcg, ndcg = cell.cndcg.get(ranker, math.nan), cell.ndcg.get(ranker, math.nan)
            lead, lead_offline = leads.get(ranker, ("", ""))
            rows.append([look.label, _figure(cndcg, 1), lead, _figure(ndcg, 4), lead_offline])
        behind = [v for v in cell.unbeaten if v.mean < 0 and v.p < ONLINE_P]
        unsure = [v for v in cell.unbeaten if v not in behind]
        higher, lost, worse = ("; ".join(looks[v.rival].label for v in of) for of in (behind, unsure, cell.ahead))
        online = [f"{how} {who}" for how, who in (("behind", higher), ("not shown to be ahead of", lost)) if who]
        fallen, most = cell.fell
        known = sum(math.isfinite(v.mean) for v in cell.offline)
        level = f"no worse than any{'' if known == len(cell.offline) else ' measured'} by {MARGIN}"
        unknown = math.isnan(most) or math.isnan(cell.ndcg[canonical(subject)])
        lasting = f"{fallen} of {cell.runs} (at most {most:.4f})" if fallen else "none"
        told = [
            "while learning: " + (", ".join(online) or "ahead of every rival"),
            "what was learned: " + (f"perhaps worse than {worse}" if worse else level if known else NOT_MEASURED),
            f"NDCG@10 of a RankNet that saw the labels: {_figure(cell.ceiling, 4)}",
            f"ended below round {EARLY}: " + (NOT_MEASURED if unknown else lasting),
        ]
        yield f"{cell.data}, {cell.users} users, {cell.runs} runs of each", _HEAD, rows, told


def _figure(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def _lead(versus: Versus, digits: int) -> str:
    if math.isnan(versus.mean):
        return NOT_MEASURED
    return with_interval(versus.mean, versus.half, digits, sign="+") + ("*" if versus.p < ONLINE_P else "")
