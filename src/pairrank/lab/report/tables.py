"""Results as rows: for the terminal, for Markdown and HTML, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pairrank.lab.analysis.aggregate import LEVEL as CERTAIN
from pairrank.lab.analysis.aggregate import METRICS, Cell, Comparison, Results, paired
from pairrank.lab.experiment import CEILING
from pairrank.lab.report import styles
from pairrank.metrics import mean_interval, with_interval

Row = list[str]
MARK, LEVEL = "*", "≈"  # the best of its column, and what no paired test tells from it
_DIGITS = {"ndcg": 4, "cndcg": 1, "regret": 0}
_HEADS = {"ndcg": "NDCG@10", "cndcg": "cNDCG@10", "regret": "regret"}


def summary(results: Results) -> list[dict[str, Any]]:
    """A row per ranker and users: means over seeds with half 95 % t intervals, and whether it is the best there."""
    rows = []
    columns = [(users, metric) for users in results.users for metric in METRICS]
    winners = {column: winner(results, *column) for column in columns}
    levels = {column: level(results, *column) for column in columns}
    for users in results.users:
        for ranker in results.rankers:
            cell = results.get(ranker, users)
            if cell is None:
                continue
            row: dict[str, Any] = {"ranker": ranker, "clicks": users, "seeds": len(cell.seeds)}
            for metric in _HEADS:
                mean, half = mean_interval(cell.final(metric))
                row |= {metric: float(mean), f"{metric}_ci": None if math.isnan(half) else float(half)}
            row |= {f"best_{metric}": winners[users, metric] == ranker for metric in METRICS}
            row |= {f"level_{metric}": ranker in levels[users, metric] for metric in METRICS}
            row["seconds"] = cell.seconds
            rows.append(row)
    return rows


def winner(results: Results, users: str, metric: str) -> str | None:
    """The ranker with the highest mean; what has no mean does not compete."""
    means = {cell.ranker: float(cell.final(metric).mean()) for cell in _competing(results, users)}
    known = [ranker for ranker, mean in means.items() if not math.isnan(mean)]
    return max(known, key=lambda ranker: means[ranker], default=None)


def level(results: Results, users: str, metric: str) -> set[str]:
    """The winner, and every ranker that a paired t test over seeds does not tell from it (p ≥ 0.05)."""
    best = winner(results, users, metric)
    cells = {cell.ranker: cell for cell in _competing(results, users)}
    return {r for r in cells if best and (r == best or paired(cells[best], cells[r], metric).p >= 1 - CERTAIN)}


def _competing(results: Results, users: str) -> list[Cell]:
    """All but the ceiling, which sees labels."""
    cells = (results.get(ranker, users) for ranker in results.rankers if styles.base(ranker) != CEILING)
    return [cell for cell in cells if cell is not None]


def by_kind(users: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Users by name where some differ in options alone; all of them under no name where none do."""
    names = [text.partition("(")[0] for text in users]
    if len(set(names)) == len(names):
        return {"": tuple(users)}
    return {name: tuple(t for t, n in zip(users, names, strict=True) if n == name) for name in dict.fromkeys(names)}


def overview(results: Results, shown: Sequence[str]) -> tuple[Row, list[Row]]:
    """A line per ranker, and for each kind of users ``shown`` offline and online performance; the best is marked."""
    head = ["ranker"] + [f"{users} {_HEADS[metric]}" for users in shown for metric in METRICS]
    cells = {(row["ranker"], row["clicks"]): row for row in summary(results)}
    drawn = styles.of_rankers(results.rankers)
    rows = []
    for ranker in results.rankers:
        values = [_value(cells.get((ranker, users)), metric) for users in shown for metric in METRICS]
        rows.append([drawn[ranker].label, *values])
    return head, rows


def leaders(results: Results, users: str) -> tuple[Row, list[Row]]:
    """For one kind of users, a line per ranker, best offline first."""
    rows = sorted((row for row in summary(results) if row["clicks"] == users), key=lambda row: -row["ndcg"])
    drawn = styles.of_rankers(results.rankers)
    head = ["  ranker", *_HEADS.values()]
    return head, [[f"  {drawn[row['ranker']].label}", *(_value(row, metric) for metric in _HEADS)] for row in rows]


def _value(row: dict[str, Any] | None, metric: str) -> str:
    if row is None or math.isnan(row[metric]):
        return "–"
    text = with_interval(row[metric], row[f"{metric}_ci"], _DIGITS[metric])
    if row.get(f"best_{metric}"):
        return f"{text} {MARK}"
    return f"{text} {LEVEL}" if row.get(f"level_{metric}") else text


def regrets(results: Results) -> tuple[Row, list[Row]]:
    """A line per ranker: regret by users, and the computing time of a round."""
    cells = {(row["ranker"], row["clicks"]): row for row in summary(results)}
    drawn = styles.of_rankers(results.rankers)
    head = ["ranker", *(f"{users}, mis-ordered pairs" for users in results.users), "ms a round, all in"]
    rows = []
    for ranker in results.rankers:
        rounds = sum(len(cell.seeds) * int(cell.rounds[-1]) for cell in results.of(ranker))
        seconds = sum(cell.seconds for cell in results.of(ranker))
        values = [_value(cells.get((ranker, users)), "regret") for users in results.users]
        rows.append([drawn[ranker].label, *values, f"{1000 * seconds / rounds:.2f}" if rounds else "–"])
    return head, rows


def tests(results: Results, made: Sequence[Comparison]) -> tuple[Row, list[Row]]:
    """A line per comparison."""
    drawn = styles.of_rankers(results.rankers)
    head = ["ranker", "against", "users", "metric", "difference ± 95 %", "seeds", "p", "p, Holm"]
    rows = []
    for c in made:
        difference = with_interval(c.mean, c.half, _DIGITS[c.metric], sign="+").replace("-", "−")
        names = drawn[c.a].label, drawn[c.b].label
        rows.append([*names, c.clicks, _HEADS[c.metric], difference, str(c.n), p_value(c.p), p_value(c.p_holm)])
    return head, rows


def p_value(p: float) -> str:
    """A p-value as text."""
    if math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def as_text(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: bool = False) -> str:
    """Aligned columns for a terminal; ``right``: all but the first on the right, as figures are read."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = ["<", *("><"[not right] for _ in widths[1:])]
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)).rstrip()
        for line in lines
    )


def as_markdown(head: Row, rows: Sequence[Row]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
