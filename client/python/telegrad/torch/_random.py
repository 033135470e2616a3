"""Random numbers, drawn by torch in this process: those of eager, after the same torch.manual_seed.

An operator that draws becomes an input of the graph, filled before each run by the operator itself, in the order in
which eager would draw. What it draws may depend on shapes and numbers, not on the values of tensors.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

from telegrad import Tensor
from telegrad.torch._order import topk
from telegrad.torch._table import Call, Unsupported, aten


def _stand_in(value: Any, real: Callable[[Any], Any]) -> Any:
    """For a tensor whose values do not matter: one of its shape, strides and type. Sizes are those of the call."""
    if isinstance(value, (list, tuple)):
        return [_stand_in(v, real) for v in value]
    if not isinstance(value, torch.fx.Node):
        return value
    meta = value.meta["val"]
    if not isinstance(meta, torch.Tensor):
        return real(meta)
    return torch.empty_strided(real(tuple(meta.shape)), real(meta.stride()), dtype=meta.dtype)


@aten("rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "normal_functional", "uniform",
      "bernoulli", "exponential")
def draw(c: Call, *args: Any, **named: Any) -> Tensor:
    target, given = c.node.target, c.node.args
    if str(target).startswith("aten.bernoulli") and len(given) < 2:
        return _bernoulli_of(c, args[0])
    if any(isinstance(a, torch.fx.Node) and isinstance(a.meta["val"], torch.Tensor) for a in given[1:]):
        raise Unsupported("a distribution whose parameters are tensors")
    options = c.node.kwargs
    return c.drawn(lambda real: target(*_stand_in(given, real), **{k: _stand_in(v, real) for k, v in options.items()}))


def _bernoulli_of(c: Call, p: Tensor) -> Tensor:
    """1 with the probability of each element: of eager's distribution, with other numbers than eager's."""
    meta = c.results[0]
    return (c.drawn(lambda real: torch.rand(real(tuple(meta.shape)), dtype=meta.dtype)) < p).cast(c.dtype)


@aten("multinomial")
def multinomial(c: Call, p: Tensor, count: int, replacement: bool = False, **named: Any) -> Tensor:
    """As eager does where nothing is taken twice: what has the largest ratio to an exponential number of its own."""
    if replacement and count > 1:
        raise Unsupported("draws whose number depends on values: several, of which each may be taken again")
    meta = c.node.args[0].meta["val"]  # type: ignore[union-attr]
    ratio = p / c.drawn(lambda real: torch.empty(real(tuple(meta.shape)), dtype=meta.dtype).exponential_(), meta)
    return ratio.argmax(-1, True) if count == 1 else topk(c, ratio, count)[1]


@aten("native_dropout")
def native_dropout(c: Call, x: Tensor, p: float, train: bool | None = True) -> Sequence[Tensor]:
    kept = c.results[1]
    if train is False or p in (0, 1):  # eager draws nothing
        keeps = train is False or p == 0
        return [x if keeps else c.full(0), c.graph.const(keeps, "bool").broadcast_to(x.shape)]
    mask = c.drawn(lambda real: torch.empty(real(tuple(kept.shape)), dtype=torch.bool).bernoulli_(1 - p), kept)
    return [x * mask.cast(x.dtype) * (1 / (1 - p)), mask]
