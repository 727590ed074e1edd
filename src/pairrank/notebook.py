"""What notebooks show of rankers and impressions: small tables as HTML, in the notebook's own colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

# Beyond this many rows a table says how many it leaves out.
MAX_ROWS = 50


def impression(shown: Any) -> str:
    """An `Impression`, the list as it was shown: position, document, block; blocks alternate in shade."""
    names: Iterable[Any] = shown.ranking.tolist() if shown.ids is None else shown.ids
    rows = [
        (position, name, block + 1)
        for position, (name, block) in enumerate(zip(names, shown.blocks.tolist(), strict=True), start=1)
    ]
    title = f"impression {shown.number}: {len(rows)} of {shown.n_docs} documents shown"
    return _table(title, ("position", "row" if shown.ids is None else "id", "block"), rows, shade=shown.blocks.tolist())


def ranker(made: Any) -> str:
    """A `Ranker`: weights by feature, with standard deviations where it knows them; its settings beneath."""
    weights, uncertainty = getattr(made, "weights", None), getattr(made, "uncertainty", None)
    names = made.feature_names or range(made.n_features)
    columns: list[Iterable[Any]] = [names]
    head = ["feature"]
    if weights is not None:
        head.append("weight")
        columns.append(f"{weight:.4g}" for weight in weights)
    if weights is not None and uncertainty is not None:
        head.append("±")
        columns.append(f"{deviation:.2g}" for deviation in uncertainty())
    settings = ", ".join(f"{k}={v!r}" for k, v in made.settings.items() if k != "feature_names")
    title = f"{type(made).__name__}, seed {made.seed}, {made.n_ranked} lists ranked"
    table = _table(title, head, list(zip(*columns, strict=True))) if len(head) > 1 else f"<p>{escape(title)}</p>"
    return f"{table}<p><small>{escape(settings)}</small></p>"


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], shade: Sequence[int] = ()) -> str:
    parts = [f"<table><caption>{escape(title)}</caption><thead><tr>"]
    parts += [f"<th>{escape(name)}</th>" for name in head]
    parts.append("</tr></thead><tbody>")
    for place, row in enumerate(rows[:MAX_ROWS]):
        tint = ' style="background:rgba(128,128,128,.15)"' if shade and shade[place] % 2 else ""
        parts.append(f"<tr{tint}>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>")
    if len(rows) > MAX_ROWS:
        parts.append(f'<tr><td colspan="{len(head)}">… and {len(rows) - MAX_ROWS} more</td></tr>')
    return "".join(parts) + "</tbody></table>"
