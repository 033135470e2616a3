#!/usr/bin/env python3
"""Measures tinygrad on Telegrad beside tinygrad's own CPU device, in alternating turns on the same cores.

Rows, each with its goal:
  mnist         a training step with Adam under TinyJit (convolutions of tinygrad's MNIST example with random images in batches of
                512), and the first step with all compilation
  gpt           the same of a GPT of 4 layers of 128 channels with 4 heads, on 16 texts of 64 characters, with SGD: Adam's step
                of it is refused by tinygrad 0.14's scheduler ("cycle detected in assign graph"), on its own devices
  replay        processor time of this process for a captured step whose value nobody reads, above that of the device NULL
  realize       the second realize of an equal graph, against the CPU device

Every device gets its own process and makes the same random numbers; losses are compared. Needs tinygrad; the CPU device a
C compiler ($CC, or clang). Exits 0 and says so where tinygrad is not installed, 1 where a goal is not met.

Usage: tinygrad_peer.py [--telegradd PROGRAM] [--pairs N] [ROW...]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import support

try:
    import telegrad.tinygrad  # noqa: F401
    import tinygrad  # noqa: F401
except ImportError as error:
    print(f"not measured: {error}; pip install tinygrad")
    sys.exit(0)

ROWS = ["mnist", "gpt", "replay", "realize"]
STEPS = {"mnist": 8, "gpt": 8}
GOALS = {"mnist": 4.0, "gpt": 13.0, "first": 10.0, "replay": 150.0, "realize": 1.2}


def mnist():
    from tinygrad import Tensor, nn

    layers = [nn.Conv2d(1, 32, 5), Tensor.relu, nn.Conv2d(32, 32, 5), Tensor.relu, nn.BatchNorm(32), Tensor.max_pool2d,
              nn.Conv2d(32, 64, 3), Tensor.relu, nn.Conv2d(64, 64, 3), Tensor.relu, nn.BatchNorm(64), Tensor.max_pool2d,
              lambda x: x.flatten(1), nn.Linear(576, 10)]
    images, labels = Tensor.rand(512, 1, 28, 28).realize(), Tensor.randint(512, high=10).realize()
    return nn.state.get_parameters(layers), lambda: images.sequential(layers).sparse_categorical_crossentropy(labels)


def gpt(layers=4, width=128, heads=4, batch=16, length=64, characters=65):
    from tinygrad import Tensor, nn

    class Block:
        def __init__(self):
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def __call__(self, x):
            q, k, v = (t.reshape(batch, length, heads, width // heads).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
            y = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
            x = x + self.out(y)
            return x + self.down(self.up(self.norm2(x)).gelu())

    tokens, places = nn.Embedding(characters, width), nn.Embedding(length, width)
    blocks, norm, head = [Block() for _ in range(layers)], nn.LayerNorm(width), nn.Linear(width, characters)
    text, following = (Tensor.randint(batch, length, high=characters).realize() for _ in range(2))

    def loss():
        x = tokens(text) + places(Tensor.arange(length))
        for block in blocks:
            x = block(x)
        return head(norm(x)).sparse_categorical_crossentropy(following)

    return nn.state.get_parameters([tokens, places, blocks, norm, head]), loss


def train(make, steps, kind="Adam", rate=1e-3):
    """Losses, and the seconds of the first step and of one of the replayed ones."""
    from tinygrad import Tensor, TinyJit, nn
    from tinygrad.helpers import Context

    Tensor.manual_seed(1)
    parameters, loss = make()
    optimizer = getattr(nn.optim, kind)(parameters, lr=rate)
    Tensor.realize(*parameters)

    def step():
        with Context(TRAINING=1):
            optimizer.zero_grad()
            value = loss().backward()
            return value.realize(*optimizer.schedule_step())

    losses, times, jit = [], [], TinyJit(step)
    for i in range(3 + steps):
        begin = time.perf_counter()
        losses.append(jit().item())
        times.append(time.perf_counter() - begin)
    return {"losses": losses, "first": times[0], "step": statistics.median(times[3:])}


def replay(calls=400):
    """Microseconds of processor time of one call."""
    from tinygrad import Device, Tensor, TinyJit

    weight = Tensor.ones(64, 64).contiguous().realize()
    step = TinyJit(lambda x: ((x @ weight).relu() @ weight).sum(1).realize())
    x = Tensor.ones(64, 64).contiguous().realize()
    for _ in range(20):
        step(x)
    Device[Device.DEFAULT].synchronize()
    begin = time.process_time()
    for _ in range(calls):
        step(x)
    Device[Device.DEFAULT].synchronize()
    return {"us": (time.process_time() - begin) / calls * 1e6}


def realize(times=15):
    """Seconds of a realize of an equal graph, which was realized before."""
    from tinygrad import Tensor

    Tensor.manual_seed(1)
    x, weights = Tensor.rand(16, 16).realize(), [Tensor.rand(16, 16).realize() for _ in range(8)]

    def once():
        y = x
        for w in weights:
            y = (y @ w).softmax(-1) + y.relu().layernorm()
        begin = time.perf_counter()
        y.realize()
        return time.perf_counter() - begin

    once()
    return {"s": statistics.median(once() for _ in range(times))}


def child(row):
    made = {"replay": replay, "realize": realize, "mnist": lambda: train(mnist, STEPS["mnist"]),
            "gpt": lambda: train(gpt, STEPS["gpt"], "SGD", 1e-2)}[row]()
    print(json.dumps(made))
    return 0


def ask(row, device, address):
    program = ["import telegrad.tinygrad, runpy, sys", f"sys.argv = ['tinygrad_peer', '--child', {row!r}, '--address', {address!r}]",
               f"runpy.run_path({os.path.abspath(__file__)!r}, run_name='__main__')"]
    environment = {**os.environ, "DEV": device, "CACHELEVEL": "0"}  # no kernels of earlier processes
    out = subprocess.run([sys.executable, "-c", "; ".join(program)], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(out.stdout.strip().splitlines()[-1])


def say(name, value, unit, goal, good):
    print(f"{name:28s} {value:9.2f} {unit}   goal {goal:g}: {'met' if good else 'not met'}", flush=True)
    return good


def pair(row, other):
    """What both devices say, Telegrad's of a daemon that has compiled nothing yet."""
    daemon = support.Daemon()
    try:
        return ask(row, "TELEGRAD", daemon.address), ask(row, other, daemon.address)
    finally:
        daemon.stop()


def measure(row, pairs):
    other = "NULL" if row == "replay" else "CPU"
    rows = [pair(row, other) for _ in range(pairs)]
    if row == "replay":
        above = statistics.median(ours["us"] - theirs["us"] for ours, theirs in rows)
        return say("replay above NULL", above, "us", GOALS[row], above <= GOALS[row])
    if row == "realize":
        times = statistics.median(ours["s"] / theirs["s"] for ours, theirs in rows)
        return say("second realize", times, "x the time of CPU", GOALS[row], times <= GOALS[row])
    for ours, theirs in rows:
        worst = max(abs(a - b) / abs(b) for a, b in zip(ours["losses"][:2], theirs["losses"]))  # Adam makes much of little
        if worst > 1e-2:
            raise SystemExit(f"{row}: the losses differ: {ours['losses']} and {theirs['losses']}")
    step = statistics.median(theirs["step"] / ours["step"] for ours, theirs in rows)
    first = statistics.median(theirs["first"] / ours["first"] for ours, theirs in rows)
    milliseconds = [statistics.median(r[i]["step"] for r in rows) * 1e3 for i in (0, 1)]
    print(f"{row}: a step takes {milliseconds[0]:.1f} ms, on CPU {milliseconds[1]:.1f} ms")
    good = say(f"{row} step", step, "times as fast", GOALS[row], step >= GOALS[row])
    return say(f"{row} first step", first, "times as fast", GOALS["first"], first >= GOALS["first"]) and good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--telegradd", default=support.DAEMON)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("rows", nargs="*", metavar="ROW", default=[])
    args = parser.parse_args()
    if args.child:
        os.environ["TELEGRAD_ADDRESS"] = args.address
        return child(args.child)
    support.DAEMON = args.telegradd
    return int(not all([measure(row, args.pairs) for row in args.rows or ROWS]))


if __name__ == "__main__":
    sys.exit(main())
