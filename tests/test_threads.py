"""One BLAS thread where results are made, whatever the environment allows."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from pairrank import threads

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
