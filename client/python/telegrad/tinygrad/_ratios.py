"""x / (1 + x) as 1 - 1 / (1 + x), which tinygrad's codegen makes of it too.

The gradients of sigmoid and tanh have products of this kind. Where x is infinite, and the rewritten form 1, they would
be infinity times zero. A product is looked at as its factors, with 1 / (a a) as (1 / a)(1 / a); a factor that is a sum
with 1 / (1 + x) is distributed over: x (1 / (1 + x) + y) is 1 - 1 / (1 + x) + x y.
"""

import functools
import operator

from tinygrad.dtype import dtypes
from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat, graph_rewrite

_MOST = 16  # factors of a product that is looked at


def without_ratios(root: UOp) -> UOp:
  return graph_rewrite(root, _RULES, name="ratios")


def _product(u: UOp) -> UOp | None:
  if not dtypes.is_float(u.dtype): return None
  factors = _factors(u)
  if factors is None: return None
  if ones := [f for f in factors if _is_one(f)]: return _times(_without(factors, *ones) or ones[:1])
  for r in factors:
    x = _partner(r)
    if x is None or not any(f is x for f in factors): continue
    return _times([*_without(factors, x, r), r.const_like(1) - r])
  for s in factors:
    if s.op is not Ops.ADD: continue
    for r, y in (s.src, s.src[::-1]):
      x = _partner(r)
      if x is None or x is s or not any(f is x for f in factors): continue
      return _times([*_without(factors, x, s), r.const_like(1) - r + x * y])
  return None


def _factors(u: UOp) -> list[UOp] | None:
  """None: there are too many, or no 1 / (1 + x) is among them."""
  out, inner = [], [u]
  while inner:
    f = inner.pop()
    if len(out) + len(inner) > _MOST: return None
    if f.op is Ops.MUL and f.dtype is u.dtype: inner.extend(f.src)
    elif f.op is Ops.RECIPROCAL and f.src[0].op is Ops.MUL: inner.extend(s.reciprocal() for s in f.src[0].src)
    else: out.append(f)
  parts = [r for f in out for r in ((f,) if f.op is not Ops.ADD else f.src)]
  return out if any(_partner(r) is not None for r in parts) else None


def _partner(r: UOp) -> UOp | None:
  """x, if `r` is 1 / (1 + x)."""
  if r.op is not Ops.RECIPROCAL or r.src[0].op is not Ops.ADD: return None
  a, b = r.src[0].src
  x = b if _is_one(a) else a if _is_one(b) else None
  return x if x is not None and x.shape == r.shape else None


def _without(factors: list[UOp], *gone: UOp) -> list[UOp]:
  left = list(factors)
  for g in gone: left.pop(next(i for i, f in enumerate(left) if f is g))
  return left


def _times(factors: list[UOp]) -> UOp: return functools.reduce(operator.mul, factors)


def _is_one(u: UOp) -> bool:
  while u.op in (Ops.RESHAPE, Ops.EXPAND, Ops.CAST): u = u.src[0]
  return u.op is Ops.CONST and not u.is_invalid and u.val == 1


_RULES = PatternMatcher([(UPat(Ops.MUL, name="u"), _product)])
