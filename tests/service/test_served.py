"""What is served is what the library makes and the laboratory measures: the same settings, the same bits."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from served_runs import play

from pairrank import rankers
from pairrank.estimator import posterior
from pairrank.service.http.administration import config_of
from pairrank.service.http.schemas import CreateBody
from pairrank.service.learning.model import Log, Model
from pairrank.service.store.values import Entry, Snapshot
from pairrank.sim import RunSpec


@pytest.mark.parametrize("name", rankers.names())
def test_a_service_makes_what_the_library_makes(name: str) -> None:
    served = config_of(CreateBody.model_validate({"n_features": 5, "ranker": name})).make()
    assert served.settings == rankers.make(name, n_features=5).settings
    assert served.digest() == rankers.make(name, n_features=5).digest()


def test_a_service_makes_additive_rankers() -> None:
    body = {"n_features": 5, "options": {"model": "additive"}}
    assert config_of(CreateBody.model_validate(body)).make().settings.model == "additive"


@pytest.mark.parametrize(
    "name", ["pairrank", "pairrank(model=additive)", "pairrank-c", "p2linrank", "pdgd", "pairrank-memory"]
)
def test_a_log_gives_the_laboratorys_ranker(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner that is restarted again and again, from published versions without their history, some of it folded."""
    monkeypatch.setattr(posterior, "HISTORY_BYTES", 0)  # then a thousand documents are kept
    plain, rng = rankers.make(name, n_features=4, seed=3), np.random.default_rng(0)
    entries: list[Entry] = []
    model = Model(rankers.make(name, n_features=4, seed=3), 0, 0, 0, 0)

    class Kept(Log):
        def __init__(self) -> None:
            """A log in memory."""

        def learned(self, upto: int):  # type: ignore[no-untyped-def]
            from pairrank.service.learning.model import _shown

            return (_shown(entry) for entry in reversed(entries) if entry.seq <= upto)

    log = Kept()
    for seq in range(1, 260):
        impression = plain.rank(rng.random((9, 4)) * [1.0, 1e3, 1e-3, 1.0], 6)
        clicks = rng.random(6) < impression.features[:, 0]
        plain.learn(impression, clicks)
        entries.append(Entry(seq, "feedback", 0.0, None, clicks.tobytes(), impression.to_bytes()))
        model.apply(entries[-1], log)
        if seq % 37 == 0:  # as after a restart
            body = model.ranker.to_bytes(history=False)
            snapshot = Snapshot(seq, 0, 0, hashlib.sha256(body).hexdigest(), 0.0, False, body)
            model = Model.restore(snapshot, seq)
    assert model.ranker.digest() == plain.digest()
    if name == "pairrank":
        assert 100 < plain._posterior.history.n_lists < plain._posterior.n_lists


@pytest.mark.parametrize(
    ("ranker", "users"),
    [
        ("pairrank", "navigational"),
        ("pairrank(model=additive)", "position(eta=1, table=informational)"),
        ("pdgd", "cascade"),
        ("pairrank-memory", "navigational"),
    ],
)
def test_a_run_over_http_is_the_laboratorys(ranker: str, users: str) -> None:
    """`served_runs.py` plays hundreds; here the learner is started anew after list 40."""
    spec = RunSpec(data="synthetic:tiny", ranker=ranker, clicks=users, rounds=60, seed=7, panel=0, ideal="")
    run = play(spec, life=40)
    assert (run.same_lists, run.off, run.same_model) == (1.0, 0.0, True)
