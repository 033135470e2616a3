// The machine that executes a decoded program, one workgroup after another.
//
// The methods are in three files: program_machine.cc runs a thread's instructions until it waits,
// program_sync.cc schedules threads and synchronizes them (barriers, phases, deadlock), and
// program_async.cc executes operations of several threads and asynchronous ones (copies, matrices,
// shuffles).
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/reference/program_code.h"
#include "engine/reference/program_eval.h"
#include "engine/reference/program_shadow.h"

namespace telegrad::reference::internal {

inline constexpr uint32_t kNone = 0xffffffff;

struct Loop {
  uint32_t body;  // the first instruction after the RANGE
  uint32_t out;
  int64_t i;
  int64_t end;
  DType type;  // void for a role
};

// One thread's part of an operation; kNone for an execution whose gate was false.
struct Part {
  uint32_t operation = kNone;
  uint32_t part = 0;
};
// Of one asynchronous instruction by one thread.
struct Executions {
  bool any = false;
  std::deque<Part> open;  // the last ones, which no WAIT has completed
};

struct Thread {
  enum class State : uint8_t { kReady, kWaiting, kEnded };
  uint32_t number = 0;
  State state = State::kReady;
  uint32_t pc = 0;
  uint32_t role = kNone;  // the open ROLE, an instruction
  std::vector<Lane> frame;
  std::vector<Loop> loops;
  // By memory. The state of an element is 0 until it is written, then kWritten, and kUnderWay more
  // for every matrix operation under way that adds to it; arguments have none.
  std::vector<uint8_t*> data, states;
  std::vector<uint8_t> registers, register_states;
  VectorClock clock;
  std::vector<Executions> executions;  // by asynchronous instruction
};
inline constexpr uint8_t kWritten = 1, kUnderWay = 2, kMaxState = 0xff - kUnderWay;

// An asynchronous operation, resolved when it started. Its number is the shadow's too.
struct Operation {
  uint32_t pc = 0;
  std::vector<uint32_t> threads = {};        // one for each part
  int64_t to = 0, from = 0;                  // COPY_ASYNC: elements; MMA_ASYNC: of a and b
  bool zeros = false;                        // COPY_ASYNC: the gate of the source was false
  uint32_t barrier = kNone;                  // the phased barrier that counts its bytes
  std::vector<Lane> box = {};                // COPY_ASYNC: the elements, once they are read
  std::vector<float> a = {}, b = {};         // MMA_ASYNC: the same
  std::vector<std::vector<int64_t>> c = {};  // MMA_ASYNC: by part, the elements added to
  size_t complete = 0;                       // parts
};

// An element of an MBARRIER.
struct PhasedBarrier {
  uint32_t memory = 0;
  int64_t element = 0;
  int64_t missing = 0;  // arrivals of the current phase
  int64_t bytes = 0;    // that the current phase still expects
  uint32_t phases = 0;  // complete ones
  VectorClock gathered = {}, released = {};
};

class Machine {
 public:
  Machine(const Code& code, std::span<const std::span<uint8_t>> buffers, const RunOptions& options)
      : code_(code),
        program_(*code.program),
        g_(*code.program->graph),
        buffers_(buffers),
        options_(options),
        steps_(options.max_steps),
        random_(options.seed.value_or(0)) {}

  absl::Status Run(int64_t begin, int64_t end);

 private:
  // --- program_machine.cc: one thread ---

  absl::Status Allocate();
  // Executes at most `steps` instructions, up to `stop` or until the thread waits.
  absl::Status Advance(Thread& t, int64_t steps, uint32_t stop);
  absl::Status EnterRange(Thread& t, const Instruction& in);
  int64_t PartOf(int64_t i, int64_t size) const;
  void EnterRole(Thread& t, const Instruction& in);
  void Next(Thread& t);
  absl::Status FreshBuffer(Thread& t, const Instruction& in);
  absl::Status Load(Thread& t, const Instruction& in);
  // Checks and notes that the thread reads element `i` of the instruction's memory.
  absl::Status CheckRead(const Thread& t, const Instruction& in, uint32_t lane, int64_t i);
  absl::Status Store(Thread& t, const Instruction& in);
  void Reduce(Thread& t, const Instruction& in);
  void ReadVariable(Thread& t, const Instruction& in);
  // Checks and notes that element `i` of a memory is read or written by a thread or an operation.
  absl::Status Touch(const Thread& t, const Instruction& in, uint32_t lane, uint32_t memory,
                     int64_t i, bool write, const Access& me, const VectorClock& clock);
  absl::Status CheckUnderWay(const Thread& t, const Instruction& in, uint32_t lane, uint32_t memory,
                             int64_t i, bool write) const;

  // --- program_sync.cc: synchronization of threads ---

  absl::Status SizeGroups(Thread& t);
  absl::Status RunGroup(uint32_t group);
  void StartGroup(uint32_t group);
  absl::Status EndGroup() const;
  Thread& PickReady();
  void Wake(Thread& t);
  // The threads [first, second) that take part in something of a scope with `t`.
  std::pair<uint32_t, uint32_t> Members(const Thread& t, Scope scope) const;
  // Whether all of them have arrived at the thread's instruction; the thread is the last.
  bool AllHere(Thread& t, std::pair<uint32_t, uint32_t> members);
  // Lets the others continue after it.
  void LetGo(const Thread& t, std::pair<uint32_t, uint32_t> members);
  void Barrier(Thread& t);
  absl::Status Arrive(Thread& t, const Instruction& in);
  absl::Status WaitPhase(Thread& t, const Instruction& in);
  absl::StatusOr<uint32_t> BarrierOf(const Thread& t, const Instruction& in,
                                     const Address& address) const;
  void CheckPhase(uint32_t barrier);
  absl::Status Deadlock() const;
  std::string DescribeWait(const Thread& t) const;

  // --- program_async.cc: operations of several threads and asynchronous ones ---

  void Shuffle(Thread& t, const Instruction& in);
  absl::Status LoadMatrix(const Instruction& in, uint32_t first);
  void Mma(const Instruction& in, uint32_t first);
  absl::Status StartCopy(Thread& t, const Instruction& in);
  absl::Status StartMma(Thread& t, const Instruction& in, std::pair<uint32_t, uint32_t> members);
  absl::Status Wait(Thread& t, const Instruction& in);
  void ReadBox(Operation* op) const;
  void ReadTiles(Operation* op) const;
  void FinishCopy(Operation* op);
  void FinishMma(Operation* op, size_t part);
  void FinishPart(Thread& t, Part part);
  // The bytes of a copy under way are in its phase. `i`: its place among those.
  void Land(size_t i);

  // --- shared ---

  static Lane At(const Thread& t, Operand operand, uint32_t lane) {
    return t.frame[operand.at + operand.stride * lane];
  }
  static int64_t IndexAt(const Thread& t, const Address& a, uint32_t lane) {
    return LaneAsIndex(a.type, At(t, a.index, lane));
  }
  static bool Gated(const Thread& t, const Address& a, uint32_t lane) {
    return a.gated && At(t, a.gate, lane) == 0;
  }
  uint32_t AgentOf(uint32_t barrier) const {
    return static_cast<uint32_t>(code_.threads) + barrier;
  }
  std::string NameOfBarrier(uint32_t barrier) const;
  std::string NameOfGroup(uint32_t group) const;
  std::string NameOfThread(uint32_t thread) const;

  // The program is wrong, at an instruction of a thread.
  template <typename... Args>
  absl::Status Wrong(const Thread& t, const Instruction& in, const Args&... args) const {
    return Internal("program ", program_.name, ", node ", in.position, " (", Name(in.op),
                    "): ", code_.parallel > 0 ? NameOfThread(t.number) : "", args...);
  }
  absl::Status Outside(const Thread& t, const Instruction& in, uint32_t lane, std::string_view does,
                       int64_t i, uint32_t memory) const;

  const Code& code_;
  const Program& program_;
  const Graph& g_;
  std::span<const std::span<uint8_t>> buffers_;
  const RunOptions& options_;
  int64_t steps_;
  std::mt19937_64 random_;
  int64_t begin_ = 0, end_ = 1;  // of the thread range

  std::vector<Thread> threads_;
  std::vector<uint8_t> local_, local_states_;
  std::vector<PhasedBarrier> barriers_;
  std::vector<Operation> operations_;
  std::vector<uint32_t> flying_;  // operations that a phase will count, in order
  std::deque<uint32_t> ready_;
  absl::flat_hash_map<uint64_t, uint32_t> meetings_;  // how many have come, by place and scope
  std::vector<int64_t> group_sizes_;
  uint32_t group_ = 0;
  bool sizing_ = false;
  bool watched_ = false;  // accesses go through the shadow
  Shadow shadow_;
};

// Element `i` of an array in memory; packed types share bytes.
Lane ReadElement(DType dtype, const uint8_t* data, int64_t i);
void WriteElement(DType dtype, Lane lane, uint8_t* data, int64_t i);

}  // namespace telegrad::reference::internal
