#!/usr/bin/env python3
"""Ten steps of each optimizer, learning rates and clipped gradients, as data for optim_test.cc.

Writes optim.safetensors. "params/i" are the parameters before, "grads/i" the gradients [step, ...], "CASE/i" the
parameters [step, ...] after each step: PyTorch's in f64 where it has the optimizer, tinygrad's in f32 for LARS, LAMB
and Muon. Muon leaves out the vector. "rate/CASE" are the learning rates of PyTorch's schedulers.

Run with DEV=PYTHON for tinygrad.

Usage: optim_vectors.py OUTPUT
"""

import sys
import warnings

import numpy as np
import torch
from safetensors.numpy import save
from tinygrad import Context, Tensor
from tinygrad.nn import optim

STEPS = 10
SHAPES = [(4, 6), (5,), (6, 3, 2)]
RNG = np.random.default_rng(5)
PARAMS = [RNG.normal(size=s) for s in SHAPES]
PARAMS[1][:] = 0  # as biases begin
GRADS = [RNG.normal(size=(STEPS, *s)) * np.linspace(1.5, 0.1, STEPS).reshape(-1, *[1] * len(s)) for s in SHAPES]
GRADS[1][:2] = 0

TORCH = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1),
    "sgd_decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p),
    "adam_decay": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p),
    "adamw_decay": lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.95, 0.98), weight_decay=0.3),
}

TINYGRAD = {
    "lars": lambda p: optim.LARS(p, lr=0.1),
    "lars_nesterov": lambda p: optim.LARS(p, lr=0.2, momentum=0.8, weight_decay=0.01, nesterov=True, classic=False,
                                          tcoef=0.1),
    "lars_plain": lambda p: optim.LARS(p, lr=0.2, momentum=0, weight_decay=0, tcoef=0.02),
    "lamb": lambda p: optim.LAMB(p),
    "lamb_decay": lambda p: optim.LAMB(p, lr=0.01, b1=0.8, b2=0.95, eps=1e-5, weight_decay=0.1),
    "muon": lambda p: optim.Muon(p, lr=0.02),
    "muon_plain": lambda p: optim.Muon(p, lr=0.05, momentum=0, weight_decay=0, nesterov=False),
    "muon_heavy": lambda p: optim.Muon(p, lr=0.05, momentum=0.8, weight_decay=0.3, ns_steps=3, nesterov=False,
                                       ns_coefficients=(2.0, -1.5, 0.5)),
}

RATE_STEPS = 24
RATES = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 5, 0.3),
    "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, RATE_STEPS, eta_min=0.01),
    "warm_up": lambda o: torch.optim.lr_scheduler.SequentialLR(o, [
        torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=6),
        torch.optim.lr_scheduler.CosineAnnealingLR(o, RATE_STEPS - 6)], [6]),
    "one_cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=RATE_STEPS),
    "one_cycle_linear": lambda o: torch.optim.lr_scheduler.OneCycleLR(
        o, 0.5, total_steps=RATE_STEPS, pct_start=0.5, anneal_strategy="linear", div_factor=10, final_div_factor=100),
}


def torch_steps(make):
    params = [torch.tensor(p, requires_grad=True) for p in PARAMS]
    optimizer = make(params)
    after = []
    for step in range(STEPS):
        for p, g in zip(params, GRADS):
            p.grad = torch.tensor(g[step])
        optimizer.step()
        after.append([p.detach().numpy().copy() for p in params])
    return [np.stack([a[i] for a in after]) for i in range(len(params))]


def tinygrad_steps(make, keep):
    params = {i: Tensor(PARAMS[i].astype(np.float32)).clone().is_param_(True) for i in keep}
    optimizer = make(list(params.values()))
    after = []
    for step in range(STEPS):
        for i, p in params.items():
            p.grad = Tensor(GRADS[i][step].astype(np.float32))
        with Context(TRAINING=1):
            optimizer.step()
        after.append({i: p.numpy().copy() for i, p in params.items()})
    return {i: np.stack([a[i] for a in after]) for i in keep}


def rates(make):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    scheduler = make(optimizer)
    out = []
    for _ in range(RATE_STEPS):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return np.array(out)


def clipped(clip):
    params = [torch.tensor(p, requires_grad=True) for p in PARAMS]
    for p, g in zip(params, GRADS):
        p.grad = torch.tensor(g[0])
    clip(params)
    return [p.grad.numpy() for p in params]


def main():
    warnings.simplefilter("ignore")
    out = {}
    for i, (p, g) in enumerate(zip(PARAMS, GRADS)):
        out[f"params/{i}"], out[f"grads/{i}"] = p, g
    for name, make in TORCH.items():
        for i, values in enumerate(torch_steps(make)):
            out[f"{name}/{i}"] = values
    for name, make in TINYGRAD.items():
        for i, values in tinygrad_steps(make, [0, 2] if name.startswith("muon") else [0, 1, 2]).items():
            out[f"{name}/{i}"] = values
    for name, make in RATES.items():
        out[f"rate/{name}"] = rates(make)
    for name, clip in {
        "by_norm": lambda p: torch.nn.utils.clip_grad_norm_(p, 1.5),
        "by_large_norm": lambda p: torch.nn.utils.clip_grad_norm_(p, 1e3),
        "by_value": lambda p: torch.nn.utils.clip_grad_value_(p, 0.4),
    }.items():
        for i, values in enumerate(clipped(clip)):
            out[f"clip/{name}/{i}"] = values
    with open(sys.argv[1], "wb") as f:
        f.write(save({k: np.ascontiguousarray(v) for k, v in out.items()}))


if __name__ == "__main__":
    main()
