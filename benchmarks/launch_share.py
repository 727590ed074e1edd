"""Do several workers together stay within what a guarded launch allows? A real service, from standstill to full speed.

No list comes back, so the worst is assumed of all of them: at every list that might be ours, the sum of shares so far
must be at most margin × lists less the bound's own start.

    python benchmarks/launch_share.py [--workers 2] [--lists 3000]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from pairrank.client import Client
from pairrank.service.store import open_store
from pairrank.trials.launch import Guard, Launch

PORT, MARGIN, THREADS = 18733, 0.3, 6
DOCUMENTS = {f"d{i}": [i / 5, 1 - i / 5] for i in range(5)}


def rank(lists: int) -> None:
    """Ask for lists, one after the other."""
    with Client(f"http://127.0.0.1:{PORT}") as client:
        for _ in range(lists):
            client.rank("a", DOCUMENTS, k=3)


def main() -> None:
    """Serve, rank, look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lists", type=int, default=3000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'store.db'}"
        command = [sys.executable, "-m", "pairrank", "serve", "--store", store, "--port", str(PORT)]
        server = subprocess.Popen([*command, "--workers", str(args.workers)], stderr=subprocess.DEVNULL)
        try:
            with Client(f"http://127.0.0.1:{PORT}", retries=50) as client:
                client.create("a", 2)
                client.launch("a", "guarded", margin=MARGIN)
            threads = [threading.Thread(target=rank, args=(args.lists // THREADS,)) for _ in range(THREADS)]
            started = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.monotonic() - started
        finally:
            server.terminate()
            server.wait(30)
        opened = open_store(store)
        shares = [share for (share,) in opened.database.all("SELECT share FROM impressions ORDER BY created, number")]
        opened.close()
    start = Launch(Guard(MARGIN), "guarded").loss_bound
    total, nearest = 0.0, float("inf")
    for number, share in enumerate(shares, 1):
        total += share
        if share > 0:
            nearest = min(nearest, MARGIN * number - start - total)
    rate = len(shares) / seconds
    print(
        f"{len(shares)} lists at {rate:.0f} per second; shares sum to {total:.1f} of {MARGIN * len(shares) - start:.1f}"
    )
    print(f"nearest to what is allowed: {nearest:.2f} lists {'below' if nearest >= 0 else 'BEYOND'}")


if __name__ == "__main__":
    main()
