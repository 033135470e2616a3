// Accesses. Consecutive lanes are one vector access; other vectors, and those of which each lane
// has a gate of its own, are accessed lane by lane. A gate of one bit is a branch around the
// access.
//
// An accumulator is an array of the thread's own, of which vectors are read and written. vload and
// vstore may do that in parts (PoCL's: of four lanes), and a compiler then keeps each part in a
// register of its own. So a vector whose place is known to be aligned is an object of its type.
#include "engine/base/status.h"
#include "engine/render/c_kernel.h"
#include "engine/render/lane_offsets.h"

namespace telegrad {

std::string CKernel::Address::Element(int64_t lane) const {
  if (kind == kLanes) return CLane(element, lane, lanes);
  const int64_t offset = lane == 0 ? 0 : offsets[lane];
  return offset == 0 ? element : StrCat(element, " + ", static_cast<uint64_t>(offset), "ul");
}

std::string CKernel::Address::Whole() const {
  return StrCat("*(", CType(dtype, lanes), "*)(", memory, " + ", element, ")");
}

std::string CKernel::AsOffset(DType dtype, std::string_view x, int64_t lanes) const {
  if (Info(dtype).bits == 64) return std::string(x);
  const auto convert = [&](std::string_view type, std::string_view value) {
    return lanes == 1 ? StrCat("(", type, ")(", value, ")")
                      : StrCat("convert_", type, lanes, "(", value, ")");
  };
  if (!IsSigned(dtype)) return convert("ulong", x);
  return CUnsigned(DType::kInt64, lanes, convert("long", CSigned(dtype, lanes, x)));
}

absl::Status CKernel::PointTo(UOp u, Address* at) {
  const UOp index = u.src(1);
  const LaneOffsets whole{{{index, 1}}, 0, {0}};
  auto split = at->lanes == 1 && Info(index.dtype()).bits == 64 ? whole : SplitLanes(index);
  if (!split && at->lanes == 1) split = whole;
  if (!split) {
    at->kind = Address::kLanes;
    TG_ASSIGN_OR_RETURN(const std::string text, ValueOf(index, at->lanes));
    at->element = out_.Let(DType::kUInt64, at->lanes, AsOffset(index.dtype(), text, at->lanes));
    return absl::OkStatus();
  }
  at->kind = at->lanes == 1         ? Address::kScalar
             : split->Stride() == 1 ? Address::kContiguous
                                    : Address::kSpread;
  at->offsets = split->lanes;
  const std::optional<Interval> narrow = split->NarrowSum();
  std::string sum;
  for (const auto& [term, factor] : split->terms) {
    TG_ASSIGN_OR_RETURN(const std::string text, ValueOf(term, 1));
    StrAppend(&sum, sum.empty() ? "" : " + ", narrow ? text : AsOffset(term.dtype(), text, 1));
    if (factor != 1 && narrow) StrAppend(&sum, " * ", static_cast<uint32_t>(factor), "u");
    if (factor != 1 && !narrow) StrAppend(&sum, " * ", static_cast<uint64_t>(factor), "ul");
  }
  if (narrow && !sum.empty()) {
    sum = StrCat("(", sum, ")");
    sum = narrow->lo >= 0 ? StrCat("(ulong)", sum) : AsOffset(DType::kInt32, sum, 1);
  }
  if (sum.empty() || split->constant != 0) {
    StrAppend(&sum, sum.empty() ? "" : " + ", static_cast<uint64_t>(split->constant), "ul");
  }
  // Vectors of three lanes have the size of four.
  at->whole = at->kind == Address::kContiguous && at->is_own && split->terms.empty() &&
              at->lanes != 3 && split->constant % at->lanes == 0;
  at->element = out_.Let(DType::kUInt64, 1, sum);
  return absl::OkStatus();
}

absl::Status CKernel::Index(UOp u) {
  Address at;
  const UOp buffer = BehindOrder(u.src(0));
  if (buffer.is(Op::kParam)) {
    const int64_t slot = buffer.slot();
    if (slot >= static_cast<int64_t>(program_.arguments.size()) ||
        program_.arguments[slot].dtype != buffer.dtype()) {
      return Broken("node ", buffer.id(), " is not argument ", slot);
    }
    at.memory = StrCat("a", slot);
  } else if (const auto found = buffers_.find(buffer.id()); found != buffers_.end()) {
    at.memory = found->second;
    at.is_own = buffer.space() == AddressSpace::kRegister;
  } else {
    return Broken("node ", u.id(), " indexes node ", buffer.id(), ", which is not a buffer");
  }
  TG_RETURN_IF_ERROR(ReadAccess(u, &at));
  TG_RETURN_IF_ERROR(PointTo(u, &at));
  addresses_.emplace(u.id(), std::move(at));
  return absl::OkStatus();
}

const CKernel::Address* CKernel::AddressOf(UOp u) const {
  const auto found = addresses_.find(u.id());
  return found == addresses_.end() ? nullptr : &found->second;
}

std::string CKernel::LoadLanes(const Address& at) const {
  if (at.whole && !at.lane_gate) return at.Whole();
  if (at.kind == Address::kContiguous && !at.lane_gate) {
    return StrCat("vload", at.lanes, "(0, ", at.memory, " + ", at.element, ")");
  }
  std::string text;
  for (int64_t i = 0; i < at.lanes; ++i) {
    const std::string element = StrCat(at.memory, "[", at.Element(i), "]");
    StrAppend(&text, i == 0 ? "" : ", ");
    if (at.lane_gate) {
      StrAppend(&text, CLane(at.gate, i, at.lanes), " ? ", element, " : ",
                CLiteral(at.dtype, 0, 1));
    } else {
      text += element;
    }
  }
  return at.lanes == 1 ? text : StrCat("(", CType(at.dtype, at.lanes), ")(", text, ")");
}

absl::Status CKernel::Load(UOp u) {
  const Address* at = AddressOf(u.src(0));
  if (at == nullptr) return Broken("node ", u.id(), " loads from no index");
  const std::string value = LoadLanes(*at);
  std::string name = NameOf(u);
  const std::string type = CType(at->dtype, at->lanes);
  if (at->gate.empty() || at->lane_gate) {
    out_.Line(type, " ", name, " = ", value, ";");
  } else {
    out_.Line(type, " ", name, " = ", CLiteral(at->dtype, 0, at->lanes), ";");
    out_.Line("if (", at->gate, ") ", name, " = ", value, ";");
  }
  // Any byte but 0 is true.
  if (IsBool(at->dtype)) {
    name = out_.Test(at->lanes, StrCat(name, " != ", CLiteral(at->dtype, 0, at->lanes)));
  }
  values_[u] = name;
  return absl::OkStatus();
}

void CKernel::StoreLanes(const Address& at, const std::string& value) {
  if (at.whole && !at.lane_gate) {
    out_.Line(at.Whole(), " = ", value, ";");
    return;
  }
  if (at.kind == Address::kContiguous && !at.lane_gate) {
    out_.Line("vstore", at.lanes, "(", value, ", 0, ", at.memory, " + ", at.element, ");");
    return;
  }
  const std::string stored = at.lanes == 1 ? value : out_.Let(at.dtype, at.lanes, value);
  for (int64_t i = 0; i < at.lanes; ++i) {
    const std::string gate = at.lane_gate ? StrCat("if (", CLane(at.gate, i, at.lanes), ") ") : "";
    out_.Line(gate, at.memory, "[", at.Element(i), "] = ", CLane(stored, i, at.lanes), ";");
  }
}

absl::Status CKernel::Store(UOp u) {
  const Address* at = AddressOf(u.src(0));
  if (at == nullptr) return Broken("node ", u.id(), " stores to no index");
  TG_ASSIGN_OR_RETURN(const std::string value, ValueOf(u.src(1), at->lanes));
  const bool branch = !at->gate.empty() && !at->lane_gate;
  if (branch) out_.Open("if (", at->gate, ")");
  StoreLanes(*at, value);
  if (branch) out_.Close();
  return absl::OkStatus();
}

}  // namespace telegrad
