"""olRankNet: a neural RankNet that learns online; the gradients of its scores tell which orders it is certain of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from pairrank import threads
from pairrank.checking import check_choice, check_lam, check_number_in, check_whole, import_extra
from pairrank.documents import Features
from pairrank.errors import OptionError
from pairrank.kernel import partition
from pairrank.kernel.pairs import Pairs
from pairrank.rankers.base import Draw, Ranker
from pairrank.rankers.candidates import Known, show
from pairrank.rankers.pairwise import PAIRS, PairKind, preferred
from pairrank.rng import Purpose, generator
from pairrank.state import Growing
from pairrank.types import BoolArray, FloatArray, Impression, Inspection, IntArray


@dataclass(eq=False, kw_only=True)
class OlRankNet(Ranker):
    """A neural RankNet with PairRank's blocks, for comparison; it needs PyTorch (``pairrank[neural]``).

    The network f(x; θ) = √m w·relu(W_L … relu(W_1 (x, 1))) has layers of m units, and starts at a random θ₀ with f = 0
    everywhere. Over all pairs (i before j) that clicks have given so far it minimises

        Σ w_ij log(1 + exp(f_j − f_i)) + m λ/2 ‖θ − θ₀‖²,

    by ``steps`` steps of Adam per learned list, from where the last ones ended. With g_i = ∇f(x_i; θ)/√m, when a list
    is learned, A = λ I + Σ w (g_i − g_j)(g_i − g_j)ᵀ, of which the diagonal is kept; and (i, j) is certain when

        σ(f_i − f_j) − α ‖g_i − g_j‖_{A⁻¹} > ½.

    Blocks and exploration are PairRank's. Features are taken as they come: give it normalised ones, as the laboratory
    does. What it costs: a round of learning passes over all pairs so far, ``steps`` times, so that it grows with the
    rounds; ranking needs one gradient per candidate, as long as θ; and all pairs are kept.

    Reference: Jia and Wang, "Learning Neural Ranking Models Online from Implicit User Feedback", WWW 2022. There
    gradient descent starts anew from θ₀ in every round; the diagonal of A is theirs.

    >>> ranker = OlRankNet(n_features=2, seed=0)
    >>> shown = ranker.rank({"a": [0.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 1.0]})
    >>> ranker.learn(shown, clicks=["c"])
    True

    Parameters
    ----------
    width : m, units per hidden layer, an even number. layers : how many hidden layers.
    alpha : α, the factor of a pair's width; larger is more exploration. This and the next defaults served users best of
        some forty tried on the validation split of MQ2008's first fold, 300 rounds; two seeds each, so roughly.
    lam : λ, the weight of the penalty and the start of A.
    steps, learning_rate : how many steps of Adam per learned list, and how long they are.
    pairs : preferences taken from clicks: "adjacent", "matched", "all", "averaged" or "shown", as in PairRank.
    exploration : "random" shuffles a block (the paper's), "conservative" keeps certain orders inside of it.
    device : "cpu" or "cuda". Bits are the same on one machine and device, not from one to another.
    """

    name: ClassVar[str] = "olranknet"
    any_list: ClassVar[bool] = True
    SAVED: ClassVar[tuple[str, ...]] = ("_theta", "_A", "_winners", "_losers", "_worth")

    width: int = 100
    layers: int = 1
    alpha: float = 0.005
    lam: float = 1.0
    steps: int = 10
    learning_rate: float = 0.001
    pairs: PairKind = "adjacent"
    exploration: Literal["random", "conservative"] = "random"
    device: str = "cpu"

    def _reset(self) -> None:
        torch = import_extra("torch", "neural", "PyTorch")
        check_whole("width", self.width, 2, 100_000)
        if self.width % 2:
            raise OptionError(
                f"width is {self.width}; expected an even number: half of the units mirror the other half"
            )
        check_whole("layers", self.layers, 1, 100)
        check_whole("steps", self.steps, 1, 1_000_000)
        check_number_in("alpha", self.alpha, 0.0, 1e6)
        check_lam(self.lam)
        check_number_in("learning_rate", self.learning_rate, 0.0, 1e6, open_low=True)
        check_choice("pairs", self.pairs, PAIRS)
        check_choice("exploration", self.exploration, ("random", "conservative"))
        if self.device != "cpu" and not (self.device.startswith("cuda") and torch.cuda.is_available()):
            raise OptionError(f'device is {self.device!r}; expected "cpu", or "cuda" where PyTorch finds a GPU')
        self._start: FloatArray = self._initial()
        self._theta: FloatArray = self._start
        self._A: FloatArray = np.full(len(self._start), float(self.lam))
        # The pairs so far: the documents' features, (n, d) each, and how much each counts, (n,).
        self._winners, self._losers = (Growing(np.empty((0, self.n_features))) for _ in range(2))
        self._worth = Growing(np.empty(0))

    @property
    def _shapes(self) -> list[tuple[int, int]]:
        """Of the layers' weights, the last one's too."""
        m = self.width
        return [(m, self.n_features + 1), *[(m, m)] * (self.layers - 1), (1, m)]

    def _initial(self) -> FloatArray:
        """θ₀: two networks that are the same but for the sign of their last layer."""
        rng, half = generator(self.seed, 0, Purpose.INIT), self.width // 2
        first, *inner, _ = self._shapes
        parts: list[FloatArray] = [np.tile(2.0 / math.sqrt(self.width) * rng.standard_normal((half, first[1])), (2, 1))]
        for _ in inner:
            block = 2.0 / math.sqrt(self.width) * rng.standard_normal((half, half))
            parts.append(np.asarray(np.kron(np.eye(2), block), dtype=np.float64))
        w = math.sqrt(2.0 / self.width) * rng.standard_normal(half)
        return np.concatenate([part.ravel() for part in (*parts, w, -w)])

    # Ranking.

    def score(self, features: Features) -> FloatArray:
        """(n_docs,), f(x; θ)."""
        X = self.check_features(features)
        with self._turn, threads.single(), self._network() as network:
            return network.scores(self._theta, X)

    def _rank(self, inputs: FloatArray, k: int, rng: np.random.Generator) -> Draw:
        order, _, _, certain = self._compare(inputs)
        return show(Known(order, certain), k, rng, shuffled=self.exploration == "random")

    def _compare(self, X: FloatArray) -> tuple[IntArray, FloatArray, FloatArray, BoolArray]:
        """Rows by falling score; and in that order scores (n,), squared widths and certain orders (n, n)."""
        with self._network() as network:
            scores, G = network.compared(self._theta, self._A, X)
        order = np.argsort(-scores, kind="stable")
        G, own = G[np.ix_(order, order)], np.diagonal(G)[order]
        squared: FloatArray = np.maximum(own[:, None] + own - 2.0 * G, 0.0)
        ranked = scores[order]
        return order, ranked, squared, partition.certain_by_probability(ranked, ranked, squared, self.alpha)

    def inspect(self, features: Features) -> Inspection:
        """What the model is certain of for these candidates: scores, widths, certain pairs, blocks."""
        X = self.check_features(features)
        with self._turn, threads.single():
            order, ranked, squared, certain = self._compare(X)
        back = np.argsort(order)
        width = self.alpha * np.sqrt(squared[np.ix_(back, back)])
        return partition.inspected(ranked[back], order, certain, width, "probability")

    # Learning.

    def _learn(self, impression: Impression, clicks: BoolArray) -> None:
        found = preferred(self.pairs, impression, clicks)
        n = len(found.weight)
        if n == 0:
            return
        X = impression.features
        self._winners.extend(n)[:], self._losers.extend(n)[:] = X[found.winner], X[found.loser]
        self._worth.extend(n)[:] = found.weight
        with self._network() as network:
            self._A = self._A + network.information(self._theta, X, found)
            self._theta = network.trained(
                self._theta, self._start, (self._winners.rows, self._losers.rows, self._worth.rows), self
            )

    def _sound(self) -> bool:
        return bool(np.isfinite(self._theta).all() and np.isfinite(self._A).all())

    @contextmanager
    def _network(self) -> Iterator[_Network]:
        """The network, with one thread of PyTorch's: it would sum in another order with more."""
        torch = import_extra("torch", "neural", "PyTorch")
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield _Network(torch, self._shapes, self.device)
        finally:
            torch.set_num_threads(before)


class _Network:
    """What PyTorch is asked for: scores, their gradients, and steps down the loss. Arrays in, arrays out, float64."""

    def __init__(self, torch: Any, shapes: list[tuple[int, int]], device: str) -> None:
        self._torch, self._shapes, self._device = torch, shapes, device
        self._root = math.sqrt(shapes[0][0])  # √m

    def _tensor(self, array: FloatArray) -> Any:
        return self._torch.tensor(array, dtype=self._torch.float64, device=self._device)

    def _documents(self, X: FloatArray) -> Any:
        """(n, d + 1), with a one beside each document's features."""
        return self._tensor(np.column_stack([X, np.ones(len(X))]))

    def _weights(self, theta: Any) -> list[Any]:
        """θ as the weights of the layers."""
        parts = self._torch.split(theta, [rows * columns for rows, columns in self._shapes])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _forward(self, theta: Any, X: Any) -> Any:
        """(n,), f of documents (n, d + 1)."""
        *hidden, last = self._weights(theta)
        for W in hidden:
            X = self._torch.relu(X @ W.T)
        return self._root * (X @ last[0])

    def scores(self, theta: FloatArray, X: FloatArray) -> FloatArray:
        """(n,), f(x; θ)."""
        with self._torch.no_grad():
            return np.asarray(self._forward(self._tensor(theta), self._documents(X)).cpu())

    def compared(self, theta: FloatArray, A: FloatArray, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """f(x; θ), (n,), and g A⁻¹ gᵀ, (n, n)."""
        value, g = self._tangents(theta, X)
        g /= self._tensor(A).sqrt()
        return np.asarray(value.cpu()), np.asarray((g @ g.T).cpu())

    def information(self, theta: FloatArray, X: FloatArray, found: Pairs) -> FloatArray:
        """(p,), what pairs of X's rows add to the diagonal of A: Σ w (g_i − g_j)²."""
        _, g = self._tangents(theta, X)
        winner, loser = (self._torch.tensor(rows, device=self._device) for rows in (found.winner, found.loser))
        return np.asarray((self._tensor(found.weight) @ (g[winner] - g[loser]) ** 2).cpu())

    def _tangents(self, theta: FloatArray, X: FloatArray) -> tuple[Any, Any]:
        """f(x; θ), (n,), and g = ∇f(x; θ)/√m, (n, p), by one pass back for all documents."""
        torch = self._torch
        with torch.no_grad():
            weights = self._weights(self._tensor(theta))
            layers = [self._documents(X)]
            for W in weights[:-1]:
                layers.append(torch.relu(layers[-1] @ W.T))
            value = self._root * (layers[-1] @ weights[-1].T)
            slopes, slope = [], torch.ones_like(value)  # ∂(f/√m) by what enters each layer's activation, the last first
            for W, below in zip(reversed(weights), reversed(layers), strict=True):
                slopes.append((slope[:, :, None] * below[:, None, :]).flatten(1))
                slope = (slope @ W) * (below > 0)
            return value[:, 0], torch.cat(slopes[::-1], dim=1)

    def trained(
        self, theta: FloatArray, start: FloatArray, pairs: tuple[FloatArray, FloatArray, FloatArray], ranker: OlRankNet
    ) -> FloatArray:
        """θ after some steps of Adam down the loss, over the pairs' total worth: so that steps need not be shorter."""
        torch = self._torch
        winners, losers, worth = self._documents(pairs[0]), self._documents(pairs[1]), self._tensor(pairs[2])
        model, centre = self._tensor(theta).requires_grad_(), self._tensor(start)
        descent = torch.optim.Adam([model], lr=ranker.learning_rate)
        share = ranker.width * ranker.lam / 2 / float(pairs[2].sum())
        for _ in range(ranker.steps):
            descent.zero_grad()
            gap = self._forward(model, losers) - self._forward(model, winners)
            loss = (worth * torch.nn.functional.softplus(gap)).sum() / worth.sum()
            (loss + share * ((model - centre) ** 2).sum()).backward()
            descent.step()
        return np.asarray(model.detach().cpu())
