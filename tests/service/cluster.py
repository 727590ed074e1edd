"""A private PostgreSQL in a temporary folder."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pairrank.errors import StorageError


def free_port() -> int:
    """A port below those that the system gives to connections: a client must not take it while the server is dead."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def until(done: Callable[[], object], seconds: float = 60.0) -> float:
    """Wait for something; how long it took."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"not within {seconds:.0f} s")
        time.sleep(0.01)
    return time.monotonic() - began


@dataclass
class Postgres:
    """A PostgreSQL of our own in a temporary folder; `kill` is SIGKILL to all of its processes."""

    bin: Path
    folder: Path
    port: int
    fsync: bool = False  # off survives the death of processes, though not of the machine
    host: str = "127.0.0.1"  # where it listens

    @property
    def user(self) -> str | None:
        return "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, user=self.user, cwd=self.folder, capture_output=True)

    def make(self) -> None:
        data = str(self.folder / "data")
        self._run(str(self.bin / "initdb"), "-D", data, "-U", "pairrank", "-A", "trust", "-E", "UTF8", "--no-sync")
        with open(self.folder / "data" / "pg_hba.conf", "a") as file:
            file.write(f"host all all {self.host}/24 trust\n")

    def start(self) -> None:
        from pairrank.service.store.postgres import PostgresDatabase

        self._launch()
        deadline = time.monotonic() + 60
        while True:
            try:
                PostgresDatabase(self.url("postgres")).close()
                return
            except StorageError:
                assert time.monotonic() < deadline, (self.folder / "server.log").read_text()[-2000:]
                time.sleep(0.1)
                if self._server.poll() is not None:  # refused to start while the last of the killed ones was dying
                    self._launch()

    def _launch(self) -> None:
        with open(self.folder / "server.log", "a") as log:
            self._server = subprocess.Popen(
                [
                    *(self.bin / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-k", self.folder),
                    *("-c", f"listen_addresses={self.host}", "-c", "max_connections=60", "-c", "shared_buffers=32MB"),
                    *("-c", f"fsync={'on' if self.fsync else 'off'}"),
                ],
                user=self.user,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        # Each process of the server leads a session of its own: killing the group of the first would spare the rest.
        children = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children").read_text().split()
        for process in (self._server.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._server.wait()
        # A server that was killed leaves its lock file; the next one checks that the process is gone.

    def url(self, database: str) -> str:
        return f"postgresql://pairrank@{self.host}:{self.port}/{database}"

    def new_database(self) -> str:
        import psycopg

        name = f"t{time.time_ns()}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)


def postgres_bin() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), default=None)


@contextmanager
def running(binaries: Path, *, fsync: bool = False, host: str = "127.0.0.1") -> Iterator[Postgres]:
    """A server, started; killed at the end."""
    with tempfile.TemporaryDirectory(prefix="pairrank-pg-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        server = Postgres(binaries, folder, free_port(), fsync, host)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.kill()
