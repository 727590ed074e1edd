"""Linear models to search engines and back: Elasticsearch, OpenSearch, Solr, RankLib, ONNX and plain JSON.

``LinearModel.from_ranker(ranker, feature_names=…)`` makes the model, `dumps` writes it, `loads` and `load`
read it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType

from pairrank import archive, rankers
from pairrank.errors import ExportError, UnknownNameError
from pairrank.export import elasticsearch, importers, json_model, onnx, ranklib, solr
from pairrank.export.importers import from_sklearn
from pairrank.export.model import LinearModel, MinMax, Standard

__all__ = [
    "FORMATS",
    "READABLE",
    "LinearModel",
    "MinMax",
    "Standard",
    "detect",
    "dumps",
    "from_sklearn",
    "load",
    "loads",
]

FORMATS: tuple[str, ...] = ("elasticsearch", "opensearch", "solr", "ranklib", "onnx", "json")

_READERS: Mapping[str, Callable[..., LinearModel]] = MappingProxyType(
    {
        "elasticsearch": elasticsearch.loads,
        "opensearch": elasticsearch.loads,
        "solr": solr.loads,
        "ranklib": ranklib.loads,
        "onnx": onnx.loads,
        "json": json_model.loads,
        "sklearn": importers.loads_sklearn,
        "npy": importers.loads_npy,
    }
)
READABLE: tuple[str, ...] = tuple(_READERS)


def dumps(model: LinearModel, format: str, *, fold: bool = False, store: str = solr.DEFAULT_STORE) -> bytes:
    """``model`` in one of `FORMATS`.

    Parameters
    ----------
    fold : write weights over raw features instead of normalisers; all orders stay, all scores move alike.
    store : the feature store, for Solr.
    """
    model = model.folded() if fold else model
    match format:
        case "elasticsearch" | "opensearch":
            return elasticsearch.dumps(model)
        case "solr":
            return solr.dumps(model, store=store)
        case "ranklib":
            return ranklib.dumps(model)
        case "onnx":
            return onnx.dumps(model)
        case "json":
            return json_model.dumps(model)
    raise UnknownNameError(f"no export format is called {format!r}; there are: {', '.join(FORMATS)}")


def loads(blob: bytes, format: str | None = None, *, source: str = "this model") -> LinearModel:
    """The model in ``blob``; the format, one of `READABLE`, is found out by `detect` unless given."""
    name = detect(blob, source=source) if format is None else format
    if name not in _READERS:
        raise UnknownNameError(f"no model format is called {name!r}; there are: {', '.join(READABLE)}")
    return _READERS[name](blob, source=source)


def load(path: str | os.PathLike[str], format: str | None = None) -> LinearModel:
    """The model in a file: one of the `READABLE` formats, or a linear ranker that ``save`` wrote."""
    blob = archive.read_file(path)
    if format is None and _is_ranker(blob):
        ranker = rankers.from_bytes(blob, source=str(path))
        return LinearModel.from_ranker(ranker)
    return loads(blob, format, source=str(path))


def _is_ranker(blob: bytes) -> bool:
    header = blob[8 : 8 + int.from_bytes(blob[:8], "little")]
    return header.startswith(b"{") and b'"pairrank":"ranker"' in header


def detect(blob: bytes, *, source: str = "this model") -> str:
    """Which of the `READABLE` formats ``blob`` is in; ``opensearch`` is answered as ``elasticsearch``."""
    start = blob[:64].lstrip()
    if blob[:6] == b"\x93NUMPY":
        return "npy"
    if start.startswith(b"##"):
        return "ranklib"
    if start.startswith(b"{"):
        for mark, name in ((b'"pairrank-linear"', "json"), (b"solr.ltr", "solr"), (b'"coef_"', "sklearn")):
            if mark in blob:
                return name
        return "elasticsearch"
    if b"pairrank" in blob[:256]:
        return "onnx"
    raise ExportError(f"{source} is in no format known here; expected one of {', '.join(READABLE)}")
