// Runs each kernel of a schedule in the interpreter of programs, with temporaries that begin
// with garbage, and compares results within a tolerance that depends on the type.
#include "tests/conformance/run_lowered.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "engine/base/status.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/reference/program_eval.h"
#include "engine/schedule/schedule.h"

namespace telegrad::testing {
namespace {

double Element(DType dtype, const std::vector<uint8_t>& bytes, int64_t i) {
  const int64_t bits = Info(dtype).bits;
  int64_t raw = 0;
  std::memcpy(&raw, bytes.data() + i * bits / 8, (bits + 7) / 8);
  if (IsPacked(dtype)) raw = raw >> (i * bits % 8) & ((1 << bits) - 1);
  return ScalarAsDouble(dtype, ScalarFromMemory(dtype, raw));
}

absl::Status RunProgram(const Program& program, std::span<const std::span<uint8_t>> buffers,
                        int64_t* steps) {
  const int64_t half = program.warp > 1 ? 0 : program.iterations / 2;
  for (auto [begin, end] : {std::pair(int64_t{0}, half), std::pair(half, program.iterations)}) {
    if (begin == end) continue;
    if (auto s = reference::Run(program, buffers, begin, end, {.steps = steps}); !s.ok()) {
      return Internal(s.ToString(), "\n", Print(program));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Budget::Limits WithoutDeadline() {
  Budget::Limits limits;
  limits.time = std::chrono::hours(24);
  return limits;
}

absl::Status RunLowered(UOp sink, int vector_bytes, std::span<const VarValue> variables,
                        Slots* slots) {
  Target target;
  target.vector_bytes = vector_bytes;
  target.vector_registers = vector_bytes == 64 ? 32 : 16;
  target.threads = 2;
  return RunLowered(sink, target, variables, slots);
}

absl::Status RunLowered(UOp sink, const Target& target, std::span<const VarValue> variables,
                        Slots* slots) {
  return RunLowered(sink, target, variables, slots, nullptr);
}

absl::Status RunLowered(UOp sink, const Target& target, std::span<const VarValue> variables,
                        Slots* slots, const ChooseMoves& choose) {
  Budget budget(WithoutDeadline());
  TG_ASSIGN_OR_RETURN(const Schedule schedule,
                      ScheduleGraph(sink, variables, &budget, ScheduleOptions::For(target)));
  return RunSchedule(schedule, target, slots, choose);
}

absl::Status RunSchedule(const Schedule& schedule, const Target& target, Slots* slots,
                         const ChooseMoves& choose, int64_t* steps) {
  Budget budget(WithoutDeadline());
  PassOptions options;
  options.verify = [](const Piece& piece) { return Verify(piece); };
  Slots temporaries;
  for (const Temporary& t : schedule.temporaries) temporaries.emplace_back(t.bytes, 0xcd);
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const ScheduledKernel& kernel = schedule.kernels[k];
    TG_RETURN_IF_ERROR(Verify(kernel.graph.root(), kKernelLevel));
    options.weights = kernel.weights;
    options.results = kernel.results;
    options.moves = std::nullopt;
    if (choose) {
      TG_ASSIGN_OR_RETURN(options.moves, choose(kernel.graph, target, kernel.weights));
    }
    TG_ASSIGN_OR_RETURN(const Program program,
                        Lower(kernel.graph, target, "k" + std::to_string(k), &budget,
                              /*stats=*/nullptr, options));
    if (auto s = Verify(program); !s.ok()) return Internal(s.ToString(), "\n", Print(program));
    std::vector<std::span<uint8_t>> buffers;
    for (const BufferRef ref : kernel.arguments) {
      const bool slot = ref.kind == BufferRef::Kind::kSlot;
      const std::span<uint8_t> memory = slot ? (*slots)[ref.index] : temporaries[ref.index];
      buffers.push_back(memory.subspan(static_cast<size_t>(ref.offset)));
    }
    buffers.resize(std::max(buffers.size(), program.arguments.size()));
    Slots copies(program.packings.size());
    for (size_t i = 0; i < copies.size(); ++i) {
      const auto& [copy, source, packs] = program.packings[i];
      const Program::Argument& a = program.arguments[static_cast<size_t>(copy)];
      copies[i].resize(static_cast<size_t>(BytesOf(a.dtype, a.elements)), 0xcd);
      buffers[static_cast<size_t>(copy)] = copies[i];
      options.weights = {};
      options.results = {};
      options.moves = std::nullopt;
      TG_RETURN_IF_ERROR(Verify(packs.root(), kKernelLevel));
      TG_ASSIGN_OR_RETURN(const Program packing, Lower(packs, target, "packing", &budget,
                                                       /*stats=*/nullptr, options));
      const std::span<uint8_t> both[] = {copies[i], buffers[static_cast<size_t>(source)]};
      TG_RETURN_IF_ERROR(RunProgram(packing, both, steps));
    }
    TG_RETURN_IF_ERROR(RunProgram(program, buffers, steps));
  }
  return absl::OkStatus();
}

Slots EmptySlots(UOp sink) {
  Slots slots;
  for (const uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (!u.is(Op::kParam)) continue;
    const auto slot = static_cast<size_t>(u.slot());
    if (slots.size() <= slot) slots.resize(slot + 1);
    slots[slot].resize(static_cast<size_t>(BytesOf(u.dtype(), NumElements(u.shape()))));
  }
  return slots;
}

std::string Difference(DType dtype, bool exact, const std::vector<uint8_t>& want,
                       const std::vector<uint8_t>& got) {
  if (want == got) return "";
  // Two roundings to a narrow type may fall to both sides of a step.
  const double tolerance = std::max(1e-4, std::ldexp(1.01, -Info(dtype).mantissa_bits));
  const auto n = static_cast<int64_t>(want.size()) * 8 / std::max(Info(dtype).bits, 1);
  for (int64_t i = 0; i < n; ++i) {
    const double x = Element(dtype, want, i), y = Element(dtype, got, i);
    if ((std::isnan(x) && std::isnan(y)) || x == y) continue;
    const double scale = std::max({std::abs(x), std::abs(y), 1.0});
    if (IsFloat(dtype) && !exact && std::abs(x - y) <= tolerance * scale) continue;
    return StrCat("element ", i, ": ", x, " expected, got ", y);
  }
  return "";
}

}  // namespace telegrad::testing
