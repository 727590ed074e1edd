from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from stage import Server

import pairrank
from pairrank.cli import main
from pairrank.data import load


def marks(text: str, cls: str) -> int:
    return sum(cls in e.get("class", "").split() for e in ET.fromstring(text).iter())


def test_the_example_shows_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", "blocks"]) == 0
    text = capsys.readouterr().out
    panels = [g for g in ET.fromstring(text) if g.tag.endswith("}g")]
    before, after = (sum("pr-band" in e.get("class", "") for e in panel.iter()) for panel in panels)
    assert before == 1  # all in one block
    assert after > 2
    assert marks(text, "pr-document") == 2 * 8
    assert main(["figure", "blocks"]) == 0
    assert capsys.readouterr().out == text  # the same on every machine and day


def test_a_query_of_a_model_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = load("synthetic:tiny", split="test")
    ranker = pairrank.PairRank(data.n_features, seed=0)
    features, _ = data.query(1)
    for _ in range(3):
        shown = ranker.rank(features, 4)
        ranker.learn(shown, [False, True, False, False][: len(shown)])
    ranker.save(tmp_path / "model.pairrank")
    out = tmp_path / "blocks.svg"
    assert main(["figure", "blocks", "--out", str(tmp_path / "x.png")]) == 2
    assert "expected a name that ends in .svg" in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()
    command = ["figure", "blocks", "--model", str(tmp_path / "model.pairrank"), "--data", "synthetic:tiny"]
    assert main([*command, "--query", "1", "--k", "3", "--out", str(out), "--compact"]) == 0
    text = out.read_text()
    assert marks(text, "pr-document") == len(features)
    assert marks(text, "pr-position") == min(3, len(features))
    assert f"Query {data.query_ids[1]}" in text


def test_wrong_usage_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", "blocks", "--data", "synthetic:tiny"]) == 2
    assert "--model and --data go together" in capsys.readouterr().err
    data = load("synthetic:tiny", split="test")
    pairrank.rankers.make("pdgd", n_features=data.n_features).save(tmp_path / "pdgd")
    pairrank.PairRank(data.n_features).save(tmp_path / "pairrank")
    command = ["figure", "blocks", "--data", "synthetic:tiny", "--model"]
    assert main([*command, str(tmp_path / "pdgd")]) == 2
    assert "no notion of blocks" in capsys.readouterr().err
    assert main([*command, str(tmp_path / "pairrank"), "--query", "99999"]) == 2
    assert f"queries 0 to {data.n_queries - 1}" in capsys.readouterr().err


def test_a_port_in_use_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["play", "--no-browser", "--port", str(port)]) == 1
    assert f"cannot listen on port {port}" in capsys.readouterr().err


def test_a_store_that_cannot_be_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("not a database " * 100)
    for place, told in (("no/play.db", "does not exist: create it"), ("notes", "file is not a database")):
        assert main(["play", "--no-browser", "--store", str(tmp_path / place)]) == 1
        assert told in capsys.readouterr().err


@pytest.mark.slow
def test_play_serves_both_pages_and_stops_cleanly(server: Server) -> None:
    assert b"A search that learns from you" in server.call("GET", "/play")
    assert b"No rankers yet" in server.call("GET", "/")
    found = server.call("POST", "/play/search", {"query": "json loads"})
    assert found["candidates"] == 60
    assert len(found["results"]) == 10
    body = {"impression_id": found["impression_id"], "clicks": [found["results"][2]["id"]]}
    assert server.call("POST", "/v1/rankers/playground/feedback", body) == {"status": "accepted"}
    events = server.call("POST", "/play/simulate", {"users": "perfect", "searches": 20}).decode().strip().split("\n\n")
    assert '"done":20,"total":20' in events[-1]
    assert server.call("GET", "/v1/rankers/playground?wait=30")["feedback_count"] == 21
    assert server.stop() == 0


@pytest.mark.slow
def test_two_ctrl_c_are_as_good_as_one(index_cache: Path) -> None:
    command = [sys.executable, "-m", "pairrank", "play", "--no-browser"]
    settings, pipe = {**os.environ, "PAIRRANK_CACHE": str(index_cache)}, subprocess.PIPE
    with subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe, env=settings) as process:
        assert process.stdout is not None
        while "Ctrl-C stops" not in process.stdout.readline():
            assert process.poll() is None
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        _, told = process.communicate(timeout=30)
    assert (process.returncode, told) == (0, "")
