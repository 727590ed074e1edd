"""``fit``: the exact minimiser of the paper's loss over logs of any size, by Newton's method in passes.

A pass maps row groups to sums (see `sums`) and adds them up in the order of the logs, whatever the engine, so that all
engines give the same model. Memory holds a batch of lists for each worker and a few (d, d) matrices, never the log.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from pairrank import archive, engines, threads
from pairrank.checking import check_choice, check_lam, check_number_in
from pairrank.documents import Missing
from pairrank.engines import Engine
from pairrank.errors import DataError, LogError, OptionError, PairRankError
from pairrank.estimator import evidence
from pairrank.features import position
from pairrank.features.additive import Additive
from pairrank.features.linear import UNUSUAL, Units
from pairrank.features.spread import STRENGTH, mean_spread, usual, without_far
from pairrank.kernel.confidence import inverse_of
from pairrank.logs import reader
from pairrank.logs.problems import Problems, Progress, Reason
from pairrank.logs.reader import Chunk
from pairrank.logs.sums import KINDS, Compensated, Sums, sums
from pairrank.rankers.priors import Prior
from pairrank.state import restore, state_of
from pairrank.types import BoolArray, FloatArray

# Newton's steps square the error: below this decrement one more step leaves nothing but rounding.
DECREMENT = 1e-7
MAX_PASSES = 60
# A first guess comes from one row group in so many.
SAMPLE = 16
# The pieces of an additive model come from so many lists, or twice as many at most: evenly over the log.
LISTS = 1024
# How often the evidence may set how stiff its functions are; where it does not change its mind, less often.
MAX_BENDS = 4

_NUMBERS = ("loss", "n_lists", "n_pairs", "weight")  # of `Sums`, beside its arrays


class Part(NamedTuple):
    """What one row group answers."""

    sums: Sums
    problems: Problems
    first_time: int
    last_time: int


@dataclass(frozen=True)
class Fit:
    """θ̂ over the logs, and what is known about it.

    theta : (d,), weights of the features, or of an additive model's columns. hessian : (d, d), ∇²L(θ̂) with the
    penalty, less what the bias of position may explain, where it is estimated. M : (d, d), Λ + Σ w x xᵀ. loss : L(θ̂).
    penalty : (d,), λ_f, the diagonal of Λ. weight : Σ w, the number of pairs where every pair weighs 1.
    units : what makes columns of features, with their units.
    """

    theta: FloatArray
    hessian: FloatArray
    M: FloatArray
    loss: float
    penalty: FloatArray
    pairs: str
    n_lists: int
    n_pairs: int
    weight: float
    passes: int
    problems: Problems
    units: Units

    @threads.single()
    def prior(self, strength: float | None = None) -> Prior:
        """What the logs know, for a ranker to begin with; worth all their pairs unless ``strength`` says how many.

        At θ̂ the pairs' gradient is -Λθ̂, so with J = H - Λ a share r of them has its minimum at
        (Λ + rJ)⁻¹ r(J + Λ) θ̂.
        """
        if strength is None:
            return Prior(self.theta, self.hessian, self.M, self.units)
        share = check_number_in("strength", strength, 0.0, 1e12, open_low=True) / self.weight
        penalty = np.diag(self.penalty)
        both = penalty + share * (self.hessian - penalty)
        mean = cho_solve(cho_factor(both), share * (self.hessian @ self.theta))
        return Prior(mean, both, penalty + share * (self.M - penalty), self.units)


def fit(
    paths: Sequence[str],
    *,
    lam: float | None = None,
    pairs: str = "shown",
    model: str = "linear",
    missing: Missing = None,
    engine: str = "serial",
    workers: int | None = None,
    on_error: str = "skip",
    checkpoint: str | None = None,
    progress: Progress | None = None,
) -> Fit:
    """Minimise L(θ) = Σ w log(1 + exp(-x·θ)) + ½ Σ_f λ_f θ_f² over all pairs of the click logs at ``paths``.

    Neither the unit of a feature nor a constant added to it in a list changes any score.

    Parameters
    ----------
    lam : λ_f = lam · E[(x_i - x_j)_f²] over the documents of a list; None is 3d, what a new `PairRank` has.
    pairs : "shown" (a new `PairRank`'s; the bias of position is estimated with θ and then left out, see
        `features.position`), "averaged", "all" or "adjacent" pairs.
    model : "linear", or "additive": pieces between quantiles of about a thousand lists, evenly over the logs, and how
        stiff each function is by the evidence of all of them (`estimator.evidence`).
    missing : what a missing value means, as a ranker's: a number, or "mean" of the list's other documents. None: lists
        with one are bad rows, unless the model is additive.
    engine, workers : "serial", "processes" or "ray"; the model does not depend on it.
    on_error : "skip" leaves bad rows out and counts them, "stop" raises `LogError` at the first.
    checkpoint : a file to write after every pass; if it is there and of the same job, work resumes from it.
    progress : called with what is going on, how many row groups are done, and of how many.
    """
    if lam is not None:
        check_lam(lam)
    check_choice("pairs", pairs, KINDS)
    check_choice("model", model, ("linear", "additive"))
    check_choice("on_error", on_error, ("skip", "stop"))
    problems = Problems()
    chunks = reader.chunks(paths, problems, missing)
    problems.check(on_error)
    units = _units(model, chunks)
    strength = STRENGTH * len(units.values) if lam is None else lam
    job = _Job(chunks, units, strength, pairs, on_error, checkpoint, progress)
    with engines.start(engine, workers) as running:
        return job.run(running, problems)


def validate(
    paths: Sequence[str],
    *,
    model: str = "linear",
    missing: Missing = None,
    engine: str = "serial",
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[Problems, int, int]:
    """Every problem of the click logs at ``paths``, and how many good lists and pairs (``all``) there are.

    NaN is one, but for the ``model`` "additive" or where ``missing`` says what it means.
    """
    problems = Problems()
    if not (chunks := reader.chunks(paths, problems, missing)):
        return problems, 0, 0
    units = _units(model, chunks, otherwise=1)  # without a document any will do to say what is wrong
    job = _Job(chunks, units, progress=progress)
    with engines.start(engine, workers) as running:
        total = job.sweep(running, np.zeros(job.width), problems)
    return problems, total.n_lists, total.n_pairs


def spread(
    paths: Sequence[str],
    *,
    missing: Missing = None,
    engine: str = "serial",
    workers: int | None = None,
    progress: Progress | None = None,
) -> FloatArray:
    """(d,): E[(x_i - x_j)_f²] over the documents of a list, of the click logs at ``paths``."""
    chunks = reader.chunks(paths, Problems(), missing)
    job = _Job(chunks, _units("linear", chunks), progress=progress)
    with engines.start(engine, workers) as running:
        job.look(running)
        total = job.sweep(running, np.zeros(job.width), Problems())
    return mean_spread(total.spread, total.varied)


def _units(model: str, chunks: Sequence[Chunk], *, otherwise: int = 0) -> Units:
    return (Additive if model == "additive" else Units)(reader.width(chunks, otherwise=otherwise), "spread")


@dataclass
class _Job:
    chunks: list[Chunk]
    units: Units
    lam: float = 1.0
    pairs: str = "all"
    on_error: str = "skip"
    checkpoint: str | None = None
    progress: Progress | None = None
    passes: int = 0
    bends: int = 0
    share: float = 1.0  # of the log, for a first guess: its penalty is as much less
    penalty: FloatArray = field(init=False)  # λ_f, known after the first pass
    usual: FloatArray | None = None  # (width,), how far the documents of some lists usually differ

    @property
    def width(self) -> int:
        """Columns, that of positions included."""
        return self.units.n_inputs + (self.pairs == "shown")

    def run(self, engine: Engine, problems: Problems) -> Fit:
        theta, done, M, resumed = self._resume(problems)
        if self.usual is None:
            self.look(engine)
        if done is None:
            theta = self._first_guess(engine)
            done = self.sweep(engine, theta, resumed)
            if not done.n_pairs:
                raise LogError("the logs hold no pair to learn from", resumed)
            # The first pass tells the columns' spread, and so the penalty; it was not needed before.
            d = self.units.n_inputs
            self.units.fix_units(np.sqrt(mean_spread(done.spread[:d], done.varied[:d])))
            self.units.forget(done.varied == 0.0)
            self.penalty = self._penalty()
            M = done.M + np.diag(self.penalty)
            done = self._penalised(theta, done, self.penalty)
            self._save(theta, done, M, resumed)
        while True:
            step = cho_solve(cho_factor(done.hessian), done.gradient)
            decrement = float(np.sqrt(max(done.gradient @ step, 0.0)))
            if decrement > DECREMENT * np.sqrt(max(done.loss, 1.0)):
                theta, done = self._step(engine, theta, done, step, decrement)
            elif (change := self._bend(engine, theta, done)).any():
                M, done = M + np.diag(change), self._penalised(theta, done, change)
            else:
                break
            self._save(theta, done, M, resumed)
        if self.checkpoint:
            Path(self.checkpoint).unlink(missing_ok=True)
        d, H = self.units.n_inputs, done.hessian
        beside = H[:d, d:]  # Gaussian weights, whatever β: the Schur complement
        return Fit(
            (theta - step)[:d],
            H[:d, :d] - beside @ np.linalg.solve(H[d:, d:], beside.T),
            M[:d, :d],
            done.loss,
            self.penalty[:d],
            self.pairs,
            done.n_lists,
            done.n_pairs,
            done.weight,
            self.passes,
            resumed,
            self.units,
        )

    def look(self, engine: Engine) -> None:
        """Find how far columns usually differ, and lay an additive model's pieces."""
        lists = self._some_lists(engine)
        if isinstance(self.units, Additive):
            if not lists:
                raise DataError(reader.NO_LIST)
            self.units.lay_pieces(without_far(lists), evidence.LINE)
        if not lists:  # the first pass tells why
            return
        X, offsets = np.concatenate(lists), np.append(0, np.cumsum([len(X) for X in lists]))
        found = usual(self.units.columns(X), offsets)
        self.usual = np.append(found, np.full(self.width - len(found), np.inf))

    def _some_lists(self, engine: Engine) -> list[FloatArray]:
        """The documents of every n-th good list, `LISTS` to twice as many in all: the same for every engine."""
        every = max(sum(chunk.rows for chunk in self.chunks) // LISTS, 1)
        before = accumulate((chunk.rows for chunk in self.chunks), initial=0)
        task = partial(_documents, may_lack=self.units.may_lack(), every=every)
        return [X for found in engine.map(task, list(zip(self.chunks, before, strict=False))) for X in found]

    def _penalty(self) -> FloatArray:
        """(width,), λ_f = lam · spread_f, times how stiff a function is; and that of the bias of position."""
        of_columns = self.lam * self.units.units**2 * self.units.precisions
        return self.share * np.append(of_columns, np.full(self.width - len(of_columns), position.PRECISION))

    def _bend(self, engine: Engine, theta: FloatArray, done: Sums) -> FloatArray:
        """(width,), what the penalty changes by where the evidence says how stiff functions are; 0 for lines."""
        before, blocks = self.penalty, self.units.blocks()
        if (blocks >= 0).any() and self.share == 1.0 and self.bends < MAX_BENDS:
            self.bends += 1
            # In units, as a ranker sees the columns; powers of scores in their own.
            unit, n = np.append(self.units.units, np.ones(self.width - self.units.n_inputs)), self.width
            inverse = inverse_of(done.hessian)[0] * np.outer(unit, unit)
            total = self.sweep(engine, theta, None, powers=True)
            H, score = total.hessian, np.where(np.arange(n) < self.units.n_inputs, theta, 0.0)
            powers = evidence.Powers(
                H[:n, n:] / unit[:, None], H[n:, n:], -total.gradient[n:], float(score @ H[:n, :n] @ score)
            )
            self.units.stiffness = evidence.stiffness(
                blocks, self.units.stiffness, self.lam, theta * unit, inverse, powers
            )
            self.penalty = self._penalty()
        return self.penalty - before

    def _first_guess(self, engine: Engine) -> FloatArray:
        """θ̂ of every sixteenth row group, found in the same way: the whole log then needs half the passes."""
        if len(self.chunks) < SAMPLE:
            return np.zeros(self.width)
        some = self.chunks[::SAMPLE]
        share = len(some) / len(self.chunks)
        sample = replace(
            self, chunks=some, units=copy(self.units), share=share, on_error="skip", checkpoint=None, progress=None
        )
        try:
            theta = sample.run(engine, Problems()).theta
        except PairRankError:  # the sample holds no pair, or none that could be read: begin at nothing
            return np.zeros(self.width)
        return np.append(theta, np.zeros(self.width - len(theta)))

    def _step(
        self, engine: Engine, theta: FloatArray, done: Sums, step: FloatArray, decrement: float
    ) -> tuple[FloatArray, Sums]:
        """The Newton step, halved until the loss falls by a quarter of what its slope promises."""
        size = 1.0
        while True:
            if self.passes >= MAX_PASSES:
                raise PairRankError(
                    f"no minimum after {self.passes} passes; the features may be too large: rescale them"
                )
            candidate = theta - size * step
            there = self._penalised(candidate, self.sweep(engine, candidate, None), self.penalty)
            # Near the minimum the fall drowns in rounding; there the full step is safe.
            if there.loss <= done.loss - 0.25 * size * decrement**2 or decrement**2 < 1e-9 * done.loss:
                return candidate, there
            size /= 2

    def _penalised(self, theta: FloatArray, total: Sums, penalty: FloatArray) -> Sums:
        total.loss += 0.5 * float(penalty @ theta**2)
        total.gradient = total.gradient + penalty * theta
        total.hessian = total.hessian + np.diag(penalty)
        return total

    def sweep(self, engine: Engine, theta: FloatArray, problems: Problems | None, *, powers: bool = False) -> Sums:
        """One pass; with ``problems`` the first one, which also adds up M and notes what is wrong with the log."""
        self.passes += 1
        first = problems is not None
        known = partial(_part, pairs=self.pairs, units=self.units, usual=self.usual)
        task = partial(known, theta=theta, first=first, powers=powers)
        total = Compensated(self.width + 2 * powers)
        previous: tuple[str, int] = ("", 0)
        for number, (chunk, part) in enumerate(zip(self.chunks, engine.map(task, self.chunks), strict=True), 1):
            total.add(part.sums)
            if problems is not None:
                problems.merge(part.problems)
                if previous[0] == chunk.path and part.sums.n_lists and part.first_time < previous[1]:
                    problems.add(Reason.OUT_OF_ORDER, f"{chunk.path} row {chunk.first_row}")
                if part.sums.n_lists:
                    previous = (chunk.path, part.last_time)
                problems.check(self.on_error)
            if self.progress is not None:
                self.progress(f"pass {self.passes}", number, len(self.chunks))
        return total.total()

    # Checkpoints.

    @property
    def _identity(self) -> str:
        """A hash of what the job is: its files, their sizes and the options that change the result."""
        # Without folders: other logs are joined anew, in another one, when a fit goes on.
        files = [(Path(path).name, *rows, Path(path).stat().st_size) for path, *rows in self.chunks]
        kind = type(self.units).__name__
        text = json.dumps([files, len(self.units.values), self.lam, self.pairs, self.on_error, kind, UNUSUAL])
        return hashlib.sha256(text.encode()).hexdigest()

    def _save(self, theta: FloatArray, done: Sums, M: FloatArray, problems: Problems) -> None:
        if not self.checkpoint:
            return
        values: dict[str, Any] = {"job": self._identity, "passes": self.passes, "bends": self.bends}
        values |= {name: getattr(done, name) for name in _NUMBERS}
        values |= {"counts": dict(problems.counts), "examples": dict(problems.examples)}
        known = np.full(self.width, np.inf) if self.usual is None else self.usual
        arrays = {"usual": known, "theta": theta, "gradient": done.gradient, "hessian": done.hessian, "M": M}
        arrays |= {f"units.{name}": np.asarray(value) for name, value in state_of(self.units).items()}
        archive.write_atomically(self.checkpoint, archive.sealed(archive.pack("fit-checkpoint", values, arrays)))

    def _resume(self, problems: Problems) -> tuple[FloatArray, Sums | None, FloatArray, Problems]:
        d = self.width
        if not self.checkpoint or not Path(self.checkpoint).exists():
            return np.zeros(d), None, np.zeros((d, d)), problems
        blob = archive.read_file(self.checkpoint)
        values, arrays = archive.unpack(blob, "fit-checkpoint", source=self.checkpoint)
        if values["job"] != self._identity:
            raise OptionError(
                f"{self.checkpoint} belongs to another fit (other logs or options): delete it, or name another file"
            )
        self.passes, self.bends = values["passes"], values["bends"]
        self.usual = arrays["usual"]
        restore(self.units, {name.removeprefix("units."): value for name, value in arrays.items()})
        self.penalty = self._penalty()
        numbers = {name: values[name] for name in _NUMBERS}
        # What only the first pass adds up is in M and the penalty already.
        none = Sums.zero(self.width)
        done = replace(none, gradient=arrays["gradient"], hessian=arrays["hessian"], **numbers)
        noted = Problems(
            Counter({Reason(reason): count for reason, count in values["counts"].items()}),
            {Reason(reason): places for reason, places in values["examples"].items()},
        )
        return arrays["theta"], done, arrays["M"], noted


def _part(
    chunk: Chunk,
    *,
    theta: FloatArray,
    pairs: str,
    units: Units,
    usual: FloatArray | None,
    first: bool,
    powers: bool,
) -> Part:
    total, problems = Compensated(len(theta) + 2 * powers), Problems()
    earliest = latest = None
    for batch, times in reader.batches(chunk, units.may_lack(), problems):
        total.add(sums(batch, theta, pairs, units, usual, first=first, powers=powers))
        if len(times):
            earliest, latest = times[0] if earliest is None else earliest, times[-1]
    return Part(total.total(), problems, int(earliest or 0), int(latest or 0))


def _documents(part: tuple[Chunk, int], *, may_lack: BoolArray, every: int) -> list[FloatArray]:
    """The documents of every n-th good list of a row group, which comes after so many rows of others."""
    (chunk, place), found = part, []
    for batch, _ in reader.batches(chunk, may_lack, Problems()):
        lists = np.split(batch.features, batch.offsets[1:-1])
        found += [X for X in lists[-place % every :: every] if len(X)]
        place += len(lists)
    return found
