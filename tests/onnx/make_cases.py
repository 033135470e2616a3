#!/usr/bin/env python3
"""Makes cases of ONNX models, with random inputs and the outputs of ONNX Runtime, for the tests that read
TELEGRAD_ONNX_CASES (onnx_on_hip_test, graphs_on_cuda_test) and for onnx_conformance.

  make_cases.py FOLDER MODEL.onnx[=DIMS]...

DIMS, as 1x3x64x64, are those of the first input, for models of which the rest follows from it: an interpreter of GPU
code runs an image of 64 x 64 in a twelfth of the time that one of 224 x 224 takes.

Floats may differ by 1e-3 of themselves and 1e-4 of the largest; each output of a model with QuantizeLinear by 5% of the
largest, because a sum that is rounded the other way moves all that follows by a step.
"""

import os
import sys

SKIPPED = 77
try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}; pip install onnx onnxruntime")
    sys.exit(SKIPPED)


def random_input(value, random):
    """For the input of a model: tokens below 1,000, or numbers of one standard deviation."""
    dims = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
    kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    if np.issubdtype(kind, np.integer):
        return random.integers(0, min(1000, np.iinfo(kind).max), dims).astype(kind)
    return np.asarray(random.standard_normal(dims)).astype(kind)


def resize(model, dims):
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, dims):
        dim.dim_value = size
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")


def make(folder, path, dims):
    model = onnx.load(path)
    if dims:
        resize(model, dims)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(1)
    fixed = {tensor.name for tensor in model.graph.initializer}
    given = [value for value in model.graph.input if value.name not in fixed]
    feeds = {value.name: random_input(value, random) for value in given}
    results = session.run(None, feeds)
    name = os.path.splitext(os.path.basename(path))[0] + ("_" + "x".join(map(str, dims)) if dims else "")
    data = os.path.join(folder, name, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    onnx.save(model, os.path.join(folder, name, "model.onnx"))
    for kind, values in (("input", [feeds[value.name] for value in given]), ("output", results)):
        for i, value in enumerate(values):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as file:
                file.write(numpy_helper.from_array(np.ascontiguousarray(value)).SerializeToString())
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    largest = max([np.abs(x).max() for x in results if np.issubdtype(x.dtype, np.floating) and x.size], default=0)
    return f"{name}\tnetwork\t1e-3\t{(0.05 if quantized else 1e-4) * largest}\n"


def main():
    if len(sys.argv) < 3 or sys.argv[1] == "--help":
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "manifest.tsv"), "w", encoding="utf-8") as manifest:
        manifest.write("name\top\trtol\tatol\n")
        for argument in sys.argv[2:]:
            path, _, dims = argument.partition("=")
            manifest.write(make(folder, path, [int(size) for size in dims.split("x")] if dims else []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
