#!/usr/bin/env python3
"""Measures on a running daemon what tenants get of it, and what they feel of each other.

    shares    device time of tenants that all have more than enough work, by their weights, for 10 s
    light     the 99th percentile of a tenant's trivial runs, alone and beside another tenant's flood
    sessions  memory of 10,000 sessions of 200 tenants, and a run's time with them and with 10
    traced    a run by hash with one in 100 traced, against none, in pairs

Prints a Markdown table and exits 1 if a goal is missed. Needs one machine to itself.

Usage: fairness.py [--build DIR] [shares] [light] [sessions] [traced]
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SECRET = b"0123456789abcdef0123456789abcdef"
SEGMENT_MS = 5.0
SETTLE_SECONDS = 5  # of load before a window of measurement begins: predictions follow what was measured
SHORT_AHEAD = 16  # short slices that a device has at a time


def token(tenant, admin=False):
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")
    claims = {"sub": tenant, "tenant": tenant, "admin": admin, "aud": "bench", "exp": int(time.time()) + 86400}
    signed = part(b'{"alg":"HS256","kid":"bench"}') + b"." + part(json.dumps(claims).encode())
    return (signed + b"." + part(hmac.new(SECRET, signed, hashlib.sha256).digest())).decode()


def value_of(lines, name, **labels):
    for line in lines:
        if line.startswith(name) and all(f'{k}="{v}"' in line for k, v in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return 0.0


class Daemon:
    def __init__(self, build, folder, tenants, flags=()):
        keys = os.path.join(folder, "keys")
        os.makedirs(keys, exist_ok=True)
        with open(os.path.join(keys, "bench.hs256"), "wb") as file:
            file.write(base64.b64encode(SECRET) + b"\n")
        table = os.path.join(folder, "tenants")
        with open(table, "w", encoding="utf-8") as file:
            for name, weight in tenants.items():
                file.write(f"[{name}]\nweight = {weight}\n")
        self.build = build
        self.admin = f"unix:{folder}/admin"
        self.admin_token = os.path.join(folder, "admin_token")
        with open(self.admin_token, "w", encoding="utf-8") as file:
            file.write(token("admin", admin=True))
        self.log = open(os.path.join(folder, "log"), "a", encoding="utf-8")
        self.process = subprocess.Popen(
            [os.path.join(build, "server/telegradd"), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
             "--jwt-keys", keys, "--jwt-audience", "bench", "--tenants", table, "--max-sessions", "20000",
             "--admin-listen", f"unix:{folder}/admin",
             "--log-level", "error", "--insecure-listen-anywhere", *flags],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        text = ""
        while "listening on" not in text or "metrics on" not in text:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("telegradd has ended")
            text += line
        self.address = re.search(r"listening on (\S+)", text)[1]
        self.page = re.search(r"metrics on (\S+)", text)[1]

    def bench(self, *arguments, **options):
        program = os.path.join(self.build, "tests/bench/fair_bench")
        return subprocess.Popen([program, arguments[0], self.address, *map(str, arguments[1:])],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)

    def lines(self):
        """The page of metrics: all as they are at one moment."""
        with urllib.request.urlopen(self.page) as page:
            return page.read().decode().splitlines()

    def metric(self, name, **labels):
        return value_of(self.lines(), name, **labels)

    def memory(self):
        """Resident bytes of the daemon."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()


def socket_memory():
    """Bytes that the kernel has for TCP sockets' buffers."""
    with open("/proc/net/sockstat", encoding="ascii") as file:
        return int(re.search(r"TCP:.* mem (\d+)", file.read())[1]) * resource.getpagesize()


def ready(process, word):
    line = process.stdout.readline().strip()
    if line != word:
        raise RuntimeError(f"fair_bench said {line!r}, expected {word}")


def start(process):
    process.stdin.write("\n")
    process.stdin.flush()


def percentiles(process):
    """Median and 99th percentile, in ms, that a light tenant has told."""
    out = process.communicate(timeout=300)[0].split()
    if process.returncode or len(out) != 2:
        raise RuntimeError(f"fair_bench light ended with {process.returncode} and said {out}")
    return tuple(map(float, out))


def shares(build, folder, rows):
    cases = [("1 and 3, runs of 0.1 ms", [("a", 1, "short"), ("b", 3, "short")]),
             ("1 and 3, runs of 3 s", [("a", 1, "long"), ("b", 3, "long")]),
             ("ten tenants of 1 to 3, both", [(f"t{i}", 1 + i % 3, "long" if i % 2 else "short") for i in range(10)])]
    for name, tenants in cases:
        # One thread has the device, so that clients and the daemon's transport keep it busy from the other processors.
        daemon = Daemon(build, folder, {"admin": 1, **{t: w for t, w, _ in tenants}}, ("--cpu-threads", "1"))
        floods = [daemon.bench("flood", token(t), kind, 1 if kind == "long" else 8) for t, _, kind in tenants]
        enough = {t: 1 if kind == "long" else 2 * SHORT_AHEAD for t, _, kind in tenants}

        def has_enough():
            lines = daemon.lines()
            return all(value_of(lines, "telegrad_tenant_use", tenant=t, quota="operations") >= n for t, n in enough.items())

        def used():
            lines = daemon.lines()
            return {t: value_of(lines, "telegrad_tenant_run_seconds_total", tenant=t) for t, _, _ in tenants}
        try:
            for flood in floods:
                ready(flood, "ready")
            for flood in floods:
                start(flood)
            while not has_enough():
                time.sleep(0.05)
            time.sleep(SETTLE_SECONDS)
            begun = used()
            end = time.monotonic() + 10
            looks = dry = 0
            while time.monotonic() < end:
                time.sleep(0.05)
                looks += 1
                dry += not has_enough()
            ended = used()  # slice by slice: a run of 3 s need not have ended
            time_of = {t: ended[t] - begun[t] for t in ended}
        finally:
            for flood in floods:
                flood.kill()
            daemon.end()
        total, weights = sum(time_of.values()), sum(w for _, w, _ in tenants)
        off = max(abs(time_of[t] / total / (w / weights) - 1) for t, w, _ in tenants)
        figures = ", ".join(f"{time_of[t]:.2f}" for t, _, _ in tenants)
        rows.append((f"weights {name}: device time", f"{figures} s",
                     f"off by {off:.1%} at most; in {dry} of {looks} looks one had none waiting", "3%",
                     off <= 0.03))


def light(build, folder, rows):
    for what, sessions in (("runs", 4), ("long", 2), ("compile", 4), ("transfer", 1)):
        daemon = Daemon(build, folder, {"light": 1, "heavy": 1})
        flood = None
        try:
            alone = daemon.bench("light", token("light"), 1000)
            p50, p99 = percentiles(alone)
            flood = daemon.bench("flood", token("heavy"), what, sessions)
            ready(flood, "ready")
            start(flood)
            time.sleep(SETTLE_SECONDS)
            beside = daemon.bench("light", token("light"), 400)
            with_p50, with_p99 = percentiles(beside)
        finally:
            if flood is not None:
                flood.kill()
            daemon.end()
        rows.append((f"trivial runs beside {what}: p50, p99", f"{with_p50:.2f}, {with_p99:.2f} ms",
                     f"alone {p50:.2f}, {p99:.2f} ms", f"p99 + {2 * SEGMENT_MS + 2:.0f} ms",
                     with_p99 <= p99 + 2 * SEGMENT_MS + 2))


def sessions(build, folder, rows):
    connections, each = 200, 50
    names = {f"t{i}": 1 for i in range(connections)}
    daemon = Daemon(build, folder, {"light": 1, **names})
    idle = None
    try:
        few = daemon.bench("light", token("light"), 1000)
        few = percentiles(few)[0]
        resident, sockets = daemon.memory(), socket_memory()
        idle = daemon.bench("idle", each, *[token(t) for t in names])
        ready(idle, "idle")
        open_now = daemon.metric("telegrad_sessions ")
        grown = (daemon.memory() - resident, socket_memory() - sockets)
        many = daemon.bench("light", token("light"), 1000)
        many = percentiles(many)[0]
    finally:
        if idle is not None:
            idle.kill()
        daemon.end()
    per = (grown[0] + grown[1]) / (connections * each) / 1024
    rows.append((f"{open_now:.0f} sessions of {connections} tenants: memory of each",
                 f"{per:.1f} KiB", f"of these {grown[1] / (connections * each) / 1024:.1f} of the kernel's sockets",
                 "48 KiB", open_now >= connections * each and per <= 48))
    rows.append(("with them, a trivial run: p50", f"{many:.3f} ms", f"without {few:.3f} ms", "1.5x", many <= 1.5 * few))


def traced(build, folder, rows, pairs=9, runs=3000):
    daemons = [Daemon(build, folder, {"light": 1}, flags) for flags in ((), ("--trace-one-in", "100"))]
    try:
        ratios = []
        for pair in range(pairs):
            medians = [0.0, 0.0]
            for which in ((0, 1), (1, 0))[pair % 2]:
                process = daemons[which].bench("light", token("light"), runs)
                medians[which] = percentiles(process)[0]
            ratios.append(medians[1] / medians[0])
    finally:
        for daemon in daemons:
            daemon.end()
    ratio = statistics.median(ratios)
    rows.append(("run by hash, one in 100 traced", f"{ratio:.3f}x", f"of {pairs} pairs {min(ratios):.2f} to {max(ratios):.2f}",
                 "1.1x", ratio <= 1.1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"), metavar="DIR",
                        help="folder of the build (default: build/release)")
    parser.add_argument("what", nargs="*", default=[])
    arguments = parser.parse_args()
    every = {"shares": shares, "light": light, "sessions": sessions, "traced": traced}
    rows = []
    print("| What | Measured | | Goal | Met |\n|---|---|---|---|---|")
    for name in arguments.what or every:
        with tempfile.TemporaryDirectory(prefix="telegrad-fair.") as folder:
            done = len(rows)
            every[name](arguments.build, folder, rows)
        for row in rows[done:]:
            print(f"| {row[0]} | {row[1]} | {row[2]} | at most {row[3]} | {'yes' if row[4] else 'no'} |", flush=True)
    return 0 if all(row[4] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
