"""``pairrank bench``: how fast it is here, as ratios within one run."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from pairrank import bench, threads
from pairrank.bench import CLOCK, Row, serve
from pairrank.errors import OptionError
from pairrank.kernel import jit
from pairrank.lab.report import tables
from pairrank.version import __version__

_EPILOG = """\
benchmarks:
  round      rank + learn over the two matrix products that a round must pay
  streams    unlike clicks and queries: over the floor early and late, and the longest round
  many       10,000 candidates: time over one product, memory over the candidates' size
  exactness  how far θ̂ strays from the exact minimiser
  units      features in raw units against the same features in units of one
  additive   a round of model="additive" against a linear one
  whole-run  a simulation of 5,000 rounds, by phase
  parsing    LETOR text against scikit-learn; memory; opening the cache
  sweep      two processes against one
  baselines  the other rankers, as in round
  serve      (pairrank bench serve) the service under load

Every figure is a ratio of two measurements taken turn by turn in one process, with its quartiles. All but sweep and
serve use one thread for matrix products. A full run takes about a quarter of an hour, --quick some twenty seconds:
that one shows that everything runs, and its figures mean little. Run it on a machine with nothing else to do.

examples:
  pairrank bench --only round --only streams
  pairrank bench --only streams --until 50000
  pairrank bench --against authors/   their program beside ours, called by authors/against.py
  pairrank bench --markdown >> benchmarks/HISTORY.md
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Measure how fast rankers, parsing and sweeps are on this machine, as ratios within one run."
    parser.epilog = _EPILOG
    parser.add_argument("what", nargs="?", choices=("serve",), help="serve: load the service instead")
    parser.add_argument("--only", action="append", metavar="NAME", help="this benchmark; may be repeated")
    parser.add_argument("--until", type=int, default=0, metavar="ROUND", help="let streams go on to this round")
    parser.add_argument("--against", metavar="FOLDER", help="another program, called by FOLDER/against.py, beside ours")
    parser.add_argument("--quick", action="store_true", help="few repetitions on small inputs")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object: the machine, and a row per figure")
    form.add_argument("--markdown", action="store_true", help="print a section for a history file")


def run(args: argparse.Namespace) -> None:
    if sum(map(bool, (args.what, args.against, args.only or args.until))) > 1:
        raise OptionError("serve, --against and the benchmarks of --only and --until are measured apart; give one")
    machine, rows = _machine(args.quick), []
    if not (args.json or args.markdown):
        print("\n".join(f"{name}: {value}" for name, value in machine.items()), flush=True)
    if args.what == "serve":
        measured = serve.measure(
            [sys.executable, "-m", "pairrank", "serve"], serve.QUICK if args.quick else serve.Load()
        )
    elif args.against:
        measured = bench.against(args.against, quick=args.quick)
    else:
        measured = bench.run(args.only or bench.NAMES, quick=args.quick, until=args.until)
    for row in measured:
        rows.append(row)
        if args.json or args.markdown:
            print(f"{row.benchmark}: {row.case}: {row.value:.3g}", file=sys.stderr, flush=True)
        else:
            print(_line(row), flush=True)
    if args.json:
        print(json.dumps({**machine, "rows": [row.to_json() for row in rows]}, indent=1))
    elif args.markdown:
        print(_section(machine, rows))


def _machine(quick: bool) -> dict[str, Any]:
    """What the figures were taken on."""
    built: Any = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    with threads.single():
        held = threads.counts() == [1] * len(threads.counts()) != []
    return {
        "pairrank": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{built['name']} {built['version']}, {'1 thread' if held else 'threads as the environment has it'}",
        "loops": "compiled by numba" if jit.load() else "array code (pairrank[fast] is not installed)",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "clock": CLOCK,
        "quick": quick,
    }


def _line(row: Row) -> str:
    verdict = {None: "", True: "  kept", False: "  MISSED"}[row.met]
    limit = "" if row.limit is None else f" (limit {'>=' if row.at_least else '<='} {row.limit:g})"
    value = f"{row.value:8.3g} [{row.low:.3g}, {row.high:.3g}]{limit}{verdict}"
    return f"{row.benchmark:<10} {value}  {row.figure}: {row.case}"


def _section(machine: dict[str, Any], rows: Sequence[Row]) -> str:
    """A section of the history file."""
    told = ", ".join(f"{name} {value}" for name, value in machine.items() if name not in ("pairrank", "quick"))
    head = ["benchmark", "case", "figure", "value", "quartiles", "limit", ""]
    lines = []
    for row in rows:
        numbers = [f"{row.value:.3g}", f"{row.low:.3g} to {row.high:.3g}"]
        limit = "" if row.limit is None else f"{'≥' if row.at_least else '≤'} {row.limit:g}"
        met = {None: "", True: "kept", False: "missed"}[row.met]
        lines.append([row.benchmark, row.case, row.figure, *numbers, limit, met])
    title = f"## pairrank {machine['pairrank']}{' (quick)' if machine['quick'] else ''}"
    return f"{title}\n\n{told}\n\n{tables.as_markdown(head, lines)}\n"
