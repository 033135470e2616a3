"""Runs programs of tests/tinygrad/programs on tinygrad's own CPU backend and keeps each graph it is about to schedule,
with the bytes of its buffers before and after.

  python3 tests/tinygrad/capture.py [--out tests/data/tinygrad] [group ...]

The hook is the name tinygrad.tensor.create_linear_with_vars: it sees the whole tensor graph, with its buffers assigned
and nothing scheduled. A graph is kept once, by the bytes of its message.
"""

import argparse
import collections
import contextlib
import dataclasses
import importlib
import pathlib
import pkgutil
import sys
import traceback
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "client" / "python")]

import numpy as np
import tinygrad.tensor
from tinygrad import Tensor
from tinygrad.device import MultiBuffer
from tinygrad.engine.realize import capturing

import archive
import programs
from telegrad._messages import Graph as GraphMessage
from telegrad.tinygrad import _convert as convert
from telegrad.tinygrad import _vocabulary as vocabulary
from telegrad.tinygrad._graph_builder import DTYPES
from telegrad.tinygrad._vocabulary import Unsupported

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "tinygrad"


@dataclasses.dataclass
class Pending:
  """A call between its capture and the end of its run."""
  converted: convert.Converted
  buffers: list   # by slot
  before: list
  values: list    # of the variables


class Recorder:
  def __init__(self):
    self.program = ""
    self.records = []
    self.seen = {}
    self.ops = collections.Counter()
    self.refused = []
    self.pending = []

  def start(self, call):
    try: converted = convert.convert(call)
    except Unsupported as reason:
      self.refused.append((self.program, str(reason)))
      return
    if converted.graph is None: return
    buffers = [self._buffer(s.buffer, s.instance) for s in converted.slots]
    self._refuse_overlap(converted, buffers)
    before = [bytes(b.as_memoryview()) for b in buffers]
    values = [v.unbind()[1] for v in converted.variables]
    self.pending.append(Pending(converted, buffers, before, values))

  @staticmethod
  def _buffer(u, instance):
    """The memory of a buffer, zeroed if the program has not given it a value yet."""
    buffer = u.buffer
    if isinstance(buffer, MultiBuffer): buffer = buffer.bufs[instance]
    if not buffer.is_allocated():
      buffer.allocate()
      buffer.as_memoryview(force_zero_copy=True)[:] = bytes(buffer.nbytes)
    return buffer

  @staticmethod
  def _refuse_overlap(converted, buffers):
    spans = [(b.base, b.offset, b.offset + b.nbytes) for b in buffers]
    for i in converted.stored:
      for j, (base, begin, end) in enumerate(spans):
        if i != j and base is spans[i][0] and begin < spans[i][2] and spans[i][1] < end:
          raise RuntimeError("a stored slot overlaps another one")

  def finish(self):
    for p in self.pending:
      after = [bytes(b.as_memoryview()) for b in p.buffers]
      slots = []
      for i, b in enumerate(p.buffers):
        stored = i in p.converted.stored
        if not stored and after[i] != p.before[i]: raise RuntimeError(f"slot {i} changed without a store")
        dtype = DTYPES[vocabulary.DTYPES[b.dtype]].wire
        slots.append(archive.SlotRecord(dtype, p.before[i], after[i] if stored else None))
      self._keep(archive.Record(self.program, p.converted.graph.encode(), p.values, slots),
                 p.converted)
    self.pending = []

  def _keep(self, record, converted):
    if record.graph in self.seen: return
    count = sum(r.name.split("#")[0] == record.name for r in self.records)
    if count: record.name += f"#{count + 1}"
    self.seen[record.graph] = record.name
    self.records.append(record)
    self.ops.update(converted.ops)


@contextlib.contextmanager
def hooked(recorder):
  schedule, run = tinygrad.tensor.create_linear_with_vars, tinygrad.tensor.run_linear

  def create_linear_with_vars(call):
    # What TinyJit captures in its second call is the graph of its first, which ran at once.
    if not capturing: recorder.start(call)
    return schedule(call)

  def run_linear(*args, **kwargs):
    result = run(*args, **kwargs)
    recorder.finish()
    return result

  tinygrad.tensor.create_linear_with_vars, tinygrad.tensor.run_linear = create_linear_with_vars, run_linear
  try: yield
  finally:
    tinygrad.tensor.create_linear_with_vars, tinygrad.tensor.run_linear = schedule, run


def capture(recorder, name, program):
  seed = zlib.crc32(name.encode())
  np.random.seed(seed)
  Tensor.manual_seed(seed & 0x7fffffff)
  recorder.program = name
  with hooked(recorder): program()
  recorder.finish()


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--out", type=pathlib.Path, default=DATA)
  parser.add_argument("--only", default="")
  parser.add_argument("groups", nargs="*")
  args = parser.parse_args()
  names = args.groups or sorted(m.name for m in pkgutil.iter_modules(programs.__path__))
  seen, ops, total, failed = {}, collections.Counter(), 0, 0
  for group in names:
    recorder = Recorder()
    recorder.seen = seen
    for name, program in importlib.import_module(f"programs.{group}").PROGRAMS.items():
      if args.only not in name: continue
      try: capture(recorder, name, program)
      except Exception as error:  # a program that this tinygrad cannot run, or a mistake of ours
        failed += 1
        recorder.pending = []
        print(f"  FAILED {group}/{name}: {type(error).__name__}: {error}", file=sys.stderr)
        if args.only: traceback.print_exc()
    for name, reason in recorder.refused: print(f"  refused {group}/{name}: {reason}", file=sys.stderr)
    archive.write(args.out / f"{group}.tgcap", recorder.records)
    nodes = sum(len(GraphMessage.decode(r.graph).nodes) for r in recorder.records)
    print(f"{group}: {len(recorder.records)} graphs, {nodes} nodes")
    total += len(recorder.records)
    ops.update(recorder.ops)
  print(f"{total} graphs; {failed} programs failed; tinygrad ops:", " ".join(f"{k}={v}" for k, v in ops.most_common()))
  return failed != 0


if __name__ == "__main__": sys.exit(main())
