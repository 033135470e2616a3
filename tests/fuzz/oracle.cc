// Only what has one right result is compared, bit by bit: a value that depends on a float sum or
// product over many elements, or on an op that may be some ulp off, is left out, and so is what
// depends on it. So a difference is always a bug.
#include "tests/fuzz/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/reference/program_eval.h"
#include "engine/reference/tensor_eval.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad::fuzz {
namespace {

constexpr double kMaxWork = 400'000;     // node evaluations of all programs
constexpr int64_t kMaxElements = 4'096;  // of one value of the graph

using Slots = std::vector<std::vector<uint8_t>>;

// Evaluations of nodes, lanes counted.
double Work(const Program& program) {
  double work = 0, iterations = 1;
  std::vector<double> outer;
  for (uint32_t id : program.order) {
    const UOp u = program.graph->at(id);
    if (u.is(Op::kRange)) {
      outer.push_back(iterations);
      iterations *= static_cast<double>(u.src(0).const_word());
    } else if (u.is(Op::kEnd) && !outer.empty()) {
      iterations = outer.back();
      outer.pop_back();
    }
    work += iterations * static_cast<double>(std::max<int64_t>(1, NumElements(u.shape())));
  }
  return work;
}

// Whether the op has more than one right result on its element type, or hands such a one on.
bool IsInexact(UOp u) {
  if (!IsFloat(u.dtype())) return false;
  if (u.is(Op::kReduce)) return u.reduce_kind() != ReduceKind::kMax;
  return u.is(Op::kExp2) || u.is(Op::kLog2) || u.is(Op::kSin) || u.is(Op::kPow);
}

// By slot: whether all stores to it are exact.
std::vector<bool> ExactSlots(UOp sink, size_t slots) {
  const Graph& graph = *sink.graph();
  std::vector<bool> exact(slots, true);
  NodeMap<bool> inexact(graph);
  // What is stored is seen by every later reader of the slot; for simplicity, by every reader.
  for (int round = 0; round < 2; ++round) {
    for (uint32_t id : PostOrder(sink)) {
      const UOp u = graph.at(id);
      bool out = IsInexact(u);
      for (uint32_t s : u.src_ids()) out = out || inexact[s];
      if (u.is(Op::kParam)) out = !exact[u.slot()];
      if (u.is(Op::kStore) && out) {
        UOp param = u.src(0);
        while (param.num_src() > 0) param = param.src(0);
        exact[param.slot()] = false;
      }
      inexact[id] = out;
    }
  }
  return exact;
}

Slots MakeSlots(UOp sink, std::vector<DType>* types) {
  Slots slots;
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (!u.is(Op::kParam)) continue;
    const auto slot = static_cast<size_t>(u.slot());
    if (slots.size() <= slot) {
      slots.resize(slot + 1);
      types->resize(slot + 1);
    }
    const int64_t n = NumElements(u.shape()), width = ByteSize(u.dtype());
    slots[slot].resize(BytesOf(u.dtype(), n));
    (*types)[slot] = u.dtype();
    if (IsPacked(u.dtype())) {
      for (size_t i = 0; i < slots[slot].size(); ++i) {
        slots[slot][i] = static_cast<uint8_t>(i * 37 + slot * 11);
      }
      continue;
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t mixed = (i * 37 + u.slot() * 11) % 29;
      const int64_t word = IsFloat(u.dtype())
                               ? ScalarFromDouble(u.dtype(), static_cast<double>(mixed - 14) / 4)
                               : ScalarFromInt(u.dtype(), mixed - 9);
      const int64_t raw = ScalarToMemory(u.dtype(), word);
      std::memcpy(slots[slot].data() + i * width, &raw, width);
    }
  }
  return slots;
}

bool IsSmall(UOp sink) {
  for (uint32_t id : PostOrder(sink)) {
    if (NumElements(sink.graph()->shape(id)) > kMaxElements) return false;
  }
  return true;
}

absl::Status RunPrograms(const Schedule& schedule, std::span<const Program> programs,
                         Slots* slots) {
  Slots temporaries;
  for (const Temporary& t : schedule.temporaries) temporaries.emplace_back(t.bytes, 0xcd);
  for (size_t k = 0; k < programs.size(); ++k) {
    std::vector<std::span<uint8_t>> buffers;
    for (const BufferRef ref : schedule.kernels[k].arguments) {
      const bool slot = ref.kind == BufferRef::Kind::kSlot;
      const std::span<uint8_t> memory = slot ? (*slots)[ref.index] : temporaries[ref.index];
      buffers.push_back(memory.subspan(static_cast<size_t>(ref.offset)));
    }
    buffers.resize(std::max(buffers.size(), programs[k].arguments.size()));
    // In two slices, as two workers would run them.
    const int64_t half = programs[k].iterations / 2;
    for (const auto& [begin, end] :
         {std::pair(int64_t{0}, half), std::pair(half, programs[k].iterations)}) {
      if (begin == end) continue;
      absl::Status status = reference::Run(programs[k], buffers, begin, end);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// Bits, but one NaN is as good as another.
bool Same(DType dtype, const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  if (a == b) return true;
  if (!IsFloat(dtype) || IsPacked(dtype) || a.size() != b.size()) return false;
  const int64_t width = ByteSize(dtype);
  for (size_t i = 0; i < a.size(); i += width) {
    int64_t x = 0, y = 0;
    std::memcpy(&x, &a[i], width);
    std::memcpy(&y, &b[i], width);
    const bool nans = std::isnan(ScalarAsDouble(dtype, ScalarFromMemory(dtype, x))) &&
                      std::isnan(ScalarAsDouble(dtype, ScalarFromMemory(dtype, y)));
    if (x != y && !nans) return false;
  }
  return true;
}

}  // namespace

bool CompareWithReference(UOp sink, const Schedule& schedule, std::span<const Program> programs) {
  if (!IsSmall(sink)) return false;
  double work = 0;
  for (const Program& program : programs) work += Work(program);
  if (work > kMaxWork) return false;
  std::vector<DType> types;
  Slots want = MakeSlots(sink, &types), got = want;
  const std::vector<bool> exact = ExactSlots(sink, want.size());
  if (std::ranges::find(exact, true) == exact.end()) return false;
  Budget budget;
  if (!reference::Evaluate(sink, want, &budget).ok()) return false;
  const absl::Status status = RunPrograms(schedule, programs, &got);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  FUZZ_CHECK(status.ok());
  for (size_t i = 0; i < want.size(); ++i) {
    if (!exact[i] || Same(types[i], want[i], got[i])) continue;
    std::fprintf(stderr, "slot %zu differs\n%s", i, Print(sink).c_str());
    for (const Program& program : programs) std::fputs(Print(program).c_str(), stderr);
    FUZZ_CHECK(Same(types[i], want[i], got[i]));
  }
  return true;
}

}  // namespace telegrad::fuzz
