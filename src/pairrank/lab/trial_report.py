"""What came out of a trial: rows for people, and a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pairrank.lab.launches import KINDS
from pairrank.lab.report import styles
from pairrank.lab.report.figures import Plate, empty
from pairrank.lab.trial import Study

Row = list[str]
Outcome = Mapping[str, Any]
_TOLD = {
    "interleave": "interleaved",
    "team": "interleaved, credit by teams",
    "exposure": "interleaved, credit by exposure",
    "split": "split",
}


def lists_until_verdict(study: Study, rows: Sequence[Outcome]) -> tuple[Row, list[Row]]:
    """A line per users and method: how many lists it takes."""
    head = ["users", "method", "lists until a verdict, median", "10 % to 90 %", "verdicts right, wrong", "fixed size"]
    lines = []
    for row in rows:
        for method, told in _TOLD.items():
            found = row["sensitivity"][method]
            middle, low, high = (_size(n, f"more than {study.lists:,}") for n in found["lists"])
            verdicts = "–" if found["right"] is None else f"{found['right']}, {found['wrong']}"
            size = _size(found["fixed_size"])
            lines.append([row["clicks"], told, middle, f"{low} to {high}", verdicts, size])
        if row["off_policy"]:
            arms = row["off_policy"]["arms"]
            told = f"from a log, {100 * arms['told']:.0f} % of positions"
            lines.append([row["clicks"], told, "–", "–", "–", _size(arms["fixed_size"])])
    return head, lines


def _size(n: int | None, unknown: str = "–") -> str:
    return unknown if n is None else f"{n:,}"


def false_verdicts(rows: Sequence[Outcome]) -> tuple[Row, list[Row]]:
    """A line per kind of experiment without a difference, a column per users."""
    kinds = rows[0]["false_verdicts"]
    head = ["no difference", *(row["clicks"] for row in rows)]
    return head, [[kind, *(f"{100 * row['false_verdicts'][kind]:.1f} %" for row in rows)] for kind in kinds]


def coverage(rows: Sequence[Outcome]) -> tuple[Row, list[Row]]:
    """Two lines per users: how often intervals from a log hold the truth, and how wide they are."""
    lines = []
    for row in rows:
        for of in ("order by score", "interleaved") if row["off_policy"] else ():
            found = row["off_policy"][of]
            cells = [f"{100 * share:.1f} %, width {found['width'][m]:.3f}" for m, share in found["covered"].items()]
            told = [f"{100 * found['told']:.0f} %", f"{found['effective']:.0f}"]
            lines.append([row["clicks"], of, *told, *cells])
    return ["users", "clicks of", "told of", "effective lists", "ips", "self-normalised", "doubly robust"], lines


def launched(rows: Sequence[Outcome]) -> tuple[Row, list[Row]]:
    """A line per users and kind of ranker: how guarded launches end, and what they cost."""
    cells = [
        {
            "users": row["clicks"],
            "ranker": row["ranker"],
            "gain per list": f"{row['gain']:+.3f}",
            "ended": ", ".join(f"{mode} {count}" for mode, count in row["modes"].items()),
            "free after, median and 90 %": ", ".join(f"{n:,}" for n in row["free_after"] or ()) or "–",
            "gained": f"{row['gained']:+,.0f}",
            "gained at once": f"{row['at_once']:+,.0f}",
            "beyond the margin": str(row["beyond_margin"]),
        }
        for row in rows
    ]
    return list(cells[0]), [list(line.values()) for line in cells]


def plate(study: Study, rows: Sequence[Outcome], launches: Sequence[Outcome]) -> Plate:
    """Left how many experiments are decided after how many lists, right the share that a guarded launch serves."""

    def draw() -> Any:
        figure = empty(8.4, 3.4)
        left, right = figure.subplots(1, 2)
        users = styles.of_users([row["clicks"] for row in rows])
        for row in rows:
            for method, style in (("interleave", "-"), ("split", ":")):
                found = row["sensitivity"].get(method)
                if found:
                    needed = sorted(n for n in found["needed"] if n is not None)
                    label = row["clicks"] if method == "interleave" else None
                    at = [min([100, *needed, study.lists]), *needed, study.lists]  # some may end without one
                    share = 100 * np.minimum(np.arange(len(at)), len(needed)) / len(found["needed"])
                    left.step(at, share, where="post", label=label, color=users[row["clicks"]].colour, ls=style)
        left.set(xscale="log", xlabel="lists", ylabel="experiments with a verdict, %", ylim=(0, 101))
        arms = textwrap.fill(f"{study.a} against {study.b}:", 50)
        left.set_title(f"{arms}\ninterleaved (solid), split (dotted)", fontsize=9)
        if study.experiments:
            left.legend(fontsize=7)
        colours = dict(zip(KINDS, ("#009E73", "#E69F00", "#D55E00"), strict=True))
        for row in launches:
            label = row["ranker"] if row["clicks"] == rows[0]["clicks"] else None
            colour, line = colours[row["ranker"]], users[row["clicks"]].style
            right.plot(row["at"], 100 * np.array(row["share"]), color=colour, ls=line, label=label)
        right.set(xlabel="lists", ylabel="lists that get ours, %", ylim=(0, 101))
        told = textwrap.fill(", ".join(row["clicks"] for row in rows), 60)
        right.set_title(f"Guarded launch, lines by users:\n{told}", fontsize=9)
        if launches:
            right.legend(fontsize=7)
        return figure

    caption = (
        f"Left: share of {study.experiments} experiments that have a verdict. Right: mean share over {study.launches} "
        f"launches with a margin of {study.guard.margin:g}."
    )
    return Plate("trial", "Experiments and launches", caption, draw)
