"""Makes promotion.txt: what tinygrad promotes pairs of element types to, and types with numbers.

Lines "type type result" and "type number:bool|int|float result", by the names of engine/types/dtypes.def.
Its weak types, which it gives where a number's type or none decides, stand for its default types.
"""
import pathlib

from tinygrad import Tensor, dtypes
from tinygrad.dtype import least_upper_dtype

NAMES = {
    'bool': 'bool', 'i8': 'int8', 'i16': 'int16', 'i32': 'int32', 'i64': 'int64', 'u8': 'uint8',
    'u16': 'uint16', 'u32': 'uint32', 'u64': 'uint64', 'f16': 'float16', 'bf16': 'bfloat16',
    'f32': 'float32', 'f64': 'float64', 'f8e4m3fn': 'fp8e4m3', 'f8e5m2': 'fp8e5m2',
    'f8e4m3fnuz': 'fp8e4m3fnuz', 'f8e5m2fnuz': 'fp8e5m2fnuz',
}
TYPES = {name: getattr(dtypes, theirs) for name, theirs in NAMES.items()}
OURS = {theirs: name for name, theirs in TYPES.items()}
OURS |= {dtypes.weakint: 'i32', dtypes.weakfloat: 'f32'}

lines = [f'{a} {b} {OURS[least_upper_dtype(TYPES[a], TYPES[b])]}' for a in TYPES for b in TYPES]
for a, dtype in TYPES.items():
    for kind, number in (('bool', True), ('int', 1), ('float', 1.0)):
        lines.append(f'{a} number:{kind} {OURS[(Tensor.empty(1, dtype=dtype) + number).dtype]}')
path = pathlib.Path(__file__).parents[1] / 'data/frontend/promotion.txt'
path.write_text('\n'.join(lines) + '\n')
