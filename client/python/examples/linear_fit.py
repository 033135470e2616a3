#!/usr/bin/env python3
"""Fits y = a x + b to points by gradient descent on the server, where a and b stay between steps.

Usage: linear_fit.py [ADDRESS]
"""

import sys

import numpy as np

import telegrad

STEPS = 300


def training_step(points: int, rate: float) -> telegrad.Graph:
    """One step: the loss goes out, a and b change in place."""
    g = telegrad.Graph()
    x, y = g.input("x", (points,)), g.input("y", (points,))
    a, b = g.state("a", ()), g.state("b", ())
    error = x * a + b - y
    g.output("loss", (error * error).mean())
    g.store(a, a - rate * 2 * (error * x).mean())
    g.store(b, b - rate * 2 * error.mean())
    return g


def main() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, 1000).astype(np.float32)
    y = 3 * x - 2 + rng.normal(0, 0.1, 1000).astype(np.float32)

    address = sys.argv[1] if len(sys.argv) > 1 else None
    with telegrad.connect(address) as connection, connection.session() as session:
        step = session.put(training_step(len(x), rate=0.1))
        print(f"loss {step(x=x, y=y)['loss']:.4f}")
        for _ in range(STEPS):
            step.launch()  # sent, not waited for
        print(f"loss {step()['loss']:.4f}")
        print(f"y = {step.read('a'):.3f} x + {step.read('b'):.3f}")


if __name__ == "__main__":
    main()
