#!/usr/bin/env python3
"""Random numbers of a released tinygrad, as test vectors for engine/frontend/rng.

Writes rng.safetensors. Each tensor is the result of one call; its name says which:
"seed.order/index/method/result type/shape/further arguments". The calls of one seed and order follow each other in
the order of the index, all in one stream; before a stream of order n, n other devices have drawn. Index r.iii is
call iii of the r-th repetition of the sequence (the stream goes on: only the first one begins at a fresh seed).
Weights of a multinomial are 1, 2, 3, ...; a dropout is of 1, 2, 3, ... Narrow floats are stored as the integers of
their bits.

Run with DEV=CPU, and then again with DEV=PYTHON, tinygrad's interpreter, for what its CPU code computes less exactly:
the sine, up to 3e-8 away from the true value, and the types of kind "fnuz", whose zeros come out as their smallest
number. The second run adds to the file of the first.

Usage: rng_vectors.py OUTPUT
"""

import os
import sys

import numpy as np
from safetensors.numpy import load, save
from tinygrad import Context, Device, Tensor, dtypes

TYPES = {
    "f64": dtypes.float64, "f32": dtypes.float32, "f16": dtypes.float16, "bf16": dtypes.bfloat16,
    "f8e4m3fn": dtypes.fp8e4m3, "f8e5m2": dtypes.fp8e5m2, "f8e4m3fnuz": dtypes.fp8e4m3fnuz,
    "f8e5m2fnuz": dtypes.fp8e5m2fnuz, "i8": dtypes.int8, "u8": dtypes.uint8, "i16": dtypes.int16, "u16": dtypes.uint16,
    "i32": dtypes.int32, "u32": dtypes.uint32, "i64": dtypes.int64, "u64": dtypes.uint64,
}
FLOATS = ["f32", "f64", "f16", "bf16", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz"]
BITS = {1: dtypes.uint8, 2: dtypes.uint16}


def counting(shape, dtype):
    return Tensor((np.arange(int(np.prod(shape))) + 1).reshape(shape).tolist(), dtype=dtype)


def random_bits(num):
    return Tensor.random_bits(*Tensor._next_counter(Device.DEFAULT, num), num)


# method -> (shape, type, further arguments) -> tensor
METHODS = {
    "bits": lambda s, t: random_bits(s[0]),
    "rand_other": lambda s, t: Tensor.rand(*s, dtype=t, device=Device.DEFAULT + ":1"),
    "rand": lambda s, t: Tensor.rand(*s, dtype=t),
    "rand_like": lambda s, t: Tensor.empty(*s, dtype=t).rand_like(),
    "randn": lambda s, t: Tensor.randn(*s, dtype=t),
    "randn_like": lambda s, t: Tensor.empty(*s, dtype=t).randn_like(),
    "randint": lambda s, t, low, high: Tensor.randint(*s, low=int(low), high=int(high), dtype=t),
    "normal": lambda s, t, mean, std: Tensor.normal(*s, mean=mean, std=std, dtype=t),
    "uniform": lambda s, t, low, high: Tensor.uniform(*s, low=low, high=high, dtype=t),
    "scaled_uniform": lambda s, t: Tensor.scaled_uniform(*s, dtype=t),
    "glorot_uniform": lambda s, t: Tensor.glorot_uniform(*s, dtype=t),
    "kaiming_uniform": lambda s, t, a: Tensor.kaiming_uniform(*s, a=a, dtype=t),
    "kaiming_normal": lambda s, t, a: Tensor.kaiming_normal(*s, a=a, dtype=t),
    "randperm": lambda s, t: Tensor.randperm(s[0], dtype=t),
    "multinomial": lambda s, t, n, replace: counting(s, dtypes.float32).multinomial(int(n), bool(replace)),
    "multinomial_int": lambda s, t, n, replace: counting(s, dtypes.int32).multinomial(int(n), bool(replace)),
    "dropout": lambda s, t, p: counting(s, t).dropout(p),
}

SEQUENCES = {
    (0, 0): [("rand", "f32", [3]), ("rand", "f32", [1]), ("rand", "f32", [257]), ("rand", "f32", [0, 4]), ("rand", "f32", []),
        ("rand", "f64", [2, 3, 5]), ("rand", "f16", [7]), ("rand", "bf16", [5]), ("rand", "f8e5m2", [9]),
        ("rand", "f32", [4, 1, 6]), ("bits", "u32", [1]), ("bits", "u32", [33])],
    (1337, 0): [("rand", t, [2, 13]) for t in FLOATS] + [("rand_like", t, [11]) for t in FLOATS],
    (42, 0): [("uniform", "f32", [50], -3.3, 7.1), ("uniform", "f64", [9], 0.0, 1e-3), ("uniform", "f16", [3, 3], -2.0, 2.0),
         ("uniform", "bf16", [6], -1.0, 8.0), ("scaled_uniform", "f32", [5, 9]),
         ("glorot_uniform", "f32", [6, 4, 3]), ("kaiming_uniform", "f32", [8, 3, 3], 0.01),
         ("kaiming_uniform", "f32", [4, 7], 2.2360679774997896), ("scaled_uniform", "f64", [3])],
    (7, 0): [("randint", "i32", [64], 0, 10), ("randint", "i64", [9], -5, 1000000), ("randint", "u8", [20], 0, 256),
        ("randint", "i8", [9], -100, 27), ("randint", "i16", [2, 3], -300, 300), ("randint", "u32", [4], 5, 6),
        ("randperm", "i32", [17]), ("randperm", "i64", [6]), ("randperm", "i32", [1]), ("dropout", "f32", [4, 10], 0.5),
        ("dropout", "f32", [30], 0.1), ("dropout", "f32", [5], 1.0), ("dropout", "f32", [5], 0.0),
        ("dropout", "f16", [25], 0.25)],
    (2**32 - 1, 0): [("multinomial", "i32", [6], 20, 1), ("multinomial_int", "i32", [5], 30, 1),
                ("multinomial", "i32", [3, 4], 8, 1), ("multinomial", "i32", [8], 5, 0),
                ("multinomial", "i32", [2, 9], 9, 0), ("multinomial", "i32", [2, 7], 1, 0), ("rand", "f32", [2])],
    (11, 0): [("randn", t, [19]) for t in ("f32", "f64", "f16", "bf16")] + [("randn", "f32", [200]), ("randn_like", "f32", [3, 3]),
         ("normal", "f32", [40], 10.0, 2.0), ("normal", "f64", [5], -1.0, 0.5), ("kaiming_normal", "f32", [6, 5], 0.01),
         ("kaiming_normal", "f32", [3, 2, 2], 1.0), ("rand", "f32", [2])],
    (3, 1): [("rand_other", "f32", [5]), ("rand_other", "f16", [6])],
}


def interpreted(method, dtype, *_):
    return dtype.endswith("fnuz") or "norm" in method or "randn" in method


def stored(t):
    if t.dtype.itemsize in BITS and dtypes.is_float(t.dtype) and t.dtype != dtypes.float16:
        t = t.bitcast(BITS[t.dtype.itemsize])
    return np.ascontiguousarray(t.numpy())


def main():
    out = {}
    if os.path.exists(sys.argv[1]):
        with open(sys.argv[1], "rb") as f:
            out = load(f.read())
    for (seed, order), calls in SEQUENCES.items():
        if Device.DEFAULT == "PYTHON" and not any(interpreted(*call) for call in calls):
            continue
        Tensor.manual_seed(seed)
        if order == 1:
            Tensor.rand(1).realize()
        for repetition in range(2):
            for i, (method, dtype, shape, *args) in enumerate(calls):
                with Context(TRAINING=1):
                    value = METHODS[method](shape, TYPES[dtype], *args)
                    assert value.dtype == TYPES[dtype], (method, dtype, value.dtype)
                    name = "/".join([f"{seed}.{order}", f"{repetition}.{i:03}", method, dtype, "x".join(map(str, shape)),
                                     ",".join(repr(float(a)) for a in args)])
                    if interpreted(method, dtype) == (Device.DEFAULT == "PYTHON"):
                        out[name] = stored(value)
    with open(sys.argv[1], "wb") as f:
        f.write(save(out))


if __name__ == "__main__":
    main()
