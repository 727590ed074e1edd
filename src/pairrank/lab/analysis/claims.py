"""The paper's claims, one by one, with a rule for each that was fixed before anything was measured.

A verdict is "holds", "does not hold" or "not decided". Tests are paired by seed, and p-values are corrected by Holm's
method within one ranker and metric, over all baselines and users. Where data are too few to tell, it says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pairrank.lab.analysis.aggregate import METRICS, Cell, Comparison, Results, holm, paired, paired_test
from pairrank.lab.experiment import CEILING
from pairrank.lab.report import styles
from pairrank.metrics import mean_interval, with_interval
from pairrank.types import FloatArray

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"
ALPHA = 0.05
MARGIN = 0.01  # of NDCG@10: closer than this counts as converged
SMALL = 1.5  # documents: a mean block size below this counts as one
HUNDREDS = 1000  # rounds: "within hundreds of rounds" ends here
EARLY = 100  # rounds: when blocks of middle ranks are compared with the others
SUBJECTS = ("pairrank", "pairrank-c")  # what this package does by default, and the paper's ranker as published
BASELINES = ("dbgd", "mgd", "pdgd", "epsilon-greedy", "sgd-ranknet")

WORDS = {"ndcg": "offline (NDCG@10 after the last round)", "cndcg": "online (cNDCG@10 over all rounds)"}


@dataclass(frozen=True)
class Claim:
    """A claim, whom it is checked for, the rule, the verdict, and the numbers behind it."""

    text: str
    ranker: str
    rule: str
    verdict: str
    evidence: str


def comparisons(results: Results) -> list[Comparison]:
    """Every PairRank in the results against every other ranker, by users and metric, corrected within its family."""
    names = _by_name(results)
    # The default is nobody's opponent: those pairs are in its own family.
    competing = [r for r in results.rankers if styles.base(r) != CEILING and r != names.get(SUBJECTS[0])]
    made: list[Comparison] = []
    for subject in (names[name] for name in (*SUBJECTS, "pairrank-r") if name in names):
        for metric in METRICS:
            pairs = [
                paired(ours, theirs, metric)
                for other in competing
                for users in results.users
                if other != subject and (ours := results.get(subject, users)) and (theirs := results.get(other, users))
            ]
            corrected = holm(pair.p for pair in pairs)
            made += [replace(pair, p_holm=p) for pair, p in zip(pairs, corrected, strict=True)]
    return made


def _by_name(results: Results) -> dict[str, str]:
    """The rankers by their names without options; of several of one name the plain one, or else the first."""
    names: dict[str, str] = {}
    for ranker in sorted(results.rankers, key=lambda ranker: ranker != styles.base(ranker)):
        names.setdefault(styles.base(ranker), ranker)
    return names


def check(results: Results, made: Sequence[Comparison]) -> list[Claim]:
    """All claims that the results have something to say about."""
    names = _by_name(results)
    contests = [(subject, metric, other) for subject in SUBJECTS for metric in METRICS for other in BASELINES]
    contests += [("pairrank-c", metric, "pairrank-r") for metric in METRICS]
    found = [
        _ahead(results, made, names[subject], names[other], metric)
        for subject, metric, other in contests
        if {subject, other} <= set(names)
    ]
    for subject in SUBJECTS:
        if subject in names:
            found += _about_learning(results, names[subject], names.get(CEILING))
    return found


def _ahead(results: Results, made: Sequence[Comparison], ours: str, theirs: str, metric: str) -> Claim:
    rows = [c for c in made if (c.a, c.b, c.metric) == (ours, theirs, metric)]
    digits = 4 if metric == "ndcg" else 1
    evidence = "; ".join(f"{c.clicks} {c.mean:+.{digits}f} ({_p(c.p_holm)})" for c in rows)
    if styles.base(theirs) == "pairrank-r":
        text = f"Conservative exploration is ahead of random {WORDS[metric]}"
    else:
        text = f"{_label(ours)} is ahead of {_label(theirs)} {WORDS[metric]}"
    rule = (
        f"holds: ahead with corrected p < {ALPHA} for all users; does not hold: behind with corrected p < {ALPHA} for "
        "some; else not decided"
    )
    verdict = _paired_verdict([(c.mean, c.p_holm) for c in rows], len(results.users))
    return Claim(text, ours, rule, verdict, evidence)


def _about_learning(results: Results, ranker: str, ceiling: str | None) -> list[Claim]:
    made = []
    perfect = results.get(ranker, "perfect")
    best = results.get(ceiling, "perfect") if ceiling else None
    if perfect and best:
        made.append(_converges(perfect, best))
    cells = [cell for cell in results.of(ranker) if cell.has("n_blocks")]
    if cells:
        made += [_shrinks(cells, rank) for rank in (1, 5, 10)]
        made.append(_slower(ranker, cells))
        if all(len(sizes) >= 3 for cell in cells for sizes in cell.profiles[min(cell.profiles)]):  # else there is none
            made.append(_middle(ranker, cells))
    return made


def _converges(ours: Cell, ceiling: Cell) -> Claim:
    gap = paired(ceiling, ours, "ndcg")
    verdict = _interval_verdict([(gap.mean, gap.half)], MARGIN)
    evidence = f"gap {with_interval(gap.mean, gap.half, 4)}"
    if ours.has("cosine"):
        evidence += f"; cosine to the ideal weights {np.nanmean(ours.final('cosine')):.3f}"
    return Claim(
        f"{_label(ours.ranker)} converges to the offline ranker for perfect users",
        ours.ranker,
        f"holds: the 95 % interval of the gap in NDCG@10 after the last round lies below {MARGIN}; does not hold: "
        "above; else not decided",
        verdict,
        evidence,
    )


def _shrinks(cells: Sequence[Cell], rank: int) -> Claim:
    limits, evidence = [], []
    for cell in cells:
        place = int(np.searchsorted(cell.rounds, HUNDREDS, side="right")) - 1
        mean, half = mean_interval(cell.curves[f"block_at_{rank}"])
        limits.append((float(mean[place]), float(half[place])))
        evidence.append(f"{cell.clicks} {with_interval(*limits[-1], 2)} after {cell.rounds[place]:,}")
    verdict = _interval_verdict(limits, SMALL)
    if verdict == FAILS and cells[0].rounds[-1] < HUNDREDS:
        verdict = OPEN  # the time that the claim grants is not over
    return Claim(
        f"Blocks of {_label(cells[0].ranker)} shrink to one within hundreds of rounds, at rank {rank}",
        cells[0].ranker,
        f"holds: the 95 % interval of the mean block size after {HUNDREDS:,} rounds lies below {SMALL} for all users; "
        "does not hold: above for some; else not decided",
        verdict,
        "; ".join(evidence),
    )


def _slower(ranker: str, cells: Sequence[Cell]) -> Claim:
    """Navigational users against the others, in the mean block size over the early rounds and ranks 1, 5, 10."""
    sizes = {cell.clicks: replace(cell, curves={"early size": _early_size(cell)}) for cell in cells}
    slow = sizes.pop("navigational", None)
    pairs = [] if slow is None else [paired(slow, other, "early size") for other in sizes.values()]
    corrected = holm(pair.p for pair in pairs)
    tests = [(who, pair.mean, p) for who, pair, p in zip(sizes, pairs, corrected, strict=False)]
    return Claim(
        f"Blocks of {_label(ranker)} shrink more slowly for navigational users",
        ranker,
        f"holds: the mean block size at ranks 1, 5, 10 over the evaluations of the first {HUNDREDS:,} rounds is larger "
        f"than for each other kind of users with corrected p < {ALPHA}; does not hold: smaller than for some with "
        f"corrected p < {ALPHA}; else not decided",
        _paired_verdict([(mean, p) for _, mean, p in tests], len(cells) - 1),
        "; ".join(f"against {who} {mean:+.2f} documents ({_p(p)})" for who, mean, p in tests),
    )


def _early_size(cell: Cell) -> FloatArray:
    """(n, 1), by seed."""
    early = cell.rounds <= HUNDREDS
    curves = [cell.curves[f"block_at_{rank}"][:, early] for rank in (1, 5, 10)]
    means: FloatArray = np.nanmean(np.array(curves), axis=(0, 2))
    return means[:, None]


def _middle(ranker: str, cells: Sequence[Cell]) -> Claim:
    cell = next((cell for cell in cells if cell.clicks == "informational"), cells[-1])
    first, time = min(cell.profiles), max(t for t in cell.profiles if t <= max(EARLY, min(cell.profiles)))
    # At first every list is one block, so the sizes then are the lengths of the lists that reach a rank.
    shares = [now / then for now, then in zip(cell.profiles[time], cell.profiles[first], strict=True)]
    thirds = np.array([[part.mean() for part in np.array_split(share, 3)] for share in shares])
    tests = [paired_test(thirds[:, 1] - thirds[:, side]) for side in (0, 2)]
    corrected = holm(p for _, _, p in tests)
    means = thirds.mean(axis=0)
    return Claim(
        f"Middle ranks have the largest blocks ({_label(ranker)}, {cell.clicks} users)",
        ranker,
        f"holds: the mean block size over the middle third of ranks after {time} rounds, as a share of that after "
        f"round {first} (the length of the lists that reach so far), is above that over the top and over the bottom "
        f"third with corrected p < {ALPHA}; does not hold: below one of them with corrected "
        f"p < {ALPHA}; else not decided",
        _paired_verdict([(mean, p) for (mean, _, _), p in zip(tests, corrected, strict=True)], 2),
        f"top {means[0]:.2f}, middle {means[1]:.2f}, bottom {means[2]:.2f} of the first size "
        f"({', '.join(map(_p, corrected))})",
    )


def _paired_verdict(tests: Sequence[tuple[float, float]], wanted: int) -> str:
    if any(mean < 0 and p < ALPHA for mean, p in tests):
        return FAILS
    return HOLDS if wanted and len(tests) == wanted and all(mean > 0 and p < ALPHA for mean, p in tests) else OPEN


def _interval_verdict(intervals: Iterable[tuple[float, float]], limit: float) -> str:
    known = list(intervals)
    if any(mean - half > limit for mean, half in known):
        return FAILS
    return HOLDS if all(mean + half < limit for mean, half in known) else OPEN


def _label(ranker: str) -> str:
    return styles.of_rankers([ranker])[ranker].label


def _p(value: float) -> str:
    if np.isnan(value):
        return "p unknown"
    return f"p = {value:.3f}" if value >= 0.001 else "p < 0.001"
