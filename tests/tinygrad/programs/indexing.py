"""Masked reductions that stand for ranges, reads at computed places and writes to them: everything that tinygrad says with
a comparison against an arange. Sizes and indices: rows that are named twice, never, from the end, and out of range."""
from tinygrad import Tensor, dtypes, nn
from . import backward, bools, floats, forward, ints


def _x(*shape): return lambda: floats(*shape)
def _at(*shape, n): return lambda: ints(*shape, low=-n - 2, high=n + 2)
def _in(*shape, n): return lambda: ints(*shape, low=0, high=n)


def _set(shape, write, *make):
  """A realized tensor, then a write to the rows that a tensor names."""
  def program():
    x = floats(*shape).contiguous().realize()
    write(x, *(m() for m in make))
    x.realize()
  return program


def _embedding(vocabulary, width, *shape):
  def program():
    layer = nn.Embedding(vocabulary, width)
    layer.weight.realize()
    loss = layer(ints(*shape, low=0, high=vocabulary)).square().mean()
    Tensor.realize(loss, *loss.gradient(layer.weight))
  return program


def _ones(*shape): return Tensor.full(shape, 1.0, buffer=False)


PROGRAMS = {
    "arange": forward(lambda x: x + Tensor.arange(37), lambda: ints(37)),
    "arange_wide": forward(lambda x: x + Tensor.arange(2**33, 2**33 + 5 * 23, 5), lambda: ints(23, dtype=dtypes.int64)),
    "arange_down": forward(lambda x: x * Tensor.arange(20, -15, -3), lambda: ints(12)),
    "arange_bytes": forward(lambda x: x + Tensor.arange(3, 40, 2, dtype=dtypes.uint8), lambda: ints(19, low=0, dtype=dtypes.uint8)),
    "arange_half": forward(lambda x: x + Tensor.arange(0, 9, 0.5), lambda: floats(18)),
    "arange_one": forward(lambda x: x + Tensor.arange(1), lambda: ints(3)),
    "arange_in_sum": forward(lambda x: (x * Tensor.arange(19)).sum(), _x(19)),
    "arange_grid": forward(lambda x: x + Tensor.arange(6).reshape(6, 1) * 7 + Tensor.arange(7), lambda: ints(6, 7)),
    "cumulative_ones": forward(lambda x: x * _ones(5, 9).cumsum(1), _x(5, 9)),
    "linspace": forward(lambda x: x * Tensor.linspace(2, 5, 33), _x(33)),
    "eye": forward(lambda x: x + Tensor.eye(12, 17), _x(12, 17)),
    "eye_matmul": forward(lambda x: Tensor.eye(12) @ x, _x(12, 5)),
    "triangle_sum": forward(lambda x: x * _ones(11, 13).tril().sum(1), _x(11)),
    "triangle_of_rows": forward(lambda x: x.reshape(11, 1).expand(11, 13).triu(2).sum(1), _x(11)),
    "sum_of_expanded": forward(lambda x: x.reshape(11, 1).expand(11, 13).sum(1), _x(11)),
    "one_hot": forward(lambda i: i.one_hot(20), _in(5, 4, n=20)),
    "one_hot_sum": forward(lambda i: i.one_hot(20).sum(0), _in(50, n=20)),
    "rows": forward(lambda x, i: x[i], _x(20, 3), _at(12, n=20)),
    "rows_vector": forward(lambda x, i: x[i], _x(40), _at(3, 5, n=40)),
    "rows_long_index": forward(lambda x, i: x[i.cast(dtypes.int64)], _x(20, 3), _at(12, n=20)),
    "rows_byte_index": forward(lambda x, i: x[i.cast(dtypes.uint8)], _x(20, 3), _in(12, n=20)),
    "rows_of_view": forward(lambda x, i: x.T.flip(0)[i] * 2, _x(3, 20), _at(12, n=20)),
    "rows_of_padded": forward(lambda x, i: x.pad(((3, 4), (1, 0)))[i], _x(13, 3), _at(12, n=20)),
    "rows_of_sum": forward(lambda x, y, i: (x + y)[i], _x(20, 3), _x(20, 3), _at(12, n=20)),
    "rows_of_reduction": forward(lambda x, i: x.sum(2)[i], _x(20, 3, 4), _at(12, n=20)),
    "rows_integer": forward(lambda x, i: x[i], lambda: ints(20, 3), _at(12, n=20)),
    "rows_half": forward(lambda x, i: x[i], lambda: floats(20, 3, dtype=dtypes.float16), _at(12, n=20)),
    "rows_bool": forward(lambda x, i: x[i], lambda: bools(20, 3), _at(12, n=20)),
    "rows_twice": forward(lambda x, i, j: x[i][j], _x(20, 3), _at(12, n=20), _at(9, n=12)),
    "columns": forward(lambda x, i: x[:, i], _x(4, 20), _at(12, n=20)),
    "columns_of_rows": forward(lambda x, i: x[1:, i, ::2], _x(4, 20, 6), _at(3, 4, n=20)),
    "points": forward(lambda x, i, j: x[i, j], _x(9, 8), _at(12, n=9), _at(12, n=8)),
    "points_apart": forward(lambda x, i, j: x[i, :, j], _x(9, 3, 8), _at(12, n=9), _at(12, n=8)),
    "points_grid": forward(lambda x, i, j: x[i.reshape(5, 1), :, j], _x(9, 3, 8), _at(5, n=9), _at(4, n=8)),
    "rows_arange": forward(lambda x: x[Tensor.arange(3, 17, 2)], _x(20, 3)),
    "diagonal_by_arange": forward(lambda x: x[Tensor.arange(9), Tensor.arange(9)], _x(9, 9)),
    "gather": forward(lambda x, i: x.gather(1, i), _x(4, 20), _in(4, 30, n=20)),
    "gather_first": forward(lambda x, i: x.gather(0, i), _x(20, 4, 3), _in(30, 4, 3, n=20)),
    "gather_part": forward(lambda x, i: x.gather(2, i), _x(4, 5, 20), _in(3, 2, 9, n=20)),
    "take": forward(lambda x, i: x.gather(-1, i.unsqueeze(-1)).squeeze(-1), _x(30, 20), _in(30, n=20)),
    "rows_gradient": backward(lambda x: x[Tensor([2, 0, 2, 13, 7, 19, 7, 7, 1, -1])].exp(), _x(20, 3)),
    "gather_gradient": backward(lambda x: x.gather(1, Tensor([[0, 2, 1, 9, 9, 0, 4, 11, 3]] * 3)).exp(), _x(3, 12)),
    "points_gradient": backward(lambda x: x[Tensor([2, 0, 2, 8, 7, 2, 7, 7, 1]), Tensor([1, 0, 1, 4, 4, 3, 2, 4, -1])].exp(), _x(9, 5)),
    "points_apart_gradient": backward(lambda x: x[Tensor([2, 0, 2, 8, 7, 2, 7, 7, 1]), :, Tensor([1, 0, 1, 4, 4, 3, 2, 4, -1])].exp(),
                                      _x(9, 2, 5)),
    "embedding": _embedding(30, 4, 3, 7),
    "scatter": forward(lambda x, i, y: x.scatter(1, i, y), _x(4, 20), _in(4, 11, n=20), _x(4, 11)),
    "scatter_first": forward(lambda x, i, y: x.scatter(0, i, y), _x(20, 4), _in(11, 4, n=20), _x(11, 4)),
    "scatter_value": forward(lambda x, i: x.scatter(1, i, 7.0), _x(4, 20), _in(4, 11, n=20)),
    "scatter_add": forward(lambda x, i: x.scatter(1, i, 1.5, reduce="add"), _x(4, 20), _in(4, 11, n=20)),
    **{f"scatter_{r}": forward(lambda x, i, y, r=r: x.scatter_reduce(0, i, y, reduce=r), _x(20, 4), _in(33, 4, n=20), _x(33, 4))
       for r in ["sum", "prod", "mean", "amax", "amin"]},
    **{f"scatter_{r}_alone": forward(lambda x, i, y, r=r: x.scatter_reduce(1, i, y, reduce=r, include_self=False),
                                     _x(4, 20), _in(3, 33, n=20), _x(4, 33)) for r in ["sum", "mean", "amax"]},
    "count": forward(lambda i: Tensor.zeros(20, dtype=dtypes.int32).scatter(0, i, 1, reduce="add"), _in(99, n=20)),
    "set_rows": _set((20, 3), lambda x, i, v: x.__setitem__(i, v), _in(11, n=20), _x(11, 3)),
    "set_rows_constant": _set((20, 3), lambda x, i: x.__setitem__(i, 1.5), _at(11, n=20)),
    "set_columns": _set((3, 20), lambda x, i, v: x.__setitem__((slice(None), i), v), _in(11, n=20), _x(3, 11)),
    "set_points": _set((20, 8), lambda x, i, j, v: x.__setitem__((i, j), v), _in(11, n=20), _in(11, n=8), _x(11)),
    "set_points_grid": _set((20, 8), lambda x, i, j, v: x.__setitem__((i.reshape(4, 1), j), v), _in(4, n=20), _in(3, n=8), _x(4, 3)),
    "set_mask": _set((20, 3), lambda x, m: x.assign(m.where(0.25, x)), lambda: bools(20, 3)),
    "add_rows": _set((20, 3), lambda x, i, v: x.__setitem__(i, x[i] + v), _in(11, n=20), _x(11, 3)),
    "update_cache": _set((2, 30, 3), lambda x, v: x.__setitem__((slice(None), slice(5, 9)), v), _x(2, 4, 3)),
    "sparse_crossentropy": backward(lambda x: x.sparse_categorical_crossentropy(Tensor([0, 2, -1, 9, 11])), _x(5, 12)),
    "crossentropy": forward(lambda x: x.cross_entropy(Tensor([0, 2, 10, 9, 11])), _x(5, 12)),
    "nll": forward(lambda x: x.log_softmax().nll_loss(Tensor([0, 2, 10, 9, 11])), _x(5, 12)),
    "argmax": forward(lambda x: x.argmax(1), _x(5, 21)),
    "top": forward(lambda x: x.topk(3), _x(4, 9)),
    "sort_gather": forward(lambda x: x.gather(1, x.argsort(1)), _x(4, 9)),
    "nonzero": forward(lambda m: m.nonzero(size=6), lambda: bools(5, 4)),
    "masked_select": forward(lambda x, m: x.masked_select(m, size=9, fill_value=-1), _x(20), lambda: bools(20)),
    "unpool": forward(lambda x: Tensor.max_unpool2d(*x.max_pool2d(2, return_indices=True), output_size=(6, 8)), _x(1, 2, 6, 8)),
    "triangles": forward(lambda x: (x.tril(1), x.triu(-2)), _x(6, 7)),
}
