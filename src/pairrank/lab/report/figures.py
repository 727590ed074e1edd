"""The paper's figures, numbered as there, from results; and the two that it does not have: regret and ablations."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pairrank.checking import import_extra
from pairrank.lab.analysis.aggregate import Cell, Results
from pairrank.lab.experiment import CEILING
from pairrank.lab.report import styles
from pairrank.lab.report.styles import Look
from pairrank.metrics import mean_by_rank, mean_interval
from pairrank.sim.world import BLOCK_RANKS
from pairrank.types import FloatArray, IntArray

WINDOW = 200  # rounds that the number of blocks is averaged over, as in the paper
ROUNDS = "rounds (queries served)"
FEW = 5  # seeds: of fewer each is drawn, since their interval would fill the panel
BANDS = f"Lines are means over seeds, bands 95 % t intervals; of fewer than {FEW} seeds each is drawn, thin."
_MARKERS = "osD^vPX*"
_FIRST = 10  # rounds: before, a ranker is mostly luck, and on a log scale luck would fill a third of the panel
_WIDTH, _HEIGHT = 3.6, 2.9  # inches of one panel

_RC: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "svg.hashsalt": "pairrank",  # the same figure gives the same file
}


@dataclass(frozen=True)
class Plate:
    """A figure that can be drawn: its name (of files), title, caption with the policy, and how to draw it."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Any]

    def render(self) -> tuple[bytes, bytes]:
        """PNG and SVG."""
        with import_extra("matplotlib", "lab").rc_context(_RC):
            figure = self.draw()
            figure.get_layout_engine().execute(figure)
            figure.set_layout_engine(None)  # places are found once, for both
            png, svg = io.BytesIO(), io.BytesIO()
            figure.savefig(png, format="png", metadata={"Software": None})
            figure.savefig(svg, format="svg", metadata={"Date": None})
        return png.getvalue(), svg.getvalue()


def empty(width: float, height: float) -> Any:
    """A figure of so many inches without panels, for a plate to draw on."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained")


_NDCG = (
    "NDCG@10 of the learned ranker on the test split: gain 2^grade − 1, discount log2(rank + 1), mean over queries "
    f"with a relevant document, ties broken at random. {BANDS}"
)
_CNDCG = (
    "Sum over rounds of NDCG@10 of the lists as shown, discounted by γ = 0.9995 a round; a query without a relevant "
    f"document adds 0. {BANDS}"
)
_COS = (
    "Cosine of a ranker's weights to the ideal ones: the data's own where they are known (synthetic linear data), else "
    f"those of a RankNet fitted to the training labels. {BANDS}"
)
_REGRET = (
    "Mis-ordered pairs of the full lists (what was shown, then the rest by score), summed over rounds; documents of "
    "equal grade cannot be mis-ordered. Below the shown positions the paper's list would be explored too, so for a "
    f"ranker that explores this is less than the regret that the paper bounds and does not measure. {BANDS}"
)


_CURVES = (
    ("figure-3-offline", "Figure 3. Offline performance", "ndcg", "NDCG@10, held-out queries", _NDCG),
    ("figure-4-online", "Figure 4. Online performance", "cndcg", "cNDCG@10 so far", _CNDCG),
    ("figure-5-cosine", "Figure 5. Closeness to the ideal ranker", "cosine", "cosine similarity", _COS),
)
_LAST = ("figure-8-regret", "Figure 8. Regret (not in the paper)", "regret", "mis-ordered pairs so far", _REGRET)


def share_of_ceiling(results: Results, shares: Mapping[str, FloatArray], *, of_ceiling: bool) -> Plate:
    """The one picture: how far each ranker has come; ``shares`` by ranker, (n_seeds, n_rounds)."""

    def fill(axes: Any) -> None:
        axis, drawn = axes[0][0], styles.of_rankers(results.rankers)
        for ranker, curves in shares.items():
            _line(axis, results.of(ranker)[0].rounds, 100 * curves if of_ceiling else curves, drawn[ranker])
        _rounds_axis(axis, log=True)
        first = axis.get_xlim()[0]
        seen = np.concatenate([line.get_ydata()[line.get_xdata() >= first] for line in axis.lines])
        axis.set_ylim(max(0.0, 0.98 * seen.min()), max(100.0 if of_ceiling else 1.0, seen.max()))
        axis.set_ylabel("% of the ceiling, held-out queries" if of_ceiling else "NDCG@10, held-out queries")

    ceiling = "as a share of what a RankNet reaches that was fitted to the training labels, the ceiling; " * of_ceiling
    caption = f"NDCG@10 of the learned rankers on the test split, {ceiling}the mean over all kinds of users. {BANDS}"
    title = "Share of the ceiling while learning" if of_ceiling else "Held-out performance while learning"
    return Plate("share-of-ceiling", title, caption, _sheet(1, 1, fill, legend=3, size=(5.4, 4.0)))


def functions(label: str, told: Sequence[Mapping[str, Any]]) -> Plate:
    """What the nine strongest features of an additive model add to the score, with a band of one standard deviation."""
    shown = list(told[:9])
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)

    def fill(axes: Any) -> None:
        for axis in axes.flat[len(shown) :]:
            axis.set_visible(False)
        for axis, function in zip(axes.flat, shown, strict=False):
            x, value = np.array(function["x"]), np.array(function["value"])
            axis.plot(x, value, color=_INK)
            if function["deviation"] is not None:
                sd = np.array(function["deviation"])
                axis.fill_between(x, value - sd, value + sd, color=_INK, alpha=0.18, linewidth=0)
            marks = np.array(function["documents"])
            axis.plot(marks, np.full(len(marks), 0.02), "|", color="#555555", transform=axis.get_xaxis_transform())
            absent = "" if function["missing"] is None else f"; missing: {function['missing']['value']:+.2f}"
            axis.set_title(f"{function['name']}{absent}")
        for row in axes:
            row[0].set_ylabel("added to the score")

    caption = (
        f"What each feature adds to the score of {label} after the last round of the first seed, the {len(shown)} that "
        f"move it most of {len(told)}. Bands are one standard deviation, marks are documents of the training split."
    )
    name = "functions-" + "".join(c if c.isalnum() else "-" for c in label.lower()).strip("-")
    return Plate(name, f"Functions of {label}", caption, _sheet(rows, columns, fill, legend=1))


_INK = "#0F7173"


def plates(results: Results) -> list[Plate]:
    """The figures that these results can fill."""
    made = [_curves(results, *curves) for curves in _CURVES]
    blocked = [ranker for ranker in results.rankers if any(cell.has("n_blocks") for cell in results.of(ranker))]
    if blocked:
        made += [_block_sizes(results, blocked), _block_profiles(results, blocked), _block_numbers(results, blocked)]
    return [*made, _curves(results, *_LAST)]


def ablation(results: Results, study: str, kind: str, shown: Sequence[str]) -> Plate:
    """One figure: offline above online, a column for each of the users ``shown`` (all of a ``kind``, or all)."""
    name = f"ablation-{study}-{kind}" if kind else f"ablation-{study}"
    title = f"Ablation: {study}, {kind} users" if kind else f"Ablation: {study}"
    return learning(results, name, title, f"{_NDCG} Below: {_CNDCG}", shown, legend=2)


def learning(results: Results, name: str, title: str, caption: str, shown: Sequence[str], *, legend: int) -> Plate:
    """Offline above online over the rounds, a column for each of the users ``shown``."""
    rows = {"ndcg": "NDCG@10, held-out", "cndcg": "cNDCG@10 so far"}
    return Plate(name, title, caption, _grid(results, shown, rows, legend=legend))


def mean_ranks(ranks: Mapping[str, tuple[float, float]], critical: float, cells: int) -> Plate:
    """Who is how far ahead over all cells: mean ranks online and held out, and what two must differ by."""

    def fill(axes: Any) -> None:
        names, rows = styles.of_rankers(list(ranks)), range(len(ranks))
        for place, title in enumerate(("online: cNDCG@10", "held out: NDCG@10")):
            axis = axes[0][place]
            for row, ranker in zip(rows, ranks, strict=True):
                look = names[ranker]
                axis.errorbar(
                    ranks[ranker][place],
                    row,
                    xerr=critical / 2,
                    color=look.colour,
                    marker=look.marker or "o",
                    capsize=3,
                )
            axis.set_yticks(rows, [names[ranker].label for ranker in ranks])
            axis.set_title(title)
            axis.set_xlabel("mean rank, 1 is best")
            axis.margins(y=0.06)
        axes[0][0].invert_yaxis()

    caption = (
        f"Mean rank by mean figures over {cells} cells, a data set with one kind of users each. Bars are Nemenyi's "
        f"critical difference, {critical:.2f}: two rankers whose bars overlap are not told apart (p ≥ 0.05). It takes "
        "cells for independent, and those of one data set are not."
    )
    draw = _sheet(1, 2, fill, legend=1, size=(2 * _WIDTH + 2, 0.3 * len(ranks) + 1.2))
    return Plate("mean-ranks", "Mean ranks over all cells", caption, draw)


def _curves(results: Results, name: str, title: str, metric: str, label: str, caption: str) -> Plate:
    return Plate(name, title, caption, _grid(results, results.users, {metric: label}, legend=5))


def _grid(results: Results, shown: Sequence[str], rows: Mapping[str, str], *, legend: int) -> Callable[[], Any]:
    """A row of panels per metric (with its label), a column for each of the users ``shown``."""

    def fill(axes: Any) -> None:
        drawn = styles.of_rankers(results.rankers)
        for row, (metric, label) in zip(axes, rows.items(), strict=True):
            for axis, users in zip(row, shown, strict=True):
                _panel(axis, results, users, metric, drawn)
            (low, high), (lowest, highest) = row[0].get_ylim(), _LIMITS[metric]
            row[0].set_ylim(max(low, lowest), min(high, highest))  # last: panels share it, and it ends their scaling
            row[0].set_ylabel(label)
        for axis, users in zip(axes[0], shown, strict=True):
            axis.set_title(f"{users} users")

    return _sheet(len(rows), len(shown), fill, legend=legend)


def _panel(axis: Any, results: Results, users: str, metric: str, drawn: Mapping[str, Look]) -> None:
    for ranker in results.rankers:
        cell = results.get(ranker, users)
        ceiling = styles.base(ranker) == CEILING
        if cell is None or not cell.has(metric) or (ceiling and metric == "cosine"):
            continue  # the ideal's cosine to itself is 1 and says nothing
        _line(axis, cell.rounds, cell.curves[metric], drawn[ranker])
    _rounds_axis(axis, log=metric in ("ndcg", "cosine"))


# What a metric can be.
_LIMITS: Mapping[str, tuple[float, float]] = {
    "ndcg": (0.0, 1.0),
    "cndcg": (0.0, np.inf),
    "cosine": (-1.0, 1.0),
    "regret": (0.0, np.inf),
}


def _block_sizes(results: Results, blocked: Sequence[str]) -> Plate:
    def fill(axes: Any) -> None:
        names, users = styles.of_rankers(results.rankers), styles.of_users(results.users)
        for row, ranker in enumerate(blocked):
            for axis, rank in zip(axes[row], BLOCK_RANKS, strict=True):
                for cell in results.of(ranker):
                    _line(axis, cell.rounds, cell.curves[f"block_at_{rank}"], users[cell.clicks])
                axis.set_title(f"{names[ranker].label}, rank {rank}")
                _rounds_axis(axis, log=True, named=row == len(blocked) - 1)
            axes[row][0].set_ylim(bottom=0)
            axes[row][0].set_ylabel("block size (documents)")

    caption = (
        "Size of the block at ranks 1, 5 and 10, by users: the mean over a fixed panel of training queries (those with "
        f"that many documents). {BANDS}"
    )
    draw = _sheet(len(blocked), len(BLOCK_RANKS), fill, legend=3)
    return Plate("figure-6-block-size", "Figure 6. The size of blocks at top ranks", caption, draw)


def _block_profiles(results: Results, blocked: Sequence[str]) -> Plate:
    users = "informational" if "informational" in results.users else results.users[-1]

    def fill(axes: Any) -> None:
        names = styles.of_rankers(results.rankers)
        for axis, ranker in zip(axes[0], blocked, strict=True):
            cell = results.get(ranker, users)
            for t, look in styles.of_times(sorted(cell.profiles) if cell else []).items():
                sizes = mean_by_rank(cell.profiles[t] if cell else [])
                axis.plot(np.arange(1, len(sizes) + 1), sizes, color=look.colour, ls=look.style, label=look.label)
            axis.set_title(f"{names[ranker].label}, {users} users")
            axis.set_xlabel("rank (position in the full list)")
        axes[0][0].set_ylim(bottom=0)
        axes[0][0].set_ylabel("block size (documents)")

    caption = (
        f"Size of the block at every rank, {users} users, after several numbers of rounds: the mean over seeds and a "
        "panel of training queries. Only long lists have high ranks, so few lists stand behind the right end."
    )
    draw = _sheet(1, len(blocked), fill, legend=5)
    return Plate("figure-7a-block-size-by-rank", "Figure 7a. Block size by rank", caption, draw)


def _block_numbers(results: Results, blocked: Sequence[str]) -> Plate:
    def fill(axes: Any) -> None:
        names, users = styles.of_rankers(results.rankers), styles.of_users(results.users)
        for axis, ranker in zip(axes[0], blocked, strict=True):
            for cell in results.of(ranker):
                middles, means = windows(cell, "n_blocks")
                _line(axis, middles, means, users[cell.clicks])
            axis.set_title(names[ranker].label)
            axis.set_ylim(bottom=0)
            _rounds_axis(axis, log=False)
        axes[0][0].set_ylabel("blocks per query (number)")

    caption = (
        f"Number of blocks of a query, averaged over every {WINDOW} rounds and over a fixed panel of training queries, "
        f"by users. {BANDS}"
    )
    draw = _sheet(1, len(blocked), fill, legend=3, sharey=False)
    return Plate("figure-7b-number-of-blocks", "Figure 7b. Number of blocks", caption, draw)


def windows(cell: Cell, name: str) -> tuple[IntArray, FloatArray]:
    """The middles (w,) of windows of `WINDOW` rounds and the means (n, w) of a curve's values that fall into each."""
    number = (cell.rounds - 1) // WINDOW
    filled = np.unique(number)
    means = np.array([cell.curves[name][:, number == w].mean(axis=1) for w in filled]).T
    return filled * WINDOW + WINDOW // 2, means


def _line(axis: Any, x: IntArray, runs: FloatArray, look: Look) -> None:
    if not np.isfinite(runs).any():  # lists that are too short for this, or nothing relevant to find
        return
    mean, half = mean_interval(runs)
    every = (_MARKERS.find(look.marker) % len(x), max(1, len(x) // 7))  # staggered: markers of close lines stay apart
    axis.plot(x, mean, color=look.colour, ls=look.style, marker=look.marker, markevery=every, label=look.label)
    if 1 < len(runs) < FEW:
        axis.plot(x, runs.T, color=look.colour, ls=look.style, linewidth=0.6, alpha=0.5)
    elif np.isfinite(half).any():
        axis.fill_between(x, mean - half, mean + half, color=look.colour, alpha=0.12, linewidth=0)


def _rounds_axis(axis: Any, *, log: bool, named: bool = True) -> None:
    if log:
        axis.set_xscale("log")
        last = axis.dataLim.x1 if axis.lines else 10 * _FIRST  # a sweep under way may have nothing to show yet
        axis.set_xlim(left=_FIRST if last > 10 * _FIRST else 1, right=last * 1.08)
    if named:
        axis.set_xlabel(ROUNDS + (", log scale" if log else ""))


def _sheet(
    rows: int,
    columns: int,
    fill: Callable[[Any], None],
    *,
    legend: int,
    sharey: bool = True,
    size: tuple[float, float] | None = None,
) -> Callable[[], Any]:
    """What draws a figure of panels that ``fill`` fills, with a legend of so many columns, or of as many as fit.

    It stands below the panels, where it covers no data, with every label once.
    """

    def draw() -> Any:
        figure = empty(*(size or (max(_WIDTH * columns, 2 * _WIDTH), _HEIGHT * rows + 0.6)))
        axes: Any = figure.subplots(rows, columns, squeeze=False, sharey="row" if sharey else False)
        fill(axes)
        for axis in axes.flat:
            axis.set_title(textwrap.fill(axis.get_title(), 40))  # no wider than a panel
        drawn = [zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes.flat]
        handles = {label: handle for pairs in drawn for handle, label in pairs}
        if handles:
            words = handles.values(), handles.keys()
            for ncols in range(legend, 0, -1):
                made = figure.legend(*words, loc="outside lower center", ncols=ncols, handlelength=3.2)
                if ncols == 1 or made.get_window_extent().width <= figure.bbox.width:
                    break
                made.remove()
        return figure

    return draw
