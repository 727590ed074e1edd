"""``pairrank experiment``: start, watch and stop experiments of a running service."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from typing import Any

from pairrank.client import Client
from pairrank.trials.experiment import SIGNALS

URL = "http://127.0.0.1:8000"


def address(parser: argparse.ArgumentParser) -> None:
    """Add where the service is."""
    parser.add_argument("--url", default=URL, help=f"address of the service ({URL})")
    parser.add_argument("--key", default=os.environ.get("PAIRRANK_KEY"), help="access key (PAIRRANK_KEY)")
    parser.add_argument("--json", action="store_true", help="answer as JSON")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Which of two orders do users prefer? Interleaved in one list, or by a split of the clients; effect, interval "
        "and p-value are valid whenever they are looked at."
    )
    acts = parser.add_subparsers(dest="act", metavar="ACT", required=True)
    start = acts.add_parser("start", help="start an experiment; its definition is frozen")
    start.add_argument("name", metavar="NAME")
    start.add_argument("--a", required=True, metavar="ARM", help="a ranker, a version such as shop@1200, or as-sent")
    start.add_argument("--b", required=True, metavar="ARM")
    start.add_argument("--kind", choices=("interleave", "split"), default="interleave")
    start.add_argument("--share", type=float, default=1.0, help="of the clients that take part (1)")
    start.add_argument("--credit", choices=("team", "choice", "exposure"), default="choice")
    start.add_argument(
        "--signals", nargs="+", choices=SIGNALS, default=[], help="events that are counted beside clicks"
    )
    start.add_argument("--ranker", metavar="NAME", help="whose requests take part (the first arm that names one)")
    for name, told in (("show", "what it has shown so far"), ("stop", "take no more lists")):
        acts.add_parser(name, help=told).add_argument("name", metavar="NAME")
    acts.add_parser("list", help="all experiments")
    for act in acts.choices.values():
        address(act)


def run(args: argparse.Namespace) -> None:
    with Client(args.url, key=args.key) as client:
        match args.act:
            case "start":
                more = {name: getattr(args, name) for name in ("kind", "share", "credit", "signals")}
                found = [client.experiment(args.name, args.a, args.b, ranker=args.ranker, **more)]
            case "show":
                found = [client.verdict(args.name)]
            case "stop":
                found = [client.stop_experiment(args.name)]
            case _:
                found = client.experiments()
    if args.json:
        print(json.dumps(found if args.act == "list" else found[0]))
    else:
        print("\n".join(map(told, found)) or "The service has no experiments.")


def told(row: Mapping[str, Any]) -> str:
    """An experiment in a few lines."""
    ended = "" if row["ended"] is None else ", ended"
    lines = [
        f"{row['name']}: {row['a']} (a) against {row['b']} (b), {row['kind']}{ended}",
        *(_signal(name, found, row) for name, found in {"click": row, **row["signals"]}.items()),
    ]
    for name, arms in row["guardrails"].items():
        for arm, found in arms.items():
            low, high = found["interval"]
            lines.append(f"  {name.replace('_', ' ')}, {arm}: {found['share']:.1%} ({low:.1%} to {high:.1%})")
    return "\n".join([*lines, f"  {row['sentence']}"])


def _signal(name: str, found: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    low, high = found["interval"]
    won = f"a won {found['wins_a']} lists, b {found['wins_b']}, neither {found['ties']}"
    if row["kind"] == "split":  # each list is of one arm alone: it has a value, and nobody to win from
        won = f"{row['impressions']} lists"
    effect = f"effect {found['effect']:+.4f} ({low:+.4f} to {high:+.4f}), p = {found['p_value']:.3g}"
    return f"  by {name}: {won}; {effect}: {found['verdict']}"
