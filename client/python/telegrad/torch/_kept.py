"""What the server has of torch's tensors: it stays there as long as torch keeps a tensor unchanged.

A tensor is known by its storage and its place in it, not as an object: the gradient that a parameter has after
`backward()` is another object than the one that was returned, of the same storage. torch counts the writes to a tensor in
`_version`; writes through `.data` are not counted, so a part of the content is compared as well.

Where the content of a tensor is on the server alone, torch refuses each access to its memory here, with an error that says
what to do: old numbers are never read, and nothing is written that would be lost.
"""

from __future__ import annotations

import ctypes
import functools
import math
import weakref
from typing import Any, Sequence

import torch

from telegrad._host import Host, Into, Memory

_SAMPLE_BYTES = 64


@functools.lru_cache(None)
def host() -> Host:
    return Host()


class Kept:
    """The server's memory of a tensor; freed when torch lets the tensor go, or changes it."""

    def __init__(self, host: Host, memory: Memory) -> None:
        self._host, self.memory = host, memory
        self.version = -1
        self.middle = self.sampled = 0  # where in the tensor's bytes the sample is, and how many bytes it has
        self.sample = b""
        self.left = False  # the content is on the server alone; torch refuses access to the tensor's memory
        self.saved = False  # for the backward pass
        self.lost = False  # it was, and the session has ended; the memory has NaN until it is written

    def __del__(self) -> None:
        self._host.drop(self.memory)


_kept: dict[int, dict[Any, Any]] = {}  # by storage, then by the place in it; None: a reference to the storage


def _place_of(tensor: torch.Tensor) -> Any:
    return tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _sample(tensor: torch.Tensor, kept: Kept) -> bytes:
    """Some bytes of its middle."""
    return ctypes.string_at(tensor.data_ptr() + kept.middle, kept.sampled) if kept.sampled else b""


def _span(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the end of the last one, whatever the order of its dimensions."""
    if tensor.is_contiguous() or not tensor.numel():
        return tensor.nbytes
    return (1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))) * tensor.element_size()


def _note_sample(tensor: torch.Tensor, kept: Kept) -> None:
    nbytes = _span(tensor)
    if nbytes and not kept.left:
        kept.middle = nbytes // 2
        kept.sampled = min(_SAMPLE_BYTES, nbytes - kept.middle)
    else:
        kept.sampled = 0
    kept.sample = _sample(tensor, kept)


def _known(tensor: torch.Tensor) -> Kept | None:
    """What was noted of the tensor last; it may have changed since."""
    places = None if tensor.is_inference() else _kept.get(tensor.untyped_storage()._cdata)
    return None if places is None else places.get(_place_of(tensor))


def place(server: Host, tensor: torch.Tensor, nbytes: int, counted: bool = False) -> Kept:
    """Where the content of a tensor is on the server, with room for `nbytes`; it is sent if it is not there. `counted`: torch has
    counted a change that is still to come."""
    known = _known(tensor)
    if known is not None and known.memory.era == server.era \
            and (known.left or known.version == tensor._version - counted and known.sample == _sample(tensor, known)):
        return known if known.memory.nbytes >= nbytes else _grown(server, tensor, known, nbytes)
    bring(server, tensor)
    _refuse_lost(tensor, known)
    data = tensor.detach().contiguous()
    kept = Kept(server, server.alloc(max(data.nbytes, nbytes, 1)))
    if data.nbytes:
        server.write(kept.memory, filled(data, data.nbytes).memory)
    keep(tensor, kept)
    return kept


def _grown(server: Host, tensor: torch.Tensor, old: Kept, nbytes: int) -> Kept:
    """A copy on the server in a buffer for more, of a program whose sizes may be larger."""
    new = Kept(server, server.alloc(nbytes))
    server.copy(old.memory, new.memory, old.memory.nbytes)
    new.left, new.saved = old.left, old.saved
    keep(tensor, new)
    return new


def keep(tensor: torch.Tensor, kept: Kept) -> None:
    """The tensor's content, as it is now, is there."""
    if tensor.is_inference():
        return
    storage = tensor.untyped_storage()
    number = storage._cdata
    places = _kept.get(number)
    if places is None:
        # The reference is held by what it takes away.
        places = _kept[number] = {None: weakref.ref(storage, lambda _: _kept.pop(number, None))}
    kept.version = tensor._version
    _note_sample(tensor, kept)
    places[_place_of(tensor)] = kept


def may_leave(tensor: torch.Tensor) -> bool:
    """Whether the content of a tensor can be on the server alone: its memory is its own, and no other library's (which torch notes
    as not resizable)."""
    storage = tensor.untyped_storage()
    return (tensor.dtype.is_floating_point and tensor.is_contiguous() and not tensor.is_inference()
            and storage.nbytes() == tensor.nbytes > 0 and storage.resizable())


def can_leave() -> bool:
    """Whether this torch can refuse access to memory."""
    return all(hasattr(torch._C, f"_{what}_storage_data_ptr_access_error_msg") for what in ("set", "clear"))


def leave(tensor: torch.Tensor, kept: Kept, saved: bool = False) -> None:
    """The content of a tensor, which is all of its memory, is on the server alone, in `kept`. `saved`: for the backward pass."""
    known, number = _known(tensor), tensor.untyped_storage()._cdata
    kept.left, kept.saved = True, saved
    if known is None or not known.left:
        places = _kept.get(number)
        for place in [place for place in places or () if place is not None]:
            del places[place]  # type: ignore[union-attr]  # what other shapes of the memory had is no longer so
        _refuse(number, tensor.shape)
    keep(tensor, kept)


def _refuse(number: int, shape: Sequence[int]) -> None:
    torch._C._set_storage_data_ptr_access_error_msg(
        number, f"the content of a tensor{list(shape)} is on the server alone (resident). Before anything but a compiled part reads or "
        "writes it, call telegrad.torch.fetch with the tensor, its module or its optimizer")


def absent(shape: tuple[int, ...], dtype: torch.dtype, kept: Kept) -> torch.Tensor:
    """A contiguous tensor of floats, of which `kept` has the content: its memory is never touched, and so never there."""
    made = torch.empty(shape, dtype=dtype)
    leave(made, kept)
    return made


def fetch(*what: Any) -> None:
    """Brings the content of resident tensors into this process: those of tensors, modules (parameters, buffers and gradients),
    optimizers (their state and parameters), and of dicts, lists and tuples of such."""
    left, seen = list(what), set()
    while left:
        one = left.pop()
        if isinstance(one, torch.Tensor):
            if id(one) not in seen:
                seen.add(id(one))
                _fetch(one)
                left += [] if not one.is_leaf or one.grad is None else [one.grad]
        elif isinstance(one, torch.nn.Module):
            left += [*one.parameters(), *one.buffers()]
        elif isinstance(one, torch.optim.Optimizer):
            left += [one.state, *(group["params"] for group in one.param_groups)]
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, (list, tuple)):
            left += one


def _fetch(tensor: torch.Tensor) -> None:
    if _left(tensor) is not None:
        server = host()
        server.renew()
        bring(server, tensor)
    _refuse_lost(tensor, _known(tensor))


def _left(tensor: torch.Tensor) -> tuple[Any, Kept] | None:
    """The place in a tensor's memory, which is all of it, whose content is on the server alone; None where there is none."""
    places = None if tensor.is_inference() else _kept.get(tensor.untyped_storage()._cdata)
    return next(((place, kept) for place, kept in (places or {}).items() if place is not None and kept.left), None)


def bring(server: Host, tensor: torch.Tensor) -> None:
    """If what a tensor's memory should have is on the server alone, it is here afterwards."""
    left = _left(tensor)
    if left is None:
        return
    place, kept = left
    if kept.memory.era != server.era:
        if kept.saved:
            raise RuntimeError("a tensor that the forward pass had saved on the server no longer exists, because the session ended. Run "
                               "the step again")
        _lose(server)
        raise RuntimeError(_LOST.format(list(tensor.shape)))
    value = torch.empty(place[1], dtype=place[3])
    server.read_all([(kept.memory, filled(value, value.nbytes))] if value.nbytes else [])
    _open(tensor.untyped_storage(), place, kept, value)


def _open(storage: torch.UntypedStorage, place: Any, kept: Kept, value: torch.Tensor) -> None:
    """Memory whose content was on the server alone has this value, and is torch's again."""
    offset, shape, stride, dtype = place
    torch._C._clear_storage_data_ptr_access_error_msg(storage._cdata)
    own = torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)
    own.copy_(value)
    kept.left = False
    _note_sample(own, kept)


_LOST = ("the content of a tensor{} was on the server alone (resident) and is gone, because the session ended. Load what was saved "
         "last")


def _lose(server: Host) -> None:
    """What was on the server alone in a session that has ended is NaN until it is written."""
    for places in list(_kept.values()):
        storage = places[None]()
        for place, kept in list(places.items()):
            if place is not None and storage is not None and kept.left and not kept.saved and kept.memory.era != server.era:
                _open(storage, place, kept, torch.full(place[1], math.nan, dtype=place[3]))
                kept.lost = True


def _refuse_lost(tensor: torch.Tensor, known: Kept | None) -> None:
    if known is not None and known.lost and known.sample == _sample(tensor, known):
        raise RuntimeError(_LOST.format(list(tensor.shape)))


_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype, _view.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_WRITABLE = 0x200


def filled(tensor: torch.Tensor, nbytes: int) -> Into:
    """A contiguous tensor of so many bytes as what a read fills. Three calls of torch that make an array of it take longer."""
    return Into(_view(tensor.data_ptr(), nbytes, _WRITABLE), tensor)


def is_plain(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the strides are those of a contiguous tensor; an axis of one element has any."""
    step = 1
    for size, own in zip(reversed(shape), reversed(stride)):
        if size != 1 and own != step:
            return False
        step *= max(size, 1)
    return True


def lay_out(value: torch.Tensor, tensor: torch.Tensor) -> None:
    """Writes a value into a tensor of its shape with other strides. Along an axis that was expanded all elements share memory."""
    for axis, step in enumerate(tensor.stride()):
        if step == 0:
            value, tensor = value.narrow(axis, 0, 1), tensor.narrow(axis, 0, 1)
    tensor.copy_(value)
