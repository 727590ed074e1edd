"""What the service serves beside the laboratory's ranker: the same queries, users and coins, and the same seed.

The laboratory's own loop (`sim.engine.play`) plays every run twice: with a ranker in memory, and with one behind HTTP,
the application over a SQLite file with its learner. The service draws list number n of a ranker with seed s from the
generator of (s, n), as the library does, and counts from 0: ``"seed": s`` and lists one after another are all that the
two need to meet the same luck. The learner is stepped instead of following the clock: it learns and publishes after
every ``lag`` lists, and every ``life`` lists another one starts from the published version and the log. With a lag of 1
all lists are the same, and so is the model, bit for bit; with more the service ranks by a model that is so many lists
old, as a busy one does.

By hand, where DATA is the folder that holds MQ2008 and MSLR-sample:
``python tests/service/served_runs.py DATA --rounds 300 --seeds 10`` (and ``--lag 10``).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from web import TestClient, running_app

from pairrank import rankers, threads
from pairrank.service.learning.learner import Learner
from pairrank.service.store import open_store
from pairrank.service.store.log import SqlStore
from pairrank.sim import RunSpec, engine
from pairrank.sim.run import load_splits
from pairrank.sim.world import World
from pairrank.types import BoolArray, FloatArray, IntArray

SETS = ("MQ2008", "MSLR-sample", "synthetic:linear", "synthetic:nonlinear")
USERS = ("perfect", "navigational", "informational", "position(eta=1, table=informational)", "cascade")


class Shown(NamedTuple):
    """A list as an answer tells it."""

    ranking: IntArray
    impression_id: str


class ServedRanker:
    """A ranker behind HTTP, as the laboratory's loop meets one."""

    def __init__(self, client: TestClient, store: SqlStore, lag: int, life: int) -> None:
        self._client, self._store, self._lag, self._life = client, store, lag, life
        self._learner = Learner(store)
        self._waiting = self._learned = 0

    def rank(self, features: FloatArray, k: int) -> Shown:
        documents = [{"id": str(row), "features": values} for row, values in enumerate(features.tolist())]
        answer = self._post("rank", {"documents": documents, "k": k})
        return Shown(np.array([int(shown["id"]) for shown in answer["ranking"]]), answer["impression_id"])

    def learn(self, shown: Shown, clicks: BoolArray) -> None:
        clicked = [str(row) for row in shown.ranking[clicks]]
        assert self._post("feedback", {"impression_id": shown.impression_id, "clicks": clicked}) == {
            "status": "accepted"
        }
        self._waiting += 1
        if self._waiting == self._lag:
            self.publish()

    def publish(self) -> None:
        """What waits is learned, and the worker serves by it."""
        self._waiting, self._learned = 0, self._learned + self._waiting
        while self._learner.step(publish=True):
            pass
        if self._learned // self._life > (self._learned - self._lag) // self._life:
            self._learner = Learner(self._store)
        self._client.portal.call(self._client.app.state.worker.models.refresh)

    def digest(self) -> str:
        return str(self._client.get("/v1/rankers/a?wait=30").json()["state_digest"])

    def __getattr__(self, name: str) -> Any:
        """``score`` and ``weights`` are those of the model that the worker has."""
        return getattr(self._client.portal.call(self._client.app.state.worker.models.get, "a").ranker, name)

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        response = self._client.post(f"/v1/rankers/a/{path}", content=orjson.dumps(body))
        assert response.status_code == 200, response.text
        return dict(response.json())


@contextmanager
def served(spec: RunSpec, n_features: int, folder: Path, lag: int, life: int) -> Iterator[ServedRanker]:
    """The ranker of ``spec``, made by a service of its own."""
    path = folder / "store.db"
    name, options = rankers.parse(spec.ranker)
    open_store(path).close()
    with running_app(path, learner=False, max_body_bytes=2**24) as client:
        body = {"n_features": n_features, "ranker": name, "options": dict(options), "seed": spec.seed}
        assert client.put("/v1/rankers/a", json=body).status_code == 201
        store = open_store(path)
        yield ServedRanker(client, store, lag, life)
        store.close()


class Outcome(NamedTuple):
    """One run, played twice."""

    spec: RunSpec
    laboratory: float  # cNDCG@10
    service: float
    same_lists: float  # share of rounds with the same NDCG
    same_model: bool

    @property
    def off(self) -> float:
        """How far the service is from the laboratory, as a share."""
        return self.service / self.laboratory - 1.0


@threads.single()
def play(spec: RunSpec, lag: int = 1, life: int = 100) -> Outcome:
    """Both runs of one spec."""
    train, held_out = load_splits(spec)
    plain = rankers.make(spec.ranker, n_features=train.n_features, seed=spec.seed)
    world = World(spec, train, held_out)
    in_memory, over_http = (engine.Progress.start(spec.rounds) for _ in range(2))
    engine.play(world, plain, in_memory)
    with tempfile.TemporaryDirectory() as name, served(spec, train.n_features, Path(name), lag, life) as ranker:
        engine.play(world, ranker, over_http)
        ranker.publish()
        same_model = ranker.digest() == plain.digest()
    one, other = (engine.records(world, plain, progress) for progress in (in_memory, over_http))
    same = float(np.mean(one["online_ndcg"] == other["online_ndcg"]))
    return Outcome(spec, one.cndcg, other.cndcg, same, same_model)


def main() -> None:
    """Print a row per data set and kind of users, and what all runs come to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DATA", type=Path, help="the folder that holds MQ2008 and MSLR-sample")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--lag", type=int, default=1, help="lists that are served before what they taught")
    args = parser.parse_args()
    found: list[Outcome] = []
    print("| data | users | runs | cNDCG@10, laboratory | service | furthest run | lists the same | models the same |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for data in SETS:
        place = data if data.startswith("synthetic:") else str(args.data / data)
        for users in USERS:
            cell = [
                play(RunSpec(data=place, clicks=users, seed=seed, rounds=args.rounds, panel=0, ideal=""), args.lag)
                for seed in range(3000, 3000 + args.seeds)
            ]
            print(f"| {data} | {users} | {_row(cell)} |", flush=True)
            found += cell
    print(f"| all | | {_row(found)} |")


def _row(runs: list[Outcome]) -> str:
    means = [np.mean([getattr(run, name) for run in runs]) for name in ("laboratory", "service")]
    off = max((run.off for run in runs), key=abs)
    share, models = np.mean([run.same_lists for run in runs]), sum(run.same_model for run in runs)
    return f"{len(runs)} | {means[0]:.2f} | {means[1]:.2f} | {100 * off:+.2f} % | {100 * share:.1f} % | {models}"


if __name__ == "__main__":
    main()
