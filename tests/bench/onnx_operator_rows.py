"""Single operators and small parts of models at the sizes that real models have, as ONNX files with their inputs; the
rows are in onnx_rows_*.py.

A row is a name and a function that returns a Row: nodes, inputs and weights as NumPy arrays, names of outputs. Shapes
of outputs are left to whoever loads the file.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROWS: dict[str, Callable[[], "Row"]] = {}
TYPES = {np.dtype(t): p for t, p in {
    np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16, np.float64: TensorProto.DOUBLE,
    np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8, np.int32: TensorProto.INT32,
    np.uint32: TensorProto.UINT32, np.int64: TensorProto.INT64, np.bool_: TensorProto.BOOL}.items()}
random = np.random.default_rng(11)


@dataclasses.dataclass
class Row:
    """A graph whose constants are initializers; `outputs` maps names to NumPy types (None: sequences and the like)."""
    nodes: list
    inputs: dict
    weights: dict
    outputs: dict
    opset: int = 19

    def model(self):
        values = [helper.make_tensor_value_info(n, TYPES[v.dtype], v.shape) for n, v in self.inputs.items()]
        outputs = [helper.make_tensor_value_info(n, TYPES[np.dtype(t)], None) for n, t in self.outputs.items()]
        weights = [numpy_helper.from_array(np.asarray(v), n) for n, v in self.weights.items()]
        graph = helper.make_graph(self.nodes, "row", values, outputs, weights)
        return helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1),
            helper.make_opsetid("ai.onnx.ml", 3)])


def floats(*shape, low=-1.0, high=1.0, dtype=np.float32):
    return (random.random(shape, dtype=np.float32) * (high - low) + low).astype(dtype)


def ints(low, high, *shape, dtype=np.int64):
    return random.integers(low, high, shape, dtype=dtype)


def row(name):
    def add(make):
        ROWS[name] = make
        return make
    return add


def one(name, operator, inputs, weights=None, outputs=1, dtype=np.float32, opset=19, domain="", given=None, **attributes):
    """A row of one node: the inputs in their order, then the weights, whose value None leaves one out."""
    def make():
        filled = {k: v() if callable(v) else v for k, v in inputs.items()}
        constant = {k: v() if callable(v) else v for k, v in (weights or {}).items()}
        names = given or [*filled, *[k if v is not None else "" for k, v in constant.items()]]
        types = dtype if isinstance(dtype, list) else [dtype] * outputs
        results = {f"y{i}": t for i, t in enumerate(types)}
        node = helper.make_node(operator, names, list(results), domain=domain, **attributes)
        return Row([node], filled, {k: v for k, v in constant.items() if v is not None}, results, opset)
    ROWS[name] = make


def boxes(batch, n, size=640.0):
    corner = floats(batch, n, 2, low=0, high=size)
    extent = floats(batch, n, 2, low=4, high=size / 6)
    return np.concatenate([corner, corner + extent], -1).astype(np.float32)


def scores(batch, classes, n):
    """A detector's: most are near nothing."""
    return (random.random((batch, classes, n), dtype=np.float32) ** 8).astype(np.float32)
