"""Parsing: LETOR text over scikit-learn's reader, memory over the final array, and opening what is cached."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from unittest.mock import patch

import numpy as np

from pairrank import data
from pairrank.bench.measure import Row, interleaved, peak_bytes, ratio
from pairrank.checking import import_extra
from pairrank.data import letor

OPEN_MS = 50.0


def measure(quick: bool) -> Iterator[Row]:
    """Three rows: rate, memory, and opening the cache over parsing."""
    load_svmlight_file = import_extra("sklearn.datasets", "sklearn", "scikit-learn").load_svmlight_file
    # About 1.7 kB of text a document: 1,700 queries have 1,020 in train, of 120 documents, more than 200 MB.
    name = f"synthetic:mslr(queries={10 if quick else 1700})"
    # A cache of our own: neither warmed by earlier runs nor left behind.
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, PAIRRANK_CACHE=f"{folder}/cache"):
        file = Path(folder) / "train.txt"
        letor.write_letor(data.load(name), file)
        actions = (lambda: letor.parse(file), lambda: load_svmlight_file(str(file), query_id=True))
        ours, theirs = interleaved(actions, 3 if quick else 5, perf_counter).T
        size = file.stat().st_size / 1e6
        case = f"{size:.0f} MB of LETOR text"
        speed = {"ours_mb_per_s": size / float(np.median(ours)), "theirs_mb_per_s": size / float(np.median(theirs))}
        figure = "rate over scikit-learn's load_svmlight_file"
        yield Row("parsing", case, figure, *ratio(theirs, ours), limit=4.0, at_least=True, detail=speed)
        memory = peak_bytes(lambda: letor.parse(file)) / letor.parse(file).features.nbytes
        yield Row("parsing", case, "peak memory over the final array", memory, memory, memory, limit=2.5)
        # Opening maps the arrays and reads samples of them, so its time hardly knows their size.
        data.load(file, "all")
        opened = interleaved((lambda: data.load(file, "all"),), 9, perf_counter)[:, 0]
        took = {"open_ms": float(1e3 * np.median(opened)), "open_ms_limit": OPEN_MS}
        found = ratio(opened, np.full(len(opened), np.median(ours)))
        yield Row("parsing", case, "opening the cache over parsing", *found, detail=took)
