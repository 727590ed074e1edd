"""Models to search engines and back: Elasticsearch, OpenSearch, Solr, Vespa, Qdrant, RankLib, ONNX and JSON.

``LinearModel.from_ranker(ranker, feature_names=…)`` makes the model, `dumps` writes it. `loads` and `load` read what
others may have written too, and our own JSON and ONNX. An ``AdditiveModel`` goes out as JSON and ONNX, exactly, and in
steps as trees: XGBoost, LightGBM, Solr.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from pairrank import archive, rankers, store_log
from pairrank.errors import ExportError, UnknownNameError
from pairrank.export import (
    additive,
    elasticsearch,
    importers,
    json_model,
    onnx,
    ranklib,
    search_engines,
    solr,
    strict_json,
    trees,
)
from pairrank.export.additive import LEAVES, AdditiveModel
from pairrank.export.importers import from_sklearn
from pairrank.export.model import LinearModel, MinMax, QueryMinMax, Standard

__all__ = [
    "ADDITIVE_FORMATS",
    "FORMATS",
    "READABLE",
    "AdditiveModel",
    "LinearModel",
    "MinMax",
    "QueryMinMax",
    "Standard",
    "detect",
    "dumps",
    "from_sklearn",
    "load",
    "load_any",
    "loads",
]

_WRITERS: Mapping[str, Callable[[LinearModel], bytes]] = {
    "elasticsearch": elasticsearch.dumps,
    "opensearch": elasticsearch.dumps,
    "solr": solr.dumps,
    "vespa": search_engines.vespa,
    "qdrant": search_engines.qdrant,
    "elasticsearch-linear": search_engines.elasticsearch_linear,
    "opensearch-hybrid": search_engines.opensearch_hybrid,
    "ranklib": ranklib.dumps,
    "onnx": onnx.dumps,
    "json": json_model.dumps,
}
FORMATS: tuple[str, ...] = tuple(_WRITERS)
# What can hold a function per feature.
_ADDITIVE_WRITERS: Mapping[str, Callable[[AdditiveModel, str, int], bytes]] = {
    "json": lambda model, store, leaves: additive.dumps(model),
    "onnx": lambda model, store, leaves: onnx.dumps_additive(model),
    "xgboost": lambda model, store, leaves: trees.xgboost(model, leaves),
    "lightgbm": lambda model, store, leaves: trees.lightgbm(model, leaves),
    "solr": trees.solr,
}
ADDITIVE_FORMATS: tuple[str, ...] = tuple(_ADDITIVE_WRITERS)
# The formats that can min-max within the query.
PER_QUERY: tuple[str, ...] = ("vespa", "elasticsearch-linear", "opensearch-hybrid", "json")

_READERS: Mapping[str, Callable[..., LinearModel]] = {
    "elasticsearch": elasticsearch.loads,
    "opensearch": elasticsearch.loads,
    "solr": solr.loads,
    "ranklib": ranklib.loads,
    "onnx": onnx.loads,
    "json": json_model.loads,
    "sklearn": importers.loads_sklearn,
    "npy": importers.loads_npy,
}
READABLE: tuple[str, ...] = tuple(_READERS)

# The entry that JSON of each format has at its top. Weights of scikit-learn come with whatever else their owner put in.
_MARKS = {"coef_": "sklearn", "format": "json", "class": "solr", "model": "elasticsearch", "_source": "elasticsearch"}


def dumps(
    model: LinearModel | AdditiveModel,
    format: str,
    *,
    fold: bool = False,
    store: str = solr.DEFAULT_STORE,
    leaves: int = LEAVES,
) -> bytes:
    """``model`` in one of `FORMATS`, or an additive one in one of `ADDITIVE_FORMATS`.

    Parameters
    ----------
    fold : write weights over raw features instead of normalisers; all orders stay, all scores move alike.
    store : the feature store, for Solr.
    leaves : of all trees together, where an additive model goes out as trees.
    """
    if isinstance(model, AdditiveModel):
        if format not in _ADDITIVE_WRITERS:
            raise ExportError(f"{format} cannot hold a function per feature; {', '.join(ADDITIVE_FORMATS)} can")
        return _ADDITIVE_WRITERS[format](model, store, leaves)
    if format in ("xgboost", "lightgbm"):
        raise ExportError(f'{format} is for models that were learned with model="additive"; this one is linear')
    if format not in _WRITERS:
        raise UnknownNameError(f"no export format is called {format!r}; there are: {', '.join(FORMATS)}")
    if model.is_per_query and (fold or format not in PER_QUERY):
        raise ExportError(
            f"{'folding' if fold else format} cannot normalise within the query; {', '.join(PER_QUERY)} can. "
            "Or train on features as they come, which need no normalisation"
        )
    model = model.folded() if fold else model
    return solr.dumps(model, store=store) if format == "solr" else _WRITERS[format](model)


def loads(blob: bytes, format: str | None = None, *, source: str = "this model") -> LinearModel:
    """The model in ``blob``; the format, one of `READABLE`, is found out by `detect` unless given."""
    name = detect(blob, source=source) if format is None else format
    if name not in _READERS:
        raise UnknownNameError(f"no model format is called {name!r}; there are: {', '.join(READABLE)}")
    return _READERS[name](blob, source=source)


def load(
    path: str | os.PathLike[str], format: str | None = None, *, nonnegative: bool = False, ranker: str | None = None
) -> LinearModel:
    """The model in a file: one of the `READABLE` formats, a linear ranker that ``save`` wrote, or a service's store.

    Parameters
    ----------
    nonnegative : for rankers: the likeliest weights of which none is below 0.
    ranker : which ranker of a store that holds several; a store may also be an address, such as postgresql://….
    """
    model = load_any(path, format, nonnegative=nonnegative, ranker=ranker)
    if isinstance(model, AdditiveModel):
        raise ExportError(f"{path} holds an additive model, which has a function per feature instead of weights")
    return model


def load_any(
    path: str | os.PathLike[str], format: str | None = None, *, nonnegative: bool = False, ranker: str | None = None
) -> LinearModel | AdditiveModel:
    """As `load`, and additive models too: of rankers, of stores, and of our own JSON."""
    if store_log.is_store(path):
        stored = store_log.served_model(path, ranker)
        model = rankers.from_bytes(stored.body, source=f"the ranker {stored.ranker!r} of {path}")
        return _of_ranker(model, stored.ranker, stored.feature_names, nonnegative)
    blob = archive.read_file(path)
    if format is None and _is_ranker(blob):
        return _of_ranker(rankers.from_bytes(blob, source=str(path)), "pairrank", None, nonnegative)
    if nonnegative:
        raise ExportError(f"{path} holds no ranker: weights alone cannot be fitted without negative ones")
    format = detect(blob, source=str(path)) if format is None else format
    if format == "json" and strict_json.parse(blob, str(path)).get("format") == additive.FORMAT:
        return additive.loads(blob, source=str(path))
    return loads(blob, format, source=str(path))


def _of_ranker(
    model: rankers.Ranker, name: str, names: Sequence[str] | None, nonnegative: bool
) -> LinearModel | AdditiveModel:
    if getattr(model, "model", "linear") == "additive":
        if nonnegative:
            raise ExportError("an additive model has no weights to keep from being negative")
        return AdditiveModel.from_ranker(model, name=name, feature_names=names)
    return LinearModel.from_ranker(model, name=name, feature_names=names, nonnegative=nonnegative)


def _is_ranker(blob: bytes) -> bool:
    header = blob[8 : 8 + int.from_bytes(blob[:8], "little")]
    return header.startswith(b"{") and b'"pairrank":"ranker"' in header


def detect(blob: bytes, *, source: str = "this model") -> str:
    """Which of the `READABLE` formats ``blob`` is in; ``opensearch`` is answered as ``elasticsearch``."""
    start = blob[:64].removeprefix(b"\xef\xbb\xbf").lstrip()  # Windows puts that before UTF-8
    if blob[:6] == b"\x93NUMPY":
        return "npy"
    if start.startswith(b"##"):
        return "ranklib"
    if start.startswith(b"{"):
        content = strict_json.parse(blob, source)
        for mark, name in _MARKS.items():
            if mark in content:
                return name
    elif b"pairrank" in blob[:256]:
        return "onnx"
    raise ExportError(
        f"{source} is in no format known here; expected a ranker's file, a store, or one of {', '.join(READABLE)}"
    )
