from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from pairrank import metrics, rankers
from pairrank.lab import paper
from pairrank.lab.analysis import quality
from pairrank.lab.analysis.aggregate import Cell, Results, collect
from pairrank.lab.experiment import USERS, Experiment
from pairrank.lab.report import figures, styles

FIGURES = (
    "figure-3-offline",
    "figure-4-online",
    "figure-5-cosine",
    "figure-6-block-size",
    "figure-7a-block-size-by-rank",
    "figure-7b-number-of-blocks",
    "figure-8-regret",
)


@pytest.fixture(scope="module")
def results(swept: tuple[Path, Experiment]) -> Results:
    out, experiment = swept
    return collect(out, experiment.specs())


def drawn(plate: figures.Plate) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with matplotlib.rc_context(figures._RC):
        figure = plate.draw()
        FigureCanvasAgg(figure).draw()
    return figure


def test_all_of_the_papers_figures_and_regret(results: Results) -> None:
    assert tuple(plate.name for plate in figures.plates(results)) == FIGURES


@pytest.mark.parametrize("name", [*FIGURES, "ablation-pairs"])
def test_names_units_and_room(results: Results, name: str) -> None:
    """Axes are named, nothing is cut off, and the legend lies outside of every panel."""
    plates = [*figures.plates(results), figures.ablation(results, "pairs", "", USERS)]
    figure = drawn(next(plate for plate in plates if plate.name == name))
    axes = figure.get_axes()
    rows = {axis.get_subplotspec().rowspan.start for axis in axes}
    for axis in axes:
        place = axis.get_subplotspec()
        assert axis.lines
        assert axis.get_ylabel() or place.colspan.start > 0
        assert axis.get_xlabel() or place.rowspan.start < max(rows)
        (left, _), (low, high) = axis.get_xlim(), axis.get_ylim()
        for line in axis.lines:
            seen = line.get_ydata()[line.get_xdata() >= left]
            assert low <= np.nanmin(seen) <= np.nanmax(seen) <= high, line
            if line.get_markevery() is not None:  # a line of one point is seen by its marker alone
                assert line.get_markevery()[0] < len(line.get_xdata())
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert not any(box.overlaps(axis.get_window_extent()) for axis in axes)
    frame = figure.bbox
    texts = [axis.title for axis in axes] + [label for axis in axes for label in (axis.xaxis.label, axis.yaxis.label)]
    for text in [*texts, *legend.get_texts()]:
        extent = text.get_window_extent()
        assert extent.x0 >= frame.x0 - 1, text
        assert extent.x1 <= frame.x1 + 1, text
        assert extent.y0 >= frame.y0 - 1, text
        assert extent.y1 <= frame.y1 + 1, text


def test_long_names_of_users_and_rankers_have_room(results: Results) -> None:
    users = [f"position(eta={eta}, trust=0.3, table=informational)" for eta in (0.5, 1)]
    texts = tuple(f"pairrank(half_life=1000, lam=12, tolerance=0.1, z={z})" for z in (1, 2, 3))
    cell = results.of("pairrank")[0]
    cells = {(text, user): replace(cell, ranker=text, clicks=user) for text in texts for user in users}
    named = Results(cells, texts, tuple(users), 1, 1)
    for plate in figures.plates(named):
        figure = drawn(plate)
        for axis in figure.get_axes():
            title, panel = axis.title.get_window_extent(), axis.get_tightbbox(for_layout_only=True)
            assert panel.x0 <= title.x0 < title.x1 <= panel.x1, plate.name
        assert figure.bbox.x0 <= figure.legends[0].get_window_extent().x0, plate.name


def test_files_are_png_and_svg_and_the_same_each_time(results: Results) -> None:
    plate = figures.plates(results)[0]
    png, svg = plate.render()
    assert png.startswith(b"\x89PNG")
    assert b"<svg" in svg
    assert plate.render() == (png, svg)


def test_one_look_per_ranker_everywhere() -> None:
    texts = rankers.names()
    alone = {text: styles.of_rankers([text])[text] for text in texts}
    assert styles.of_rankers(texts) == alone
    assert len({look.colour for look in alone.values()}) == len(texts)
    assert len({(look.style, look.marker) for look in alone.values()}) == len(texts)  # in grey too
    assert styles.of_rankers(["pdgd(learning_rate=0.3)"])["pdgd(learning_rate=0.3)"] == alone["pdgd"]


def test_rankers_to_come_have_looks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    known = rankers.names()
    left = len(styles._MORE) - len(set(known) - set(styles._RANKERS))
    assert left > 0
    more = {f"new-{i}": rankers._Entry("pdgd", "PDGD", f"New {i}") for i in range(left)}
    monkeypatch.setattr(rankers, "_REGISTRY", {**rankers._REGISTRY, **more})
    found = styles.of_rankers([*known, *more])
    assert [found[name].label for name in more] == [entry.label for entry in more.values()]
    assert len({look.colour for look in found.values()}) == len(found)
    assert len({(look.style, look.marker) for look in found.values()}) == len(found)


def test_variants_of_one_ranker_differ_in_label_and_look() -> None:
    texts = [f"pairrank-c(alpha={alpha})" for alpha in (0.1, 0.3, "theory")]
    found = styles.of_rankers(texts)
    assert len({look.label for look in found.values()}) == len({look.colour for look in found.values()}) == 3


def test_variants_take_no_look_of_another_ranker() -> None:
    rankers_compared = [quality.SUBJECT, *quality.RIVALS]
    found = styles.of_rankers(rankers_compared)
    assert len({look.colour for look in found.values()}) == len(rankers_compared)


def test_variants_beside_the_papers_rankers_can_be_told_apart() -> None:
    texts = [*paper.RANKERS, *(f"pairrank(z={z})" for z in range(1, 6))]
    assert len({look.colour for look in styles.of_rankers(texts).values()}) == len(texts)


def test_classes_of_one_name_can_be_told_apart() -> None:
    texts = ["mine.py:Mine@000000000001", "mine.py:Mine@000000000002", "pdgd"]
    found = styles.of_rankers(texts)
    assert [found[text].label for text in texts] == [*texts[:2], "PDGD"]
    assert found[texts[0]].colour != found[texts[1]].colour
    assert styles.of_rankers(texts[1:])[texts[1]].label == "Mine"


def test_windows_average_what_falls_into_them() -> None:
    rounds = np.array([1, 100, 200, 201, 400, 500])
    curves = {"n_blocks": np.arange(12.0).reshape(2, 6)}
    cell = Cell("pairrank", USERS[0], np.arange(2), rounds, curves)
    middles, means = figures.windows(cell, "n_blocks")
    assert middles.tolist() == [100, 300, 500]
    assert means.tolist() == [[(0 + 1 + 2) / 3, (3 + 4) / 2, 5], [(6 + 7 + 8) / 3, (9 + 10) / 2, 11]]


def test_profiles_of_different_length() -> None:
    mean = metrics.mean_by_rank([np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0])])
    assert mean.tolist() == [(1 + 3) / 2, (2 + 4) / 2, 5.0]
