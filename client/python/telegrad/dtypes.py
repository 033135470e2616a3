"""Element types, and how NumPy arrays hold them.

Most types are NumPy's own. Of the others, bf16 and the 8-bit floats are ml_dtypes' types where that
package is installed, else arrays of their codes (uint16, uint8). Types under 8 bits travel packed;
as arrays they have one element a byte: int8 for i4 and i2, uint8 for u4 and u2, and for f4e2m1 the
codes.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any, Sequence, Union

import numpy as np

from telegrad._tables import DTYPES
from telegrad.errors import invalid

Array = np.ndarray[Any, Any]

ml_dtypes: Any
try:
    ml_dtypes = importlib.import_module("ml_dtypes")
except ImportError:
    ml_dtypes = None

_ML_DTYPES = {"bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
              "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz",
              "f8e8m0": "float8_e8m0fnu"}


@dataclass(frozen=True)
class DType:
    """An element type of the server's, such as f32 or i4."""

    name: str
    wire: int
    bits: int
    kind: str  # "boolean", "signed", "unsigned" or "float"
    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: str
    numpy: np.dtype[Any]  # of the arrays that hold it
    native: bool  # False: those arrays hold codes

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_packed(self) -> bool:
        """Several elements share a byte."""
        return self.bits < 8

    def nbytes(self, elements: int) -> int:
        """Of so many elements on the server."""
        return (elements * self.bits + 7) // 8

    def to_float32(self, array: Any) -> Array:
        """The values of an array of this float type, also where it holds codes."""
        if not self.is_float:
            raise invalid(f"{self.name} is not a float type")
        values: Array = np.asarray(array)
        if self.native or values.dtype != self.numpy:
            return values.astype(np.float32)
        return _decode_floats(self, values)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<DType {self.name}>"


def _make(row: Any) -> DType:
    numpy = np.dtype(row.numpy) if row.numpy else None
    native = numpy is not None
    if numpy is None and hasattr(ml_dtypes, _ML_DTYPES.get(row.name, "")):
        numpy, native = np.dtype(getattr(ml_dtypes, _ML_DTYPES[row.name])), True
    if numpy is None and row.bits < 8 and row.kind != "float":
        numpy, native = np.dtype(np.int8 if row.kind == "signed" else np.uint8), True
    if numpy is None:
        numpy = np.dtype(np.uint16 if row.bits == 16 else np.uint8)
    return DType(row.name, row.wire, row.bits, row.kind, row.exponent_bits, row.mantissa_bits,
                 row.bias, row.specials, numpy, native)


ALL: tuple[DType, ...] = tuple(_make(row) for row in DTYPES)
_BY_NAME = {d.name: d for d in ALL}
_BY_WIRE = {d.wire: d for d in ALL}
_BY_NUMPY = {d.numpy: d for d in ALL if d.native and not d.is_packed}

DTypeLike = Union[DType, str, type, "np.dtype[Any]"]


def dtype(like: DTypeLike) -> DType:
    """The element type that is meant: a DType, Telegrad's name of it, or NumPy's type.

    A string is Telegrad's name ("f32", "i8" for eight bits) or a long name of NumPy's ("float32").
    """
    if isinstance(like, DType):
        return like
    found = _BY_NAME.get(like) if isinstance(like, str) else None
    if found is None:
        try:
            numpy = np.dtype(like)
            if not isinstance(like, str) or numpy.name == like:
                found = _BY_NUMPY.get(numpy.newbyteorder("<"))
        except TypeError:
            pass
    if found is None:
        raise invalid(f"there is no element type {like!r}; there are {', '.join(_BY_NAME)}")
    return found


def from_wire(number: int) -> DType:
    found = _BY_WIRE.get(number)
    if found is None:
        raise invalid(f"the server named element type {number}, which this package does not support")
    return found


def num_elements(shape: Sequence[int]) -> int:
    return math.prod(shape)


def strings(values: Sequence[bytes], shape: Sequence[int]) -> Array:
    """An array of str of that shape."""
    out = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        out[i] = value.decode("utf-8", "replace")
    return out.reshape(tuple(shape))


def as_array(value: Any, like: DTypeLike | None = None) -> tuple[Array, DType]:
    """`value` as an array that holds its element type: `like`, or that of the array itself.

    Numbers and lists become the type wanted, or f32, i64 or bool; arrays of another type are
    converted as NumPy converts them. Codes are taken as they are.
    """
    array = (np.from_dlpack(value) if hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
             else np.asarray(value))
    if like is None:
        if not hasattr(value, "dtype") and array.dtype == np.float64:
            array = array.astype(np.float32)
        return array, dtype(array.dtype)
    wanted = dtype(like)
    if array.dtype == wanted.numpy:
        return array, wanted
    if wanted.native:
        return array.astype(wanted.numpy), wanted
    if wanted.name == "bf16" and array.dtype.kind in "fiub":
        return _to_bf16(array.astype(np.float32)), wanted
    raise invalid(f"an array of {array.dtype} as {wanted.name}: without ml_dtypes, give its codes "
                  f"as {wanted.numpy}")


def to_bytes(array: Array, kind: DType) -> memoryview:
    """The elements as the server has them, row-major; a view of `array` where it can be."""
    if kind.is_packed:
        array = _pack(array.reshape(-1), kind.bits)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8).data


class Sink:
    """An array in the making: bytes arrive in `memory`, then `finish` gives the array.

    `out` is filled where it is given: an array of the right type and shape.
    """

    def __init__(self, kind: DType, shape: Sequence[int], out: Array | None = None):
        self.kind, self.shape, self.out = kind, tuple(shape), out
        elements = num_elements(self.shape)
        if out is not None and (out.shape != self.shape or out.dtype != kind.numpy):
            raise invalid(f"out is {out.dtype} {list(out.shape)}, expected {kind.numpy} "
                          f"{list(self.shape)}")
        direct = out is not None and out.flags.c_contiguous and not kind.is_packed
        if direct and out is not None:
            if not out.flags.writeable:
                raise invalid("out is read-only")
            self.array = out.reshape(-1)
        elif kind.is_packed:
            self.array = np.empty(kind.nbytes(elements), np.uint8)
        else:
            self.array = np.empty(elements, kind.numpy)
        self.memory = self.array.view(np.uint8).data

    def finish(self) -> Array:
        array: Array = self.array
        if self.kind.is_packed:
            array = _unpack(array, self.kind, num_elements(self.shape))
        array = array.reshape(self.shape)
        if self.out is None:
            return array
        if not np.shares_memory(array, self.out):
            self.out[...] = array
        return self.out


def _pack(values: Array, bits: int) -> Array:
    """The first element in the lowest bits of a byte."""
    per_byte = 8 // bits
    codes = np.zeros(-(-values.size // per_byte) * per_byte, np.uint8)
    codes[:values.size] = values.view(np.uint8) & ((1 << bits) - 1)
    out = np.zeros(codes.size // per_byte, np.uint8)
    for i in range(per_byte):
        out |= codes[i::per_byte] << np.uint8(bits * i)
    return out


def _unpack(packed: Array, kind: DType, elements: int) -> Array:
    per_byte = 8 // kind.bits
    codes: Array = np.empty(packed.size * per_byte, np.uint8)
    for i in range(per_byte):
        codes[i::per_byte] = packed >> np.uint8(kind.bits * i) & np.uint8((1 << kind.bits) - 1)
    codes = codes[:elements]
    if kind.kind != "signed":
        return codes
    high = np.uint8(8 - kind.bits)
    return (codes << high).view(np.int8) >> high.astype(np.int8)


def _to_bf16(values: Array) -> Array:
    """Rounds f32 to bf16's codes, to nearest even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))) >> np.uint32(16)
    nan = np.uint32(0x7FC0) | (bits >> np.uint32(16) & np.uint32(0x8000))
    return np.where(np.isnan(values), nan, rounded).astype(np.uint16)


def _decode_floats(kind: DType, codes: Array) -> Array:
    """(-1)^s * 2^(e - bias) * 1.m, subnormal at e = 0; dtypes.def says which codes are special."""
    wide = codes.astype(np.int64)
    mantissa = wide & (1 << kind.mantissa_bits) - 1
    top = (1 << kind.exponent_bits) - 1
    exponent = wide >> kind.mantissa_bits & top
    sign = np.where(wide >> kind.exponent_bits + kind.mantissa_bits & 1, -1.0, 1.0)
    subnormal = (exponent == 0) & (kind.specials != "powers_of_two")
    fraction = mantissa / (1 << kind.mantissa_bits) + np.where(subnormal, 0.0, 1.0)
    values: Array = sign * np.ldexp(fraction, np.where(subnormal, 1, exponent) - kind.bias)
    if kind.specials == "ieee":
        special = np.where(mantissa == 0, sign * np.inf, np.nan)
        values = np.where(exponent == top, special, values)
    elif kind.specials == "nan_only":
        all_set = (1 << kind.exponent_bits + kind.mantissa_bits) - 1
        values = np.where(wide & all_set == all_set, np.nan, values)
    elif kind.specials == "neg_zero_nan":
        values = np.where(wide == 1 << kind.exponent_bits + kind.mantissa_bits, np.nan, values)
    elif kind.specials == "powers_of_two":
        values = np.where(exponent == top, np.nan, values)
    return values.astype(np.float32)
