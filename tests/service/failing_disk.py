"""Drive load through the service while the disk under its store begins to fail, cut the power, and count what is lost.

The store lies on ext4, in an image on a small tmpfs; a filler takes the rest of the tmpfs away, so that writes of the
image's blocks, and with them flushes, fail with an I/O error. After a moment everything is killed, and the image is
looked at as it is, as after a power cut. Every feedback that was acknowledged must be in the log.

As root: ``python tests/service/failing_disk.py --runs 50``. With ``--heal`` the filler goes away again before the end;
with ``--deep`` the image lies on another ext4, whose own page cache takes writes that fail only later.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from crash import RANKER, end_process, fork, learn, serve

from pairrank.client import Client
from pairrank.errors import PairRankError
from pairrank.service.app import make_app
from pairrank.service.learning.model import load_head
from pairrank.service.learning.verify import verify
from pairrank.service.settings import Settings
from pairrank.service.store import open_store
from pairrank.service.store.values import Config, Limits

CLIENTS = 3
TMPFS_MB = 60
IMAGE_MB = 300


class Outcome(NamedTuple):
    """What one run found."""

    acknowledged: int
    refused: int
    faults: list[str]


def call(*command: str | Path) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


@contextmanager
def mounted(what: str, where: Path, *options: str) -> Iterator[Path]:
    where.mkdir(exist_ok=True)
    call("mount", *options, what, where)
    try:
        yield where
    finally:
        for _ in range(50):
            if subprocess.run(["umount", where], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        else:
            call("umount", "-l", where)


def fill(path: Path) -> None:
    """Take all the room there is."""
    with suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(2**20))
    with suppress(OSError), open(path, "ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def send(port: int, notes: Path, seed: int) -> None:
    """Rank and click until killed; note down, with the time, what was acknowledged and what was not."""
    chance = random.Random(seed)
    client = Client(f"http://127.0.0.1:{port}", timeout=5.0, retries=0)
    with open(notes, "a") as file:
        while True:
            documents = {f"d{i}": [chance.random() for _ in range(20)] for i in range(20)}
            try:
                shown = client.rank(RANKER, documents, k=10)
                client.feedback(RANKER, shown.impression_id, [name for name in shown.ids if chance.random() < 0.2])
            except (PairRankError, OSError) as problem:
                file.write(f"refused {time.time():.4f} {problem}\n")
                time.sleep(0.01)
            else:
                file.write(f"ok {time.time():.4f} {shown.impression_id}\n")
            file.flush()


def run(seed: int, folder: Path, *, heal: bool, deep: bool) -> Outcome:
    """One life of a service on a disk that fails."""
    chance = random.Random(seed)
    small = folder / "small"
    with mounted("tmpfs", small, "-t", "tmpfs", "-o", f"size={TMPFS_MB}m"):
        image = _formatted(small / "image", IMAGE_MB)
        with mounted(str(image), folder / "lower", "-o", "loop") as lower:
            inner = _formatted(lower / "image", IMAGE_MB // 2) if deep else image
            with mounted(str(inner), folder / "disk", "-o", "loop") if deep else nullcontext(lower) as disk:
                lines = _drive(disk, small / "filler", folder, chance, heal=heal)
                shutil.copy(image, folder / "after")
    return _judge(folder, lines, deep=deep)


def _formatted(image: Path, megabytes: int) -> Path:
    with open(image, "wb") as file:
        file.truncate(megabytes * 2**20)
    call("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", "-J", "size=4", image)
    return image


def _drive(disk: Path, filler: Path, folder: Path, chance: random.Random, *, heal: bool) -> list[list[str]]:
    url = f"sqlite:///{disk / 'store.db'}"
    store = open_store(url)
    store.create(RANKER, Config(20), Limits(), time.time(), "test")
    load_head(store, store.rankers()[0]).ranker.rank([[0.0] * 20, [1.0] * 20])
    store.close()
    app = make_app(url, Settings(store=url))
    app.build_middleware_stack()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    notes = [folder / f"client{number}" for number in range(CLIENTS)]
    children = [fork(partial(serve, app, listener)) for _ in range(2)] + [fork(partial(learn, url))]
    port = listener.getsockname()[1]
    children += [fork(partial(send, port, path, chance.randrange(10**9))) for path in notes]
    time.sleep(0.5 + chance.random())
    fill(filler)
    time.sleep(0.5 + 1.5 * chance.random())
    if heal:
        filler.unlink()
        time.sleep(0.5 + chance.random())
    for child in children:
        end_process(child)
    listener.close()
    return [line.split(maxsplit=2) for path in notes for line in path.read_text().splitlines()]


def _judge(folder: Path, lines: list[list[str]], *, deep: bool) -> Outcome:
    acknowledged = {line[2]: float(line[1]) for line in lines if line[0] == "ok"}
    refused = [float(line[1]) for line in lines if line[0] == "refused"]
    with ExitStack() as stack:
        disk = stack.enter_context(mounted(str(folder / "after"), folder / "lower", "-o", "loop"))
        if deep:
            disk = stack.enter_context(mounted(str(disk / "image"), folder / "disk", "-o", "loop"))
        store = open_store(disk / "store.db")
        faults = verify(store)
        logged = {f"{number}-{token}" for number, token in store.database.all("SELECT number, token FROM log")}
        store.close()
    first = min(refused, default=0.0)
    faults += [
        f"acknowledged {at - first:+.3f} s from the first refusal, and lost: {name}"
        for name, at in acknowledged.items()
        if name not in logged
    ]
    return Outcome(len(acknowledged), len(refused), faults)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--heal", action="store_true")
    parser.add_argument("--deep", action="store_true", help="a file system in a file of another one")
    args = parser.parse_args()
    lost = 0
    for number in range(args.seed, args.seed + args.runs):
        with tempfile.TemporaryDirectory(prefix="failing-disk-") as folder:
            outcome = run(number, Path(folder), heal=args.heal, deep=args.deep)
        lost += len(outcome.faults)
        print(
            f"{number}: {outcome.acknowledged} acknowledged, {outcome.refused} refused", *outcome.faults[:5], sep="\n  "
        )
        sys.stdout.flush()
    print(f"{lost} faults")
    return 1 if lost else 0


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    raise SystemExit(main())
