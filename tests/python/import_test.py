"""Models that the server imports: against the outputs that come with them, with both clients."""

import os
import subprocess
import sys
import tempfile

import numpy as np
from support import ConnectedTest, main, path, raises, run_async

import telegrad
from telegrad import Code, aio

sys.path.insert(0, path("client", "python", "examples"))
from import_onnx import read_tensor  # noqa: E402

DATA = path("tests", "data", "onnx")
MNIST = os.path.join(DATA, "mnist_8")


def case(model, number=0):
    """Input and expected output of a test of a model."""
    folder = os.path.join(DATA, model, f"test_data_set_{number}")
    return (read_tensor(os.path.join(folder, "input_0.pb")),
            read_tensor(os.path.join(folder, "output_0.pb")))


class ImportTest(ConnectedTest):
    def test_a_model_gives_what_is_expected(self):
        session = self.session()
        model = session.import_model(os.path.join(MNIST, "model.onnx"))
        self.assertEqual(model.slot("Input3").shape, (1, 1, 28, 28))
        self.assertGreater(len(model.names("weight")), 3)
        self.assertTrue(session.has(model.hash))
        for number in range(3):
            image, expected = case("mnist_8", number)
            got = model({"Input3": image})["Plus214_Output_0"]
            np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-2)

    def test_sizes_that_the_model_names(self):
        """And a compiled graph, and bytes in place of a path."""
        with open(os.path.join(DATA, "super_resolution_10", "model.onnx"), "rb") as file:
            model = self.session().import_model(file.read(), dims={"batch_size": 1}, compile=True)
        image, expected = case("super_resolution_10")
        outputs = model({model.names("input")[0]: image})
        np.testing.assert_allclose(*outputs.values(), expected, rtol=1e-3, atol=1e-4)
        shapes = self.session().import_model(
            os.path.join(DATA, "super_resolution_10", "model.onnx"),
            input_shapes={"input": (2, 1, 224, 224)})
        self.assertEqual(shapes.slot("input").shape, (2, 1, 224, 224))

    def test_shapes_that_values_decide(self):
        """By each run where that can be, else by values that are given with the model."""
        nodes = path("tests", "data", "onnx_nodes")
        model = self.session().import_model(os.path.join(nodes, "test_nonzero_example", "model.onnx"))
        self.assertEqual(model.guards, ())
        for x in ([[1, 0], [1, 1]], [[0, 0], [0, 0]], [[1, 1], [1, 1]]):
            got = model({"condition": np.array(x, bool)})
            self.assertEqual(set(got), {"result"})
            np.testing.assert_array_equal(got["result"], np.array(np.nonzero(np.array(x))))
        slices = os.path.join(nodes, "test_slice_neg_steps", "model.onnx")
        with raises(self, Code.UNIMPLEMENTED, "'axes'"):
            self.session().import_model(slices)
        x = np.random.default_rng(1).standard_normal((20, 10, 5)).astype(np.float32)
        starts, ends, axes = ([20, 10, 4], [0, 0, 1], [0, 1, 2])
        inputs = {"x": x, "starts": np.array(starts), "ends": np.array(ends),
                  "axes": np.array(axes), "steps": np.array([-1, -3, -2])}
        model = self.session().import_model(
            slices, values={name: inputs[name] for name in ("axes", "steps")})
        self.assertEqual(set(model.guards), {"axes", "steps"})
        np.testing.assert_array_equal(model(inputs)["y"], x[20:0:-1, 10:0:-3, 4:1:-2])

    def test_several_models_and_weights_by_name(self):
        session = self.session()
        first, second = (session.import_model(os.path.join(MNIST, "model.onnx")) for _ in range(2))
        name = first.names("weight")[0]
        self.assertNotEqual(first.buffers[name].handle, second.buffers[name].handle)
        np.testing.assert_array_equal(first.read(name), second.read(name))
        image, _ = case("mnist_8")
        before = second({"Input3": image})["Plus214_Output_0"]
        for weight in first.names("weight"):
            buffer = first.buffers[weight]
            if buffer.dtype.name == "f32":
                buffer.write(np.zeros(buffer.shape, np.float32))
        self.assertEqual(np.abs(first({"Input3": image})["Plus214_Output_0"]).max(), 0)
        np.testing.assert_array_equal(second({"Input3": image})["Plus214_Output_0"], before)

    def test_a_large_file_is_uploaded_first(self):
        from telegrad import session as module

        limit, module.MAX_INLINE_MODEL = module.MAX_INLINE_MODEL, 1000
        self.addCleanup(setattr, module, "MAX_INLINE_MODEL", limit)
        image, expected = case("mnist_8")
        model = self.session().import_model(os.path.join(MNIST, "model.onnx"))
        got = model({"Input3": image})["Plus214_Output_0"]
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-2)

    def test_with_asyncio(self):
        async def run():
            async with (await aio.connect(self.daemon.address) as connection,
                        connection.session(timeout=60) as session):
                model = await session.import_model(os.path.join(MNIST, "model.onnx"))
                image, expected = case("mnist_8")
                got = (await model({"Input3": image}))["Plus214_Output_0"]
                np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-2)

        run_async(run())

    def test_what_is_no_model(self):
        session = self.session()
        with open(os.path.join(MNIST, "model.onnx"), "rb") as file:
            model = file.read()
        for bad in (b"\x01", model[:-100], model[:1000]):
            with raises(self, Code.INVALID_ARGUMENT, "(import)"):
                session.import_model(bad)
        with raises(self, Code.UNIMPLEMENTED, "(import)", "tflite"):
            session.import_model(model, format="tflite")
        with raises(self, Code.INVALID_ARGUMENT, "there is no slot 'Input4'"):
            session.import_model(model)({"Input4": 0})
        with raises(self, Code.NOT_FOUND, "CPU:7"):
            session.import_model(model, device="CPU:7")

    def test_the_command_runs_a_model(self):
        image, expected = case("mnist_8")
        with tempfile.TemporaryDirectory() as folder:
            np.save(os.path.join(folder, "x.npy"), image)
            out = subprocess.run(
                [sys.executable, "-B", "-m", "telegrad", "--address", self.daemon.address, "run",
                 os.path.join(MNIST, "model.onnx"), "--input", f"Input3={folder}/x.npy",
                 "--output", f"Plus214_Output_0={folder}/y.npy"],
                stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
            self.assertIn("f32[1, 10]", out)
            np.testing.assert_allclose(np.load(os.path.join(folder, "y.npy")), expected, rtol=1e-3,
                                       atol=1e-2)

    def test_the_example(self):
        out = subprocess.run(
            [sys.executable, "-B", path("client", "python", "examples", "import_onnx.py"),
             self.daemon.address], stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
        self.assertIn("image 0 shows a ", out)
        self.assertLess(float(out.rsplit(" ", 1)[1]), 1e-2)


if __name__ == "__main__":
    main()
