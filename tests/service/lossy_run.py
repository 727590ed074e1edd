"""One life of a store on a disk that fails (`lossy.c`): prints what was acknowledged. Its argument is a folder."""

from __future__ import annotations

import sys
from pathlib import Path

from scene import Scene

from pairrank.errors import StorageError
from pairrank.service.learning.learner import Learner
from pairrank.service.store import open_impatient, open_store

ROUNDS = 60


def main(folder: Path) -> None:
    path = folder / "store.db"
    writing, learning = open_store(path), open_store(path)
    at_once = open_impatient(path)
    assert at_once is not None
    scene = Scene(writing)
    learner = Learner(learning, clock=lambda: scene.now)
    print("started", flush=True)
    for number in range(ROUNDS):
        # Lists are written without a flush, by another connection; the learner folds the write-ahead log back.
        scene.store = at_once
        try:
            row = writing.ranker(scene.name)
            assert row is not None
            shown = scene.ranker.rank([[0.1, 0.9], [0.5, 0.5], [0.9, 0.1]], number=writing.allocate(row.id, 1))
            item = scene._served(row, shown)
            at_once.serve([item])
            scene.store = writing
            for verdict in scene.feedback([item]):
                print(f"{verdict.status} {item.number}-{item.token}", flush=True)
            if number % 7 == 6:
                learner.step(publish=True)
            if number % 20 == 19:
                learning.database.tend()
        except StorageError as problem:
            print(f"refused {problem}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
