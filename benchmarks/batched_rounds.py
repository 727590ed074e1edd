"""Would a GPU make the laboratory quicker? Many runs of `pairrank` as one array program, against two cores.

By hand, with PyTorch: ``python benchmarks/batched_rounds.py --device cuda`` (or ``cpu``). It prints the rounds per
second of the laboratory, then of the array program with so many runs at once, and what both learned (NDCG@10 of the
lists themselves), which must agree. The array program is the default ranker: conservative draws, pairs of what was
shown, a weight for position, each list's Newton steps, passes over the whole history and Hessians made afresh. It is
spared what the laboratory does beside: units from the first lists (here from all lists, beforehand), the same coins
for all rankers, regret, evaluations on a schedule and checkpoints. docs/performance.md has the figures.
"""

from __future__ import annotations

import argparse
import math
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from multiprocessing import get_context

import numpy as np
import torch
from torch import Tensor

from pairrank import click_models, data, simulate
from pairrank.data.dataset import Dataset
from pairrank.kernel import jit
from pairrank.lab.experiment import SCHEDULE, USERS
from pairrank.lab.paper import RANKERS
from pairrank.metrics import NDCG

SHAPES = {"46x40": (46, 20, 40), "136x100": (136, 120, 100)}  # features, documents of a list in the mean and at most
K, Z, STRENGTH, STEPS = 10, 0.2, 3.0, 4  # shown; widths; λ per feature; Newton steps for a list
REFRESH, GROWTH = 50, 1.25  # rounds between passes over the history; its growth between Hessians made afresh
PIECE = 2**27  # numbers of the history that are taken at a time


def lists(shape: str) -> Dataset:
    """The training lists of a synthetic set, cut to the shape's most documents."""
    d, mean, most = SHAPES[shape]
    whole = data.load(f"synthetic:linear(queries=800, docs={mean}, features={d}, noise=1)", "train")
    kept = np.concatenate([np.arange(a, min(b, a + most)) for a, b in pairwise(whole.offsets)])
    offsets = np.append(0, np.minimum(np.diff(whole.offsets), most).cumsum())
    return Dataset(whole.features[kept], whole.grades[kept], offsets, whole.query_ids, whole.feature_ids, scale=5)


class Runs:
    """R runs side by side: θ (R, d + 1), H⁻¹ (R, d + 1, d + 1), and every list that was shown, with its pairs."""

    def __init__(self, train: Dataset, n_runs: int, rounds: int, device: str, dtype: torch.dtype) -> None:
        n, d = int(np.diff(train.offsets).max()), train.n_features
        X, grades = np.zeros((train.n_queries, n, d)), np.full((train.n_queries, n), -1)
        spread = np.zeros(d)
        for q, (features, own) in enumerate(train.queries()):
            X[q, : len(own)] = features - features.mean(axis=0, dtype=np.float64)
            grades[q, : len(own)] = own
            spread += 2.0 / (len(own) - 1) * np.square(X[q]).sum(axis=0) / train.n_queries
        new = partial(torch.zeros, device=device, dtype=dtype)
        self.X = torch.tensor(X / np.sqrt(spread), device=device, dtype=dtype)
        self.grades = torch.tensor(grades, device=device)
        users = [click_models.make(USERS[r % len(USERS)], n_grades=5) for r in range(n_runs)]
        self.table = torch.tensor([(u.click, u.stop_after) for u in users], device=device, dtype=dtype)  # (R, 2, 5)
        self.prior = torch.tensor([STRENGTH * d] * d + [1.0], device=device, dtype=dtype)
        self.theta, self.inverse = new(n_runs, d + 1), torch.diag(1 / self.prior).repeat(n_runs, 1, 1)
        self.position = -torch.log1p(torch.arange(K, device=device, dtype=dtype))
        self.shown = torch.zeros(n_runs, rounds, K, device=device, dtype=torch.int64)
        self.weights = new(n_runs, rounds, K, K)
        self.t = torch.zeros(1, device=device, dtype=torch.int64)
        self.eye, self.places = torch.eye(K, device=device, dtype=dtype), torch.arange(K, device=device)
        self.uniform = partial(torch.rand, device=device, dtype=dtype)

    def round(self) -> None:
        """A query for every run, its list, the clicks, and what is learned of them."""
        R, (n_queries, n, d) = len(self.theta), self.X.shape
        query = torch.randint(n_queries, (R,), device=self.X.device)
        X, grades = self.X[query], self.grades[query]
        scores = torch.where(grades >= 0, (X @ self.theta[:, :d, None])[..., 0], -math.inf)
        G = X @ self.inverse[:, :d, :d] @ X.mT
        own = G.diagonal(dim1=1, dim2=2)
        gap = scores[:, :, None] - scores[:, None]  # NaN between two places that are empty: never certain
        certain = (gap > 0) & (gap**2 > Z**2 * (own[:, :, None] + own[:, None] - 2 * G))
        # Position by position a document without a certain predecessor left, by the smallest of new keys.
        waiting, keys, drawn = certain.sum(1, dtype=torch.int32), self.uniform(R, K, n), []
        for place in range(K):
            free = torch.where(waiting <= 0, keys[:, place], 2.0)
            drawn.append(free.argmin(1, keepdim=True))
            waiting -= certain.gather(1, drawn[-1][..., None].expand(-1, 1, n))[:, 0].int()
            waiting.scatter_(1, drawn[-1], 2**20)
        shown = torch.cat(drawn, 1)
        grade = grades.gather(1, shown)
        weights = self.pairs(self.clicks(grade), grade >= 0)
        shown += n * query[:, None]
        self.shown.index_copy_(1, self.t, shown[:, None])
        self.weights.index_copy_(1, self.t, weights[:, None])
        self.learn(self.design(shown), weights)
        self.t += 1

    def clicks(self, grades: Tensor) -> Tensor:
        """(R, K), by the users' table: whom they click, until they stop."""
        chance = self.table.gather(2, grades.clamp(min=0)[:, None].expand(-1, 2, -1))
        coins = self.uniform(chance.shape) < chance
        clicked, stops = coins[:, 0] & (grades >= 0), coins.all(1) & (grades >= 0)
        return clicked & (stops.cumsum(1) - stops.to(torch.int64) == 0)

    def pairs(self, clicks: Tensor, there: Tensor) -> Tensor:
        """(R, K, K), the weight of each clicked document's preference over each other, as `kernel.pairs.shown`."""
        at = torch.where(clicks, self.places, -1)
        last = at.amax(1, keepdim=True)
        before = torch.where(at == last, -1, at).amax(1, keepdim=True)
        other = torch.where(self.places == last, before, last)  # the last click but the winner's own
        n = clicks.sum(1)[:, None, None]
        seen = torch.maximum(other[:, :, None], torch.maximum(self.places[:, None], self.places)) + 1
        taken = clicks[:, :, None] & (there & ~clicks)[:, None]
        return taken / torch.maximum(n, seen - n).clamp(min=1).to(self.theta.dtype)

    def design(self, shown: Tensor) -> Tensor:
        """(..., K, d + 1), inputs of documents and their positions."""
        return torch.cat([self.X.flatten(0, 1)[shown], self.position.expand(shown.shape)[..., None]], -1)

    def learn(self, D: Tensor, weights: Tensor) -> None:
        """Take in one list per run exactly against the quadratic model of all before, as `kernel.list_newton`."""
        V = D @ self.inverse
        K_, start = V @ D.mT, (D @ self.theta[..., None])[..., 0]
        scores = start
        for _ in range(STEPS):
            b, L = forces(scores, weights)
            solved = torch.linalg.inv_ex(self.eye + K_ @ L)[0]
            step = (solved @ (start + (K_ @ b[..., None])[..., 0] - scores)[..., None])[..., 0]
            size = step.abs().amax(1, keepdim=True).clamp(min=1e-6)
            scores = scores + step * torch.where(size > 1, torch.log1p(size) / size, 1.0)
        b = b - (L @ step[..., None])[..., 0]
        self.theta += (V.mT @ b[..., None])[..., 0]
        self.inverse -= V.mT @ (L @ solved @ V)

    def look_back(self, t: int, afresh: bool) -> None:
        """Two steps of θ̂ by the gradient of the first ``t`` lists; before them H⁻¹ ``afresh`` from these, if asked."""
        R, d = self.theta.shape
        for step in range(2):
            gradient, rebuild = self.prior * self.theta, afresh and step == 0
            H = torch.diag(self.prior).repeat(R, 1, 1)
            width = max(1, PIECE // (R * K * d))
            for piece in (slice(i, min(i + width, t)) for i in range(0, t, width)):
                D = self.design(self.shown[:, piece])
                b, L = forces((D @ self.theta[:, None, :, None])[..., 0], self.weights[:, piece])
                rows = D.flatten(1, 2)
                gradient -= (b.flatten(1)[:, None] @ rows)[:, 0]
                if rebuild:
                    H += rows.mT @ (L @ D).flatten(1, 2)
            if rebuild:
                self.inverse.copy_(torch.linalg.inv_ex(H)[0])
            self.theta -= (self.inverse @ gradient[..., None])[..., 0]


def forces(scores: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The pull at each document (..., K), and the Laplacian of the pairs' curvature (..., K, K)."""
    doubt = torch.sigmoid(scores[..., None, :] - scores[..., None])
    force = weights * doubt
    stiffness = force * doubt.mT
    stiffness = stiffness + stiffness.mT
    return force.sum(-1) - force.sum(-2), torch.diag_embed(stiffness.sum(-1)) - stiffness


def array_program(train: Dataset, n_runs: int, rounds: int, device: str, dtype: torch.dtype) -> tuple[float, float]:
    """Seconds of ``n_runs`` runs at once, and the NDCG that they reach."""
    began, due = time.perf_counter(), 0.0
    runs = Runs(train, n_runs, rounds, device, dtype)
    play = runs.round
    if device == "cuda":  # one launch per round instead of hundreds
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            runs.round()
        play = graph.replay
    for t in range(1, rounds + 1):
        play()
        if t % REFRESH == 0 or t in (10, 20):
            runs.look_back(t, t >= due)
            due = GROWTH * t if t >= due else due
    scores = (runs.X[runs.grades >= 0] @ runs.theta[:, :-1].T).cpu().numpy()  # waits for the device
    seconds, measure = time.perf_counter() - began, NDCG(train.grades, train.offsets)
    return seconds, float(np.mean([measure.mean(own) for own in scores.T]))


def laboratory(train: Dataset, rounds: int, ranker: str, run: int) -> tuple[float, float, float]:
    """One run of the laboratory: CPU seconds, those of them that are not evaluation, and the NDCG that it reaches."""
    user, seed = USERS[run % len(USERS)], run // len(USERS)
    began = time.process_time()
    records = simulate(train, ranker=ranker, clicks=user, rounds=rounds, seed=seed, schedule=SCHEDULE, ideal="")
    taken = time.process_time() - began
    share = records.seconds["evaluate"] / sum(records.seconds.values())
    return taken, (1 - share) * taken, float(records.columns["ndcg"][-1])


def main() -> None:
    """Print the laboratory's rounds per second by ranker, the array program's by runs, and what a study would take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--shape", default="46x40", choices=list(SHAPES))
    parser.add_argument("--runs", type=int, nargs="+", default=[60, 180, 1000])
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--rankers", nargs="+", default=list(RANKERS), help="of the laboratory, pairrank among them")
    parser.add_argument("--seeds", type=int, default=2, help="of the laboratory's runs, for each of three users")
    args = parser.parse_args()
    train, rounds, program = lists(args.shape), args.rounds, (args.device, getattr(torch, args.dtype))
    study: dict[str, float] = {}  # seconds of sixty runs on two cores
    jit.load()
    with ProcessPoolExecutor(2, get_context("fork")) as cores:
        for ranker in args.rankers:
            list(cores.map(partial(laboratory, train, 200, ranker), range(2)))  # what a process does only once
            runs = list(cores.map(partial(laboratory, train, rounds, ranker), range(args.seeds * len(USERS))))
            whole, bare, ndcg = np.mean(runs, axis=0)
            study[ranker] = 60 * whole / 2
            rates = f"{2 * rounds / whole:,.0f} rounds per second, {2 * rounds / bare:,.0f} without evaluation"
            print(f"laboratory, two cores, {ranker}: {rates}; NDCG {ndcg:.3f}", flush=True)
            if ranker == "pairrank":
                rate = 2 * rounds / bare
    first = Runs(train, args.runs[0], 1, *program)  # the libraries' start
    first.round()
    first.look_back(1, True)
    sixty: list[float] = []
    for n_runs in args.runs:
        seconds, ndcg = array_program(train, n_runs, rounds, *program)
        sixty.append(seconds * 60 / n_runs)
        speed = n_runs * rounds / seconds
        print(
            f"array program, {args.device}, {args.dtype}, {n_runs:,} runs: {speed:,.0f} rounds per second, "
            f"{speed / rate:.1f} times two cores; NDCG {ndcg:.3f}",
            flush=True,
        )
    times = sorted(study.values(), reverse=True)
    gains = [sum(times) / (n * sixty[0] + sum(times[n:])) for n in range(1, len(times) + 1)]
    print(
        f"60 runs of each ranker: {sum(times):,.0f} s on two cores; with pairrank as an array program "
        f"{sum(times) / (sum(times) - study['pairrank'] + sixty[0]):.2f} times as quick; if the dearest one, two, ... "
        f"were array programs of this speed: {', '.join(f'{gain:.1f}' for gain in gains)} times"
    )


if __name__ == "__main__":
    with torch.inference_mode():
        main()
