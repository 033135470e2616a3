// Accesses. Consecutive lanes are one vector access; other vectors are gathers and scatters, unless
// a target knows better. A gate of one bit is a branch around the access, which LLVM's own
// vectorizer also understands; a gate per lane is a mask.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/render/lane_offsets.h"
#include "engine/render/llvm_kernel.h"

namespace telegrad {
namespace {

constexpr size_t kMaxConditions = 16;  // of a gate, that are looked at

// What the lanes are beyond the first one, as a vector.
std::string Steps(const std::vector<int64_t>& offsets) {
  std::string out = "<";
  for (size_t i = 0; i < offsets.size(); ++i) {
    StrAppend(&out, i == 0 ? "" : ", ", "i64 ", offsets[i]);
  }
  return out + ">";
}

// Whether one of the gate's first conditions compares the index itself: then that is computed in
// any case.
bool IsCompared(UOp index, UOp gate) {
  std::vector<UOp> conditions{gate};
  for (size_t i = 0; i < conditions.size() && i < kMaxConditions; ++i) {
    const UOp u = conditions[i];
    if (u.is(Op::kAnd)) conditions.insert(conditions.end(), {u.src(0), u.src(1)});
    if (u.is(Op::kCmpLt) && (u.src(0) == index || u.src(1) == index)) return true;
  }
  return false;
}

// An index of 64 bits is one term; of one of 32 bits the constant is taken out, because LLVM finds
// less of what such addresses have in common.
std::optional<LaneOffsets> SplitIndex(UOp u, int64_t lanes) {
  const UOp index = u.src(1);
  if (lanes > 1) return SplitLanes(index);
  const bool whole =
      Info(index.dtype()).bits == 64 || (u.num_src() == 3 && IsCompared(index, u.src(2)));
  const auto split = whole ? std::nullopt : SplitLanes(index);
  return split ? split : LaneOffsets{{{index, 1}}, 0, {0}};
}

}  // namespace

std::vector<UOp> LlvmKernel::Buffers() const {
  std::vector<UOp> buffers;
  for (uint32_t id : program_.order) {
    const UOp u = program_.graph->at(id);
    if (u.is(Op::kBuffer) && std::ranges::find(buffers, u) == buffers.end()) buffers.push_back(u);
  }
  return buffers;
}

absl::Status LlvmKernel::MakePrivate(UOp buffer, int64_t most, int64_t* bytes, int space) {
  const int64_t size = buffer.elements() * ByteSize(buffer.dtype());
  *bytes += (size + 63) / 64 * 64;
  if (*bytes > most) return Broken("the BUFFERs take more than ", most, " bytes");
  Memory& memory = buffers_[buffer.id()];
  memory.pointer = out_.Name(NameOf(buffer), "alloca [", buffer.elements(), " x ",
                             LlvmMemoryType(buffer.dtype(), 1), "], align 64",
                             space == 0 ? "" : StrCat(", addrspace(", space, ")"));
  memory.space = space;
  memory.align = ByteSize(buffer.dtype());
  memory.elements = buffer.elements();
  out_.CallVoid(
      StrCat("llvm.memset.p", space, ".i64"),
      {{LlvmPointer(space), memory.pointer}, {"i8", "0"}, {"i64", StrCat(size)}, {"i1", "false"}});
  return absl::OkStatus();
}

std::string LlvmKernel::AsOffset(DType dtype, std::string_view text, int64_t lanes) {
  if (Info(dtype).bits == 64) return std::string(text);
  return out_.Let(IsSigned(dtype) ? "sext " : "zext ", LlvmType(dtype, lanes), " ", text, " to ",
                  LlvmType(DType::kInt64, lanes));
}

const LlvmKernel::Memory* LlvmKernel::MemoryOf(UOp index) const {
  const UOp buffer = BehindOrder(index.src(0));
  if (buffer.is(Op::kParam)) {
    const int64_t slot = buffer.slot();
    const bool is_argument = slot < static_cast<int64_t>(program_.arguments.size()) &&
                             program_.arguments[slot].dtype == buffer.dtype();
    return is_argument ? &arguments_[slot] : nullptr;
  }
  const auto found = buffers_.find(buffer.id());
  return found == buffers_.end() ? nullptr : &found->second;
}

const LlvmKernel::Address* LlvmKernel::AddressOf(UOp u) const {
  const auto found = addresses_.find(u.id());
  return found == addresses_.end() ? nullptr : &found->second;
}

absl::StatusOr<std::string> LlvmKernel::AddUp(const LaneOffsets& split) {
  const bool narrow = split.NarrowSum().has_value();
  const auto positive = [](const LaneOffsets::Term& term) {
    return term.factor >= 0 && term.scalar.vmin() >= 0;
  };
  const std::string_view type = !narrow                                      ? " i64 "
                                : std::ranges::all_of(split.terms, positive) ? " nuw nsw i32 "
                                                                             : " nsw i32 ";
  std::string sum;
  for (const auto& [term, factor] : split.terms) {
    TG_ASSIGN_OR_RETURN(const std::string text, ValueOf(term, 1));
    std::string offset = narrow ? text : AsOffset(term.dtype(), text, 1);
    if (factor != 1) offset = out_.Let("mul", type, offset, ", ", factor);
    sum = sum.empty() ? offset : out_.Let("add", type, sum, ", ", offset);
  }
  return sum;
}

// Under a mask some lanes may lie outside of the buffer; all other addresses are used only when
// inside.
absl::Status LlvmKernel::PointTo(UOp u, Address* at) {
  const UOp index = u.src(1);
  const std::string_view inbounds = at->lane_gate ? "" : "inbounds ";
  const auto point = [&](std::string_view offset, int64_t lanes) {
    at->pointer = out_.Name(NameOf(u), "getelementptr ", inbounds, LlvmMemoryType(at->dtype, 1),
                            ", ", at->pointer_type(), " ", at->memory->pointer, ", ",
                            LlvmType(DType::kInt64, lanes), " ", offset);
  };
  const auto split = SplitIndex(u, at->lanes);
  if (!split) {
    at->kind = Address::kLanes;
    TG_ASSIGN_OR_RETURN(const std::string text, ValueOf(index, at->lanes));
    point(AsOffset(index.dtype(), text, at->lanes), at->lanes);
    return absl::OkStatus();
  }
  at->stride = split->Stride();
  at->kind = at->lanes == 1    ? Address::kScalar
             : at->stride == 1 ? Address::kContiguous
                               : Address::kSpread;
  at->offsets = split->lanes;
  at->divisors = split->Divisors();
  TG_ASSIGN_OR_RETURN(at->element, AddUp(*split));
  if (const auto sum = split->NarrowSum(); sum && !at->element.empty()) {
    const int64_t size = ByteSize(at->dtype);
    if (AddsBytes(*at) && sum->lo >= 0 && sum->hi <= UINT32_MAX / size) {
      at->bytes = out_.Let("mul nuw i32 ", at->element, ", ", size);
      at->constant = split->constant;
    }
    at->element = out_.Let(sum->lo >= 0 ? "zext" : "sext", " i32 ", at->element, " to i64");
  }
  if (at->element.empty()) {
    at->element = StrCat(split->constant);
  } else if (split->constant != 0) {
    at->element = out_.Let("add i64 ", at->element, ", ", split->constant);
  }
  if (at->bytes.empty()) point(at->element, 1);
  return absl::OkStatus();
}

// What lies in front of the constant may be outside of the buffer.
void LlvmKernel::PointByBytes(Address* at) {
  const std::string_view inbounds = at->lane_gate || at->constant != 0 ? "" : "inbounds ";
  const std::string wide = out_.Let("zext i32 ", at->bytes, " to i64");
  at->pointer = out_.Let("getelementptr ", inbounds, "i8, ", at->pointer_type(), " ",
                         at->memory->pointer, ", i64 ", wide);
  if (at->constant == 0) return;
  at->pointer = out_.Let("getelementptr ", LlvmMemoryType(at->dtype, 1), ", ", at->pointer_type(),
                         " ", at->pointer, ", i64 ", at->constant);
}

absl::Status LlvmKernel::Index(UOp u) {
  Address at;
  at.memory = MemoryOf(u);
  if (at.memory == nullptr) {
    const UOp buffer = BehindOrder(u.src(0));
    return buffer.is(Op::kParam)
               ? Broken("node ", buffer.id(), " is not argument ", buffer.slot())
               : Broken("node ", u.id(), " indexes node ", buffer.id(), ", which is not a buffer");
  }
  TG_RETURN_IF_ERROR(ReadAccess(u, &at));
  TG_RETURN_IF_ERROR(PointTo(u, &at));
  addresses_.emplace(u.id(), std::move(at));
  return absl::OkStatus();
}

// LLVM chooses instructions for each block by itself, and has to see there that an offset is one of
// 32 bits.
LlvmKernel::Address LlvmKernel::Inside(Address at) {
  if (!at.bytes.empty()) PointByBytes(&at);
  return at;
}

void LlvmKernel::OpenGate(UOp u, std::string_view gate) {
  if (gate.empty()) return;
  gate_from_ = out_.block();
  out_.Line("br i1 ", gate, ", label %", NameOf(u), ".then, label %", NameOf(u), ".join");
  out_.Block(NameOf(u) + ".then");
}

void LlvmKernel::CloseGate(UOp u, std::string_view gate) {
  if (gate.empty()) return;
  out_.Line("br label %", NameOf(u), ".join");
  out_.Block(NameOf(u) + ".join");
}

std::string LlvmKernel::Pointers(const Address& at) {
  if (at.kind == Address::kLanes) return at.pointer;
  // With steps of 0 alone, LLVM 19's loop-invariant code motion makes one pointer of a vector.
  if (std::ranges::all_of(at.offsets, [](int64_t offset) { return offset == 0; })) {
    return out_.Splat(at.pointer_type(), at.pointer, at.lanes);
  }
  return out_.Let("getelementptr ", LlvmMemoryType(at.dtype, 1), ", ", at.pointer_type(), " ",
                  at.pointer, ", ", LlvmType(DType::kInt64, at.lanes), " ", Steps(at.offsets));
}

std::string LlvmKernel::Gather(const Address& at) {
  return out_.Call(
      StrCat("llvm.masked.gather.", at.suffix(), ".v", at.lanes, "p", at.memory->space), at.type(),
      {{StrCat("<", at.lanes, " x ", at.pointer_type(), ">"), Pointers(at)},
       {"i32", StrCat(ByteSize(at.dtype))},
       {at.mask_type(), at.mask()},
       {at.type(), "zeroinitializer"}},
      "", at.memory->of_loads);
}

void LlvmKernel::Scatter(const Address& at, const std::string& value) {
  out_.CallVoid(StrCat("llvm.masked.scatter.", at.suffix(), ".v", at.lanes, "p", at.memory->space),
                {{at.type(), value},
                 {StrCat("<", at.lanes, " x ", at.pointer_type(), ">"), Pointers(at)},
                 {"i32", StrCat(ByteSize(at.dtype))},
                 {at.mask_type(), at.mask()}},
                at.memory->of_stores);
}

absl::StatusOr<std::string> LlvmKernel::LoadLanes(UOp, const Address& at) {
  if (at.kind == Address::kLanes || at.kind == Address::kSpread) return Gather(at);
  if (at.lane_gate) {
    return out_.Call(StrCat("llvm.masked.load.", at.suffix(), ".p", at.memory->space), at.type(),
                     {{at.pointer_type(), at.pointer},
                      {"i32", StrCat(at.align())},
                      {at.mask_type(), at.gate},
                      {at.type(), "zeroinitializer"}},
                     "", at.memory->of_loads);
  }
  return out_.Let("load ", at.type(), ", ", at.pointer_type(), " ", at.pointer, ", align ",
                  at.align(), at.memory->of_loads);
}

absl::Status LlvmKernel::StoreLanes(UOp, const Address& at, const std::string& value) {
  if (at.kind == Address::kLanes || at.kind == Address::kSpread) {
    Scatter(at, value);
  } else if (at.lane_gate) {
    out_.CallVoid(StrCat("llvm.masked.store.", at.suffix(), ".p", at.memory->space),
                  {{at.type(), value},
                   {at.pointer_type(), at.pointer},
                   {"i32", StrCat(at.align())},
                   {at.mask_type(), at.gate}},
                  at.memory->of_stores);
  } else {
    out_.Line("store ", at.type(), " ", value, ", ", at.pointer_type(), " ", at.pointer, ", align ",
              at.align(), at.memory->of_stores);
  }
  return absl::OkStatus();
}

absl::Status LlvmKernel::Load(UOp u) {
  const Address* at = AddressOf(u.src(0));
  if (at == nullptr) return Broken("node ", u.id(), " loads from no index");
  const std::string gate = at->lane_gate ? "" : at->gate;
  OpenGate(u, gate);
  const std::string before = gate_from_;
  TG_ASSIGN_OR_RETURN(std::string value, LoadLanes(u, Inside(*at)));
  if (IsBool(at->dtype)) {
    value = out_.Let("icmp ne ", at->type(), " ", value, ", zeroinitializer");
  }
  const std::string inside = out_.block();
  CloseGate(u, gate);
  if (!gate.empty()) {
    value = out_.Name(NameOf(u), "phi ", LlvmType(at->dtype, at->lanes), " [ ", value, ", %",
                      inside, " ], [ zeroinitializer, %", before, " ]");
  }
  values_[u] = value;
  return absl::OkStatus();
}

absl::Status LlvmKernel::Store(UOp u) {
  const Address* at = AddressOf(u.src(0));
  if (at == nullptr) return Broken("node ", u.id(), " stores to no index");
  const std::string gate = at->lane_gate ? "" : at->gate;
  TG_ASSIGN_OR_RETURN(std::string value, ValueOf(u.src(1), at->lanes));
  OpenGate(u, gate);
  if (IsBool(at->dtype)) {
    value = out_.Let("zext ", LlvmType(at->dtype, at->lanes), " ", value, " to ", at->type());
  }
  TG_RETURN_IF_ERROR(StoreLanes(u, Inside(*at), value));
  CloseGate(u, gate);
  return absl::OkStatus();
}

}  // namespace telegrad
