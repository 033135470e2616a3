#!/usr/bin/env python3
"""Measures torch.compile(backend="telegrad") beside torch.compile's own backend, in alternating turns on the same cores.

Rows, each with its goal:
  overhead          a call of one fused function of 16 numbers, result included, above eager's: processor time of this process
  resnet50, bert, gpt2   inference (8 images; 4 texts of 128 tokens; one text of 128 tokens): its time over ours
  gpt2_step         a step of training: forward, backward and AdamW, all compiled, with the option "resident": parameters,
                    gradients and AdamW's state stay on the server; the loss of each step is read, and four steps are
                    timed until the last update has ended
  gpt2_step_torch   the same without the option: all of them are torch's after each step; no goal

Results are compared. Needs torch; the networks torchvision and transformers, with random weights. Exits 0 and says so where
torch is not installed, 1 where a goal is not met.

Usage: torch_peer.py [--telegradd PROGRAM] [--turns N] [ROW...]
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import support

try:
    import torch
except ImportError as error:
    print(f"not measured: {error}; pip install torch")
    sys.exit(0)

ROWS = ["overhead", "resnet50", "bert", "gpt2", "gpt2_step", "gpt2_step_torch"]
GOALS = {"overhead": 200.0, "gpt2_step_torch": 0.0}
LEAST = 0.95
STEPS = 4  # of training in a turn


def say(name, value, unit, goal, good):
    print(f"{name:12s} {value:9.2f} {unit}   goal {goal:g}: {'met' if good else 'not met'}", flush=True)
    return good


def overhead(calls=500):
    function = lambda x: x * 2 + 1  # noqa: E731
    compiled, x = torch.compile(function, backend="telegrad"), torch.ones(16)
    eager = torch.compile(function, backend="eager")

    def cost(f):
        for _ in range(20):
            f(x)
        wall, used = time.perf_counter(), time.process_time()
        for _ in range(calls):
            f(x)
        return (time.process_time() - used) / calls * 1e6, (time.perf_counter() - wall) / calls * 1e6

    with torch.no_grad():
        rows = [(cost(compiled), cost(eager)) for _ in range(5)]
    above = statistics.median(ours[0] - theirs[0] for ours, theirs in rows)
    wall = statistics.median(ours[1] - theirs[1] for ours, theirs in rows)
    print(f"overhead: {wall:.0f} us until the result is there, of them {above:.0f} us of this process")
    return say("overhead", above, "us", GOALS["overhead"], above <= GOALS["overhead"])


def resnet50():
    import torchvision

    return torchvision.models.resnet50(weights=None).eval(), (torch.randn(8, 3, 224, 224),)


def bert():
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(), add_pooling_layer=False).eval(), (torch.randint(0, 30000, (4, 128)),)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False)).eval(), (torch.randint(0, 50000, (1, 128)),)


def first_of(out):
    return out if isinstance(out, torch.Tensor) else out[0]


def inference(make, turns):
    torch.manual_seed(1)
    model, inputs = make()
    ours, theirs = (torch.compile(model, backend=backend) for backend in ("telegrad", "inductor"))
    times = [], []
    with torch.no_grad():
        for turn in range(turns + 1):
            results = []
            for i, compiled in enumerate((ours, theirs)):
                begin = time.perf_counter()
                results.append(first_of(compiled(*inputs)))
                if turn > 0:
                    times[i].append(time.perf_counter() - begin)
            torch.testing.assert_close(*results, rtol=2e-3, atol=2e-3)
    return times


def gpt2_step(turns, resident):
    """Each backend trains its own copy; losses are compared."""
    import telegrad.torch

    times, models, steps = ([], []), [], []
    for backend in ("telegrad", "inductor"):
        torch.manual_seed(1)
        model, (ids,) = gpt2()
        model.loss_type = "ForCausalLM"  # unless it is said, transformers ends the compiled part before the loss, to log that
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=False)
        named = {"backend": backend, "options": {"resident": resident} if backend == "telegrad" else None}
        forward = torch.compile(lambda ids, model=model: model(ids, labels=ids)[0], **named)
        update = torch.compile(lambda optimizer=optimizer: optimizer.step(), **named)

        def step(ids=ids, forward=forward, update=update, optimizer=optimizer):
            optimizer.zero_grad()
            loss = forward(ids)
            loss.backward()
            update()
            return loss.item()

        # The server goes on with what a step has started: a value of the last update waits for all of it.
        end = (lambda model=model: telegrad.torch.fetch(model.transformer.ln_f.bias)) if backend == "telegrad" else lambda: None
        steps.append((step, end))
        models.append(model)
    for turn in range(turns + 1):
        losses = []
        for i, (step, end) in enumerate(steps):
            begin = time.perf_counter()
            for _ in range(STEPS):
                loss = step()
            end()
            losses.append(loss)
            if turn > 0:
                times[i].append((time.perf_counter() - begin) / STEPS)
        if abs(losses[0] - losses[1]) > 1e-2:
            raise SystemExit(f"gpt2_step: the losses differ: {losses}")
    return times


def measure(row, turns):
    torch._dynamo.reset()
    if row == "overhead":
        return overhead()
    training = row.startswith("gpt2_step")
    ours, theirs = gpt2_step(turns, row == "gpt2_step") if training else inference(globals()[row], turns)
    ratio = statistics.median(b / a for a, b in zip(ours, theirs))
    print(f"{row}: {statistics.median(ours) * 1e3:.1f} ms, torch.compile {statistics.median(theirs) * 1e3:.1f} ms")
    goal = GOALS.get(row, LEAST)
    return say(row, ratio, "times as fast", goal, ratio >= goal)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--telegradd", default=support.DAEMON)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("rows", nargs="*", metavar="ROW", default=[])
    args = parser.parse_args()
    support.DAEMON = args.telegradd
    daemon = support.Daemon("--cpu-memory", str(8 << 30))
    os.environ["TELEGRAD_ADDRESS"] = daemon.address
    import telegrad.torch  # noqa: F401  registers the backend
    try:
        return int(not all([measure(row, args.turns) for row in args.rows or ROWS]))
    finally:
        daemon.stop()


if __name__ == "__main__":
    sys.exit(main())
