"""Shapes, indexing, and writes to views."""
from tinygrad import Tensor, dtypes
from . import backward, bools, floats, forward, ints


def _x(*shape): return lambda: floats(*shape)
def _b(fn, *shapes): return backward(fn, *(_x(*s) for s in shapes))
def _index(*shape, high=4): return lambda: ints(*shape, low=0, high=high)


def _set(shape, write, dtype=dtypes.float32):
  """A realized tensor, then a write to a part of it."""
  def program():
    x = floats(*shape).cast(dtype).contiguous().realize()
    write(x)
    x.realize()
  return program


def _assign(fn):
  def program():
    x = floats(4, 3).contiguous().realize()
    fn(x).realize()
  return program


def _setter(key, value):
  def write(x): x[key] = value(x) if callable(value) else value
  return write


_S = slice
PROGRAMS = {
    "reshape": _b(lambda x: x.reshape(6, 4), (2, 3, 4)),
    "reshape_minus_one": _b(lambda x: x.reshape(3, -1).exp(), (2, 3, 4)),
    "expand": _b(lambda x: x.reshape(3, 1, 4).expand(3, 5, 4), (3, 4)),
    "expand_leading": _b(lambda x: x.expand(2, 3, 4) * 2, (3, 4)),
    "permute": _b(lambda x: x.permute(2, 0, 1).exp(), (2, 3, 4)),
    "transpose": _b(lambda x: x.transpose(0, 2).exp(), (2, 3, 4)),
    "transpose_matmul": _b(lambda x: x.T @ x, (4, 3)),
    "flip": _b(lambda x: x.flip((0, 2)).exp(), (2, 3, 4)),
    "shrink": _b(lambda x: x.shrink(((0, 2), (1, 3), None)).exp(), (2, 4, 3)),
    "pad": _b(lambda x: x.pad(((1, 2), (0, 1))).exp(), (3, 4)),
    "pad_value": _b(lambda x: x.pad((1, 2, 0, 1), value=3.5), (3, 4)),
    "pad_reflect": _b(lambda x: x.pad((1, 2, 2, 1), mode="reflect"), (1, 1, 4, 5)),
    "pad_replicate": _b(lambda x: x.pad((1, 2, 2, 1), mode="replicate"), (1, 1, 4, 5)),
    "pad_circular": _b(lambda x: x.pad((1, 2, 2, 1), mode="circular"), (1, 1, 4, 5)),
    "pad_negative": _b(lambda x: x.pad((-1, 2, 1, -1)), (4, 5)),
    "pad_to": forward(lambda x: x.pad_to((5, 6)), _x(3, 4)),
    "squeeze_unsqueeze": _b(lambda x: x.squeeze(1).unsqueeze(0).exp(), (3, 1, 4)),
    "flatten_unflatten": _b(lambda x: x.flatten(1).unflatten(1, (2, 6)).exp(), (2, 3, 4)),
    "rearrange": _b(lambda x: x.rearrange("b (h w) c -> b c h w", h=2).exp(), (2, 6, 3)),
    "split": _b(lambda x: tuple(p * (i + 1) for i, p in enumerate(x.split([1, 3, 2]))), (6, 3)),
    "chunk": _b(lambda x: tuple(p.exp() for p in x.chunk(3, dim=1)), (2, 7)),
    "cat": _b(lambda x, y, z: x.cat(y, z, dim=1).exp(), (2, 3), (2, 1), (2, 4)),
    "cat_equal": _b(lambda x, y: x.cat(y, dim=0).exp(), (2, 3), (2, 3)),
    "stack": _b(lambda x, y, z: Tensor.stack(x, y, z, dim=1).exp(), (2, 3), (2, 3), (2, 3)),
    "repeat": _b(lambda x: x.repeat(2, 3).exp(), (2, 3)),
    "repeat_interleave": _b(lambda x: x.repeat_interleave(3, dim=1).exp(), (2, 3)),
    "meshgrid": _b(lambda x, y: sum(x.meshgrid(y)), (3,), (4,)),
    "diag": _b(lambda x: x.diag().exp(), (4,)),
    "diagonal": _b(lambda x: x.diagonal().exp(), (4, 4)),
    "diagonal_offset": _b(lambda x: x.diagonal(offset=1).exp(), (4, 5)),
    "roll": _b(lambda x: x.roll(2, 1).exp(), (3, 5)),
    "roll_two": _b(lambda x: x.roll((1, -2), (0, 1)).exp(), (3, 5)),
    "unfold": _b(lambda x: x.unfold(1, 3, 2).exp(), (2, 8)),
    "tril": _b(lambda x: x.tril(), (4, 5)),
    "triu_diagonal": _b(lambda x: x.triu(diagonal=-1), (4, 5)),
    "one_hot": forward(lambda x: x.one_hot(4), _index(5)),
    "arange": forward(lambda: Tensor.arange(2, 11, 3).contiguous()),
    "arange_float": forward(lambda: Tensor.arange(0.5, 3, 0.25).contiguous()),
    "linspace": forward(lambda: Tensor.linspace(-1, 1, 7).contiguous()),
    "eye": forward(lambda: Tensor.eye(3, 5).contiguous()),
    "full_zeros_ones": forward(lambda: (Tensor.full((2, 3), 4.5).contiguous(), Tensor.zeros(3, dtype=dtypes.int32).contiguous(),
                                        Tensor.ones(2, 2, dtype=dtypes.bool).contiguous())),
    "index_int": _b(lambda x: x[1].exp(), (3, 4)),
    "index_slice": _b(lambda x: x[1:, ::2].exp(), (4, 7)),
    "index_negative_stride": _b(lambda x: x[::-1, 5:1:-2].exp(), (4, 7)),
    "index_none_ellipsis": _b(lambda x: x[..., None, 1].exp(), (2, 3, 4)),
    "index_tensor": backward(lambda x: x[Tensor([2, 0, 2])].exp(), _x(3, 4)),
    "index_two_tensors": backward(lambda x: x[Tensor([2, 0, 1]), Tensor([1, 1, 3])].exp(), _x(3, 4)),
    "index_tensor_and_slice": backward(lambda x: x[:, Tensor([[0, 3], [1, 1]]), 1:].exp(), _x(2, 4, 3)),
    "index_negative_tensor": forward(lambda x, i: x[i - 3], _x(3, 4), _index(4, high=6)),
    "index_list": forward(lambda x: x[[2, 1, 0, 0]], _x(3, 4)),
    "gather": backward(lambda x: x.gather(1, Tensor([[0, 2, 1], [3, 3, 0]])).exp(), _x(2, 4)),
    "gather_axis0": forward(lambda x, i: x.gather(0, i), _x(4, 3), _index(2, 3)),
    "scatter": forward(lambda x, i, y: x.scatter(1, i, y), _x(2, 4), lambda: Tensor([[0, 2, 1], [3, 1, 0]]), _x(2, 3)),
    "scatter_axis0": forward(lambda x, y: x.scatter(0, Tensor([[0, 1, 2], [2, 0, 1]]), y), _x(4, 3), _x(2, 3)),
    "scatter_value": forward(lambda x: x.scatter(1, Tensor([[0, 2], [3, 1]]), 7.0), _x(2, 4)),
    "scatter_add": forward(lambda x, i: x.scatter(1, i, 1.5, reduce="add"), _x(2, 4), _index(2, 3)),
    "scatter_multiply": forward(lambda x, i: x.scatter(1, i, 2.0, reduce="multiply"), _x(2, 4), _index(2, 3)),
    **{f"scatter_reduce_{r}": forward(lambda x, i, y, r=r: x.scatter_reduce(1, i, y, reduce=r), _x(2, 4), _index(2, 3), _x(2, 3))
       for r in ["sum", "prod", "mean", "amax", "amin"]},
    "scatter_reduce_exclude_self": forward(lambda x, i, y: x.scatter_reduce(1, i, y, reduce="sum", include_self=False),
                                           _x(2, 4), _index(2, 3), _x(2, 3)),
    "masked_select": lambda: floats(12).masked_select(bools(12)).realize(),
    "masked_select_size": forward(lambda x, m: x.masked_select(m, size=8, fill_value=-1), _x(3, 4), lambda: bools(3, 4)),
    "nonzero": lambda: bools(3, 4).nonzero().realize(),
    "nonzero_size": forward(lambda m: m.nonzero(size=6), lambda: bools(3, 4)),
    **{f"interpolate_{m}_{'up' if s > 4 else 'down'}": backward(lambda x, m=m, s=s: x.interpolate((s, s + 1), mode=m), _x(1, 2, 4, 5))
       for m in ["linear", "nearest", "nearest-exact"] for s in (3, 7)},
    "interpolate_align": backward(lambda x: x.interpolate((6, 7), mode="linear", align_corners=True), _x(1, 1, 4, 5)),
    "setitem_int": _set((4, 3), _setter(1, 5.0)),
    "setitem_slice": _set((4, 5), _setter((_S(1, 3), _S(None)), 2.5)),
    "setitem_stride": _set((4, 6), _setter((_S(None, None, 2), _S(1, None, 3)), -1.0)),
    "setitem_negative_stride": _set((5,), _setter(_S(None, None, -1), lambda x: Tensor([1.0, 2, 3, 4, 5]))),
    "setitem_tensor_value": _set((4, 3), _setter((_S(0, 2), _S(1, 3)), lambda x: Tensor([[1.0, 2], [3, 4]]))),
    "setitem_broadcast": _set((4, 3), _setter((_S(1, 3),), lambda x: Tensor([7.0, 8, 9]))),
    "setitem_self": _set((4, 4), _setter(_S(0, 2), lambda x: x[2:] * 2)),
    "setitem_overlap": _set((6,), _setter(_S(1, 6), lambda x: x[0:5] + 1)),
    "setitem_tensor_index": _set((4, 3), _setter(Tensor([0, 2]), 1.5)),
    "setitem_two_tensor_indices": _set((4, 3), _setter((Tensor([0, 2, 3]), Tensor([1, 1, 2])), lambda x: Tensor([1.0, 2, 3]))),
    "setitem_int_dtype": _set((4, 3), _setter((_S(None), 1), 9), dtypes.int32),
    "setitem_bool_mask": _set((4, 3), lambda x: x.assign((x > 0).where(0.0, x))),
    "setitem_twice": _set((4, 3), lambda x: (x.__setitem__(0, 1.0), x.__setitem__((_S(None), 2), lambda_value(x)))),
    "setitem_add": _set((4, 3), lambda x: x.__setitem__(1, x[1] + 3)),
    "setitem_loop": _set((4, 3), lambda x: [x.__setitem__(i, x[i - 1] * 0.5 + i) for i in range(1, 4)]),
    "setitem_new": lambda: new_and_set(),
    "assign": _assign(lambda x: x.assign(x * 2 + 1)),
    "assign_transposed": lambda: square().assign(square().T + 1).realize(),
    "assign_swap": lambda: swap(),
    "assign_slice": _assign(lambda x: x[1:3].assign(x[0:2] + 1)),
    "assign_diamond": lambda: diamond(),
    "assign_then_read": lambda: assign_then_read(),
    "assign_add_chain": _assign(lambda x: x.assign(x + 1).assign(x * 3)),
    "assign_permuted_target": lambda: permuted_target(),
    "clone": forward(lambda x: x.clone() + 1, _x(2, 3)),
    "zero_size": forward(lambda x: x[0:0].sum() + x.sum(), _x(3, 2)),
    "zero_size_cat": forward(lambda x: x[0:0].cat(x), _x(3, 2)),
}


def lambda_value(x): return x[:, 0] + 1


def square(): return floats(4, 4).contiguous().realize()


def new_and_set():
  x = Tensor.zeros(4, 3).contiguous()
  x[1:3, 0] = 4.0
  x[0] = x[1] + 2
  x.realize()


def swap():
  a, b = square(), square()
  a_before = a.clone().realize()
  a.assign(b + 0)
  b.assign(a_before + 1)
  Tensor.realize(a, b)


def diamond():
  a = square()
  before = a.sum()
  a.assign(a + 1)
  after = a.sum()
  (before.realize(), after.realize())


def assign_then_read():
  a = square()
  a.assign(a + 1)
  b = a * 2
  a.assign(a + b)
  Tensor.realize(a, b)


def permuted_target():
  a = floats(3, 4).contiguous().realize()
  a.permute(1, 0)[1:3].assign(floats(2, 3)).realize()
