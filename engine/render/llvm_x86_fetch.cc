// Prefetches: what fetch_ahead.h plans, in LLVM IR.
#include <algorithm>

#include "engine/render/fetch_ahead.h"
#include "engine/render/llvm_x86.h"

namespace telegrad {
namespace {

constexpr int64_t kLeastFetched = 32;  // bytes of one load
// Operations of vectors for each that is loaded: of fewer, a processor itself comes to so many
// loads ahead of time that it waits for none of them longer than for memory.
constexpr int64_t kMuch = 16;

// Of llvm.prefetch. What is read once pushes nothing out of the first level: a step of Llama took
// 32 ms with all levels, 29 ms without prefetches, and 23 ms with the second level.
constexpr std::string_view kAllLevels = "3", kSecondLevel = "2";

}  // namespace

bool X86Kernel::IsPacked(int64_t slot) const {
  return std::ranges::any_of(program_.packings,
                             [&](const auto& packing) { return packing.copy == slot; });
}

// Behind the last panel comes the first one again, so that nothing beyond the argument is asked
// for.
void X86Kernel::FetchAheadOf(UOp load, const Address& at) {
  const int64_t slot = at.memory->argument;
  if (!IsPacked(slot) || open_.empty() || !fetched_.emplace(open_.back().id(), slot).second) return;
  const auto ahead =
      PlanFetchAhead(load.src(0).src(1), open_, at.memory->elements, ByteSize(at.dtype), target_);
  if (!ahead) return;
  const auto sum = [&](const FetchAhead::Terms& terms, std::string value) {
    for (const auto& [range, factor] : terms) {
      const std::string index = AsOffset(range.dtype(), values_[range], 1);
      value = out_.Let("add i64 ", value, ", ", out_.Let("mul i64 ", index, ", ", factor));
    }
    return value;
  };
  std::string panel = sum(ahead->panel, StrCat(ahead->constant));
  const std::string past = out_.Let("icmp uge i64 ", panel, ", ", at.memory->elements);
  panel = out_.Let("select i1 ", past, ", i64 0, i64 ", panel);
  const std::string begin = out_.Let("getelementptr ", LlvmMemoryType(at.dtype, 1), ", ptr ",
                                     at.memory->pointer, ", i64 ", panel);
  const std::string beyond = sum(ahead->bytes, "0");
  for (int64_t line = 0; line < ahead->lines; ++line) {
    const std::string from = out_.Let("add i64 ", beyond, ", ", line * kFetchedLineBytes);
    const std::string pointer = out_.Let("getelementptr i8, ptr ", begin, ", i64 ", from);
    Prefetch(pointer, kAllLevels);
  }
}

void X86Kernel::Prefetch(const std::string& pointer, std::string_view levels) {
  constexpr std::string_view kRead = "0", kData = "1";
  out_.CallVoid("llvm.prefetch.p0", {{"ptr", pointer},
                                     {"i32", std::string(kRead)},
                                     {"i32", std::string(levels)},
                                     {"i32", std::string(kData)}});
}

// Of the last rows, the argument's last lanes.
void X86Kernel::FetchRowAhead(UOp load, const Address& at) {
  const int64_t bytes = at.lanes * ByteSize(at.dtype);
  if (at.kind != Address::kContiguous || at.memory->argument < 0 || !at.gate.empty() ||
      bytes < kLeastFetched) {
    return;
  }
  const auto ahead = PlanRowAhead(load.src(0).src(1), IndicesOf(load.src(0).src(0)), open_,
                                  at.memory->elements, ByteSize(at.dtype), target_);
  if (!ahead) return;
  const std::string beyond = out_.Let("add i64 ", at.element, ", ", *ahead);
  const std::string index = out_.Call(
      "llvm.umin.i64", "i64", {{"i64", beyond}, {"i64", StrCat(at.memory->elements - at.lanes)}});
  for (int64_t line = 0; line < bytes; line += kFetchedLineBytes) {
    const std::string pointer = out_.Let("getelementptr ", LlvmMemoryType(at.dtype, 1), ", ptr ",
                                         at.memory->pointer, ", i64 ", index);
    Prefetch(line == 0 ? pointer : out_.Let("getelementptr i8, ptr ", pointer, ", i64 ", line),
             kSecondLevel);
  }
}

std::span<const uint32_t> X86Kernel::LoopsBeside(uint32_t outer, int64_t slot) {
  if (loops_beside_.empty()) {
    std::vector<uint32_t> open;
    for (const uint32_t id : program_.order) {
      const UOp u = program_.graph->at(id);
      if (u.is(Op::kRange)) open.push_back(id);
      if (u.is(Op::kEnd)) open.pop_back();
      if (!u.is(Op::kLoad) || open.size() < 2) continue;
      UOp buffer = u.src(0).src(0);
      while (buffer.is(Op::kAfter)) buffer = buffer.src(0);
      if (!buffer.is(Op::kParam)) continue;
      std::vector<uint32_t>& loops = loops_beside_[{open[open.size() - 2], buffer.slot()}];
      if (std::ranges::find(loops, open.back()) == loops.end()) loops.push_back(open.back());
    }
  }
  const auto found = loops_beside_.find({outer, slot});
  return found == loops_beside_.end() ? std::span<const uint32_t>() : found->second;
}

bool X86Kernel::ComputesMuch(UOp loop) {
  const auto [known, added] = computes_much_.emplace(loop.id(), false);
  if (!added) return known->second;
  int64_t operations = 0, loads = 0;
  const std::vector<uint32_t>& order = program_.order;
  for (auto at = std::ranges::find(order, loop.id()); at != order.end(); ++at) {
    const UOp u = program_.graph->at(*at);
    if (u.is(Op::kEnd) && u.src(0) == loop) break;
    if (u.is(Op::kLoad)) ++loads;
    if (Is(u.op(), kAlu) && !u.shape().empty()) ++operations;
  }
  return known->second = operations >= kMuch * loads;
}

void X86Kernel::FetchStreamAhead(UOp load, const Address& at) {
  const int64_t bytes = at.lanes * ByteSize(at.dtype), slot = at.memory->argument;
  if (at.kind != Address::kContiguous || slot < 0 || !at.gate.empty() || bytes < kLeastFetched ||
      open_.empty() || IsPacked(slot)) {
    return;
  }
  StreamLoop loop{.much = ComputesMuch(open_.back())};
  if (open_.size() > 1) {
    const auto loops = LoopsBeside(open_[open_.size() - 2].id(), slot);
    loop.first = loops.empty() || loops.front() == open_.back().id();
    loop.last = loops.empty() || loops.back() == open_.back().id();
  }
  const auto ahead = PlanStreamAhead(load.src(0).src(1), IndicesOf(load.src(0).src(0)), open_, loop,
                                     at.memory->elements, ByteSize(at.dtype), target_);
  if (!ahead) return;
  for (int64_t line = 0; line < bytes; line += kFetchedLineBytes) {
    Prefetch(out_.Let("getelementptr i8, ptr ", at.pointer, ", i64 ",
                      *ahead * ByteSize(at.dtype) + line),
             kSecondLevel);
  }
}

std::span<const UOp> X86Kernel::IndicesOf(UOp buffer) {
  if (indices_.empty()) {
    for (const uint32_t id : program_.order) {
      const UOp u = program_.graph->at(id);
      if (u.is(Op::kLoad)) indices_[u.src(0).src(0).id()].push_back(u.src(0).src(1));
    }
  }
  return indices_[buffer.id()];
}

// Once for all loads of the tile, at the first of them.
void X86Kernel::FetchTileAhead(UOp load, const Address& at) {
  const bool one = at.kind == Address::kScalar || at.kind == Address::kContiguous;
  const int64_t slot = at.memory->argument;
  if (!one || slot < 0 || !at.gate.empty() || open_.empty()) return;
  if (!open_.back().is(Op::kRange) || open_.back().axis_type() != AxisType::kReduce) return;
  if (!fetched_.emplace(open_.back().id(), slot).second) return;
  const auto ahead = PlanTileAhead(load.src(0).src(1), IndicesOf(load.src(0).src(0)), open_,
                                   at.memory->elements, ByteSize(at.dtype), target_);
  if (!ahead) return;
  const std::string beyond = out_.Let("add i64 ", at.element, ", ", ahead->last);
  const std::string index = out_.Call("llvm.umin.i64", "i64",
                                      {{"i64", beyond}, {"i64", StrCat(at.memory->elements - 1)}});
  const std::string last = out_.Let("getelementptr ", LlvmMemoryType(at.dtype, 1), ", ptr ",
                                    at.memory->pointer, ", i64 ", index);
  for (int64_t line = 0; line < ahead->lines; ++line) {
    Prefetch(line == 0
                 ? last
                 : out_.Let("getelementptr i8, ptr ", last, ", i64 ", -line * kFetchedLineBytes),
             kAllLevels);
  }
}

}  // namespace telegrad
