"""Facts of the server, which make_tables.py takes from its sources; a test compares."""

from typing import NamedTuple


class OpRow(NamedTuple):
    """An op that a client may use; engine/ir/ops.def says what each column means."""

    name: str
    wire: int
    min_src: int
    max_src: int  # -1: any number
    arg: str
    elements: str
    type_rule: str
    shape_rule: str


class DTypeRow(NamedTuple):
    """An element type; engine/types/dtypes.def says what each column means."""

    name: str
    wire: int
    bits: int
    kind: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: str
    numpy: str  # empty: NumPy has no such type


PROTOCOL_MIN = 1
PROTOCOL_MAX = 1
GRAPH_FORM_MIN = 2
GRAPH_FORM_MAX = 2
MAX_MESSAGE_BYTES = 83886080
GRAPH_FORM = 2

REDUCE_KINDS = ("add", "mul", "max")
SCATTER_KINDS = ("set", "add", "mul", "min", "max")

DTYPES: tuple[DTypeRow, ...] = (
    DTypeRow("bool", 1, 8, "boolean", 0, 0, 0, "not_float", "|b1"),
    DTypeRow("i8", 2, 8, "signed", 0, 0, 0, "not_float", "|i1"),
    DTypeRow("i16", 3, 16, "signed", 0, 0, 0, "not_float", "<i2"),
    DTypeRow("i32", 4, 32, "signed", 0, 0, 0, "not_float", "<i4"),
    DTypeRow("i64", 5, 64, "signed", 0, 0, 0, "not_float", "<i8"),
    DTypeRow("u8", 6, 8, "unsigned", 0, 0, 0, "not_float", "|u1"),
    DTypeRow("u16", 7, 16, "unsigned", 0, 0, 0, "not_float", "<u2"),
    DTypeRow("u32", 8, 32, "unsigned", 0, 0, 0, "not_float", "<u4"),
    DTypeRow("u64", 9, 64, "unsigned", 0, 0, 0, "not_float", "<u8"),
    DTypeRow("f16", 10, 16, "float", 5, 10, 15, "ieee", "<f2"),
    DTypeRow("bf16", 11, 16, "float", 8, 7, 127, "ieee", ""),
    DTypeRow("f32", 12, 32, "float", 8, 23, 127, "ieee", "<f4"),
    DTypeRow("f64", 13, 64, "float", 11, 52, 1023, "ieee", "<f8"),
    DTypeRow("f8e4m3fn", 14, 8, "float", 4, 3, 7, "nan_only", ""),
    DTypeRow("f8e5m2", 15, 8, "float", 5, 2, 15, "ieee", ""),
    DTypeRow("f8e4m3fnuz", 16, 8, "float", 4, 3, 8, "neg_zero_nan", ""),
    DTypeRow("f8e5m2fnuz", 17, 8, "float", 5, 2, 16, "neg_zero_nan", ""),
    DTypeRow("f8e8m0", 18, 8, "float", 8, 0, 127, "powers_of_two", ""),
    DTypeRow("f4e2m1", 19, 4, "float", 2, 1, 1, "finite", ""),
    DTypeRow("i4", 20, 4, "signed", 0, 0, 0, "not_float", ""),
    DTypeRow("u4", 21, 4, "unsigned", 0, 0, 0, "not_float", ""),
    DTypeRow("i2", 22, 2, "signed", 0, 0, 0, "not_float", ""),
    DTypeRow("u2", 23, 2, "unsigned", 0, 0, 0, "not_float", ""),
)

OPS: tuple[OpRow, ...] = (
    OpRow("const", 1, 0, 0, "scalar", "any", "given", "scalar_shape"),
    OpRow("param", 2, 0, 0, "param", "any", "given", "arg_shape"),
    OpRow("iota", 3, 0, 0, "dims", "int_only", "given", "arg_shape"),
    OpRow("var", 4, 0, 1, "var", "any", "index_type", "scalar_shape"),
    OpRow("arg", 5, 0, 0, "param", "any", "given", "arg_shape"),
    OpRow("reshape", 10, 1, 1, "dims", "any", "first", "reshape_to"),
    OpRow("expand", 11, 1, 1, "dims", "any", "first", "expand_to"),
    OpRow("permute", 12, 1, 1, "axes", "any", "first", "permute_by"),
    OpRow("flip", 13, 1, 1, "axes", "any", "first", "same_axes"),
    OpRow("pad", 14, 1, 1, "pairs", "any", "first", "pad_to"),
    OpRow("shrink", 15, 1, 1, "pairs", "any", "first", "shrink_to"),
    OpRow("cat", 16, 1, -1, "axes", "any", "first", "cat_axis"),
    OpRow("neg", 20, 1, 1, "none", "arith", "same", "elementwise"),
    OpRow("exp2", 21, 1, 1, "none", "float_only", "same", "elementwise"),
    OpRow("log2", 22, 1, 1, "none", "float_only", "same", "elementwise"),
    OpRow("sqrt", 23, 1, 1, "none", "float_only", "same", "elementwise"),
    OpRow("recip", 24, 1, 1, "none", "float_only", "same", "elementwise"),
    OpRow("trunc", 25, 1, 1, "none", "float_only", "same", "elementwise"),
    OpRow("floor", 26, 1, 1, "none", "float_only", "same", "elementwise"),
    OpRow("cast", 27, 1, 1, "none", "any", "given", "elementwise"),
    OpRow("bitcast", 28, 1, 1, "none", "any", "given", "bitcast_shape"),
    OpRow("sin", 29, 1, 1, "none", "float_only", "same", "elementwise"),
    OpRow("add", 40, 2, 2, "none", "arith", "same", "elementwise"),
    OpRow("sub", 41, 2, 2, "none", "arith", "same", "elementwise"),
    OpRow("mul", 42, 2, 2, "none", "arith", "same", "elementwise"),
    OpRow("fdiv", 43, 2, 2, "none", "float_only", "same", "elementwise"),
    OpRow("floordiv", 44, 2, 2, "none", "int_only", "same", "elementwise"),
    OpRow("floormod", 45, 2, 2, "none", "int_only", "same", "elementwise"),
    OpRow("max", 46, 2, 2, "none", "arith", "same", "elementwise"),
    OpRow("cmplt", 47, 2, 2, "none", "compute", "compare", "elementwise"),
    OpRow("cmpeq", 48, 2, 2, "none", "compute", "compare", "elementwise"),
    OpRow("cmpne", 49, 2, 2, "none", "compute", "compare", "elementwise"),
    OpRow("and", 50, 2, 2, "none", "logic", "same", "elementwise"),
    OpRow("or", 51, 2, 2, "none", "logic", "same", "elementwise"),
    OpRow("xor", 52, 2, 2, "none", "logic", "same", "elementwise"),
    OpRow("shl", 53, 2, 2, "none", "int_only", "same", "elementwise"),
    OpRow("shr", 54, 2, 2, "none", "int_only", "same", "elementwise"),
    OpRow("cdiv", 55, 2, 2, "none", "int_only", "same", "elementwise"),
    OpRow("cmod", 56, 2, 2, "none", "int_only", "same", "elementwise"),
    OpRow("pow", 57, 2, 2, "none", "float_only", "same", "elementwise"),
    OpRow("threefry", 58, 2, 2, "none", "u64_only", "same", "elementwise"),
    OpRow("where", 60, 3, 3, "none", "bool_only", "select", "elementwise"),
    OpRow("mulacc", 61, 3, 3, "none", "arith", "same", "elementwise"),
    OpRow("reduce", 70, 1, -1, "reduce", "arith", "first", "reduce_axes"),
    OpRow("gather", 71, 2, 2, "none", "any", "first", "gather_rows"),
    OpRow("scatter", 72, 3, 3, "scatter", "any", "first", "scatter_rows"),
    OpRow("store", 80, 2, 2, "none", "any", "void", "no_shape"),
    OpRow("after", 81, 2, -1, "none", "any", "first", "first_shape"),
    OpRow("sink", 82, 1, -1, "none", "any", "void", "no_shape"),
    OpRow("contiguous", 83, 1, 1, "none", "any", "first", "first_shape"),
    OpRow("detach", 84, 1, 1, "none", "any", "first", "first_shape"),
    OpRow("tuple", 90, 1, -1, "none", "any", "void", "no_shape"),
    OpRow("call", 91, 1, -1, "none", "any", "void", "no_shape"),
    OpRow("loop", 92, 3, -1, "none", "any", "void", "no_shape"),
    OpRow("gettuple", 93, 1, 1, "number", "any", "tuple_type", "tuple_shape"),
    OpRow("copy", 94, 1, 1, "devices", "any", "first", "first_shape"),
    OpRow("mstack", 95, 1, -1, "none", "any", "first", "same_shape"),
    OpRow("mselect", 96, 1, 1, "number", "any", "first", "first_shape"),
    OpRow("allreduce", 97, 1, 1, "kind", "arith", "first", "first_shape"),
    OpRow("unshard", 98, 1, 1, "axes", "any", "first", "unshard_axis"),
)
