"""FlexAttention as products, a softmax and what the model's functions compute of scores, whose gradients torch derives.

torch keeps flex_attention as one operator with two graphs in it. Spelled out, it is an attention like others to the server, which
computes scores a few rows at a time where it needs them. A mask of blocks says only where a kernel may skip; the function of the
mask decides.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.flex_attention import math_attention


def _spelled(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Any, block_mask: Any, scale: float, options: Any,
             score_buffers: Any = (), mask_buffers: Any = ()) -> Any:
    return math_attention(query, key, value, score_mod, block_mask, scale, options, score_buffers, mask_buffers)


def spell_attention(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Replaces FlexAttention in a graph that torch has traced."""
    found = [node for node in module.graph.nodes if node.target is torch.ops.higher_order.flex_attention]
    for node in found:
        node.target = _spelled
    if found:
        module.recompile()
    return module
