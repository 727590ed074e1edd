"""A host is cut off from the database: `partition.py` says what must hold."""

from __future__ import annotations

import hosts
import pytest
from cluster import postgres_bin, running
from partition import run


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.skipif(not hosts.available(), reason="needs root and the Debian package iproute2")
@pytest.mark.skipif(postgres_bin() is None, reason="needs the Debian package postgresql")
def test_another_takes_over_and_it_comes_back() -> None:
    binaries = postgres_bin()
    assert binaries is not None
    with hosts.network(2) as net, running(binaries, host=net.address) as server:
        outcome = run(server, net, cuts=1, seconds=3.0)
    assert outcome.faults == []
    assert outcome.acknowledged > 0
