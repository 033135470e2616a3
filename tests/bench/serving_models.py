#!/usr/bin/env python3
"""Many models, loads beside traffic, reloads under load and tenants on one model, against a telegradd of its own.

Usage: serving_models.py TELEGRADD [many|loads|reloads|weights ...]     (all where none is named)

Needs tritonclient[grpc], onnx and numpy. Prints a line for each figure; exits 1 if an answer was lost or wrong.
"""

import base64
import hashlib
import hmac
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import numpy
import onnx
import tritonclient.grpc as triton
from onnx import TensorProto, helper, numpy_helper

MIB = 1 << 20
LOST = []  # what was lost or wrong, for people


def write_model(folder, name, value, weights=MIB // 4, rows=4):
    """y = x + w for `rows` floats, where w is the largest of many weights, all `value`."""
    nodes = [helper.make_node("ReduceMax", ["w"], ["most"], keepdims=0), helper.make_node("Add", ["x", "most"], ["y"])]
    tensor = numpy_helper.from_array(numpy.full(weights, value, numpy.float32), "w")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [rows])], [info("y", TensorProto.FLOAT, [rows])],
                              [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = pathlib.Path(folder) / name / "1"
    path.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path / "next")
    (path / "next").rename(path / "model.onnx")


class Daemon:
    def __init__(self, program, folder, *more):
        self.process = subprocess.Popen(
            [program, "--models", folder, "--listen", "127.0.0.1:0", "--cuda-devices", "0", "--log-level", "off", *more],
            stdout=subprocess.PIPE, text=True)
        self.address = ""
        while not self.address:
            line = self.process.stdout.readline()
            if not line:
                sys.exit("telegradd has not started")
            if line.startswith("listening on "):
                self.address = line.removeprefix("listening on ").strip()
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def client(self):
        return triton.InferenceServerClient(self.address)

    def resident_mb(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()


def ask(client, name, headers=None):
    given = triton.InferInput("x", [4], "FP32")
    given.set_data_from_numpy(numpy.zeros(4, numpy.float32))
    return float(client.infer(name, [given], headers=headers).as_numpy("y")[0])


def in_parallel(threads, count, work):
    """Calls work(client number, i) for each i below count, shared by so many threads."""
    following = iter(range(count))
    lock = threading.Lock()

    def run(thread):
        while True:
            with lock:
                i = next(following, None)
            if i is None:
                return
            work(thread, i)

    running = [threading.Thread(target=run, args=(t,)) for t in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def many(program, models=1000):
    with tempfile.TemporaryDirectory() as folder:
        for i in range(models):
            write_model(folder, f"m{i}", i)
        with Daemon(program, folder, "--models-control", "explicit") as daemon:
            clients = [daemon.client() for _ in range(4)]
            write_model(folder, "warm", -1)
            clients[0].load_model("warm")
            before = daemon.resident_mb()
            begin = time.time()
            in_parallel(4, models, lambda thread, i: clients[thread].load_model(f"m{i}"))
            seconds = time.time() - begin
            print(f"{models} models of 1 MiB: loaded in {seconds:.1f} s, {models / seconds:.0f} a second; "
                  f"resident memory {before:.0f} MB before, {daemon.resident_mb():.0f} MB after", flush=True)

            def check(thread, i):
                got = ask(clients[thread], f"m{i}")
                if got != i:
                    LOST.append(f"model m{i} answered {got}")

            begin = time.time()
            in_parallel(4, models, check)
            print(f"one request to each: {models / (time.time() - begin):.0f} a second", flush=True)


def p50_p99(times):
    times = sorted(times)
    return times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3


def loads(program, seconds=15, a_second=20):
    with tempfile.TemporaryDirectory() as folder:
        for i in range(a_second):
            write_model(folder, f"m{i}", i)
        write_model(folder, "asked", 7)
        with Daemon(program, folder, "--models-control", "explicit") as daemon:
            admin = daemon.client()
            for name in ["asked"] + [f"m{i}" for i in range(a_second)]:
                admin.load_model(name)

            def traffic():
                times, end, client = [], time.time() + seconds, daemon.client()
                while time.time() < end:
                    begin = time.time()
                    if ask(client, "asked") != 7:
                        LOST.append("the model beside loads answered wrong")
                    times.append(time.time() - begin)
                return times

            alone = traffic()
            stop = threading.Event()
            done = [0]

            def load_and_unload():
                begin = time.time()
                while not stop.wait(max(0.0, begin + done[0] / a_second - time.time())):
                    name = f"m{done[0] % a_second}"
                    admin.unload_model(name)
                    admin.load_model(name)
                    done[0] += 1

            thread = threading.Thread(target=load_and_unload)
            begin = time.time()
            thread.start()
            beside = traffic()
            stop.set()
            thread.join()
            rate = done[0] / (time.time() - begin)
            (p50, p99), (p50b, p99b) = p50_p99(alone), p50_p99(beside)
            print(f"one client alone: p50 {p50:.2f} ms, p99 {p99:.2f} ms; beside {rate:.1f} unloads and loads a second: "
                  f"p50 {p50b:.2f} ms, p99 {p99b:.2f} ms", flush=True)


def reloads(program, count=1000, clients=4):
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, "m", 0, weights=4096)
        with Daemon(program, folder, "--models-control", "explicit") as daemon:
            admin = daemon.client()
            admin.load_model("m")
            state = {"loaded": 0, "coming": 0, "stop": False, "requests": 0}

            def traffic():
                client, requests = daemon.client(), 0
                while not state["stop"]:
                    least = state["loaded"]
                    try:
                        got = ask(client, "m")
                    except triton.InferenceServerException as error:
                        LOST.append(f"a request failed in a reload: {error}")
                        continue
                    if not least <= got <= state["coming"]:
                        LOST.append(f"version {got} answered, expected {least} to {state['coming']}")
                    requests += 1
                state["requests"] += requests

            threads = [threading.Thread(target=traffic) for _ in range(clients)]
            for thread in threads:
                thread.start()
            before = daemon.resident_mb()
            begin = time.time()
            for i in range(1, count + 1):
                write_model(folder, "m", i, weights=4096)
                state["coming"] = i
                admin.load_model("m")
                state["loaded"] = i
            seconds = time.time() - begin
            state["stop"] = True
            for thread in threads:
                thread.join()
            print(f"{count} reloads in {seconds:.1f} s beside {state['requests']} requests of {clients} clients: "
                  f"{len(LOST)} lost or wrong; resident memory {before:.0f} MB before, {daemon.resident_mb():.0f} MB "
                  "after", flush=True)


def token(secret, tenant):
    def encode(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    head = encode(json.dumps({"alg": "HS256", "kid": "shared"}).encode())
    claims = {"aud": "telegrad", "sub": "x", "tenant": tenant, "admin": tenant == "ops", "exp": int(time.time()) + 3600}
    text = f"{head}.{encode(json.dumps(claims).encode())}"
    return f"{text}.{encode(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


def weights(program, seconds=20, clients=4):
    secret = b"s" * 32
    with tempfile.TemporaryDirectory() as folder:
        keys = pathlib.Path(folder) / "keys"
        keys.mkdir()
        (keys / "shared.hs256").write_bytes(base64.b64encode(secret))
        tenants = pathlib.Path(folder) / "tenants"
        tenants.write_text("[one]\nweight = 1\nmodels = *\n[three]\nweight = 3\nmodels = *\n[ops]\nmodels = *\n")
        models = pathlib.Path(folder) / "models"
        write_model(models, "m", 5, weights=128 * MIB // 4)
        with Daemon(program, models, "--models-control", "explicit", "--jwt-keys", keys, "--tenants", tenants) as daemon:
            daemon.client().load_model("m", headers={"authorization": f"Bearer {token(secret, 'ops')}"})
            counts = {"one": 0, "three": 0}
            end = time.time() + seconds + 2
            first = time.time() + 2  # both are busy by then

            def traffic(tenant):
                client, mine = daemon.client(), 0
                headers = {"authorization": f"Bearer {token(secret, tenant)}"}
                while time.time() < end:
                    if ask(client, "m", headers) != 5:
                        LOST.append("a tenant's request answered wrong")
                    mine += time.time() >= first
                with lock:
                    counts[tenant] += mine

            lock = threading.Lock()
            threads = [threading.Thread(target=traffic, args=(t,)) for t in counts for _ in range(clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(f"weights 1 and 3 on one model: {counts['one']} and {counts['three']} runs in {seconds} s, "
                  f"1:{counts['three'] / counts['one']:.2f}", flush=True)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    parts = {"many": many, "loads": loads, "reloads": reloads, "weights": weights}
    for name in sys.argv[2:] or list(parts):
        parts[name](os.path.abspath(sys.argv[1]))
    for line in LOST[:20]:
        print(line)
    sys.exit(1 if LOST else 0)


if __name__ == "__main__":
    main()
