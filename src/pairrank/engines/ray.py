"""A Ray cluster, on this machine or on many."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pairrank.checking import import_extra
from pairrank.engines.base import cores
from pairrank.errors import PairRankError


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
