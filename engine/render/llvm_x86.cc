// Lanes a few elements apart are loaded as the vectors that they lie in, from the first lane's
// element to the last one's, and picked from those. Lanes that are rows apart are loaded and stored
// row by row, where a program accesses neighbours of each. Stores to a large result that nothing
// reads go past the caches, where an argument is aligned to a line as it starts.
#include "engine/render/llvm_x86.h"

#include <algorithm>
#include <bit>

#include "engine/base/status.h"
#include "engine/render/llvm.h"
#include "engine/types/kernel_attributes.h"
#include "engine/types/machine_costs.h"
#include "engine/types/program_signature.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxStride = 4;  // of lanes that are loaded as whole vectors
constexpr int64_t kLineBytes = 64;
constexpr int64_t kLeastStreamed = 16;  // bytes of one store

std::string Attributes(const Target& target, size_t arguments) {
  // The processor's name is for tuning alone: what the code may use are the features, detected one
  // by one, because a name implies features that a virtual machine may hide. probe-stack: a large
  // frame touches each of its pages, so that it ends in the guard page and not beyond.
  std::string out =
      "attributes #0 = { nounwind \"target-cpu\"=\"x86-64\" \"probe-stack\"=\"inline-asm\"";
  if (!target.cpu.empty()) StrAppend(&out, " \"tune-cpu\"=\"", target.cpu, "\"");
  if (!target.features.empty()) StrAppend(&out, " \"target-features\"=\"", target.features, "\"");
  // LLVM would keep to 256 bits, half of what the machine can do.
  if (target.vector_bytes >= 64) out += " \"prefer-vector-width\"=\"512\"";
  StrAppend(&out, " \"", kParametersAttribute, "\"=\"",
            ParametersText(FunctionParameters(arguments)), "\"");
  return out + " }\n";
}

}  // namespace

absl::Status X86Kernel::Begin() {
  for (size_t slot = 0; slot < program_.arguments.size(); ++slot) {
    const std::string at = out_.Let("getelementptr ptr, ptr %buffers, i64 ", slot);
    Memory& memory = arguments_.emplace_back();
    memory.pointer = out_.Name(StrCat("a", slot), "load ptr, ptr ", at, ", align 8");
    memory.align = ByteSize(program_.arguments[slot].dtype);
    memory.of_loads = memory.of_stores =
        StrCat(", !alias.scope !", 3 * slot + 2, ", !noalias !", 3 * slot + 3);
    memory.argument = static_cast<int64_t>(slot);
    memory.elements = program_.arguments[slot].elements;
    if (!Streams(memory.argument)) continue;
    const std::string address = out_.Let("ptrtoint ptr %a", slot, " to i64");
    const std::string beyond = out_.Let("and i64 ", address, ", ", kLineBytes - 1);
    out_.Name(StrCat("s", slot), "icmp eq i64 ", beyond, ", 0");
  }
  rectangles_ = FindTransposes(program_, target_, kMaxStride + 1);
  for (size_t i = 0; i < rectangles_.size(); ++i) {
    for (UOp access : rectangles_[i]) rectangle_[access.id()] = i;
  }
  int64_t bytes = 0;
  for (const UOp buffer : Buffers()) {
    if (buffer.space() == AddressSpace::kGlobal) {
      return Broken("node ", buffer.id(), " is a BUFFER in global memory");
    }
    TG_RETURN_IF_ERROR(MakePrivate(buffer, kMaxPrivateBytes, &bytes));
  }
  return absl::OkStatus();
}

// Each argument is an alias scope of its own, and every access lies outside of all other scopes.
// That is true of written arguments by contract and harmless between arguments that are only read.
std::string X86Kernel::AliasMetadata() const {
  std::string out = "!0 = distinct !{!0}\n";
  const size_t n = program_.arguments.size();
  for (size_t slot = 0; slot < n; ++slot) {
    StrAppend(&out, "!", 3 * slot + 1, " = distinct !{!", 3 * slot + 1, ", !0}\n");
    StrAppend(&out, "!", 3 * slot + 2, " = !{!", 3 * slot + 1, "}\n");
    StrAppend(&out, "!", 3 * slot + 3, " = !{");
    std::string_view comma = "";
    for (size_t other = 0; other < n; ++other) {
      if (other == slot) continue;
      StrAppend(&out, comma, "!", 3 * other + 1);
      comma = ", ";
    }
    out += "}\n";
  }
  StrAppend(&out, "!", 3 * n + 1, " = !{i32 1}\n");
  if (whole_loops_ == 0) return out;
  StrAppend(&out, "!", 3 * n + 2, " = !{!\"llvm.loop.unroll.disable\"}\n");
  for (size_t i = 3 * n + 3; i < 3 * n + 3 + whole_loops_; ++i) {
    StrAppend(&out, "!", i, " = distinct !{!", i, ", !", 3 * n + 2, "}\n");
  }
  return out;
}

// A factor of a MULACC that is used no more gives its register to the result: after two iterations
// in one, each accumulator has had two, and where they are too few, one goes through memory each
// time.
bool X86Kernel::FillsRegisters(UOp range) const {
  const Graph& g = *program_.graph;
  const std::vector<uint32_t>& order = program_.order;
  absl::flat_hash_map<uint32_t, int> uses;
  std::vector<UOp> sums;
  for (size_t i = std::ranges::find(order, range.id()) - order.begin() + 1; i < order.size(); ++i) {
    const UOp u = g.at(order[i]);
    if (u.is(Op::kRange)) return false;  // not an innermost loop
    if (u.is(Op::kEnd)) break;
    for (uint32_t source : u.src_ids()) ++uses[source];
    if (u.is(Op::kMulAcc) && IsFloat(u.dtype()) && !u.shape().empty()) sums.push_back(u);
  }
  const auto twice = std::ranges::count_if(
      sums, [&](UOp u) { return uses[u.src(0).id()] == 1 || uses[u.src(1).id()] == 1; });
  return std::ssize(sums) + twice + 1 > target_.vector_registers && twice > 0;
}

std::string X86Kernel::LoopMetadata(UOp range) {
  if (range.axis_type() != AxisType::kReduce || !FillsRegisters(range)) return "";
  return StrCat(", !llvm.loop !", 3 * program_.arguments.size() + 3 + whole_loops_++);
}

std::string X86Kernel::Assemble() {
  // Such stores become visible in any order; what follows the launch must see them all.
  if (streamed_) out_.CallVoid("llvm.x86.sse.sfence", {});
  return StrCat("target triple = \"x86_64-unknown-linux-gnu\"\n\ndefine void @", program_.name,
                "(ptr noalias readonly %buffers, i64 %begin, i64 %end) #0 {\nentry:\n",
                out_.TakeBody(), "  ret void\n}\n\n", out_.Declarations(), "\n",
                Attributes(target_, arguments_.size()), "\n", AliasMetadata());
}

// The launch's part of the thread range, cut to the range: the bounds of all indices rest on it.
// Where the range's end is computed, the launch's part of all iterations is one of those there are.
absl::Status X86Kernel::OpenParallel(UOp u) {
  if (!u.is(Op::kRange) || u.axis_type() != AxisType::kThread) {
    return LlvmKernel::OpenParallel(u);
  }
  if (thread_seen_ || !open_.empty()) {
    return Broken("range ", u.id(), " of threads is not the one outermost range");
  }
  thread_seen_ = true;
  const DType dtype = u.dtype();
  const std::string type = LlvmType(dtype, 1);
  TG_ASSIGN_OR_RETURN(std::string end, ValueOf(u.src(0), 1));
  end = AsOffset(dtype, end, 1);
  std::string begin = out_.Call("llvm.smax.i64", "i64", {{"i64", "%begin"}, {"i64", "0"}});
  std::string last = "%end";
  const int64_t all = program_.iterations;
  const int64_t most = std::max(all, u.src(0).vmax());
  if (!u.src(0).is_const() && all > 0 && most <= INT32_MAX) {  // no product overflows
    const std::string there = out_.Call("llvm.smax.i64", "i64", {{"i64", end}, {"i64", "0"}});
    const auto scaled = [&](const std::string& x) {
      const std::string within =
          out_.Call("llvm.smin.i64", "i64", {{"i64", x}, {"i64", StrCat(all)}});
      return out_.Let("sdiv i64 ", out_.Let("mul nsw i64 ", within, ", ", there), ", ", all);
    };
    begin = scaled(begin);
    last = scaled(out_.Call("llvm.smax.i64", "i64", {{"i64", last}, {"i64", "0"}}));
  }
  end = out_.Call("llvm.smin.i64", "i64", {{"i64", last}, {"i64", end}});
  begin = out_.Call("llvm.smin.i64", "i64", {{"i64", begin}, {"i64", end}});
  if (type != "i64") {
    // An empty part may end below 0, which a narrow unsigned counter cannot say.
    end = out_.Call("llvm.smax.i64", "i64", {{"i64", end}, {"i64", begin}});
    begin = out_.Let("trunc i64 ", begin, " to ", type);
    end = out_.Let("trunc i64 ", end, " to ", type);
  }
  OpenLoop(u, begin, end);
  return absl::OkStatus();
}

absl::Status X86Kernel::CloseParallel(UOp u) {
  CloseLoop(u);
  return absl::OkStatus();
}

// A mask for one of the loads of a strided vector: lane `from[i]` of the gate where that is not
// negative, else false.
std::string X86Kernel::PickGate(const Address& at, std::vector<int64_t> from) {
  const std::string type = at.mask_type();
  std::ranges::replace(from, -1, at.lanes);
  return out_.Let("shufflevector ", type, " ", at.gate, ", ", type, " zeroinitializer, ",
                  LlvmShuffle(from));
}

std::string X86Kernel::LoadStrided(const Address& at) {
  const std::string element = LlvmMemoryType(at.dtype, 1), type = at.type();
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
        at.lane_gate
            ? out_.Call(StrCat("llvm.masked.load.", at.suffix(), ".p0"), type,
                        {{"ptr", pointer},
                         {"i32", StrCat(align)},
                         {at.mask_type(), PickGate(at, mask)},
                         {type, "zeroinitializer"}},
                        "", at.memory->of_loads)
            : out_.Let("load ", type, ", ptr ", pointer, ", align ", align, at.memory->of_loads);
    value = out_.Let("shufflevector ", type, " ", value, ", ", type, " ", part, ", ",
                     LlvmShuffle(take));
  }
  return value;
}

std::string X86Kernel::RowOf(UOp u, const Address& at, const Transpose& rectangle, int64_t lane) {
  const auto own = static_cast<int64_t>(std::ranges::find(rectangle, u) - rectangle.begin());
  return out_.Let("getelementptr inbounds ", LlvmMemoryType(at.dtype, 1), ", ptr ", at.pointer,
                  ", i64 ", lane * at.stride - own);
}

std::string X86Kernel::RowMask(const Address& at, const Transpose& rectangle) {
  std::string mask = "<";
  for (int64_t i = 0; i < at.lanes; ++i) {
    StrAppend(&mask, i == 0 ? "" : ", ", "i1 ", i < std::ssize(rectangle) ? 1 : 0);
  }
  return mask + ">";
}

// Block by block, first of one element, then of two and so on.
void X86Kernel::Exchange(const Address& at, std::vector<std::string>* rows) {
  const std::string type = at.type();
  for (int64_t size = 1; size < at.lanes; size *= 2) {
    std::vector<int64_t> upper(at.lanes), lower(at.lanes);
    for (int64_t i = 0; i < at.lanes; ++i) {
      upper[i] = (i & size) != 0 ? at.lanes + i - size : i;
      lower[i] = (i & size) != 0 ? at.lanes + i : i + size;
    }
    for (int64_t i = 0; i < at.lanes; ++i) {
      if ((i & size) != 0) continue;
      std::string &x = (*rows)[i], &y = (*rows)[i + size];
      const std::string pair = StrCat(type, " ", x, ", ", type, " ", y, ", ");
      x = out_.Let("shufflevector ", pair, LlvmShuffle(upper));
      y = out_.Let("shufflevector ", pair, LlvmShuffle(lower));
    }
  }
}

void X86Kernel::LoadTransposed(UOp u, const Address& at, const Transpose& rectangle) {
  const std::string type = at.type(), align = StrCat(ByteSize(at.dtype));
  std::vector<std::string> rows;
  for (int64_t i = 0; i < at.lanes; ++i) {
    const std::string pointer = RowOf(u, at, rectangle, i);
    rows.push_back(
        std::ssize(rectangle) == at.lanes
            ? out_.Let("load ", type, ", ptr ", pointer, ", align ", align, at.memory->of_loads)
            : out_.Call(StrCat("llvm.masked.load.", at.suffix(), ".p0"), type,
                        {{"ptr", pointer},
                         {"i32", align},
                         {at.mask_type(), RowMask(at, rectangle)},
                         {type, "poison"}},
                        "", at.memory->of_loads));
  }
  Exchange(at, &rows);
  for (size_t i = 0; i < rectangle.size(); ++i) transposed_[rectangle[i].id()] = rows[i];
}

void X86Kernel::StoreTransposed(UOp u, const Address& at, const Transpose& rectangle) {
  const std::string type = at.type(), align = StrCat(ByteSize(at.dtype));
  std::vector<std::string> rows;
  for (UOp store : rectangle) rows.push_back(transposed_.at(store.id()));
  rows.resize(at.lanes, "poison");
  Exchange(at, &rows);
  for (int64_t i = 0; i < at.lanes; ++i) {
    const std::string pointer = RowOf(u, at, rectangle, i);
    if (std::ssize(rectangle) == at.lanes) {
      out_.Line("store ", type, " ", rows[i], ", ptr ", pointer, ", align ", align,
                at.memory->of_stores);
    } else {
      out_.CallVoid(StrCat("llvm.masked.store.", at.suffix(), ".p0"),
                    {{type, rows[i]},
                     {"ptr", pointer},
                     {"i32", align},
                     {at.mask_type(), RowMask(at, rectangle)}},
                    at.memory->of_stores);
    }
  }
}

absl::StatusOr<std::string> X86Kernel::LoadLanes(UOp u, const Address& at) {
  FetchAheadOf(u, at);
  FetchRowAhead(u, at);
  FetchTileAhead(u, at);
  FetchStreamAhead(u, at);
  if (const auto it = rectangle_.find(u.id()); it != rectangle_.end()) {
    if (!transposed_.contains(u.id())) LoadTransposed(u, at, rectangles_[it->second]);
    return transposed_.at(u.id());
  }
  if (at.kind == Address::kSpread && at.stride > 1 && at.stride <= kMaxStride) {
    return LoadStrided(at);
  }
  return LlvmKernel::LoadLanes(u, at);
}

absl::Status X86Kernel::StoreLanes(UOp u, const Address& at, const std::string& value) {
  if (const auto it = rectangle_.find(u.id()); it != rectangle_.end()) {
    const Transpose& rectangle = rectangles_[it->second];
    transposed_[u.id()] = value;
    const bool last =
        std::ranges::all_of(rectangle, [&](UOp store) { return transposed_.contains(store.id()); });
    if (last) StoreTransposed(u, at, rectangle);
    return absl::OkStatus();
  }
  const int64_t bytes = at.lanes * ByteSize(at.dtype);
  if (at.kind == Address::kContiguous && at.gate.empty() && at.memory->argument >= 0 &&
      bytes >= kLeastStreamed && Streams(at.memory->argument) &&
      std::has_single_bit(static_cast<uint64_t>(at.lanes)) && at.divisors[0] % at.lanes == 0) {
    StoreStreamed(u, at, value);
    return absl::OkStatus();
  }
  return LlvmKernel::StoreLanes(u, at, value);
}

bool X86Kernel::Streams(int64_t slot) const {
  const Program::Argument& a = program_.arguments[slot];
  const int64_t from = a.result
                           ? std::min(target_.stream_bytes, CostsOf(target_).thread.result_bytes)
                           : target_.stream_bytes;
  return target_.stream_bytes > 0 && a.written && !a.read && BytesOf(a.dtype, a.elements) >= from;
}

void X86Kernel::StoreStreamed(UOp u, const Address& at, std::string_view value) {
  streamed_ = true;
  const std::string name = NameOf(u);
  out_.Line("br i1 %s", at.memory->argument, ", label %", name, ".stream, label %", name, ".keep");
  out_.Block(name + ".stream");
  out_.Line("store ", at.type(), " ", value, ", ptr ", at.pointer, ", align ",
            std::min<int64_t>(at.lanes * ByteSize(at.dtype), kLineBytes), at.memory->of_stores,
            ", !nontemporal !", 3 * program_.arguments.size() + 1);
  out_.Line("br label %", name, ".stored");
  out_.Block(name + ".keep");
  out_.Line("store ", at.type(), " ", value, ", ptr ", at.pointer, ", align ", at.align(),
            at.memory->of_stores);
  out_.Line("br label %", name, ".stored");
  out_.Block(name + ".stored");
}

}  // namespace telegrad
