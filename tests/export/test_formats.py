"""Exported models, read by evaluators that share no code with the package, rank as we do."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairrank import data, export
from pairrank.data.normalize import Normaliser, statistics
from pairrank.errors import ExportError, FeatureError, NewerFormatError, UnknownNameError
from pairrank.export import LinearModel, MinMax, QueryMinMax, Standard
from pairrank.rankers.pairrank import PairRank
from pairrank.rankers.ranknet import SGDRankNet

NAMES = ("title bm25", "body", 'quoted "name"', "ünïcode", "age")


def elasticsearch_scores(body: str, documents: list[dict[str, float]]) -> list[float]:
    """What the plugin does, in a few lines: normalise, weigh, add."""
    model = json.loads(body)["model"]["model"]
    assert model["type"] == "model/linear"
    weights, norms = json.loads(model["definition"]), model.get("feature_normalizers", {})

    def value(feature: str, raw: float) -> float:
        (kind, n), *_ = norms.get(feature, {"none": {}}).items()
        if kind == "min_max":
            assert n["minimum"] < n["maximum"]
            return (raw - n["minimum"]) / (n["maximum"] - n["minimum"])
        return (raw - n["mean"]) / n["standard_deviation"] if kind == "standard" else raw

    return [sum(w * value(f, doc[f]) for f, w in weights.items()) for doc in documents]


def solr_scores(body: str, documents: list[dict[str, float]]) -> list[float]:
    """What Solr's LinearModel does, in a few lines."""
    model = json.loads(body)
    assert model["class"] == "org.apache.solr.ltr.model.LinearModel"
    weights = model["params"]["weights"]
    assert set(weights) == {feature["name"] for feature in model["features"]}

    def value(feature: dict[str, object], raw: float) -> float:
        norm = feature.get("norm")
        if norm is None:
            return raw
        p = {key: float(text) for key, text in norm["params"].items() if isinstance(text, str)}
        if norm["class"] == "org.apache.solr.ltr.norm.MinMaxNormalizer":
            return (raw - p["min"]) / (p["max"] - p["min"])
        assert norm["class"] == "org.apache.solr.ltr.norm.StandardNormalizer"
        return (raw - p["avg"]) / p["std"]

    return [sum(weights[f["name"]] * value(f, doc[f["name"]]) for f in model["features"]) for doc in documents]


def ranklib_scores(text: str, documents: list[dict[str, float]]) -> list[float]:
    lines = text.splitlines()
    assert lines[0] == "## Coordinate Ascent"
    weights = {i: float(w) for i, w in (t.split(":") for t in lines[-1].split())}
    return [sum(w * list(doc.values())[int(i) - 1] for i, w in weights.items()) for doc in documents]


@pytest.fixture
def model() -> LinearModel:
    rng = np.random.default_rng(0)
    entries = (MinMax(-3.0, 7.5), Standard(2.0, 0.3), None, MinMax(0.0, 0.1), Standard(-1e3, 250.0))
    return LinearModel("shop", rng.normal(size=5), NAMES, entries)


@pytest.fixture
def features() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(50, 5)) * [3, 1, 1, 0.05, 400]


def order(scores: object) -> list[int]:
    return np.argsort(-np.asarray(scores), kind="stable").tolist()


EVALUATORS = {
    "elasticsearch": elasticsearch_scores,
    "opensearch": elasticsearch_scores,
    "solr": solr_scores,
}


@pytest.mark.parametrize("format", EVALUATORS)
def test_engines_rank_as_we_do(format: str, model: LinearModel, features: np.ndarray) -> None:
    documents = [dict(zip(NAMES, row, strict=True)) for row in features.tolist()]
    scores = EVALUATORS[format](export.dumps(model, format).decode(), documents)
    assert order(scores) == order(model.score(features))
    # Every weight and normaliser is within half a unit in the 24th bit.
    np.testing.assert_allclose(scores, model.score(features), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["a\nb", "a\r", "a\u2028b", "a\x0b"])
def test_ranklib_holds_no_line_breaks_of_any_kind(name: str) -> None:
    with pytest.raises(ExportError, match="line break"):
        export.dumps(LinearModel.of([1.0], feature_names=[name]), "ranklib")


@pytest.mark.parametrize(
    ("format", "place", "told"),
    [
        ("elasticsearch", ("model", "model", "feature_normalizers"), "'feature_normalizers' holds a list"),
        ("solr", ("features", 0, "norm", "params"), "'params' holds a list"),
    ],
)
def test_what_is_no_object_where_one_belongs_is_told(format: str, place: tuple[Any, ...], told: str) -> None:
    model = LinearModel.of([1.0], feature_names=["a"], normaliser=(MinMax(0.0, 2.0),))
    document = json.loads(export.dumps(model, format))
    *way, last = place
    functools.reduce(lambda inner, key: inner[key], way, document)[last] = [1]
    with pytest.raises(ExportError, match=told):
        export.loads(json.dumps(document).encode(), format)


def test_ranklib_ranks_as_we_do_once_folded(model: LinearModel, features: np.ndarray) -> None:
    documents = [dict(zip(NAMES, row, strict=True)) for row in features.tolist()]
    with pytest.raises(ExportError, match="fold"):
        export.dumps(model, "ranklib")
    scores = ranklib_scores(export.dumps(model, "ranklib", fold=True).decode(), documents)
    assert order(scores) == order(model.score(features))
    moved = np.asarray(scores) - model.score(features)
    np.testing.assert_allclose(moved, moved[0], rtol=1e-9)


def test_frames_are_scored_by_name(model: LinearModel, features: np.ndarray) -> None:
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    frame = pd.DataFrame(features, columns=NAMES)[[*reversed(NAMES)]].assign(id="a")
    for X in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        np.testing.assert_array_equal(model.score(X), model.score(features))
    with pytest.raises(FeatureError, match=f"no column is called '{NAMES[0]}'"):
        model.score(frame.drop(columns=NAMES[0]))
    gap = np.ma.masked_array(features, np.arange(features.size).reshape(features.shape) == 0)
    table = pd.DataFrame(gap.filled(np.nan), columns=NAMES).astype("Float64")
    for X in (gap, table.mask(table.isna(), pd.NA)):
        assert np.isnan(model.score(X)[0])


def test_onnx_gives_our_scores(model: LinearModel, features: np.ndarray) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(export.dumps(model, "onnx"), providers=["CPUExecutionProvider"])
    for n in (50, 1, 0):  # a search that found nothing asks too
        X = features[:n].astype(np.float32)
        (found,) = session.run(["scores"], {"features": X})
        np.testing.assert_allclose(found, model.score(X), rtol=1e-6, atol=1e-6)
        assert found.shape == (n,)


@pytest.mark.parametrize("format", sorted({*export.FORMATS} & {*export.READABLE}))
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_export_import_export_is_the_identity(format: str, data: st.DataObject) -> None:
    if format == "onnx":
        pytest.importorskip("onnx")
    number = st.floats(-1e30, 1e30)
    d = data.draw(st.integers(1, 6))
    name: Any = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1).filter(
        lambda text: text.strip() == text
    )
    names = data.draw(st.lists(name, min_size=d, max_size=d, unique=True))
    entry: Any = st.one_of(
        st.none(),
        st.tuples(st.floats(-1e6, 1e6), st.floats(1, 1e6)).map(lambda t: MinMax(t[0], t[0] + t[1])),
        st.tuples(number, st.floats(1e-20, 1e20)).map(lambda t: Standard(*t)),
    )
    if format == "json":
        entry |= st.just(QueryMinMax())
    if format == "ranklib":
        entry = st.none()
    entries = [data.draw(entry) for _ in range(d)]
    weights = np.array([data.draw(number) for _ in range(d)])
    model = LinearModel(data.draw(name), weights, tuple(names), tuple(entries))
    first = export.dumps(model, format)
    back = export.loads(first, format)
    assert export.dumps(back, format) == first
    assert back.feature_names == model.feature_names
    assert export.detect(first) == {"opensearch": "elasticsearch"}.get(format, format)
    if format in ("json", "onnx", "ranklib"):
        assert back == model
    else:
        assert back.weights.tolist() == weights.astype(np.float32).tolist()


def test_the_definition_is_a_string_that_holds_json(model: LinearModel) -> None:
    inner = json.loads(export.dumps(model, "elasticsearch"))["model"]["model"]
    assert isinstance(inner["definition"], str)
    assert list(json.loads(inner["definition"])) == list(NAMES)
    assert set(inner["feature_normalizers"]) == {n for n in NAMES if n != 'quoted "name"'}


def test_solr_writes_normaliser_numbers_as_text(model: LinearModel) -> None:
    norm = json.loads(export.dumps(model, "solr", store="shop_features"))["features"][0]["norm"]
    assert norm["params"] == {"min": "-3.0", "max": "7.5"}
    assert json.loads(export.dumps(model, "solr", store="shop_features"))["store"] == "shop_features"


@pytest.mark.parametrize("format", ["elasticsearch", "solr"])
def test_ranges_that_vanish_in_32_bits_are_refused(format: str) -> None:
    with pytest.raises(ExportError, match="32 bits"):
        export.dumps(LinearModel("m", np.ones(1), ("f",), (MinMax(1e9, 1e9 + 1),)), format)
    with pytest.raises(ExportError, match="32 bits"):
        export.dumps(LinearModel("m", np.ones(1), ("f",), (Standard(0, 1e-60),)), format)
    with pytest.raises(ExportError, match="too large"):
        export.dumps(LinearModel("m", np.full(1, 1e39), ("f",), (None,)), format)


def test_a_fitted_normaliser_travels_and_constant_features_weigh_nothing() -> None:
    rng = np.random.default_rng(2)
    raw = np.column_stack([rng.normal(5, 2, 100), np.full(100, 3.0), rng.uniform(-1, 1, 100)]).astype(np.float32)
    for name in ("global", "standard"):
        normaliser = Normaliser.fit(name, statistics(raw, np.zeros(100, dtype=np.int64), name))
        ranker = SGDRankNet(3)
        ranker._weights = np.array([1.0, 4.0, -2.0])
        model = LinearModel.from_ranker(ranker, normaliser=normaliser)
        assert model.weights.tolist() == [1.0, 0.0, -2.0]
        np.testing.assert_allclose(model.score(raw), ranker.score(normaliser.apply(raw)), atol=1e-5)


@pytest.mark.parametrize("name", ["log1p", "log1p+standard"])
def test_what_no_format_can_hold_is_refused_with_advice(name: str) -> None:
    raw = np.random.default_rng(3).normal(size=(20, 2)).astype(np.float32)
    normaliser = Normaliser.fit(name, statistics(raw, np.zeros(20, dtype=np.int64), name))
    with pytest.raises(ExportError, match="logarithm"):
        LinearModel.of([1.0, 2.0], normaliser=normaliser)


def test_none_normaliser_and_wrong_width() -> None:
    assert not LinearModel.of([1.0], normaliser=Normaliser("none")).is_normalised
    with pytest.raises(ExportError, match="is for 2 features"):
        LinearModel.of([1.0], normaliser=Normaliser("global", np.zeros(2), np.ones(2)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("", np.ones(1), ("a",), (None,)), "name"),
        (("m", np.ones((1, 1)), ("a",), (None,)), "shape"),
        (("m", np.array([np.nan]), ("a",), (None,)), "finite"),
        (("m", np.ones(2), ("a",), (None, None)), "one each"),
        (("m", np.ones(2), ("a", "a"), (None, None)), "twice"),
        (("m", np.ones(1), ("a",), ()), "0 normalisers"),
    ],
)
def test_impossible_models_are_refused(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(ExportError, match=words):
        LinearModel(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "format", "words"),
    [
        ("", "json", "not JSON"),
        ("[]", "json", "expected an object"),
        ('{"format": "pairrank-linear", "format": 1}', "json", "comes twice"),
        ('{"format": "other"}', "json", "'other'"),
        ('{"format": "pairrank-linear", "version": 1, "name": "m", "features": [1]}', "json", "not objects"),
        ('{"model": {"name": "m", "model": {"type": "model/ranklib"}}}', "elasticsearch", "model/ranklib"),
        ('{"model": {"name": "m", "model": {"type": "model/linear", "definition": {}}}}', "elasticsearch", "dict"),
        ('{"class": "x"}', "solr", "class"),
        ("## LambdaMART\n1:2", "ranklib", "Coordinate Ascent"),
        ("## Coordinate Ascent\n", "ranklib", "id:weight"),
        ("## Coordinate Ascent\n1:x", "ranklib", "expected a number"),
        ("## Coordinate Ascent\n0:1", "ranklib", "id:weight"),
    ],
)
def test_broken_files_are_refused_with_reasons(text: str, format: str, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        export.loads(text.encode(), format)


def test_unknown_normalisers_and_features_are_refused() -> None:
    def body(normalisers: object) -> bytes:
        inner = {"type": "model/linear", "feature_normalizers": normalisers, "definition": '{"a": 1.0}'}
        return json.dumps({"model": {"name": "m", "model": inner}}).encode()

    assert export.loads(body({"a": {"min_max": {"minimum": 0, "maximum": 2}}})).normalisation == (MinMax(0, 2),)
    with pytest.raises(ExportError, match="does not weigh: b"):
        export.loads(body({"b": {"min_max": {"minimum": 0, "maximum": 2}}}))
    with pytest.raises(ExportError, match="expected min_max or standard"):
        export.loads(body({"a": {"robust": {}}}))
    with pytest.raises(ExportError, match="minimum < maximum"):
        export.loads(body({"a": {"min_max": {"minimum": 2, "maximum": 2}}}))


@pytest.mark.parametrize("word", ["pairrank-c", "pairrank-additive", "solr.ltr", "coef_", "definition"])
@pytest.mark.parametrize("format", ["elasticsearch", "solr", "json"])
def test_a_model_whose_names_are_words_of_other_formats_is_read(tmp_path: Path, format: str, word: str) -> None:
    model = LinearModel(word, np.ones(1), (word,), (None,))
    (tmp_path / "model").write_bytes(export.dumps(model, format))
    assert export.load(tmp_path / "model") == model


def test_a_solr_feature_without_a_weight_is_refused(model: LinearModel) -> None:
    document = json.loads(export.dumps(model, "solr"))
    document["features"].append({"name": "extra"})
    with pytest.raises(ExportError, match="extra"):
        export.loads(json.dumps(document).encode())


def test_newer_files_and_unknown_formats_are_named(model: LinearModel) -> None:
    newer = export.dumps(model, "json").replace(b'"version": 1', b'"version": 2')
    with pytest.raises(NewerFormatError, match="upgrade"):
        export.loads(newer)
    with pytest.raises(UnknownNameError, match="pmml"):
        export.dumps(model, "pmml")
    with pytest.raises(UnknownNameError, match="pmml"):
        export.loads(b"", "pmml")
    for written_only in (b"what is this", b'{"query": {}}', export.dumps(model, "qdrant", fold=True)):
        with pytest.raises(ExportError, match="no format known"):
            export.loads(written_only)


def test_a_changed_onnx_file_is_noticed(model: LinearModel) -> None:
    onnx = pytest.importorskip("onnx")
    file = onnx.load_model_from_string(export.dumps(model, "onnx"))
    weights = next(tensor for tensor in file.graph.initializer if tensor.name == "weights")
    weights.CopyFrom(onnx.numpy_helper.from_array(np.zeros(5), "weights"))
    with pytest.raises(ExportError, match="disagree"):
        export.loads(file.SerializeToString(), "onnx")
    with pytest.raises(ExportError, match="not an ONNX file"):
        export.loads(b"\xff\xff", "onnx")


def test_a_stored_model_of_the_plugin_is_read(model: LinearModel) -> None:
    body = json.loads(export.dumps(model, "elasticsearch"))
    stored = {"_index": ".ltrstore", "found": True, "_source": {"type": "model", "name": "shop", **body}}
    assert export.loads(json.dumps(stored).encode()) == export.loads(export.dumps(model, "elasticsearch"))


@pytest.mark.parametrize("kind", ["global", "standard"])
def test_a_trained_ranker_keeps_every_order_on_real_data(kind: str, real_data: Path) -> None:
    folder = str(real_data / "MQ2008")
    train, raw = data.load(folder, "train", 1, normalise=kind), data.load(folder, "test", 1, normalise="none")
    assert train.normaliser is not None
    ranker = PairRank(train.n_features, seed=0)
    for number in range(200):
        X, grades = train.query(number)
        impression = ranker.rank(X)
        ranker.learn(impression, grades[impression.ranking] > 0)
    names = [f"f{number}" for number in train.feature_ids]
    model = LinearModel.from_ranker(ranker, feature_names=names, normaliser=train.normaliser)
    bodies = {format: export.dumps(model, format).decode() for format in EVALUATORS}
    for X, _ in raw.queries():
        ours = order(ranker.score(train.normaliser.apply(X)))
        documents = [dict(zip(names, row, strict=True)) for row in X.astype(float).tolist()]
        for format, evaluate in EVALUATORS.items():
            assert order(evaluate(bodies[format], documents)) == ours
