"""The backend: which graphs torch hands over, what stays on the server, and a call of a compiled part.

AOTAutograd gives the forward graph and, where gradients are wanted, the backward graph, both of ATen
operators that core ATen's decompositions left. Each is one program of the server's.

A tensor that a call got or gave stays on the server as long as torch keeps it unchanged: parameters travel when
they have changed, and what a forward pass saves for the backward pass never leaves the server. Such a saved
tensor has no content in this process.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Sequence

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.weak import WeakIdKeyDictionary

from telegrad import _operations as operations
from telegrad._host import Host, Memory
from telegrad.errors import TelegradError, explained
from telegrad.torch._lower import Lowered, known
from telegrad.torch._table import kind, packet_of

_ATEN = torch.ops.aten


@functools.lru_cache(None)
def host() -> Host:
    return Host()


@functools.lru_cache(None)
def decompositions() -> dict[Any, Callable[..., Any]]:
    table = dict(torch._decomp.core_aten_decompositions())
    have = known()  # beyond core ATen, what has no graph of its own
    table.update((op, rule) for op, rule in torch._decomp.decomposition_table.items()
                 if isinstance(op, torch._ops.OpOverload) and op.namespace == "aten" and packet_of(op) not in have)
    for op in [op for op in table if torch.Tag.nondeterministic_seeded in getattr(op, "tags", ())]:
        del table[op]  # the numbers are to be those that the operator itself draws
    table[_ATEN._transformer_encoder_layer_fwd.default] = _encoder_layer
    return table


def _encoder_layer(x, width, heads, qkv_weight, qkv_bias, out_weight, out_bias, use_gelu, norm_first, eps, weight1,
                   bias1, weight2, bias2, up_weight, up_bias, down_weight, down_bias, mask=None, mask_type=None):
    """What torch calls for nn.TransformerEncoderLayer in inference, as the operators that it stands for."""
    F = torch.nn.functional
    if mask is not None:
        if mask_type == 1:  # of keys: [batch, keys]
            mask = mask[:, None, None, :]
        mask = torch.zeros_like(mask, dtype=x.dtype).masked_fill(mask, float("-inf")) if mask.dtype is torch.bool else mask

    def attend(h):
        batch, length = h.shape[:2]
        q, k, v = (t.reshape(batch, length, heads, -1).transpose(1, 2)
                   for t in F.linear(h, qkv_weight, qkv_bias).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) * (width // heads) ** -0.5
        y = (scores if mask is None else scores + mask).softmax(-1) @ v
        return F.linear(y.transpose(1, 2).reshape(batch, length, width), out_weight, out_bias)

    def feed(h):
        h = F.linear(h, up_weight, up_bias)
        return F.linear(F.gelu(h) if use_gelu else F.relu(h), down_weight, down_bias)

    def norm1(h):
        return F.layer_norm(h, (width,), weight1, bias1, eps)

    def norm2(h):
        return F.layer_norm(h, (width,), weight2, bias2, eps)

    if norm_first:
        x = x + attend(norm1(x))
        return x + feed(norm2(x))
    x = norm1(x + attend(x))
    return norm2(x + feed(x))


class _Kept:
    """The server's memory of a tensor; freed when torch lets the tensor go, or changes it."""

    def __init__(self, host: Host, memory: Memory) -> None:
        self.memory = memory
        self.version = -1
        self._end = weakref.finalize(self, host.drop, memory)
        self._end.atexit = False


_kept: WeakIdKeyDictionary = WeakIdKeyDictionary()


def _place(tensor: torch.Tensor, must_be_there: bool, counted: bool = False) -> _Kept:
    """Where the content of a tensor is on the server; it is sent if it is not there. `counted`: torch has counted a
    change that is still to come."""
    known = _kept.get(tensor)
    version = -2 if tensor.is_inference() else tensor._version - counted
    if known is not None and known.version == version and known.memory.era == host().era:
        return known
    if must_be_there:
        raise RuntimeError("a tensor that the forward pass had saved on the server no longer exists: the session ended, or it was "
                           "copied or changed by a hook, which telegrad.torch cannot follow. Run the step again")
    data = tensor.detach().contiguous()
    kept = _Kept(host(), host().alloc(max(data.nbytes, 1)))
    if data.nbytes:
        host().write(kept.memory, _bytes(data))
    _keep(tensor, kept)
    return kept


def _keep(tensor: torch.Tensor, kept: _Kept) -> None:
    if not tensor.is_inference():
        kept.version = tensor._version
        _kept[tensor] = kept


def _bytes(tensor: torch.Tensor) -> Any:
    return tensor.reshape(-1).view(torch.uint8).numpy()


class Compiled:
    """A graph of fixed shapes. `kept_from`: results from this number on stay on the server."""

    def __init__(self, module: torch.fx.GraphModule, kept_from: int | None, saved: Sequence[bool]) -> None:
        self.lowered = Lowered(module)
        self.operators = sum(node.op == "call_function" for node in module.graph.nodes)
        self.kept_from = len(self.lowered.results) if kept_from is None else kept_from
        self.saved = saved
        self.counted: frozenset[int] = frozenset()  # arguments that it writes, which torch counts as changed before the call
        self._hash, self._era = b"", -1  # what the server knows it by, and of which session that was

    def __call__(self, *args: Any) -> list[Any]:
        try:
            return self._call(args)
        except TelegradError as error:
            shapes = ", ".join(f"{s.dtype}{list(s.shape)}" for s in self.lowered.graph.slots if s.role == "input")
            raise explained(error, f"a compiled part of {self.operators} operators with the inputs {shapes}") from None

    def _call(self, args: Sequence[Any]) -> list[Any]:
        lowered, server = self.lowered, host()
        if lowered.mutated or any(isinstance(r, torch.Tensor) for r in lowered.results):
            memories, written = self._run(server, lowered, args)
        else:
            memories, written = {}, {}
        out: list[Any] = []
        reads = []
        for i, meta in enumerate(lowered.results):
            if not isinstance(meta, torch.Tensor):
                out.append(meta)
                continue
            tensor = torch.empty(tuple(meta.shape), dtype=meta.dtype)
            kept = memories[i]
            if i < self.kept_from and tensor.nbytes:
                reads.append((kept.memory, _bytes(tensor)))
            if tuple(meta.stride()) != tensor.stride() and i >= self.kept_from:
                tensor = torch.empty_strided(tuple(meta.shape), meta.stride(), dtype=meta.dtype)
            _keep(tensor, kept)
            out.append(tensor)
        values = {i: torch.empty(tuple(meta.shape), dtype=meta.dtype) for i, meta in lowered.mutated.items()}
        reads += [(written[i].memory, _bytes(value)) for i, value in values.items() if value.nbytes]
        server.read_all(reads)
        with torch.no_grad():
            for i, value in values.items():
                args[i].copy_(value)
                _keep(args[i], written[i])
        return out

    def _run(self, server: Host, lowered: Lowered, args: Sequence[Any]) -> tuple[dict[int, _Kept], dict[int, _Kept]]:
        """The memory of each result, and of what each argument that is written becomes."""
        server.renew()
        if self._era != server.era:
            self._hash = server.session.put(lowered.graph).hash
            self._constants = {s.name: server.session.upload(s.init, s.dtype, device=server.devices[0])
                               for s in lowered.graph.slots if s.role == "constant"}
            self._era = server.era
        handles, results, written, held = [], {}, {}, []
        drawn = [draw() for draw in lowered.draws]
        for slot in lowered.graph.slots:
            if slot.role == "constant":
                handles.append(self._constants[slot.name].handle)
                continue
            number = int(slot.name[1:])
            if slot.name[0] == "r":
                place = _place(drawn[number], False)
            elif slot.role == "input":
                place = _place(args[number], self.saved[number] if self.saved else False, number in self.counted)
            else:
                place = (written if slot.name[0] == "m" else results)[number] = _Kept(server, server.alloc(max(slot.nbytes, 1)))
            held.append(place)
            handles.append(place.memory.handle)
        server.flush()
        server.session._submit(operations.run(self._hash, handles, {}, [server.devices[0]], None, quiet=True))
        return results, written


class PerShape:
    """A graph with symbolic sizes: one Compiled for each set of sizes that it is called with."""

    def __init__(self, module: torch.fx.GraphModule, kept_from: int | None) -> None:
        self.module, self.kept_from = module, kept_from
        self._made: dict[Any, Compiled] = {}

    def __call__(self, *args: Any) -> list[Any]:
        key = tuple((tuple(a.shape), a.dtype) if isinstance(a, torch.Tensor) else a for a in args)
        if key not in self._made:
            fixed = make_fx(self.module, tracing_mode="fake", decomposition_table=decompositions())(*args)
            self._made[key] = Compiled(fixed, self.kept_from, ())
        return self._made[key](*args)


def _is_symbolic(values: Sequence[Any]) -> bool:
    return any(isinstance(v, torch.SymInt) or
               (isinstance(v, torch.Tensor) and any(isinstance(d, torch.SymInt) for d in v.shape)) for v in values)


def _compiler(which: str) -> Callable[..., Any]:
    def compile(module: torch.fx.GraphModule, example: Sequence[Any]) -> Any:
        from functorch.compile import make_boxed_func

        if _is_symbolic(example):
            return make_boxed_func(PerShape(module, None))
        nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
        for node, value in zip(nodes, example):
            if isinstance(value, torch.Tensor):
                kind(value.dtype)
                if value.device.type != "cpu":
                    raise RuntimeError(f"{node.name} is on {value.device}; leave the model on the CPU, "
                                       "Telegrad's server has it on its own devices")
        kept_from, saved = None, ()
        if which == "forward" and (context := TracingContext.try_get()) is not None:
            kept_from = getattr(context.fw_metadata, "num_forward", None)
        if which == "backward":
            # What is no argument of the forward pass and no gradient is what it saved.
            saved = tuple(not n.name.startswith(("primals", "tangents")) for n in nodes)
        compiled = Compiled(module, kept_from, saved)
        if which == "inference" and (context := TracingContext.try_get()) is not None:
            meta = context.fw_metadata
            if meta is not None and len(meta.input_info) == len(nodes):
                compiled.counted = frozenset(meta.mutated_graph_handled_indices_seen_by_autograd)
        return make_boxed_func(compiled)

    return compile


def backend(module: torch.fx.GraphModule, example: Sequence[Any], **options: Any) -> Any:
    """For torch.compile."""
    if options.get("options"):
        raise ValueError("the backend telegrad has no options; the environment says where the server is")
    make = aot_autograd(fw_compiler=_compiler("forward"), bw_compiler=_compiler("backward"),
                        inference_compiler=_compiler("inference"), decompositions=decompositions(),
                        keep_inference_input_mutations=True)
    # Where torch has an operator of its own for a whole layer on the CPU, its parts are wanted.
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            return make(module, example)
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def register() -> None:
    """Where the package was not installed, and so has no entry point."""
    from torch._dynamo import list_backends, register_backend

    if "telegrad" not in list_backends(()):
        register_backend(backend, name="telegrad")


register()
