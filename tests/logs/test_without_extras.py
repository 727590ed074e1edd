"""Without the optional packages everything imports, and what needs one answers with the line that installs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

CALLS = {
    "pyarrow": ("import pairrank.logs", "pairrank.logs.Writer('x', 2)", "pairrank[logs]"),
    "ray": (
        "from pairrank import engines",
        "engines.start('ray').__enter__()",
        "pairrank[ray]",
    ),
    "onnx": ("from pairrank import export", "export.dumps(export.LinearModel.of([1.0]), 'onnx')", "pairrank[onnx]"),
    "sklearn": ("import pairrank", "import pairrank.sklearn", "pairrank[sklearn]"),
}


@pytest.mark.parametrize("package", CALLS)
def test_the_answer_is_the_line_that_installs_it(package: str) -> None:
    imports, call, extra = CALLS[package]
    code = f"""
import sys
sys.modules[{package!r}] = None
{imports}
from pairrank.errors import MissingExtraError
try:
    {call}
except MissingExtraError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"pip install '{extra}'" in done.stdout
