// When threads of one workgroup can execute two accesses with no barrier between them.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/program.h"

namespace telegrad {

// One execution of an access: at a position in the order, or from the one at which it starts to the
// WAIT at the position `end`, so many iterations of the innermost loop around both later.
struct Execution {
  size_t begin = 0, end = 0;
  int64_t later = 0;
  bool asynchronous = false;
  bool waited_for = true;  // else it may be under way at any time
};

// A way in which executions a and b meet, that is, without a barrier between them: the iterations
// that they are in. Of other loops it may be any.
struct Meeting {
  struct Shift {
    uint32_t range = 0;
    int64_t by = 0;  // iterations that b is later than a
    auto operator<=>(const Shift&) const = default;
  };
  struct Iteration {
    uint32_t range = 0;
    int64_t number = 0;
    bool of_b = false;
    auto operator<=>(const Iteration&) const = default;
  };
  std::vector<Shift> shifts = {};
  std::vector<Iteration> iterations = {};
  bool under_way = false;  // one runs beside the thread that executes the other one
  bool itself = false;     // both are at one position
  auto operator<=>(const Meeting&) const = default;
};

// All threads of a workgroup pass the same barriers in the same order, so what they do between two
// of them is the same part of the program. Two accesses meet there if the program has a way from
// one to the other that passes no barrier, by the loops' ways back and around loops that may have
// no iterations. The ways back that it takes say how the iterations differ: in a loop of which each
// iteration passes a barrier there is at most one, so the other access is in the same iteration or
// the next; such a loop is entered in its first iteration and left in its last.
class BarrierOrder {
 public:
  explicit BarrierOrder(const Program& program);

  // The same object for executions that meet in the same ways.
  const std::vector<Meeting>& Meetings(const Execution& a, const Execution& b);
  // Positions of the RANGE of each loop around a position, outermost first.
  std::span<const size_t> LoopsAround(size_t position) const { return chains_[chain_[position]]; }
  int64_t work() const { return work_; }  // since the start

 private:
  struct Loop {
    size_t end = 0;  // position of its END
    bool has_barrier = false;
  };
  using Blocks = std::vector<bool>;

  void ReadLoops();
  void ReadBlocks();
  // Blocks that a way without a barrier reaches from the entry of `block`, or from its end; it goes
  // back in no loop that is or is around the one at `within`.
  const Blocks& ReachedFrom(size_t block, bool its_end, size_t within);
  void Leave(size_t block, size_t within, std::vector<size_t>* next) const;
  bool Reaches(size_t from, size_t to, size_t within);
  // From the beginning of the loop's iteration.
  bool HeadReaches(size_t loop, size_t to);
  // Whether the iterations of a loop may pass no barrier.
  bool MayPassNone(size_t loop) { return HeadReaches(loop, loops_.at(loop).end); }
  // The innermost loops have none.
  std::vector<size_t> LoopsWithBarrier(size_t position) const;

  // Ways from the end of `a` to the begin of `b`.
  void AddWays(const Execution& a, const Execution& b, bool swapped, std::vector<Meeting>* out);
  Meeting Way(const Execution& a, const Execution& b, size_t same, bool next);
  // Those of a that is under way while b begins.
  void AddUnderWay(const Execution& a, const Execution& b, bool swapped, std::vector<Meeting>* out);
  static Meeting Swapped(Meeting m);
  std::vector<Meeting> FindMeetings(const Execution& a, const Execution& b);

  const Program& program_;
  bool known_ = true;  // no roles or phases, and loops around barriers are the same in all threads
  std::map<size_t, Loop> loops_;             // by position of the RANGE
  std::vector<std::vector<size_t>> chains_;  // of loops, each inside of the one before
  std::vector<uint32_t> chain_;              // by position
  // A block ends with a barrier, or the RANGE or END of a loop.
  std::vector<uint32_t> block_;  // by position
  std::vector<size_t> last_;     // by block: its last position
  std::map<std::tuple<size_t, bool, size_t>, Blocks> reached_;
  // All that the ways depend on: the executions, by the blocks of their positions, and the order of
  // these.
  using Key = std::tuple<std::array<size_t, 4>, std::array<int64_t, 2>, uint8_t>;
  absl::flat_hash_map<Key, std::unique_ptr<std::vector<Meeting>>> meetings_;
  int64_t work_ = 0;
};

}  // namespace telegrad
