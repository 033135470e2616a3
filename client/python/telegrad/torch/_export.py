"""A model as a file that `telegrad run` loads: its graph, and its parameters as tensors (docs/pytorch.md)."""

from __future__ import annotations

import base64
import json
import os
import struct
from typing import Any, Mapping, Sequence

import torch
from torch.export.graph_signature import InputKind, OutputKind

from telegrad import dtypes
from telegrad.torch._backend import decompositions
from telegrad.torch._lower import Lowered
from telegrad.torch._table import Unsupported

_SAFETENSORS = {"bool": "BOOL", "i8": "I8", "i16": "I16", "i32": "I32", "i64": "I64", "u8": "U8", "f16": "F16",
                "bf16": "BF16", "f32": "F32", "f64": "F64"}
_STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def export(model: torch.nn.Module, args: Sequence[Any], path: str | os.PathLike[str],
           kwargs: Mapping[str, Any] = {}) -> list[str]:
    """Saves what the model computes of arguments of these shapes; the names of the file's inputs.

    The shapes are those of `args`. What the model computes with numbers that are arguments is computed with
    those of `args`. An argument that the model does not use is no input of the file.
    """
    with torch.no_grad():
        program = torch.export.export(model, tuple(args), dict(kwargs)).run_decompositions(decompositions())
    signature = program.graph_signature
    for spec in signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            raise Unsupported(f"the model changes {spec.target or spec.arg}, which a file cannot keep; call model.eval() "
                              "before the export")
    kinds = {spec.arg.name: spec for spec in signature.input_specs}
    used = []
    for node in [n for n in program.graph.nodes if n.op == "placeholder"]:
        if not isinstance(node.meta.get("val"), torch.Tensor) or not node.users:
            if node.users:
                raise Unsupported(f"the argument {node.name} is no tensor, and the model needs it as one")
            program.graph.erase_node(node)
        else:
            used.append(kinds[node.name])
    lowered = Lowered(torch.fx.GraphModule(program.graph_module, program.graph))
    if lowered.draws:
        raise Unsupported("the model draws random numbers; call model.eval() before the export")
    slots, state = _slots(program, used, lowered)
    _write(path, lowered.graph.serialize(), slots, state)
    return [slot["name"] for slot in slots if slot["role"] == "input"]


def _slots(program: torch.export.ExportedProgram, used: Sequence[Any], lowered: Lowered,
           ) -> tuple[list[dict[str, str]], dict[str, tuple[str, Sequence[int], Any]]]:
    """What each slot is; and of each that is state its type, shape and bytes."""
    slots: list[dict[str, str]] = []
    state: dict[str, tuple[str, Sequence[int], Any]] = {}
    outputs = sum(slot.role == "output" for slot in lowered.graph.slots)
    taken: set[str] = {"__metadata__"}

    def named(name: str) -> str:
        while name in taken:
            name += "_"
        taken.add(name)
        return name

    for slot in lowered.graph.slots:
        if slot.role == "constant":
            name = named(slot.name)
            state[name] = (slot.dtype.name, slot.shape, dtypes.to_bytes(slot.init, slot.dtype))
            slots.append({"name": name, "role": "state"})
        elif slot.role == "output":
            slots.append({"name": named("output" if outputs == 1 else f"output{slot.name[1:]}"), "role": "output"})
        else:
            spec = used[int(slot.name[1:])]
            name = named(spec.target if spec.kind in _STATE else spec.arg.name)
            slots.append({"name": name, "role": "state" if spec.kind in _STATE else "input"})
            if spec.kind in _STATE:
                known = program.constants if spec.target in program.constants else program.state_dict
                value = known[spec.target].detach().contiguous()
                state[name] = (slot.dtype.name, slot.shape, memoryview(value.reshape(-1).view(torch.uint8).numpy()))
    return slots, state


def _write(path: str | os.PathLike[str], graph: bytes, slots: Sequence[Mapping[str, str]],
           state: Mapping[str, tuple[str, Sequence[int], Any]]) -> None:
    """A safetensors file; the one at the path is replaced once the new one is whole."""
    header: dict[str, Any] = {"__metadata__": {
        "telegrad.plan": "1", "telegrad.graph": base64.b64encode(graph).decode(),
        "telegrad.slots": json.dumps(slots)}}
    at = 0
    for name, (kind, shape, data) in state.items():
        header[name] = {"dtype": _SAFETENSORS[kind], "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    partial = f"{os.fspath(path)}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for _, _, data in state.values():
                file.write(data)
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.remove(partial)
        raise
