"""Experiments and launches from the command line and the Python client, against a real server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "service"))
from web import running_server

from pairrank.cli import main
from pairrank.client import Client, ServiceError

DOCUMENTS = {f"d{i}": [i / 4, 1 - i / 4] for i in range(4)}


def test_from_the_command_line_and_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str, code: int = 0) -> str:
        assert main([*words, "--url", url]) == code
        found = capsys.readouterr()
        return found.out + found.err

    with running_server(tmp_path / "store.db") as url, Client(url) as client:
        client.create("shop", 2)
        assert "no experiments" in told("experiment", "list")
        assert "shop (a) against as-sent (b)" in told("experiment", "start", "new", "--a", "shop", "--b", "as-sent")
        assert "frozen" in told("experiment", "start", "new", "--a", "shop", "--b", "shop@0", code=1)
        first = client.rank("shop", DOCUMENTS, k=2, client_id="me")
        rest = client.rank("shop", DOCUMENTS, page_of=first.impression_id)
        assert sorted((*first.ids, *rest.ids)) == sorted(DOCUMENTS)
        client.feedback("shop", first.impression_id, [first.ids[0]])
        assert client.verdict("new")["impressions"] == 1
        assert [row["name"] for row in client.experiments()] == ["new"]
        assert "by click: a won" in told("experiment", "show", "new")
        assert json.loads(told("experiment", "stop", "new", "--json"))["ended"] > 0
        assert client.stop_experiment("new")["ended"] > 0
        assert client.experiment("new", "shop", "as-sent")["impressions"] == 1  # the same definition: the same one
        words = ("--a", "shop", "--b", "as-sent", "--signals", "purchase")
        assert "by purchase: a won 0 lists" in told("experiment", "start", "bought", *words)
        shown = client.rank("shop", DOCUMENTS, k=2)
        client.feedback("shop", shown.impression_id, [shown.ids[0]])
        assert client.event("shop", shown.impression_id, "purchase", shown.ids[0]) == "accepted"
        client.stop_experiment("bought")
        # Lists of a split are of one arm each: none of them is won.
        parted = told("experiment", "start", "parted", "--a", "shop", "--b", "as-sent", "--kind", "split")
        assert "by click: 0 lists; effect +0.0000 (-2.0000 to +2.0000)" in parted
        assert " won " not in parted
        client.stop_experiment("parted")
        with pytest.raises(ServiceError, match="no experiment"):
            client.verdict("other")

        assert "no launch" in told("launch", "shop", code=1)
        assert told("launch", "shop", "--mode", "shadow").startswith("shop: shadow. Users see the present order")
        assert client.rank("shop", DOCUMENTS, k=2).ids == ("d0", "d1")
        assert client.launch("shop")["mode"] == "shadow"
        assert json.loads(told("launch", "shop", "--mode", "guarded", "--margin", "0.1", "--json"))["margin"] == 0.1
        assert "--mode" in told("launch", "shop", "--auto", code=2)
        assert client.launch("shop", "free")["share"] == 1.0
