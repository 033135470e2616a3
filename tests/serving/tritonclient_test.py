"""Triton's clients, as they come from PyPI, against the daemon: gRPC, HTTP, asyncio and streams.

Also compares our protocol files with theirs, number by number. Exits 77 where tritonclient or onnx is missing, which
CTest shows as skipped.
"""

import asyncio
import base64
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DAEMON = os.environ.get("TELEGRADD", os.path.join(ROOT, "build", "release", "server", "telegradd"))
SKIPPED = 77

try:
    import numpy as np
    import onnx
    import tritonclient.grpc as grpc_client
    import tritonclient.grpc.aio as grpc_aio
    import tritonclient.http as http_client
    import tritonclient.http.aio as http_aio
    from onnx import TensorProto, helper
    from tritonclient.grpc import model_config_pb2, service_pb2
    from tritonclient.utils import InferenceServerException, shared_memory
except ImportError as error:
    print(f"skipped: {error}; pip install 'tritonclient[all]' onnx")
    sys.exit(SKIPPED)


def add_model(folder, name, addend, version=1):
    """y = x + addend, of batches of four floats."""
    shape = ["batch", 4]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "c"], ["y"])], name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [helper.make_tensor("c", TensorProto.FLOAT, [1], [addend])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = os.path.join(folder, name, str(version))
    os.makedirs(path)
    onnx.save(model, os.path.join(path, "model.onnx"))


def sum_model(folder):
    """y = x + the sum of the x of the sequence before."""
    shape = ["batch", 1]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "before"], ["y"]), helper.make_node("Identity", ["y"], ["after"])], "sum",
        [value("x", TensorProto.FLOAT, shape), value("before", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, shape), value("after", TensorProto.FLOAT, shape)])
    path = os.path.join(folder, "sum", "1")
    os.makedirs(path)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
              os.path.join(path, "model.onnx"))
    with open(os.path.join(folder, "sum", "config.pbtxt"), "w", encoding="utf-8") as file:
        file.write("max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 600000000 direct { } "
                   "state { input_name: 'before' output_name: 'after' data_type: TYPE_FP32 dims: 1 } }")


class Daemon:
    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [DAEMON, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "off", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.address = self.http = None
        output = ""
        while self.http is None:
            line = self.process.stdout.readline()
            output += line
            if not line:
                raise RuntimeError("telegradd did not start:\n" + output)
            if line.startswith("listening on "):
                self.address = line.removeprefix("listening on ").strip()
            if line.startswith("http listening on "):
                self.http = line.removeprefix("http listening on ").strip()
        self.reader = threading.Thread(target=self.process.stdout.read, daemon=True)
        self.reader.start()

    def stop(self):
        self.process.kill()
        self.process.wait()


class ServingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        add_model(cls.folder.name, "add", 1)
        add_model(cls.folder.name, "other", 2)
        sum_model(cls.folder.name)
        cls.daemon = Daemon("--models", cls.folder.name)
        cls.grpc = grpc_client.InferenceServerClient(cls.daemon.address)
        cls.http = http_client.InferenceServerClient(cls.daemon.http)
        deadline = time.monotonic() + 120
        while not cls.http.is_server_ready():
            assert time.monotonic() < deadline

    @classmethod
    def tearDownClass(cls):
        cls.grpc.close()
        cls.http.close()
        cls.daemon.stop()
        cls.folder.cleanup()

    VALUES = np.arange(8, dtype=np.float32).reshape(2, 4)

    def inputs(self, client, values=None, **how):
        values = self.VALUES if values is None else values
        x = client.InferInput("x", list(values.shape), "FP32")
        x.set_data_from_numpy(values, **how)
        return [x]

    def test_describes_itself(self):
        for client in (self.grpc, self.http):
            self.assertTrue(client.is_server_live())
            self.assertTrue(client.is_server_ready())
            self.assertTrue(client.is_model_ready("add"))
            self.assertTrue(client.is_model_ready("add", "1"))
            self.assertFalse(client.is_model_ready("nothing"))
        self.assertEqual(self.http.get_server_metadata()["name"], "telegrad")
        self.assertEqual(self.grpc.get_server_metadata(as_json=True)["extensions"],
                         self.http.get_server_metadata()["extensions"])
        self.assertEqual(self.http.get_model_metadata("add")["inputs"],
                         [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}])
        self.assertEqual(list(self.grpc.get_model_metadata("add").inputs[0].shape), [-1, 4])
        self.assertEqual(self.grpc.get_model_config("add").config.max_batch_size,
                         self.http.get_model_config("add")["max_batch_size"])

    def test_infers_over_grpc(self):
        result = self.grpc.infer("add", self.inputs(grpc_client), request_id="7",
                                 outputs=[grpc_client.InferRequestedOutput("y")])
        np.testing.assert_array_equal(result.as_numpy("y"), self.VALUES + 1)
        self.assertEqual(result.get_response().id, "7")
        answers = queue.Queue()
        for _ in range(8):
            self.grpc.async_infer("add", self.inputs(grpc_client),
                                  callback=lambda result, error: answers.put((result, error)))
        for _ in range(8):
            result, error = answers.get(timeout=60)
            self.assertIsNone(error)
            np.testing.assert_array_equal(result.as_numpy("y"), self.VALUES + 1)

    def test_infers_over_http_as_json_and_as_binary(self):
        for binary_in in (False, True):
            for binary_out in (False, True):
                with self.subTest(binary_in=binary_in, binary_out=binary_out):
                    result = self.http.infer(
                        "add", self.inputs(http_client, binary_data=binary_in),
                        outputs=[http_client.InferRequestedOutput("y", binary_data=binary_out)])
                    np.testing.assert_array_equal(result.as_numpy("y"), self.VALUES + 1)
        handles = [self.http.async_infer("add", self.inputs(http_client)) for _ in range(8)]
        for handle in handles:
            np.testing.assert_array_equal(handle.get_result().as_numpy("y"), self.VALUES + 1)

    def test_infers_a_large_tensor(self):
        values = np.random.default_rng(1).random((32, 4), dtype=np.float32)
        for client, module in ((self.grpc, grpc_client), (self.http, http_client)):
            result = client.infer("add", self.inputs(module, values))
            np.testing.assert_array_equal(result.as_numpy("y"), values + np.float32(1))

    def test_classifies(self):
        for client, module in ((self.grpc, grpc_client), (self.http, http_client)):
            result = client.infer("add", self.inputs(module),
                                  outputs=[module.InferRequestedOutput("y", class_count=2)])
            self.assertEqual(result.as_numpy("y").tolist(),
                             [[b"4.000000:3", b"3.000000:2"], [b"8.000000:3", b"7.000000:2"]])

    def test_infers_with_asyncio(self):
        async def run():
            async with grpc_aio.InferenceServerClient(self.daemon.address) as client:
                results = await asyncio.gather(
                    *(client.infer("add", self.inputs(grpc_client)) for _ in range(8)))
            async with http_aio.InferenceServerClient(self.daemon.http) as client:
                results.append(await client.infer("add", self.inputs(http_client)))
            for result in results:
                np.testing.assert_array_equal(result.as_numpy("y"), self.VALUES + 1)

        asyncio.run(run())

    def test_streams(self):
        answers = queue.Queue()
        with grpc_client.InferenceServerClient(self.daemon.address) as client:
            client.start_stream(callback=lambda result, error: answers.put((result, error)))
            for i in range(20):
                client.async_stream_infer("add", self.inputs(grpc_client, self.VALUES + i),
                                          request_id=str(i))
            client.async_stream_infer("nothing", self.inputs(grpc_client))
            for i in range(20):
                result, error = answers.get(timeout=60)
                self.assertIsNone(error)
                self.assertEqual(result.get_response().id, str(i))
                np.testing.assert_array_equal(result.as_numpy("y"), self.VALUES + i + 1)
            result, error = answers.get(timeout=60)
            self.assertIsNone(result)
            self.assertIn("unknown model", str(error))
            client.stop_stream()

    def test_says_what_was_wrong(self):
        for client, module in ((self.grpc, grpc_client), (self.http, http_client)):
            with self.assertRaisesRegex(InferenceServerException, "unknown model"):
                client.infer("nothing", self.inputs(module))
            with self.assertRaisesRegex(InferenceServerException, "has shape"):
                client.infer("add", self.inputs(module, np.zeros((1, 5), np.float32)))
            with self.assertRaisesRegex(InferenceServerException, "NOT_FOUND|not found|version"):
                client.infer("add", self.inputs(module), model_version="3")

    def test_loads_and_unloads(self):
        for client, module in ((self.grpc, grpc_client), (self.http, http_client)):
            client.unload_model("other")
            self.assertFalse(client.is_model_ready("other"))
            client.load_model("other")
            self.assertTrue(client.is_model_ready("other"))
            result = client.infer("other", self.inputs(module))
            np.testing.assert_array_equal(result.as_numpy("y"), self.VALUES + 2)
            with self.assertRaises(InferenceServerException):
                client.load_model("nothing")
            with self.assertRaisesRegex(InferenceServerException, "not known"):
                client.load_model("other", files={"model.onnx": b""})
        index = {m["name"]: m["state"] for m in self.http.get_model_repository_index()}
        self.assertEqual(index, {"add": "READY", "other": "READY", "sum": "READY"})
        index = {m.name: m.state for m in self.grpc.get_model_repository_index().models}
        self.assertEqual(index, {"add": "READY", "other": "READY", "sum": "READY"})

    def test_loads_what_it_brings_along(self):
        """As Triton's documentation has it: a configuration alone, and with the files of a folder."""
        with tempfile.TemporaryDirectory() as folder:
            add_model(folder, "given", 5)
            with open(os.path.join(folder, "given", "1", "model.onnx"), "rb") as file:
                model = file.read()
        for client, module in ((self.grpc, grpc_client), (self.http, http_client)):
            config = json.dumps({"max_batch_size": 3, "backend": "onnxruntime"})
            client.load_model("other", config=config)
            read = client.get_model_config("other", as_json=True) if module is grpc_client else None
            read = read["config"] if read else client.get_model_config("other")
            self.assertEqual(read["max_batch_size"], 3)
            np.testing.assert_array_equal(client.infer("other", self.inputs(module)).as_numpy("y"), self.VALUES + 2)
            client.load_model("other", config=config, files={"file:7/model.onnx": model})
            result = client.infer("other", self.inputs(module), model_version="7")
            np.testing.assert_array_equal(result.as_numpy("y"), self.VALUES + 5)
            for files in ({"file:7/model.onnx": b"no model"}, {"file:../model.onnx": model}):
                with self.assertRaises(InferenceServerException):
                    client.load_model("other", config=config, files=files)
            with self.assertRaisesRegex(InferenceServerException, "config"):
                client.load_model("other", files={"file:7/model.onnx": model})
            self.assertTrue(client.is_model_ready("other", "7"))
            client.load_model("other")
            self.assertFalse(client.is_model_ready("other", "7"))
            np.testing.assert_array_equal(client.infer("other", self.inputs(module)).as_numpy("y"), self.VALUES + 2)
            client.load_model("new", config=config, files={"file:1/model.onnx": model})
            np.testing.assert_array_equal(client.infer("new", self.inputs(module)).as_numpy("y"), self.VALUES + 5)
            client.unload_model("new")
            self.assertFalse(client.is_model_ready("new"))

    def test_sequences(self):
        for client, module in ((self.grpc, grpc_client), (self.http, http_client)):
            sums = {}
            for step in range(4):
                for name in (7, "seven", 8):
                    value = float(step + len(str(name)))
                    sums[name] = sums.get(name, 0) + value
                    result = client.infer("sum", self.inputs(module, np.array([[value]], np.float32)), sequence_id=name,
                                          sequence_start=step == 0, sequence_end=step == 3)
                    self.assertEqual(result.as_numpy("y")[0, 0], sums[name])
            with self.assertRaisesRegex(InferenceServerException, "not under way"):
                client.infer("sum", self.inputs(module, np.zeros((1, 1), np.float32)), sequence_id=7)
        answers = queue.Queue()
        with grpc_client.InferenceServerClient(self.daemon.address) as client:
            client.start_stream(callback=lambda result, error: answers.put((result, error)))
            for step in range(10):
                client.async_stream_infer("sum", self.inputs(grpc_client, np.ones((1, 1), np.float32)), sequence_id=9,
                                          sequence_start=step == 0, sequence_end=step == 9)
            for step in range(10):
                result, error = answers.get(timeout=60)
                self.assertIsNone(error)
                self.assertEqual(result.as_numpy("y")[0, 0], step + 1)
            client.stop_stream()

    def test_traces_and_logs(self):
        for client in (self.grpc, self.http):
            client.update_trace_settings("add", {"trace_level": ["TIMESTAMPS"], "trace_rate": "5"})
            client.update_trace_settings("add", {"trace_level": None, "trace_rate": None})
            with self.assertRaises(InferenceServerException):
                client.update_trace_settings("add", {"trace_file": "x"})
            with self.assertRaises(InferenceServerException):
                client.update_log_settings({"log_file": "x"})
        self.assertEqual(self.http.get_trace_settings("add")["trace_level"], ["OFF"])
        settings = self.grpc.get_trace_settings("add", as_json=True)["settings"]
        self.assertEqual(settings["trace_rate"], {"value": ["1000"]})
        self.assertFalse(self.http.get_log_settings()["log_info"])
        self.grpc.update_log_settings({"log_error": True})
        self.assertTrue(self.http.get_log_settings()["log_error"])
        self.http.update_log_settings({"log_error": False})

    def test_counts(self):
        before = self.http.get_inference_statistics("add")["model_stats"][0]
        self.grpc.infer("add", self.inputs(grpc_client))
        after = self.grpc.get_inference_statistics("add").model_stats[0]
        self.assertEqual(after.inference_count - before["inference_count"], 2)
        self.assertEqual(after.execution_count - before["execution_count"], 1)

    def test_shared_memory_is_refused(self):
        with self.assertRaises(InferenceServerException):
            self.grpc.register_system_shared_memory("r", "/r", 16)
        with self.assertRaises(InferenceServerException):
            self.http.register_system_shared_memory("r", "/r", 16)
        handle = base64.b64encode(bytes(64)).decode()
        for client in (self.grpc, self.http):
            with self.assertRaisesRegex(InferenceServerException, "models-cuda-shared-memory"):
                client.register_cuda_shared_memory("r", handle, 0, 16)
        x = grpc_client.InferInput("x", [1, 4], "FP32")
        x.set_shared_memory("r", 16)
        with self.assertRaisesRegex(InferenceServerException, "shared memory"):
            self.grpc.infer("add", [x])

    def test_shared_memory(self):
        prefix = f"tgpy{os.getpid()}-"
        with tempfile.TemporaryDirectory() as folder:
            add_model(folder, "add", 1)
            daemon = Daemon("--models", folder, "--models-shared-memory", prefix)
            try:
                self.check_shared_memory(daemon, f"/{prefix}local@t")
            finally:
                daemon.stop()

    def test_cuda_shared_memory(self):
        """As far as it goes without a GPU: calls arrive, and say what is missing."""
        with tempfile.TemporaryDirectory() as folder:
            add_model(folder, "add", 1)
            daemon = Daemon("--models", folder, "--models-cuda-shared-memory", "local", "--cuda-devices", "0")
            try:
                handle = base64.b64encode(bytes(64)).decode()
                for module, address in ((grpc_client, daemon.address), (http_client, daemon.http)):
                    client = module.InferenceServerClient(address)
                    with self.assertRaisesRegex(InferenceServerException, "no CUDA device"):
                        client.register_cuda_shared_memory("t", handle, 0, 16)
                    self.assertNotIn("'t'", str(client.get_cuda_shared_memory_status()))
                    client.unregister_cuda_shared_memory("t")
                    client.unregister_cuda_shared_memory()
                    client.close()
            finally:
                daemon.stop()

    def check_shared_memory(self, daemon, key):
        memory = shared_memory.create_shared_memory_region("t", key, 32)
        try:
            shared_memory.set_shared_memory_region(memory, [self.VALUES[:1]])
            for module, address in ((grpc_client, daemon.address), (http_client, daemon.http)):
                client = module.InferenceServerClient(address)
                deadline = time.monotonic() + 120
                while not client.is_model_ready("add") and time.monotonic() < deadline:
                    pass
                client.register_system_shared_memory("t", key, 32)
                self.assertIn("t", str(client.get_system_shared_memory_status()))
                x = module.InferInput("x", [1, 4], "FP32")
                x.set_shared_memory("t", 16)
                y = module.InferRequestedOutput("y")
                y.set_shared_memory("t", 16, offset=16)
                client.infer("add", [x], outputs=[y])
                got = shared_memory.get_contents_as_numpy(memory, np.float32, [1, 4], offset=16)
                np.testing.assert_array_equal(got, self.VALUES[:1] + 1)
                client.unregister_system_shared_memory()
                self.assertNotIn("'t'", str(client.get_system_shared_memory_status()))
                client.close()
        finally:
            shared_memory.destroy_shared_memory_region(memory)


class ProtocolTest(unittest.TestCase):
    """Every message and field of ours is one of theirs, with the same number and type."""

    def test_numbers(self):
        from google.protobuf import descriptor_pb2
        protoc = os.environ.get("PROTOC", "protoc")
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "ours")
            try:
                subprocess.run([protoc, "-I", os.path.join(ROOT, "proto"), "--include_imports", "-o", out,
                                "inference/grpc_service.proto"], check=True)
            except FileNotFoundError:
                self.skipTest("there is no protoc")
            with open(out, "rb") as file:
                ours = descriptor_pb2.FileDescriptorSet.FromString(file.read())
        theirs = {}

        def known(message, prefix):
            name = prefix + message.name
            theirs[name] = {(f.name, f.number, f.type, f.label, f.type_name) for f in message.field}
            for enum in message.enum_type:
                theirs[name + "." + enum.name] = {(v.name, v.number) for v in enum.value}
            for nested in message.nested_type:
                known(nested, name + ".")

        for module in (service_pb2, model_config_pb2):
            file = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            for message in file.message_type:
                known(message, "")
            for enum in file.enum_type:
                theirs[enum.name] = {(v.name, v.number) for v in enum.value}
        compared = 0

        def compare(message, prefix):
            nonlocal compared
            name = prefix + message.name
            for f in message.field:
                if f.number >= 1000 and f.number not in {row[1] for row in theirs[name]}:
                    continue  # Telegrad's own
                self.assertIn((f.name, f.number, f.type, f.label, f.type_name), theirs[name], name)
                compared += 1
            for enum in message.enum_type:
                self.assertLessEqual({(v.name, v.number) for v in enum.value}, theirs[name + "." + enum.name])
            for nested in message.nested_type:
                compare(nested, name + ".")

        for file in ours.file:
            for message in file.message_type:
                compare(message, "")
        self.assertGreater(compared, 100)


if __name__ == "__main__":
    unittest.main()
