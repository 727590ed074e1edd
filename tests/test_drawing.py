from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import pairrank
from pairrank import drawing
from pairrank.errors import InputError
from pairrank.types import Inspection

SVG = "{http://www.w3.org/2000/svg}"


def inspection(scores: list[float], width: float, unit: str = "probability") -> Inspection:
    """Every pair of the same width; blocks found the slow way, by walking from partner to partner."""
    s = np.array(scores, dtype=np.float64)
    n = len(s)
    gap = s[:, None] - s[None, :]
    probability = 1 / (1 + np.exp(-gap))
    widths = np.full((n, n), width)
    certain = (probability - widths > 0.5) if unit == "probability" else (gap > widths)
    order = np.argsort(-s, kind="stable")
    block_of: dict[int, int] = {}
    for row in order:
        if row in block_of:
            continue
        number, reached = len(set(block_of.values())), [row]
        while reached:
            here = reached.pop()
            if here not in block_of:
                block_of[here] = number
                reached.extend(j for j in range(n) if not certain[here, j] and not certain[j, here])
    blocks = np.array([block_of[row] for row in range(n)])
    return Inspection(s, order, probability, widths, certain, blocks, unit)


def parts(svg: str, tag: str, cls: str) -> list[ET.Element]:
    root = ET.fromstring(svg)
    return [e for e in root.iter(f"{SVG}{tag}") if cls in e.get("class", "").split()]


def titles(svg: str) -> list[str]:
    return [e.text or "" for e in ET.fromstring(svg).iter(f"{SVG}title")]


@settings(max_examples=40, deadline=None)
@given(
    scores=st.lists(st.integers(-40, 40), min_size=1, max_size=14, unique=True),
    width=st.floats(0.0, 0.6),
)
def test_every_mark_stands_for_one_fact(scores: list[int], width: float) -> None:
    seen = inspection([s / 10 for s in scores], width)
    svg = drawing.blocks(drawing.Panel(seen))
    n = len(scores)
    n_open = sum(not seen.certain[i, j] and not seen.certain[j, i] for i in range(n) for j in range(i + 1, n))
    assert len(parts(svg, "g", "pr-document")) == n
    assert len(parts(svg, "path", "pr-uncertain")) == n_open
    sizes = seen.block_sizes
    assert len(parts(svg, "rect", "pr-band-open")) == (sizes > 1).sum()
    assert len(parts(svg, "rect", "pr-band")) == (sizes == 1).sum()
    assert len(parts(svg, "path", "pr-tip")) == len(sizes) - 1


def test_documents_stand_in_score_order_and_positions_in_shown_order() -> None:
    panel = drawing.Panel(inspection([0.0, 2.0, 1.0], 0.0), ["a", "b", "c"], shown=[2, 0], clicked={0})
    svg = drawing.blocks(panel)
    rows = [e.get("data-row") for e in parts(svg, "g", "pr-document")]
    heights = [float(c.get("cy", "")) for g in parts(svg, "g", "pr-document") for c in g.iter(f"{SVG}circle")]
    assert rows == ["1", "2", "0"]
    assert heights == sorted(heights)
    assert [e.get("data-row") for e in parts(svg, "g", "pr-position")] == ["2", "0"]
    assert len(parts(svg, "circle", "pr-clicked")) == 1
    assert len(parts(svg, "path", "pr-link")) == 2


def test_without_a_shown_list_there_is_no_such_column() -> None:
    svg = drawing.blocks(drawing.Panel(inspection([0.0, 1.0], 0.1)))
    assert not parts(svg, "g", "pr-position")
    assert ">shown<" not in svg


def test_a_pair_is_explained_by_its_own_numbers() -> None:
    seen = inspection([1.0, 0.0], 0.1)
    panel = drawing.Panel(seen, ["good", "bad"])
    p = 1 / (1 + np.exp(-1.0))
    told = drawing.explain(panel, 0, 1)
    assert told == drawing.explain(panel, 1, 0)
    assert told == f"Kept: P(good before bad) is at least {p:.2f} − 0.10 = {p - 0.1:.2f}, above ½."
    wide = drawing.explain(drawing.Panel(inspection([1.0, 0.0], 0.4), ["good", "bad"]), 0, 1)
    assert wide.startswith("Open: ")
    assert f"{p - 0.4:.2f}, which is not above ½, so either may be shown first" in wide


def test_a_pair_in_score_units_is_compared_with_zero() -> None:
    told = drawing.explain(drawing.Panel(inspection([1.5, 0.0], 0.5, "score")), 0, 1)
    assert f"1.50 − 0.50 = {1.5 - 0.5:.2f}, above 0" in told


def test_a_pair_is_explained_by_the_chance_that_its_order_is_right() -> None:
    # z = 0.2 and a width of 0.2 make one standard deviation of the score difference 1.
    seen = replace(inspection([1.5, 0.1, 0.0], 0.2, "score"), z=0.2)
    chance = seen.chance
    assert chance is not None
    expected = [[0.5, ndtr(1.4), ndtr(1.5)], [ndtr(-1.4), 0.5, ndtr(0.1)], [ndtr(-1.5), ndtr(-0.1), 0.5]]
    assert chance == pytest.approx(np.array(expected))
    panel = drawing.Panel(seen, ["good", "fair", "bad"])
    assert drawing.explain(panel, 0, 1) == (
        "Kept: the model gives “good before fair” a chance of 91.9 %, and keeps orders above 57.9 %."
    )
    assert drawing.explain(panel, 1, 2) == (
        "Open: the model gives “fair before bad” a chance of 54.0 %, and keeps only orders above 57.9 %, "
        "so either may be shown first."
    )
    assert inspection([1.0, 0.0], 0.1).chance is None


def test_the_chance_is_the_posteriors_own() -> None:
    ranker = pairrank.PairRank(2, seed=0)
    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.3, 0.4]])
    for _ in range(20):
        shown = ranker.rank(X)
        ranker.learn(shown, [row == 0 for row in shown.ranking])
    seen = ranker.inspect(X)
    assert seen.chance is not None
    assert seen.certain.any()
    assert (seen.chance[seen.certain] >= ndtr(seen.z) - 1e-4).all()
    assert (seen.chance[~seen.certain] <= ndtr(seen.z) + 1e-4).all()
    paper = pairrank.rankers.make("pairrank-c", n_features=2)
    assert paper.inspect(X).chance is None


def test_an_order_certain_by_others_alone_says_so() -> None:
    seen = inspection([2.0, 1.0, 0.0], 0.2)
    widths = seen.width.copy()
    widths[0, 2] = widths[2, 0] = 0.9  # too wide by itself, but 0 > 1 > 2 is certain
    closed = Inspection(seen.scores, seen.order, seen.probability, widths, seen.certain, seen.blocks, seen.unit)
    assert "through documents between" in drawing.explain(drawing.Panel(closed), 0, 2)


def test_certain_orders_within_a_block_are_drawn_once_each_without_what_follows_from_others() -> None:
    # Pairs two apart are certain, neighbours are not: one block, and 0 > 3 follows from nothing nearer than 0 > 2.
    seen = inspection([3.0, 2.0, 1.0, 0.0], 0.3)
    assert seen.n_blocks == 1
    drawn = {e.get("data-pair") for e in parts(drawing.blocks(drawing.Panel(seen)), "path", "pr-certain")}
    certain = {(i, j) for i in range(4) for j in range(4) if seen.certain[i, j]}
    covers = {(i, j) for i, j in certain if not any((i, k) in certain and (k, j) in certain for k in range(4))}
    assert drawn == {f"{i} {j}" for i, j in covers}


def test_a_long_list_keeps_the_arcs_that_make_the_blocks() -> None:
    n = 60
    svg = drawing.blocks(drawing.Panel(inspection([0.01 * i for i in range(n)], 0.4)))
    arcs = parts(svg, "path", "pr-uncertain")
    assert n * (n - 1) // 2 > drawing.MAX_ARCS
    assert len(arcs) == n - 1
    last = {a.get("data-pair", "").split()[1] for a in arcs}
    assert last == {"0"}  # all are open against the lowest


HOSTILE = ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "a\x00b\x1b[31m\ud800", "&amp;]]>"]


def test_hostile_labels_stay_text() -> None:
    svg = drawing.blocks(drawing.Panel(inspection([3.0, 2.0, 1.0, 0.0], 0.3), HOSTILE, [0, 1], {0}, HOSTILE[0]))
    root = ET.fromstring(svg)
    tags = {e.tag.removeprefix(SVG) for e in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "g", "rect", "path", "circle", "text"}
    assert not any(name.startswith("on") for e in root.iter() for name in e.attrib)
    assert any("a\ufffdb\ufffd[31m\ufffd" in title for title in titles(svg))
    svg.encode()


def test_the_drawing_can_be_read_aloud() -> None:
    root = ET.fromstring(drawing.blocks(drawing.Panel(inspection([2.0, 0.0, 0.1], 0.3), heading="Start")))
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title"
    assert (
        root[1].text == "Start: 3 documents in 2 blocks, 1 of them with more than one document; best first: sizes 1, 2."
    )


def test_style_comes_along_only_when_the_drawing_stands_alone() -> None:
    panel = drawing.Panel(inspection([0.0], 0.1))
    assert "<style>" in drawing.blocks(panel)
    assert "style" not in drawing.blocks(panel, standalone=False)


def test_explanations_stand_in_titles_or_in_attributes() -> None:
    panel = drawing.Panel(inspection([3.0, 2.0, 1.0, 0.0], 0.3), HOSTILE, [0, 1])
    spoken = {title for title in titles(drawing.blocks(panel)) if title != "Blocks of documents in score order"}
    quiet = drawing.blocks(panel, titles=False)
    assert {e.get("data-why") for e in ET.fromstring(quiet).iter()} - {None} == spoken
    assert len(titles(quiet)) == 1


def test_panels_stand_beside_each_other() -> None:
    panel = drawing.Panel(inspection([1.0, 0.0], 0.1), shown=[0, 1])
    one, two = (ET.fromstring(drawing.side_by_side([panel] * n)) for n in (1, 2))
    assert int(two.get("width", "")) == 2 * int(one.get("width", ""))
    assert int(two.get("height", "")) == int(one.get("height", ""))
    narrow = ET.fromstring(drawing.blocks(panel, compact=True))
    assert int(narrow.get("width", "")) <= 360  # a telephone


@pytest.mark.parametrize("shown", [[0, 0], [2], [-1]])
def test_wrong_rows_are_refused(shown: list[int]) -> None:
    with pytest.raises(InputError, match="different row numbers from 0 to 1"):
        drawing.Panel(inspection([1.0, 0.0], 0.1), shown=shown)


def test_wrong_labels_and_no_panels_are_refused() -> None:
    with pytest.raises(InputError, match="1 labels came for 2"):
        drawing.Panel(inspection([1.0, 0.0], 0.1), ["a"])
    with pytest.raises(InputError, match="no panels"):
        drawing.side_by_side([])
