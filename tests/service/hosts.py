"""Hosts as network namespaces on one bridge, with a cable each that can be pulled. Linux, as root, with iproute2."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

CLONE_NEWNET = 0x40000000
T = TypeVar("T")


def available() -> bool:
    """Whether there can be such hosts here."""
    return os.geteuid() == 0 and shutil.which("ip") is not None


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Host:
    """One host: what is started with ``prefix`` and what `do` calls use its network, with a loopback of its own."""

    def __init__(self, name: str, bridge: str, address: str) -> None:
        self.name, self._cable = name, f"{name}c"
        self.prefix = ("ip", "netns", "exec", name)
        _ip("netns", "add", name)
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", self._cable, "master", bridge, "up")
        _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", name, "link", "set", device, "up")
        self._threads = ThreadPoolExecutor(initializer=self._enter)

    def _enter(self) -> None:
        with open(Path("/run/netns") / self.name) as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")

    def do(self, work: Callable[[], T]) -> T:
        """Call something in a thread of this host."""
        return self._threads.submit(work).result()

    def cut(self) -> None:
        """Pull the cable: nobody is told, packets are lost."""
        _ip("link", "set", self._cable, "nomaster")

    def mend(self, bridge: str) -> None:
        _ip("link", "set", self._cable, "master", bridge)

    def close(self) -> None:
        self._threads.shutdown()
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "delete", self.name)


class Network:
    """A bridge with an address of this machine, and hosts on it."""

    def __init__(self, count: int) -> None:
        # Not that of one that was killed, which has left its bridge behind.
        numbers = ((os.getpid() + i) % 250 + 1 for i in range(250))
        number = next(n for n in numbers if not Path(f"/sys/class/net/prb{n}").exists())
        self.bridge, subnet = f"prb{number}", f"10.213.{number}"
        self.address = f"{subnet}.1"
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("address", "add", f"{self.address}/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")
        self.hosts = [Host(f"prh{number}-{place}", self.bridge, f"{subnet}.{place + 2}") for place in range(count)]

    def close(self) -> None:
        for host in self.hosts:
            host.close()
        _ip("link", "delete", self.bridge)


@contextmanager
def network(count: int) -> Iterator[Network]:
    """So many hosts."""
    made = Network(count)
    try:
        yield made
    finally:
        made.close()
