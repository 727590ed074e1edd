"""Libraries that change system calls (LD_PRELOAD), compiled where there is a compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def compiled(name: str, folder: Path) -> Path:
    """The library of ``name.c``, made in ``folder``; the test is skipped where that cannot be."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler and Linux")
    made = folder / f"{name}.so"
    source = HERE / f"{name}.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, source, "-ldl", "-lpthread"], check=True)
    return made
