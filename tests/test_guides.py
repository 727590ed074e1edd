"""The guides to export, logs and warm starts: their links, and that none of the reasons is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDES = Path(__file__).resolve().parent.parent / "docs" / "guide"


@pytest.mark.parametrize("page", ["export", "logs", "warmstart"])
def test_links_between_pages_resolve(page: str) -> None:
    text = (GUIDES / f"{page}.md").read_text()
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    assert targets
    assert all((GUIDES / target).exists() for target in targets)


def test_the_table_of_reasons_is_complete() -> None:
    from pairrank.logs import Reason

    text = (GUIDES / "logs.md").read_text()
    assert {name for name in re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE) if name in set(Reason)} == set(
        Reason
    )
