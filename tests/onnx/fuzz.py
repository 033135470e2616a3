#!/usr/bin/env python3
"""Random attributes, shapes and types of ONNX operators against independent implementations.

Each case is a model of one node. What it must compute comes from ONNX Runtime (--judge ort), ONNX's
reference evaluator (--judge onnx), or both, where they agree (--judge both). Cases that the judges
cannot run are left out and counted; where they differ, the standard's text judges, and the table
says with whom we agree (tests/onnx/differences.md has the reasons). The cases are written as folders, as ONNX's own are, and
onnx_conformance runs them.

  fuzz.py --runner build/release/tests/onnx/onnx_conformance [--cases 500] [--seed S]
          [--judge both] [--ops Resize,Conv] [--keep FOLDER]

Exit code 0: no difference, 1: differences, 77: onnx or onnxruntime is not installed.
"""

import argparse
import collections
import os
import random
import subprocess
import sys
import tempfile
import warnings

SKIPPED = 77
try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator
except ImportError as error:
    print(f"skipped: {error}; pip install onnx onnxruntime")
    sys.exit(SKIPPED)

warnings.filterwarnings("ignore")
onnxruntime.set_default_logger_severity(4)

CASE_SECONDS = "600"  # a machine that is busy otherwise is no difference
FLOATS = [np.float32, np.float32, np.float32, np.float64, np.float16]
INTS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


class Case:
    """A node with its inputs; those in `fixed` are initializers."""

    def __init__(self, op, inputs, opset=21, outputs=1, domain="", fixed=(), **attributes):
        self.op, self.opset, self.domain = op, opset, domain
        self.inputs, self.fixed, self.count = inputs, set(fixed), outputs
        self.attributes = {k.removesuffix("_attribute"): v for k, v in attributes.items() if v is not None}

    def model(self, out_types=None):
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.inputs)]
        outs = [f"y{i}" for i in range(self.count)]
        node = helper.make_node(self.op, names, outs, domain=self.domain, **self.attributes)
        values, constants = [], []
        for i, x in enumerate(self.inputs):
            if x is None:
                continue
            if i in self.fixed:
                constants.append(numpy_helper.from_array(x, names[i]))
            else:
                kind = helper.np_dtype_to_tensor_dtype(x.dtype)
                values.append(helper.make_tensor_value_info(names[i], kind, x.shape))
        results = []
        for i, name in enumerate(outs):
            info = helper.ValueInfoProto()
            info.name = name
            if out_types:
                info = helper.make_tensor_value_info(name, out_types[i], None)
            results.append(info)
        graph = helper.make_graph([node], "fuzz", values, results, constants)
        opsets = [helper.make_opsetid("", self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, 3 if self.domain == "ai.onnx.ml" else 1))
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 10
        return model

    def feeds(self):
        return {f"x{i}": x for i, x in enumerate(self.inputs)
                if x is not None and i not in self.fixed}


class Draw:
    """Random choices."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.np = np.random.RandomState(seed & 0x7FFFFFFF)

    def one(self, *items):
        return self.r.choice(items)

    def maybe(self, value, p=0.5):
        return value if self.r.random() < p else None

    def int(self, low, high):
        return self.r.randint(low, high)

    def shape(self, low=0, high=4, size=5):
        return tuple(self.int(1, size) for _ in range(self.int(low, high)))

    def float(self, shape, dtype=np.float32, scale=2.0):
        return np.asarray(self.np.standard_normal(shape) * scale).astype(dtype)

    def ints(self, shape, dtype=np.int64, low=None, high=None):
        info = np.iinfo(dtype)
        low = max(info.min, -20) if low is None else low
        high = min(info.max, 20) if high is None else high
        return self.np.randint(low, high + 1, size=shape).astype(dtype)

    def any(self, shape, dtype):
        if dtype == np.bool_:
            return self.np.randint(0, 2, size=shape).astype(np.bool_)
        return self.float(shape, dtype) if np.issubdtype(dtype, np.floating) else self.ints(shape, dtype)

    def broadcast(self, shape):
        """A shape that broadcasts with `shape`."""
        out = [n if self.r.random() < 0.7 else 1 for n in shape]
        return tuple(out[self.int(0, len(out)):] if self.r.random() < 0.3 else out)

    def axis(self, rank):
        return self.int(-rank, rank - 1)


MAKERS = {}


def maker(*names):
    def register(function):
        for name in names:
            MAKERS[name] = (function, name)
        return function
    return register


sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fuzz_composed  # noqa: E402
import fuzz_domains  # noqa: E402
import fuzz_edges  # noqa: E402
import fuzz_elementwise  # noqa: E402
import fuzz_moving  # noqa: E402
import fuzz_windows  # noqa: E402

for module in (fuzz_elementwise, fuzz_windows, fuzz_moving, fuzz_composed, fuzz_domains, fuzz_edges):
    module.register(maker, Case, FLOATS, INTS)


def run_ort(case):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # A pool of threads for each case would cost more than the cases.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(case.model().SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    return session.run(None, case.feeds())


def run_onnx(case):
    return ReferenceEvaluator(case.model()).run(None, case.feeds())


def attempt(function, case):
    try:
        return [np.asarray(x) for x in function(case)]
    except Exception:  # the judge does not support it
        return None


def close(a, b):
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not np.issubdtype(a.dtype, np.floating):
        return np.array_equal(a, b)
    rtol = 1e-2 if a.dtype == np.float16 else 1e-3
    return np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=rtol, atol=rtol * 1e-2,
                       equal_nan=True)


def judged(case, judge):
    """The results, or why there are none; in the latter case also both judges' results, if they differ."""
    ort = attempt(run_ort, case) if judge != "onnx" else None
    ref = attempt(run_onnx, case) if judge != "ort" else None
    if ort is not None and ref is not None:
        if len(ort) == len(ref) and all(close(a, b) for a, b in zip(ort, ref)):
            return ort, None, None
        return None, "judges differ", (ort, ref)
    out = ort if ort is not None else ref
    return (out, None, None) if out is not None else (None, "not judged", None)


def tolerance(results):
    """What the judges' own rounding may be: a few units in the last place of the largest result."""
    finite = [np.abs(x[np.isfinite(x)].astype(np.float64)) for x in results
              if np.issubdtype(x.dtype, np.floating)]
    return max([1e-7] + [2e-6 * x.max() for x in finite if x.size])


def write(case, results, folder):
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data)
    types = [helper.np_dtype_to_tensor_dtype(x.dtype) for x in results]
    with open(os.path.join(folder, "model.onnx"), "wb") as f:
        f.write(case.model(types).SerializeToString())
    for kind, values in (("input", list(case.feeds().values())), ("output", results)):
        for i, x in enumerate(values):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                f.write(numpy_helper.from_array(np.asarray(x)).SerializeToString())


class Folder:
    """A folder of cases and its manifest."""

    def __init__(self, path):
        self.path, self.rows = path, []
        os.makedirs(path, exist_ok=True)

    def add(self, case_name, name, case, results):
        write(case, results, os.path.join(self.path, case_name))
        self.rows.append((case_name, name, tolerance(results)))

    def close(self):
        with open(os.path.join(self.path, "manifest.tsv"), "w", encoding="utf-8") as f:
            f.write("case\top\tatol\n")
            f.writelines(f"{case}\t{op}\t{atol}\n" for case, op, atol in self.rows)


def side_with(runner, folder):
    """Prints how many cases of those on which the judges differ agree with either, and which with none."""
    done = subprocess.run([runner, "--timeout", CASE_SECONDS, "--all", folder.path], check=False, capture_output=True, text=True)
    lines = [line.split()[:2] for line in done.stdout.splitlines() if line.startswith(("pass ", "FAIL "))]
    passed = {name for kind, name in lines if kind == "pass"}
    sides, none = collections.Counter(), []
    for case_name, name, _ in folder.rows[::2]:
        stem = case_name.removesuffix("_ort")
        agree = [judge for judge in ("ort", "onnx") if f"{stem}_{judge}" in passed]
        sides[(name, "+".join(agree) or "neither")] += 1
        none += [] if agree else [stem]
    print("where the judges differ:", ", ".join(f"{n} as {s} {k}" for (n, s), k in sorted(sides.items())))
    if none:
        print("as neither:", " ".join(none))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runner", required=True, help="the program onnx_conformance")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--judge", choices=["ort", "onnx", "both"], default="both")
    parser.add_argument("--ops", default="", help="only these, separated by commas")
    parser.add_argument("--keep", default="", help="write the cases into this new folder and keep it")
    parser.add_argument("--write-only", action="store_true", help="do not run them")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(31)
    print(f"seed {seed}, onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
    names = [n for n in options.ops.split(",") if n] or sorted(MAKERS)
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or temporary
        folder, disputed = Folder(root), Folder(os.path.join(root, "disputed"))
        reasons, made = collections.Counter(), collections.Counter()
        for i in range(options.cases):
            function, name = MAKERS[names[i % len(names)]]
            case = function(Draw(seed * 1000003 + i), name)
            case_name = f"{name.replace('.', '_').replace(':', '_')}_{i}"
            results, reason, both = judged(case, options.judge)
            if results is None:
                reasons[(name, reason)] += 1
                for judge, one in zip(("ort", "onnx"), both or ()):
                    disputed.add(f"{case_name}_{judge}", name, case, one)
                continue
            made[name] += 1
            folder.add(case_name, name, case, results)
        folder.close()
        disputed.close()
        print(f"{sum(made.values())} cases of {len(made)} operators; left out:",
              ", ".join(f"{n} {why} {k}" for (n, why), k in sorted(reasons.items())) or "none")
        if options.write_only:
            return 0
        if not made:
            print("no case was judged")
            return 1
        if disputed.rows:
            side_with(options.runner, disputed)
        done = subprocess.run([options.runner, "--timeout", CASE_SECONDS, root], check=False)
        return 0 if done.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
