"""What the server has of torch's tensors: it stays there as long as torch keeps a tensor unchanged.

A tensor is known by its storage and its place in it, not as an object: the gradient that a parameter has after
`backward()` is another object than the one that was returned, of the same storage. torch counts the writes to a tensor in
`_version`; writes through `.data` are not counted, so a part of the content is compared as well.
"""

from __future__ import annotations

import ctypes
import functools
import math
import weakref
from typing import Any

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
        self.left = False  # the content is on the server alone; the tensor's memory has NaN

    def __del__(self) -> None:
        self._host.drop(self.memory)


_kept: dict[int, dict[Any, Any]] = {}  # by storage, then by the place in it; None: a reference to the storage


def _place_of(tensor: torch.Tensor) -> Any:
    return tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _sample(tensor: torch.Tensor, kept: Kept) -> bytes:
    """Some bytes of its middle."""
    return ctypes.string_at(tensor.data_ptr() + kept.middle, kept.sampled) if kept.sampled else b""


def _known(tensor: torch.Tensor) -> Kept | None:
    """What was noted of the tensor last; it may have changed since."""
    places = None if tensor.is_inference() else _kept.get(tensor.untyped_storage()._cdata)
    return None if places is None else places.get(_place_of(tensor))


def place(server: Host, tensor: torch.Tensor, must_be_there: bool, nbytes: int, counted: bool = False) -> Kept:
    """Where the content of a tensor is on the server, with room for `nbytes`; it is sent if it is not there. `counted`:
    torch has counted a change that is still to come."""
    known = _known(tensor)
    if known is not None and known.version == tensor._version - counted and known.memory.era == server.era \
            and (must_be_there or known.sample == _sample(tensor, known)):
        return known if known.memory.nbytes >= nbytes else _grown(server, tensor, known, nbytes)
    if known is not None and known.left and known.memory.era != server.era and known.sample == _sample(tensor, known):
        raise RuntimeError(f"the content of a tensor{list(tensor.shape)} was on the server alone (resident) and is gone, because the "
                           "session ended. Load what was saved last")
    if must_be_there:
        raise RuntimeError("a tensor that the forward pass had saved on the server no longer exists: the session ended, or it was "
                           "copied or changed by a hook, which telegrad.torch cannot follow. Run the step again")
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
    new.left = old.left
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
    nbytes = tensor.nbytes
    if nbytes and tensor.is_contiguous():
        kept.middle = nbytes // 2
        kept.sampled = min(_SAMPLE_BYTES, nbytes - kept.middle)
    else:
        kept.sampled = 0
    kept.version, kept.sample = tensor._version, _sample(tensor, kept)
    places[_place_of(tensor)] = kept


def may_leave(tensor: torch.Tensor) -> bool:
    """Whether the content of a tensor can be on the server alone: its memory is its own, and no other library's (which torch notes
    as not resizable), and can have NaN."""
    storage = tensor.untyped_storage()
    return (tensor.dtype.is_floating_point and tensor.is_contiguous() and not tensor.is_inference()
            and storage.nbytes() == tensor.nbytes and storage.resizable())


def leave(tensor: torch.Tensor, kept: Kept) -> None:
    """The tensor's content is on the server alone. Its memory here gets NaN, which whoever uses it by mistake sees."""
    known = _known(tensor)
    if known is None or not known.left:
        tensor.data.fill_(math.nan)
    kept.left = True
    keep(tensor, kept)


class Absent:
    """Results of a call that are on the server alone: tensors whose memory has NaN, the same in each call. Other memory would have
    to be found, and filled, each time."""

    def __init__(self) -> None:
        self._memory: dict[int, tuple[torch.UntypedStorage, bytes]] = {}  # by the number of the result; and some bytes of it

    def tensor(self, number: int, shape: tuple[int, ...], dtype: torch.dtype, kept: Kept) -> torch.Tensor:
        """A contiguous tensor of floats, of which `kept` has the content."""
        known = self._memory.get(number)
        # While another tensor has the memory, such as a gradient that somebody has kept, it means that tensor's content.
        storage = None if known is None or torch._C._storage_Use_Count(known[0]._cdata) > 1 else known[0]
        made = torch.empty(shape if storage is None else 0, dtype=dtype)
        if storage is not None:
            made.set_(storage, 0, shape)
        kept.left = True
        keep(made, kept)
        if storage is None or known is None or kept.sample != known[1]:
            made.data.fill_(math.nan)
            keep(made, kept)
            self._memory[number] = made.untyped_storage(), kept.sample
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
    known = _known(tensor)
    if known is None or not known.left:
        return
    server = host()
    server.renew()
    if place(server, tensor, False, 0) is not known:
        return  # it was written since
    value = torch.empty(tensor.shape, dtype=tensor.dtype)
    server.read_all([(known.memory, filled(value, value.nbytes))])
    tensor.data.copy_(value)
    known.left = False
    keep(tensor, known)


_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype, _view.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_WRITABLE = 0x200


def filled(tensor: torch.Tensor, nbytes: int) -> Into:
    """A contiguous tensor of so many bytes as what a read fills. Three calls of torch that make an array of it take longer."""
    return Into(_view(tensor.data_ptr(), nbytes, _WRITABLE), tensor)
