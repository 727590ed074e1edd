"""`pairrank serve`: one listening socket, N rank workers, one learner; restarts what dies, drains when told to stop."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from pairrank import store_log, threads
from pairrank.checking import import_extra
from pairrank.errors import OptionError, PairRankError, StorageError
from pairrank.service.auth import new_key
from pairrank.service.json_logging import ErrorStream
from pairrank.service.settings import METRICS_FOLDER, Settings
from pairrank.service.store import open_store, sqlite_path
from pairrank.service.store.database import AwayError
from pairrank.service.store.sqlite import file_locks, sqlite_library

BIND_SECONDS = 5.0
LEARNER_SECONDS = 60.0


def check(settings: Settings) -> str:
    """Raise what would keep the service from starting; which database it will be on."""
    for module in ("fastapi", "uvicorn", "orjson", "prometheus_client", "pyarrow"):
        import_extra(module, "serve")
    file_locks()
    tempfile.gettempdir()  # raises where there is none
    path = sqlite_path(settings.store)
    if path is not None and not path.absolute().parent.is_dir():
        raise StorageError(f"the folder {path.absolute().parent} for the store does not exist: create it")
    if path is not None and not path.exists():
        if not os.access(path.absolute().parent, os.W_OK):
            raise StorageError(f"the folder {path.absolute().parent} for the store cannot be written")
        has_keys, library = False, sqlite_library()
    else:
        with closing(open_store(settings.store)) as store:
            has_keys, library = bool(store.access_keys()), store.database.library
            store.database.check_writable()
    if not settings.loopback and not has_keys and not settings.admin_key:
        raise OptionError(
            f"{settings.host} can be reached from outside, and the store has no keys: "
            f"make one with 'pairrank store keys {data_place(settings)} --add NAME --role admin', "
            "or set PAIRRANK_ADMIN_KEY"
        )
    return library


def data_place(settings: Settings) -> str:
    """Where the data lies, without a password."""
    path = sqlite_path(settings.store)
    return store_log.place(settings.store) if path is None else str(path.absolute())


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; the exit code."""
    away = None
    try:
        check(settings)
    except AwayError as problem:
        away = problem
    listener = listen(settings.host, settings.port)  # before there is a store, which would be left behind
    if away is None:
        _open(settings)
    else:
        _tell(away)
        threading.Thread(target=_open_at_last, args=(settings,), daemon=True).start()
    settings = replace(settings, port=listener.getsockname()[1])
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{settings.port}"
    where = f"PairRank serves {address}, with its data in {data_place(settings)}"
    # In one write: whoever started us may read the first line and close the pipe.
    sys.stdout.write(f"{where}\nLive page: {address}/   API and documentation: {address}/docs   Ctrl-C stops\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="pairrank-") as folder:
        Supervisor(settings, listener, Path(folder)).run()
    return 0


def _open(settings: Settings) -> None:
    """Make the store if it is not there, and its first key if the settings have one."""
    with closing(open_store(settings.store)) as store:
        if settings.admin_key:
            key, _ = new_key("environment", ["admin"], time.time(), settings.admin_key)
            if all(known.digest != key.digest for known in store.access_keys()):
                store.put_key(key, "environment")


def _open_at_last(settings: Settings) -> None:
    """As soon as the database is there; until then workers say that it is not."""
    try:
        while True:
            with suppress(AwayError):
                check(settings)
                _open(settings)
                return
            time.sleep(0.5)
    except PairRankError as problem:
        _tell(problem)


def _tell(what: object) -> None:
    _error_stream().write(f"pairrank: {what}\n")


@cache
def _error_stream() -> ErrorStream:
    return ErrorStream()


def listen(host: str, port: int, patience: float = BIND_SECONDS) -> socket.socket:
    """A listening socket; a predecessor that was killed may need a moment to let go of the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = time.monotonic() + patience
    while True:
        try:
            both = family == socket.AF_INET6
            return socket.create_server((host, port), family=family, backlog=2048, dualstack_ipv6=both)
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise StorageError(f"cannot listen on port {port} of {host}: {problem.strerror or problem}") from None
            time.sleep(0.1)


@dataclass(slots=True)
class _Child:
    role: str
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    quick_deaths: int = 0
    due: float = 0.0  # not before this time


class Supervisor:
    """Keeps the children alive and ends them in order: workers first, the learner when the log is whole."""

    def __init__(self, settings: Settings, listener: socket.socket, folder: Path) -> None:
        self._settings, self._listener, self._folder = settings, listener, folder
        self._children = [_Child("worker") for _ in range(settings.workers)] + [_Child("learner")]
        self._signals = 0

    def run(self) -> None:
        """Until a signal to stop; a second one stops at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        try:
            while not self._signals:
                for child in self._children:
                    self._tend(child)
                time.sleep(0.05)
            self._listener.close()  # as workers do: who comes now is refused, and need not wait for the end of this
            workers = [child for child in self._children if child.role == "worker"]
            self._end(workers, self._settings.drain_seconds + 2)
            self._end(self._children, LEARNER_SECONDS)
        finally:
            for child in self._children:
                if child.process is not None:
                    with child.process:  # waits, and closes the pipe
                        child.process.kill()

    def _on_signal(self, *_: object) -> None:
        self._signals += 1

    def _tend(self, child: _Child) -> None:
        now = time.monotonic()
        if child.process is not None and child.process.poll() is not None:
            _tell(f"a {child.role} ended with {child.process.returncode}; starting another")
            child.quick_deaths = child.quick_deaths + 1 if now - child.started < 5 else 0
            child.due = now + min(0.1 * 2**child.quick_deaths, 5.0) if child.quick_deaths else now
            child.process = None
        if child.process is None and now >= child.due:
            try:
                child.process, child.started = self._start(child.role), now
            except OSError as problem:  # no room for one more process: those that are there go on
                _tell(f"cannot start a {child.role}: {problem.strerror or problem}")
                child.due = now + 1.0

    def _start(self, role: str) -> subprocess.Popen[bytes]:
        # Modules come from where this process has them; -m alone would look into the present folder first.
        modules = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        environment = os.environ | threads.ENVIRONMENT | modules | {METRICS_FOLDER: str(self._folder)}
        process = subprocess.Popen(
            [sys.executable, "-m", "pairrank.service.process", role, str(self._listener.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[self._listener.fileno()] if role == "worker" else [],
            env=environment,
            # Ctrl-C goes to the whole foreground group; only the supervisor shall act on it.
            start_new_session=True,
        )
        if process.stdin is not None:
            process.stdin.write(json.dumps(asdict(self._settings)).encode() + b"\n")
            process.stdin.flush()
        return process

    def _end(self, children: list[_Child], seconds: float) -> None:
        alive = [c.process for c in children if c.process is not None and c.process.poll() is None]
        for process in alive:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while any(process.poll() is None for process in alive):
            if time.monotonic() > deadline or self._signals > 1:
                return
            time.sleep(0.02)
