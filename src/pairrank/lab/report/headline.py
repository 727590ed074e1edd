"""What came out of an experiment, in one sentence and one curve per ranker: its share of the ceiling."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np

from pairrank.lab.analysis.aggregate import METRICS, Results
from pairrank.lab.experiment import CEILING
from pairrank.lab.report import styles, tables
from pairrank.types import FloatArray

SUBJECT = "pairrank"


def ceilings(results: Results) -> Mapping[str, float]:
    """By users, the held-out NDCG@10 of the ranker that was taught by labels; nothing where it did not run."""
    (taught,) = [r for r in results.rankers if styles.base(r) == CEILING][:1] or [""]
    cells = {users: results.get(taught, users) for users in results.users}
    return {users: float(cell.final("ndcg").mean()) for users, cell in cells.items() if cell is not None}


def shares(results: Results) -> dict[str, FloatArray]:
    """By ranker (n_seeds, n_rounds): held-out NDCG@10 over the ceiling's, the mean over users; NDCG without a ceiling.

    A ranker is left out that has not met all of the users yet; all are where nothing held out is relevant.
    """
    ceiling, found = ceilings(results), {}
    for ranker in results.rankers:
        cells = results.of(ranker)
        if styles.base(ranker) == CEILING or len(cells) < len(results.users):
            continue
        seeds = reduce(np.intersect1d, [cell.seeds for cell in cells])
        if len(seeds):
            curves = [c.curves["ndcg"][np.isin(c.seeds, seeds)] / ceiling.get(c.clicks, 1.0) for c in cells]
            found[ranker] = np.mean(curves, axis=0)
    return {ranker: curves for ranker, curves in found.items() if np.isfinite(curves).all()}


def sentence(results: Results) -> str:
    """How far PairRank (else the best) has come, who is next, and in how many columns it is best or level with it."""
    last = {ranker: float(curves[:, -1].mean()) for ranker, curves in shares(results).items()}
    ranked = sorted(last, key=lambda ranker: -last[ranker])
    if not ranked:
        return f"{results.done} of {results.expected} runs are done: too few to say anything yet."
    subject = next((ranker for ranker in ranked if ranker == SUBJECT), ranked[0])
    labels = {ranker: look.label for ranker, look in styles.of_rankers(results.rankers).items()}
    rounds = int(results.of(subject)[0].rounds[-1])
    of_ceiling = bool(ceilings(results))

    def told(ranker: str) -> str:
        return f"{100 * last[ranker]:.1f} %" if of_ceiling else f"{last[ranker]:.3f}"

    what = "of what a ranker taught by labels reaches" if of_ceiling else "NDCG@10"
    text = f"After {rounds:,} rounds of clicks {labels[subject]} has {told(subject)} {what} on held-out queries"
    others = [ranker for ranker in ranked if ranker != subject]
    if others:
        text += f"; the best of the others, {labels[others[0]]}, has {told(others[0])}"
        columns = [(users, metric) for users in results.users for metric in METRICS]
        level = sum(subject in tables.level(results, *column) for column in columns)
        text += f". It is the best, or level with the best, in {level} of {len(columns)} columns of the table"
    missing = "" if results.done == results.expected else f" So far {results.done} of {results.expected} runs are done."
    return f"{text}.{missing}"
