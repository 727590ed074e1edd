"""One BLAS thread where results are made, whatever the environment allows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread

import numpy as np
import pytest

from pairrank import PairRank, threads

FREE = {name: value for name, value in os.environ.items() if name not in threads.ENVIRONMENT}


def python(program: str, **variables: str) -> str:
    """What ``program`` prints in a process of its own that has no thread variables but ``variables``."""
    done = subprocess.run([sys.executable, "-c", program], env=FREE | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_blas_has_one_thread_inside_and_what_it_had_outside() -> None:
    # A fresh process, in which nothing has loaded scipy's BLAS yet; threadpoolctl is the independent witness.
    program = """
from pairrank import threads
seen = []
with threads.single():
    import scipy.linalg
    from threadpoolctl import threadpool_info
    blas = lambda: [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    seen.append(blas())
    with threads.single():
        seen.append(blas())
    seen.append(blas())
print(seen, blas())
"""
    assert python(program, OPENBLAS_NUM_THREADS="2") == "[[1, 1], [1, 1], [1, 1]] [2, 2]\n"


def test_the_last_thread_to_leave_puts_the_number_back() -> None:
    program = """
from concurrent.futures import ThreadPoolExecutor
from pairrank import threads
def often(_):
    seen = set()
    for _ in range(2000):
        with threads.single():
            seen |= set(threads.counts())
    return seen
with ThreadPoolExecutor(8) as pool:
    print(set().union(*pool.map(often, range(8))), threads.counts())
"""
    assert python(program, OPENBLAS_NUM_THREADS="2") == "{1} [2, 2]\n"


def test_an_error_inside_puts_the_number_back() -> None:
    before = threads.counts()
    with pytest.raises(ValueError, match="inside"), threads.single():
        raise ValueError("inside")
    assert threads.counts() == before


def test_leaving_does_not_lift_the_limit_for_those_who_are_still_inside() -> None:
    met = Barrier(2)

    def short() -> None:
        with threads.single():
            met.wait()
        met.wait()

    with ThreadPoolExecutor(1) as pool, threads.single():
        future = pool.submit(short)
        met.wait()
        met.wait()
        future.result()
        assert threads.counts() == [1] * len(threads.counts())


def test_without_known_names_threadpoolctl_does_it() -> None:
    program = """
from pairrank import threads
threads._NAMES = ()
with threads.single():
    inside = threads.counts()
print(inside, threads.counts())
"""
    assert python(program, OPENBLAS_NUM_THREADS="2") == "[1, 1] [2, 2]\n"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_waits_until_no_thread_is_inside_a_ranker(in_a_fork: Callable[..., int | None]) -> None:
    ranker, inside, leave = PairRank(2), Event(), Event()

    def learn() -> None:
        with ranker._turn:
            inside.set()
            leave.wait(0.2)

    thread = Thread(target=learn)
    thread.start()
    inside.wait()
    code = in_a_fork(ranker.rank, [[1.0, 2.0]])
    thread.join()
    assert code == 0
    assert len(ranker.rank([[1.0, 2.0]])) == 1


@pytest.mark.parametrize("model", ["linear", "additive"])
def test_what_is_read_while_another_thread_learns_is_of_a_model(model: str) -> None:
    ranker, rng, done = PairRank(3, model=model), np.random.default_rng(0), Event()
    X = rng.random((5, 3))
    legal, seen = {ranker.score(X).tobytes()}, []

    def read() -> None:
        while not done.is_set():
            seen.append(ranker.score(X).tobytes())
            ranker.explain(X)
            ranker.effect(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            for _ in range(66):
                shown = ranker.rank(rng.random((8, 3)), 5)
                ranker.learn(shown, shown.features[:, 0] > 0.6)
                legal.add(ranker.score(X).tobytes())
            done.set()
            reading.result()
    finally:
        done.set()
        sys.setswitchinterval(interval)
    assert set(seen) <= legal
