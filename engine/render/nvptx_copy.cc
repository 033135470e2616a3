// COPY_ASYNC from global to local memory in units of 4, 8 or 16 bytes that are aligned on both
// sides, each one instruction; a unit that is outside of the source in part or in whole is filled
// with zeros. Copies after one another are a group (copy_groups.h), with as many as are made or
// none. What has no such units is copied at once, element by element: a copy may be complete as
// soon as it starts.
#include "engine/base/status.h"
#include "engine/render/nvptx.h"

namespace telegrad {
namespace {

constexpr int64_t kWidestCopy = 16;  // bytes of one instruction

// A scalar index as a sum of a value and a number.
struct Sum {
  UOp value;
  int64_t number;
};
bool Fits32Bits(int64_t x) { return x >= INT32_MIN && x <= INT32_MAX; }

// Of 32 bits, where it is known that the sum does not wrap: then the value may be extended first.
Sum SumOf(UOp index) {
  if (!index.is(Op::kAdd) || !index.src(1).is_const()) return {index, 0};
  const UOp value = index.src(0);
  const int64_t number = index.src(1).const_word();
  if (index.dtype() == DType::kInt64) return {value, number};
  const bool whole = index.dtype() == DType::kInt32 && Fits32Bits(value.vmin() + number) &&
                     Fits32Bits(value.vmax() + number);
  return whole ? Sum{value, number} : Sum{index, 0};
}

}  // namespace

// The instruction adds a number to each address by itself. LLVM's intrinsic has registers alone, so
// that each of a thread's copies in a loop would need two additions before it.
absl::Status NvptxKernel::CopyOneUnit(UOp copy, std::string_view cache, int64_t unit) {
  const int64_t size = ByteSize(AddressOf(copy.src(0))->dtype);
  std::string places[2], types[2];
  int64_t bytes[2];
  for (int s : {0, 1}) {
    const Address& at = *AddressOf(copy.src(s));
    Sum sum = SumOf(copy.src(s).src(1));
    if (!Fits32Bits(sum.number) || !Fits32Bits(sum.number * size)) {
      sum = {copy.src(s).src(1), 0};
    }
    TG_ASSIGN_OR_RETURN(const std::string value, ValueOf(sum.value, 1));
    places[s] = PointerAt(at, AsOffset(sum.value.dtype(), value, 1));
    types[s] = at.pointer_type();
    bytes[s] = sum.number * size;
  }
  out_.Line("call void asm sideeffect \"cp.async.", cache, ".shared.global [$0+", bytes[0],
            "], [$1+", bytes[1], "], ", unit, ";\", \"l,l,~{memory}\"(", types[0], " ", places[0],
            ", ", types[1], " ", places[1], ")");
  return absl::OkStatus();
}

absl::Status NvptxKernel::CopyUnits(UOp copy, int64_t unit) {
  const Address &to = *AddressOf(copy.src(0)), &from = *AddressOf(copy.src(1));
  const int64_t size = ByteSize(to.dtype);
  // The large ones go past the first cache.
  const std::string_view cache = unit == kWidestCopy ? "cg" : "ca";
  if (IsOneUnitInside(copy, unit)) return CopyOneUnit(copy, cache, unit);
  const std::string name = StrCat("llvm.nvvm.cp.async.", cache, ".shared.global.", unit);
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
  return absl::OkStatus();
}

const CopyGroups& NvptxKernel::Groups() {
  if (!groups_of_copies_) {
    groups_of_copies_.emplace(program_, [this](UOp copy) { return UnitOf(copy) > 0; });
  }
  return *groups_of_copies_;
}

void NvptxKernel::FinishCopy(UOp copy) {
  if (Groups().IsLast(copy)) out_.CallVoid("llvm.nvvm.cp.async.commit.group", {});
}

absl::Status NvptxKernel::Wait(UOp u) {
  TG_RETURN_IF_ERROR(LlvmWorkgroupKernel::Wait(u));
  if (const auto unfinished = Groups().Unfinished(u)) {
    out_.CallVoid("llvm.nvvm.cp.async.wait.group", {{"i32", StrCat(*unfinished)}});
  }
  return absl::OkStatus();
}

}  // namespace telegrad
