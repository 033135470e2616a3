"""What the server has of torch's tensors: it stays there as long as torch keeps a tensor unchanged.

A tensor is known by its storage and its place in it, not as an object: the gradient that a parameter has after
`backward()` is another object than the one that was returned, of the same storage. torch counts the writes to a tensor in
`_version`; writes through `.data` are not counted, so a part of the content is compared as well.
"""

from __future__ import annotations

import ctypes
import functools
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

    def __del__(self) -> None:
        self._host.drop(self.memory)


_kept: dict[int, dict[Any, Any]] = {}  # by storage, then by the place in it; None: a reference to the storage


def _place_of(tensor: torch.Tensor) -> Any:
    return tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _sample(tensor: torch.Tensor, kept: Kept) -> bytes:
    """Some bytes of its middle."""
    return ctypes.string_at(tensor.data_ptr() + kept.middle, kept.sampled) if kept.sampled else b""


def place(server: Host, tensor: torch.Tensor, must_be_there: bool, nbytes: int, counted: bool = False) -> Kept:
    """Where the content of a tensor is on the server, with room for `nbytes`; it is sent if it is not there. `counted`:
    torch has counted a change that is still to come."""
    places = None if tensor.is_inference() else _kept.get(tensor.untyped_storage()._cdata)
    known = None if places is None else places.get(_place_of(tensor))
    if known is not None and known.version == tensor._version - counted and known.memory.era == server.era \
            and (must_be_there or known.sample == _sample(tensor, known)):
        return known if known.memory.nbytes >= nbytes else _grown(server, tensor, known, nbytes)
    if must_be_there:
        raise RuntimeError("a tensor that the forward pass had saved on the server no longer exists: the session ended, or it was "
                           "copied or changed by a hook, which telegrad.torch cannot follow. Run the step again")
    data = tensor.detach().contiguous()
    kept = Kept(server, server.alloc(max(data.nbytes, nbytes, 1)))
    if data.nbytes:
        server.write(kept.memory, bytes_of(data))
    keep(tensor, kept)
    return kept


def _grown(server: Host, tensor: torch.Tensor, old: Kept, nbytes: int) -> Kept:
    """A copy on the server in a buffer for more, of a program whose sizes may be larger."""
    new = Kept(server, server.alloc(nbytes))
    server.copy(old.memory, new.memory, old.memory.nbytes)
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


def bytes_of(tensor: torch.Tensor) -> Any:
    return tensor.reshape(-1).view(torch.uint8).numpy()


_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype, _view.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_WRITABLE = 0x200


def filled(tensor: torch.Tensor, nbytes: int) -> Into:
    """A contiguous tensor of so many bytes as what a read fills. Three calls of torch that make an array of it take longer."""
    return Into(_view(tensor.data_ptr(), nbytes, _WRITABLE), tensor)
