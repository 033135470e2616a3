"""What lives longer than a graph: caches, functions, bound variables, the JIT, several devices, small language models."""
from tinygrad import Context, Tensor, TinyJit, UOp, Variable, dtypes, nn
from tinygrad.function import function
from . import floats, ints

_TWO, _FOUR = tuple(f"CPU:{i}" for i in range(2)), tuple(f"CPU:{i}" for i in range(4))


# --- functions ---

@function
def _affine(x, w, b): return (x @ w + b).relu()


@function
def _pair(x, y): return x + y, (x * y).sum(axis=1)


@function(precompile=True)
def _compiled(x, w): return (x @ w).softmax()


@function(precompile=True, precompile_backward=True)
def _compiled_both(x, w): return (x @ w).tanh()


def _function_twice():
  w = floats(3, 3).contiguous().realize()
  _affine(_affine(floats(2, 3), w, floats(3)), w, floats(3)).realize()


def _function_nested():
  @function
  def outer(x, w): return _affine(x, w, w[0]) + 1
  outer(floats(2, 3), floats(3, 3)).realize()


def _function_backward(fn, *more):
  def program():
    x, w = floats(2, 3), floats(3, 3).contiguous().realize()
    loss = fn(x, w, *(floats(s) for s in more)).square().mean()
    Tensor.realize(loss, *loss.gradient(x, w))
  return program


def _function_layers():
  class Block:
    def __init__(self): self.up, self.down = nn.Linear(3, 5), nn.Linear(5, 3)
    @function
    def __call__(self, x): return x + self.down(self.up(x).gelu())
  blocks = [Block() for _ in range(3)]
  Tensor.realize(*nn.state.get_parameters(blocks))
  x = floats(2, 3)
  for block in blocks: x = block(x)
  x.realize()


# --- variables ---

def _symbolic(fn, *values, high=8):
  """fn of a bound variable, for several values: one graph."""
  def program():
    v = Variable("n", 1, high)
    x = floats(high, 3).contiguous().realize()
    for value in values: fn(x, v.bind(value)).realize()
  return program


def _two_variables():
  i, j = Variable("i", 1, 6).bind(4), Variable("j", 1, 5).bind(3)
  a, b = floats(6, 5).contiguous().realize(), floats(6, 5).contiguous().realize()
  (a[:i, :j] + b[:i, :j]).sum(axis=0).realize()


def _variable_as_value():
  v = Variable("n", 1, 10).bind(6)
  (floats(3) + Tensor(v) * 2).realize()


def _write_at_variable():
  cache = Tensor.zeros(8, 3).contiguous().realize()
  for position in (2, 5):
    v = Variable("position", 0, 7).bind(position)
    cache[v:v + 1].assign(floats(1, 3)).realize()


class _Cache:
  """Attention over a key-value cache that grows by one row a step."""
  def __init__(self, heads=2, length=6, dim=4):
    self.keys = Tensor.zeros(1, heads, length, dim).contiguous().realize()
    self.values = Tensor.zeros(1, heads, length, dim).contiguous().realize()
    self.length = length

  def __call__(self, q, k, v, start):
    self.keys[:, :, start:start + 1].assign(k).realize()
    self.values[:, :, start:start + 1].assign(v).realize()
    keys, values = self.keys[:, :, 0:start + 1], self.values[:, :, 0:start + 1]
    return q.scaled_dot_product_attention(keys, values)


def _cached_attention():
  cache, v = _Cache(), Variable("start", 0, 5)
  for step in (0, 1, 4):
    cache(floats(1, 2, 1, 4), floats(1, 2, 1, 4), floats(1, 2, 1, 4), v.bind(step)).realize()


def _cached_attention_one_graph():
  keys, start = Tensor.zeros(1, 2, 6, 4).contiguous().realize(), Variable("start", 0, 5).bind(3)
  stored = Tensor(keys.uop.after(keys[:, :, start:start + 1].uop.store(floats(1, 2, 1, 4).uop)))
  floats(1, 2, 1, 4).scaled_dot_product_attention(stored[:, :, 0:start + 1], stored[:, :, 0:start + 1]).realize()


class Gpt:
  """One block of a decoder over tokens, with a tied head."""
  def __init__(self, vocabulary=7, dim=4, heads=2):
    self.heads = heads
    self.tokens, self.places = nn.Embedding(vocabulary, dim), nn.Embedding(5, dim)
    self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
    self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
    self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

  def __call__(self, tokens):
    b, n = tokens.shape
    x = self.tokens(tokens) + self.places(Tensor.arange(n))
    q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).chunk(3)
    attended = q[0].scaled_dot_product_attention(k[0], v[0], is_causal=True)
    x = x + self.out(attended.transpose(1, 2).reshape(b, n, -1))
    x = x + self.down(self.up(self.norm2(x)).gelu())
    return x @ self.tokens.weight.T


def _gpt_forward():
  Gpt()(ints(1, 4, low=0, high=7)).realize()


def _gpt_step():
  model = Gpt()
  parameters = nn.state.get_parameters(model)
  Tensor.realize(*parameters)
  optimizer = nn.optim.SGD(parameters, lr=0.1)  # not Adam, which would blow the rounding errors of zero gradients up
  with Context(TRAINING=1):
    model(ints(1, 4, low=0, high=7)).sparse_categorical_crossentropy(ints(1, 4, low=0, high=7)).backward()
    optimizer.step()


def _rotary():
  x = floats(1, 2, 3, 4)
  angle = Tensor.arange(3).unsqueeze(1) * (10000 ** (-Tensor.arange(0, 4, 2) / 4)).unsqueeze(0)
  a, b = x[..., 0::2], x[..., 1::2]
  Tensor.stack(a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos(), dim=-1).flatten(3).realize()


# --- the JIT: its first call runs what it will replay ---

def _jit():
  weight = floats(3, 3).contiguous().realize()
  step = TinyJit(lambda x: (x @ weight).relu().realize())
  for _ in range(4): step(floats(2, 3).contiguous().realize())


def _jit_state():
  total = Tensor.zeros(3).contiguous().realize()
  step = TinyJit(lambda x: total.assign(total * 0.9 + x.sum(axis=0)).realize())
  for _ in range(3): step(floats(2, 3).contiguous().realize())


# --- devices ---

def _sharded(fn, devices=_TWO, axis=0, shape=(4, 6)):
  def program(): fn(floats(*shape).contiguous().realize().shard(devices, axis)).realize()
  return program


def _sharded_matmul(x_axis, w_axis, devices=_TWO):
  def program():
    x = floats(4, 4).contiguous().realize().shard(devices, x_axis)
    w = floats(4, 4).contiguous().realize().shard(devices, w_axis)
    (x @ w).realize()
  return program


def _data_parallel(devices):
  def program():
    w = floats(3, 2).contiguous().realize().shard(devices, None).realize().is_param_()
    x = floats(4, 3).contiguous().realize().shard(devices, 0).realize()
    optimizer = nn.optim.SGD([w], lr=0.1)
    with Context(TRAINING=1):
      (x @ w).square().mean().backward()
      optimizer.step()
  return program


def _tensor_parallel():
  up = floats(3, 4).contiguous().realize().shard(_TWO, 1).realize()
  down = floats(4, 3).contiguous().realize().shard(_TWO, 0).realize()
  x = floats(2, 3).contiguous().realize().shard(_TWO, None).realize()
  ((x @ up).relu() @ down).realize()


def _sharded_state():
  x = floats(4, 3).contiguous().realize().shard(_TWO, 0).realize()
  x.assign(x * 2 + 1).realize()


def _random_sharded():
  Tensor.rand(4, 2).shard(_TWO, 0).realize()


PROGRAMS = {
    "function": lambda: _affine(floats(2, 3), floats(3, 4), floats(4)).realize(),
    "function_twice": _function_twice,
    "function_nested": _function_nested,
    "function_tuple": lambda: Tensor.realize(*_pair(floats(2, 3), floats(2, 3))),
    "function_backward": _function_backward(_affine, 3),
    "function_precompiled": lambda: _compiled(floats(2, 3), floats(3, 4)).realize(),
    "function_precompiled_backward": _function_backward(_compiled_both),
    "function_layers": _function_layers,
    "symbolic_slice": _symbolic(lambda x, n: x[:n].sum(axis=0), 3, 8),
    "symbolic_elementwise": _symbolic(lambda x, n: (x[:n] * 2 + 1).sum(axis=1).sum(), 5),
    "symbolic_max": _symbolic(lambda x, n: x[:n].max(axis=0), 4),
    "symbolic_mean": _symbolic(lambda x, n: x[:n].mean(axis=0), 4),
    "symbolic_matmul": _symbolic(lambda x, n: x[:n].T @ x[:n], 6),
    "symbolic_reshape": _symbolic(lambda x, n: (x[:n].reshape(n, 3, 1) + 1).sum(axis=0), 2),
    "symbolic_expand": _symbolic(lambda x, n: (x[0].reshape(1, 3).expand(n, 3) * x[:n]).sum(axis=0), 5),
    "symbolic_offset": _symbolic(lambda x, n: x[n - 1:n] + 1, 4),
    "symbolic_tail": _symbolic(lambda x, n: x[n:].sum(axis=0), 4),
    "symbolic_softmax": _symbolic(lambda x, n: x[:n].softmax(axis=0).sum(axis=1).sum(), 4),
    "symbolic_pad": _symbolic(lambda x, n: x[:n].pad(((0, 8 - n), None)) + 1, 5),
    "symbolic_cat": _symbolic(lambda x, n: x[:n].cat(x[:2]).sum(axis=0), 3),
    "symbolic_two": _two_variables,
    "symbolic_value": _variable_as_value,
    "symbolic_write": _write_at_variable,
    "cached_attention": _cached_attention,
    "cached_attention_one_graph": _cached_attention_one_graph,
    "gpt_forward": _gpt_forward,
    "gpt_step": _gpt_step,
    "rotary": _rotary,
    "jit": _jit,
    "jit_state": _jit_state,
    "callify": lambda: (floats(3) + 1).callify().realize(),
    "to_device": lambda: (floats(3, 2).contiguous().realize().to("CPU:1") * 2).realize(),
    "to_device_and_back": lambda: ((floats(3).to("CPU:1") * 2).to("CPU") + 1).realize(),
    "shard_add": _sharded(lambda x: x + 1),
    "shard_four": _sharded(lambda x: x * x, _FOUR),
    "shard_axis1": _sharded(lambda x: x.exp2(), axis=1),
    "shard_replicated": _sharded(lambda x: x + 1, axis=None),
    "shard_sum": _sharded(lambda x: x.sum()),
    "shard_sum_axis0": _sharded(lambda x: x.sum(axis=0), _FOUR),
    "shard_sum_axis1": _sharded(lambda x: x.sum(axis=1)),
    "shard_max": _sharded(lambda x: x.max(axis=0)),
    "shard_softmax": _sharded(lambda x: x.softmax(axis=0)),
    "shard_reshape": _sharded(lambda x: x.reshape(2, 2, 3, 2).permute(1, 0, 2, 3) + 1),
    "shard_transpose": _sharded(lambda x: x.T.contiguous()),
    "shard_gathered": _sharded(lambda x: (x * 2).to("CPU")),
    "shard_slice": _sharded(lambda x: x[0:2] + 1),
    "shard_pad": _sharded(lambda x: x.pad((None, (1, 1)))),
    "shard_cat": _sharded(lambda x: x.cat(x, dim=1)),
    "shard_resharded": lambda: resharded(),
    **{f"shard_matmul_{a}_{b}": _sharded_matmul(a, b) for a in (0, 1, None) for b in (0, 1, None) if (a, b) != (None, None)},
    "shard_data_parallel": _data_parallel(_TWO),
    "shard_data_parallel_four": _data_parallel(_FOUR),
    "shard_tensor_parallel": _tensor_parallel,
    "shard_assign": _sharded_state,
    "shard_random": _random_sharded,
    "shard_layernorm": _sharded(lambda x: x.layernorm()),
}


def resharded():
  x = floats(4, 4).contiguous().realize().shard(_TWO, 0)
  y = floats(4, 4).contiguous().realize().shard(_TWO, 1)
  (x + y).realize()
