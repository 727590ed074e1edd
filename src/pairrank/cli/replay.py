"""``pairrank replay``: build the models of a store again from its log, and compare."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from dataclasses import asdict

from pairrank import threads
from pairrank.service.learning.replay import Replay, replay
from pairrank.service.store import open_store


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Build every model of a store again from its log alone and compare it, bit for bit, with the one "
        "that is stored. Exit code 0: the same; 1: not the same. The service may be running."
    )
    parser.add_argument("store", metavar="STORE", help="sqlite:///FILE, a path, or postgresql://…")
    parser.add_argument("--ranker", metavar="NAME", help="this ranker only")
    parser.add_argument("--json", action="store_true", help="answer as JSON")


def run(args: argparse.Namespace) -> int:
    # One moment of the store, also while the service runs; one thread, as the learner: the same sums in one order.
    with closing(open_store(args.store, create=False)) as store, store.database.snapshot(), threads.single():
        results = [replay(store, row) for row in store.chosen(args.ranker)]
    if args.json:
        print(json.dumps([asdict(result) | {"same": result.same} for result in results]))
    else:
        for result in results:
            word = "the same" if result.same else f"NOT THE SAME: {_differs(result)}"
            print(
                f"{result.name}: {result.entries} entries, version {result.version}, digest {result.stored[:16]}, "
                f"{word} ({result.versions_checked} versions checked, {result.pending} entries pending, "
                f"{len(result.set_aside)} set aside)"
            )
        if not all(result.same for result in results):
            print(
                "What another version of PairRank or another machine has learned may differ. If that is all, pairrank "
                "store compact makes the newest models the new beginning."
            )
        if not results:
            print("The store has no rankers.")
    return 0 if all(result.same for result in results) else 1


def _differs(result: Replay) -> str:
    """What is not as the log gives it: the model may be, where a version on the way is not."""
    told = {
        f"{result.replayed[:16]} from the log": result.stored != result.replayed,
        f"kept versions {', '.join(map(str, result.wrong_versions))}": result.wrong_versions,
        f"what was counted for {', '.join(result.wrong_trials)}": result.wrong_trials,
        "what was set aside": result.set_aside != result.set_aside_stored,
    }
    return "; ".join(text for text, wrong in told.items() if wrong)
