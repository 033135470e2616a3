// Threads that do something together: barriers, shuffles and matrix instructions. A set of threads
// is one that a hardware warp synchronizes by a mask of its lanes, or one of whole hardware warps,
// which have a numbered barrier.
#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "engine/base/status.h"
#include "engine/render/nvptx.h"

namespace telegrad {
namespace {

constexpr int64_t kLanes = 32;     // of a hardware warp
constexpr int64_t kBarriers = 16;  // of a workgroup
constexpr int64_t kWarpgroup = 4;  // warps

int64_t LowBits(int64_t count) { return (int64_t{1} << count) - 1; }

// What the hardware has of mma.def, by instructions of 8 columns, and in which registers these take
// the inputs, two in each.
struct MmaRow {
  MmaKind kind;
  std::string_view intrinsic;
  std::string_view pair;
};
constexpr MmaRow kMmas[] = {
    {MmaKind::kSm80WideF16, "llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "<2 x half>"},
    {MmaKind::kSm80WideBF16, "llvm.nvvm.mma.m16n8k16.row.col.bf16", "i32"},
    {MmaKind::kSm80F16, "llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "<2 x half>"},
    {MmaKind::kSm80BF16, "llvm.nvvm.mma.m16n8k16.row.col.bf16", "i32"},
};

}  // namespace

int64_t NvptxKernel::HardwareLanes() const { return kLanes; }

int64_t NvptxKernel::BarrierNumber(Threads threads, int64_t several) {
  const auto [it, is_new] = barriers_.try_emplace({threads, several}, next_barrier_);
  if (is_new) next_barrier_ += several;
  return it->second + several <= kBarriers ? it->second : -1;
}

// Aligned sets of `width` threads, a power of two: the one that this thread is in, as a mask.
std::string NvptxKernel::MaskOf(int64_t width) {
  if (width == kLanes) return "-1";
  const std::string first = out_.Let("and i32 ", thread(), ", ", kLanes - width);
  return out_.Let("shl i32 ", LowBits(width), ", ", first);
}

absl::Status NvptxKernel::Synchronize(Threads threads) {
  const int64_t first = threads.first, last = threads.first + threads.count - 1;
  if (first == last) return absl::OkStatus();
  if (first / kLanes == last / kLanes) {
    const auto mask = static_cast<int32_t>(LowBits(threads.count) << first % kLanes);
    out_.CallVoid("llvm.nvvm.bar.warp.sync", {{"i32", StrCat(mask)}});
    return absl::OkStatus();
  }
  if (threads == Threads{0, this->threads()}) {
    out_.CallVoid("llvm.nvvm.barrier0", {});
    return absl::OkStatus();
  }
  if (first % kLanes != 0 || threads.count % kLanes != 0) {
    return Lacks("barrier of the threads ", first, " to ", last, ", which share warps with others");
  }
  const int64_t number = BarrierNumber(threads);
  if (number < 0) return Lacks("more than ", kBarriers, " barriers");
  out_.CallVoid("llvm.nvvm.barrier", {{"i32", StrCat(number)}, {"i32", StrCat(threads.count)}});
  return absl::OkStatus();
}

// Of equal parts of those present, each part for itself.
absl::Status NvptxKernel::SynchronizeParts(int64_t width) {
  const Threads present = Present();
  if (width == 1) return absl::OkStatus();
  if (present.count == width) return Synchronize(present);
  if (width <= kLanes && std::has_single_bit(static_cast<uint64_t>(width))) {
    out_.CallVoid("llvm.nvvm.bar.warp.sync", {{"i32", MaskOf(width)}});
    return absl::OkStatus();
  }
  if (width % kLanes != 0 || present.first % width != 0 || present.count % width != 0) {
    return Lacks("barrier for parts of ", width, " threads");
  }
  const int64_t number = BarrierNumber(present, present.count / width);
  if (number < 0) return Lacks("more than ", kBarriers, " barriers");
  const std::string beyond = out_.Let("sub i32 ", thread(), ", ", present.first);
  const std::string part = out_.Let("udiv i32 ", beyond, ", ", width);
  const std::string chosen = out_.Let("add i32 ", part, ", ", number);
  out_.CallVoid("llvm.nvvm.barrier", {{"i32", chosen}, {"i32", StrCat(width)}});
  return absl::OkStatus();
}

absl::Status NvptxKernel::Barrier(UOp u) {
  switch (u.scope()) {
    case Scope::kThread:
      return absl::OkStatus();
    case Scope::kWarp:
      return SynchronizeParts(program_.warp);
    case Scope::kWarpgroup:
      return SynchronizeParts(program_.warp * kWarpgroup);
    case Scope::kWorkgroup:
    case Scope::kCluster:
      return Synchronize(Present());
  }
  return Broken("node ", u.id(), " has an unknown scope");
}

// One 32-bit word of the lane `lane` of this warp; of any, where there is no such lane.
std::string NvptxKernel::ShuffleWord(std::string_view word, std::string_view lane) {
  // The instruction's segments, in which lanes count from 0, and the last lane to read.
  const int64_t segments = (kLanes - program_.warp) << 8 | (kLanes - 1);
  return out_.Call("llvm.nvvm.shfl.sync.idx.i32", "i32",
                   {{"i32", MaskOf(program_.warp)},
                    {"i32", std::string(word)},
                    {"i32", std::string(lane)},
                    {"i32", StrCat(segments)}});
}

// Each register has two elements.
absl::Status NvptxKernel::LoadMatrix(UOp u) {
  const Address* const from = AddressOf(u.src(0));
  if (from == nullptr || from->lanes != 1 || !from->gate.empty()) {
    return Broken("node ", u.id(), " loads matrices from what is no address");
  }
  if (from->align() < kMatrixRowBytes) {
    return Broken("node ", u.id(), " loads rows of ", kMatrixRowBytes, " bytes from where ",
                  from->align(), " are aligned");
  }
  if (program_.warp != kLanes) {
    return Broken("node ", u.id(), " loads matrices in warps of ", program_.warp, " threads");
  }
  const int64_t count = u.matrices();
  std::string result = "i32";
  for (int64_t i = 1; i < count; ++i) result += ", i32";
  if (count > 1) result = StrCat("{ ", result, " }");
  const std::string name =
      StrCat("llvm.nvvm.ldmatrix.sync.aligned.m8n8.x", count, u.transposed() != 0 ? ".trans" : "",
             ".b16.p", from->memory->space);
  const std::string loaded = out_.Call(name, result, {{from->pointer_type(), from->pointer}});
  const std::string words = StrCat("<", count, " x i32>");
  std::string all = "poison";
  for (int64_t i = 0; i < count; ++i) {
    const std::string word =
        count == 1 ? loaded : out_.Let("extractvalue ", result, " ", loaded, ", ", i);
    all = out_.Let("insertelement ", words, " ", all, ", i32 ", word, ", i64 ", i);
  }
  values_[u] = out_.Let("bitcast ", words, " ", all, " to ", LlvmType(u.dtype(), 2 * count));
  return absl::OkStatus();
}

absl::Status NvptxKernel::Mma(UOp u) {
  const MmaInfo& mma = u.mma();
  const auto row = std::ranges::find(kMmas, mma.kind, &MmaRow::kind);
  if (row == std::end(kMmas)) return Lacks("matrix instruction ", mma.name);
  if (program_.warp != kLanes) return Broken(mma.name, " in warps of ", program_.warp, " threads");
  std::array<std::vector<LlvmWriter::Operand>, 2> pairs;  // of a and b
  for (int s : {0, 1}) {
    const int64_t size = s == 0 ? mma.a_size() : mma.b_size();
    TG_ASSIGN_OR_RETURN(const std::string value, ValueOf(u.src(s), size));
    const std::string words = StrCat("<", size / 2, " x i32>");
    const std::string all = out_.Let("bitcast <", size, " x i16> ", value, " to ", words);
    for (int64_t i = 0; i < size / 2; ++i) {
      std::string pair = out_.Let("extractelement ", words, " ", all, ", i64 ", i);
      if (row->pair != "i32") pair = out_.Let("bitcast i32 ", pair, " to ", row->pair);
      pairs[s].push_back({std::string(row->pair), pair});
    }
  }
  const std::string type = LlvmType(mma.c, mma.c_size());
  TG_ASSIGN_OR_RETURN(const std::string sum, ValueOf(u.src(2), mma.c_size()));
  constexpr int64_t kColumns = 8, kPairs = 2, kSums = 4;  // of one instruction
  constexpr std::string_view kResult = "{ float, float, float, float }";
  std::string fragment = "poison";
  for (int64_t part = 0; part < mma.n / kColumns; ++part) {
    std::vector<LlvmWriter::Operand> operands = pairs[0];
    const auto b = pairs[1].begin() + part * kPairs;
    operands.insert(operands.end(), b, b + kPairs);
    for (int64_t i = part * kSums; i < (part + 1) * kSums; ++i) {
      operands.push_back({"float", out_.Let("extractelement ", type, " ", sum, ", i64 ", i)});
    }
    const std::string product = out_.Call(row->intrinsic, kResult, operands);
    for (int64_t i = 0; i < kSums; ++i) {
      const std::string element = out_.Let("extractvalue ", kResult, " ", product, ", ", i);
      fragment = out_.Let("insertelement ", type, " ", fragment, ", float ", element, ", i64 ",
                          part * kSums + i);
    }
  }
  values_[u] = fragment;
  return absl::OkStatus();
}

}  // namespace telegrad
