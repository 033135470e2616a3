"""A step of training whose parameters, gradients and optimizer state stay on the server."""

from __future__ import annotations

from typing import Any, Callable

import torch

from telegrad.torch._kept import fetch


def training_step(loss_of: Callable[..., torch.Tensor], model: torch.nn.Module,
                  optimizer: torch.optim.Optimizer) -> Callable[..., torch.Tensor]:
    """A function that does a step of training on the server and gives its loss, a tensor without a gradient.

    `loss_of` computes the loss, a scalar, from the arguments of the step by `model`, whose parameters `optimizer` updates. Both are
    compiled with the option "resident". `model.state_dict()`, `optimizer.state_dict()` and loading these bring what they need
    here; what else reads parameters outside of compiled parts has to be preceded by `fetch`, and says so.
    """
    options = {"resident": True}
    forward = torch.compile(loss_of, backend="telegrad", options=options)
    update = torch.compile(lambda: optimizer.step(), backend="telegrad", options=options)
    for group in optimizer.param_groups:  # a number would be a part of the program, which a schedule would have compiled each time
        if group.get("fused"):
            raise ValueError("an optimizer with fused=True, which torch does not compile; make it without")
        if isinstance(group.get("lr"), float) and not group.get("foreach"):
            group["lr"] = torch.tensor(group["lr"])
    model.register_state_dict_pre_hook(lambda module, prefix, keep_vars: fetch(module))
    model.register_load_state_dict_pre_hook(lambda module, *rest: fetch(module))
    optimizer.register_state_dict_pre_hook(fetch)

    def step(*args: Any, **kwargs: Any) -> torch.Tensor:
        model.zero_grad()
        optimizer.zero_grad()
        loss = forward(*args, **kwargs)
        loss.backward()
        update()
        return loss.detach()

    return step
