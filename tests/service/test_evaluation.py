"""Off-policy estimates from a service's log: weights by hand, intervals around the truth, and what cannot be told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from web import TestClient, running_app

import pairrank
from pairrank.cli import main
from pairrank.errors import InputError, OptionError, UnknownNameError
from pairrank.service.learning.learner import Learner
from pairrank.service.store import open_store
from pairrank.service.store.values import Config, Feedback, Limits, Prior, Served, token_of
from pairrank.trials import interleaving

X = np.array([[0.1, 0.9], [0.9, 0.2], [0.5, 0.5], [0.3, 0.1]])
LIKED = np.array([0.1, 0.7, 0.4, 0.2])  # how often each document is clicked where it stands among the first two


def filled(store_url: Path | str, lists: int, keep: bool = True, start: Prior | None = None) -> None:
    """A store with lists of two out of four documents; it learns nothing, so every order is as likely as any other."""
    store = open_store(store_url)
    row, _ = store.create("a", Config(2, prior=start), Limits(keep_candidates=4), 0.0, "test")
    store.set_frozen("a", True, 0.0, "test")
    ranker, rng = row.config.make(), np.random.default_rng(1)
    first = store.allocate(row.id, lists)
    served, sent = [], []
    for number in range(first, first + lists):
        shown = ranker.rank(X, 2, number=number)
        token = token_of(row.secret, number, "0" * 12)
        ids = [f"d{place}" for place in shown.ranking.tolist()]
        rest = np.delete(X, shown.ranking, axis=0).tobytes() if keep else None
        item = (row.id, number, token, 0.0, 1.0, 2.0, 0, None, json.dumps(ids), shown.to_bytes())
        served.append(Served(*item, candidates=rest))
        clicks = frozenset(name for name, p in zip(ids, LIKED[shown.ranking], strict=True) if rng.random() < p)
        sent.append(Feedback(row.id, number, token, clicks))
    store.serve(served)
    store.feedback(sent, 0.5)
    learner = Learner(store, clock=lambda: 1.0)
    while learner.step(publish=True):
        pass
    store.close()


def logged(url: Path | str) -> list[tuple[list[str], bytes]]:
    store = open_store(url)
    rows = store.database.all("SELECT ids, clicks FROM log")
    store.close()
    return [(json.loads(ids), clicks) for ids, clicks in rows]


def test_the_truth_lies_within_and_weights_are_those_by_hand(store_url: str) -> None:
    """A model that knows nothing draws all twelve lists alike: d0 first counts 4, d1 after it 4 · 3."""
    filled(store_url, 1200)
    told = pairrank.evaluate(store_url, positions=2)
    assert (told.ranker, told.against, told.lists, told.left_out) == ("a", "as-sent", 1200, {})
    every = [LIKED[list(order)].sum() for order in permutations(range(4), 2)]
    assert told.interval[0] < np.mean(every) < told.interval[1]
    for estimate in told.estimates:
        assert estimate.interval[0] < LIKED[:2].sum() < estimate.interval[1]
    assert told.doubt == ""
    total = sum(
        4.0 * clicks[0] * (shown[0] == "d0") + 12.0 * clicks[1] * (shown == ["d0", "d1"])
        for shown, clicks in logged(store_url)
    )
    assert told.estimates[0].value == pytest.approx(total / 1200)


def test_an_interleaved_experiment_is_foretold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The ranker's order by score is d0, d2, d1, d3 by what it starts from, which is too little to be certain of."""
    path = tmp_path / "s.db"
    filled(path, 700, start=Prior((1.0, 2.0), 1e-6))
    told = pairrank.evaluate(path, positions=2, metric="interleaved")
    drafts = interleaving.lists(np.argsort(-X @ [1.0, 2.0], kind="stable"), np.arange(4), 2)
    truth = sum(chance * float(draft.credit @ LIKED[draft.ranking]) for chance, draft in drafts)
    assert abs(truth) > 0.02
    for estimate in told.estimates:
        assert estimate.interval[0] < truth < estimate.interval[1]
        assert estimate.told == pytest.approx(1.0)
    assert (told.value, told.interval) == (0.0, (0.0, 0.0))
    assert main(["evaluate", str(path), "--metric", "interleaved", "--positions", "2"]) == 0
    assert "a by score (above zero) against as-sent, ips" in capsys.readouterr().out


def test_a_short_log_says_what_it_cannot_tell(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 150)
    told = pairrank.evaluate(tmp_path / "s.db", positions=2).estimates[0]
    assert told.told < 1.0
    assert "the log" in told.doubt


@pytest.fixture
def service(tmp_path: Path) -> Iterator[TestClient]:
    with running_app(tmp_path / "store.db") as client:
        client.put("/v1/rankers/a", json={"n_features": 2, "keep_candidates": 4})
        yield client


def test_lists_of_a_learning_service_are_told_from(
    service: TestClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = [{"id": f"d{i}", "features": x} for i, x in enumerate(X.tolist())]
    rng = np.random.default_rng(0)
    for number in range(60):
        extra = [{"id": "more", "features": [0.0, 0.0]}] if number % 10 == 0 else []  # more than are kept
        shown = service.post("/v1/rankers/a/rank", json={"documents": documents + extra, "k": 2}).json()
        ids = [hit["id"] for hit in shown["ranking"]]
        clicks = [name for name in ids if name != "more" and rng.random() < LIKED[int(name[1])]]
        body = {"impression_id": shown["impression_id"], "clicks": clicks}
        assert service.post("/v1/rankers/a/feedback", json=body).status_code == 200
    row = service.get("/v1/rankers/a?wait=30").json()
    service.put("/v1/rankers/other", json={"n_features": 2, "ranker": "pdgd"})
    for against in ("as-sent", "0", f"a@{row['model_version']}", "other"):
        told = pairrank.evaluate(tmp_path / "store.db", ranker="a", against=against, metric="first-click")
        assert told.lists == 54
        assert told.left_out == {"without their candidates": 6}
        assert 0.0 <= told.value <= 1.0
        assert told.doubt  # sixty lists are few
    service.post("/v1/rankers/a/pin", json={"version": 0})  # as an experiment would show it
    assert pairrank.evaluate(tmp_path / "store.db", ranker="a", against="a").against == "a@0"
    words = ["--ranker", "a"]
    assert main(["evaluate", str(tmp_path / "store.db"), *words, "--json"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["lists"] == 54
    assert main(["store", "backup", str(tmp_path / "store.db"), str(tmp_path / "copy.db")]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "copy.db"), *words, "--json"]) == 0
    assert capsys.readouterr().out == printed  # the same bits
    assert main(["evaluate", str(tmp_path / "store.db"), *words]) == 0
    assert "Left out: 6 lists without their candidates." in capsys.readouterr().out


def test_lists_with_gaps_that_the_other_ranker_does_not_take_are_left_out(tmp_path: Path) -> None:
    with running_app(tmp_path / "store.db") as app:
        config = {"n_features": 2, "keep_candidates": 4}
        app.put("/v1/rankers/bent", json={**config, "options": {"model": "additive"}})
        app.put("/v1/rankers/line", json=config)
        for number in range(12):
            gap = [None if number < 5 else 0.5, 1.0]
            documents = [{"id": "d0", "features": [0.0, 0.0]}, {"id": "d1", "features": gap}]
            shown = app.post("/v1/rankers/bent/rank", json={"documents": documents}).json()
            body = {"impression_id": shown["impression_id"], "clicks": ["d1"]}
            assert app.post("/v1/rankers/bent/feedback", json=body).status_code == 200
        app.get("/v1/rankers/bent?wait=30")
    found = pairrank.evaluate(tmp_path / "store.db", ranker="bent", against="line")
    assert (found.lists, found.left_out) == (7, {"with values that line@0 does not take": 5})
    assert pairrank.evaluate(tmp_path / "store.db", ranker="bent").lists == 12


def test_candidates_are_not_what_lists_of_an_experiment_lack(service: TestClient, tmp_path: Path) -> None:
    assert service.put("/v1/experiments/e", json={"a": "a", "b": "as-sent"}).status_code < 300
    documents = [{"id": f"d{i}", "features": x} for i, x in enumerate(X.tolist())]
    shown = service.post("/v1/rankers/a/rank", json={"documents": documents, "k": 2}).json()
    service.post("/v1/rankers/a/feedback", json={"impression_id": shown["impression_id"], "clicks": ["d0"]})
    service.get("/v1/rankers/a?wait=30")
    with pytest.raises(InputError, match=r"\(1 of experiments, launches or later pages\)$"):
        pairrank.evaluate(tmp_path / "store.db")


def test_what_cannot_be_told_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    filled(path, 3, keep=False)
    with pytest.raises(InputError, match=r"3 without their candidates.*keep_candidates"):
        pairrank.evaluate(path)
    with pytest.raises(UnknownNameError, match="no ranker is called 'b'"):
        pairrank.evaluate(path, ranker="b")
    with pytest.raises(UnknownNameError, match="no ranker is called 'better'"):
        pairrank.evaluate(path, against="better")
    with pytest.raises(OptionError, match="shop@1200"):
        pairrank.evaluate(path, against="no such arm")
    with pytest.raises(OptionError, match="version 99"):
        pairrank.evaluate(path, against=99)
    with pytest.raises(OptionError, match="positions"):
        pairrank.evaluate(path, positions=50)
    store = open_store(path)
    store.create("b", Config(2, "pdgd"), Limits(), 0.0, "test")
    store.close()
    with pytest.raises(OptionError, match="a, b: say which one by ranker, or --ranker NAME"):
        pairrank.evaluate(path)
    with pytest.raises(InputError, match="only PairRank's draws"):
        pairrank.evaluate(path, ranker="b")
    store = open_store(path)
    store.create("c", Config(3), Limits(), 0.0, "test")
    store.close()
    with pytest.raises(InputError, match="the same documents"):
        pairrank.evaluate(path, ranker="a", against="c")


def test_a_log_of_one_list_is_answered_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One list has no interval: its ends are null, since JSON has no infinity."""
    filled(tmp_path / "s.db", 1)
    assert main(["evaluate", str(tmp_path / "s.db"), "--positions", "2", "--json"]) == 0
    out = capsys.readouterr().out
    told = json.loads(out)
    assert "Infinity" not in out
    assert [told["interval"], told["estimates"][0]["interval"]] == [[None, None], [None, None]]
