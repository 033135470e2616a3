"""What the backward pass computes again: scores of attention, which are products with more elements than their operands.

torch's partitioner saves results of products and of reductions. The weights of an attention, queries times keys, would then be
in memory between the passes. The server computes scores a few rows at a time where it needs them, so the backward pass gets
queries, keys, values and the maxima and sums of the rows instead. Random numbers are never computed again: the masks of dropout in
a region of torch.utils.checkpoint are saved.
"""

from __future__ import annotations

import operator
from typing import Any, Sequence

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch.utils.checkpoint import CheckpointPolicy

_ATEN = torch.ops.aten
_PRODUCTS = {_ATEN.bmm.default, _ATEN.mm.default}
_VIEWS = {_ATEN.view.default, _ATEN._unsafe_view.default, _ATEN.reshape.default, _ATEN.expand.default, _ATEN.permute.default,
          _ATEN.transpose.int, _ATEN.unsqueeze.default, _ATEN.squeeze.dim, _ATEN.squeeze.dims, _ATEN.clone.default,
          _ATEN.detach.default, _ATEN.alias.default, _ATEN._to_copy.default, torch.ops.prims.convert_element_type.default}
_MAXIMA = {_ATEN.amax.default, _ATEN.max.dim}


def partition(joint: torch.fx.GraphModule, inputs: Any, **options: Any) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """A forward and a backward graph of what AOTAutograd has traced."""
    for node in _again(joint.graph):
        node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    for node in joint.graph.nodes:
        if _is_random(node) and "recompute" in node.meta:
            # In a checkpointed region, where torch would have its random state saved and set back around the operator.
            for drawn in (node, *(user for user in node.users if user.target is operator.getitem)):
                drawn.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return min_cut_rematerialization_partition(joint, inputs, **options)


def _elements(node: torch.fx.Node) -> int:
    """Of a size that changes, those of the traced call: what is computed again is a choice, and no guard is to depend on it."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0
    elements = value.numel()
    if isinstance(elements, int):
        return elements
    return int(elements.node.hint) if elements.node.has_hint() else 0


def _is_random(node: torch.fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _is_scores(node: torch.fx.Node) -> bool:
    return node.target in _PRODUCTS and all(_elements(node) > _elements(factor) for factor in node.all_input_nodes)


def _keeps_elements(node: torch.fx.Node, source: torch.fx.Node) -> bool:
    """Whether it is computed from a value element by element."""
    pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    return (pointwise or node.target in _VIEWS) and _elements(node) == _elements(source)


def _again(graph: torch.fx.Graph) -> Sequence[torch.fx.Node]:
    """Scores of which maxima are taken, what is computed from them element by element, and what is computed from nothing, such as a
    mask of positions, as far as the backward pass needs it."""
    backward: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if (node.op == "placeholder" and "tangents" in node.name) or any(source in backward for source in node.all_input_nodes):
            backward.add(node)
    forward = [node for node in graph.nodes if node.op == "call_function" and node not in backward]
    scores: dict[torch.fx.Node, torch.fx.Node] = {}  # and the product that they are computed from
    softened = set()
    constant: set[torch.fx.Node] = set()
    for node in forward:
        if not _is_random(node) and all(source in constant for source in node.all_input_nodes):
            constant.add(node)
        if _is_scores(node):
            scores[node] = node
            continue
        for source in node.all_input_nodes:
            if source in scores and _keeps_elements(node, source):
                scores[node] = scores[source]
            elif source in scores and node.target in _MAXIMA:
                softened.add(scores[source])
    needed: list[torch.fx.Node] = []
    for node in reversed(forward):
        again = node in constant or scores.get(node) in softened
        if again and any(user in backward or user in needed for user in node.users):
            needed.append(node)
    return needed
