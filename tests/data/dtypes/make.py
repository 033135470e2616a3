#!/usr/bin/env python3
"""Writes dtypes.bin: what NumPy and ml_dtypes say about element types, for tests/conformance/dtypes_test.cc.

    python3 -m venv v && v/bin/pip install numpy ml_dtypes && v/bin/python make.py

The file is a list of sections: name length (u32), name, bytes of an element (u32), number of elements (u32),
elements; little-endian. Where a table would be large a section holds digests: one FNV-1a (64 bits) over the
bytes of each row of 256 results. Every NaN is written as the same code, kNan(type) below, since which NaN an
operation gives is nobody's promise.

Some things of ours differ from these libraries on purpose and are computed so that they show what is promised.
ml_dtypes casts from f64 and i64 by way of f32, which rounds twice; here the value is first rounded to odd in f32,
which makes the second rounding the only one that counts. Casts to f8e8m0 leave out what ml_dtypes 0.6 does not
round to the nearest: f32 between 2^-127 and 1.5 times that (it goes up), f64 below f32's least (NaN). Integer results that NumPy leaves undefined (division by
zero, shifts by the width) are left out by a mask.
"""
import os
import struct

import ml_dtypes
import numpy as np

np.seterr(all="ignore")
rng = np.random.default_rng(20240601)

FLOATS = {  # compute types
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
STORAGE_FLOATS = {"f8e8m0": ml_dtypes.float8_e8m0fnu, "f4e2m1": ml_dtypes.float4_e2m1fn}
PACKED_INTS = {"i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "i2": ml_dtypes.int2, "u2": ml_dtypes.uint2}
INTS = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
        "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64}
ALL_FLOATS = {**FLOATS, **STORAGE_FLOATS}

sections = []


def put(name, array):
    array = np.ascontiguousarray(array)
    sections.append((name, array.dtype.itemsize, array.size, array.tobytes()))


def bits_of(dtype):
    return {"f8e8m0": 8, "f4e2m1": 4, "i4": 4, "u4": 4, "i2": 2, "u2": 2}.get(
        dtype, 16 if dtype in ("f16", "bf16") else 8)


def unsigned(dtype):
    return np.uint16 if bits_of(dtype) == 16 else np.uint8


def from_codes(name, codes):
    return np.asarray(codes, unsigned(name)).view(ALL_FLOATS[name])


def codes_of(name, values):
    """The codes of an array of the type, every NaN as one."""
    values = np.asarray(values, ALL_FLOATS[name])
    codes = values.view(unsigned(name)).copy()
    codes[np.isnan(values.astype(np.float32))] = NAN[name]
    return codes


NAN = {"f16": 0x7e00, "bf16": 0x7fc0, "f8e4m3fn": 0x7f, "f8e5m2": 0x7e, "f8e4m3fnuz": 0x80, "f8e5m2fnuz": 0x80,
       "f8e8m0": 0xff, "f4e2m1": 0x8}


def one_nan(x):
    x = np.array(x)
    x[np.isnan(x)] = np.nan
    return x


def digests(rows):
    out = []
    for row in rows:
        h = 0xcbf29ce484222325
        for byte in np.ascontiguousarray(row).tobytes():
            h = (h ^ byte) * 0x100000001b3 & 0xffffffffffffffff
        out.append(h)
    return np.array(out, np.uint64)


def odd_f32(x):
    """f64 rounded to f32 toward zero, and to an odd mantissa where that lost something."""
    x = np.asarray(x, np.float64)
    near = x.astype(np.float32)
    too_far = np.abs(near.astype(np.float64)) > np.abs(x)
    toward_zero = np.where(too_far, np.nextafter(near, np.float32(0)), near).astype(np.float32)
    inexact = np.isfinite(x) & (toward_zero.astype(np.float64) != x)
    code = toward_zero.view(np.uint32).copy()
    code[inexact] |= 1
    return code.view(np.float32)


def odd_f64(x):
    """The same for Python integers to f64."""
    out = []
    for value in x:
        magnitude = abs(int(value))
        below = magnitude.bit_length() - 53
        if below > 0 and magnitude & ((1 << below) - 1):
            magnitude = (magnitude >> below | 1) << below
        out.append(-float(magnitude) if value < 0 else float(magnitude))
    return np.array(out, np.float64)


# --- what the codes mean ---

for name in FLOATS:
    n = 1 << bits_of(name)
    values = one_nan(from_codes(name, np.arange(n)).astype(np.float32)).view(np.uint32)
    if n == 256:
        put(f"decode {name}", values)
    else:
        put(f"decode {name} rows", digests(values.reshape(256, 256)))
for name in STORAGE_FLOATS:
    put(f"decode {name}",
        one_nan(from_codes(name, np.arange(1 << bits_of(name))).astype(np.float32)).view(np.uint32))
for name, dtype in PACKED_INTS.items():
    codes = np.arange(1 << bits_of(name)).astype(np.int64)
    put(f"decode {name}", codes.astype(dtype).astype(np.int64).astype(np.float32).view(np.uint32))

# --- casts to narrow floats ---

edges = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, -1e-45, 2**-126, 2**-127, 3e-39, 1e38, 3.4e38, -3.4e38, np.inf,
         -np.inf, np.nan, 65504, 65519.996, 65520, 57344, 61439, 61440, 448, 464, 464.00003, 240, 248, 6, 7]
general = np.concatenate([
    np.array(edges, np.float32),
    rng.integers(0, 1 << 32, 200, np.uint32).view(np.float32),
    (rng.standard_normal(100) * np.exp2(rng.uniform(-20, 18, 100))).astype(np.float32)])
for name, dtype in ALL_FLOATS.items():
    n = 1 << bits_of(name)
    codes = np.arange(n) if n <= 256 else rng.integers(0, n, 256)
    values = from_codes(name, codes).astype(np.float64)
    after = from_codes(name, np.minimum(codes + 1, n - 1)).astype(np.float64)
    middle = ((values + after) / 2).astype(np.float64)
    keep = np.isfinite(middle)
    values, middle = values[keep], middle[keep]
    half = middle.astype(np.float32)
    x = one_nan(np.concatenate([general, values.astype(np.float32), half, np.nextafter(half, np.float32(-np.inf)),
                                np.nextafter(half, np.float32(np.inf))]))
    if name == "f8e8m0":
        x = x[~((x > 2.0**-127) & (x < 1.5 * 2.0**-127))]
    put(f"cast f32 {name} from", x.view(np.uint32))
    put(f"cast f32 {name} to", codes_of(name, x.astype(dtype)))
    few = rng.choice(middle, 60)
    x = np.concatenate([np.array(edges, np.float64), few, np.nextafter(few, -np.inf),
                        np.nextafter(few, np.inf), rng.standard_normal(40)])
    if name == "f8e8m0":
        x = x[(np.abs(x) >= 1.5 * 2.0**-127) | ~np.isfinite(x)]
    put(f"cast f64 {name} from", one_nan(x).view(np.uint64))
    put(f"cast f64 {name} to",
        codes_of(name, x.astype(dtype) if name == "f16" else odd_f32(x).astype(dtype)))

# --- arithmetic in narrow floats ---

BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "fdiv": np.divide, "max": np.maximum}
COMPARE = {"cmplt": np.less, "cmpeq": np.equal}
UNARY = {"sqrt": np.sqrt, "floor": np.floor, "trunc": np.trunc, "neg": np.negative,
         "recip": lambda x: (np.ones_like(x) / x)}


def fix_zero_max(name, x, y, codes):
    """max(+0, -0) is +0; NumPy gives either."""
    both = (x.astype(np.float32) == 0) & (y.astype(np.float32) == 0)
    negative = np.signbit(x.astype(np.float32)) & np.signbit(y.astype(np.float32))
    minus = codes_of(name, np.array([-0.0], np.float32).astype(FLOATS[name]))[0]
    return np.where(both, np.where(negative, minus, 0).astype(codes.dtype), codes)


for name in FLOATS:
    n = 1 << bits_of(name)
    every = from_codes(name, np.arange(n))
    for op, f in UNARY.items():
        codes = codes_of(name, f(every))
        put(f"{op} {name} rows", digests(codes.reshape(-1, 256)))
    if n == 256:
        x, y = np.repeat(every, 256), np.tile(every, 256)
    else:
        pick = np.concatenate([rng.integers(0, n, 600), codes_of(name, np.array(
            [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 65504, 1e-7, 3.0], np.float32).astype(FLOATS[name]))])
        close = np.abs(rng.standard_normal(1200)).astype(np.float32).astype(FLOATS[name])
        x = np.concatenate([from_codes(name, rng.choice(pick, 600)), close[:600]])
        y = np.concatenate([from_codes(name, rng.choice(pick, 600)), close[600:]])
        put(f"pairs {name}", np.stack([x.view(np.uint16), y.view(np.uint16)], 1))
    for op, f in {**BINARY, **COMPARE}.items():
        result = f(x, y)
        codes = result.astype(np.uint8) if op in COMPARE else codes_of(name, result)
        if op == "max":
            codes = fix_zero_max(name, x, y, codes)
        if n == 256:
            put(f"{op} {name} rows", digests(codes.reshape(256, 256)))
        else:
            put(f"{op} {name}", codes)

# --- integers ---

for name, dtype in INTS.items():
    info = np.iinfo(dtype)
    width = info.bits
    edge = [0, 1, 2, 7, width - 1, width, info.max, info.max // 3]
    if info.min < 0:
        edge += [-1, -2, -7, info.min, info.min // 2]
    edge = np.array(sorted(set(edge)), dtype)
    put(f"edges {name}", edge)
    x, y = np.repeat(edge, len(edge)), np.tile(edge, len(edge))
    divides = (y != 0) & ~((y == dtype(-1) if info.min < 0 else False) & (x == info.min))
    safe = np.where(divides, y, dtype(1))
    remainder = np.fmod(x, safe)
    shifts = (y >= 0) & (y < width)
    by = np.where(shifts, y, dtype(0))
    always = np.ones(len(x), bool)
    for op, value, defined in [
            ("add", x + y, always), ("sub", x - y, always), ("mul", x * y, always),
            ("max", np.maximum(x, y), always), ("and", x & y, always), ("or", x | y, always),
            ("xor", x ^ y, always), ("floordiv", x // safe, divides), ("floormod", x % safe, divides),
            ("cdiv", (x - remainder) // safe, divides), ("cmod", remainder, divides),
            ("shl", np.left_shift(x, by), shifts), ("shr", np.right_shift(x, by), shifts),
            ("cmplt", x < y, always), ("cmpeq", x == y, always), ("cmpne", x != y, always)]:
        put(f"{op} {name}", value)
        if not defined.all():
            put(f"{op} {name} defined", defined.astype(np.uint8))
    put(f"neg {name}", -edge)

# --- casts from and to integers ---

for source in ("i64", "u64"):
    size = rng.integers(0, 64, 80).astype(np.uint64)
    raw = rng.integers(0, 1 << 64, 80, np.uint64) >> size
    ties = [(1 << 60) + (1 << 52) + 1, (1 << 60) + (1 << 52), (1 << 53) + 1, (1 << 24) + 1, (1 << 62) + (1 << 38) + 1,
            2049, 257, 17, 65519, 65520, 464, 465]
    x = np.concatenate([raw.view(INTS[source]), np.array(ties, INTS[source]), edge.astype(INTS[source])])
    if source == "i64":
        x = np.concatenate([x, -x])
    put(f"cast {source} from", x)
    for name, dtype in ALL_FLOATS.items():
        put(f"cast {source} {name} to", codes_of(name, odd_f32(odd_f64(x)).astype(dtype)))
    for name, dtype in INTS.items():
        put(f"cast {source} {name} to", x.astype(dtype))
    for name in PACKED_INTS:
        put(f"cast {source} {name} to", x.astype(np.uint8) & ((1 << bits_of(name)) - 1))
    put(f"cast {source} f32 to", x.astype(np.float32))
    put(f"cast {source} f64 to", x.astype(np.float64))
for name, dtype in INTS.items():
    info = np.iinfo(dtype)
    x = np.concatenate([rng.uniform(-4, 4, 20), rng.uniform(float(info.min) * 0.99, float(info.max) * 0.99, 40)])
    x = np.concatenate([np.where((x < 0) & (info.min == 0), -x, x), np.array([-0.5, 0.999, 1.5])])
    for source, floating in (("f32", np.float32), ("f64", np.float64)):
        put(f"cast {source} {name} from", x.astype(floating))
        put(f"cast {source} {name} to", np.trunc(x.astype(floating)).astype(dtype))

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "dtypes.bin"), "wb") as out:
    for name, size, count, data in sections:
        out.write(struct.pack("<I", len(name)) + name.encode() + struct.pack("<II", size, count) + data)
print(len(sections), "sections,", sum(len(s[3]) for s in sections), "bytes")
