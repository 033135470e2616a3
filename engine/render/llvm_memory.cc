// Accesses. Consecutive lanes are one vector access, other vectors are gathers and scatters. A gate
// of one bit is a branch around the access, which LLVM's own vectorizer also understands; a gate
// per lane is a mask.
#include <array>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/render/llvm_kernel.h"

namespace telegrad {
namespace {

// Lanes of a sum narrower than 64 bits are consecutive in memory only if the sum does not wrap. In
// 64 bits addresses wrap along with it.
bool AddsExactly(UOp sum) {
  if (Info(sum.dtype()).bits == 64) return true;
  const Interval x = sum.src(0).bounds(), y = sum.src(1).bounds();
  int64_t lo, hi;
  return CheckedAdd(x.lo, y.lo, &lo) && CheckedAdd(x.hi, y.hi, &hi) &&
         sum.bounds() == Interval{lo, hi};
}

}  // namespace

std::string LlvmKernel::AsOffset(DType dtype, std::string_view text, int64_t lanes) {
  if (Info(dtype).bits == 64) return std::string(text);
  return out_.Let(IsSigned(dtype) ? "sext " : "zext ", LlvmType(dtype, lanes), " ", text, " to ",
                  LlvmType(DType::kInt64, lanes));
}

absl::StatusOr<std::string> LlvmKernel::ContiguousBase(UOp index) {
  std::vector<UOp> terms;  // scalars that are added to IOTA
  UOp at = index;
  while (at.is(Op::kAdd)) {
    const bool first_is_scalar = at.src(0).shape().empty();
    if (first_is_scalar == at.src(1).shape().empty() || !AddsExactly(at)) return std::string();
    terms.push_back(at.src(first_is_scalar ? 0 : 1));
    at = at.src(first_is_scalar ? 1 : 0);
  }
  if (!at.is(Op::kIota)) return std::string();
  std::string base;
  for (UOp term : terms) {
    TG_ASSIGN_OR_RETURN(const std::string text, ValueOf(term, 1));
    const std::string offset = AsOffset(term.dtype(), text, 1);
    base = base.empty() ? offset : out_.Let("add i64 ", base, ", ", offset);
  }
  return base.empty() ? "0" : base;
}

absl::Status LlvmKernel::Index(UOp u) {
  const UOp buffer = BehindOrder(u.src(0));
  Address at;
  at.dtype = u.dtype();
  TG_ASSIGN_OR_RETURN(at.lanes, Lanes(u));

  std::string base;
  if (buffer.is(Op::kParam)) {
    const int64_t slot = buffer.arg(0);
    if (slot >= static_cast<int64_t>(program_.arguments.size()) ||
        program_.arguments[slot].dtype != buffer.dtype()) {
      return Broken("node ", buffer.id(), " is not argument ", slot);
    }
    base = StrCat("%a", slot);
    at.alias = StrCat(", !alias.scope !", 3 * slot + 2, ", !noalias !", 3 * slot + 3);
  } else if (buffer.is(Op::kBuffer) && Emitted(buffer)) {
    base = values_[buffer];
  } else {
    return Broken("node ", u.id(), " indexes node ", buffer.id(), ", which is no buffer");
  }

  const UOp index = u.src(1);
  std::string offset;
  if (at.lanes > 1) {
    at.kind = Address::kContiguous;
    TG_ASSIGN_OR_RETURN(offset, ContiguousBase(index));
    if (offset.empty()) at.kind = Address::kLanes;
  }
  if (at.kind != Address::kContiguous) {
    TG_ASSIGN_OR_RETURN(const std::string text, ValueOf(index, at.lanes));
    offset = AsOffset(index.dtype(), text, at.lanes);
  }

  if (u.num_src() == 3 && u.src(2).bounds() != Interval{1, 1}) {
    const UOp gate = u.src(2);
    TG_ASSIGN_OR_RETURN(const int64_t gates, Lanes(gate));
    at.lane_gate = gates > 1;
    if (at.lane_gate && gates != at.lanes) return Broken("node ", u.id(), " has too wide a gate");
    TG_ASSIGN_OR_RETURN(at.gate, ValueOf(gate, gates));
  }

  // Under a mask some lanes may lie outside of the buffer; all other addresses are used only when
  // inside.
  at.pointer =
      out_.Name(NameOf(u), "getelementptr ", at.lane_gate ? "" : "inbounds ",
                LlvmMemoryType(at.dtype, 1), ", ptr ", base, ", ",
                LlvmType(DType::kInt64, at.kind == Address::kLanes ? at.lanes : 1), " ", offset);
  addresses_.emplace(u.id(), std::move(at));
  return absl::OkStatus();
}

void LlvmKernel::OpenGate(UOp u, const Address& at) {
  if (at.gate.empty() || at.lane_gate) return;
  gate_from_ = out_.block();
  out_.Line("br i1 ", at.gate, ", label %", NameOf(u), ".then, label %", NameOf(u), ".join");
  out_.Block(NameOf(u) + ".then");
}

void LlvmKernel::CloseGate(UOp u, const Address& at) {
  if (at.gate.empty() || at.lane_gate) return;
  out_.Line("br label %", NameOf(u), ".join");
  out_.Block(NameOf(u) + ".join");
}

absl::Status LlvmKernel::Load(UOp u) {
  const auto found = addresses_.find(u.src(0).id());
  if (found == addresses_.end()) return Broken("node ", u.id(), " loads from no index");
  const Address& at = found->second;
  const std::string type = LlvmMemoryType(at.dtype, at.lanes);
  const std::string mask_type = LlvmType(DType::kBool, at.lanes);
  const std::string mask = at.lane_gate ? at.gate : LlvmLiteral(DType::kBool, 1, at.lanes);
  const int64_t align = ByteSize(at.dtype);
  // Bytes, where the values are bits.
  const std::string suffix = LlvmSuffix(IsBool(at.dtype) ? DType::kInt8 : at.dtype, at.lanes);

  OpenGate(u, at);
  std::string value;
  if (at.kind == Address::kLanes) {
    const std::string pointers = StrCat("<", at.lanes, " x ptr>");
    value = out_.Call(StrCat("llvm.masked.gather.", suffix, ".v", at.lanes, "p0"), type,
                      {{pointers, at.pointer},
                       {"i32", StrCat(align)},
                       {mask_type, mask},
                       {type, "zeroinitializer"}},
                      "", at.alias);
  } else if (at.lane_gate) {
    value = out_.Call(
        StrCat("llvm.masked.load.", suffix, ".p0"), type,
        {{"ptr", at.pointer}, {"i32", StrCat(align)}, {mask_type, mask}, {type, "zeroinitializer"}},
        "", at.alias);
  } else {
    value = out_.Let("load ", type, ", ptr ", at.pointer, ", align ", align, at.alias);
  }
  if (IsBool(at.dtype)) value = out_.Let("icmp ne ", type, " ", value, ", zeroinitializer");
  const bool branched = !at.gate.empty() && !at.lane_gate;
  const std::string inside = out_.block();
  CloseGate(u, at);
  if (branched) {
    value = out_.Name(NameOf(u), "phi ", LlvmType(at.dtype, at.lanes), " [ ", value, ", %", inside,
                      " ], [ zeroinitializer, %", gate_from_, " ]");
  }
  values_[u] = value;
  return absl::OkStatus();
}

absl::Status LlvmKernel::Store(UOp u) {
  const auto found = addresses_.find(u.src(0).id());
  if (found == addresses_.end()) return Broken("node ", u.id(), " stores to no index");
  const Address& at = found->second;
  const std::string type = LlvmMemoryType(at.dtype, at.lanes);
  const std::string mask_type = LlvmType(DType::kBool, at.lanes);
  const std::string mask = at.lane_gate ? at.gate : LlvmLiteral(DType::kBool, 1, at.lanes);
  const int64_t align = ByteSize(at.dtype);
  const std::string suffix = LlvmSuffix(IsBool(at.dtype) ? DType::kInt8 : at.dtype, at.lanes);
  TG_ASSIGN_OR_RETURN(std::string value, ValueOf(u.src(1), at.lanes));

  OpenGate(u, at);
  if (IsBool(at.dtype)) {
    value = out_.Let("zext ", LlvmType(at.dtype, at.lanes), " ", value, " to ", type);
  }
  if (at.kind == Address::kLanes) {
    const std::string pointers = StrCat("<", at.lanes, " x ptr>");
    out_.CallVoid(
        StrCat("llvm.masked.scatter.", suffix, ".v", at.lanes, "p0"),
        {{type, value}, {pointers, at.pointer}, {"i32", StrCat(align)}, {mask_type, mask}},
        at.alias);
  } else if (at.lane_gate) {
    out_.CallVoid(StrCat("llvm.masked.store.", suffix, ".p0"),
                  {{type, value}, {"ptr", at.pointer}, {"i32", StrCat(align)}, {mask_type, mask}},
                  at.alias);
  } else {
    out_.Line("store ", type, " ", value, ", ptr ", at.pointer, ", align ", align, at.alias);
  }
  CloseGate(u, at);
  return absl::OkStatus();
}

}  // namespace telegrad
