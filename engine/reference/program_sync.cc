// Synchronization of threads: scheduling, barriers, phases and deadlocks.
#include <algorithm>
#include <numeric>

#include "engine/base/checked.h"
#include "engine/reference/program_machine.h"

namespace telegrad::reference::internal {
namespace {

constexpr int64_t kMaxGroups = int64_t{1} << 24;
constexpr int64_t kWarpsOfWarpgroup = 4;
constexpr size_t kMaxDescribed = 4;  // threads in the report of a deadlock

void Join(VectorClock* into, const VectorClock& other) {
  into->resize(std::max(into->size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) (*into)[i] = std::max((*into)[i], other[i]);
}

}  // namespace

absl::Status Machine::Run(int64_t begin, int64_t end) {
  begin_ = begin;
  end_ = end;
  TG_RETURN_IF_ERROR(Allocate());
  TG_RETURN_IF_ERROR(SizeGroups(threads_[0]));
  int64_t count = 1;
  for (int64_t size : group_sizes_) {
    if (!CheckedMul(count, size, &count) || count > kMaxGroups) {
      return ResourceExhausted("program ", program_.name, " has more than ", kMaxGroups,
                               " workgroups");
    }
  }
  watched_ = code_.threads * count > 1 || code_.operations > 0;
  if (watched_) TG_RETURN_IF_ERROR(shadow_.Start(code_));
  if (code_.groups > 0) count = std::min(count, end);
  const int64_t first = code_.groups > 0 ? begin : 0;
  std::vector<uint32_t> order(static_cast<size_t>(std::max<int64_t>(count - first, 0)));
  std::iota(order.begin(), order.end(), static_cast<uint32_t>(first));
  if (options_.seed) std::ranges::shuffle(order, random_);
  for (uint32_t group : order) TG_RETURN_IF_ERROR(RunGroup(group));
  if (options_.steps != nullptr) *options_.steps += options_.max_steps - steps_;
  return absl::OkStatus();
}

// The sizes of the group ranges, as a thread of the first workgroup finds them.
absl::Status Machine::SizeGroups(Thread& t) {
  if (code_.groups == 0) return absl::OkStatus();
  sizing_ = true;
  t.frame = code_.frame;
  const absl::Status status = Advance(t, options_.max_steps, code_.prefix);
  sizing_ = false;
  return status;
}

void Machine::StartGroup(uint32_t group) {
  group_ = group;
  if (watched_) shadow_.StartGroup(code_, group);
  std::ranges::fill(local_states_, 0);
  operations_.clear();
  flying_.clear();
  ready_.clear();
  meetings_.clear();
  for (uint32_t m = 0; m < code_.memories.size(); ++m) {
    const Memory& memory = code_.memories[m];
    if (memory.kind != Memory::Kind::kPhases) continue;
    for (int64_t i = 0; i < memory.elements; ++i) {
      barriers_[memory.state_at + static_cast<size_t>(i)] = {
          .memory = m, .element = i, .missing = memory.arrivals};
    }
  }
  for (Thread& t : threads_) {
    t.pc = 0;
    t.role = kNone;
    t.frame = code_.frame;
    t.loops.clear();
    std::ranges::fill(t.register_states, 0);
    if (watched_) {
      t.clock.assign(threads_.size() + barriers_.size(), 0);
      t.clock[t.number] = 1;
    }
    for (Executions& e : t.executions) e = {};
    Wake(t);
  }
}

absl::Status Machine::RunGroup(uint32_t group) {
  StartGroup(group);
  const auto stop = static_cast<uint32_t>(code_.instructions.size());
  const auto draw = [&](size_t below) { return static_cast<size_t>(random_() % below); };
  for (size_t ended = 0; ended < threads_.size();) {
    // Copies land when nothing else can happen, or at any time.
    constexpr size_t kOneIn = 8;
    if (!flying_.empty() && (ready_.empty() || (options_.seed && draw(kOneIn) == 0))) {
      Land(options_.seed ? draw(flying_.size()) : 0);
      continue;
    }
    if (ready_.empty()) return Deadlock();
    if (options_.seed) std::swap(ready_.front(), ready_[draw(ready_.size())]);
    Thread& t = threads_[ready_.front()];
    ready_.pop_front();
    constexpr size_t kMostSteps = 32;
    const int64_t steps = options_.seed ? static_cast<int64_t>(1 + draw(kMostSteps)) : steps_;
    TG_RETURN_IF_ERROR(Advance(t, steps, stop));
    if (t.state == Thread::State::kWaiting) continue;
    if (t.pc < stop) {
      ready_.push_back(t.number);
    } else {
      t.state = Thread::State::kEnded;
      ++ended;
    }
  }
  return EndGroup();
}

// What was started has been waited for.
absl::Status Machine::EndGroup() const {
  for (const Thread& t : threads_) {
    for (const Executions& executions : t.executions) {
      for (const Part part : executions.open) {
        if (part.operation == kNone) continue;
        return Wrong(t, code_.instructions[operations_[part.operation].pc],
                     "is still under way at the end, expected a wait for it");
      }
    }
  }
  for (uint32_t n = 0; n < operations_.size(); ++n) {
    const Operation& op = operations_[n];
    if (op.barrier == kNone) continue;
    const Shadow::Completion at = shadow_.completions(n)[0];
    const bool seen = at.agent != Access::kNone && std::ranges::any_of(threads_, [&](auto& t) {
                        return t.clock[at.agent] >= at.clock;
                      });
    if (seen) continue;
    return Wrong(threads_[op.threads[0]], code_.instructions[op.pc],
                 "may still be under way at the end, expected a wait for its phase of ",
                 NameOfBarrier(op.barrier));
  }
  for (uint32_t b = 0; b < barriers_.size(); ++b) {
    if (barriers_[b].bytes == 0) continue;
    return Internal("program ", program_.name, ": at the end of workgroup ", NameOfGroup(group_),
                    " ", NameOfBarrier(b), " expects ", barriers_[b].bytes,
                    " more bytes in its phase ", barriers_[b].phases);
  }
  return absl::OkStatus();
}

void Machine::Wake(Thread& t) {
  t.state = Thread::State::kReady;
  ready_.push_back(t.number);
}

std::pair<uint32_t, uint32_t> Machine::Members(const Thread& t, Scope scope) const {
  int64_t size = code_.threads;  // of a workgroup; a cluster is one workgroup
  if (scope == Scope::kThread) size = 1;
  if (scope == Scope::kWarp) size = program_.warp;
  if (scope == Scope::kWarpgroup) size = kWarpsOfWarpgroup * program_.warp;
  int64_t first = t.number / size * size;
  int64_t end = std::min(first + size, code_.threads);
  if (t.role != kNone) {
    const std::span<const int64_t> role = g_.arg(code_.instructions[t.role].node);
    first = std::max(first, role[0] * program_.warp);
    end = std::min(end, (role[0] + role[1]) * program_.warp);
  }
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(end)};
}

bool Machine::AllHere(Thread& t, std::pair<uint32_t, uint32_t> members) {
  const uint64_t meeting = uint64_t{t.pc} << 32 | members.first;
  if (members.second - members.first == ++meetings_[meeting]) {
    meetings_.erase(meeting);
    return true;
  }
  t.state = Thread::State::kWaiting;
  return false;
}

void Machine::LetGo(const Thread& t, std::pair<uint32_t, uint32_t> members) {
  for (uint32_t n = members.first; n < members.second; ++n) {
    if (n == t.number) continue;
    ++threads_[n].pc;
    Wake(threads_[n]);
  }
}

void Machine::Barrier(Thread& t) {
  const Scope scope = g_.at(code_.instructions[t.pc].node).scope();
  const std::pair<uint32_t, uint32_t> members = Members(t, scope);
  if (!AllHere(t, members)) return;
  if (watched_) {
    VectorClock joined;
    for (uint32_t n = members.first; n < members.second; ++n) Join(&joined, threads_[n].clock);
    for (uint32_t n = members.first; n < members.second; ++n) {
      threads_[n].clock = joined;
      ++threads_[n].clock[n];
    }
  }
  LetGo(t, members);
}

absl::StatusOr<uint32_t> Machine::BarrierOf(const Thread& t, const Instruction& in,
                                            const Address& address) const {
  const Memory& m = code_.memories[address.memory];
  const int64_t i = IndexAt(t, address, 0);
  if (i < 0 || i >= m.elements) return Outside(t, in, 0, "names", i, address.memory);
  return static_cast<uint32_t>(m.state_at + static_cast<size_t>(i));
}

absl::Status Machine::Arrive(Thread& t, const Instruction& in) {
  if (Gated(t, in.address, 0)) return absl::OkStatus();
  TG_ASSIGN_OR_RETURN(const uint32_t number, BarrierOf(t, in, in.address));
  PhasedBarrier& b = barriers_[number];
  if (b.missing == 0) {
    return Wrong(t, in, "is one arrival too many at ", NameOfBarrier(number), ", whose phase ",
                 b.phases, " has all its ", code_.memories[b.memory].arrivals, " and expects ",
                 b.bytes, " more bytes");
  }
  --b.missing;
  b.bytes += g_.at(in.node).number();
  if (watched_) {
    Join(&b.gathered, t.clock);
    ++t.clock[t.number];
  }
  CheckPhase(number);
  return absl::OkStatus();
}

void Machine::CheckPhase(uint32_t barrier) {
  PhasedBarrier& b = barriers_[barrier];
  if (b.missing != 0 || b.bytes != 0) return;
  b.missing = code_.memories[b.memory].arrivals;
  ++b.phases;
  if (watched_) {
    Join(&b.released, b.gathered);
    b.gathered.clear();
    b.released.resize(threads_.size() + barriers_.size());
    b.released[AgentOf(barrier)] = b.phases;
  }
  // Each looks for itself whether this was its phase.
  for (Thread& t : threads_) {
    if (t.state == Thread::State::kWaiting && code_.instructions[t.pc].op == Op::kWaitPhase) {
      Wake(t);
    }
  }
}

absl::Status Machine::WaitPhase(Thread& t, const Instruction& in) {
  if (Gated(t, in.address, 0)) return absl::OkStatus();
  TG_ASSIGN_OR_RETURN(const uint32_t number, BarrierOf(t, in, in.address));
  const int64_t parity = LaneAsIndex(g_.at(in.node).src(1).dtype(), At(t, in.src[2], 0));
  if (parity != 0 && parity != 1) {
    return Wrong(t, in, "waits for a phase of parity ", parity, ", expected 0 or 1");
  }
  const PhasedBarrier& b = barriers_[number];
  if (b.phases % 2 == parity) {  // the phase of that parity is the current one
    t.state = Thread::State::kWaiting;
    return absl::OkStatus();
  }
  if (watched_) Join(&t.clock, b.released);
  return absl::OkStatus();
}

std::string Machine::DescribeWait(const Thread& t) const {
  const Instruction& in = code_.instructions[t.pc];
  if (in.op == Op::kWaitPhase) {
    const uint32_t number = *BarrierOf(t, in, in.address);
    const PhasedBarrier& b = barriers_[number];
    return StrCat("waits for phase ", b.phases, " of ", NameOfBarrier(number), ", which lacks ",
                  b.missing, " of ", code_.memories[b.memory].arrivals, " arrivals and ", b.bytes,
                  " bytes");
  }
  Scope scope = Scope::kWarp;
  if (in.op == Op::kBarrier) scope = g_.at(in.node).scope();
  if (in.op == Op::kMma || in.op == Op::kMmaAsync) scope = g_.at(in.node).mma().scope;
  const auto [first, end] = Members(t, scope);
  for (uint32_t n = first; n < end; ++n) {
    const Thread& other = threads_[n];
    if (other.pc == t.pc && other.state == Thread::State::kWaiting) continue;
    if (other.state == Thread::State::kEnded) {
      return StrCat("waits for thread ", n, ", which has ended");
    }
    const Instruction& at = code_.instructions[other.pc];
    return StrCat("waits for thread ", n, ", which is at node ", at.position, " (", Name(at.op),
                  ")");
  }
  return "waits";
}

// Every thread that has not ended waits. One thread of each place is described.
absl::Status Machine::Deadlock() const {
  std::vector<uint32_t> places;
  std::string more;
  const Thread* first = nullptr;
  for (const Thread& t : threads_) {
    if (t.state != Thread::State::kWaiting || std::ranges::count(places, t.pc) > 0) continue;
    places.push_back(t.pc);
    if (first == nullptr) {
      first = &t;
    } else if (places.size() <= kMaxDescribed) {
      StrAppend(&more, "; thread ", t.number, " at node ", code_.instructions[t.pc].position, " ",
                DescribeWait(t));
    }
  }
  return Wrong(*first, code_.instructions[first->pc], "deadlock: ", DescribeWait(*first), more);
}

}  // namespace telegrad::reference::internal
