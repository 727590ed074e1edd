"""ONNX: ``features`` (n, d) float32 in, ``scores`` (n,) float64 out, by Cast, Sub, Div, MatMul, Squeeze.

The arithmetic is in 64 bits, so that runtimes give the scores that we give. Names, kinds of normalisers and
the exact numbers travel in the file's metadata, from where `loads` takes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pairrank.checking import import_extra
from pairrank.errors import ExportError
from pairrank.export import additive, json_model
from pairrank.export.additive import AdditiveModel
from pairrank.export.model import LinearModel

OPSET = 13
IR_VERSION = 8
KEY = "pairrank"


def dumps(model: LinearModel) -> bytes:
    onnx = import_extra("onnx", "onnx")
    node, kind = onnx.helper.make_node, onnx.TensorProto
    shift, scale = model.affine()
    nodes = [
        node("Cast", ["features"], ["wide"], to=kind.DOUBLE),
        node("Sub", ["wide", "shift"], ["centred"]),
        node("Div", ["centred", "scale"], ["normalised"]),
        node("MatMul", ["normalised", "weights"], ["column"]),
    ]
    constants = {"shift": shift, "scale": scale, "weights": model.weights[:, None]}
    doc = "score = ((features - shift) / scale) · weights; higher is better"
    return _file(onnx, nodes, constants, json_model.document(model), doc)


def _file(
    onnx: Any, nodes: Sequence[Any], constants: Mapping[str, ArrayLike], document: dict[str, Any], doc: str
) -> bytes:
    """A graph from ``features`` to ``scores`` as a file, with the model's own numbers in its metadata.

    ``nodes`` end in a ``column`` (n_docs, 1): a product with a vector fails in ONNX Runtime where there are no rows.
    """
    helper, kind = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [*nodes, helper.make_node("Squeeze", ["column", "columns"], ["scores"])],
        document["format"],
        [helper.make_tensor_value_info("features", kind.FLOAT, ["n_docs", len(document["features"])])],
        [helper.make_tensor_value_info("scores", kind.DOUBLE, ["n_docs"])],
        [onnx.numpy_helper.from_array(np.array(value), name) for name, value in {**constants, "columns": [1]}.items()],
        doc_string=doc,
    )
    file = helper.make_model(
        graph, producer_name="pairrank", ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    helper.set_model_props(file, {KEY: json.dumps(document, ensure_ascii=False)})
    onnx.checker.check_model(file, full_check=True)
    blob: bytes = file.SerializeToString(deterministic=True)
    return blob


def dumps_additive(model: AdditiveModel) -> bytes:
    """An additive model as an ONNX file: each function by its pieces' rises, and by its slope beyond the ends.

    g(x) = y_0 + Σ_i (y_{i+1} - y_i) clip((x - x_i) / (x_{i+1} - x_i), 0, 1) + slope · (x - clip(x, x_0, x_p)).
    """
    onnx = import_extra("onnx", "onnx")
    node, functions = onnx.helper.make_node, model.functions
    most = 0.001 * max(float(np.ptp(function.y)) for function in functions)
    additive.check_resolution(model, most, "ONNX can tell, whose features are of 32 bits", steps=False)
    pieces: list[tuple[float, ...]] = [
        (f, *piece) for f, g in enumerate(functions) for piece in zip(g.x, np.diff(g.x), np.diff(g.y), strict=False)
    ]
    pieces = pieces or [(0, 0.0, 1.0, 0.0)]  # a graph cannot hold an empty product
    constants: dict[str, ArrayLike] = {
        **dict(zip(("owner", "starts", "lengths"), zip(*pieces, strict=True), strict=False)),
        "rises": [piece[-1:] for piece in pieces],
        "low": [f.x[0] for f in functions],
        "high": [f.x[-1] for f in functions],
        "slopes": [[f.slope] for f in functions],
        # What is missing is first taken for the lowest knot, and then gets the rest; NaN where it has no value.
        "lost": [np.nan if f.missing is None else f.missing - f.y[0] for f in functions],
        "ones": np.ones((len(functions), 1)),
        "first": sum(f.y[0] for f in functions),
        "zero": 0.0,
        "one": 1.0,
    }
    terms, together = ["inside", "outside", "absent", "first"], []
    if model.products:
        terms.append("together")
        middles = np.zeros(len(functions))
        for product in model.products:
            middles[list(product.features)] = product.middles
        constants |= {
            "middles": middles,
            "left": [product.features[0] for product in model.products],
            "right": [product.features[1] for product in model.products],
            "of_products": [[product.weight] for product in model.products],
        }
        together = [
            node("Where", ["is_lost", "middles", "wide"], ["filled"]),
            node("Max", ["filled", "low"], ["filled_above"]),
            node("Min", ["filled_above", "high"], ["filled_between"]),
            node("Sub", ["filled_between", "middles"], ["away"]),
            node("Gather", ["away", "left"], ["of_left"], axis=1),
            node("Gather", ["away", "right"], ["of_right"], axis=1),
            node("Mul", ["of_left", "of_right"], ["products"]),
            node("MatMul", ["products", "of_products"], ["together"]),
        ]
    nodes = [
        node("Cast", ["features"], ["wide"], to=onnx.TensorProto.DOUBLE),
        node("IsNaN", ["wide"], ["is_lost"]),
        node("Where", ["is_lost", "low", "wide"], ["known"]),
        node("Gather", ["known", "owner"], ["of_piece"], axis=1),
        node("Sub", ["of_piece", "starts"], ["way"]),
        node("Div", ["way", "lengths"], ["share"]),
        node("Clip", ["share", "zero", "one"], ["clipped"]),
        node("MatMul", ["clipped", "rises"], ["inside"]),
        node("Max", ["known", "low"], ["above"]),
        node("Min", ["above", "high"], ["between"]),
        node("Sub", ["known", "between"], ["beyond"]),
        node("MatMul", ["beyond", "slopes"], ["outside"]),
        node("Where", ["is_lost", "lost", "zero"], ["gone"]),
        node("MatMul", ["gone", "ones"], ["absent"]),
        *together,
        node("Sum", terms, ["column"]),
    ]
    doc = "a sum of piecewise-linear functions, one per feature; higher is better"
    return _file(onnx, nodes, constants, additive.document(model), doc)


def loads(blob: bytes, *, source: str = "this model") -> LinearModel:
    """The model of a file that `dumps` wrote; graphs from elsewhere are not read as linear models."""
    onnx = import_extra("onnx", "onnx")
    try:
        file = onnx.load_model_from_string(blob)
    except Exception as problem:  # protobuf raises its own classes, which differ between its versions
        raise ExportError(f"{source} is not an ONNX file: {problem}") from None
    text = next((entry.value for entry in file.metadata_props if entry.key == KEY), None)
    if text is None:
        raise ExportError(f"{source} was not written by PairRank; other ONNX graphs cannot be imported")
    model = json_model.loads(text.encode(), source=source)
    weights = next((tensor for tensor in file.graph.initializer if tensor.name == "weights"), None)
    if weights is None or not np.array_equal(onnx.numpy_helper.to_array(weights).ravel(), model.weights):
        raise ExportError(f"{source} was changed since it was exported: its graph and its metadata disagree")
    return model
