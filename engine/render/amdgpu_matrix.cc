// Matrix instructions of AMD's GPUs: each takes whole fragments as vectors.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/render/amdgpu.h"

namespace telegrad {
namespace {

// What the instruction is called, the type of its inputs' elements, and whether it ends with the
// three numbers by which MFMA can permute blocks and lanes.
struct AmdMmaRow {
  MmaKind kind;
  std::string_view intrinsic;
  std::string_view element;
  bool permutes;
};
constexpr AmdMmaRow kAmdMmas[] = {
    {MmaKind::kMfmaF16, "llvm.amdgcn.mfma.f32.16x16x16f16", "half", true},
    {MmaKind::kMfmaBF16, "llvm.amdgcn.mfma.f32.16x16x16bf16.1k", "i16", true},
    {MmaKind::kRdna3F16, "llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v16f16", "half", false},
    {MmaKind::kRdna3BF16, "llvm.amdgcn.wmma.f32.16x16x16.bf16.v8f32.v16i16", "i16", false},
    {MmaKind::kRdna4F16, "llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v8f16", "half", false},
    {MmaKind::kRdna4BF16, "llvm.amdgcn.wmma.f32.16x16x16.bf16.v8f32.v8i16", "i16", false},
};

}  // namespace

absl::Status AmdgpuKernel::Mma(UOp u) {
  const MmaInfo& mma = u.mma();
  const auto row = std::ranges::find(kAmdMmas, mma.kind, &AmdMmaRow::kind);
  if (row == std::end(kAmdMmas) || mma.unit != target_.matrix) {
    return Lacks("matrix instruction ", mma.name);
  }
  if (program_.warp != mma.threads) {
    return Broken(mma.name, " in warps of ", program_.warp, " threads");
  }
  std::vector<LlvmWriter::Operand> operands;
  for (int s : {0, 1}) {
    const int64_t size = s == 0 ? mma.a_size() : mma.b_size();
    TG_ASSIGN_OR_RETURN(std::string value, ValueOf(u.src(s), size));
    const std::string type = StrCat("<", size, " x ", row->element, ">");
    if (row->element != "i16") {
      value = out_.Let("bitcast <", size, " x i16> ", value, " to ", type);
    }
    operands.push_back({type, value});
  }
  const std::string type = LlvmType(mma.c, mma.c_size());
  TG_ASSIGN_OR_RETURN(const std::string sum, ValueOf(u.src(2), mma.c_size()));
  operands.push_back({type, sum});
  if (row->permutes) operands.insert(operands.end(), 3, {"i32", "0"});
  values_[u] = out_.Call(row->intrinsic, type, operands);
  return absl::OkStatus();
}

}  // namespace telegrad
