"""ATen's elementwise operators, shapes, indices and reductions."""

from __future__ import annotations

import math
from typing import Any, Sequence

import torch

from telegrad import Tensor, cat
from telegrad.torch._table import Call, Unsupported, Value, aten
from telegrad.torch._windows import pad

# --- elementwise ---


def _unary(function: Any) -> Any:
    return lambda c, x: function(c.tensor(x))


def _round(x: Tensor) -> Tensor:
    """Halves to even."""
    low = x.floor()
    part = x - low
    even = (low * 0.5).floor() * 2
    tie = even.eq(low).where(low, low + 1)
    return (part < 0.5).where(low, part.eq(0.5).where(tie, low + 1))


def _sign(x: Tensor) -> Tensor:
    return (x > 0).cast(x.dtype) - (x < 0).cast(x.dtype) if x.dtype.kind != "unsigned" else (x > 0).cast(x.dtype)


def _expm1(x: Tensor) -> Tensor:
    """Near zero its series, elsewhere exp(x) - 1."""
    series = x * (x * (x * (x * (x * (1 / 120) + 1 / 24) + 1 / 6) + 0.5) + 1)
    return (abs(x) < 0.1).where(series, x.exp() - 1)


def _log1p(x: Tensor) -> Tensor:
    """log(u) x / (u - 1) where u = 1 + x as rounded: the error of u cancels (Kahan)."""
    u = x + 1
    same = u.eq(1)
    return same.where(x, u.eq(math.inf).where(u, u.log() * (x / same.where(1, u - 1))))


def _erf(x: Tensor) -> Tensor:
    """Abramowitz and Stegun, 7.1.26, to 1.5e-7, and the series near zero."""
    a = abs(x)
    t = (a * 0.3275911 + 1).reciprocal()
    p = t * (t * (t * (t * (t * 1.061405429 - 1.453152027) + 1.421413741) - 0.284496736) + 0.254829592)
    far = _sign(x) * (1 - p * (-(x * x)).exp())
    z = x * x
    near = x * ((((z * (1 / 216) - 1 / 42) * z + 0.1) * z - 1 / 3) * z + 1) * (2 / math.sqrt(math.pi))
    return (a < 0.5).where(near, far)


for name, function in {
        "neg": Tensor.__neg__, "exp": Tensor.exp, "exp2": Tensor.exp2, "log": Tensor.log, "log2": Tensor.log2,
        "sin": Tensor.sin, "cos": Tensor.cos, "sqrt": Tensor.sqrt, "rsqrt": Tensor.rsqrt,
        "tanh": Tensor.tanh, "sigmoid": Tensor.sigmoid, "relu": Tensor.relu, "abs": Tensor.__abs__,
        "reciprocal": Tensor.reciprocal, "round": _round, "sign": _sign, "expm1": _expm1, "log1p": _log1p,
        "erf": _erf, "tan": lambda x: x.sin() / x.cos(),
        "log10": lambda x: x.log2() * math.log10(2), "bitwise_not": Tensor.__invert__}.items():
    aten(name)(_unary(function))
for name, function in {"floor": Tensor.floor, "ceil": lambda x: -(-x).floor(), "trunc": Tensor.trunc}.items():
    aten(name)(lambda c, x, function=function: function(x) if x.dtype.is_float else x)
for name, function in {
        "add": lambda a, b: a | b if a.dtype.kind == "boolean" else a + b,
        "mul": lambda a, b: a & b if a.dtype.kind == "boolean" else a * b,
        "maximum": Tensor.maximum, "minimum": Tensor.minimum,
        "bitwise_and": Tensor.__and__, "bitwise_or": Tensor.__or__, "bitwise_xor": Tensor.__xor__}.items():
    def _binary(c: Call, x: Value, y: Value, alpha: Any = 1, function: Any = function) -> Tensor:
        a, b = c.tensors(x, y)
        return function(a, b if alpha == 1 else b * alpha)

    aten(name)(_binary)
for name, method in {"eq": "eq", "ne": "ne", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__"}.items():
    def _comparison(c: Call, x: Value, y: Value, method: str = method) -> Tensor:
        a, b = c.common(x, y)
        if a.dtype.kind == "boolean":
            a, b = a.cast("u8"), b.cast("u8")
        return getattr(a, method)(b).broadcast_to(c.shape)

    aten(name)(_comparison)
for name, method in {"logical_and": "__and__", "logical_or": "__or__", "logical_xor": "__xor__"}.items():
    aten(name)(lambda c, x, y, method=method: getattr(_truth(x), method)(_truth(y)))


def _truth(x: Tensor) -> Tensor:
    return x if x.dtype.kind == "boolean" else x.ne(0)


@aten("logical_not")
def logical_not(c: Call, x: Tensor) -> Tensor:
    return ~_truth(x)


@aten("sub")
def sub(c: Call, x: Value, y: Value, alpha: Any = 1) -> Tensor:
    a, b = c.tensors(x, y)
    return a - (b if alpha == 1 else b * alpha)


@aten("rsub")
def rsub(c: Call, x: Value, y: Value, alpha: Any = 1) -> Tensor:
    return sub(c, y, x, alpha)


@aten("div")
def div(c: Call, x: Value, y: Value, rounding_mode: str | None = None) -> Tensor:
    a, b = c.tensors(x, y)
    if a.dtype.is_float:
        quotient = a / b
        return {None: quotient, "floor": quotient.floor(), "trunc": quotient.trunc()}[rounding_mode]
    return a // b if rounding_mode == "floor" else a._with("cdiv", b)


@aten("prims.fma.default")
def fma(c: Call, x: Value, y: Value, z: Value) -> Tensor:
    a, b, d = c.tensors(x, y, z)
    return a * b + d


@aten("floor_divide")
def floor_divide(c: Call, x: Value, y: Value) -> Tensor:
    return div(c, x, y, "floor")


@aten("remainder")
def remainder(c: Call, x: Value, y: Value) -> Tensor:
    a, b = c.tensors(x, y)
    return a - (a / b).floor() * b if a.dtype.is_float else a % b


@aten("fmod")
def fmod(c: Call, x: Value, y: Value) -> Tensor:
    a, b = c.tensors(x, y)
    return a - (a / b).trunc() * b if a.dtype.is_float else a._with("cmod", b)


@aten("pow")
def power(c: Call, x: Value, y: Value) -> Tensor:
    if isinstance(y, (int, float)) and y in (0, 1, 2, 3, 4):
        a = c.tensor(x)
        return {0: lambda: c.full(1), 1: lambda: a, 2: lambda: a * a, 3: lambda: a * a * a,
                4: lambda: (a * a).square()}[int(y)]()
    if isinstance(y, (int, float)) and y in (0.5, -0.5, -1):
        a = c.tensor(x)
        return a.sqrt() if y == 0.5 else a.reciprocal() if y == -1 else a.rsqrt()
    a, b = c.tensors(x, y)
    if not a.dtype.is_float:
        return (a.cast("f64") ** b.cast("f64") + 0.5).floor().cast(a.dtype)
    return a ** b


@aten("clamp")
def clamp(c: Call, x: Tensor, low: Value = None, high: Value = None) -> Tensor:
    out = c.tensor(x)
    if low is not None:
        out = out.maximum(c.tensor(low))
    return out if high is None else out.minimum(c.tensor(high))


@aten("clamp_min")
def clamp_min(c: Call, x: Tensor, low: Value) -> Tensor:
    return clamp(c, x, low)


@aten("clamp_max")
def clamp_max(c: Call, x: Tensor, high: Value) -> Tensor:
    return clamp(c, x, None, high)


@aten("where")
def where(c: Call, condition: Tensor, x: Value, y: Value) -> Tensor:
    return condition.where(*c.tensors(x, y)).broadcast_to(c.shape)


@aten("masked_fill")
def masked_fill(c: Call, x: Tensor, mask: Tensor, value: Value) -> Tensor:
    return where(c, mask, value, x)


@aten("isnan")
def isnan(c: Call, x: Tensor) -> Tensor:
    return x.ne(x)


@aten("isinf")
def isinf(c: Call, x: Tensor) -> Tensor:
    return abs(x).eq(math.inf)


@aten("_to_copy", "to", "_prims.convert_element_type", "prims.convert_element_type.default")
def to_copy(c: Call, x: Tensor, *args: Any, **named: Any) -> Tensor:
    if named.get("device") not in (None, torch.device("cpu")):
        raise Unsupported(f"a tensor on {named['device']}; tensors are on the CPU in torch")
    if x.dtype.is_float and not c.dtype.is_float and c.dtype.kind != "boolean":
        return x.trunc().cast(c.dtype)
    return _truth(x) if c.dtype.kind == "boolean" else c.tensor(x)


@aten("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh", "view_of", "copy")
def same(c: Call, x: Tensor, *args: Any, **named: Any) -> Tensor:
    return c.tensor(args[0]).broadcast_to(c.shape) if args and isinstance(args[0], Tensor) else x


# --- made of nothing ---


@aten("full", "full_like", "scalar_tensor", "new_full")
def full(c: Call, first: Any, *rest: Any, **named: Any) -> Tensor:
    return c.full(rest[-1] if rest else first)


@aten("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")
def zeros(c: Call, *args: Any, **named: Any) -> Tensor:
    return c.full(0)


@aten("ones", "ones_like", "new_ones")
def ones(c: Call, *args: Any, **named: Any) -> Tensor:
    return c.full(1)


@aten("arange", "prims.iota.default")
def arange(c: Call, *args: Any, **named: Any) -> Tensor:
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)
    if "step" in named:
        start, step = named["start"], named["step"]
    return c.tensor(c.graph.arange(c.shape[0])) * step + start


# --- shapes ---


@aten("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "_reshape_alias")
def view(c: Call, x: Tensor, *args: Any) -> Tensor:
    return x.reshape(*c.shape) if c.shape else x.reshape([])


@aten("expand")
def expand(c: Call, x: Tensor, *args: Any, **named: Any) -> Tensor:
    return x.broadcast_to(c.shape)


@aten("permute")
def permute(c: Call, x: Tensor, axes: Sequence[int]) -> Tensor:
    return x.permute(list(axes)) if axes else x


@aten("t")
def t(c: Call, x: Tensor) -> Tensor:
    return x.T


@aten("transpose")
def transpose(c: Call, x: Tensor, a: int, b: int) -> Tensor:
    return x.transpose(a, b) if x.ndim else x


def _part(x: Tensor, axis: int, item: Any) -> Tensor:
    return x[(slice(None),) * (axis % x.ndim) + (item,)]


@aten("slice")
def slice_(c: Call, x: Tensor, axis: int = 0, start: int | None = None, end: int | None = None,
           step: int = 1) -> Tensor:
    return _part(x, axis, slice(start, end, step))


@aten("select")
def select(c: Call, x: Tensor, axis: int, index: int) -> Tensor:
    return _part(x, axis, index)


@aten("cat")
def cat_(c: Call, tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    parts = [c.tensor(part) for part in tensors if part.shape != (0,) or c.shape == (0,)]
    return cat(parts, axis)


@aten("stack")
def stack(c: Call, tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    at = axis % len(c.shape)
    return cat([c.tensor(part).unsqueeze(at) for part in tensors], at)


@aten("split", "split_with_sizes")
def split(c: Call, x: Tensor, sizes: Any, axis: int = 0) -> list[Tensor]:
    out, start = [], 0
    for result in c.results:
        size = result.shape[axis]
        out.append(_part(x, axis, slice(start, start + size)))
        start += size
    return out


@aten("unbind")
def unbind(c: Call, x: Tensor, axis: int = 0) -> list[Tensor]:
    return [_part(x, axis, i) for i in range(x.shape[axis])]


@aten("flip")
def flip(c: Call, x: Tensor, axes: Sequence[int]) -> Tensor:
    return x.flip(*axes) if axes else x


@aten("repeat")
def repeat(c: Call, x: Tensor, times: Sequence[int]) -> Tensor:
    shape = (1,) * (len(times) - x.ndim) + x.shape
    ones_ = [d for size in shape for d in (1, size)]
    wide = [d for n, size in zip(times, shape) for d in (n, size)]
    return x.reshape(ones_).broadcast_to(wide).reshape(*c.shape)


@aten("constant_pad_nd")
def constant_pad_nd(c: Call, x: Tensor, widths: Sequence[int], value: float = 0) -> Tensor:
    pairs = [(widths[i], widths[i + 1]) for i in range(0, len(widths), 2)][::-1]
    return pad(x, [(0, 0)] * (x.ndim - len(pairs)) + pairs, value)


@aten("slice_scatter")
def slice_scatter(c: Call, x: Tensor, src: Tensor, axis: int = 0, start: int | None = None,
                  end: int | None = None, step: int = 1) -> Tensor:
    at = axis % x.ndim
    places = range(x.shape[at])[slice(start, end, step)]
    return _scatter_along(c, x, at, c.graph.constant([*places], "i64"), src, "set")


@aten("select_scatter")
def select_scatter(c: Call, x: Tensor, src: Tensor, axis: int, index: int) -> Tensor:
    at = axis % x.ndim
    return _scatter_along(c, x, at, c.graph.constant([index % x.shape[at]], "i64"), src.unsqueeze(at), "set")


def _scatter_along(c: Call, x: Tensor, axis: int, index: Tensor, rows: Tensor, how: str) -> Tensor:
    """Rows of an axis, by a list of numbers."""
    order = [axis, *[a for a in range(x.ndim) if a != axis]]
    back = [order.index(a) for a in range(x.ndim)]
    return x.permute(order).scatter(index, c.tensor(rows).permute(order), how).permute(back)


def _diagonal(x: Tensor, n: int, offset: int, first: int, second: int) -> tuple[list[int], Tensor, Tensor]:
    """The axes with those two in front, the tensor so with these as one, and where in it the diagonal is."""
    a, b = first % x.ndim, second % x.ndim
    place = x.graph.arange(n)
    at = (place + max(-offset, 0)) * x.shape[b] + place + max(offset, 0)
    order = [a, b, *[i for i in range(x.ndim) if i not in (a, b)]]
    front = x.permute(order)
    return order, front.reshape(front.shape[0] * front.shape[1], *front.shape[2:]), at


@aten("diagonal")
def diagonal(c: Call, x: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    _, flat, at = _diagonal(x, c.shape[-1], offset, first, second)
    return flat.gather(at).permute([*range(1, flat.ndim), 0])


@aten("diagonal_scatter")
def diagonal_scatter(c: Call, x: Tensor, src: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Tensor:
    order, flat, at = _diagonal(x, src.shape[-1], offset, first, second)
    rows = c.tensor(src).permute([src.ndim - 1, *range(src.ndim - 1)])
    out = flat.scatter(at, rows, "set").reshape(*[x.shape[a] for a in order])
    return out.permute([order.index(a) for a in range(x.ndim)])


@aten("as_strided")
def as_strided(c: Call, x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Tensor:
    """By the strides that torch says the source has; its elements have no gaps between them."""
    meta = c.node.args[0].meta["val"]  # type: ignore[union-attr]
    order = sorted(range(x.ndim), key=lambda a: (-meta.stride(a), a))
    flat = x.permute(order).flatten() if x.ndim else x.reshape(1)
    order = sorted(range(len(size)), key=lambda a: (-stride[a], a))
    if not offset and math.prod(size) == x.size and _is_dense([size[a] for a in order], [stride[a] for a in order]):
        return flat.reshape(*[size[a] for a in order]).permute([order.index(a) for a in range(len(size))])
    place = c.graph.const(offset or 0, "i64").broadcast_to(tuple(size))
    for a, (n, step) in enumerate(zip(size, stride)):
        place = place + (c.graph.arange(n) * step).reshape([n if i == a else 1 for i in range(len(size))])
    return flat.gather(place)


def _is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    step = 1
    for n, s in zip(reversed(size), reversed(stride)):
        if n != 1 and s != step:
            return False
        step *= n
    return True


# --- indices ---


def _wrapped(index: Tensor, size: int) -> Tensor:
    return (index < 0).where(index + size, index) if index.dtype.kind == "signed" else index.cast("i64")


@aten("embedding")
def embedding(c: Call, table: Tensor, index: Tensor, *args: Any) -> Tensor:
    return table.gather(index)


@aten("index_select")
def index_select(c: Call, x: Tensor, axis: int, index: Tensor) -> Tensor:
    return _part(x, axis, index)


def _places(x: Tensor, indices: Sequence[Tensor | None]) -> tuple[list[int], Tensor, tuple[int, ...]]:
    """Axes that are indexed, in order; row numbers where they are one axis, in front; the index's shape."""
    used = [a for a, index in enumerate(indices) if index is not None]
    if any(indices[a].dtype.kind == "boolean" for a in used):  # type: ignore[union-attr]
        raise Unsupported("an index that is a mask, whose result has no fixed shape; use torch.where")
    flat: Tensor | None = None
    for a in used:
        index = _wrapped(indices[a].cast("i64"), x.shape[a])  # type: ignore[union-attr]
        flat = index if flat is None else flat * x.shape[a] + index
    assert flat is not None
    return used, flat, flat.shape


@aten("index")
def index_(c: Call, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    used, rows, shape = _places(x, indices)
    rest = [a for a in range(x.ndim) if a not in used]
    flat = x.permute([*used, *rest]).reshape(math.prod(x.shape[a] for a in used), *[x.shape[a] for a in rest])
    out = flat.gather(rows)
    n = len(shape)
    if used == list(range(used[0], used[0] + len(used))):  # neighbours: what they give takes their place
        before = used[0]
        return out.permute([*range(n, n + before), *range(n), *range(n + before, out.ndim)]) if before else out
    return out


@aten("index_put", "_unsafe_index_put")
def index_put(c: Call, x: Tensor, indices: Sequence[Tensor | None], values: Tensor,
              accumulate: bool = False) -> Tensor:
    used, rows, shape = _places(x, indices)
    rest = [a for a in range(x.ndim) if a not in used]
    order = [*used, *rest]
    front = x.permute(order)
    flat = front.reshape(math.prod(front.shape[:len(used)]), *front.shape[len(used):])
    before = used[0] if used == list(range(used[0], used[0] + len(used))) else 0
    sizes = [x.shape[a] for a in rest]
    src = c.tensor(values).broadcast_to((*sizes[:before], *shape, *sizes[before:]))
    if before:  # the index's axes to the front, as they are in `flat`
        n = len(shape)
        src = src.permute([*range(before, before + n), *range(before), *range(before + n, src.ndim)])
    out = flat.scatter(rows, src, "add" if accumulate else "set").reshape(*front.shape)
    return out.permute([order.index(a) for a in range(x.ndim)])


aten("_unsafe_index")(index_)


def _linear(x: Tensor, axis: int, index: Tensor) -> Tensor:
    """For each element of `index`, of which each place differs from its own along `axis` alone: its number in x."""
    index = index.cast("i64")
    total = index * math.prod(x.shape[axis + 1:])
    for a, size in enumerate(index.shape):
        if a != axis and size > 1:
            place = x.graph.arange(size) * math.prod(x.shape[a + 1:])
            total = total + place.reshape([size if i == a else 1 for i in range(index.ndim)])
    return total


@aten("gather")
def gather(c: Call, x: Tensor, axis: int, index: Tensor, **named: Any) -> Tensor:
    if not x.ndim:
        return x.broadcast_to(c.shape)
    return x.flatten().gather(_linear(x, axis % x.ndim, index))


_REDUCE = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul", "mean": "add"}


_NEUTRAL = {"add": 0, "mul": 1, "max": -math.inf, "min": math.inf}


@aten("scatter", "scatter_add", "scatter_reduce")
def scatter(c: Call, x: Tensor, axis: int, index: Tensor, src: Value, reduce: str | None = None,
            include_self: bool = True, **named: Any) -> Tensor:
    how = "add" if str(c.node.target).startswith("aten.scatter_add") else _REDUCE[reduce] if reduce else "set"
    if not x.ndim:
        x, index, src = x.reshape(1), index.reshape(1), src.reshape(1) if isinstance(src, Tensor) else src
    rows = c.tensor(src)
    rows = rows[tuple(slice(0, n) for n in index.shape)] if rows.ndim else rows.broadcast_to(index.shape)
    place = _linear(x, axis % x.ndim, index).flatten()
    flat = x.flatten()
    ones = c.tensor(1).broadcast_to(place.shape)
    hits = c.tensor(0).broadcast_to(flat.shape).contiguous().scatter(place, ones, "add")
    if not include_self:
        neutral = _NEUTRAL[how]
        if how in ("max", "min") and not x.dtype.is_float:
            raise Unsupported(f"{reduce} of integers without the tensor itself")
        flat = hits.ne(0).where(neutral, flat)
    out = flat.scatter(place, rows.flatten(), how)
    if reduce == "mean":
        count = (hits + 1 if include_self else hits).maximum(1)
        out = out / count if x.dtype.is_float else out // count
    return out.reshape(*c.shape)


# --- reductions ---


def _axes(x: Tensor, axes: Any) -> list[int]:
    if axes is None or axes == []:
        return list(range(x.ndim))
    return [axes] if isinstance(axes, int) else list(axes)


def _reduced(x: Tensor, how: str, axes: Any, keep: bool) -> Tensor:
    wide = x.cast("f32") if x.dtype.is_float and x.dtype.bits < 32 and how != "max" else x
    return wide.reduce(how, _axes(x, axes), keep).cast(x.dtype) if x.ndim else x


@aten("sum")
def sum_(c: Call, x: Tensor, axes: Any = None, keep: bool = False, **named: Any) -> Tensor:
    return _reduced(c.tensor(x), "add", axes, keep)


@aten("prod")
def prod(c: Call, x: Tensor, axes: Any = None, keep: bool = False, **named: Any) -> Tensor:
    return _reduced(c.tensor(x), "mul", axes, keep)


@aten("mean")
def mean(c: Call, x: Tensor, axes: Any = None, keep: bool = False, **named: Any) -> Tensor:
    total = _reduced(c.tensor(x), "add", axes, keep)
    count = math.prod(x.shape[a] for a in _axes(x, axes))
    return total / count


@aten("var")
def var(c: Call, x: Tensor, axes: Any = None, correction: float | None = 1, keepdim: bool = False) -> Tensor:
    correction = 1 if correction is None else correction
    if x.dtype.bits < 32:
        return x.cast("f32").var(_axes(x, axes), int(correction), keepdim).cast(x.dtype)
    return x.var(_axes(x, axes), int(correction), keepdim)


@aten("var_mean")
def var_mean(c: Call, x: Tensor, axes: Any = None, correction: float | None = 1,
             keepdim: bool = False) -> list[Tensor]:
    return [var(c, x, axes, correction, keepdim), mean(c, x, axes, keepdim)]


@aten("amax")
def amax(c: Call, x: Tensor, axes: Any = (), keep: bool = False) -> Tensor:
    return _reduced(x, "max", list(axes) if axes else None, keep)


@aten("amin")
def amin(c: Call, x: Tensor, axes: Any = (), keep: bool = False) -> Tensor:
    return x.min(_axes(x, list(axes) if axes else None), keep)


@aten("max")
def max_(c: Call, x: Tensor, axis: Any = None, keep: bool = False) -> Value:
    if isinstance(axis, Tensor):
        return x.maximum(axis)
    if axis is None:
        return x.max()
    return [x.max(axis, keep), x.argmax(axis, keep)]


@aten("min")
def min_(c: Call, x: Tensor, axis: Any = None, keep: bool = False) -> Value:
    if isinstance(axis, Tensor):
        return x.minimum(axis)
    if axis is None:
        return x.min()
    return [x.min(axis, keep), x.argmin(axis, keep)]


@aten("argmax")
def argmax(c: Call, x: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
    return x.argmax(axis, keep)


@aten("argmin")
def argmin(c: Call, x: Tensor, axis: int | None = None, keep: bool = False) -> Tensor:
    return x.argmin(axis, keep)


@aten("any")
def any_(c: Call, x: Tensor, axes: Any = None, keep: bool = False) -> Tensor:
    return _truth(x).any(_axes(x, axes), keep) if x.ndim else _truth(x)


@aten("all")
def all_(c: Call, x: Tensor, axes: Any = None, keep: bool = False) -> Tensor:
    return _truth(x).all(_axes(x, axes), keep) if x.ndim else _truth(x)


@aten("cumsum")
def cumsum(c: Call, x: Tensor, axis: int, **named: Any) -> Tensor:
    return c.tensor(x).cumsum(axis) if x.ndim else c.tensor(x)


@aten("cumprod")
def cumprod(c: Call, x: Tensor, axis: int, **named: Any) -> Tensor:
    """As Tensor.cumsum, with ones where the sum has zeros."""
    out = c.tensor(x)
    if not out.ndim:
        return out
    at, shift = axis % out.ndim, 1
    while shift < out.shape[at]:
        part = _part(out, at, slice(0, out.shape[at] - shift))
        out = out * pad(part, [(shift if i == at else 0, 0) for i in range(out.ndim)], 1)
        shift *= 2
    return out
