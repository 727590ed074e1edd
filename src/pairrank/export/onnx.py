"""ONNX: ``features`` (n, d) float32 in, ``scores`` (n,) float64 out, by Cast, Sub, Div, MatMul.

The arithmetic is in 64 bits, so that runtimes give the scores that we give. Names, kinds of normalisers and
the exact numbers travel in the file's metadata, from where `loads` takes them.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from pairrank.errors import ExportError, MissingExtraError
from pairrank.export import json_model
from pairrank.export.model import LinearModel

OPSET = 13
IR_VERSION = 8
KEY = "pairrank"


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("onnx", "onnx") from None
    return onnx


def dumps(model: LinearModel) -> bytes:
    """The model as an ONNX file."""
    onnx = _onnx()
    helper, kind = onnx.helper, onnx.TensorProto
    shift, scale = model.affine()
    constants = {"shift": shift, "scale": scale, "weights": model.weights}
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["features"], ["wide"], to=kind.DOUBLE),
            helper.make_node("Sub", ["wide", "shift"], ["centred"]),
            helper.make_node("Div", ["centred", "scale"], ["normalised"]),
            helper.make_node("MatMul", ["normalised", "weights"], ["scores"]),
        ],
        "pairrank-linear",
        [helper.make_tensor_value_info("features", kind.FLOAT, ["n_docs", model.n_features])],
        [helper.make_tensor_value_info("scores", kind.DOUBLE, ["n_docs"])],
        [onnx.numpy_helper.from_array(np.array(value), name) for name, value in constants.items()],
        doc_string="score = ((features - shift) / scale) · weights; higher is better",
    )
    file = helper.make_model(
        graph,
        producer_name="pairrank",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    helper.set_model_props(file, {KEY: json.dumps(json_model.document(model), ensure_ascii=False)})
    onnx.checker.check_model(file, full_check=True)
    blob: bytes = file.SerializeToString(deterministic=True)
    return blob


def loads(blob: bytes, *, source: str = "this model") -> LinearModel:
    """The model of a file that `dumps` wrote; graphs from elsewhere are not read as linear models."""
    onnx = _onnx()
    try:
        file = onnx.load_model_from_string(blob)
    except Exception as problem:  # protobuf raises its own classes, which differ between its versions
        raise ExportError(f"{source} is not an ONNX file: {problem}") from None
    text = next((entry.value for entry in file.metadata_props if entry.key == KEY), None)
    if text is None:
        raise ExportError(f"{source} was not written by PairRank; other ONNX graphs cannot be imported")
    model = json_model.loads(text.encode(), source=source)
    weights = next((tensor for tensor in file.graph.initializer if tensor.name == "weights"), None)
    if weights is None or not np.array_equal(onnx.numpy_helper.to_array(weights), model.weights):
        raise ExportError(f"{source} was changed since it was exported: its graph and its metadata disagree")
    return model
