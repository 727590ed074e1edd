"""A service with its learner in one process, without thread variables: replay gives its model, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# The whole service in one process, as an application of one's own has it. 300 features: enough for threads to matter.
SERVE = """
import sys, warnings
import numpy as np
from pairrank.service.app import make_app
warnings.simplefilter("ignore")
from starlette.testclient import TestClient

with TestClient(make_app(sys.argv[1], learner=True), base_url="http://127.0.0.1") as client:
    client.put("/v1/rankers/a", json={"n_features": 300}).raise_for_status()
    rng = np.random.default_rng(0)
    for _ in range(40):
        documents = [{"id": str(i), "features": row.tolist()} for i, row in enumerate(rng.random((20, 300)))]
        shown = client.post("/v1/rankers/a/rank", json={"documents": documents, "k": 10}).json()
        answer = {"impression_id": shown["impression_id"], "clicks": [shown["ranking"][3]["id"]]}
        client.post("/v1/rankers/a/feedback", json=answer).raise_for_status()
"""


def run(threads: str | None, *words: str) -> str:
    """A command in a process of its own, with the thread variables set, or not at all as with most users."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    if threads is not None:
        environment |= dict.fromkeys(VARIABLES, threads)
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_replay_is_the_same_whatever_the_environment_says(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    run(None, "-c", SERVE, store)
    replays: list[dict[str, Any]] = []
    for threads in (None, "1"):
        replays += json.loads(run(threads, "-m", "pairrank", "replay", store, "--json"))
    assert [(r["entries"], r["same"], r["replayed"]) for r in replays] == [(40, True, replays[0]["stored"])] * 2
