"""Windows of an axis out of movement operations alone, and the convolutions and pools made of them.

An axis of size i is repeated until k rows of length i + d fit into it. Row k then starts d elements later
than row k - 1, so element (k, p) is x[k d + p], and keeping every s-th of the first o s elements of each row leaves
x[k d + o s]. The transpose gives the elements of each row k zeros between them, so that they are s apart; rows
of length r + d read as rows of length r shift row k by k d, and their sum is what each position got.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

from telegrad import Tensor
from telegrad._size import largest


class Axis(NamedTuple):
    size: int  # of the input
    before: int
    after: int
    kernel: int
    stride: int
    dilation: int

    @property
    def padded(self) -> int:
        return self.size + self.before + self.after

    @property
    def extent(self) -> int:
        return (self.kernel - 1) * self.dilation + 1

    @property
    def count(self) -> int:
        """Windows."""
        return (self.padded - self.extent) // self.stride + 1


def axes_of(sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
            dilation: Sequence[int], ceil: bool = False) -> list[Axis]:
    """One Axis for each of the sizes; lists of one number mean it for all."""
    n = len(sizes)

    def each(values: Sequence[int], otherwise: Sequence[int]) -> list[int]:
        values = list(values) or list(otherwise)
        return values * n if len(values) == 1 else values

    kernel = each(kernel, [1])
    axes = []
    for size, k, s, p, d in zip(sizes, kernel, each(stride, kernel), each(padding, [0]),
                                each(dilation, [1])):
        axis = Axis(size, p, p, k, s, d)
        if ceil:  # a last window that begins in the input or the padding before it, and ends beyond
            count = -((axis.extent - axis.padded) // s) + 1
            if (count - 1) * s >= size + p:
                count -= 1
            axis = axis._replace(after=max(p, (count - 1) * s + axis.extent - size - p))
        axes.append(axis)
    return axes


def pad(x: Tensor, widths: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    """A negative width cuts off."""
    part = tuple(slice(max(-a, 0), size - max(-b, 0)) for size, (a, b) in zip(x.shape, widths))
    x = x[part]
    widths = [(max(a, 0), max(b, 0)) for a, b in widths]
    if not any(a or b for a, b in widths):
        return x
    out = x.pad(widths)
    if value == 0:
        return out
    inside = x.graph.const(True, "bool").broadcast_to(x.shape).pad(widths)
    return inside.where(out, value)


def windows(x: Tensor, axes: Sequence[Axis], value: float = 0.0) -> Tensor:
    """[..., in...] -> [..., out..., kernel...]"""
    n, lead = len(axes), x.ndim - len(axes)
    x = pad(x, [(0, 0)] * lead + [(a.before, a.after) for a in axes], value)
    for i, a in enumerate(axes):
        x = _windows(x, lead + 2 * i, a)  # [.., kernel, out, ..]
    order = [*range(lead), *[lead + 2 * i + 1 for i in range(n)], *[lead + 2 * i for i in range(n)]]
    return x.permute(order)


def _windows(x: Tensor, at: int, a: Axis) -> Tensor:
    head, tail = x.shape[:at], x.shape[at + 1:]
    none = (slice(None),) * at

    def cut(t: Tensor, size: int) -> Tensor:
        return t[none + (slice(0, size),)]

    fold = -(-largest(a.padded, a.count * a.stride - a.dilation) // a.padded)
    row = a.padded * fold + a.dilation
    repeats = -(-a.kernel * row // a.padded)
    t = x.reshape(*head, 1, a.padded, *tail).broadcast_to((*head, repeats, a.padded, *tail))
    t = cut(t.reshape(*head, repeats * a.padded, *tail), a.kernel * row)
    t = t.reshape(*head, a.kernel, row, *tail)[none + (slice(None), slice(0, a.count * a.stride))]
    t = t.reshape(*head, a.kernel, a.count, a.stride, *tail)
    t = t[none + (slice(None), slice(None), slice(0, 1))]
    return t.reshape(*head, a.kernel, a.count, *tail)


def sum_windows(x: Tensor, axes: Sequence[Axis]) -> Tensor:
    """[..., out..., kernel...] -> [..., in...]: what each element got from the windows that it is in."""
    n = len(axes)
    lead = x.ndim - 2 * n
    for i, a in enumerate(axes):  # the first axes of out... and of kernel... become one, which goes last
        kernel_at = lead + n - i
        order = [*range(lead), *[d for d in range(lead, x.ndim) if d not in (lead, kernel_at)],
                 kernel_at, lead]
        # [.., the rest, kernel, out] -> [.., the rest, in]; the rest is out.., kernel.., in..
        x = _sum_windows(x.permute(order), a)
    return x


def _sum_windows(x: Tensor, a: Axis) -> Tensor:
    head = x.shape[:-2]
    spread = pad(x.unsqueeze(-1), [(0, 0)] * (len(head) + 2) + [(0, a.stride - 1)])
    length = largest(a.padded, (a.kernel - 1) * a.dilation + a.count * a.stride)
    flat = spread.reshape(*head, a.kernel, a.count * a.stride)
    flat = pad(flat, [(0, 0)] * (len(head) + 1) + [(0, length + a.dilation - a.count * a.stride)])
    flat = flat.reshape(*head, a.kernel * (length + a.dilation))[..., :a.kernel * length]
    total = flat.reshape(*head, a.kernel, length).sum(-2)
    return total[..., a.before:a.before + a.size]


def conv(x: Tensor, w: Tensor, axes: Sequence[Axis], groups: int) -> Tensor:
    """x [N, C, in...], w [O, C / groups, kernel...] -> [N, O, out...]"""
    n, g = len(axes), groups
    out, in_group = [a.count for a in axes], x.shape[1] // g
    patches = _grouped(x, axes, g)
    weights = w.reshape(1, g, w.shape[0] // g, *[1] * n, in_group, *w.shape[2:])
    total = _product(patches, weights, list(range(-n - 1, 0)))
    return total.reshape(x.shape[0], w.shape[0], *out)


def _grouped(x: Tensor, axes: Sequence[Axis], groups: int) -> Tensor:
    """[N, groups, 1, out..., C / groups, kernel...]"""
    n = len(axes)
    t = windows(x, axes)
    t = t.reshape(x.shape[0], groups, 1, x.shape[1] // groups, *t.shape[2:])
    order = [0, 1, 2, *range(4, 4 + n), 3, *range(4 + n, 4 + 2 * n)]
    return t.permute(order)


def conv_to_weight(x: Tensor, y: Tensor, axes: Sequence[Axis], groups: int) -> Tensor:
    """The weight's gradient for y, the output's: [O, C / groups, kernel...]"""
    n, o = len(axes), y.shape[1]
    values = y.reshape(y.shape[0], groups, o // groups, *y.shape[2:], *[1] * (n + 1))
    total = _product(_grouped(x, axes, groups), values, [0, *range(3, 3 + n)])
    return total.reshape(o, x.shape[1] // groups, *[a.kernel for a in axes])


def conv_to_input(y: Tensor, w: Tensor, axes: Sequence[Axis], groups: int) -> Tensor:
    """The input's gradient for y [N, O, out...]; also a transposed convolution: [N, C, in...]"""
    n, g, o, c = len(axes), groups, w.shape[0], w.shape[1]
    if all(a.stride == 1 for a in axes):  # a convolution of y by the flipped weight
        back = [Axis(a.count, a.extent - 1 - a.before, a.size - a.count + a.before, a.kernel, 1, a.dilation)
                for a in axes]
        flipped = w.reshape(g, o // g, c, *w.shape[2:]).transpose(1, 2).flip(*range(3, 3 + n))
        return conv(y, flipped.reshape(g * c, o // g, *w.shape[2:]), back, g)
    values = y.reshape(y.shape[0], g, o // g, *y.shape[2:])
    values = values.permute([0, 1, *range(3, 3 + n), 2])
    values = values.reshape(y.shape[0], g, 1, *y.shape[2:], *[1] * n, o // g)
    weights = w.reshape(g, o // g, c, *w.shape[2:]).permute([0, 2, *range(3, 3 + n), 1])
    weights = weights.reshape(1, g, c, *[1] * n, *w.shape[2:], o // g)
    total = _product(values, weights, [-1])
    return sum_windows(total.reshape(y.shape[0], g * c, *y.shape[2:], *w.shape[2:]), axes)


def _product(a: Tensor, b: Tensor, axes: Sequence[int]) -> Tensor:
    """Products summed over axes; those of 16 bits in f32."""
    narrow = a.dtype.bits < 32
    if narrow:
        return (a.cast("f32") * b.cast("f32")).sum(axes).cast(a.dtype)
    return (a * b).sum(axes)
