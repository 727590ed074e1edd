from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import pytest

from pairrank.errors import OptionError, UnknownNameError
from pairrank.lab.executors import run_all
from pairrank.sim import RunSpec, Summary, load_records, simulate

BASE = RunSpec(data="synthetic:tiny", rounds=60, clicks="perfect")
SPECS = [replace(BASE, ranker=name, seed=seed) for name in ("pdgd", "pairrank") for seed in (0, 1)]


def results(summaries: list[Summary]) -> list[tuple[object, ...]]:
    """All but the seconds."""
    return [astuple(replace(summary, seconds=0.0)) for summary in summaries]


def test_serial_equals_simulate_and_reports() -> None:
    heard: list[int] = []
    summaries = run_all(SPECS, report=heard.append)
    assert results(summaries) == results([simulate(spec).summary() for spec in SPECS])
    assert heard == sorted(heard)
    assert heard[-1] == sum(spec.rounds for spec in SPECS)


@pytest.mark.slow
def test_processes_write_the_same_records_as_serial(tmp_path: Path) -> None:
    serial = run_all(SPECS, tmp_path / "serial")
    processes = run_all(SPECS, tmp_path / "processes", "processes", jobs=2)
    assert results(processes) == results(serial)
    for spec in SPECS:
        folders = [tmp_path / engine / "runs" / spec.run_id for engine in ("serial", "processes")]
        assert len({(folder / "records.parquet").read_bytes() for folder in folders}) == 1
        assert load_records(folders[1]) is not None


@pytest.mark.slow
def test_an_error_in_a_worker_comes_back(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="nobody"):
        run_all([replace(BASE, ranker="nobody")], tmp_path, "processes", jobs=1)


def test_unknown_engine() -> None:
    with pytest.raises(OptionError, match="serial"):
        run_all(SPECS, engine="abacus")
