"""When and how graphs run: between tinygrad's scheduler and its list of calls.

A graph that tinygrad would schedule becomes one CALL of a CUSTOM_FUNCTION, whose argument is a Work. It
passes through tinygrad's lists, captures and pickles as its own kernels do, and runs here: slots are bound
to the buffers of the call's arguments, and the server runs the graph by its hash.

The first run of a graph is waited for, and says how many kernels it has and what they cost, which is
what tinygrad's counters get from then on; later ones are not waited for unless DEBUG or a profile wants to
know. So an error of the first run appears where the graph is realized, and one of a later run where
the values are asked for.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import tinygrad.engine.jit as jit
import tinygrad.engine.realize as realize
import tinygrad.tensor
from tinygrad.device import MultiBuffer
from tinygrad.helpers import BEAM, CAPTURING, DEBUG, GlobalCounters, colored, ansipad, time_to_str, size_to_str
from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat

import telegrad
from telegrad import _operations as operations
from telegrad.errors import explained
from telegrad.tinygrad import _client
from telegrad.tinygrad._client import Loaded
from telegrad.tinygrad._merge import merged
from telegrad.tinygrad._program import Program, Work, program_of
from telegrad.tinygrad._vocabulary import FILES, Unsupported

_NEEDED = ((realize, ("pm_exec", "track_stats", "get_call_outs_ins", "get_call_name", "run_linear", "capturing")),
           (jit, ("get_call_outs_ins", "jit_lower")), (tinygrad.tensor, ("create_linear_with_vars", "run_linear")),
           (tinygrad.tensor.Tensor, ("_buffer",)))


# --- from a graph to a call ---


def create_linear_with_vars(big_sink: UOp) -> tuple[UOp, dict[str, int]]:
    """In place of tinygrad's function of the name: a LINEAR of one CALL, and the values of the variables."""
    attach()
    big_sink = _with_files(big_sink)
    try:
        program = program_of(big_sink)
    except Unsupported as reason:
        raise RuntimeError(f"Telegrad cannot run this graph: {reason}") from None
    values: dict[str, int] = {}
    args = big_sink.src[1:]
    for arg in args:
        if arg.is_bound_var:
            variable, value = arg.unbind()
            if values.setdefault(variable.expr, value) != value:
                raise RuntimeError(f"bind mismatch on {variable.expr}, {values[variable.expr]} != {value}")
    if program is None:
        return UOp(Ops.LINEAR, src=()), values
    for i in program.variables:
        if not args[i].is_bound_var:
            raise RuntimeError(f"the variable {args[i].expr} is unbound: give it a value with bind")
    names = tuple(args[i].unbind()[0].expr for i in program.variables)
    body = UOp(Ops.CUSTOM_FUNCTION, arg=Work(program, names))
    linear = UOp(Ops.LINEAR, src=(body.call(*(args[s.argument] for s in program.slots)),))
    if realize.capturing and CAPTURING:
        realize.capturing[0].add_linear(linear, values)
        return UOp(Ops.LINEAR, src=()), values
    return linear, values


def _with_files(call: UOp) -> UOp:
    """A COPY to a file that nothing stores is written to the file all the same: it gets a buffer, as in tinygrad's
    scheduler."""
    sink, args, src = call.src[0], list(call.src[1:]), []
    for value in sink.src:
        if value.op is Ops.COPY and isinstance(value.arg, str) and value.arg.startswith(FILES):
            size = int(value.max_numel())
            target = UOp.param(len(args), value.dtype, (size,), value.arg)
            args.append(UOp.new_buffer(value.arg, size, value.dtype))
            value = target.after(target.store(value.reshape((size,))))
        src.append(value)
    return call if tuple(src) == sink.src else call.replace(src=(sink.replace(src=tuple(src)), *args))


def work_of(call: UOp) -> Work | None:
    body = call.src[0]
    return body.arg if body.op is Ops.CUSTOM_FUNCTION and isinstance(body.arg, Work) else None


# --- running a call ---


def execute(ctx, call: UOp, ast: UOp) -> list[float | None] | None:
    """A row of tinygrad's table of calls; None: the call is not ours."""
    if not isinstance(ast.arg, Work):
        return None
    result = run(_client.client(), ast.arg, call.src[1:], ctx.input_uops, ctx.var_vals, ctx.wait)
    return [result]


def run(client, work: Work, args, inputs, values: dict[str, int], wait: bool):
    try:
        return _run(client, work, args, inputs, values, wait)
    except telegrad.TelegradError as error:
        parts = ", ".join(f"{arg.dtype.name}{list(arg.max_shape)}" for arg in args)
        raise explained(error, f"a graph of the buffers {parts}") from None


def _run(client, work: Work, args, inputs, values: dict[str, int], wait: bool):
    client.renew()
    program = work.program
    loaded = client.loaded.get(program.digest)
    first = loaded is None
    if first:
        loaded = client.loaded[program.digest] = Loaded(client.session.put(program.graph).hash)
    devices = client.names(program.devices)
    binding = Binding(client, devices)
    for slot, arg in zip(program.slots, args):
        binding.add(slot, _buffer(arg, inputs, slot))
    variables = {i: int(values[name]) for i, name in enumerate(work.names)}
    handles, offsets = binding.finish()
    client.flush()
    wait = wait or first
    request = operations.run(loaded.hash, handles, variables, devices, None, quiet=not wait,
                             trace=wait, offsets=offsets, search=_asks_for_search(client, loaded))
    result = None
    if not wait:
        client.session._submit(request)
    else:
        try:
            result = client.session._wait(client.session._asked(request), None)
        except telegrad.TelegradError:
            client.loaded.pop(program.digest, None)
            raise
        events = [e for e in result.trace.events if e.kind == 0] if result.trace else []
        loaded.kernels = result.kernels
        loaded.flops = sum(e.flops for e in events)
        loaded.traffic = sum(e.bytes for e in events)
    binding.done()
    return Ran(loaded, result)


def _asks_for_search(client, loaded: Loaded) -> bool:
    """Whether this run is to say that BEAM is set; once for each graph is enough."""
    if not BEAM or loaded.searched:
        return False
    if not client.connection.server.searches:
        raise telegrad.TelegradError(
            telegrad.Code.FAILED_PRECONDITION, f"BEAM={BEAM.value}: the server at {client.connection.address} does not search for "
            "faster kernels; its operator has to start it with --search-seconds, or run without BEAM")
    loaded.searched = True
    return True


@dataclass
class Ran:
    """What a run says to tinygrad's counters."""

    loaded: Loaded
    result: Any


def _buffer(arg: UOp, inputs, slot):
    buffer = _resolve(arg, inputs).buffer
    if isinstance(buffer, MultiBuffer):
        buffer = buffer.bufs[slot.instance]
    return buffer.base if slot.base else buffer


def _resolve(u: UOp, inputs) -> UOp:
    """With the inputs of a captured call in place of its PARAMs."""
    if u.op is Ops.BUFFER:
        return u
    if u.op is Ops.PARAM:
        return inputs[u.arg.slot]
    count = len(u.src) if u.op is Ops.MSTACK else 1
    src = tuple(_resolve(s, inputs) for s in u.src[:count]) + u.src[count:]
    return u if src == u.src else u.replace(src=src)


class Binding:
    """Handles and offsets of one run, and the memory that only it needs.

    Host memory is uploaded for the run and, where it is written, read back after it. A server that binds whole
    buffers only gets copies of views, which are copied back where they are written.
    """

    def __init__(self, client, devices) -> None:
        self.client, self.devices = client, devices
        self.handles: list[int] = []
        self.offsets: list[int] = []
        self._slots: list[Any] = []  # (slot, memory, buffer) of each, in order
        self._after: list[Any] = []

    def add(self, slot, buffer) -> None:
        if not buffer.device.startswith("TELEGRAD"):
            memory = self._uploaded(slot, buffer)
        else:
            memory = buffer.ensure_allocated()._buf
            self.client.check(memory)
            whole = memory.offset == 0 and (memory.handle not in self.handles)
            if not whole and not self.client.binds_parts:
                memory = self._copied(slot, memory, buffer)
        self._slots.append((slot, memory, buffer))
        self.handles.append(memory.handle)
        self.offsets.append(memory.offset)

    def _separate(self) -> None:
        """A run may not write what another of its slots reads; a captured call whose result is given to it again
        would. So that slot gets a copy."""
        if len(set(self.handles)) == len(self.handles):
            return
        for i, (slot, memory, buffer) in enumerate(self._slots):
            if not slot.stored and any(
                    other.stored and there.handle == memory.handle and there.offset < memory.offset + slot.nbytes and
                    memory.offset < there.offset + other.nbytes for other, there, _ in self._slots):
                part = self._copied(slot, memory, buffer)
                self.handles[i], self.offsets[i] = part.handle, part.offset

    def finish(self) -> tuple[list[int], list[int]]:
        self._separate()
        repeated = len(set(self.handles)) < len(self.handles)
        return self.handles, self.offsets if repeated or any(self.offsets) else []

    def done(self) -> None:
        for action in self._after:
            action()

    def _uploaded(self, slot, buffer):
        fresh = not buffer.is_initialized() and not buffer.device.startswith(FILES)
        buffer.ensure_allocated()
        memory = self.client.alloc(max(buffer.nbytes, slot.nbytes), self.devices[slot.device])
        if not fresh:
            self.client.write(memory, buffer.as_memoryview(allow_zero_copy=True))
        if slot.stored:
            self._after.append(lambda: self._download(memory, buffer))
        self._after.append(lambda: self.client.drop(memory))
        return memory

    def _download(self, memory, buffer) -> None:
        data = bytearray(buffer.nbytes)
        self.client.read(memory, memoryview(data))
        buffer.allocator._copyin(buffer._buf, memoryview(data))

    def _copied(self, slot, memory, buffer):
        part = self.client.alloc(slot.nbytes, buffer.allocator.dev.name)
        self.client.copy(memory, part, slot.nbytes)
        if slot.stored:
            self._after.append(lambda: self.client.copy(part, memory, slot.nbytes))
        self._after.append(lambda: self.client.drop(part))
        return part


# --- what tinygrad asks about a call ---


def _outs_ins(own):
    def get_call_outs_ins(call):
        work = work_of(call)
        if work is None:
            return own(call)
        outs = tuple(i for i, s in enumerate(work.program.slots) if s.stored)
        return outs, tuple(range(len(work.program.slots)))

    return get_call_outs_ins


def _name(own):
    def get_call_name(call, bufs, var_vals=None):
        work = work_of(call)
        return own(call, bufs, var_vals) if work is None else f"graph {work.program.digest.hex()[:12]}"

    return get_call_name


def _stats(own):
    def track_stats(ctx, call, st, ets):
        if work_of(call) is None:
            own(ctx, call, st, ets)
        elif ctx.update_stats:
            count(ctx, call, ets[0])

    return track_stats


def count(ctx, call, ran: Ran) -> None:
    """Counts a run as if its kernels had been tinygrad's, and shows them where DEBUG is 2 or more."""
    GlobalCounters.kernel_count += ran.loaded.kernels
    GlobalCounters.global_ops += int(ran.loaded.flops)
    GlobalCounters.global_mem += int(ran.loaded.traffic)
    if ran.result is None:
        return
    GlobalCounters.time_sum_s += ran.result.device_ns * 1e-9
    if DEBUG < 2:
        return
    events = ran.result.trace.events if ran.result.trace else []
    number = GlobalCounters.kernel_count - ran.loaded.kernels
    for event in events:
        number += event.kind == 0
        seconds = event.duration_ns * 1e-9
        header = colored(f"*** {event.queue.split(' ')[0][:7]:7s} {number:4d}", "magenta" if ctx.jit else None)
        print(f"{header} {ansipad(event.name, 46)} tm {colored(time_to_str(seconds, w=9), None)}"
              f" ({event.flops / max(seconds, 1e-20) * 1e-9:7.0f} GFLOPS"
              f" {event.bytes / max(seconds, 1e-20) * 1e-9:4.0f} GB/s)")
    compiled = f", compiled in {ran.result.compile_ns * 1e-6:.0f} ms" if not ran.result.cached else ""
    print(f"    graph {work_of(call).program.digest.hex()[:12]}: {ran.result.kernels} kernels, "
          f"{size_to_str(int(ran.loaded.traffic))}, {time_to_str(ran.result.device_ns * 1e-9)}{compiled}")


def _lower(own):
    def jit_lower(linear, held_bufs, input_uops):
        return own(merged(linear, held_bufs | set(input_uops)), held_bufs, input_uops)

    return jit_lower


def _values(own):
    def _buffer(self):
        # Values on no device or on several are gathered on one. tinygrad's choice, CPU, wants a compiler here.
        several = isinstance(self.device, tuple) and self.device[0].startswith("TELEGRAD")
        nowhere = self.uop.device is None and tinygrad.Device.DEFAULT == "TELEGRAD"
        if not realize.capturing and (several or nowhere):
            return self.contiguous().clone("TELEGRAD").realize().uop.buffer.ensure_allocated()
        return own(self)

    return _buffer


@functools.lru_cache(None)
def attach() -> None:
    """Puts the above in tinygrad's places, once."""
    for owner, names in _NEEDED:
        missing = [name for name in names if not hasattr(owner, name)]
        if missing:
            raise RuntimeError(f"{owner.__name__} has no {', '.join(missing)}: telegrad.tinygrad supports tinygrad 0.14; "
                               "this is another one")
    if not hasattr(tinygrad.tensor.create_linear_with_vars, "telegrad"):
        raise RuntimeError("tinygrad was imported before telegrad: `import telegrad.tinygrad` first")
    realize.pm_exec = PatternMatcher([(
        UPat(Ops.CALL, src=(UPat(Ops.CUSTOM_FUNCTION, name="ast"),), name="call", allow_any_len=True),
        execute)]) + realize.pm_exec
    realize.track_stats = _stats(realize.track_stats)
    jit.get_call_outs_ins = realize.get_call_outs_ins = _outs_ins(realize.get_call_outs_ins)
    jit.jit_lower = _lower(jit.jit_lower)
    realize.get_call_name = _name(realize.get_call_name)
    tinygrad.tensor.Tensor._buffer = _values(tinygrad.tensor.Tensor._buffer)
