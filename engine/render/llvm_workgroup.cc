// The frame of the kernel and where things are. What the launch promises of the arguments are
// attributes, by which LLVM takes the path of read-only data and vector accesses. A thread's lanes
// are registers, so a vector access is made of the widest aligned groups that are known to be
// there, at most 16 bytes each.
#include "engine/render/llvm_workgroup.h"

#include <algorithm>
#include <bit>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/types/kernel_attributes.h"
#include "engine/types/program_signature.h"

namespace telegrad {
namespace {

constexpr int kGlobalSpace = 1, kSharedSpace = 3;       // memories as LLVM numbers them
constexpr int64_t kMaxThreadBytes = int64_t{16} << 10;  // of BUFFER(register)
constexpr int64_t kRegisterBytes = 4;

// How many values the range can have at most.
int64_t MostOf(UOp range) { return std::max<int64_t>(range.src(0).vmax(), 1); }

}  // namespace

struct LlvmWorkgroupKernel::Table {
  struct Row {
    Op op;
    absl::Status (LlvmWorkgroupKernel::*print)(UOp);
  };
  static constexpr Row kRows[] = {
      {Op::kRole, &LlvmWorkgroupKernel::OpenRole},
      {Op::kBarrier, &LlvmWorkgroupKernel::Barrier},
      {Op::kShuffle, &LlvmWorkgroupKernel::Shuffle},
      {Op::kMma, &LlvmWorkgroupKernel::Mma},
      {Op::kLoadMatrix, &LlvmWorkgroupKernel::LoadMatrix},
      {Op::kCopyAsync, &LlvmWorkgroupKernel::CopyAsync},
      {Op::kWait, &LlvmWorkgroupKernel::Wait},
  };
};

absl::Status LlvmWorkgroupKernel::ManyThreads(UOp u) {
  for (const Table::Row& row : Table::kRows) {
    if (row.op == u.op()) return (this->*row.print)(u);
  }
  return LlvmKernel::ManyThreads(u);
}

absl::Status LlvmWorkgroupKernel::ReadRanges() {
  for (uint32_t id : program_.order) {
    const UOp u = program_.graph->at(id);
    if (!u.is(Op::kRange)) continue;
    const AxisType type = u.axis_type();
    if (type != AxisType::kGroup && type != AxisType::kLocal && type != AxisType::kWarp) continue;
    const bool group = type == AxisType::kGroup;
    int64_t& total = group ? workgroups_ : threads_;
    if (!CheckedMul(total, MostOf(u), &total)) return Broken("range ", id, " has no bound");
    (group ? groups_ : locals_).push_back(u);
  }
  if (threads_ > target_.group_threads) {
    return Broken("a workgroup has ", threads_, " threads, the target at most ",
                  target_.group_threads);
  }
  return absl::OkStatus();
}

absl::Status LlvmWorkgroupKernel::PlaceBuffers() {
  int64_t bytes = 0;
  for (const UOp buffer : Buffers()) {
    if (buffer.space() == AddressSpace::kGlobal) {
      return Broken("node ", buffer.id(), " is a BUFFER in global memory");
    }
    if (buffer.space() == AddressSpace::kRegister) {
      TG_RETURN_IF_ERROR(MakePrivate(buffer, kMaxThreadBytes, &bytes, private_space()));
      // Elements that share a register are not taken apart, as they would be one by one.
      if (ByteSize(buffer.dtype()) < kRegisterBytes) buffers_[buffer.id()].align = kBufferAlign;
      continue;
    }
    Memory& memory = buffers_[buffer.id()];
    memory.pointer =
        out_.Name(NameOf(buffer), "getelementptr inbounds i8, ", LlvmPointer(kSharedSpace), " @",
                  program_.name, "_local, i64 ", local_bytes_);
    memory.space = kSharedSpace;
    memory.align = kBufferAlign;
    memory.elements = buffer.elements();
    const int64_t size = buffer.elements() * ByteSize(buffer.dtype());
    local_bytes_ += (size + kBufferAlign - 1) / kBufferAlign * kBufferAlign;
    if (local_bytes_ > target_.local_bytes) {
      return Broken("a workgroup takes more local memory than the target's ", target_.local_bytes,
                    " bytes");
    }
  }
  return absl::OkStatus();
}

void LlvmWorkgroupKernel::NumberThreads() {
  thread_ = ThreadNumber();
  const std::string x = WorkgroupNumber();
  group_ = out_.Let("add i64 %begin, ", out_.Let("zext i32 ", x, " to i64"));
  const std::string inside = out_.Let("icmp ult i64 ", group_, ", ", workgroups_);
  out_.Line("br i1 ", inside, ", label %work, label %leave");
  out_.Block("work");
}

absl::Status LlvmWorkgroupKernel::Begin() {
  for (size_t slot = 0; slot < program_.arguments.size(); ++slot) {
    const Program::Argument& argument = program_.arguments[slot];
    Memory& memory = arguments_.emplace_back();
    memory.pointer = StrCat("%a", slot);
    memory.space = kGlobalSpace;
    memory.align = std::max<int64_t>(target_.vector_bytes, ByteSize(argument.dtype));
    if (!argument.written) memory.of_loads = ", !invariant.load !1";
    memory.argument = static_cast<int64_t>(slot);
    memory.elements = argument.elements;
  }
  TG_RETURN_IF_ERROR(ReadRanges());
  TG_RETURN_IF_ERROR(PlaceBuffers());
  NumberThreads();
  return absl::OkStatus();
}

std::string LlvmWorkgroupKernel::Assemble() {
  out_.Line("br label %leave");
  out_.Block("leave");
  std::string text = StrCat("target triple = \"", triple(), "\"\n\n");
  if (local_bytes_ > 0) {
    StrAppend(&text, "@", program_.name, "_local = external addrspace(", kSharedSpace,
              ") global [0 x i8], align ", kBufferAlign, "\n\n");
  }
  StrAppend(&text, "define ", CallingConvention(), " void @", program_.name, "(");
  for (const Memory& memory : arguments_) {
    StrAppend(&text, LlvmPointer(memory.space), " noalias ",
              program_.arguments[memory.argument].written ? "" : "readonly ", "align ",
              memory.align, " ", memory.pointer, ", ");
  }
  StrAppend(&text, "i64 %begin) #0", FunctionMetadata(), " {\nentry:\n", out_.TakeBody(),
            "  ret void\n}\n\n", out_.Declarations(), "\nattributes #0 = { nounwind \"",
            kGroupThreadsAttribute, "\"=\"", threads_, "\" \"", kLocalBytesAttribute, "\"=\"",
            local_bytes_, "\" \"", kParametersAttribute, "\"=\"",
            ParametersText(KernelParameters(arguments_.size())), "\"", Attributes(), " }\n\n",
            Metadata(), "!1 = !{}\n");
  return text;
}

absl::Status LlvmWorkgroupKernel::OpenParallel(UOp u) {
  if (u.is(Op::kRole)) return OpenRole(u);
  const bool group = u.axis_type() == AxisType::kGroup;
  const std::vector<UOp>& ranges = group ? groups_ : locals_;
  const auto at = std::ranges::find(ranges, u);
  if (at == ranges.end()) return LlvmKernel::OpenParallel(u);
  int64_t inner = 1;  // iterations of the ranges inside of this one
  for (auto it = at + 1; it != ranges.end(); ++it) inner *= MostOf(*it);
  // Division is many times faster in 32 bits.
  const bool narrow = !group || workgroups_ <= INT32_MAX;
  const std::string wide = narrow ? "i32" : "i64";
  std::string value = !group   ? thread_
                      : narrow ? out_.Let("trunc i64 ", group_, " to i32")
                               : group_;
  if (inner > 1) value = out_.Let("udiv ", wide, " ", value, ", ", inner);
  if (at != ranges.begin()) value = out_.Let("urem ", wide, " ", value, ", ", MostOf(u));
  const std::string type = LlvmType(u.dtype(), 1);
  const int bits = Info(u.dtype()).bits, from = narrow ? 32 : 64;
  if (bits != from) {
    value = out_.Let(bits > from ? "zext " : "trunc ", wide, " ", value, " to ", type);
  }
  values_[u] = value;
  open_.push_back(u);
  if (u.src(0).is_const()) return absl::OkStatus();
  TG_ASSIGN_OR_RETURN(const std::string end, ValueOf(u.src(0), 1));
  const std::string inside =
      out_.Let("icmp ", IsSigned(u.dtype()) ? "slt " : "ult ", type, " ", value, ", ", end);
  out_.Line("br i1 ", inside, ", label %", NameOf(u), ".inside, label %leave");
  out_.Block(NameOf(u) + ".inside");
  return absl::OkStatus();
}

absl::Status LlvmWorkgroupKernel::OpenRole(UOp u) {
  const int64_t first = u.first_warp() * program_.warp, count = u.warps() * program_.warp;
  const std::string beyond = out_.Let("sub i32 ", thread_, ", ", first);
  const std::string member = out_.Let("icmp ult i32 ", beyond, ", ", count);
  out_.Line("br i1 ", member, ", label %", NameOf(u), ".role, label %", NameOf(u), ".after");
  out_.Block(NameOf(u) + ".role");
  open_.push_back(u);
  return absl::OkStatus();
}

absl::Status LlvmWorkgroupKernel::CloseParallel(UOp u) {
  if (!u.is(Op::kRole)) return absl::OkStatus();
  out_.Line("br label %", NameOf(u), ".after");
  out_.Block(NameOf(u) + ".after");
  return absl::OkStatus();
}

std::vector<LlvmWorkgroupKernel::LaneGroup> LlvmWorkgroupKernel::LaneGroups(
    const Address& at) const {
  const int64_t size = ByteSize(at.dtype);
  std::vector<LaneGroup> groups;
  for (int64_t first = 0; first < at.lanes;) {
    const int64_t align = at.align(first);
    int64_t lanes = 1;
    const auto follows = [&](int64_t i) { return at.offsets[i] == at.offsets[i - 1] + 1; };
    while (2 * lanes * size <= std::min<int64_t>(align, target_.vector_bytes) &&
           first + 2 * lanes <= at.lanes) {
      bool consecutive = true;
      for (int64_t i = first + lanes; i < first + 2 * lanes; ++i) consecutive &= follows(i);
      if (!consecutive) break;
      lanes *= 2;
    }
    groups.push_back({first, lanes, std::min(align, lanes * size)});
    first += lanes;
  }
  return groups;
}

std::string LlvmWorkgroupKernel::PointerTo(const Address& at, int64_t lane) {
  if (at.offsets[lane] == 0) return at.pointer;
  return out_.Let("getelementptr inbounds ", LlvmMemoryType(at.dtype, 1), ", ", at.pointer_type(),
                  " ", at.pointer, ", i64 ", at.offsets[lane]);
}

absl::StatusOr<std::string> LlvmWorkgroupKernel::LoadLanes(UOp u, const Address& at) {
  const bool vector = at.kind == Address::kContiguous || at.kind == Address::kSpread;
  if (!vector || at.lane_gate) return LlvmKernel::LoadLanes(u, at);
  const std::vector<LaneGroup> groups = LaneGroups(at);
  std::string value = "poison";
  for (const LaneGroup& group : groups) {
    const std::string type = LlvmMemoryType(at.dtype, group.lanes);
    const std::string part =
        out_.Let("load ", type, ", ", at.pointer_type(), " ", PointerTo(at, group.first),
                 ", align ", group.align, at.memory->of_loads);
    if (groups.size() == 1) return part;
    for (int64_t i = 0; i < group.lanes; ++i) {
      const std::string lane =
          group.lanes == 1 ? part : out_.Let("extractelement ", type, " ", part, ", i64 ", i);
      value = out_.Let("insertelement ", at.type(), " ", value, ", ", LlvmMemoryType(at.dtype, 1),
                       " ", lane, ", i64 ", group.first + i);
    }
  }
  return value;
}

absl::Status LlvmWorkgroupKernel::StoreLanes(UOp u, const Address& at, const std::string& value) {
  const bool vector = at.kind == Address::kContiguous || at.kind == Address::kSpread;
  if (!vector || at.lane_gate) return LlvmKernel::StoreLanes(u, at, value);
  for (const LaneGroup& group : LaneGroups(at)) {
    std::string part = value;
    if (group.lanes == 1) {
      part = out_.Let("extractelement ", at.type(), " ", value, ", i64 ", group.first);
    } else if (group.lanes < at.lanes) {
      std::vector<int64_t> take(group.lanes);
      for (int64_t i = 0; i < group.lanes; ++i) take[i] = group.first + i;
      part = out_.Let("shufflevector ", at.type(), " ", value, ", ", at.type(), " poison, ",
                      LlvmShuffle(take));
    }
    out_.Line("store ", LlvmMemoryType(at.dtype, group.lanes), " ", part, ", ", at.pointer_type(),
              " ", PointerTo(at, group.first), ", align ", group.align, at.memory->of_stores);
  }
  return absl::OkStatus();
}

}  // namespace telegrad
