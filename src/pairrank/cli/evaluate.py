"""``pairrank evaluate``: what another order would have got, from a store's log."""

from __future__ import annotations

import argparse
import json

from pairrank.service.evaluation import METRICS, evaluate


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Estimate from the log of a ranker that explores what another order would have got in its place, with "
        "intervals, and say where the log cannot tell. The service may be running. Lists are logged with all of their "
        "candidates from when on the ranker's limit keep_candidates is set."
    )
    parser.add_argument("store", metavar="STORE", help="sqlite:///FILE, a path, or postgresql://…")
    parser.add_argument("--ranker", metavar="NAME", help="whose log (where the store holds more than one ranker)")
    parser.add_argument("--against", default="as-sent", metavar="ORDER", help="as-sent, a version, or another ranker")
    parser.add_argument(
        "--metric", choices=METRICS, default="clicks", help="per list (clicks); interleaved: against the ranker's own"
    )
    parser.add_argument("--positions", type=int, default=10, metavar="N", help="from the top that count (10)")
    parser.add_argument("--level", type=float, default=0.05, help="of the intervals (0.05)")
    parser.add_argument("--json", action="store_true", help="answer as JSON")


def run(args: argparse.Namespace) -> None:
    asked = {name: getattr(args, name) for name in ("ranker", "against", "metric", "positions", "level")}
    found = evaluate(args.store, **asked)
    if args.json:
        print(json.dumps(found.to_json()))
        return
    print(f"{found.metric} per list, first {found.positions} positions, {found.lists} lists of {found.ranker}")
    other = found.against
    if found.metric == "interleaved":
        other = f"{found.ranker} by score (above zero) against {other}"
    else:
        print(f"{found.ranker} as shown: {found.value:.4f} ({found.interval[0]:.4f} to {found.interval[1]:.4f})")
    for estimate in found.estimates:
        low, high = estimate.interval
        print(f"{other}, {estimate.method}: {estimate.value:.4f} ({low:.4f} to {high:.4f})")
    first = found.estimates[0]
    print(f"Worth {first.effective:.0f} lists of that order; tells of {100 * first.told:.0f} % of what it exposes.")
    for why, count in found.left_out.items():
        print(f"Left out: {count} lists {why}.")
    if found.doubt:
        print(f"Doubt: {found.doubt}.")
