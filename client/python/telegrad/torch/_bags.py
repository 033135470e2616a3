"""Sums, means and maxima of rows of an embedding, as operators that have graphs: rules for torch's decompositions.

Index i belongs to the last bag that begins at or before it, so that a bag that begins where the next one does is empty.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

_SUM, _MEAN, _MAX = 0, 1, 2


def _embedding_bag(weight, indices, offsets, scale_grad_by_freq=False, mode=_SUM, sparse=False, per_sample_weights=None,
                   include_last_offset=False, padding_idx=-1):
    """The bags, the bag of each index, the number of indices in each, and of a maximum the row that has it."""
    bags = offsets.shape[0] - int(include_last_offset)
    place = torch.arange(indices.shape[0], device=indices.device)
    bag = (offsets[:bags].unsqueeze(0) <= place.unsqueeze(1)).sum(1) - 1
    used = indices != padding_idx if padding_idx >= 0 else torch.ones_like(indices, dtype=torch.bool)
    count = torch.zeros(bags, dtype=indices.dtype).index_add(0, bag, used.to(indices.dtype))
    rows = weight[indices]
    if mode == _MAX:
        at = bag.unsqueeze(1).expand(rows.shape)
        lowest = torch.full((bags, weight.shape[1]), float("-inf"), dtype=weight.dtype)
        best = lowest.scatter_reduce(0, at, rows.masked_fill(~used.unsqueeze(1), float("-inf")), "amax")
        hit = (rows == best[bag]) & used.unsqueeze(1)
        last = indices.shape[0]
        first = torch.full(best.shape, last, dtype=torch.int64).scatter_reduce(
            0, at, torch.where(hit, place.unsqueeze(1), last), "amin")
        rows_of = torch.where(first < last, indices[first.clamp(max=last - 1)].to(torch.int64), 0).to(indices.dtype)
        return torch.where(count.unsqueeze(1) > 0, best, 0), bag, count, rows_of
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    out = torch.zeros((bags, weight.shape[1]), dtype=weight.dtype).index_add(0, bag, rows.masked_fill(~used.unsqueeze(1), 0))
    if mode == _MEAN:
        out = out / count.clamp(min=1).unsqueeze(1)
    return out, bag, count, count


def _backward(grad, indices, bag, count, rows_of, num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx=-1):
    out = torch.zeros((num_weights, grad.shape[1]), dtype=grad.dtype)
    if mode == _MAX:
        return out.scatter_add(0, rows_of.to(torch.int64), torch.where(count.unsqueeze(1) > 0, grad, 0))
    if mode == _MEAN:
        grad = grad / count.clamp(min=1).unsqueeze(1)
    rows = grad[bag]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if padding_idx >= 0:
        rows = rows.masked_fill((indices == padding_idx).unsqueeze(1), 0)
    if scale_grad_by_freq:
        often = torch.zeros(num_weights, dtype=grad.dtype).index_add(0, indices, torch.ones_like(indices, dtype=grad.dtype))
        rows = rows / often[indices].unsqueeze(1)
    return out.index_add(0, indices, rows)


def _any_backward(grad, indices, offsets, bag, count, rows_of, num_weights, scale_grad_by_freq, mode, sparse, per_sample_weights,
                  padding_idx=-1):
    return _backward(grad, indices, bag, count, rows_of, num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx)


def _weights_backward(grad, weight, indices, offsets, bag, mode, padding_idx=-1):
    out = (grad[bag] * weight[indices]).sum(1)
    return out.masked_fill(indices == padding_idx, 0) if padding_idx >= 0 else out


def _index_reduce(x, axis, index, source, reduce, include_self=True):
    """Rows of an axis, by a list of numbers, as elements."""
    place = index.reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)]).expand(source.shape)
    return x.scatter_reduce(axis, place, source, reduce, include_self=include_self)


def rules() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {aten._embedding_bag.default: _embedding_bag, aten._embedding_bag_forward_only.default: _embedding_bag,
            aten.index_reduce.default: _index_reduce, aten._embedding_bag_backward.default: _any_backward, aten._embedding_bag_dense_backward.default: _backward,
            aten._embedding_bag_per_sample_weights_backward.default: _weights_backward}
