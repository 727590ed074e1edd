"""A Ray cluster, on this machine or on many."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pairrank.checking import import_extra
from pairrank.engines.base import Pool, call, cores
from pairrank.errors import PairRankError


class Ray(Pool):
    """Tasks on the cluster at RAY_ADDRESS, or on one of our own."""

    def __init__(self, workers: int | None = None) -> None:
        self._wanted = workers

    def _start(self, opened: ExitStack) -> None:
        ray = opened.enter_context(connected(self._wanted, os.environ.get("RAY_ADDRESS")))
        self.workers = self._wanted or int(ray.cluster_resources().get("CPU", 1))
        remote = ray.remote(call)
        self._submit = lambda function, item: remote.remote(function, item)
        self._result = ray.get
        self._deaths = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)


@contextmanager
def connected(workers: int | None, address: str | None) -> Iterator[Any]:
    """The module ray, connected to ``address`` or to a cluster of our own: never to one that happens to run here.

    A cluster that was started here is stopped here; somebody else's connection is used and left.
    """
    ray = import_extra("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address is None:
            ray.init(address="local", num_cpus=workers or cores(), include_dashboard=False, **quiet)
        else:
            _knock(address)
            ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as problem:
        where = "on this machine" if address is None else f"at {address}"
        raise PairRankError(f"cannot connect to Ray {where}: {problem}") from problem
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Find out in seconds whether anybody listens there: Ray itself tries for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()
