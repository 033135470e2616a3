"""The backend: which graphs torch hands over, what stays on the server, and a call of a compiled part.

AOTAutograd gives the forward graph and, where gradients are wanted, the backward graph, both of ATen
operators that core ATen's decompositions left. Each is one program of the server's.

A tensor that a call got or gave stays on the server as long as torch keeps it unchanged: parameters travel when
they have changed, and what a forward pass saves for the backward pass never leaves the server.

A graph with symbolic sizes is one program for all of them up to a bound (_sizes.py); where an operator in it needs to know
a size, it is a program for each set of sizes.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import math
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from telegrad import _operations as operations
from telegrad._host import Host, Into, Memory
from telegrad._operations import Operation
from telegrad.errors import TelegradError, explained
from telegrad.graph import Slot
from telegrad.torch import _bags, _samples
from telegrad.torch._flex import spell_attention
from telegrad.torch._kept import Kept, absent, bring, can_leave, filled, host, is_plain, keep, lay_out, leave, may_leave, place
from telegrad.torch._lower import Argument, Lowered, known
from telegrad.torch._partition import partition
from telegrad.torch._parts import Parts
from telegrad.torch._sizes import Bounds, Symbols, real
from telegrad.torch._table import Unsupported, packet_of

_ATEN = torch.ops.aten


@functools.lru_cache(None)
def decompositions() -> dict[Any, Callable[..., Any]]:
    table = dict(torch._decomp.core_aten_decompositions())
    have = known()  # beyond core ATen, what has no graph of its own
    table.update((op, rule) for op, rule in torch._decomp.decomposition_table.items()
                 if isinstance(op, torch._ops.OpOverload) and op.namespace == "aten" and packet_of(op) not in have)
    for op in [op for op in table if torch.Tag.nondeterministic_seeded in getattr(op, "tags", ())]:
        del table[op]  # the numbers are to be those that the operator itself draws
    table.update(_bags.rules())
    table.update(_samples.rules())
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


@dataclasses.dataclass(frozen=True)
class Role:
    """What AOTAutograd says of a graph's arguments and results, by their numbers."""

    kept_from: int | None = None  # results from here on are for the backward pass and stay on the server
    counted: frozenset[int] = frozenset()  # arguments that it writes, which torch counts as changed before the call
    resident: bool = False  # what it writes into arguments stays on the server alone
    resident_results: frozenset[int] = frozenset()  # and so do these results: the gradients of parameters
    strided: bool = True  # results have the strides that torch says; torch itself lays out gradients as what they are of


class Result(NamedTuple):
    """A tensor that a call gives, of the slot of this number."""

    slot: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int
    plain: bool  # the strides are those of a contiguous tensor


class Sized(NamedTuple):
    """What a call gives and, by their numbers, what the arguments that it writes become."""

    results: list[Any]  # Result, Argument, None, numbers
    mutated: dict[int, Result]


class Bound(NamedTuple):
    """What a call binds to a slot."""

    of: str  # "a" an argument, "r" what is drawn, "c" a constant, "" memory that the run writes
    number: int  # among those of its kind
    nbytes: int
    counted: bool = False  # torch counts a change of it before the call


_MOST_RUNS = 64  # sets of buffers whose runs are kept encoded


class Compiled:
    """A graph as a program, whose symbolic sizes are between `bounds`.

    What a call needs and all calls have in common is computed once: which slot gets what, the shapes and bytes of the
    results, and the run of each set of buffers, encoded. Buffers are used again, so that the sets are few.
    """

    def __init__(self, module: torch.fx.GraphModule, role: Role, bounds: Bounds = {}) -> None:
        self.lowered = Lowered(module, bounds, kept_from=role.kept_from)
        self.operators = sum(node.op == "call_function" for node in module.graph.nodes)
        self.kept_from = len(self.lowered.results) if role.kept_from is None else role.kept_from
        self.role = role
        self._era = -1  # of which session the following are
        self._hash = b""
        self._constants: list[Kept] = []
        self._runs: dict[tuple[int, ...], Operation] = {}  # by handles; of programs without variables
        slots = self.lowered.graph.slots
        numbers = {slot.name: i for i, slot in enumerate(slots)}
        self._slot_of = numbers
        self._slots: list[Bound] = []
        for slot in slots:
            self._slots.append(self._plan(slot))
        self._own = [slot.nbytes for slot in self._slots if not slot.of]
        self._tests = [numbers[f"t{i}"] for i in range(len(self.lowered.asserted))]
        self._symbolic = bool(bounds)
        self._sized: Sized | None = None  # where it is the same in each call
        self._computes = bool(self.lowered.mutated or self.lowered.asserted) or any(isinstance(r, torch.Tensor) for r in self.lowered.results)

    def _plan(self, slot: Slot) -> Bound:
        if slot.role == "constant":
            return Bound("c", sum(other.of == "c" for other in self._slots), slot.nbytes)
        nbytes = max(slot.nbytes, 1)
        if slot.role != "input":
            return Bound("", 0, nbytes)
        number = int(slot.name[1:])
        if slot.name[0] == "r":
            return Bound("r", number, nbytes)
        return Bound("a", number, nbytes, number in self.role.counted)

    def __call__(self, *args: Any, symbols: Mapping[str, int] = {}) -> list[Any]:
        try:
            return self._call(args, symbols)
        except TelegradError as error:
            shapes = ", ".join(f"{s.dtype}{list(s.shape)}" for s in self.lowered.graph.slots if s.role == "input")
            raise explained(error, f"a compiled part of {self.operators} operators with the inputs {shapes}") from None

    def _call(self, args: Sequence[Any], symbols: Mapping[str, int]) -> list[Any]:
        server = host()
        plan = self._sized or self._size(symbols)
        kept: list[Kept] = []  # by slot
        run = None
        if self._computes:
            kept, run = self._bind(server, args, symbols)
        out: list[Any] = []
        reads: list[tuple[Memory, Into]] = []
        made: list[tuple[torch.Tensor, torch.Tensor, Result]] = []
        stay: list[tuple[torch.Tensor, Result]] = []
        for i, result in enumerate(plan.results):
            if not isinstance(result, Result):
                out.append(args[result.number] if isinstance(result, Argument) else result)
                continue
            if i < self.kept_from:
                if i in self.role.resident_results and result.nbytes and result.dtype.is_floating_point:
                    out.append(absent(result.shape, result.dtype, kept[result.slot]))
                    continue
                tensor = value = torch.empty(result.shape, dtype=result.dtype)
                if result.nbytes:
                    reads.append((kept[result.slot].memory, filled(value, result.nbytes)))
                    if self.role.strided and not result.plain:
                        tensor = torch.empty_strided(result.shape, result.stride, dtype=result.dtype)
                made.append((tensor, value, result))
            else:
                tensor = torch.empty_strided(result.shape, result.stride, dtype=result.dtype)
                stay.append((tensor, result))
            out.append(tensor)
        written: list[tuple[torch.Tensor, Result]] = []
        values: list[tuple[torch.Tensor, torch.Tensor, Result]] = []
        for i, result in plan.mutated.items():
            if self.role.resident and may_leave(args[i]):
                written.append((args[i], result))
            else:
                values.append((args[i], torch.empty(result.shape, dtype=result.dtype), result))
        reads += [(kept[result.slot].memory, filled(value, result.nbytes)) for _, value, result in values if result.nbytes]
        truths = [bytearray(1) for _ in self._tests]
        reads += [(kept[slot].memory, Into(truth)) for slot, truth in zip(self._tests, truths)]
        server.read_all(reads, run)
        if not all(truth[0] for truth in truths):
            raise RuntimeError(next(what for what, truth in zip(self.lowered.asserted, truths) if not truth[0]))
        for tensor, value, result in made:
            if tensor is not value:
                lay_out(value, tensor)
            keep(tensor, kept[result.slot])
        for tensor, result in stay:
            leave(tensor, kept[result.slot], saved=True)
        for argument, result in written:
            torch.autograd.graph.increment_version(argument)
            leave(argument, kept[result.slot])
        if values:
            with torch.no_grad():
                for argument, value, result in values:
                    bring(server, argument)
                    argument.copy_(value)
                    keep(argument, kept[result.slot])
        return out

    def _size(self, symbols: Mapping[str, int]) -> Sized:
        """What a call gives, with these symbols; it is always the same where there are none."""
        def result(name: str, meta: torch.Tensor) -> Result:
            shape: tuple[int, ...] = real(tuple(meta.shape), symbols)
            stride: tuple[int, ...] = real(meta.stride(), symbols)
            return Result(self._slot_of[name], shape, stride, meta.dtype, math.prod(shape) * meta.dtype.itemsize, is_plain(shape, stride))

        results = [result(f"y{i}", meta) if isinstance(meta, torch.Tensor) else
                   meta if isinstance(meta, Argument) else real(meta, symbols) for i, meta in enumerate(self.lowered.results)]
        sized = Sized(results, {i: result(f"m{i}", meta) for i, meta in self.lowered.mutated.items()})
        if not self._symbolic:
            self._sized = sized
        return sized

    def _bind(self, server: Host, args: Sequence[Any], symbols: Mapping[str, int]) -> tuple[list[Kept], Operation]:
        """The memory that the run is bound to, by slot, and the run."""
        server.renew()
        if self._era != server.era:
            self._begin(server)
        drawn = [draw(lambda value: real(value, symbols)) for draw in self.lowered.draws] if self.lowered.draws else []
        kept: list[Kept] = []
        own = iter(server.alloc_all(self._own))  # which frees what was dropped
        for of, number, nbytes, counted in self._slots:
            if of == "a":
                kept.append(place(server, args[number], nbytes, counted))
            elif not of:
                kept.append(Kept(server, next(own)))
            elif of == "c":
                kept.append(self._constants[number])
            else:
                kept.append(place(server, drawn[number], nbytes))
        handles = tuple([one.memory.handle for one in kept])
        run = self._runs.get(handles)
        if run is None:
            run = operations.run(self._hash, handles, self.lowered.size.variables(symbols), server.devices[:1], None, quiet=True)
            if not self._symbolic:
                if len(self._runs) >= _MOST_RUNS:
                    self._runs.clear()
                self._runs[handles] = run
        return kept, run

    def _begin(self, server: Host) -> None:
        """In a session that does not have the program yet."""
        self._hash = server.session.put(self.lowered.graph).hash
        self._constants = []
        for slot in self.lowered.graph.slots:
            if slot.role == "constant":
                buffer = server.session.upload(slot.init, slot.dtype, device=server.devices[0])
                self._constants.append(Kept(server, Memory(buffer.handle, 0, slot.nbytes, slot.nbytes, server.era, server.devices[0])))
        self._runs.clear()
        self._era = server.era


def _of_fixed(module: torch.fx.GraphModule, role: Role) -> Compiled | Parts:
    """A graph without symbolic sizes, with operators in it that torch has to run."""
    try:
        return Compiled(module, role)
    except Unsupported:
        return Parts(module, lambda part: Compiled(part, Role(strided=role.strided)))


_ROOM, _FEW = 4, 8  # a program serves sizes of at least a fourth of its bound, and few of anything


class Symbolic:
    """A graph with symbolic sizes: a Compiled for all sizes up to a bound. `reason`: why there is one for each set of sizes
    that it is called with instead."""

    def __init__(self, module: torch.fx.GraphModule, role: Role) -> None:
        self.module, self.role = module, role
        self.reason = ""
        self.programs: dict[Any, Compiled] = {}  # by the bounds of the sizes, or by the sizes
        self._symbols = Symbols([n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"])

    def __call__(self, *args: Any) -> list[Any]:
        symbols = self._symbols.values(args)
        if not self.reason:
            try:
                return self._up_to_a_bound(symbols)(*args, symbols=symbols)
            except Unsupported as error:
                self.reason = str(error)
        key = tuple((tuple(a.shape), a.dtype) if isinstance(a, torch.Tensor) else a for a in args)
        if key not in self.programs:
            fixed = make_fx(self.module, tracing_mode="fake", decomposition_table=decompositions())(*args)
            self.programs[key] = _of_fixed(fixed, self.role)
        return self.programs[key](*args)

    def _up_to_a_bound(self, symbols: Mapping[str, int]) -> Compiled:
        for known, program in self.programs.items():
            if all(low <= size <= high <= _ROOM * max(size, _FEW) for (low, high), size in zip(known, symbols.values())):
                return program
        bounds = self._symbols.bounds(symbols)
        self.programs[tuple(bounds.values())] = Compiled(self.module, self.role, bounds)
        return self.programs[tuple(bounds.values())]


def _is_symbolic(values: Sequence[Any]) -> bool:
    return any(isinstance(v, torch.SymInt) or
               (isinstance(v, torch.Tensor) and any(isinstance(d, torch.SymInt) for d in v.shape)) for v in values)


compiled_last: collections.deque[Any] = collections.deque(maxlen=64)  # what was compiled last, for tests and for people who wonder


def _compiler(which: str, resident: bool) -> Callable[..., Any]:
    def compile(module: torch.fx.GraphModule, example: Sequence[Any]) -> Any:
        from functorch.compile import make_boxed_func

        nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
        for node, value in zip(nodes, example):
            if isinstance(value, torch.Tensor) and value.device.type != "cpu":
                raise RuntimeError(f"{node.name} is on {value.device}; leave the model on the CPU, "
                                   "Telegrad's server has it on its own devices")
        kept_from, counted, parameters = None, frozenset(), frozenset()
        context = TracingContext.try_get()
        meta = None if context is None else context.fw_metadata
        if which == "forward":
            kept_from = getattr(meta, "num_forward", None)
        if which == "backward":
            # A gradient for each argument of the forward pass; those of what is no parameter go on into parts that are not compiled.
            parameters = frozenset(getattr(meta, "static_input_indices", None) or ())
        if which == "inference" and meta is not None and len(meta.input_info) == len(nodes):
            counted = frozenset(meta.mutated_graph_handled_indices_seen_by_autograd)
        role = Role(kept_from, counted, resident, parameters if resident else frozenset(), which != "backward")
        compiled: Any = Symbolic(module, role) if _is_symbolic(example) else _of_fixed(module, role)
        compiled_last.append(compiled)
        return make_boxed_func(compiled)

    return compile


@contextlib.contextmanager
def in_parts() -> Iterator[None]:
    """Where torch has an operator of its own for a whole layer on the CPU, its parts are wanted."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def backend(module: torch.fx.GraphModule, example: Sequence[Any], **options: Any) -> Any:
    """For torch.compile. The option `resident`: gradients, and what the part writes into its arguments, stay on the server
    alone until `fetch`."""
    given = dict(options.get("options") or {})
    resident = bool(given.pop("resident", False))
    if given:
        raise ValueError(f"the backend telegrad has no option {', '.join(map(repr, given))}; it has 'resident', and the environment "
                         "says where the server is")
    if not can_leave():
        raise RuntimeError("telegrad.torch needs a torch that can refuse access to the memory of a tensor, as 2.15 can; this is "
                           f"{torch.__version__}")
    make = aot_autograd(fw_compiler=_compiler("forward", resident), bw_compiler=_compiler("backward", resident),
                        inference_compiler=_compiler("inference", resident), decompositions=decompositions(),
                        # Views, what is cheap and scores are computed again for the backward pass: what it saves is stored and loaded.
                        partition_fn=partition, keep_inference_input_mutations=True)
    with in_parts():
        return make(spell_attention(module), example)


def register() -> None:
    """Where the package was not installed, and so has no entry point."""
    from torch._dynamo import list_backends, register_backend

    if "telegrad" not in list_backends(()):
        register_backend(backend, name="telegrad")


register()
