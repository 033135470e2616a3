"""The shared part of the scripts that make tests/data/frontend/<section>.safetensors.gz.

Each section has a script make_<section>.py that calls Section(name), add() for every case and
save(). Values come from NumPy, from PyTorch where NumPy has no such function, in f64 rounded to the
output's type where that is the truth a method is held to. Runs by hand; the data is committed.
"""
import gzip
import io
import json
import pathlib

import ml_dtypes
import numpy as np

NAMES = {
    'bool': 'BOOL', 'int8': 'I8', 'int16': 'I16', 'int32': 'I32', 'int64': 'I64', 'uint8': 'U8',
    'uint16': 'U16', 'uint32': 'U32', 'uint64': 'U64', 'float16': 'F16', 'bfloat16': 'BF16',
    'float32': 'F32', 'float64': 'F64', 'float8_e4m3fn': 'F8_E4M3', 'float8_e5m2': 'F8_E5M2',
}
BF16 = ml_dtypes.bfloat16


class Section:
    def __init__(self, name, seed=1):
        self.name = name
        self.tensors = {}
        self.variants = {}
        self.rng = np.random.default_rng(seed)

    def add(self, case, inputs, outputs, weights=(), grads=()):
        """One variant of a case: arrays; `grads` are those of sum(outputs * weights)."""
        v = self.variants.get(case, 0)
        self.variants[case] = v + 1
        for kind, arrays in (('in', inputs), ('out', outputs), ('w', weights), ('grad', grads)):
            for i, a in enumerate(arrays):
                self.tensors[f'{case}/{v}/{kind}{i}'] = np.array(a, order='C', copy=True)

    def normal(self, shape, dtype=np.float32, scale=1.0):
        return (self.rng.standard_normal(shape) * scale).astype(dtype)

    def add_torch(self, case, function, *inputs):
        """Outputs and gradients from PyTorch: `function` of tensors gives a tensor or several."""
        import torch
        leaves = []
        for x in inputs:
            t = torch.from_numpy(np.ascontiguousarray(x))
            leaves.append(t.requires_grad_() if t.is_floating_point() else t)
        out = function(*leaves)
        out = list(out) if isinstance(out, (tuple, list)) else [out]
        floats = [t for t in out if t.is_floating_point()]
        weights, grads = [], []
        if floats and len(floats) == len(out) and any(t.requires_grad for t in floats):
            weights = [self.normal(tuple(t.shape), t.detach().numpy().dtype) for t in floats]
            loss = sum((t * torch.from_numpy(np.ascontiguousarray(w))).sum()
                       for t, w in zip(floats, weights))
            wrt = [t for t in leaves if t.requires_grad]
            got = torch.autograd.grad(loss, wrt, allow_unused=True)
            grads = [np.zeros(tuple(t.shape), t.detach().numpy().dtype) if g is None else g.numpy()
                     for g, t in zip(got, wrt)]
        self.add(case, inputs, [t.detach().numpy() for t in out], weights, grads)

    def save(self):
        header, data, at = {}, io.BytesIO(), 0
        for key in sorted(self.tensors):
            a = self.tensors[key]
            raw = a.tobytes()
            header[key] = {'dtype': NAMES[a.dtype.name], 'shape': list(a.shape),
                           'data_offsets': [at, at + len(raw)]}
            data.write(raw)
            at += len(raw)
        text = json.dumps(header, separators=(',', ':')).encode()
        text += b' ' * (-len(text) % 8)
        path = pathlib.Path(__file__).parents[1] / 'data/frontend' / f'{self.name}.safetensors.gz'
        with open(path, 'wb') as f:
            with gzip.GzipFile('', 'wb', 9, f, mtime=0) as z:
                z.write(len(text).to_bytes(8, 'little') + text + data.getvalue())
        print(f'{path.name}: {len(self.variants)} cases, {sum(self.variants.values())} variants, '
              f'{path.stat().st_size} bytes')
