// One thread: the loop over its instructions.
#include "engine/reference/program_machine.h"

#include <algorithm>

namespace telegrad::reference::internal {
namespace {

constexpr int64_t kMaxLanes = int64_t{1} << 26;  // frames and registers of all threads

}  // namespace

Lane ReadElement(DType dtype, const uint8_t* data, int64_t i) {
  const int bits = Info(dtype).bits;
  if (bits >= 8) return ReadLane(dtype, data + i * (bits / 8));
  const int per_byte = 8 / bits;
  return data[i / per_byte] >> (i % per_byte * bits) & ((1 << bits) - 1);
}

void WriteElement(DType dtype, Lane lane, uint8_t* data, int64_t i) {
  const int bits = Info(dtype).bits;
  if (bits >= 8) return WriteLane(dtype, lane, data + i * (bits / 8));
  const int per_byte = 8 / bits, shift = static_cast<int>(i % per_byte) * bits;
  const int mask = (1 << bits) - 1;
  uint8_t& byte = data[i / per_byte];
  byte = static_cast<uint8_t>((byte & ~(mask << shift)) |
                              (static_cast<int>(lane & static_cast<Lane>(mask)) << shift));
}

absl::Status Machine::Allocate() {
  const auto count = static_cast<size_t>(code_.threads);
  const auto most = static_cast<size_t>(kMaxLanes) / count;
  if (code_.frame.size() > most || code_.register_elements > most) {
    return ResourceExhausted("program ", program_.name, " has more than ", kMaxLanes,
                             " lanes and registers in its ", count, " threads");
  }
  local_.resize(code_.local_bytes);
  local_states_.resize(code_.local_elements);
  barriers_.resize(static_cast<size_t>(code_.barriers));
  threads_.resize(count);
  for (size_t n = 0; n < count; ++n) {
    Thread& t = threads_[n];
    t.number = static_cast<uint32_t>(n);
    t.registers.resize(code_.register_bytes);
    t.register_states.resize(code_.register_elements);
    t.executions.resize(code_.operations);
    for (size_t m = 0; m < code_.memories.size(); ++m) {
      const Memory& memory = code_.memories[m];
      const bool argument = memory.kind == Memory::Kind::kArgument;
      const bool phases = memory.kind == Memory::Kind::kPhases;
      const bool local = memory.kind == Memory::Kind::kLocal;
      t.data.push_back(argument ? buffers_[m].data()
                       : phases ? nullptr
                                : (local ? local_ : t.registers).data() + memory.data_at);
      t.states.push_back(argument || phases ? nullptr
                                            : (local ? local_states_ : t.register_states).data() +
                                                  memory.state_at);
    }
  }
  return absl::OkStatus();
}

absl::Status Machine::Advance(Thread& t, int64_t steps, uint32_t stop) {
  steps = std::min(steps, steps_);
  const int64_t before = steps;
  Lane* const frame = t.frame.data();
  while (t.pc < stop && steps > 0) {
    --steps;
    const Instruction& in = code_.instructions[t.pc];
    switch (in.op) {
      case Op::kRange:
        TG_RETURN_IF_ERROR(EnterRange(t, in));
        continue;
      case Op::kRole:
        EnterRole(t, in);
        continue;
      case Op::kEnd:
        Next(t);
        continue;
      case Op::kBuffer:
        TG_RETURN_IF_ERROR(FreshBuffer(t, in));
        break;
      case Op::kLoad:
        TG_RETURN_IF_ERROR(Load(t, in));
        break;
      case Op::kStore:
        TG_RETURN_IF_ERROR(Store(t, in));
        break;
      case Op::kReduce:
        Reduce(t, in);
        break;
      case Op::kVar:
        ReadVariable(t, in);
        break;
      case Op::kArrive:
        TG_RETURN_IF_ERROR(Arrive(t, in));
        break;
      case Op::kCopyAsync:
        TG_RETURN_IF_ERROR(StartCopy(t, in));
        break;
      case Op::kWait:
        TG_RETURN_IF_ERROR(Wait(t, in));
        break;
      case Op::kWaitPhase:
        TG_RETURN_IF_ERROR(WaitPhase(t, in));
        break;
      case Op::kBarrier:
        Barrier(t);
        break;
      case Op::kShuffle:
      case Op::kLoadMatrix:
      case Op::kMma:
      case Op::kMmaAsync: {
        const bool multiplies = in.op == Op::kMma || in.op == Op::kMmaAsync;
        const std::pair<uint32_t, uint32_t> members =
            Members(t, multiplies ? g_.at(in.node).mma().scope : Scope::kWarp);
        if (!AllHere(t, members)) break;
        if (in.op == Op::kShuffle) {
          for (uint32_t n = members.first; n < members.second; ++n) Shuffle(threads_[n], in);
        } else if (in.op == Op::kLoadMatrix) {
          TG_RETURN_IF_ERROR(LoadMatrix(in, members.first));
        } else if (in.op == Op::kMma) {
          Mma(in, members.first);
        } else {
          TG_RETURN_IF_ERROR(StartMma(t, in, members));
        }
        LetGo(t, members);
        break;
      }
      default:
        for (uint32_t lane = 0; lane < in.lanes; ++lane) {
          frame[in.out + lane] =
              in.fn(At(t, in.src[0], lane), At(t, in.src[1], lane), At(t, in.src[2], lane));
        }
    }
    if (t.state == Thread::State::kWaiting) break;
    ++t.pc;
  }
  steps_ -= before - steps;
  if (steps_ <= 0 && t.pc < stop) {
    return ResourceExhausted("program ", program_.name, " executes more than ", options_.max_steps,
                             " instructions");
  }
  return absl::OkStatus();
}

// What `i` of the program's iterations is of `size`.
int64_t Machine::PartOf(int64_t i, int64_t size) const {
  return static_cast<int64_t>(__int128{i} * size / std::max<int64_t>(program_.iterations, 1));
}

absl::Status Machine::EnterRange(Thread& t, const Instruction& in) {
  const int64_t size = LaneAsIndex(in.type, At(t, in.src[0], 0));
  int64_t begin = 0, end = size;
  switch (in.axis) {
    case AxisType::kThread:
      if (g_.op(g_.src(in.node)[0]) == Op::kConst) {
        begin = begin_;
        end = std::min(end_, size);
      } else {
        begin = PartOf(begin_, std::max<int64_t>(size, 0));
        end = PartOf(end_, std::max<int64_t>(size, 0));
      }
      break;
    case AxisType::kGroup: {
      if (sizing_) group_sizes_.push_back(std::max<int64_t>(size, 0));
      const std::span<const int64_t> sizes = group_sizes_;
      if (size != sizes[in.more] && !sizing_) {
        return Wrong(t, in, "has size ", size, ", expected ", sizes[in.more],
                     " as in the first workgroup");
      }
      int64_t inner = 1;
      for (size_t i = in.more + 1; i < sizes.size(); ++i) inner *= sizes[i];
      t.frame[in.out] = LaneOfIndex(in.type, sizing_ ? 0 : group_ / inner % sizes[in.more]);
      ++t.pc;
      return absl::OkStatus();
    }
    case AxisType::kLocal:
    case AxisType::kWarp: {
      const size_t axis = in.more - code_.groups;
      int64_t inner = 1;
      for (size_t i = axis + 1; i < code_.local.size(); ++i) inner *= code_.local[i];
      t.frame[in.out] = LaneOfIndex(in.type, t.number / inner % code_.local[axis]);
      ++t.pc;
      return absl::OkStatus();
    }
    default:
      break;
  }
  if (begin >= end) {
    t.pc = in.exit;
    return absl::OkStatus();
  }
  t.frame[in.out] = LaneOfIndex(in.type, begin);
  t.loops.push_back({.body = ++t.pc, .out = in.out, .i = begin, .end = end, .type = in.type});
  return absl::OkStatus();
}

void Machine::EnterRole(Thread& t, const Instruction& in) {
  const int64_t warp = t.number / program_.warp, first = g_.at(in.node).first_warp();
  if (warp < first || warp >= first + g_.at(in.node).warps()) {
    t.pc = in.exit;
    return;
  }
  t.role = t.pc++;
  t.loops.push_back({.body = t.pc, .out = 0, .i = 0, .end = 1, .type = DType::kVoid});
}

void Machine::Next(Thread& t) {
  Loop& loop = t.loops.back();
  if (++loop.i < loop.end) {
    t.frame[loop.out] = LaneOfIndex(loop.type, loop.i);
    t.pc = loop.body;
    return;
  }
  if (loop.type == DType::kVoid) t.role = kNone;
  t.loops.pop_back();
  ++t.pc;
}

// A thread's own memory, and that of a workgroup of one thread, is unwritten each time that its
// BUFFER is executed; that of many threads when the workgroup starts.
absl::Status Machine::FreshBuffer(Thread& t, const Instruction& in) {
  const uint32_t memory = in.address.memory;
  const Memory& m = code_.memories[memory];
  if (m.kind == Memory::Kind::kLocal && code_.parallel > 0) return absl::OkStatus();
  uint8_t* const states = t.states[memory];
  if (code_.operations > 0) {
    for (int64_t i = 0; i < m.elements; ++i) {
      TG_RETURN_IF_ERROR(CheckUnderWay(t, in, 0, memory, i, true));
    }
  }
  std::fill(states, states + m.elements, 0);
  return absl::OkStatus();
}

absl::Status Machine::CheckRead(const Thread& t, const Instruction& in, uint32_t lane, int64_t i) {
  const uint32_t memory = in.address.memory;
  const Memory& m = code_.memories[memory];
  if (i < 0 || i >= m.elements) return Outside(t, in, lane, "reads", i, memory);
  if (watched_) {
    const Access me{t.number, t.clock[t.number], in.position};
    TG_RETURN_IF_ERROR(Touch(t, in, lane, memory, i, false, me, t.clock));
  }
  const uint8_t* const states = t.states[memory];
  if (states == nullptr || states[i] != 0) return absl::OkStatus();
  return Wrong(t, in, "lane ", lane, " reads element ", i, " of ", NameOf(m),
               ", which has not been written");
}

absl::Status Machine::Load(Thread& t, const Instruction& in) {
  const Address& a = in.address;
  const DType dtype = code_.memories[a.memory].dtype;
  const uint8_t* const data = t.data[a.memory];
  for (uint32_t lane = 0; lane < in.lanes; ++lane) {
    if (Gated(t, a, lane)) {
      t.frame[in.out + lane] = 0;
      continue;
    }
    const int64_t i = IndexAt(t, a, lane);
    TG_RETURN_IF_ERROR(CheckRead(t, in, lane, i));
    t.frame[in.out + lane] = ReadElement(dtype, data, i);
  }
  return absl::OkStatus();
}

absl::Status Machine::Store(Thread& t, const Instruction& in) {
  const Address& a = in.address;
  const Memory& m = code_.memories[a.memory];
  uint8_t* const data = t.data[a.memory];
  uint8_t* const states = t.states[a.memory];
  for (uint32_t lane = 0; lane < in.lanes; ++lane) {
    if (Gated(t, a, lane)) continue;
    const int64_t i = IndexAt(t, a, lane);
    if (i < 0 || i >= m.elements) return Outside(t, in, lane, "writes", i, a.memory);
    if (watched_) {
      const Access me{t.number, t.clock[t.number], in.position};
      TG_RETURN_IF_ERROR(Touch(t, in, lane, a.memory, i, true, me, t.clock));
    }
    WriteElement(m.dtype, At(t, in.src[2], lane), data, i);
    if (states != nullptr) states[i] = kWritten;
  }
  return absl::OkStatus();
}

void Machine::Reduce(Thread& t, const Instruction& in) {
  const DType type = FoldType(in.type);
  const LaneFn widen = type == in.type ? nullptr : FindLaneFn(Op::kCast, in.type, type);
  const auto lane_at = [&](uint32_t lane) {
    const Lane x = At(t, in.src[0], lane);
    return widen == nullptr ? x : widen(x, 0, 0);
  };
  Lane sum = in.lanes == 0 ? in.start : lane_at(0);
  for (uint32_t lane = 1; lane < in.lanes; ++lane) sum = in.fn(sum, lane_at(lane), 0);
  if (widen != nullptr) sum = FindLaneFn(Op::kCast, type, in.type)(sum, 0, 0);
  t.frame[in.out] = sum;
}

void Machine::ReadVariable(Thread& t, const Instruction& in) {
  const UOp u = g_.at(in.node);
  const int64_t value = LaneAsIndex(u.src(0).dtype(), At(t, in.src[0], 0));
  const int64_t clamped = std::clamp(value, u.var_min(), u.var_max());
  // Both bounds are multiples, so rounding down does not leave them.
  const int64_t over = (clamped - u.var_min()) % u.var_multiple();
  t.frame[in.out] = LaneOfIndex(in.type, clamped - over);
}

absl::Status Machine::Touch(const Thread& t, const Instruction& in, uint32_t lane, uint32_t memory,
                            int64_t i, bool write, const Access& me, const VectorClock& clock) {
  const Memory& m = code_.memories[memory];
  if (m.kind == Memory::Kind::kRegister) return CheckUnderWay(t, in, lane, memory, i, write);
  const std::optional<Conflict> found =
      write ? shadow_.Write(memory, i, me, clock) : shadow_.Read(memory, i, me, clock);
  if (!found) return absl::OkStatus();
  const Access& with = found->with;
  const std::string_view verb = found->write ? "writes" : "reads";
  std::string who;
  if (found->group) {
    who = StrCat("workgroup ", NameOfGroup(*found->group), " ", verb);
  } else if (with.is_operation()) {
    const Operation& op = operations_[with.operation()];
    who = StrCat("the ", Name(code_.instructions[op.pc].op), " of thread ", op.threads[0],
                 found->under_way ? ", still under way, " : " ", verb);
  } else {
    who = StrCat("thread ", with.agent, " ", verb);
  }
  return Wrong(t, in, "lane ", lane, write ? " writes" : " reads", " element ", i, " of ",
               NameOf(m), ", which ", who, " at node ", with.position,
               "; expected something that orders the two");
}

absl::Status Machine::CheckUnderWay(const Thread& t, const Instruction& in, uint32_t lane,
                                    uint32_t memory, int64_t i, bool write) const {
  const uint8_t* const states = t.states[memory];
  if (states == nullptr || states[i] < kUnderWay) return absl::OkStatus();
  uint32_t position = 0;
  for (const Executions& executions : t.executions) {
    for (const Part part : executions.open) {
      if (part.operation == kNone) continue;
      const Operation& op = operations_[part.operation];
      const Instruction& mma = code_.instructions[op.pc];
      if (mma.op != Op::kMmaAsync || code_.addresses[mma.more + 2].memory != memory) continue;
      if (position == 0 && std::ranges::count(op.c[part.part], i) > 0) position = mma.position;
    }
  }
  return Wrong(t, in, "lane ", lane, write ? " writes" : " reads", " element ", i, " of ",
               NameOf(code_.memories[memory]), ", to which the mma_async of node ", position,
               ", still under way, adds; expected a wait before");
}

absl::Status Machine::Outside(const Thread& t, const Instruction& in, uint32_t lane,
                              std::string_view does, int64_t i, uint32_t memory) const {
  return Wrong(t, in, "lane ", lane, " ", does, " element ", i, " of ",
               NameOf(code_.memories[memory]), ", which has ", code_.memories[memory].elements);
}

std::string Machine::NameOfBarrier(uint32_t barrier) const {
  const PhasedBarrier& b = barriers_[barrier];
  return StrCat(NameOf(code_.memories[b.memory]), "[", b.element, "]");
}

std::string Machine::NameOfGroup(uint32_t group) const {
  Shape at(group_sizes_.size());
  int64_t rest = group;
  for (size_t i = at.size(); i-- > 0;) {
    at[i] = rest % std::max<int64_t>(group_sizes_[i], 1);
    rest /= std::max<int64_t>(group_sizes_[i], 1);
  }
  return ToString(at);
}

std::string Machine::NameOfThread(uint32_t thread) const {
  return StrCat("thread ", thread, " of workgroup ", NameOfGroup(group_), ", ");
}

}  // namespace telegrad::reference::internal
