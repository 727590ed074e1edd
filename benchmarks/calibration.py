"""Calibration: of the orders called certain, how many are wrong, and are the widths as wide as they need be?

By hand: ``python benchmarks/calibration.py --out calibration``; with ``--clicks informational --rounds 300 --seeds 5``
a smaller study. It writes calibration.json and calibration.md; an interrupted one begins again.

Documents have uniform features, and θ* is known. First comes feedback that is just what the model assumes: each pair of
neighbours (1,2), (3,4), ... gets one click, on its upper document with probability σ(x·θ*), and θ* itself is drawn from
the prior N(0, I/λ). There the share of wrong orders is to stay below 5 %, and the widths are to be about as wide as
needed (a ratio of 1). Then come users, who click by grade (x·θ* cut at two quantiles) and who see lists from the top.
What the two differ in is bias; where it comes from is told by rankers that differ in one thing at a time.

columns:
  certain at z         what certain means: a score difference of more than z standard deviations. 1.645 is 95 %,
                       one-sided; the default is judged at its own z too, the one that decides what it keeps
  called certain       share of all pairs whose order is certain
  of these wrong       share of those that contradict the ideal weights, with its standard error over seeds
  width used / needed  the nominal width over the one that 95 % of the deviations keep to; known for logistic feedback
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, ndtri

from pairrank import archive, click_models, engines, rankers
from pairrank.cli.experiment_options import add, positive
from pairrank.errors import OptionError
from pairrank.lab import executors
from pairrank.lab.experiment import USERS
from pairrank.lab.report import tables
from pairrank.progress import progress
from pairrank.rankers.pairrank import PairRank
from pairrank.rng import Purpose, generator
from pairrank.types import BoolArray, FloatArray

LEVEL = 0.95
Z = float(ndtri(LEVEL))  # one-sided: an order is certain when zero lies 1.645 standard deviations below the estimate
LOGISTIC = "logistic"
SHUFFLE = 1e9  # a z that nothing exceeds: every list is a shuffle
REPEATED = 30  # training queries, where they come again and again
_GRADE_CUTS = (0.6, 0.85)
# Numbers of random streams; rounds count from 0 and stay far below.
_IDEAL, _JUDGED = 2**43, 2**43 + 1
_JUDGED_QUERIES = 10
_ROUNDS = (30, 100, 300, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True)
class Case:
    """What is judged.

    feedback : ``logistic``, or a click model. told, ranker : a word on the ranker, and its text.
    queries : how many training queries there are; 0: no end.
    own_z : whether certain means what it means to the ranker itself, score difference > z·sd; otherwise at 95 %.
    """

    feedback: str
    told: str
    ranker: str
    queries: int = 0
    own_z: bool = False


@dataclass(frozen=True, kw_only=True)
class Study:
    """Sizes of the study, and after which rounds it looks."""

    features: int = 10
    docs: int = 20
    k: int = 10
    lam: float = 1.0
    rounds: tuple[int, ...] = (30, 100, 300, 1000, 2000)
    seeds: int = 20
    users: tuple[str, ...] = USERS

    def __post_init__(self) -> None:
        if not self.rounds or list(self.rounds) != sorted(set(self.rounds)) or self.rounds[0] < 1:
            raise OptionError(f"rounds are {self.rounds}; expected rising numbers from 1")
        if self.seeds < 1 or self.docs < 2 or self.features < 1:
            raise OptionError("expected a seed, a feature and two documents at least")

    def cases(self) -> list[Case]:
        """What is compared."""
        # The paper's preset with widths from the posterior: what is not named stays as it was published.
        plain: dict[str, Any] = {"preset": "paper", "width": "score", "lam": self.lam}

        def spelt(**more: Any) -> str:
            return rankers.spell("pairrank", plain | more)

        found = [Case(LOGISTIC, "as the model assumes", spelt(z=Z))]
        for who in self.users:
            found += [
                Case(who, "shuffled lists, adjacent pairs", spelt(z=SHUFFLE)),
                Case(who, "shuffled lists, all pairs", spelt(z=SHUFFLE, pairs="all")),
                Case(who, "shuffled lists, averaged pairs", spelt(z=SHUFFLE, pairs="averaged")),
                Case(who, "shuffled lists, averaged pairs", spelt(z=SHUFFLE, pairs="averaged"), REPEATED),
                Case(who, "explores, learns from all pairs", spelt(z=Z, pairs="averaged")),
                Case(who, "explores, all that was shown", spelt(z=Z, pairs="shown", offsets=True)),
                Case(who, "explores little, learns from all pairs", spelt(z=0.4, pairs="averaged")),
                Case(who, "explores little, all that was shown", spelt(z=0.4, pairs="shown", offsets=True)),
                Case(who, "PairRank's default", "pairrank"),
                Case(who, "PairRank's default", "pairrank", REPEATED),
                Case(who, "PairRank's default", "pairrank", own_z=True),
                Case(who, "PairRank's default", "pairrank", REPEATED, own_z=True),
            ]
        return found


@dataclass(frozen=True, eq=False)
class Look:
    """What one seed shows after one round: pairs judged, certain ones, wrong ones among them; and |x·(θ̂ - θ*)| / sd.

    The last, (n_pairs,), is empty for users: their clicks do not say how large θ* is, only where it points.
    """

    case: Case
    round: int
    z: float
    pairs: int
    certain: int
    wrong: int
    deviations: FloatArray


@dataclass(frozen=True)
class Row:
    """One line of the outcome, over all seeds.

    z : an order is certain when the score difference exceeds z standard deviations.
    certain : share of pairs called certain. wrong : share of those that contradict θ*; None where there are none.
    wrong_error : its standard error over seeds.
    used_over_needed : the nominal width over the one that 95 % of deviations keep to, one-sidedly; None for users.
    """

    feedback: str
    queries: int
    told: str
    ranker: str
    z: float
    round: int
    certain: float
    wrong: float | None
    wrong_error: float | None
    used_over_needed: float | None


def run(study: Study, jobs: int = 1, report: Callable[[int], None] = lambda done: None) -> list[Row]:
    """The whole study, over ``jobs`` processes; ``report`` hears how many runs are done."""
    tasks = [(case, seed) for seed in range(study.seeds) for case in study.cases()]
    looks = [look for found in engines.over_processes(partial(_task, study), tasks, jobs, report) for look in found]
    return [
        _row([look for look in looks if (look.case, look.round) == (c, t)]) for c in study.cases() for t in study.rounds
    ]


def _task(study: Study, task: tuple[Case, int]) -> list[Look]:
    return list(play(study, *task))


def play(study: Study, case: Case, seed: int) -> Iterator[Look]:
    """One seed of a case, looked at after the study's rounds."""
    ranker = rankers.make(case.ranker, n_features=study.features, seed=seed)
    if not isinstance(ranker, PairRank) or ranker.width != "score" or ranker.z == 0:
        raise OptionError(f'{case.ranker} has no widths to calibrate; expected a PairRank with width="score" and z > 0')
    ideal = generator(seed, _IDEAL, Purpose.DATA).standard_normal(study.features) / np.sqrt(study.lam)
    judged = generator(seed, _JUDGED, Purpose.DATA).random((_JUDGED_QUERIES, study.docs, study.features))
    feedback = (
        _logistic if case.feedback == LOGISTIC else _by_grade(case.feedback, np.quantile(judged @ ideal, _GRADE_CUTS))
    )
    for t in range(study.rounds[-1]):
        number = t if not case.queries else int(generator(seed, t, Purpose.QUERIES).integers(case.queries))
        X = generator(seed, number, Purpose.DATA).random((study.docs, study.features))
        impression = ranker.rank(X, study.k)
        coins = generator(seed, t, Purpose.CLICKS).random((study.docs, 2))[impression.ranking]
        ranker.learn(impression, feedback(impression.features @ ideal, coins))
        if t + 1 in study.rounds:
            yield _look(case, t + 1, ranker, judged, ideal)


Feedback = Callable[[FloatArray, FloatArray], BoolArray]


def _logistic(utility: FloatArray, coins: FloatArray) -> BoolArray:
    """One click on each of the pairs (1,2), (3,4), ...: on the upper document with probability σ(u_upper - u_lower)."""
    first = np.arange(0, len(utility) - 1, 2)
    upper = coins[first, 0] < expit(utility[first] - utility[first + 1])
    clicks = np.zeros(len(utility), dtype=np.bool_)
    clicks[np.where(upper, first, first + 1)] = True
    return clicks


def _by_grade(text: str, cuts: FloatArray) -> Feedback:
    """Users who see grades: how many of the cuts a document's utility exceeds."""
    who = click_models.make(text, n_grades=len(cuts) + 1)
    return lambda utility, coins: who.clicks(np.digitize(utility, cuts), coins)


def _look(case: Case, t: int, ranker: PairRank, judged: FloatArray, ideal: FloatArray) -> Look:
    above, below = np.triu_indices(judged.shape[1], 1)
    certain, wrong, deviations = 0, 0, []
    z = ranker.z if case.own_z else Z
    for X in judged:
        seen = ranker.inspect(X)
        gap, truth = (scores[above] - scores[below] for scores in (seen.scores, X @ ideal))
        spread = seen.width[above, below] / ranker.z  # the standard deviation, which z multiplies
        sure = np.abs(gap) > z * spread
        certain += int(sure.sum())
        wrong += int((sure & (gap * truth < 0)).sum())
        deviations.append(np.abs(gap - truth) / spread)
    kept = np.concatenate(deviations) if case.feedback == LOGISTIC else np.empty(0)
    return Look(case, t, z, len(judged) * len(above), certain, wrong, kept)


def _row(looks: Sequence[Look]) -> Row:
    case = looks[0].case
    certain, wrong = (np.array([getattr(look, name) for look in looks], dtype=float) for name in ("certain", "wrong"))
    share = error = ratio = None
    if certain.sum() > 0:
        share = float(wrong.sum() / certain.sum())
        if len(looks) > 1:  # seeds are independent, the pairs of one are not
            spread = np.sqrt(len(looks) / (len(looks) - 1) * ((wrong - share * certain) ** 2).sum())
            error = float(spread / certain.sum())
    if case.feedback == LOGISTIC:
        # Either document of a pair may be called the first, so both tails count: 90 % of absolute deviations.
        ratio = float(Z / np.quantile(np.concatenate([look.deviations for look in looks]), 2 * LEVEL - 1))
    share_certain = float(certain.sum() / sum(look.pairs for look in looks))
    first = looks[0]
    return Row(
        case.feedback, case.queries, case.told, case.ranker, first.z, first.round, share_certain, share, error, ratio
    )


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and lines, as `tables.as_markdown` takes them."""
    lines = []
    for row in rows:
        error = "" if row.wrong_error is None else f" ± {100 * row.wrong_error:.2f}"
        lines.append(
            {
                "feedback": row.feedback,
                "queries": str(row.queries) if row.queries else "new",
                "ranker": row.told,
                "certain at z": f"{row.z:.4g}",
                "rounds": f"{row.round:,}",
                "called certain": f"{100 * row.certain:.1f} %",
                "of these wrong": "–" if row.wrong is None else f"{100 * row.wrong:.2f} %{error}",
                "width used / needed": "–" if row.used_over_needed is None else f"{row.used_over_needed:.2f}",
            }
        )
    return list(lines[0]), [list(line.values()) for line in lines]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, metavar="DIR", help="where calibration.json and calibration.md go")
    parser.add_argument("--features", type=positive, default=10, metavar="N", help="of a document (default: 10)")
    add(parser, rounds=2000, seeds=20, clicks=None, jobs=None)
    args = parser.parse_args(words)
    rounds = (*(t for t in _ROUNDS if t < args.rounds), args.rounds)
    users = tuple(dict.fromkeys(click_models.canonical(text) for text in args.clicks or USERS))
    study = Study(features=args.features, rounds=rounds, seeds=args.seeds, users=users)
    executors.prepare(args.out, "")
    with progress(len(study.cases()) * study.seeds, "runs") as report:
        rows = run(study, args.jobs or engines.cores(), report)
    head, lines = table(rows)
    content = {"nominal": LEVEL, "seeds": study.seeds, "rows": [asdict(row) for row in rows]}
    archive.write_atomically(Path(args.out) / "calibration.json", json.dumps(content, indent=1).encode() + b"\n")
    archive.write_atomically(Path(args.out) / "calibration.md", tables.as_markdown(head, lines).encode() + b"\n")
    print(tables.as_text(head, lines))


if __name__ == "__main__":
    main()
