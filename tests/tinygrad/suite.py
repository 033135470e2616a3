"""tinygrad's own tests on Telegrad, beside its CPU device in the same run.

  python3 tests/tinygrad/suite.py --checkout DIR [--telegradd PROGRAM] [test/test_tiny.py ...]

DIR is a checkout of tinygrad, or its unpacked source distribution; both are used as they are. A test counts where CPU
passes it: skipped on TELEGRAD it counts as failed. The CPU device wants a C compiler ($CC, or clang).
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

FILES = ["test/test_tiny.py", "test/test_ops.py", "test/test_tensor.py", "test/test_nn.py", "test/test_optim.py", "test/test_jit.py",
         "test/test_setitem.py", "test/test_symbolic_ops.py", "test/test_symbolic_jit.py", "test/test_tensor_variable.py",
         "test/test_multitensor.py", "test/test_randomness.py", "test/test_dtype.py", "test/test_dtype_alu.py"]
PACKAGE = HERE.parents[1] / "client" / "python"
# What .pth does where the package is installed.
PLUGIN = "import telegrad.tinygrad\n"


def outcomes(checkout, file, device, address, limit):
  """passed, failed or skipped, by the name of the test; None: the file did not run."""
  with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "telegrad_plugin.py").write_text(PLUGIN)
    path = os.pathsep.join([folder, str(PACKAGE), str(checkout)])
    report = pathlib.Path(folder, "report.xml")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "telegrad_plugin", f"--junitxml={report}", str(checkout / file)]
    try:
      ran = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=limit,
                           env=os.environ | {"DEV": device, "PYTHONPATH": path, "TELEGRAD_ADDRESS": address})
    except subprocess.TimeoutExpired: return None, f"more than {limit} s"
    if not report.exists(): return None, (ran.stderr or ran.stdout).strip().splitlines()[-1:]
    out, why = {}, {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
      name = f"{case.get('classname').split('.')[-1]}.{case.get('name')}"
      kinds = {child.tag: child for child in case}
      out[name] = "failed" if "failure" in kinds or "error" in kinds else "skipped" if "skipped" in kinds else "passed"
      for tag in ("failure", "error"):
        if tag in kinds: why[name] = (kinds[tag].get("message") or "").splitlines()[:1]
    return out, why


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--checkout", type=pathlib.Path, required=True)
  parser.add_argument("--telegradd", help="the daemon's program (default: the build's)")
  parser.add_argument("--limit", type=float, default=1800, metavar="SECONDS", help="for a file on a device")
  parser.add_argument("files", nargs="*")
  args = parser.parse_args()
  if args.telegradd: os.environ["TELEGRADD"] = args.telegradd
  import support
  daemon = support.Daemon("--cpu-devices", "4", "--cpu-memory", str(4 << 30))
  total = kept = 0
  failed = []
  print(f"{'file':32s} {'CPU passes':>10s} {'of these TELEGRAD':>18s}")
  try:
    for file in args.files or FILES:
      if not (args.checkout / file).exists():
        print(f"{file:32s} is not there")
        continue
      theirs, why_theirs = outcomes(args.checkout.resolve(), file, "CPU", daemon.address, args.limit)
      ours, why = outcomes(args.checkout.resolve(), file, "TELEGRAD", daemon.address, args.limit)
      if theirs is None or ours is None:
        print(f"{file:32s} did not run: {why_theirs if theirs is None else why}")
        failed.append(file)
        continue
      wanted = [name for name, outcome in theirs.items() if outcome == "passed"]
      passed = [name for name in wanted if ours.get(name) == "passed"]
      total, kept = total + len(wanted), kept + len(passed)
      print(f"{file:32s} {len(wanted):10d} {len(passed):18d}")
      for name in wanted:
        if ours.get(name) == "passed": continue
        failed.append(name)
        print(f"  {ours.get(name, 'missing')} {name}: {' '.join(why.get(name, []))[:150]}")
  finally: daemon.stop()
  print(f"{kept} of {total} tests that pass on CPU pass on TELEGRAD")
  return int(bool(failed) or not total)


if __name__ == "__main__": sys.exit(main())
