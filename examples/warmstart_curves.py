"""Cold, warm and wrongly warm: held-out NDCG@10 over the rounds, as a figure and as JSON.

    python examples/warmstart_curves.py MQ2008 --out docs/images

DATA is a LETOR folder or a ``synthetic:`` name. The warm ranker starts from the labels of the training split, the
wrong one from their opposite; both priors are worth as many pairs of clicks as --strength says.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import pairrank
from pairrank import data, rankers
from pairrank.rankers import priors

RANKER = "pairrank"


def curves(folder: str, strengths: Sequence[float], rounds: int, seeds: int, clicks: str) -> Iterator[dict[str, Any]]:
    """For the cold ranker and every prior: the rounds, and the held-out NDCG@10 there, seed by seed."""
    train, test = data.load(folder, "train", 1), data.load(folder, "test", 1)
    starts: list[tuple[str, priors.Prior | None]] = [("cold", None)]
    for strength in strengths:
        known = priors.from_labels(train.features, train.grades, train.offsets, strength=strength)
        starts += [
            (f"warm, {strength:g} pairs", known),
            (f"wrong, {strength:g} pairs", replace(known, mean=-known.mean)),
        ]
    for name, start in starts:
        runs = []
        for seed in range(seeds):
            ranker = rankers.make(RANKER, n_features=train.n_features, seed=seed)
            if start is not None:
                start.apply(ranker)
            record = pairrank.simulate(
                data=(train, test), ranker=ranker, clicks=clicks, rounds=rounds, seed=seed, panel=0, ideal=""
            )
            runs.append(record.columns["ndcg"])
        at = np.flatnonzero(~np.isnan(runs[0]))
        yield {"name": name, "rounds": (at + 1).tolist(), "ndcg": [run[at].round(4).tolist() for run in runs]}


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Means over the seeds, with the range between them shaded."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "pairrank"  # the same picture gives the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for curve in found:
        values = np.array(curve["ndcg"])
        style = {"cold": ":", "warm": "-", "wrong": "--"}[curve["name"].split(",")[0]]
        (line,) = axes.plot(curve["rounds"], values.mean(axis=0), style, label=curve["name"])
        axes.fill_between(curve["rounds"], values.min(axis=0), values.max(axis=0), color=line.get_color(), alpha=0.15)
    axes.set(xscale="log", xlabel="rounds", ylabel="held-out NDCG@10")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(0.02, 0.28))
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main(argv: Sequence[str] | None = None) -> None:
    """Run, save, print what matters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", metavar="DATA")
    parser.add_argument("--out", default=".", help="folder for warmstart.svg and warmstart.json")
    parser.add_argument("--strength", type=float, nargs="+", default=[300.0])
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--clicks", default="navigational")
    args = parser.parse_args(argv)
    found = list(curves(args.data, args.strength, args.rounds, args.seeds, args.clicks))
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    facts = {"data": Path(args.data).name, "clicks": args.clicks, "seeds": args.seeds, "curves": found}
    (out / "warmstart.json").write_text(json.dumps(facts) + "\n")
    draw(found, out / "warmstart.svg")
    for curve in found:
        means = np.mean(curve["ndcg"], axis=0)
        marks = {
            at: round(float(np.interp(at, curve["rounds"], means)), 4) for at in (1, 50, 100, 300, 1000, args.rounds)
        }
        print(f"{curve['name']:<20} {marks}")


if __name__ == "__main__":
    main()
