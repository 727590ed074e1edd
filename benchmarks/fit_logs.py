"""``fit`` over generated click logs: serial, two processes, local Ray. Equal models, times, peak memory.

    python benchmarks/fit_logs.py --pairs 10_000_000

Every engine runs in a process of its own, so that its peak memory can be told apart. Prints a table and, with --json,
the same as JSON. The load before each run tells whether the cores were free: on a busy machine the times mean little.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from pairrank.rng import Purpose, generator

FILES = 8
SHOWN = 10


def write_logs(folder: Path, n_pairs: int, n_features: int) -> list[str]:
    """Lists of ten documents whose clicks follow a hidden θ, until there are ``n_pairs`` pairs (kind "all")."""
    from pairrank.logs import Writer

    theta = generator(0, 0, Purpose.INIT).normal(size=n_features)
    paths, made, time_shown = [], 0, 1.7e9
    documents = [f"d{place}" for place in range(SHOWN)]
    for number in range(FILES):
        rng = generator(0, number, Purpose.DATA)
        path = folder / f"log-{number}.parquet"
        with Writer(path, n_features, "float32") as writer:
            while made < n_pairs * (number + 1) // FILES:
                X = rng.random((SHOWN, n_features), dtype=np.float32)
                clicks = rng.random(SHOWN) < 1 / (1 + np.exp(-(X - 0.5) @ theta))
                writer.add(f"q{made}", time_shown, documents, X, clicks)
                last = np.flatnonzero(clicks)[-1] if clicks.any() else -2
                made += int(clicks.sum() * (~clicks[: last + 2]).sum())
                time_shown += 1
        paths.append(str(path))
    return paths


def child(engine: str, workers: int, paths: list[str]) -> None:
    """Fit, and say how long it took and how much memory the largest process and all of them together needed."""
    from pairrank.logs import fit

    watch, load = _Watch(), os.getloadavg()[0]
    start = time.perf_counter()
    found = fit(paths, pairs="all", engine=engine, workers=workers)
    seconds = time.perf_counter() - start
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(
        json.dumps(
            {
                "engine": engine,
                "seconds": seconds,
                "cpu": sum(usage.ru_utime + usage.ru_stime for usage in spent),  # without Ray's workers
                "driver_mib": spent[0].ru_maxrss / 1024,
                "worker_mib": watch.stop(),
                "pairs": found.n_pairs,
                "lists": found.n_lists,
                "passes": found.passes,
                "load": load,
                "theta": found.theta.tolist(),
            }
        )
    )


class _Watch:
    """The largest resident size of any child process that runs our code, sampled ten times a second."""

    def __init__(self) -> None:
        self._largest, self._done = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        import psutil

        me = psutil.Process()
        while not self._done.wait(0.1):
            for process in me.children(recursive=True):
                try:
                    if "python" in process.name() or process.name().startswith("ray::"):
                        self._largest = max(self._largest, process.memory_info().rss / 2**20)
                except psutil.Error:
                    continue

    def stop(self) -> float:
        self._done.set()
        self._thread.join()
        return self._largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engines", nargs="+", default=["serial", "processes", "ray"])
    parser.add_argument("--folder", help="where the logs go (default: a temporary folder)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child[0], args.workers, args.child[1:])
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        start = time.perf_counter()
        paths = write_logs(Path(folder), args.pairs, args.features)
        size = sum(Path(path).stat().st_size for path in paths) / 2**20
        print(f"{args.pairs:,} pairs, {args.features} features: {size:.0f} MiB of Parquet", file=sys.stderr)
        print(f"written in {time.perf_counter() - start:.0f} s", file=sys.stderr)
        rows = []
        for engine in args.engines:
            command = [sys.executable, __file__, "--workers", str(args.workers), "--child", engine, *paths]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    reference = np.array(rows[0]["theta"])
    for row in rows:
        row["distance"] = float(np.linalg.norm(row.pop("theta") - reference) / np.linalg.norm(reference))
        row["ratio"] = rows[0]["seconds"] / row["seconds"]
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    from pairrank.lab.report import tables  # not in the processes whose memory is measured

    columns = {"engine": "", "seconds": ".1f", "ratio": ".2f", "cpu": ".0f", "passes": "", "driver_mib": ".0f"}
    columns |= {"worker_mib": ".0f", "load": ".1f", "distance": ".1e"}
    lines = [[format(row[name], how) for name, how in columns.items()] for row in rows]
    print(tables.as_text(list(columns), lines, right=True))


if __name__ == "__main__":
    main()
