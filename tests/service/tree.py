"""A real `pairrank serve` with its processes, for tests that start, stop and kill it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pairrank.client import Client


class Tree:
    """One supervisor with its workers and its learner."""

    def __init__(
        self, store: str, *flags: str, port: int = 0, prefix: Sequence[str] = (), stderr: int = subprocess.DEVNULL
    ) -> None:
        self.store, self._flags, self._port, self._prefix, self._stderr = store, flags, port, prefix, stderr
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "pairrank", "serve", "--store", self.store, "--port", str(self._port)]
        self.process = subprocess.Popen(
            [*self._prefix, *command, *self._flags], stdout=subprocess.PIPE, stderr=self._stderr, text=True
        )
        assert self.process.stdout is not None
        self.greeting = self.process.stdout.readline()
        found = re.search(r":(\d+),", self.greeting)
        assert found, self.greeting
        self._port = int(found[1])
        self.client = Client(f"http://127.0.0.1:{self._port}", timeout=20.0, retries=40)

    def children(self, role: str) -> list[int]:
        """The process ids of the workers, or of the learner, once there are any."""
        for _ in range(400):
            found = []
            for entry in Path("/proc").glob("[0-9]*"):
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except (OSError, IndexError):
                    continue
                if parent == self.process.pid and role.encode() in words:
                    found.append(int(entry.name))
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"there is no {role}")

    def kill(self, role: str) -> None:
        """SIGKILL to the supervisor, to the workers or to the learner."""
        victims = [self.process.pid] if role == "supervisor" else self.children(role)
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        if role == "supervisor":
            self._gone()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._gone()

    def _gone(self) -> int:
        self.client.close()
        code = self.process.wait(120)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code
