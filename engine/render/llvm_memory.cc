// Accesses. Consecutive lanes are one vector access; lanes a few elements apart are loaded as the
// vectors that they lie in, from the first lane's element to the last one's, and picked from those.
// Other vectors are gathers and scatters. Stores to a large result that nothing reads go past the
// caches, where an argument is aligned to a line as it starts. A gate of one bit is a branch around
// the access, which LLVM's own vectorizer also understands; a gate per lane is a mask.
#include <algorithm>
#include <array>
#include <bit>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/render/llvm_kernel.h"

namespace telegrad {
namespace {

// Lanes of a sum narrower than 64 bits are consecutive in memory only if the sum does not wrap. In
// 64 bits addresses wrap along with it.
// The same goes for multiples.
bool AddsExactly(UOp sum) {
  if (Info(sum.dtype()).bits == 64) return true;
  if (!sum.is(Op::kAdd)) return false;
  const Interval x = sum.src(0).bounds(), y = sum.src(1).bounds();
  int64_t lo, hi;
  return CheckedAdd(x.lo, y.lo, &lo) && CheckedAdd(x.hi, y.hi, &hi) &&
         sum.bounds() == Interval{lo, hi};
}

constexpr int64_t kMaxStride = 4;  // of lanes that are loaded as whole vectors
constexpr int64_t kLineBytes = 64;

// The mask of a shufflevector; below 0: any.
std::string LlvmShuffle(const std::vector<int64_t>& from, int64_t lanes) {
  std::string out = StrCat("<", lanes, " x i32> <");
  for (size_t i = 0; i < from.size(); ++i) {
    StrAppend(&out, i == 0 ? "" : ", ", "i32 ");
    from[i] < 0 ? StrAppend(&out, "poison") : StrAppend(&out, from[i]);
  }
  return out + ">";
}

// 0, stride, 2 * stride, ...
std::string LlvmSteps(int64_t stride, int64_t lanes) {
  std::string out = "<";
  for (int64_t i = 0; i < lanes; ++i) StrAppend(&out, i == 0 ? "" : ", ", "i64 ", i * stride);
  return out + ">";
}

}  // namespace

std::string LlvmKernel::AsOffset(DType dtype, std::string_view text, int64_t lanes) {
  if (Info(dtype).bits == 64) return std::string(text);
  return out_.Let(IsSigned(dtype) ? "sext " : "zext ", LlvmType(dtype, lanes), " ", text, " to ",
                  LlvmType(DType::kInt64, lanes));
}

absl::StatusOr<std::string> LlvmKernel::LanesBase(UOp index, int64_t* stride) {
  std::vector<UOp> terms;  // scalars that are added to a multiple of IOTA
  UOp at = index;
  while (at.is(Op::kAdd)) {
    const bool first_is_scalar = at.src(0).shape().empty();
    if (first_is_scalar == at.src(1).shape().empty() || !AddsExactly(at)) return std::string();
    terms.push_back(at.src(first_is_scalar ? 0 : 1));
    at = at.src(first_is_scalar ? 1 : 0);
  }
  *stride = 1;
  if (at.is(Op::kMul) && at.src(0).is(Op::kIota) && at.src(1).is_const() && AddsExactly(at)) {
    *stride = at.src(1).const_word();
    at = at.src(0);
  }
  if (!at.is(Op::kIota) || *stride < 1 || *stride > kMaxStride) return std::string();
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
  if (buffer.is(Op::kParam) && at.lanes * ByteSize(at.dtype) >= 16 && Streams(buffer.arg(0)) &&
      IsWholeVectors(index)) {
    at.streams = StrCat("%s", buffer.arg(0));
  }
  std::string offset;
  if (at.lanes > 1) {
    TG_ASSIGN_OR_RETURN(offset, LanesBase(index, &at.stride));
    at.kind = offset.empty()   ? Address::kLanes
              : at.stride == 1 ? Address::kContiguous
                               : Address::kStrided;
  }
  if (offset.empty()) {
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

// A mask for one of the loads of a strided vector: lane `from[i]` of the gate where that is not
// negative, else false.
std::string LlvmKernel::PickGate(const Address& at, std::vector<int64_t> from) {
  const std::string type = LlvmType(DType::kBool, at.lanes);
  std::ranges::replace(from, -1, at.lanes);
  return out_.Let("shufflevector ", type, " ", at.gate, ", ", type, " zeroinitializer, ",
                  LlvmShuffle(from, at.lanes));
}

std::string LlvmKernel::LoadStrided(const Address& at, std::string_view suffix) {
  const std::string element = LlvmMemoryType(at.dtype, 1);
  const std::string type = LlvmMemoryType(at.dtype, at.lanes);
  const int64_t align = ByteSize(at.dtype), span = (at.lanes - 1) * at.stride + 1;
  std::string value = "zeroinitializer";
  for (int64_t first = 0, lane = 0; lane < at.lanes; first += at.lanes) {
    const int64_t offset = std::min(first, span - at.lanes);
    // Which lanes this load has, and where.
    std::vector<int64_t> take(at.lanes, -1), mask(at.lanes, -1);
    for (int64_t i = 0; i < lane; ++i) take[i] = i;
    for (; lane < at.lanes && lane * at.stride < offset + at.lanes; ++lane) {
      const int64_t position = lane * at.stride - offset;
      take[lane] = at.lanes + position;
      mask[position] = lane;
    }
    const std::string pointer = out_.Let("getelementptr ", at.lane_gate ? "" : "inbounds ", element,
                                         ", ptr ", at.pointer, ", i64 ", offset);
    const std::string part =
        at.lane_gate ? out_.Call(StrCat("llvm.masked.load.", suffix, ".p0"), type,
                                 {{"ptr", pointer},
                                  {"i32", StrCat(align)},
                                  {LlvmType(DType::kBool, at.lanes), PickGate(at, mask)},
                                  {type, "zeroinitializer"}},
                                 "", at.alias)
                     : out_.Let("load ", type, ", ptr ", pointer, ", align ", align, at.alias);
    value = out_.Let("shufflevector ", type, " ", value, ", ", type, " ", part, ", ",
                     LlvmShuffle(take, at.lanes));
  }
  return value;
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
  } else if (at.kind == Address::kStrided) {
    value = LoadStrided(at, suffix);
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
  std::string pointers = at.pointer;
  if (at.kind == Address::kStrided) {
    pointers = out_.Let("getelementptr ", LlvmMemoryType(at.dtype, 1), ", ptr ", at.pointer, ", ",
                        LlvmType(DType::kInt64, at.lanes), " ", LlvmSteps(at.stride, at.lanes));
  }

  OpenGate(u, at);
  if (IsBool(at.dtype)) {
    value = out_.Let("zext ", LlvmType(at.dtype, at.lanes), " ", value, " to ", type);
  }
  if (at.kind == Address::kLanes || at.kind == Address::kStrided) {
    out_.CallVoid(StrCat("llvm.masked.scatter.", suffix, ".v", at.lanes, "p0"),
                  {{type, value},
                   {StrCat("<", at.lanes, " x ptr>"), pointers},
                   {"i32", StrCat(align)},
                   {mask_type, mask}},
                  at.alias);
  } else if (at.lane_gate) {
    out_.CallVoid(StrCat("llvm.masked.store.", suffix, ".p0"),
                  {{type, value}, {"ptr", at.pointer}, {"i32", StrCat(align)}, {mask_type, mask}},
                  at.alias);
  } else if (at.kind == Address::kContiguous && at.gate.empty() && !at.streams.empty()) {
    StoreStreamed(u, at, type, value);
  } else {
    out_.Line("store ", type, " ", value, ", ptr ", at.pointer, ", align ", align, at.alias);
  }
  CloseGate(u, at);
  return absl::OkStatus();
}

bool LlvmKernel::Streams(int64_t slot) const {
  const Program::Argument& a = program_.arguments[slot];
  return target_.stream_bytes > 0 && a.written && !a.read &&
         BytesOf(a.dtype, a.elements) >= target_.stream_bytes;
}

bool LlvmKernel::IsWholeVectors(UOp index) {
  const int64_t lanes = index.shape().empty() ? 1 : index.shape()[0];
  if (!std::has_single_bit(static_cast<uint64_t>(lanes))) return false;
  // Of each summand, what it is multiplied with.
  std::vector<std::pair<UOp, int64_t>> stack{{index, 1}};
  constexpr size_t kMost = 256;
  for (size_t steps = 0; !stack.empty(); ++steps) {
    const auto [u, factor] = stack.back();
    stack.pop_back();
    if (steps > kMost) return false;
    if (u.is(Op::kIota) || factor % lanes == 0) continue;
    if (u.is_const()) {
      if (u.const_word() % lanes != 0) return false;
    } else if (u.is(Op::kAdd)) {
      stack.push_back({u.src(0), factor});
      stack.push_back({u.src(1), factor});
    } else if (u.is(Op::kMul) && u.src(1).is_const()) {
      stack.push_back({u.src(0), (u.src(1).const_word() % lanes) * factor % lanes});
    } else {
      return false;
    }
  }
  return true;
}

void LlvmKernel::StoreStreamed(UOp u, const Address& at, std::string_view type,
                               std::string_view value) {
  streamed_ = true;
  const std::string name = NameOf(u);
  out_.Line("br i1 ", at.streams, ", label %", name, ".stream, label %", name, ".keep");
  out_.Block(name + ".stream");
  out_.Line("store ", type, " ", value, ", ptr ", at.pointer, ", align ",
            std::min<int64_t>(at.lanes * ByteSize(at.dtype), kLineBytes), at.alias,
            ", !nontemporal !", 3 * program_.arguments.size() + 1);
  out_.Line("br label %", name, ".stored");
  out_.Block(name + ".keep");
  out_.Line("store ", type, " ", value, ", ptr ", at.pointer, ", align ", ByteSize(at.dtype),
            at.alias);
  out_.Line("br label %", name, ".stored");
  out_.Block(name + ".stored");
}

}  // namespace telegrad
