"""Where the real data lies, and settings for hypothesis."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# Machines that run tests are shared and slow at times: a deadline would test the machine.
settings.register_profile("pairrank", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pairrank")


def _shared(name: str) -> Path:
    folder = Path(os.environ.get("PAIRRANK_DATA", ROOT.parent / "shared" / "data"))
    return folder if name == "data" else folder.parent / name


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with MQ2008 and the MSLR sample."""
    folder = _shared("data")
    if not (folder / "MQ2008").is_dir():
        pytest.skip(f"real data not found: set PAIRRANK_DATA to a folder that holds MQ2008 (looked in {folder})")
    return folder


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder with traces of the authors' program."""
    folder = _shared("reference")
    if not folder.is_dir():
        pytest.skip("traces of the authors' program not found beside the checkout")
    return folder
