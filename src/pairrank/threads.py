"""One BLAS thread while we calculate: same seed, same bits, however many threads the environment allows.

Nearly every routine of BLAS and LAPACK sums in another order when it has more threads: ``potri`` from 30 features,
``potrf`` and ``A @ A.T`` from about 100, plain products from 300. So the results themselves cannot be made independent
of the number of threads; the number is set to one around everything that is part of a result. numpy and scipy each
bring a BLAS of their own, and both are loaded before they are limited. Entering and leaving takes some microseconds.

Known to it are OpenBLAS, MKL and BLIS; whatever else there is is left to ``threadpoolctl`` where that is installed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from functools import cache
from importlib import import_module
from threading import Lock, RLock
from typing import Any
from weakref import WeakValueDictionary

# For processes that we start: with these a BLAS does not even create its threads.
ENVIRONMENT = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)

# Extension modules that are linked with the BLAS of numpy and of scipy.
_LINKED = ("numpy.linalg._umath_linalg", "scipy.linalg._fblas")
# The functions that read and set the number of threads, as the builds of OpenBLAS, MKL and BLIS name them.
_NAMES = (
    *(
        (f"{prefix}openblas_get_num_threads{suffix}", f"{prefix}openblas_set_num_threads{suffix}")
        for prefix in ("scipy_", "")
        for suffix in ("64_", "_64", "")
    ),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
)

Pool = tuple[Callable[[], int], Callable[[int], Any]]


def single() -> _Single:
    """A ``with`` in which every BLAS of this process has one thread.

    It may be entered again inside itself, and by several threads: the first to enter sets one thread, the last to leave
    puts back what there was.

    >>> with single():
    ...     counts()
    [1, 1]
    """
    return _SINGLE


def counts() -> list[int]:
    """The present number of threads of each BLAS: numpy's, then scipy's where it is another one."""
    return [get() for get, _ in _pools()]


@contextmanager
def single_in_children() -> Iterator[None]:
    """The processes that are started meanwhile inherit `ENVIRONMENT`: one process per core is enough."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Turns:
    """The locks of all rankers: where the process forks, the fork waits for them.

    So a child finds them free, and no ranker in the middle of what another thread of the parent did.
    """

    def __init__(self) -> None:
        self._forking = RLock()
        self._all: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._held: list[Any] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._hold, after_in_parent=self._let_go, after_in_child=self._let_go)

    def new(self) -> Any:
        """A lock that its owner may take again."""
        lock = RLock()
        self._all[id(lock)] = lock
        return lock

    def _hold(self) -> None:
        self._forking.acquire()
        for known in self._all.valuerefs():
            if (lock := known()) is not None:
                lock.acquire()
                self._held.append(lock)

    def _let_go(self) -> None:
        while self._held:
            self._held.pop().release()
        self._forking.release()


turns = _Turns()


class _Single(ContextDecorator):
    """The state of all ``with single()`` of this process: how many are inside, and what to put back."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._changed: list[tuple[Callable[[int], Any], int]] = []  # what sets back each number that was not one
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._changed = [(set_, number) for get, set_ in _pools() if (number := get()) != 1]
                for set_, _ in self._changed:
                    set_(1)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                for set_, number in self._changed:
                    set_(number)

    def _forked(self) -> None:
        self._lock = Lock()  # another thread of the parent may have held it


_SINGLE = _Single()


@cache
def _pools() -> tuple[Pool, ...]:
    """What reads and sets the number of threads of numpy's and of scipy's BLAS."""
    pools: dict[int, Pool] = {}
    # A symbol is looked up in the libraries that a module is linked with, too. All are loaded before any is judged.
    for library in [ctypes.CDLL(str(import_module(module).__file__)) for module in _LINKED]:
        for get, set_ in _NAMES:
            if hasattr(library, get) and hasattr(library, set_):
                address = ctypes.cast(getattr(library, set_), ctypes.c_void_p).value
                pools[address or 0] = getattr(library, get), getattr(library, set_)
                break
        else:
            return _controlled()
    return tuple(pools.values())


def _controlled() -> tuple[Pool, ...]:
    """The same by ``threadpoolctl``, for what has none of the known names; nothing where that is not installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return ()
    controllers = ThreadpoolController().select(user_api="blas").lib_controllers
    return tuple((controller.get_num_threads, controller.set_num_threads) for controller in controllers)
