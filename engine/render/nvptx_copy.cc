// COPY_ASYNC from global to local memory in units of 4, 8 or 16 bytes that are aligned on both
// sides, each one instruction; a unit that is outside of the source in part or in whole is filled
// with zeros. Each execution is a group of its own, with or without a copy. What has no such units
// is copied at once, element by element: a copy may be complete as soon as it starts.
#include "engine/base/status.h"
#include "engine/render/nvptx.h"

namespace telegrad {
namespace {

constexpr int64_t kWidestCopy = 16;  // bytes of one instruction

}  // namespace

void NvptxKernel::CopyUnits(UOp copy, int64_t unit) {
  const Address &to = *AddressOf(copy.src(0)), &from = *AddressOf(copy.src(1));
  const int64_t size = ByteSize(to.dtype);
  // The large ones go past the first cache.
  const std::string name =
      StrCat("llvm.nvvm.cp.async.", unit == kWidestCopy ? "cg" : "ca", ".shared.global.", unit);
  ForBox(copy, unit / size, [&](const auto& there, const auto& here, const auto& left) {
    std::vector<LlvmWriter::Operand> operands = {{to.pointer_type(), PointerAt(to, there)},
                                                 {from.pointer_type(), PointerAt(from, here)}};
    if (left.empty()) {
      out_.CallVoid(name, operands);
      return;
    }
    const std::string bytes = out_.Let("mul i64 ", left, ", ", size);
    const std::string filled =
        out_.Call("llvm.umin.i64", "i64", {{"i64", bytes}, {"i64", StrCat(unit)}});
    operands.push_back({"i32", out_.Let("trunc i64 ", filled, " to i32")});
    out_.CallVoid(name + ".s", operands);
  });
}

void NvptxKernel::FinishCopy() { out_.CallVoid("llvm.nvvm.cp.async.commit.group", {}); }

absl::Status NvptxKernel::Wait(UOp u) {
  TG_RETURN_IF_ERROR(LlvmWorkgroupKernel::Wait(u));
  if (!groups_of_copies_) {
    groups_of_copies_.emplace(program_, [this](UOp copy) { return UnitOf(copy) > 0; });
  }
  if (const auto unfinished = groups_of_copies_->Unfinished(u)) {
    out_.CallVoid("llvm.nvvm.cp.async.wait.group", {{"i32", StrCat(*unfinished)}});
  }
  return absl::OkStatus();
}

}  // namespace telegrad
