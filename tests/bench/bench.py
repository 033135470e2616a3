#!/usr/bin/env python3
"""Measures Telegrad against its peers and prints one Markdown table.

A benchmark is a row of ROWS. Telegrad and its peer run on the same machine in the same minutes, in
alternating turns, and the ratio is the median of the ratios of the pairs. A peer that is far below what it
is known to do makes its row invalid: the machine was not fit to measure on. Exits 1 if a row is not met or is
invalid; reasons go to stderr.

Usage: bench.py [--build DIR] [--turns N] [--list] [NAME...]
"""

import argparse
import os
import re
import resource
import select
import socket
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TELEGRADD = "server/telegradd"
TELEGRAD_BENCH = "tests/bench/telegrad_bench"
OPERATIONS_BENCH = "tests/bench/operations_bench"
FRONTEND_BENCH = "tests/bench/frontend_bench"
ONNX_BENCH = "tests/bench/onnx_bench"
SIMPLIFY_BENCH = "tests/bench/simplify_bench"
NETS_BENCH = "tests/bench/nets_bench"
REWRITE_BENCH = "tests/bench/rewrite_bench"
REPLAY_BENCH = "tests/bench/replay_bench"
START_BENCH = "tests/bench/start_bench"
FRONT_BENCH = "tests/bench/front_bench"
TELEGRAD = "client/cli/telegrad"
SERVING_BENCH = "tests/bench/serving_bench"
RAW_TCP = "tests/bench/raw_tcp"
TURN_SECONDS = 300  # no single measurement takes longer
BUILD_SECONDS = 3600  # nor does a build
LINK_RATE = 250  # megabytes a second, a link that keeps no core busy
START_SECONDS = 60  # nor does a server take longer to listen, or to end


class Absent(Exception):
    """A program of the peer is not there."""


class Broken(Exception):
    """A program failed; the row has no result."""


def halves():
    """Cores for a server and cores for its clients, where the two are kept apart."""
    cores = sorted(os.sched_getaffinity(0))
    middle = max(len(cores) // 2, 1)
    return cores[:middle], cores[middle:] or cores


def pin(cores):
    """What a new process does first; nothing for no cores."""
    return (lambda: os.sched_setaffinity(0, cores)) if cores else None


def free_address():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def build_seconds():
    """Processor time, user and system, of building the daemon and the CLI from nothing without a cache."""
    with tempfile.TemporaryDirectory(prefix="telegrad-build.") as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        for command in (["cmake", "--preset", "release", "-B", folder],
                        ["ninja", "-C", folder, "telegradd", "telegrad"]):
            done = subprocess.run(command, cwd=ROOT, env={**os.environ, "CCACHE_DISABLE": "1"},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=BUILD_SECONDS)
            if done.returncode != 0:
                raise Broken(f"{' '.join(command)}: {done.stdout.decode(errors='replace')[-2000:]}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


class Bench:
    """The programs, and the servers that are started when a row first needs them."""

    def __init__(self, build):
        self.build = build
        self.servers = {}
        self.models = None  # the folder of those that are served
        self.server_cores, self.client_cores = halves()
        self.far_bulk = {apart: free_address() for apart in (False, True)}  # of the far servers' bulk sockets

    def path(self, program):
        path = os.path.join(self.build, program)
        if not os.access(path, os.X_OK):
            raise Absent(program)
        return path

    def server(self, key, program, arguments, environment, cores=()):
        """The address of the server `key`, which is started if it is not up."""
        if key not in self.servers:
            process = subprocess.Popen(
                [self.path(program)] + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env={**os.environ, **environment}, preexec_fn=pin(cores))
            self.servers[key] = (process, self.port(process, program))
        return self.servers[key][1]

    @staticmethod
    def port(process, program):
        """Waits for the line `listening on HOST:PORT`."""
        text = b""
        deadline = time.monotonic() + START_SECONDS
        while True:
            match = re.search(rb"^listening on (\S+:\d+)", text, re.MULTILINE)
            if match and b"\n" in text[match.end():] + b"\n":
                return match[1].decode()
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise Broken(f"{program} did not listen within {START_SECONDS} s")
            more = os.read(process.stdout.fileno(), 4096)
            if not more:
                raise Broken(f"{program} ended before it listened")
            text += more

    def number(self, program, arguments, environment=None, cores=()):
        """The number that a program prints as its last line."""
        try:
            done = subprocess.run(
                [self.path(program)] + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                timeout=TURN_SECONDS, env={**os.environ, **(environment or {})}, check=True,
                preexec_fn=pin(cores))
            return float(done.stdout.split()[-1])
        except (subprocess.SubprocessError, ValueError, IndexError) as error:
            raise Broken(f"{program} {' '.join(arguments)}: {error}") from error

    def daemon(self):
        return self.server("telegradd", TELEGRADD, ["--listen", "127.0.0.1:0"], {})

    def telegrad(self, *arguments):
        return self.number(TELEGRAD_BENCH, [self.daemon(), *arguments])

    def operations(self, *arguments):
        return self.number(OPERATIONS_BENCH, [self.pinned_address(), *arguments], cores=self.client_cores)

    def echo(self, *arguments):
        address = self.server("echo pinned", "tests/bench/echo_server", ["127.0.0.1:0"], {},
                              self.server_cores)
        return self.number("tests/bench/echo_client", [address, *arguments],
                           cores=self.client_cores)

    def serving(self, *arguments):
        """What requests for an identity model take."""
        if self.models is None:
            self.models = tempfile.TemporaryDirectory(prefix="telegrad_bench_models_")
            subprocess.run([self.path(SERVING_BENCH), "models", self.models.name], check=True)
        address = self.server("models", TELEGRADD,
                              ["--listen", "127.0.0.1:0", "--models", self.models.name], {}, self.server_cores)
        return self.number(SERVING_BENCH, [address, *arguments], cores=self.client_cores)

    def serving_echo(self, *arguments):
        address = self.server("serving echo", SERVING_BENCH, ["echo"], {}, self.server_cores)
        return self.number(SERVING_BENCH, [address, *arguments], cores=self.client_cores)

    def pinned_address(self):
        return self.server("telegradd pinned", TELEGRADD, ["--listen", "127.0.0.1:0"], {}, self.server_cores)

    def pinned_front_address(self):
        return self.server("telegradd front", TELEGRADD,
                           ["--listen", "127.0.0.1:0", "--remote", f"far={self.pinned_address()}"], {},
                           self.server_cores)

    def front(self, *arguments):
        """The same through a daemon whose device is another's."""
        return self.number(OPERATIONS_BENCH, [self.pinned_front_address(), *arguments],
                           {"TELEGRAD_DEVICE": "far/CPU:0"}, cores=self.client_cores)

    def processor(self, key, address, device="CPU:0"):
        """Microseconds of processor time that the server `key` takes for a run of 64 clients, beyond their sessions."""
        runs, clients, steps = 150, 64, 4
        process = subprocess.Popen(
            [self.path(OPERATIONS_BENCH), address, "steps", str(runs), str(clients)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, "TELEGRAD_DEVICE": device}, text=True,
            preexec_fn=pin(self.client_cores))
        def step():
            process.stdin.write("\n")
            process.stdin.flush()
            if process.stdout.readline() != "done\n":
                raise Broken(f"{OPERATIONS_BENCH} ended early")
        # Of all threads of the process, those that have ended, too: what clock_getcpuclockid(3) gives for it.
        clock = ~self.servers[key][0].pid << 3 | 2
        with process:
            try:
                step()  # and what a first one starts
                before = time.clock_gettime_ns(clock)
                for _ in range(steps):
                    step()
                return (time.clock_gettime_ns(clock) - before) / (steps * runs * clients) / 1e3
            finally:
                process.stdin.close()

    def far_address(self, apart=False):
        """A server whose device others use; apart: with cores that no front, link or client takes."""
        return self.server(f"telegradd far, apart: {apart}", TELEGRADD,
                           ["--listen", "127.0.0.1:0", "--bulk-listen", self.far_bulk[apart]], {},
                           self.server_cores if apart else ())

    def front_address(self, ms=0, apart=False, rate=0):
        """A front of that server, over a link of so many ms there and back, which its bulk sockets take, too.
        rate: megabytes a second that the bulk sockets' link carries each way; 0: no limit."""
        there, bulk = self.far_address(apart), self.far_bulk[apart]
        cores = self.client_cores if apart else ()
        if ms:
            there, bulk = (self.link(at, ms, rate if at == bulk else 0, cores) for at in (there, bulk))
        return self.server(f"front over {ms} ms, {rate} MB/s, apart: {apart}", TELEGRADD,
                           ["--listen", "127.0.0.1:0", "--remote", f"far={there}", "--remote-bulk", f"far={bulk}"], {},
                           cores)

    def link(self, address, ms, rate=0, cores=()):
        """A link to the address, of so many ms there and back and, except for 0, so many megabytes a second."""
        return self.server(f"link of {ms} ms, {rate} MB/s to {address}", "tests/bench/delay_proxy",
                           [address, str(ms), *([str(rate)] if rate else [])], {}, cores)

    def far(self, ms=0, program=OPERATIONS_BENCH, arguments=(), rate=0):
        """A benchmark on the device of another daemon, behind a link of so many ms there and back."""
        return self.number(program, [self.front_address(ms, rate=rate), *arguments], {"TELEGRAD_DEVICE": "far/CPU:0"})

    def training(self, address, device):
        """Images a second of the network that `telegrad train digits` trains, on the clients' cores."""
        command = [self.path(TELEGRAD), "train", "digits", "--epochs", "60", "--plot", "never", "--device", device,
                   "--address", address]
        try:
            done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  timeout=TURN_SECONDS, check=True, preexec_fn=pin(self.client_cores))
        except subprocess.SubprocessError as error:
            raise Broken(f"{' '.join(command)}: {error}") from error
        match = re.search(rb"training speed: (\d+) images/s", done.stdout)
        if match is None:
            raise Broken(f"{' '.join(command)} printed no speed")
        return float(match[1])

    def between(self, repeats):
        """A copy from the device of one server to that of another, asked for by way of a front."""
        far = [self.server(f"telegradd that sends {i}", TELEGRADD, ["--listen", "127.0.0.1:0", "--peer", "127.0.0.1:*"], {})
               for i in range(2)]
        address = self.server("front of two", TELEGRADD, ["--listen", "127.0.0.1:0", "--remote", f"a={far[0]}",
                                                          "--remote", f"b={far[1]}"], {})
        return self.number(TELEGRAD_BENCH, [address, "between", repeats],
                           {"TELEGRAD_DEVICE": "a/CPU:0", "TELEGRAD_OTHER_DEVICE": "b/CPU:0"})

    def isolated(self, when, runs):
        """Microseconds that a worker process adds to a run."""
        worker, here = (self.number("tests/bench/isolation_bench", [where, when, runs]) for where in ("worker", "cpu"))
        return worker - here

    def grpc(self, *arguments, tuned, chunk=1 << 20):
        environment = {"CHUNK": str(chunk), **({"TUNE": "1"} if tuned else {})}
        address = self.server(f"echo tuned={tuned}", "tests/bench/echo_server", ["127.0.0.1:0"],
                              environment)
        return self.number("tests/bench/echo_client", [address, *arguments], environment)

    def grpc_bulk(self, direction):
        """The rate of the better of two chunk sizes; which one is better changes from hour to hour."""
        return max(self.grpc(direction, "3", tuned=True, chunk=chunk) for chunk in (1 << 20, 4 << 20))

    def shared(self, direction):
        # A socket of its own for each build that is measured (compare.py).
        path = os.path.join(tempfile.gettempdir(), f"telegrad_bench_{os.getpid()}_{id(self)}.sock")
        address = self.server("telegradd shared", TELEGRADD,
                              ["--listen", "127.0.0.1:0", "--local-socket", path, "--local-memory"], {})
        return self.number(TELEGRAD_BENCH, [address, f"shared_{direction}", "9"],
                           {"TELEGRAD_LOCAL_SOCKET": path})

    def raw_tcp(self, direction, ms=0, rate=0):
        address = self.server("raw_tcp", RAW_TCP, ["serve"], {})
        if ms:
            address = self.link(address, ms, rate)
        return self.number(RAW_TCP, [address, direction, "256", "5"])

    def loops(self, order):
        return self.number("tests/bench/matmul_loops", [order, "1024", "1"])

    def close(self):
        for process, _ in self.servers.values():
            process.terminate()
        for process, _ in self.servers.values():
            try:
                process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.models is not None:
            self.models.cleanup()


class Row:
    """A benchmark. The ratio is Telegrad / peer where `goal` is an upper bound (a time) and where it is a
    lower bound of a rate; where `speedup` is set both are times and the ratio is peer / Telegrad."""

    def __init__(self, name, unit, goal, telegrad, peer, known=None, speedup=False, turns=7):
        self.name = name
        self.unit = unit
        self.compare, self.bound = goal
        self.telegrad = telegrad
        self.peer = peer
        self.known = known  # what the peer is known to do, in `unit`
        self.speedup = speedup
        self.turns = turns

    def met(self, ratio):
        return ratio <= self.bound if self.compare == "<=" else ratio >= self.bound

    def peer_is_far_off(self, value):
        """Whether the peer does less than half of what it is known to do."""
        if self.known is None:
            return False
        return value > 2 * self.known if self.compare == "<=" else value < self.known / 2


class LimitRow(Row):
    """A benchmark without a peer: a count, a time or a rate of Telegrad against a limit."""

    def __init__(self, name, unit, limit, telegrad, compare="<="):
        super().__init__(name, unit, (compare, limit), telegrad, None, turns=1)


# `known` are the medians measured for these peers when they were not disturbed.
ROWS = [
    # As many clients on both sides, each with a connection of its own; servers on one half of the cores,
    # clients on the other.
    *(Row(f"run_by_hash_{clients}", "us p50", ("<=", 1.3), known=known, turns=30,
          telegrad=lambda b, n=clients: b.operations("latency", str(4000 // n), str(n)),
          peer=lambda b, n=clients: b.echo("latency", str(4000 // n), str(n)))
      for clients, known in ((1, 100), (8, 430), (64, 4500))),
    # A request for a served identity model against a gRPC server that echoes the same message.
    Row("infer_4b", "us p50", ("<=", 1.6), turns=11,
        telegrad=lambda b: b.serving("latency", "4", "2000", "1"),
        peer=lambda b: b.serving_echo("latency", "4", "2000", "1")),
    Row("infer_4b_64", "requests/s", (">=", 0.7), turns=11,
        telegrad=lambda b: b.serving("rate", "4", "8000", "64"),
        peer=lambda b: b.serving_echo("rate", "4", "8000", "64")),
    Row("infer_16m", "requests/s", (">=", 0.8), turns=11,
        telegrad=lambda b: b.serving("rate", str(16 << 20), "24", "1"),
        peer=lambda b: b.serving_echo("rate", str(16 << 20), "24", "1")),
    # What a front adds to a trivial run on another server's device, against a bare echo; and the runs of 64
    # clients through it against those of as many that ask that server themselves, on the same cores.
    Row("front_added", "us p50", ("<=", 1.1), known=100, turns=30,
        telegrad=lambda b: b.front("latency", "4000", "1") - b.operations("latency", "4000", "1"),
        peer=lambda b: b.echo("latency", "4000", "1")),
    Row("front_64", "us p50", ("<=", 2.0), turns=30,
        telegrad=lambda b: b.front("latency", "62", "64"),
        peer=lambda b: b.operations("latency", "62", "64")),
    # Processor time of the front for each of those runs, against that of the server that is asked itself.
    Row("front_64_processor", "us", ("<=", 1.0), turns=9,
        telegrad=lambda b: b.processor("telegradd front", b.pinned_front_address(), "far/CPU:0"),
        peer=lambda b: b.processor("telegradd pinned", b.pinned_address())),
    # 200 dependent runs on another server's device over a link of 20 ms there and back: two round trips, and
    # what they take without the link.
    Row("front_chain", "ms", ("<=", 1.0), turns=5,
        telegrad=lambda b: b.far(20, arguments=("chain", "200", "1")),
        peer=lambda b: 40 + b.operations("chain", "200", "1")),
    # Training on another server's device over a link of 1 ms there and back, against that server directly. That
    # server has cores of its own both times, as another machine has: the front, the link and the client take none
    # of them.
    Row("front_training", "images/s", (">=", 0.95), turns=7,
        telegrad=lambda b: b.training(b.front_address(1, apart=True), "far/CPU:0"),
        peer=lambda b: b.training(b.far_address(apart=True), "CPU:0")),
    # 256 MiB between memory of a front and a device of another server, against a client of that server; and
    # of a client of the front, for whom every byte is sent twice.
    *(Row(f"remote_{direction}", "GB/s", (">=", 0.9), turns=9,
          telegrad=lambda b, d=direction: b.number(FRONT_BENCH, [b.far_address(), d, "5"]),
          peer=lambda b, d=direction: b.number(TELEGRAD_BENCH, [b.far_address(), d, "5"]))
      for direction in ("upload", "download")),
    *(Row(f"front_{direction}", "GB/s", (">=", 0.9), turns=5,
          telegrad=lambda b, d=direction: b.far(0, TELEGRAD_BENCH, (d, "5")),
          peer=lambda b, d=direction: b.number(TELEGRAD_BENCH, [b.far_address(), d, "5"]))
      for direction in ("upload", "download")),
    # The same where the link to the far server is the limit: 250 MB a second each way, 1 ms there and back; against a
    # plain TCP connection over such a link.
    *(Row(f"link_{direction}", "GB/s", (">=", 0.9), turns=3,
          telegrad=lambda b, d=direction: b.far(1, TELEGRAD_BENCH, (d, "3"), rate=LINK_RATE),
          peer=lambda b, d=raw: b.raw_tcp(d, 1, LINK_RATE))
      for direction, raw in (("upload", "up"), ("download", "down"))),
    # 256 MiB from a server to another, against one plain TCP connection.
    Row("server_to_server", "GB/s", (">=", 0.9), turns=5,
        telegrad=lambda b: b.between("5"),
        peer=lambda b: b.raw_tcp("up")),
    # What a worker process adds to a run, while it spins and after 5 ms without work, against a byte that
    # goes to another process and back over a pair of sockets.
    *(Row(f"worker_{when}", "us", ("<=", bound), turns=7,
          telegrad=lambda b, w=when, n=runs: b.isolated(w, n),
          peer=lambda b, w=when, n=runs: b.number("tests/bench/isolation_bench", ["sockets", w, n]))
      for when, runs, bound in (("spinning", "20000", 1.0), ("idle", "500", 2.0))),
    # From the SIGKILL of a worker, or from the SIGSTOP that makes it hang, to the end of the first run on the
    # next one.
    *(LimitRow(f"worker_{how}_{which}", "ms", 2000,
               telegrad=lambda b, h=how, w=which, n=ends: b.number("tests/bench/isolation_bench", [h, w, n]))
      for how, ends in (("killed", "40"), ("hung", "20")) for which in ("median", "longest")),
    # Runs of one client that does not wait for one before it sends the next, against short messages on a
    # bare stream that come back.
    Row("pipelined_runs", "a second", (">=", 0.4), turns=9,
        telegrad=lambda b: b.operations("pipelined", "40000", "1"),
        peer=lambda b: b.echo("talk", "40000", "1")),
    Row("upload_256m", "GB/s", (">=", 0.7), known=2.0,
        telegrad=lambda b: b.telegrad("upload", "3"),
        peer=lambda b: b.grpc_bulk("up")),
    Row("download_256m", "GB/s", (">=", 0.7), known=2.14,
        telegrad=lambda b: b.telegrad("download", "3"),
        peer=lambda b: b.grpc_bulk("down")),
    # The same against one plain TCP connection, from memory to memory without checksums.
    Row("upload_tcp", "GB/s", (">=", 0.9),
        telegrad=lambda b: b.telegrad("upload", "5"),
        peer=lambda b: b.raw_tcp("up")),
    Row("download_tcp", "GB/s", (">=", 0.9),
        telegrad=lambda b: b.telegrad("download", "5"),
        peer=lambda b: b.raw_tcp("down")),
    # Through memory that client and daemon share, against one thread's memcpy.
    *(Row(f"shared_{direction}", "GB/s", (">=", 0.9),
          telegrad=lambda b, direction=direction: b.shared(direction),
          peer=lambda b: b.telegrad("memcpy", "9"))
      for direction in ("upload", "download")),
    # Against the better of the two orders of the loops.
    Row("matmul_1024", "ms", (">=", 4.0), speedup=True, turns=5,
        telegrad=lambda b: b.telegrad("matmul", "20"),
        peer=lambda b: min(b.loops("ijk"), b.loops("ikj"))),
    LimitRow("second_run", "schedules and compiles", 0,
             telegrad=lambda b: b.telegrad("second_run", "1")),
    # A safetensors file of 1 GiB into buffers against the same bytes from memory, over the same stream.
    LimitRow("load_1g", "x", 1.3, telegrad=lambda b: b.telegrad("load", "7")),
    # An ONNX file of 400 MiB, imported and its weights sent, against reading its bytes and sending them; and
    # the same where the server imports it.
    LimitRow("import_400m", "x", 1.3, telegrad=lambda b: b.telegrad("import", "7")),
    LimitRow("server_import_400m", "x", 1.3, telegrad=lambda b: b.telegrad("server_import", "7")),
    # ResNet-50 from a file's bytes to the graph; the weights stay where they are.
    LimitRow("onnx_resnet50", "ms", 30, telegrad=lambda b: b.number(ONNX_BENCH, ["21"])),
    # Scheduling a ResNet-50 forward graph, which simplifies its indices, and the passes that do so before
    # expansion, on one core.
    LimitRow("resnet50_indices", "ms", 50,
             telegrad=lambda b: b.number(SIMPLIFY_BENCH, ["indices", "20"])),
    # Building the graph of a training step of a 12-layer GPT in the client.
    LimitRow("training_graph", "ms", 50, telegrad=lambda b: b.number(FRONTEND_BENCH, ["21"])),
    # All rows of the rule tables, at a node that none of them matches, against finding the same nodes in a
    # hash table.
    Row("rule_misses", "ns a node", ("<=", 18.0), turns=5,
        telegrad=lambda b: b.number(REWRITE_BENCH, ["misses", "2000"]),
        peer=lambda b: b.number(REWRITE_BENCH, ["lookups", "2000"])),
    # From the graph to programs, without LLVM, on one core.
    *(LimitRow(f"{net}_front", "ms", limit, telegrad=lambda b, net=net: b.number(NETS_BENCH, ["front", net, "9"]))
      for net, limit in (("resnet50", 150), ("gpt2", 60), ("bert", 60))),
    # The limits are what tinygrad launches for the same networks.
    *(LimitRow(f"{net}_launches", "launches", limit,
               telegrad=lambda b, net=net: b.number(NETS_BENCH, ["launches", net]))
      for net, limit in (("resnet50", 51), ("gpt2", 174), ("bert", 172), ("attention", 4), ("softmax", 3),
                         ("layernorm", 3), ("sums", 1))),
    # Flops of the kernels for each of the graph's with every value computed once.
    *(LimitRow(f"{net}_flops", "x", 1.1, telegrad=lambda b, net=net: b.number(NETS_BENCH, ["flops", net]))
      for net in ("resnet50", "gpt2", "bert")),
    # tinygrad's 484 ms on another machine of two cores, by three.
    LimitRow("resnet50_run", "ms", 161, telegrad=lambda b: b.number(NETS_BENCH, ["run", "resnet50", "9"])),
    # An executable of 1000 kernels of 16 floats, from its submission until its point is reached.
    LimitRow("replay", "us a kernel", 2,
             telegrad=lambda b: b.number(REPLAY_BENCH, ["1000", "1000"])),
    # ResNet-50 from its graph to an executable: compiled by the workers, and loaded from the disk cache.
    LimitRow("resnet50_cold", "ms", 2500,
             telegrad=lambda b: b.number(START_BENCH, ["cold", "resnet50", "3"])),
    LimitRow("resnet50_warm", "ms", 200,
             telegrad=lambda b: b.number(START_BENCH, ["warm", "resnet50", "5"])),
    # Five minutes of two cores.
    LimitRow("build", "s of processor time", 600, telegrad=lambda b: build_seconds()),
]


def show(value):
    return f"{value:.4g}"


def measure(bench, row, turns):
    """The cells of a row after its name: Telegrad, peer, ratio, goal, met."""
    goal = f"{row.compare} {show(row.bound)}" + ("x" if row.peer else "")
    try:
        if row.peer is None:
            value = row.telegrad(bench)
            return [f"{show(value)} {row.unit}", "limit", "-", goal, "yes" if row.met(value) else "no"]
        pairs = []
        for turn in range(turns or row.turns):
            # Who goes first alternates too.
            if turn % 2 == 0:
                ours, theirs = row.telegrad(bench), row.peer(bench)
            else:
                theirs, ours = row.peer(bench), row.telegrad(bench)
            pairs.append((ours, theirs, theirs / ours if row.speedup else ours / theirs))
            print(f"{row.name}: turn {turn + 1}: {show(ours)} {row.unit} against {show(theirs)}",
                  file=sys.stderr, flush=True)
        ours, theirs, ratio = (statistics.median(column) for column in zip(*pairs))
        verdict = "yes" if row.met(ratio) else "no"
        if row.peer_is_far_off(theirs):
            print(f"{row.name}: invalid: the peer did {show(theirs)} {row.unit} and is known to do "
                  f"{show(row.known)}; this machine is too disturbed", file=sys.stderr)
            verdict = "invalid"
        return [f"{show(ours)} {row.unit}", f"{show(theirs)} {row.unit}", f"{ratio:.2f}x", goal, verdict]
    except Absent as absent:
        print(f"{row.name}: {absent} is not built", file=sys.stderr)
        ours = str(absent) in (TELEGRADD, TELEGRAD_BENCH, SIMPLIFY_BENCH, REWRITE_BENCH, REPLAY_BENCH,
                                START_BENCH, NETS_BENCH, OPERATIONS_BENCH, SERVING_BENCH)
        return ["-", "-", "-", goal, "no" if ours else "peer absent"]
    except Broken as broken:
        print(f"{row.name}: {broken}", file=sys.stderr)
        return ["-", "-", "-", goal, "no"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to measure (default: all)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), metavar="DIR",
                        help="folder of the build (default: build/release)")
    parser.add_argument("--turns", type=int, default=0, metavar="N",
                        help="number of pairs of turns for each benchmark (default: its own)")
    parser.add_argument("--list", action="store_true", help="print the names of all benchmarks")
    arguments = parser.parse_args()
    names = [row.name for row in ROWS]
    if arguments.list:
        print("\n".join(names))
        return 0
    unknown = [name for name in arguments.names if name not in names]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(names)}")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = Bench(arguments.build)
    failed = False
    try:
        lines = ["| name | Telegrad | peer or limit | ratio | goal | met |", "|---|---|---|---|---|---|"]
        for row in ROWS:
            if arguments.names and row.name not in arguments.names:
                continue
            cells = measure(bench, row, arguments.turns)
            failed = failed or cells[-1] not in ("yes", "peer absent")
            lines.append("| " + " | ".join([row.name] + cells) + " |")
        print("\n".join(lines))
    finally:
        bench.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
