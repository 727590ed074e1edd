"""Same seed, same bits, whatever the thread variables say: jobs in processes of their own, with none, 1 and 2."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pairrank import threads
from pairrank.client import Client

ENVIRONMENTS = [{}, {"OPENBLAS_NUM_THREADS": "1"}, {"OPENBLAS_NUM_THREADS": "2"}]
N_FEATURES, N_LISTS = 300, 48  # at this width every matrix product that learning needs is one that threads share


def without_threads() -> dict[str, str]:
    """This process's environment without thread variables."""
    return {name: value for name, value in os.environ.items() if name not in threads.ENVIRONMENT}


def python(*arguments: str, **variables: str) -> str:
    """What a Python process prints that has no thread variables but ``variables``."""
    environment = without_threads() | variables
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def lists(n_docs: int = 20) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((n_docs, N_FEATURES)).round(6) for _ in range(N_LISTS)]


def files(folder: Path) -> str:
    """One digest of all that lies below a folder and is a result."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in (".parquet", ".pairrank"))
    assert found
    return " ".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in found)


def same(job: Callable[[Path, dict[str, str]], str], folder: Path) -> None:
    results = []
    for number, variables in enumerate(ENVIRONMENTS):
        place = folder / str(number)
        place.mkdir()
        results.append(job(place, variables))
    assert results[1:] == results[:1] * (len(ENVIRONMENTS) - 1)


LIBRARY = f"""
import numpy as np
from pairrank import rankers
for name in rankers.names():
    rng = np.random.default_rng(0)
    ranker = rankers.make(name, n_features={N_FEATURES}, seed=1)
    for _ in range({N_LISTS}):
        shown = ranker.rank(rng.random((20, {N_FEATURES})), 10)
        ranker.learn(shown, rng.random(10) < 0.3)
    print(name, ranker.digest(), ranker.score(rng.random((9, {N_FEATURES}))).tobytes().hex())
"""


def test_library(tmp_path: Path) -> None:
    same(lambda _, variables: python("-c", LIBRARY, **variables), tmp_path)


STARTS = f"""
import numpy as np
from pairrank import PairRank
from pairrank.export import LinearModel
from pairrank.rankers import make, priors
rng = np.random.default_rng(0)
X, grades, offsets = rng.random((600, {N_FEATURES})), rng.integers(0, 3, 600), np.arange(0, 601, 20)
for prior in (priors.from_labels(X, grades, offsets), priors.from_weights(rng.normal(size={N_FEATURES}), strength=100)):
    ranker = PairRank({N_FEATURES})
    prior.apply(ranker)
    print(ranker.digest(), ranker.inspect(X).width.tobytes().hex()[:9999])
    print(LinearModel.from_ranker(ranker, nonnegative=True).weights.tobytes().hex())
print(make("offline-ranknet", n_features={N_FEATURES}).fit(X, grades, offsets).digest())
print(make("p2linrank", n_features={N_FEATURES}).inspect(X).scores.tobytes().hex())
"""


def test_starts_and_what_they_are_sure_of(tmp_path: Path) -> None:
    same(lambda _, variables: python("-c", STARTS, **variables), tmp_path)


def feed(store: str, workers: int, features: list[np.ndarray], variables: dict[str, str]) -> None:
    """Serve a store with so many workers; lists are clicked on, and learned before it stops."""
    command = [sys.executable, "-m", "pairrank", "serve", "--store", store, "--port", "0", "--workers", str(workers)]
    with subprocess.Popen(
        command, env=without_threads() | variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().partition("http://")[2].partition(",")[0]
            with Client(f"http://{address}", timeout=20.0, retries=40) as client:
                for X in features:
                    shown = client.rank("wide", {str(i): row.tolist() for i, row in enumerate(X)}, k=10)
                    client.feedback("wide", shown.impression_id, shown.ids[3:5])
                until = time.monotonic() + 60
                while client.ranker("wide")["lag"] and time.monotonic() < until:
                    time.sleep(0.1)
        finally:
            process.terminate()


@pytest.mark.slow
def test_replay(tmp_path: Path) -> None:
    """One log, written by 1, 2 and 4 workers after each other and learned with as many threads as each may use."""
    store_module = pytest.importorskip("pairrank.service.store")
    from pairrank.service.store.values import Config, Limits

    store = f"sqlite:///{tmp_path / 'store.db'}"
    opened = store_module.open_store(store)
    opened.create("wide", Config(n_features=N_FEATURES, options={}), Limits(), time.time(), "test")
    opened.close()
    for number, (workers, variables) in enumerate(zip((1, 2, 4), ENVIRONMENTS, strict=True)):
        feed(store, workers, lists()[number::3], variables)
    for variables in ENVIRONMENTS:  # its exit code says whether the log gives the stored model
        assert "the same" in python("-m", "pairrank", "replay", store, **variables)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_fit(engine: str, tmp_path: Path) -> None:
    logs = pytest.importorskip("pairrank.logs")
    path = tmp_path / "log.parquet"
    rng = np.random.default_rng(1)
    with logs.Writer(path, N_FEATURES) as writer:
        for number, features in enumerate(lists()):
            documents = [str(row) for row in range(len(features))]
            writer.add(str(number), 1e9 + number, documents, features, rng.random(len(features)) < 0.3, 0)

    def fit(folder: Path, variables: dict[str, str]) -> str:
        out = str(folder / "model.pairrank")
        python("-m", "pairrank", "fit", str(path), "--engine", engine, "--workers", "2", "--out", out, **variables)
        return files(folder)

    same(fit, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_simulate(engine: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = []
    for number, features in enumerate(lists()):
        for row, grade in zip(features, rng.integers(0, 3, len(features)), strict=True):
            rows.append(f"{grade} qid:{number} " + " ".join(f"{i}:{value}" for i, value in enumerate(row, 1)))
    data = tmp_path / "wide.txt"
    data.write_text("\n".join(rows) + "\n")

    def simulate(folder: Path, variables: dict[str, str]) -> str:
        chosen = [word for name in ("pairrank", "pairrank-c", "pdgd") for word in ("--ranker", name)]
        options = ["--rounds", "60", "--engine", engine, "--out", str(folder)]
        python("-m", "pairrank", "simulate", str(data), *chosen, *options, PAIRRANK_CACHE=str(tmp_path), **variables)
        return files(folder / "runs")

    same(simulate, tmp_path)
