#!/usr/bin/env python3
"""Writes the tensor files beside it, each with the library that the format is from, and what they hold.

    python3 -m venv v && v/bin/pip install numpy safetensors torch gguf && v/bin/python make.py

expected.safetensors has the tensors of all other files under FILE/NAME, as the libraries read them; those of
quantized GGUF tensors are f32, as the package gguf dequantizes them (Q8_K, which it leaves out, by the formula
below).
"""
import io
import os
import struct
import zipfile

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(20240601)
expected = {}


def path(name):
    return os.path.join(HERE, name)


def expect(file, name, value):
    tensor = value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value, order="C"))
    expected[f"{file}/{name}"] = tensor.clone().contiguous()


# --- npz ---

arrays = {
    "f4": rng.standard_normal((3, 4)).astype(np.float32),
    "f8": rng.standard_normal(5),
    "i8": rng.integers(-9, 9, (2, 1, 3)),
    "b1": np.array([True, False, True]),
    "scalar": np.array(7, np.int16),
    "empty": np.zeros((0, 3), np.float32),
    "many": np.tile(np.arange(100, dtype=np.int32), 20),  # compresses well
}
np.savez(path("stored.npz"), fortran=np.asfortranarray(arrays["f4"]), **arrays)
np.savez_compressed(path("deflated.npz"), **arrays)
with zipfile.ZipFile(path("zip64.npz"), "w") as out:
    for name in ("f4", "i8"):
        buffer = io.BytesIO()
        np.save(buffer, arrays[name])
        with out.open(name + ".npy", "w", force_zip64=True) as member:
            member.write(buffer.getvalue())
for name, value in arrays.items():
    expect("stored.npz", name, value)
    expect("deflated.npz", name, value)
    if name in ("f4", "i8"):
        expect("zip64.npz", name, value)
expect("stored.npz", "fortran", arrays["f4"])

# --- PyTorch ---

torch.manual_seed(1)
x = torch.arange(24, dtype=torch.float32).reshape(4, 6)
linear = torch.nn.Linear(3, 2)
adam = torch.optim.Adam(linear.parameters())
linear(torch.ones(1, 3)).sum().backward()
adam.step()
tensors = {
    "x": x, "view": x[1:3], "transposed": x.t(), "every_second": x[:, ::2], "permuted": x.reshape(2, 3, 4).permute(2, 0, 1),
    "column": x[:, 1], "f16": x.half(), "bf16": x.bfloat16(), "f64": x.double(), "i8": x.to(torch.int8),
    "i16": x.short(), "i32": x.int(), "i64": x.long(), "u8": x.byte(), "bool": x > 9, "u16": x.to(torch.uint16),
    "u32": x.to(torch.uint32), "f8": x.to(torch.float8_e4m3fn), "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 3), "parameter": torch.nn.Parameter(x[0]),
}
content = {"tensors": tensors, "model": linear.state_dict(), "optimizer": adam.state_dict(), "list": [x, (x, None)],
           "epoch": 12, "rate": 0.5, "name": "a net", "done": True, "sizes": x.size()}
torch.save(content, path("torch.pt"))
torch.save({"a": x, "b": x[2:]}, path("legacy.pt"), _use_new_zipfile_serialization=False)
torch.save({"wide": torch.zeros(1).expand(1000)}, path("expanded.pt"))
torch.save(linear, path("module.pt"))
torch.save(x, path("single.pt"))
for name, value in tensors.items():
    expect("torch.pt", "tensors." + name, value)
for name, value in linear.state_dict().items():
    expect("torch.pt", "model." + name, value)
for i, state in adam.state_dict()["state"].items():
    for name, value in state.items():
        expect("torch.pt", f"optimizer.state.{i}.{name}", value)
expect("torch.pt", "list.0", x)
expect("torch.pt", "list.1.0", x)
expect("single.pt", "data", x)
with zipfile.ZipFile(path("torch.pt")) as source, \
        zipfile.ZipFile(path("deflated.pt"), "w", zipfile.ZIP_DEFLATED) as out:
    torch.save({"x": x.repeat(20, 1), "tail": x.repeat(20, 1)[40:]}, buffer := io.BytesIO())
    for info in (inner := zipfile.ZipFile(buffer)).infolist():
        out.writestr(info.filename, inner.read(info))
expect("deflated.pt", "x", x.repeat(20, 1))
expect("deflated.pt", "tail", x.repeat(20, 1)[40:])

# --- GGUF ---

HALVES = {  # where a block has f16 numbers, which must be finite
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0], Type.Q2_K: [80, 82],
    Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208], Type.IQ4_NL: [0], Type.IQ4_XS: [0],
    Type.MXFP4: [], Type.Q8_K: [],
}


def q8_k(blocks):
    """d (f32), 256 signed bytes, 16 sums of theirs (i16)."""
    return blocks[:, :4].copy().view("<f4") * blocks[:, 4:260].view(np.int8).astype(np.float32)


writer = gguf.GGUFWriter(path("quants.gguf"), "test")
writer.add_uint8("meta.u8", 200)
writer.add_int8("meta.i8", -100)
writer.add_uint16("meta.u16", 60000)
writer.add_int16("meta.i16", -30000)
writer.add_uint32("meta.u32", 4000000000)
writer.add_int32("meta.i32", -2000000000)
writer.add_uint64("meta.u64", 1 << 63)
writer.add_int64("meta.i64", -(1 << 62))
writer.add_float32("meta.f32", 0.25)
writer.add_float64("meta.f64", 1e300)
writer.add_bool("meta.bool", True)
writer.add_string("meta.string", "gr\u00fc\u00dfe")
writer.add_array("meta.strings", ["a", "", "bc"])
writer.add_array("meta.numbers", [1, -2, 3])
for name, value in {"F32": x.numpy(), "F16": x.half().numpy(), "F64": x.double().numpy(), "I8": x.to(torch.int8).numpy(),
                    "I16": x.short().numpy(), "I32": x.int().numpy(), "I64": x.long().numpy()}.items():
    writer.add_tensor(name, value)
    expect("quants.gguf", name, value)
writer.add_tensor("BF16", x.bfloat16().view(torch.int16).numpy().view(np.uint8), raw_dtype=Type.BF16)
expect("quants.gguf", "BF16", x.bfloat16())
for kind, halves in HALVES.items():
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (2 if elements == 256 else 8, size), np.uint8)
    for at in halves:
        blocks[:, at:at + 2] = rng.standard_normal((len(blocks), 1)).astype("<f2").view(np.uint8)
    if kind == Type.Q8_K:
        blocks[:, :4] = rng.standard_normal((len(blocks), 1)).astype("<f4").view(np.uint8)
        values = q8_k(blocks)
    else:
        if kind == Type.MXFP4:
            blocks[:, 0] = [0, 1, 2, 100, 127, 128, 150, 254]
        values = gguf.dequantize(blocks, kind)
    writer.add_tensor(kind.name, blocks.reshape(2, -1), raw_dtype=kind)
    expect("quants.gguf", kind.name, values.reshape(2, -1).astype(np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

save_file(expected, path("expected.safetensors"), metadata={"format": "pt"})
print(len(expected), "tensors")
