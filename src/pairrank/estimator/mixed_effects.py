"""A line, and for every document of a list that is known an effect of its own: s = x·θ + b with b ~ N(0, τ²).

Of each list q the clicks are kept as weights between its documents. At the b_q that is best for a φ (θ, and β of the
position) its loss is a quadratic in φ; with L the Laplacian of w σ' between the documents, G = [L X, ℓ] (ℓ: L's weights
times the pairs' position columns), C = [X, ·]ᵀ of these and V = (I/τ² + L)⁻¹, by Schur's complement

    S_q = C - GᵀVG,    b_q(φ) = centre_q - VGφ,    φ̂ = A⁻¹r,  A = P + Σ S_q,  r = Σ r_q.

What a list tells of φ is bounded, however often it comes: XᵀLVX/τ² ≤ XᵀX/τ². The rest it tells of its own documents.
A list is looked at anew when it is learned from, and with each list that is learned some others are, in turn: no pause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from pairrank.kernel.logistic import sigmoid
from pairrank.kernel.pairs import Pairs, laplacian
from pairrank.state import Saved
from pairrank.types import AnyArray, FloatArray, IntArray

# Lists that are looked at anew with each one that is learned, and Newton's steps for that one; it is near enough when a
# step is this long in the norm of A.
LOOKS = 2
STEPS, CLOSE = 4, 0.02
# No document's effect moves further than this in one step.
FAR = 2.0
# τ at the start, what that counts in documents, and the largest variance.
TAU, COUNTS, LARGEST = 0.3, 20.0, 9.0


class Known(NamedTuple):
    """What was learned of a list, and its quadratic model where it was last looked at.

    Attributes
    ----------
    origin : (d,), what inputs are counted from, in their own units. documents : (m,), names of those that were shown.
    X : (m, d), their inputs, float32.
    won : (2, m, m), the weight of i's preferences over j, shown above it and below. column : (2, m, m), the mean of
        these pairs' position columns. (Of both together it would be above zero, and β without bounds.)
    L : (m, m). tilt : (m,), ℓ. bend : the position's part of C. b, centre : (m,). pull : (d + 1,), r_q.
    variance : the τ² of that time. determined : how many of the m effects the clicks determine.
    learned : how many lists had been learned when it last was.
    """

    origin: FloatArray
    documents: AnyArray
    X: AnyArray
    won: FloatArray
    column: FloatArray
    L: FloatArray
    tilt: FloatArray
    bend: float
    b: FloatArray
    centre: FloatArray
    pull: FloatArray
    variance: float = TAU**2
    determined: float = 0.0
    learned: int = 0

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """V (m, m), how uncertain the documents' effects are where φ is known, and VG (m, d + 1), how they follow φ."""
        V = np.linalg.inv(np.eye(len(self.b)) / self.variance + self.L).astype(np.float64, copy=False)
        return V, V @ self._follows

    @property
    def _follows(self) -> FloatArray:
        """G, (m, d + 1)."""
        return np.column_stack([self.L @ self.X, self.tilt])

    def information(self) -> FloatArray:
        """S_q, (d + 1, d + 1)."""
        return self._information(self.effects()[1])

    def _information(self, VG: FloatArray) -> FloatArray:
        G = self._follows
        S: FloatArray = np.vstack([self.X.T @ G, np.append(self.tilt @ self.X, self.bend)]) - G.T @ VG
        return S

    def grown(self, documents: AnyArray, X: AnyArray) -> Known:
        """With more ``documents`` (n,), of inputs X (n, d), of which nothing is known."""
        more, none = (0, len(documents)), (0, 0)
        return self._replace(
            documents=np.append(self.documents, documents),
            X=np.concatenate([self.X, X]),
            tilt=np.pad(self.tilt, more),
            b=np.pad(self.b, more),
            centre=np.pad(self.centre, more),
            L=np.pad(self.L, (more, more)),
            won=np.pad(self.won, (none, more, more)),
            column=np.pad(self.column, (none, more, more)),
        )

    def taught(self, places: IntArray, pairs: Pairs, columns: FloatArray) -> Known:
        """With the ``pairs`` of a list shown: the documents at ``places`` (k,), and its position ``columns`` (k,)."""
        won, total = self.won.copy(), self.won * self.column
        cells = (pairs.winner > pairs.loser).astype(np.int64), places[pairs.winner], places[pairs.loser]
        np.add.at(won, cells, pairs.weight)
        np.add.at(total, cells, pairs.weight * (columns[pairs.winner] - columns[pairs.loser]))
        return self._replace(won=won, column=np.divide(total, won, out=total, where=won > 0.0))

    def looked_at(self, phi: FloatArray, variance: float) -> tuple[Known, FloatArray]:
        """With its model at φ (d + 1,) and at the b that is best for it, by one step of Newton's; and its S_q."""
        new, force, unspent = self._at(phi, self.b, variance)
        step = np.linalg.solve(np.eye(len(self.b)) / variance + new.L, unspent)
        b = self.b - step * min(1.0, FAR / max(float(np.abs(step).max()), 1e-300))
        new, force, unspent = new._at(phi, b, variance)
        V, VG = new.effects()
        S, step = new._information(VG), V @ unspent
        gradient = np.append((unspent - b / variance) @ self.X, -(force * self.column).sum()) - step @ new._follows
        b = b - step
        free = float(np.trace(V)) / variance
        return new._replace(b=b, centre=b + VG @ phi, pull=S @ phi - gradient, determined=len(b) - free), S

    def _at(self, phi: FloatArray, b: FloatArray, variance: float) -> tuple[Known, FloatArray, FloatArray]:
        """With its curvature at φ and b; the forces of its pairs (2, m, m); and the gradient in b (m,)."""
        s = self.X @ phi[:-1] + b
        doubt = sigmoid(s - s[:, None] - phi[-1] * self.column)  # that i belongs before j
        force = self.won * doubt
        stiffness = force * (1.0 - doubt)
        tilted, net = (stiffness * self.column).sum(axis=0), force.sum(axis=0)
        return (
            self._replace(
                L=laplacian(stiffness.sum(axis=0)),
                tilt=tilted.sum(axis=1) - tilted.sum(axis=0),
                bend=float((stiffness * self.column**2).sum()),
                variance=variance,
            ),
            force,
            b / variance - (net.sum(axis=1) - net.sum(axis=0)),
        )


class MixedEffects(Saved):
    """φ̂, A and the lists that are known.

    Parameters
    ----------
    precision : (d + 1,), P's diagonal.
    room : documents of known lists that are kept. Beyond it the list that was learned from longest ago is given up, and
        what it told of φ stays.
    furthest : no document counts as further than this from the first one of its list, in any input.
    """

    SAVED: ClassVar[tuple[str, ...]] = ("phi", "A", "r", "variance", "n_lists", "_turns")

    def __init__(self, precision: FloatArray, *, room: int, furthest: float) -> None:
        self.phi, self.A, self.r = np.zeros(len(precision)), np.diag(precision), np.zeros(len(precision))
        self.variance, self.n_lists, self._room, self._furthest = TAU**2, 0, room, furthest
        self._turns = 0  # looks until all lists have been looked at with this τ²
        # By name, those first that were looked at longest ago.
        self.lists: Mapping[int, Known] = {}

    def unknown(self) -> Known:
        """A list of which no document was shown."""
        square, cube, none, d = np.empty((0, 0)), np.empty((2, 0, 0)), np.empty(0), len(self.phi) - 1
        rows, names = np.empty((0, d), dtype=np.float32), np.empty(0, dtype=np.uint64)
        return Known(np.zeros(d), names, rows, cube, cube, square, none, 0.0, none, none, np.zeros(d + 1))

    def learn(
        self, name: int, documents: AnyArray, raw: FloatArray, unit: FloatArray, pairs: Pairs, columns: FloatArray
    ) -> None:
        """Take the ``pairs`` of a list: of ``documents`` (k,), with position ``columns`` (k,).

        Inputs come ``raw`` (k, d), and are seen in units (d,): one that has not varied yet may get another unit.
        """
        lists = dict(self.lists)
        known = lists.pop(name, None)
        A, r = self.A, self.r
        if known is None:
            known = self.unknown()._replace(origin=raw[0])
        else:
            A, r = A - known.information(), r - known.pull
        X = np.clip((raw - known.origin) / unit, -self._furthest, self._furthest)
        _, first = np.unique(documents, return_index=True)
        new = np.array([place for place in np.sort(first) if documents[place] not in known.documents], dtype=np.int64)
        known = known.grown(documents[new], X[new].astype(np.float32))
        places = np.argmax(known.documents == documents[:, None], axis=1)
        self.n_lists += 1
        known = known.taught(places, pairs, columns)._replace(learned=self.n_lists)
        for _ in range(STEPS):
            known, S = known.looked_at(self.phi, self.variance)
            self.A, self.r, before = A + S, r + known.pull, self.phi
            self._solve()
            move = self.phi - before
            if move @ self.A @ move < CLOSE**2:
                break
        for other in [*lists][:LOOKS]:
            old = lists.pop(other)
            lists[other], S = old.looked_at(self.phi, self.variance)
            self.A = self.A + (S - old.information())
            self.r = self.r + (lists[other].pull - old.pull)
        lists[name] = known
        while sum(len(one.documents) for one in lists.values()) > self._room and len(lists) > 1:
            del lists[min(lists, key=lambda one: lists[one].learned)]
        self.lists = lists
        self._solve()
        self._turns -= LOOKS
        if self._turns <= 0:
            self._turns, self.variance = len(lists), self._best_variance()

    def _solve(self) -> None:
        # What is not finite is found where a ranker has learned.
        self.phi = cho_solve(cho_factor(self.A, check_finite=False), self.r, check_finite=False)

    def _best_variance(self) -> float:
        """τ² by MacKay's step to the most evidence: Σ b² over how many of the effects the clicks determine."""
        size = COUNTS * TAU**2 + sum(float(known.b @ known.b) for known in self.lists.values())
        return min(size / (COUNTS + sum(known.determined for known in self.lists.values())), LARGEST)

    def packed(self) -> dict[str, AnyArray]:
        """The lists as arrays by name."""
        lists = list(self.lists.values()) or [self.unknown()]
        told = {name: np.concatenate([np.ravel(getattr(one, name)) for one in lists]) for name in Known._fields}
        return told | {
            "names": np.array([*self.lists], dtype=np.uint64),
            "sizes": np.array([len(one.L) for one in lists]),
        }

    def unpack(self, told: Mapping[str, AnyArray]) -> None:
        """Take over what `packed` gave."""
        d, lists, at = len(self.phi) - 1, {}, dict.fromkeys(Known._fields, 0)
        for name, m in zip(told["names"].tolist(), told["sizes"].tolist(), strict=False):
            shapes = self.unknown().grown(np.zeros(m, dtype=np.uint64), np.empty((m, d), dtype=np.float32))
            parts: dict[str, Any] = {}
            for field, like in shapes._asdict().items():
                size, start = np.size(like), at[field]
                part = told[field][start : start + size]
                parts[field] = part.reshape(like.shape).copy() if isinstance(like, np.ndarray) else type(like)(part[0])
                at[field] = start + size
            lists[name] = Known(**parts)
        self.lists = lists
