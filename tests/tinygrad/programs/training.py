"""Layers, losses, optimizers and small training steps of tinygrad.nn."""
import numpy as np
from tinygrad import Context, Tensor, dtypes, nn
from . import backward, floats, ints, scalar_loss


def _b(fn, *shapes): return backward(fn, *(lambda s=s: floats(*s) for s in shapes))
def _positive(*shape): return lambda: floats(*shape, low=0.1, high=0.9)
def _classes(n, k): return ints(n, low=0, high=k)


def _layer(make, *shape, training=False):
  """A new layer's initialization in one graph; then its forward pass and all gradients in another."""
  def program():
    layer = make()
    parameters = nn.state.get_parameters(layer)
    Tensor.realize(*parameters)
    x = floats(*shape)
    with Context(TRAINING=int(training)):
      loss = scalar_loss(layer(x))
      wanted = [p for p in parameters if p.is_param and p.is_floating_point()] if training else parameters
      Tensor.realize(loss, *loss.gradient(x), *loss.gradient(*[p for p in wanted if _reaches(loss, p)]))
  return program


def _reaches(loss, p): return p.uop in loss.uop.backward_slice


def _step(make, steps=2, dtype=dtypes.float32):
  """Steps of an optimizer on a small linear model; each is one graph, except where the second has the same."""
  def program():
    w, b = floats(3, 2).cast(dtype).contiguous().realize(), floats(2).cast(dtype).contiguous().realize()
    optimizer = make([w.is_param_(), b.is_param_()])
    with Context(TRAINING=1):
      for _ in range(steps):
        optimizer.zero_grad()
        (floats(4, 3).cast(dtype) @ w + b).square().mean().backward()
        optimizer.step()
  return program


class Mnist:
  """The convolutional network of tinygrad's MNIST example, smaller."""
  def __init__(self):
    self.layers = [nn.Conv2d(1, 2, 3), Tensor.relu, nn.BatchNorm(2), Tensor.max_pool2d, nn.Conv2d(2, 3, 2), Tensor.relu,
                   lambda x: x.flatten(1), nn.Linear(12, 4)]
  def __call__(self, x): return x.sequential(self.layers)


def mnist_step():
  model = Mnist()
  Tensor.realize(*nn.state.get_parameters(model))
  optimizer = nn.optim.Adam([p for p in nn.state.get_parameters(model) if p.is_floating_point()])
  with Context(TRAINING=1):
    for _ in range(2):
      optimizer.zero_grad()
      loss = model(floats(2, 1, 8, 8)).sparse_categorical_crossentropy(_classes(2, 4)).backward()
      Tensor.realize(loss, *optimizer.schedule_step())


def mnist_evaluate():
  model = Mnist()
  (model(floats(2, 1, 8, 8)).argmax(axis=1) == _classes(2, 4)).mean().realize()


def residual_step():
  """A residual block with group norm, trained by SGD."""
  c1, c2, norm = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.GroupNorm(2, 2)
  parameters = nn.state.get_parameters([c1, c2, norm])
  Tensor.realize(*parameters)
  optimizer = nn.optim.SGD(parameters, momentum=0.9, nesterov=True, weight_decay=1e-3)
  with Context(TRAINING=1):
    x = floats(1, 2, 4, 4)
    (norm(c2(c1(x).silu())) + x).relu().mean().backward()
    optimizer.step()


def accumulate_gradients():
  w = floats(3, 2).contiguous().realize().is_param_()
  for _ in range(2): (floats(4, 3) @ w).square().mean().backward()
  w.grad.realize()


_OPTIMIZERS = {
    "sgd": lambda p: nn.optim.SGD(p, lr=0.1), "sgd_momentum": lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd_nesterov": lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd_classic": lambda p: nn.optim.SGD(p, lr=0.1, momentum=0.9, classic=True), "adam": nn.optim.Adam, "adamw": nn.optim.AdamW,
    "lamb": nn.optim.LAMB, "lars": lambda p: nn.optim.LARS(p, lr=0.1),
    "muon": lambda p: nn.optim.Muon(p[:1], ns_steps=2), "adam_fused": lambda p: nn.optim.Adam(p, fused=True),
    "group": lambda p: nn.optim.OptimizerGroup(nn.optim.SGD(p[:1]), nn.optim.Adam(p[1:]))}

PROGRAMS = {
    "linear": _layer(lambda: nn.Linear(4, 3), 2, 4),
    "linear_no_bias": _layer(lambda: nn.Linear(4, 3, bias=False), 2, 4),
    "conv1d": _layer(lambda: nn.Conv1d(2, 3, 2), 1, 2, 5),
    "conv2d": _layer(lambda: nn.Conv2d(2, 3, 3, padding=1), 1, 2, 4, 4),
    "conv2d_same": _layer(lambda: nn.Conv2d(1, 2, 3, padding="same"), 1, 1, 4, 4),
    "conv_transpose1d": _layer(lambda: nn.ConvTranspose1d(2, 2, 2, stride=2), 1, 2, 4),
    "conv_transpose2d": _layer(lambda: nn.ConvTranspose2d(2, 2, 2), 1, 2, 3, 3),
    "batchnorm": _layer(lambda: nn.BatchNorm(3), 2, 3, 4),
    "batchnorm_training": _layer(lambda: nn.BatchNorm(3), 2, 3, 2, 2, training=True),
    "batchnorm_not_affine": _layer(lambda: nn.BatchNorm(3, affine=False), 4, 3, training=True),
    "groupnorm": _layer(lambda: nn.GroupNorm(2, 4), 1, 4, 3),
    "instancenorm": _layer(lambda: nn.InstanceNorm(3), 2, 3, 4),
    "layernorm": _layer(lambda: nn.LayerNorm(5), 3, 5),
    "layernorm2d": _layer(lambda: nn.LayerNorm2d(3), 1, 3, 2, 2),
    "rmsnorm": _layer(lambda: nn.RMSNorm(5), 3, 5),
    "embedding": lambda: embedding(),
    "lstm_cell": lambda: lstm_cell(),
    "conv_bn_relu": _layer(lambda: lambda_chain(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm(2), Tensor.relu), 2, 1, 4, 4, training=True),
    "mlp": _layer(lambda: lambda_chain(nn.Linear(4, 8), Tensor.gelu, nn.Linear(8, 2)), 3, 4),
    "binary_crossentropy": backward(lambda x: x.binary_crossentropy((x > 0.5).float()), _positive(3, 2)),
    "binary_crossentropy_logits": _b(lambda x: x.binary_crossentropy_logits((x > 0).float()), (3, 2)),
    "binary_crossentropy_weighted": _b(lambda x: x.binary_crossentropy_logits((x > 0).float(), pos_weight=Tensor([2.0, 3])), (3, 2)),
    "cross_entropy": backward(lambda x: x.cross_entropy(Tensor([0, 2, 1])), lambda: floats(3, 4)),
    "cross_entropy_smooth": backward(lambda x: x.cross_entropy(Tensor([0, 2, 1]), label_smoothing=0.1, reduction="sum"), lambda: floats(3, 4)),
    "cross_entropy_probabilities": backward(lambda x, y: x.cross_entropy(y.softmax(), reduction="none"), lambda: floats(3, 4), lambda: floats(3, 4)),
    "sparse_crossentropy": backward(lambda x: x.sparse_categorical_crossentropy(Tensor([0, 2, -1]), label_smoothing=0.2), lambda: floats(3, 4)),
    "nll_loss": backward(lambda x: x.log_softmax().nll_loss(Tensor([0, 2, 1]), weight=Tensor([1.0, 2, 3, 4])), lambda: floats(3, 4)),
    **{f"step_{name}": _step(make) for name, make in _OPTIMIZERS.items()},
    "step_adam_half": _step(nn.optim.Adam, dtype=dtypes.half),
    "mnist_step": mnist_step,
    "mnist_evaluate": mnist_evaluate,
    "residual_step": residual_step,
    "accumulate_gradients": accumulate_gradients,
}


class lambda_chain:
  """Layers one after another, as something whose parameters tinygrad finds."""
  def __init__(self, *layers): self.layers = list(layers)
  def __call__(self, x): return x.sequential(self.layers)


def embedding():
  layer = nn.Embedding(6, 3)
  layer.weight.realize()
  loss = layer(Tensor([[1, 5, 2], [0, 1, 1]])).square().mean()
  Tensor.realize(loss, *loss.gradient(layer.weight))


def lstm_cell():
  cell = nn.LSTMCell(3, 2)
  Tensor.realize(*nn.state.get_parameters(cell))
  h, c = cell(floats(2, 3))
  h, c = cell(floats(2, 3), (h, c))
  Tensor.realize(h, c)
