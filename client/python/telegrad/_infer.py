"""Element types and shapes of graph nodes, as the server derives them.

Each rule is named in a column of engine/ir/ops.def. What the rules do not need to know is left to
the server, which checks every node again. A size is a number or a Size; what the bounds of its variables leave open
is no error here.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

from telegrad._size import Dim, Size, highest, lowest, product
from telegrad._tables import OPS, REDUCE_KINDS, SCATTER_KINDS, OpRow
from telegrad.dtypes import DType, dtype
from telegrad.errors import invalid

OP: dict[str, OpRow] = {row.name: row for row in OPS}
Shape = tuple[Dim, ...]
Typed = tuple[DType | None, Shape]  # no type: an effect, or several values

_STORAGE = ("f8e8m0", "f4e2m1", "i4", "u4", "i2", "u2")  # have no arithmetic


def _bad(row: OpRow, message: str) -> Exception:
    return invalid(f"{row.name}: {message}")


SYMBOLIC = ("iota", "reshape", "expand", "pad", "shrink")  # whose words may be sizes


def words(row: OpRow, arg: Sequence[Dim | str]) -> list[Any]:
    """The argument words; a word may be the name of a kind."""
    kinds = {"reduce": REDUCE_KINDS, "kind": REDUCE_KINDS,
             "scatter": SCATTER_KINDS}.get(row.arg, ())
    out = []
    for i, word in enumerate(arg):
        if isinstance(word, str):
            if i > 0 or word not in kinds:
                raise _bad(row, f"there is no {word!r} here; there are "
                           f"{', '.join(kinds) or 'no names'}")
            word = kinds.index(word)
        if isinstance(word, Size) and row.name not in SYMBOLIC:
            raise _bad(row, f"the size {word}; it takes numbers that are the same in each run")
        out.append(word if isinstance(word, Size) else int(word))
    return out


def symbols(arg: Sequence[Any]) -> list[Size]:
    """The sizes among the words, which are sources of a node."""
    return list(dict.fromkeys(word for word in arg if isinstance(word, Size)))


def encoded(row: OpRow, arg: Sequence[Any]) -> list[int]:
    """The words as a server takes them: -1 - i for the size that is source i."""
    sources = symbols(arg)
    return [-1 - row.min_src - sources.index(word) if isinstance(word, Size) else word for word in arg]


def instances(row: OpRow, src: Sequence[Any], arg: list[Any]) -> int:
    """On how many devices a value is."""
    if row.name in ("copy", "mstack"):
        return max(len(arg) if row.name == "copy" else len(src), 1)
    return 1 if row.name == "mselect" else max((s.instances for s in src), default=1)


def infer(row: OpRow, given: DType | None, src: Sequence[Any], arg: list[Any]) -> Typed:
    """What a node with these sources (each a Tensor) would be."""
    if len(src) < row.min_src or 0 <= row.max_src < len(src):
        raise _bad(row, f"has {len(src)} sources, expected {_count(row)}")
    return _type(row, given, src, arg), _SHAPES[row.shape_rule](row, given, src, arg)


def _count(row: OpRow) -> str:
    if row.max_src == row.min_src:
        return str(row.min_src)
    return f"{row.min_src} or more" if row.max_src < 0 else f"{row.min_src} to {row.max_src}"


def _allows(elements: str, kind: DType) -> bool:
    compute = kind.name not in _STORAGE
    integer = kind.kind in ("signed", "unsigned")
    return {"any": True, "compute": compute, "arith": compute and kind.kind != "boolean",
            "float_only": compute and kind.is_float, "int_only": compute and integer,
            "bool_only": kind.kind == "boolean", "logic": compute and not kind.is_float,
            "u64_only": kind.name == "u64"}[elements]


def _type(row: OpRow, given: DType | None, src: Sequence[Any], arg: list[Any]) -> DType | None:
    def shared(first: int) -> DType:
        for i in range(first + 1, len(src)):
            if src[i].dtype != src[first].dtype:
                raise _bad(row, f"source {i} is {src[i].dtype}, expected {src[first].dtype} as "
                           f"source {first}; cast one")
        kind: DType = src[first].dtype
        return kind

    if row.type_rule == "given":
        if given is None:
            raise _bad(row, "needs an element type")
        return given
    if given is not None:
        raise _bad(row, f"was given {given}; its element type follows from its sources")
    if src and src[0].dtype is not None and not _allows(row.elements, src[0].dtype):
        raise _bad(row, f"is not for {src[0].dtype} (only for: {row.elements})")
    if row.type_rule == "same":
        return shared(0)
    if row.type_rule == "compare":
        shared(0)
        return dtype("bool")
    if row.type_rule == "select":
        return shared(1)
    if row.type_rule == "index_type":
        return dtype("i64")
    if row.type_rule == "first":
        kind: DType | None = src[0].dtype
        return kind
    if row.type_rule == "tuple_type":
        element: DType | None = _element(row, src, arg).dtype
        return element
    return None


def _element(row: OpRow, src: Sequence[Any], arg: list[Any]) -> Any:
    values = src[0].src if src[0].op == "tuple" else src[0].src[0].src
    if len(arg) != 1 or not 0 <= arg[0] < len(values):
        raise _bad(row, f"there is no value {arg} of {len(values)}")
    return values[arg[0]]


def _axes(row: OpRow, axes: Sequence[int], rank: int) -> None:
    if len(set(axes)) != len(axes) or any(not 0 <= axis < rank for axis in axes):
        raise _bad(row, f"axes {list(axes)} of a shape of rank {rank}")


def _static(row: OpRow, dims: Sequence[Dim]) -> Shape:
    negative = [dim for dim in dims if highest(dim) < 0]
    if negative:
        raise _bad(row, f"size {negative[0]} is negative")
    return tuple(dims)


def _elementwise(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    shape: Shape = ()
    for s in src:
        if s.shape and shape and s.shape != shape:
            raise _bad(row, f"shapes {list(shape)} and {list(s.shape)} differ")
        shape = s.shape or shape
    return shape


def _reshape(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    shape = _static(row, arg)
    if product(shape) != product(src[0].shape):
        raise _bad(row, f"from {list(src[0].shape)} to {arg} changes the number of elements")
    return shape


def _expand(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    have = src[0].shape
    if len(have) != len(arg) or any(a not in (b, 1) for a, b in zip(have, arg)):
        raise _bad(row, f"{list(have)} does not expand to {arg}")
    return _static(row, arg)


def _permute(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    if sorted(arg) != list(range(len(src[0].shape))):
        raise _bad(row, f"{arg} is no order of the {len(src[0].shape)} axes")
    return tuple(src[0].shape[axis] for axis in arg)


def _same_axes(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    _axes(row, arg, len(src[0].shape))
    return tuple(src[0].shape)


def _pad_or_shrink(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    have = src[0].shape
    if len(arg) != 2 * len(have):
        raise _bad(row, f"has {len(arg)} argument words, expected {2 * len(have)}")
    for size, offset, wanted in zip(have, arg[::2], arg[1::2]):
        inner, outer = (size, wanted) if row.name == "pad" else (wanted, size)
        if highest(offset) < 0 or highest(inner) < 0 or lowest(offset + inner - outer) > 0:
            raise _bad(row, f"{inner} at offset {offset} is not within {outer}")
    return tuple(arg[1::2])


def _cat(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    _axes(row, arg, len(src[0].shape))
    out = list(src[0].shape)
    rest = [size for i, size in enumerate(out) if i != arg[0]]
    for i, s in enumerate(src[1:], 1):
        if [size for j, size in enumerate(s.shape) if j != arg[0]] != rest:
            raise _bad(row, f"source {i} has shape {list(s.shape)}, expected {list(src[0].shape)} "
                       f"but for axis {arg[0]}")
        if s.dtype != src[0].dtype:
            raise _bad(row, f"source {i} is {s.dtype}, expected {src[0].dtype}")
        out[arg[0]] += s.shape[arg[0]]
    return tuple(out)


def _bitcast(row: OpRow, given: DType | None, src: Sequence[Any], arg: list[Any]) -> Shape:
    have: Shape = src[0].shape
    old, new = src[0].dtype.bits, given.bits if given else 0
    if old == new:
        return have
    if not have or not isinstance(have[-1], int) or have[-1] * old % new:
        raise _bad(row, f"the last axis of {list(have)} {src[0].dtype} is no number of {given}")
    return (*have[:-1], have[-1] * old // new)


def _reduce(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    _axes(row, arg[1:], len(src[0].shape))
    return tuple(1 if i in arg[1:] else size for i, size in enumerate(src[0].shape))


def _gather(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    if not src[0].shape:
        raise _bad(row, "source 0 is a scalar, expected rows")
    return (*src[1].shape, *src[0].shape[1:])


def _scatter(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    if src[2].shape != _gather(row, given, src, arg):
        raise _bad(row, f"the rows have shape {list(src[2].shape)}, expected "
                   f"{list(_gather(row, given, src, arg))}")
    return tuple(src[0].shape)


def _unshard(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    _axes(row, arg, len(src[0].shape))
    if len(arg) != 1:
        raise _bad(row, f"names {len(arg)} axes, expected one")
    return tuple(size * (src[0].instances if i == arg[0] else 1)
                 for i, size in enumerate(src[0].shape))


def _first(row: OpRow, given: Any, src: Sequence[Any], arg: list[Any]) -> Shape:
    return tuple(src[0].shape)


_SHAPES: dict[str, Callable[[OpRow, Any, Sequence[Any], list[Any]], Shape]] = {
    "scalar_shape": lambda row, given, src, arg: (),
    "no_shape": lambda row, given, src, arg: (),
    "arg_shape": lambda row, given, src, arg: _static(row, arg if row.arg == "dims" else arg[2:]),
    "elementwise": _elementwise,
    "first_shape": _first,
    "same_shape": _first,
    "reshape_to": _reshape,
    "expand_to": _expand,
    "permute_by": _permute,
    "same_axes": _same_axes,
    "pad_to": _pad_or_shrink,
    "shrink_to": _pad_or_shrink,
    "cat_axis": _cat,
    "bitcast_shape": _bitcast,
    "reduce_axes": _reduce,
    "gather_rows": _gather,
    "scatter_rows": _scatter,
    "tuple_shape": lambda row, given, src, arg: tuple(_element(row, src, arg).shape),
    "unshard_axis": _unshard,
}
