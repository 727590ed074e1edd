from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pairrank.logs import Writer

THETA = np.array([1.0, -2.0, 0.5, 0.0])


def lists(n: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Lists of 1 to 11 documents of 4 features, with clicks that follow THETA."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        X = rng.normal(size=(int(rng.integers(1, 12)), 4)).astype(np.float32)
        made.append((X, rng.random(len(X)) < 1 / (1 + np.exp(-X @ THETA))))
    return made


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def make(name: str, made: list[tuple[np.ndarray, np.ndarray]], start: float = 1e9, locked: int = 0) -> str:
        path = tmp_path / name
        with Writer(path, 4) as writer:
            for number, (X, clicks) in enumerate(made):
                documents = [f"d{row}" for row in range(len(X))]
                writer.add(f"q{number}", start + number, documents, X, clicks, locked)
        return str(path)

    return make
