#!/usr/bin/env python3
"""Prints engine/frontend/onnx/peers.def: which operators of standard.def ONNX Runtime and tinygrad have.

  onnx_peers.py engine/frontend/onnx/standard.def > engine/frontend/onnx/peers.def

Needs the packages onnx, onnxruntime and tinygrad. ONNX Runtime has an operator if its processor provider has a kernel of
it, or if the standard defines it as a function of others, which ONNX Runtime then runs. tinygrad has those of its table.
"""

import importlib.metadata
import re
import sys

import onnx
import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state as state
from tinygrad.nn.onnx import onnx_ops


def full(domain, name):
    return f"{domain}.{name}" if domain not in ("", "ai.onnx") else name


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        names = re.findall(r'^STANDARD\("([^"]+)"', f.read(), re.MULTILINE)
    runtime = {full(k.domain, k.op_name) for k in state.get_all_opkernel_def() if k.provider == "CPUExecutionProvider"}
    runtime |= {full(s.domain, s.name) for s in onnx.defs.get_all_schemas()
                if s.has_function or s.has_context_dependent_function}
    runtime |= {"Constant"}  # becomes an initializer
    version = importlib.metadata.version("tinygrad")
    print("// Which operators others have: PEER(name, ONNX Runtime's processor provider, tinygrad). Facts of ONNX Runtime")
    print(f"// {onnxruntime.__version__} (MIT) and tinygrad {version} (MIT); printed by tests/tools/onnx_peers.py.")
    training = "ai.onnx.preview.training."
    for name in names:
        print(f'PEER("{name}", {str(name in runtime).lower()}, {str(name.removeprefix(training) in onnx_ops).lower()})')


if __name__ == "__main__":
    main()
