"""The layers of all-MiniLM-L6-v2 as an onnxruntime graph over the weights in the model's file.

The graph refers to the weights by file offset; the runtime maps the file and packs the matrices that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from services.registry.adapters.language.safetensors import TensorLocation

LAYERS, HEADS, WIDTH = 6, 12, 384
# At most two threads without spinning, because other processes need the cores.
THREADS = 2
_EPSILON = 1e-12
_OPSET = 20
_INPUT, _MASK, _SHAPE = "hidden", "mask", "heads"
_SCALE, _FLAT = "scale", "flat"

Floats = npt.NDArray[np.float32]


class Encoder:
    """Runs the layers over token rows of texts that are padded to the same length."""

    def __init__(self, file: Path, locations: Sequence[TensorLocation]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(file.parent))
        # Memory is released after each batch, because the next may come in an hour.
        options.enable_cpu_mem_arena = False
        graph = _graph([_weight(file.name, location) for location in locations if location.name.startswith("encoder.")])
        model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(self, rows: Floats, lengths: Sequence[int]) -> Floats:
        """Return the output rows of texts with these lengths, which are padded to the longest."""
        longest = len(rows) // len(lengths)
        beyond = np.arange(longest) >= np.array(lengths)[:, None]
        mask = np.where(beyond, np.float32(-1e9), np.float32(0)).reshape(len(lengths), 1, 1, longest)
        shape = np.array([len(lengths), longest, HEADS, WIDTH // HEADS])
        output: Floats = self._session.run(None, {_INPUT: rows, _MASK: mask, _SHAPE: shape})[0]
        return output


def _weight(file: str, location: TensorLocation) -> TensorProto:
    tensor = TensorProto(name=location.name, data_type=TensorProto.FLOAT, dims=location.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", location.begin), ("length", location.end - location.begin)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _graph(weights: Sequence[TensorProto]) -> GraphProto:
    nodes: list[NodeProto] = []
    hidden = _INPUT
    for layer in range(LAYERS):
        hidden = _layer(nodes, hidden, f"encoder.layer.{layer}.")
    constants = [
        numpy_helper.from_array(np.array(1 / np.sqrt(WIDTH // HEADS), dtype=np.float32), _SCALE),
        numpy_helper.from_array(np.array([-1, WIDTH]), _FLAT),
    ]
    inputs = [
        helper.make_tensor_value_info(_INPUT, TensorProto.FLOAT, ["tokens", WIDTH]),
        helper.make_tensor_value_info(_MASK, TensorProto.FLOAT, ["texts", 1, 1, "longest"]),
        helper.make_tensor_value_info(_SHAPE, TensorProto.INT64, [4]),
    ]
    outputs = [helper.make_tensor_value_info(hidden, TensorProto.FLOAT, ["tokens", WIDTH])]
    return helper.make_graph(nodes, "encoder", inputs, outputs, [*weights, *constants])


def _layer(nodes: list[NodeProto], hidden: str, prefix: str) -> str:
    """Add one layer and return the name of its output."""

    def add(operation: str, inputs: Sequence[str], output: str, **settings: Any) -> str:
        nodes.append(helper.make_node(operation, inputs, [prefix + output], **settings))
        return prefix + output

    def linear(rows: str, name: str) -> str:
        return add("Gemm", [rows, f"{prefix}{name}.weight", f"{prefix}{name}.bias"], f"{name}.out", transB=1)

    def normal(left: str, right: str, name: str) -> str:
        total = add("Add", [left, right], f"{name}.sum")
        weights = [f"{prefix}{name}.LayerNorm.{kind}" for kind in ("weight", "bias")]
        return add("LayerNormalization", [total, *weights], f"{name}.normal", axis=-1, epsilon=_EPSILON)

    def heads(name: str, order: Sequence[int]) -> str:
        split = add("Reshape", [linear(hidden, f"attention.self.{name}"), _SHAPE], f"{name}.split")
        return add("Transpose", [split], f"{name}.heads", perm=order)

    query, key, value = heads("query", (0, 2, 1, 3)), heads("key", (0, 2, 3, 1)), heads("value", (0, 2, 1, 3))
    scores = add("Mul", [add("MatMul", [query, key], "likeness"), _SCALE], "scaled")
    shares = add("Softmax", [add("Add", [scores, _MASK], "masked")], "shares", axis=-1)
    mixed = add("Transpose", [add("MatMul", [shares, value], "mixed")], "joined", perm=(0, 2, 1, 3))
    attended = linear(add("Reshape", [mixed, _FLAT], "rows"), "attention.output.dense")
    hidden = normal(hidden, attended, "attention.output")
    widened = add("Gelu", [linear(hidden, "intermediate.dense")], "widened")
    return normal(hidden, linear(widened, "output.dense"), "output")
