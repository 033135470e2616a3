#!/usr/bin/env python3
"""What PyTorch does on a GPU: bf16 matrix products of 4096 and 8192 by cuBLAS, and attention of 4 x 16 heads, 2048
positions and 128 channels by its FlashAttention. A line for each, as gpu_bench prints them: name, Tflop/s, unit, -,
PyTorch's version. Exits 0 and says so where there is no PyTorch or no GPU.

Usage: torch_peers.py
"""

import sys
import time

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    print("not measured: no PyTorch with torch.nn.attention")
    sys.exit(0)

if not torch.cuda.is_available():
    print("not measured: PyTorch sees no GPU")
    sys.exit(0)

RUNS, ROUNDS = 10, 5


def values(*shape):
    """As gpu_bench's: multiplying zeros takes less power."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, device="cuda") % 5 - 2).to(torch.bfloat16).reshape(shape)


def report(name, flops, run):
    best = float("inf")
    for round_number in range(ROUNDS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(RUNS):
            run()
        torch.cuda.synchronize()
        if round_number:
            best = min(best, (time.perf_counter() - start) / RUNS)
    print(f"{name}\t{flops / best / 1e12:.4g}\tTflop/s\t-\tPyTorch {torch.__version__}", flush=True)


for n in (4096, 8192):
    x = values(n, n)
    report(f"matmul bf16 {n}", 2 * n**3, lambda: x @ x)

BATCH, HEADS, POSITIONS, CHANNELS = 4, 16, 2048, 128
x = values(BATCH, HEADS, POSITIONS, CHANNELS)
for causal in (False, True):
    flops = 4 * BATCH * HEADS * POSITIONS**2 * CHANNELS * (0.5 if causal else 1)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        report(f"attention bf16 {POSITIONS}{' causal' if causal else ''}", flops,
               lambda: torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=causal))
