#!/usr/bin/env python3
"""What cuBLAS does, through PyTorch: bf16 matrix products of 4096 and 8192. A line for each, as gpu_bench
prints them: name, Tflop/s, unit, -, PyTorch's version. Exits 0 and says so where there is no PyTorch or no GPU.

Usage: torch_matmul.py
"""

import sys
import time

try:
    import torch
except ImportError:
    print("not measured: no PyTorch")
    sys.exit(0)

if not torch.cuda.is_available():
    print("not measured: PyTorch sees no GPU")
    sys.exit(0)

RUNS, ROUNDS = 10, 5
for n in (4096, 8192):
    # Values as gpu_bench's: multiplying zeros takes less power.
    values = (torch.arange(n * n, device="cuda") % 5 - 2).to(torch.bfloat16).reshape(n, n)
    best = float("inf")
    for round_number in range(ROUNDS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(RUNS):
            values @ values
        torch.cuda.synchronize()
        if round_number:
            best = min(best, (time.perf_counter() - start) / RUNS)
    print(f"matmul bf16 {n}\t{2 * n**3 / best / 1e12:.4g}\tTflop/s\t-\tPyTorch {torch.__version__}")
