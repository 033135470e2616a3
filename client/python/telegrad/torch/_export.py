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
from telegrad.torch._backend import decompositions, in_parts
from telegrad.torch._lower import Lowered, known
from telegrad.torch._sizes import is_number
from telegrad.torch._table import Unsupported, packet_of

_SAFETENSORS = {"bool": "BOOL", "i8": "I8", "i16": "I16", "i32": "I32", "i64": "I64", "u8": "U8", "f16": "F16",
                "bf16": "BF16", "f32": "F32", "f64": "F64"}
_STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def export(model: torch.nn.Module, args: Sequence[Any], path: str | os.PathLike[str],
           kwargs: Mapping[str, Any] = {}, dynamic_shapes: Any = None) -> list[str]:
    """Saves what the model computes of arguments of these shapes; the names of the file's inputs.

    The shapes are those of `args`, except for the dimensions that `dynamic_shapes` names as torch.export does: each needs
    a largest size. What the model computes with numbers that are arguments is computed with those of `args`. An argument
    that the model does not use is no input of the file.
    """
    with torch.no_grad():
        program = torch.export.export(model, tuple(args), dict(kwargs), dynamic_shapes=dynamic_shapes)
        with in_parts():
            program = program.run_decompositions(_decompositions())
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
                raise Unsupported(f"the argument {node.name} is not a tensor, and the model needs it as one")
            program.graph.erase_node(node)
        else:
            used.append(kinds[node.name])
    inputs = {spec.arg.name for spec in used if spec.kind is InputKind.USER_INPUT}
    names = _names_of_symbols([n for n in program.graph.nodes if n.name in inputs], dynamic_shapes)
    lowered = Lowered(torch.fx.GraphModule(program.graph_module, program.graph), _bounds(program, names),
                      asserts=False)
    if lowered.draws:
        raise Unsupported("the model draws random numbers; call model.eval() before the export")
    slots, state = _slots(program, used, lowered)
    sizes = [names.get(v.name, v.name) for v in lowered.graph.variables]
    _write(path, lowered.graph.serialize(), slots, state, sizes)
    return [slot["name"] for slot in slots if slot["role"] == "input"]


def _decompositions() -> dict[Any, Any]:
    """Also of the operators that torch.compile would never show: those that torch writes by others, such as attention."""
    have = known()
    of_torch = torch.export.default_decompositions().items()
    return {op: rule for op, rule in of_torch if packet_of(op) not in have} | decompositions()


def _names_of_symbols(nodes: Sequence[torch.fx.Node], dynamic_shapes: Any) -> dict[str, str]:
    """What the caller calls torch's symbols: the Dim of the dimension that a symbol is."""
    names: dict[str, str] = {}
    for number, node in enumerate(nodes):
        if isinstance(dynamic_shapes, Mapping):
            given = dynamic_shapes.get(node.name)
        else:
            given = dynamic_shapes[number] if dynamic_shapes is not None and number < len(dynamic_shapes) else None
        for axis, size in enumerate(node.meta["val"].shape):
            if isinstance(given, Mapping):
                dim = given.get(axis)
            else:
                dim = given[axis] if isinstance(given, Sequence) and axis < len(given) else None
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and hasattr(dim, "__name__"):
                names.setdefault(str(size.node.expr), dim.__name__)  # type: ignore[union-attr]
    return names


def _bounds(program: torch.export.ExportedProgram, names: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Of the symbols, as the caller gave them."""
    out = {}
    for symbol, known in program.range_constraints.items():
        name = names.get(str(symbol), str(symbol))
        if not is_number(known.upper):
            raise Unsupported(f"the dimension {name} has no largest size; say it: torch.export.Dim({name!r}, max=...)")
        out[str(symbol)] = (max(int(known.lower), 1) if is_number(known.lower) else 1, int(known.upper))
    return out


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
           state: Mapping[str, tuple[str, Sequence[int], Any]], sizes: Sequence[str]) -> None:
    """A safetensors file; the one at the path is replaced once the new one is whole."""
    header: dict[str, Any] = {"__metadata__": {
        "telegrad.plan": "1", "telegrad.graph": base64.b64encode(graph).decode(),
        "telegrad.slots": json.dumps(slots), **({"telegrad.sizes": json.dumps(sizes)} if sizes else {})}}
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
