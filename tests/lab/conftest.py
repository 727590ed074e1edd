from __future__ import annotations

from pathlib import Path

import pytest

from pairrank.lab.executors import run_all
from pairrank.lab.experiment import Experiment

RANKERS = ("pairrank", "pairrank-c", "pairrank-r", "pdgd", "mgd", "dbgd", "epsilon-greedy", "sgd-ranknet")


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Experiment]:
    """A small comparison of all rankers, run once; tests copy it before they change anything."""
    out = tmp_path_factory.mktemp("swept")
    experiment = Experiment(
        title="A small comparison",
        command="pairrank reproduce …",
        data="synthetic:tiny",
        rankers=(*RANKERS, "offline-ranknet"),
        rounds=40,
        seeds=2,
    )
    run_all(experiment.specs(), out)
    experiment.save(out)
    return out, experiment
