"""tinygrad's own tests on Telegrad, beside its CPU device in the same run.

  python3 tests/tinygrad/suite.py CHECKOUT [--telegradd PROGRAM] [test/test_tiny.py ...]

CHECKOUT is a checkout of tinygrad, used as it is; --tinygrad names another tinygrad for its tests, such as the release
from PyPI, whose archive has none. A test counts where CPU passes it: skipped on TELEGRAD it counts as failed. What asserts
how many kernels tinygrad's own scheduler makes has a column of its own, for that scheduler does not run here.

The CPU device wants a C compiler ($CC, or clang), and many of the tests want PyTorch, pytest and hypothesis.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

# Each as the first of these folders that has it: tinygrad moved them between the release and later.
FOLDERS = ["test", "test/backend", "test/unit"]
FILES = ["test_tiny", "test_ops", "test_tensor", "test_nn", "test_optim", "test_jit", "test_setitem", "test_symbolic_ops",
         "test_symbolic_jit", "test_tensor_variable", "test_multitensor", "test_randomness", "test_dtype", "test_dtype_alu",
         "test_arange", "test_edgecases", "test_const_folding", "test_pickle", "test_subbuffer", "test_to_numpy",
         "test_transcendental", "test_interop", "unit/test_assign", "unit/test_attention", "unit/test_conv",
         "unit/test_disk_tensor", "unit/test_dtype_weak", "unit/test_function", "unit/test_gradient", "unit/test_getitem_ops",
         "unit/test_indexing", "unit/test_invalid_tensor", "unit/test_jit_cases", "unit/test_jit_footguns",
         "unit/test_linalg", "unit/test_masked_tensor", "unit/test_multitensor", "unit/test_randomness",
         "unit/test_symbolic_tensor", "unit/test_tensor_data", "unit/test_tensor_io", "unit/test_winograd",
         "unit/test_allreduce", "unit/test_call", "unit/test_callify", "unit/test_dtype_spec", "unit/test_gguf", "unit/test_hashing",
         "unit/test_helpers", "unit/test_jit", "unit/test_llm_mla", "unit/test_llm_moe", "unit/test_llm_server",
         "unit/test_realize_is_realize", "unit/test_rearrange_einops", "unit/test_schedule_cache", "unit/test_setitem_schedule",
         "unit/test_shm_tensor", "unit/test_tar", "unit/test_tinyfs"]
SLOW = ("test_nn", "test_optim")  # whose tests tinygrad skips unless it is told to run slow ones
PACKAGE = HERE.parents[1] / "client" / "python"
OF_THE_SCHEDULER = ("KernelCountException", "SCHEDULE ISSUE")

# What CPU passes and Telegrad does not, for a reason. They count as failures all the same.
KNOWN = {
    "TestAllreduceCast::test_allreduce_cast_bf16": "looks at the copies that tinygrad's own scheduler makes",
    "TestAllreduceCast::test_allreduce_cast_half": "looks at the copies that tinygrad's own scheduler makes",
    "TestJit::test_jitbeam_triggers_beam": "counts calls of tinygrad's own search; here the server searches",
    "TestAssign::test_assign_diamond_cycle": "wants an error for an order of reads and writes that runs here",
    "TestAssign::test_assign_diamond_contiguous_cycle": "wants an error for an order of reads and writes that runs here",
    "TestAssign::test_crossunder_assign": "wants an error for an order of reads and writes that runs here",
    "TestAssignOrdering::test_war_reader_already_depends_on_write": "wants 16 where its comment and Telegrad say 15",
    "TestJit::test_hcq_core_id_runtimevar_merge": "of the number of the CPU core that runs a kernel",
    "TestJitFree::test_free_intermediates": "wants memory back that a captured call never allocates here",
    "TestNoRedundantWide::test_unbounded_long_stays_long": "looks at the source of tinygrad's own kernels",
    "TestFp8sConversions::test_fp8e5m2fnuz_to_float_smallest_normals": "of tinygrad's emulation of a type that the server has",
    "TestIndexing::test_embedding_backward_padded_embed": "of an atomic addition that only its AMD and CPU have",
    "TestIndexing::test_embedding_backward_vocab_sharded": "of an atomic addition that only its AMD and CPU have",
    "TestIndexing::test_llama_8b_embedding_backward": "of an atomic addition that only its AMD and CPU have"}
CUSTOM = "custom kernel"


def reason(test, mine):
  known = KNOWN.get(test.partition("::")[2])
  return known or ("custom kernels are refused by name" if CUSTOM in mine["why"] else "")


def place_of(checkout, name):
  if "/" in name: return next((p for p in (name, f"test/{name}.py") if (checkout / p).is_file()), None)
  return next((f"{folder}/{name}.py" for folder in FOLDERS if (checkout / folder / f"{name}.py").is_file()), None)


def outcomes(args, file, device, address, report):
  """What each test came to, by its name."""
  path = os.pathsep.join([str(HERE), str(PACKAGE), *([str(args.tinygrad.resolve())] if args.tinygrad else []), str(args.checkout)])
  command = [sys.executable, "-m", "pytest", "-q", "-p", "suite_plugin", "-p", "no:cacheprovider", str(args.checkout / file)]
  env = os.environ | {"DEV": device, "PYTHONPATH": path, "TELEGRAD_ADDRESS": address, "SUITE_REPORT": str(report),
                      "SUITE_LIMIT": str(args.test_limit)}
  if pathlib.Path(file).stem in SLOW: env["RUN_SLOW"] = "1"
  with tempfile.TemporaryFile() as output:
    ran = subprocess.Popen(command, cwd=args.checkout, stdout=output, stderr=subprocess.STDOUT, env=env,
                           start_new_session=True)
    try: ran.wait(args.limit)
    except subprocess.TimeoutExpired:
      os.killpg(ran.pid, signal.SIGKILL)
      ran.wait()
      print(f"  {file} on {device} was stopped after {args.limit:g} s")
    except BaseException:
      os.killpg(ran.pid, signal.SIGKILL)
      raise
    if ran.returncode not in (0, 1, 5, -signal.SIGKILL) or not report.exists():
      output.seek(0)
      print(f"  {file} on {device} ended with {ran.returncode}: " + output.read().decode(errors="replace").strip()[-300:])
  return read(report)


def read(report):
  rows = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
  out = {}
  for row in rows:  # a test that fails when it is torn down has two
    if out.get(row["test"], {}).get("outcome") != "failed": out[row["test"]] = row
  return out


def compare(theirs, ours):
  """Names of the tests that CPU passes: those that pass here, those that ask for kernels of tinygrad's scheduler, others."""
  passed, scheduler, failed = [], [], []
  for name, row in theirs.items():
    if row["outcome"] != "passed": continue
    mine = ours.get(name, {"outcome": "missing", "why": ""})
    if mine["outcome"] == "passed": passed.append(name)
    elif any(word in mine["why"] for word in OF_THE_SCHEDULER): scheduler.append(name)
    else: failed.append(name)
  return passed, scheduler, failed


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("checkout", type=pathlib.Path)
  parser.add_argument("--tinygrad", type=pathlib.Path, metavar="DIR", help="the folder that has the package tinygrad to test")
  parser.add_argument("--telegradd", help="the daemon's program (default: the build's)")
  parser.add_argument("--limit", type=float, default=1800, metavar="SECONDS", help="for a file on a device")
  parser.add_argument("--test-limit", type=float, default=120, metavar="SECONDS", help="for a test")
  parser.add_argument("--keep", type=pathlib.Path, metavar="DIR",
                      help="keep the outcomes there; those of CPU that are there are not made again")
  parser.add_argument("files", nargs="*")
  args = parser.parse_intermixed_args()
  args.checkout = args.checkout.resolve()
  if args.telegradd: os.environ["TELEGRADD"] = args.telegradd
  import support
  folder = tempfile.TemporaryDirectory()
  keep = args.keep or pathlib.Path(folder.name)
  keep.mkdir(parents=True, exist_ok=True)
  daemon = support.Daemon("--cpu-devices", "8", "--cpu-memory", str(4 << 30), "--search-seconds", "1")  # for BEAM
  sums, wrong = [0, 0, 0, 0], []
  print(f"{'file':36s} {'CPU passes':>10s} {'TELEGRAD too':>12s} {'scheduler':>9s} {'fails':>6s}", flush=True)
  try:
    for name in args.files or FILES:
      file = place_of(args.checkout, name)
      if file is None:
        print(f"{name:36s} is not there")
        continue
      reports = {device: keep / f"{file.replace('/', '.')}.{device}.jsonl" for device in ("CPU", "TELEGRAD")}
      reports["TELEGRAD"].unlink(missing_ok=True)
      theirs = read(reports["CPU"]) or outcomes(args, file, "CPU", daemon.address, reports["CPU"])
      ours = outcomes(args, file, "TELEGRAD", daemon.address, reports["TELEGRAD"])
      passed, scheduler, failed = compare(theirs, ours)
      row = [len(passed) + len(scheduler) + len(failed), len(passed), len(scheduler), len(failed)]
      sums = [a + b for a, b in zip(sums, row)]
      print(f"{file:36s} {row[0]:10d} {row[1]:12d} {row[2]:9d} {row[3]:6d}", flush=True)
      for test in failed:
        mine = ours.get(test, {"outcome": "missing", "why": ""})
        why = reason(test, mine)
        wrong += [] if why else [test]
        print(f"  {mine['outcome']} {test.partition('::')[2]}: {'known: ' + why if why else mine['why'][:200]}", flush=True)
  finally:
    daemon.stop()
    folder.cleanup()
  counted = sums[0] - sums[2]
  print(f"{sums[1]} of {counted} tests that pass on CPU and do not ask for kernels of tinygrad's scheduler pass on TELEGRAD"
        f" ({100 * sums[1] / max(counted, 1):.2f} %); {sums[2]} ask for them; "
        f"{sums[3] - len(wrong)} of the {sums[3]} that fail do for a known reason")
  return int(bool(wrong) or not counted)


if __name__ == "__main__": sys.exit(main())
