"""The block drawing, after the paper's Figure 1, as SVG text.

Candidates stand in score order. A block is a band around the documents whose order is still open. Dashed arcs
join open pairs; solid lines are orders that are kept; lines to the right lead to the positions where the
documents were shown. Every mark says in its ``<title>`` what it means. Colours are classes: a drawing of its
own carries `STYLE`, one inside a page leaves it to the page.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from pairrank.errors import InputError

STYLE = files("pairrank").joinpath("drawing.css").read_text(encoding="utf-8").strip()

# Above this many uncertain pairs only each document's arc to its last uncertain partner is drawn: those make the
# blocks, and thousands of arcs are neither readable nor quick.
MAX_ARCS = 300

_ROW = 26  # pixels from one document to the next
_GAP = 14  # between blocks
_GUTTER = {False: 64, True: 42}  # for the arcs, left of the documents; by `compact`
_TOP = 34
_LABEL = {False: 230, True: 162}  # width of the labels
_LINKS = {False: 84, True: 36}
_SHOWN = {False: 250, True: 22}
_UNWRITABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, eq=False, slots=True)
class Panel:
    """One drawing before it is text: what `blocks` and `side_by_side` put on paper.

    Attributes
    ----------
    inspection : a `pairrank.types.Inspection`, which orders the model keeps.
    labels : one per candidate, by row number; "document 1", ... by default.
    shown : row numbers in the order in which they were shown, or None to leave that column out.
    clicked : row numbers of clicked documents.
    heading : a line above the drawing.

    >>> from pairrank import PairRank
    >>> panel = Panel(PairRank(n_features=1).inspect([[0.2], [0.7]]), labels=["boots", "sandals"], shown=[1, 0])
    >>> blocks(panel)[:4]
    '<svg'
    """

    inspection: Any
    labels: Sequence[str] = ()
    shown: Sequence[int] | NDArray[np.int64] | None = None
    clicked: Collection[int] = ()
    heading: str = ""

    def __post_init__(self) -> None:
        n = len(self.inspection.order)
        if self.labels and len(self.labels) != n:
            raise InputError(f"{len(self.labels)} labels came for {n} candidates; expected one each")
        rows = [] if self.shown is None else [int(row) for row in self.shown]
        if len(set(rows)) != len(rows) or not all(0 <= row < n for row in rows):
            raise InputError(f"shown is {rows}; expected different row numbers from 0 to {n - 1}")

    def label(self, row: int) -> str:
        """The label of one candidate."""
        return self.labels[row] if self.labels else f"document {row + 1}"


def blocks(panel: Panel, *, compact: bool = False, standalone: bool = True, titles: bool = True) -> str:
    """One block drawing as SVG text.

    ``compact`` fits a telephone; without ``standalone`` the page must bring `STYLE`; without ``titles`` the
    explanations are in ``data-why``, for a page with hints of its own.
    """
    return _document([_Pen(panel, compact, titles)], _summary(panel), standalone)


def side_by_side(panels: Sequence[Panel], *, compact: bool = False) -> str:
    """Several drawings in one SVG, left to right: before and after learning, say."""
    if not panels:
        raise InputError("no panels came; expected one at least")
    summary = " ".join(_summary(panel) for panel in panels)
    return _document([_Pen(panel, compact) for panel in panels], summary, standalone=True)


def explain(panel: Panel, first: int, second: int) -> str:
    """Why the order of two candidates (row numbers) is kept or open, in one sentence with one unit."""
    ins = panel.inspection
    if ins.scores[second] > ins.scores[first] or (ins.scores[first] == ins.scores[second] and second < first):
        first, second = second, first
    pair = f"{panel.label(first)} before {panel.label(second)}"
    width, kept, chance = float(ins.width[first, second]), bool(ins.certain[first, second]), ins.chance
    if chance is not None and ins.z:
        told = f"the model gives “{pair}” a chance of {_percent(chance[first, second])}"
        least = _percent(float(ndtr(ins.z)))
        # By score, kept orders are transitive: none follows from others alone.
        above, kept_as = True, f"{told}, and keeps orders above {least}"
        open_as = f"{told}, and keeps only orders above {least}"
    elif ins.unit == "probability":
        middle = float(ins.probability[first, second])
        bound = f"P({pair}) is at least {middle:.2f} − {width:.2f} = {middle - width:.2f}"
        above, kept_as, open_as = middle - width > 0.5, f"{bound}, above ½", f"{bound}, which is not above ½"
    else:
        gap = float(ins.scores[first] - ins.scores[second])
        bound = f"the score of “{pair}” differs by at least {gap:.2f} − {width:.2f} = {gap - width:.2f}"
        above, kept_as, open_as = gap > width, f"{bound}, above 0", f"{bound}, which is not above 0"
    if not kept:
        return f"Open: {open_as}, so either may be shown first."
    # A kept order that its own numbers do not carry follows from others.
    return f"Kept: {kept_as}." if above else f"Kept through documents between them, although {open_as}."


def _summary(panel: Panel) -> str:
    sizes = panel.inspection.block_sizes
    n_open = int((sizes > 1).sum())
    text = (
        f"{len(panel.inspection.order)} documents in {len(sizes)} block{'s' if len(sizes) != 1 else ''}, "
        f"{n_open} of them with more than one document; best first: sizes {', '.join(map(str, sizes[:20]))}"
    )
    return f"{panel.heading}: {text}." if panel.heading else f"{text}."


def _percent(share: float) -> str:
    return "more than 99.9 %" if share > 0.999 else f"{100 * share:.1f} %"


def _document(pens: Sequence[_Pen], summary: str, standalone: bool) -> str:
    width = sum(pen.width for pen in pens)
    height = max(pen.height for pen in pens)
    svg = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": "pr-drawing", "role": "img"})
    svg.attrib |= {"viewBox": f"0 0 {width} {height}", "width": str(width), "height": str(height)}
    _add(svg, "title", "Blocks of documents in score order")
    _add(svg, "desc", summary)
    if standalone:
        _add(svg, "style", STYLE)
    left = 0
    for pen in pens:
        pen.draw(_add(svg, "g", transform=f"translate({left} 0)"))
        left += pen.width
    return ET.tostring(svg, encoding="unicode")


def _add(parent: ET.Element, tag: str, text: str | None = None, **attributes: object) -> ET.Element:
    named = {key.rstrip("_").replace("_", "-"): str(value) for key, value in attributes.items()}
    child = ET.SubElement(parent, tag, named)
    child.text = None if text is None else _UNWRITABLE.sub("\ufffd", text)
    return child


def _cut(text: str, width: float) -> str:
    """``text`` shortened to about ``width`` pixels at 13 px; the whole of it stays in the title."""
    room = int(width / 7.6)
    if len(text) <= room:
        return text
    # The end of a dotted name or a path tells more than its beginning.
    return text[: room - 1].rstrip() + "…" if " " in text else "…" + text[1 - room :]


class _Pen:
    """Where things stand in one panel, and the strokes that draw them."""

    def __init__(self, panel: Panel, compact: bool, titles: bool = True) -> None:
        ins = panel.inspection
        self.panel = panel
        self.order = [int(row) for row in ins.order]
        self.block = [int(ins.blocks[row]) for row in self.order]
        self.size = [int(ins.block_sizes[b]) for b in self.block]
        self.label_width = _LABEL[compact]
        self.gutter = _GUTTER[compact]
        self.node = 12 + self.gutter
        self.edge = self.node + 14 + self.label_width  # right edge of the bands
        self.shown = [] if panel.shown is None else [int(row) for row in panel.shown]
        self.chip = self.edge + _LINKS[compact] + 14
        self.compact, self.titles = compact, titles
        self.width = self.chip + _SHOWN[compact] if panel.shown is not None else self.edge + 16
        top = _TOP + (26 if panel.heading else 0)
        self.top = top
        # Every change of block leaves a gap, so a document's place depends on its rank and its block alone.
        self.y = [top + 20 + rank * _ROW + block * _GAP for rank, block in enumerate(self.block)]
        below = self.y[-1] + _ROW if self.y else top
        self.height = max(below, top + 20 + len(self.shown) * (_ROW + 2)) + 8

    def draw(self, group: ET.Element) -> None:
        if self.panel.heading:
            _add(group, "text", self.panel.heading, x=12, y=22, class_="pr-heading")
        _add(group, "text", "by score", x=self.node - 5, y=self.top - 10, class_="pr-quiet")
        if self.panel.shown is not None:
            _add(group, "text", "shown", x=self.chip + 11, y=self.top - 10, class_="pr-quiet", text_anchor="end")
        self._bands(group)
        self._links(group)
        self._certain(group)
        uncertain = _uncertain_pairs(self.panel.inspection, self.order)
        # Of many partners of a document the last one, which makes the block.
        self._arcs(group, "pr-uncertain", uncertain if len(uncertain) <= MAX_ARCS else dict(uncertain).items(), 1.0)
        self._documents(group)
        self._positions(group)

    def _bands(self, group: ET.Element) -> None:
        for number, size in enumerate(self.panel.inspection.block_sizes):
            first = self.block.index(number)
            last = first + int(size) - 1
            kind, left = "pr-band-open" if size > 1 else "pr-band", self.node - 16
            top, height = self.y[first] - 14, self.y[last] - self.y[first] + 28
            band = _add(group, "rect", class_=kind, rx=7, x=left, width=self.edge - left, y=top, height=height)
            what = f"{size} documents whose order is open" if size > 1 else "one document, its place is kept"
            self._why(band, f"Block {number + 1}: {what}")

    def _links(self, group: ET.Element) -> None:
        rank_of = {row: rank for rank, row in enumerate(self.order)}
        for position, row in enumerate(self.shown):
            rank = rank_of[row]
            start, end = self.y[rank], self._position_y(position)
            bend = (self.edge + self.chip - 11) / 2
            path = f"M{self.edge} {start}C{bend:g} {start} {bend:g} {end} {self.chip - 11} {end}"
            _add(group, "path", class_="pr-link-open" if self.size[rank] > 1 else "pr-link", d=path)

    def _certain(self, group: ET.Element) -> None:
        """Arrows from block to block; inside a block, the kept orders that no document between implies."""
        for rank in range(1, len(self.order)):
            if self.block[rank] != self.block[rank - 1]:
                start, end = self.y[rank - 1] + 14, self.y[rank] - 14
                path = f"M{self.node - 1} {start}h2v{end - start - 6}h3l-4 6l-4 -6h3z"
                arrow = _add(group, "path", class_="pr-tip", d=path)
                self._why(arrow, "Everything above is kept before everything below")
        pairs = _covers(self.panel.inspection, self.order)
        # Of many followers of a document the nearest.
        self._arcs(group, "pr-certain", pairs if len(pairs) <= MAX_ARCS else dict(reversed(pairs)).items(), 0.45)

    def _arcs(self, group: ET.Element, kind: str, pairs: Iterable[tuple[int, int]], share: float) -> None:
        """From one document to another, bulging left by how far apart they stand."""
        for i, j in pairs:
            above, below = self.y[i], self.y[j]
            x = self.node - share * min(self.gutter * 4 / 3, 12 + 14 * ((below - above) / _ROW) ** 0.5)
            path = f"M{self.node} {above}C{x:.1f} {above} {x:.1f} {below} {self.node} {below}"
            arc = _add(group, "path", class_=kind, d=path, data_pair=f"{self.order[i]} {self.order[j]}")
            self._why(arc, explain(self.panel, self.order[i], self.order[j]))

    def _documents(self, group: ET.Element) -> None:
        ins = self.panel.inspection
        position_of = {row: position for position, row in enumerate(self.shown)}
        for rank, row in enumerate(self.order):
            mark = _add(group, "g", class_="pr-document", data_row=row)
            n_open = len(self.order) - 1 - int(ins.certain[row].sum() + ins.certain[:, row].sum())
            place = f", shown at position {position_of[row] + 1}" if row in position_of else ""
            facts = f"{self.panel.label(row)}: score {ins.scores[row]:.3f}, block {self.block[rank] + 1}{place}"
            self._why(mark, f"{facts}; order open against {n_open} others")
            self._field(mark, self.node - 16, self.edge - self.node + 16, self.y[rank])
            kind, line = "pr-node-open" if self.size[rank] > 1 else "pr-node", self.y[rank] + 4.5
            _add(mark, "circle", class_=kind, r=5.5, cx=self.node, cy=self.y[rank])
            _add(mark, "text", _cut(self.panel.label(row), self.label_width - 46), x=self.node + 14, y=line)
            score = f"{ins.scores[row]:.2f}".replace("-", "−")
            _add(mark, "text", score, class_="pr-quiet pr-number", x=self.edge - 8, y=line, text_anchor="end")

    def _positions(self, group: ET.Element) -> None:
        for position, row in enumerate(self.shown):
            y, clicked = self._position_y(position), row in self.panel.clicked
            mark = _add(group, "g", class_="pr-position", data_row=row)
            self._why(mark, f"Position {position + 1}: {self.panel.label(row)}{', clicked' if clicked else ''}")
            self._field(mark, self.chip - 12, self.width - self.chip + 12, y)
            _add(mark, "circle", class_="pr-chip pr-clicked" if clicked else "pr-chip", r=10.5, cx=self.chip, cy=y)
            style = "pr-number pr-clicked-text" if clicked else "pr-number"
            _add(mark, "text", str(position + 1), class_=style, x=self.chip, y=y + 4.5, text_anchor="middle")
            if not self.compact:
                label = _cut(self.panel.label(row), _SHOWN[False] - 40)
                _add(mark, "text", label, x=self.chip + 18, y=y + 4.5)

    @staticmethod
    def _field(mark: ET.Element, x: int, width: int, y: int) -> None:
        """Something invisible to point at, as wide as the row."""
        _add(mark, "rect", class_="pr-field", x=x, y=y - _ROW // 2, width=width, height=_ROW, rx=6)

    def _why(self, mark: ET.Element, text: str) -> None:
        """What a mark means."""
        if self.titles:
            _add(mark, "title", text)
        else:
            mark.set("data-why", _UNWRITABLE.sub("\ufffd", text))

    def _position_y(self, position: int) -> int:
        return self.top + 20 + position * (_ROW + 2)


def _uncertain_pairs(inspection: Any, order: Sequence[int]) -> list[tuple[int, int]]:
    """Ranks (i, j), i above j, whose order is not certain."""
    sure = inspection.certain[np.ix_(order, order)]
    upper, lower = np.nonzero(~(sure | sure.T))
    return [(int(i), int(j)) for i, j in zip(upper, lower, strict=True) if i < j]


def _covers(inspection: Any, order: Sequence[int]) -> list[tuple[int, int]]:
    """Ranks (i, j) of one block, i certainly before j, with no document that is certainly between them."""
    sure = inspection.certain[np.ix_(order, order)]
    block = inspection.blocks[list(order)]
    inside = np.triu(sure, 1) & (block[:, None] == block[None, :])
    implied = (inside.astype(np.int64) @ inside.astype(np.int64)) > 0
    return [(int(i), int(j)) for i, j in zip(*np.nonzero(inside & ~implied), strict=True)]
