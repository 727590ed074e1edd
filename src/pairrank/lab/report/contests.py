"""The pictures of ``pairrank quality``: mean ranks over all cells, and how everybody learned on each data set."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pairrank.lab.analysis import quality
from pairrank.lab.analysis.aggregate import Cell, Results, collect
from pairrank.lab.experiment import CEILING
from pairrank.lab.report import figures
from pairrank.lab.report.figures import Plate
from pairrank.sim import RunSpec, Summary

ABREAST = 4  # kinds of users in one picture
_CAPTION = f"Above held-out NDCG@10, below cNDCG@10 so far. {figures.BANDS} Of several folds each counts as one seed."


def plates(found: Sequence[quality.Contest], runs: Sequence[Summary], out: str | os.PathLike[str]) -> Iterator[Plate]:
    """Of what was compared, and of the runs behind it, whose records are below ``out``."""
    ranks, critical = quality.mean_ranks(found)
    if len(found) > 1 and ranks:
        yield figures.mean_ranks(ranks, critical, len(found))
    specs = [run.spec for run in runs if run.spec.ranker != CEILING]  # which does not learn over the rounds
    for place, (data, name) in enumerate(quality.short_names(spec.data for spec in specs).items(), 1):
        results = _over_folds([spec for spec in specs if spec.data == data], out)
        slug = "".join(c if c.isalnum() else "-" for c in name[-60:]).strip("-")  # a path may be long
        for start in range(0, len(results.users), ABREAST):
            shown = results.users[start : start + ABREAST]
            more = f"-{start // ABREAST + 1}" if len(results.users) > ABREAST else ""
            title = f"Learning on {name}, {', '.join(shown)} users"
            yield figures.learning(results, f"learning-{place}-{slug}{more}", title, _CAPTION, shown, legend=4)


def _over_folds(specs: Sequence[RunSpec], out: str | os.PathLike[str]) -> Results:
    """Of several folds each counts as one run, the mean of its own, as in the tables."""
    folds = dict.fromkeys(spec.fold for spec in specs)
    first, *others = (collect(out, [spec for spec in specs if spec.fold == fold]) for fold in folds)
    if not others:
        return first
    cells: dict[tuple[str, str], list[Cell]] = {}
    for results in (first, *others):
        for key, cell in results.cells.items():
            cells.setdefault(key, []).append(cell)
    return replace(
        first,
        cells={key: _means(of) for key, of in cells.items()},
        rankers=tuple(dict.fromkeys(spec.ranker for spec in specs)),
        users=tuple(dict.fromkeys(spec.clicks for spec in specs)),
    )


def _means(cells: Sequence[Cell]) -> Cell:
    curves = {name: np.array([cell.curves[name].mean(axis=0) for cell in cells]) for name in cells[0].curves}
    return replace(cells[0], seeds=np.arange(len(cells)), curves=curves, profiles={})
