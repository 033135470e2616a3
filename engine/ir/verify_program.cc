// The program level: one walk along the order with the stack of open loops. A value belongs to the
// innermost loop that is open where it appears and is invalid once that loop ends.
#include <algorithm>
#include <string_view>

#include "engine/base/checked.h"
#include "engine/ir/verify.h"
#include "engine/ir/verify_walk.h"

namespace telegrad {
namespace {

using internal::VerifyWalk;

constexpr uint32_t kNotYet = 0xffffffff;
constexpr uint32_t kOutside = 0;  // the scope of what is in no loop
constexpr int64_t kMaxThreads = 1024;

bool HoldsEverywhere(Op op) { return op == Op::kConst || op == Op::kParam || op == Op::kIota; }

class ProgramVerifier {
 public:
  ProgramVerifier(const Program& program, const VerifyWalk& walk)
      : program_(program), walk_(walk), g_(walk.graph), scope_(g_.size(), kNotYet), open_{true} {}

  absl::Status Run() {
    if (program_.warp < 1 || program_.warp > kMaxThreads) {
      return InvalidArgument("the program has warps of ", program_.warp, " threads, expected 1 to ",
                             kMaxThreads);
    }
    if (!IsIdentifier(program_.name)) {
      return InvalidArgument("the program's name is '", program_.name,
                             "', expected a C identifier");
    }
    for (uint32_t id : walk_.order) {
      if (scope_[id] != kNotYet) return walk_.Bad(id, "appears twice in the order");
      if (!IsAt(g_.op(id), kProgramLevel)) {
        return walk_.Bad(id, "is not an op of the program level");
      }
      TG_RETURN_IF_ERROR(CheckSources(id));
      TG_RETURN_IF_ERROR(internal::VerifyAccess(walk_, id));
      TG_RETURN_IF_ERROR(CheckShape(id));
      TG_RETURN_IF_ERROR(CheckPlace(id));
      scope_[id] = HoldsEverywhere(g_.op(id)) ? kOutside : CurrentScope();
      TG_RETURN_IF_ERROR(Node(id));
    }
    if (!loops_.empty()) return walk_.Bad(loops_.back().range, "is not closed by an end");
    if (thread_ == kNotYet && program_.iterations != groups_) {
      return InvalidArgument("the program has ", program_.iterations, " iterations and ",
                             parallel_.empty() ? "no thread range" : "as many workgroups",
                             ", expected ", groups_);
    }
    return absl::OkStatus();
  }

 private:
  struct Loop {
    uint32_t range;
    uint32_t scope;
  };

  uint32_t CurrentScope() const { return loops_.empty() ? kOutside : loops_.back().scope; }

  absl::Status CheckSources(uint32_t id) const {
    const Op op = g_.op(id);
    const std::span<const uint32_t> src = g_.src(id);
    for (size_t i = 0; i < src.size(); ++i) {
      if (scope_[src[i]] == kNotYet) {
        return walk_.Bad(id, "source ", i, " (", Name(g_.op(src[i])),
                         ") does not appear before it");
      }
      // Effects that only order or name it may be in loops that have ended.
      if (op == Op::kAfter ? i > 0 : op == Op::kWait || op == Op::kBarrier || op == Op::kRole) {
        continue;
      }
      if (!open_[scope_[src[i]]]) {
        return walk_.Bad(id, "source ", i, " (node ", walk_.position[src[i]],
                         ") belongs to a loop that has ended");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckShape(uint32_t id) const {
    if (g_.shape(id).size() <= 1) return absl::OkStatus();
    return walk_.Bad(id, "has shape ", ToString(g_.shape(id)), ", expected a scalar or a vector");
  }

  absl::Status Node(uint32_t id) {
    const std::span<const uint32_t> src = g_.src(id);
    switch (g_.op(id)) {
      case Op::kRange:
        return Open(id);
      case Op::kRole:
        return OpenRole(id);
      case Op::kEnd:
        return Close(id);
      case Op::kParam:
        return Param(id);
      case Op::kBuffer:
        if (g_.at(id).space() == AddressSpace::kGlobal) {
          return walk_.Bad(id, "is in global memory, expected local or register");
        }
        return g_.at(id).space() == AddressSpace::kLocal ? Shared(id) : absl::OkStatus();
      case Op::kMBarrier:
        return Shared(id);
      case Op::kAfter:
        scope_[id] = scope_[src[0]];  // it is that buffer
        return absl::OkStatus();
      case Op::kReduce:
        if (src.size() != 1 || g_.shape(src[0]).size() != 1 || g_.arg(id).size() != 2) {
          return walk_.Bad(id, "expected to reduce axis 0 of one vector");
        }
        return absl::OkStatus();
      case Op::kLoad:
        return Access(id, src[0], false);
      case Op::kStore:
        return Access(id, src[0], true);
      case Op::kCopyAsync:
        return Copy(id);
      case Op::kWait:
        return Wait(id);
      case Op::kMma:
      case Op::kMmaAsync:
        return Mma(id);
      case Op::kLoadMatrix:
        return LoadMatrix(id);
      default:
        return absl::OkStatus();
    }
  }

  absl::Status Open(uint32_t id) {
    const AxisType type = g_.at(id).axis_type();
    if (IsParallel(type)) {
      TG_RETURN_IF_ERROR(CheckParallel(id, type));
    } else if (type == AxisType::kThread) {
      if (open_.size() > 1) {
        return walk_.Bad(id, "is a thread range, expected the first range");
      }
      thread_ = id;
      const UOp end = g_.at(id).src(0);
      if (end.is_const() && end.const_word() != program_.iterations) {
        return walk_.Bad(id, "runs to ", end.const_word(), ", expected the program's ",
                         program_.iterations, " iterations");
      }
    } else if (type != AxisType::kLoop && type != AxisType::kReduce) {
      return walk_.Bad(id, "is of type ", Name(type),
                       ", expected loop, thread, reduce, group, local or warp");
    } else if (thread_ != kNotYet && loops_.empty()) {
      return walk_.Bad(id, "is outside of the thread range, expected it inside");
    }
    Push(id);
    return absl::OkStatus();
  }

  static bool IsParallel(AxisType type) {
    return type == AxisType::kGroup || type == AxisType::kLocal || type == AxisType::kWarp;
  }

  void Push(uint32_t id) {
    const auto scope = static_cast<uint32_t>(open_.size());
    open_.push_back(true);
    loops_.push_back({id, scope});
    scope_[id] = scope;
  }

  // Groups, then locals, then the warp, and nothing opened before or between them.
  absl::Status CheckParallel(uint32_t id, AxisType type) {
    if (loops_.size() != parallel_.size() || open_.size() != parallel_.size() + 1) {
      return walk_.Bad(id, "is of type ", Name(type), ", expected it before any loop");
    }
    if (effect_ != kNotYet) {
      return walk_.Bad(id, "comes after an effect (node ", walk_.position[effect_],
                       "), expected effects inside of the parallel ranges");
    }
    if (!parallel_.empty() && (type < parallel_.back() || parallel_.back() == AxisType::kWarp)) {
      return walk_.Bad(id, "is of type ", Name(type), " inside of ", Name(parallel_.back()),
                       ", expected groups, then locals, then one warp");
    }
    constexpr int64_t kMost = 3;
    if (std::ranges::count(parallel_, type) == kMost) {
      return walk_.Bad(id, "is range number ", kMost + 1, " of type ", Name(type));
    }
    const UOp end = g_.at(id).src(0);
    if (type == AxisType::kGroup &&
        !CheckedMul(groups_, std::max<int64_t>(end.vmax(), 0), &groups_)) {
      return walk_.Bad(id, "makes more workgroups than can be counted");
    }
    if (type != AxisType::kGroup) {
      if (!end.is_const() || end.const_word() < 1) {
        return walk_.Bad(id, "has no constant size, expected the number of threads to be fixed");
      }
      if (!CheckedMul(threads_, end.const_word(), &threads_) || threads_ > kMaxThreads) {
        return walk_.Bad(id, "makes a workgroup of more than ", kMaxThreads, " threads");
      }
    }
    if (type == AxisType::kWarp && end.const_word() != program_.warp) {
      return walk_.Bad(id, "has size ", end.const_word(), ", expected the warp's size ",
                       program_.warp);
    }
    parallel_.push_back(type);
    return absl::OkStatus();
  }

  absl::Status OpenRole(uint32_t id) {
    if (role_ != kNotYet) return walk_.Bad(id, "is inside of another role");
    const int64_t warps = threads_ / program_.warp;
    if (g_.at(id).first_warp() + g_.at(id).warps() > warps) {
      return walk_.Bad(id, "names warps up to ", g_.at(id).first_warp() + g_.at(id).warps(),
                       ", but the workgroup has ", warps);
    }
    role_ = id;
    Push(id);
    return absl::OkStatus();
  }

  absl::Status Close(uint32_t id) {
    const std::span<const uint32_t> src = g_.src(id);
    if (g_.op(src[0]) != Op::kRange && g_.op(src[0]) != Op::kRole) {
      return walk_.BadSource(id, 0, "range or role");
    }
    if (src[0] == role_) role_ = kNotYet;
    if (closed_ == kNotYet && g_.op(src[0]) == Op::kRange &&
        IsParallel(g_.at(src[0]).axis_type())) {
      closed_ = src[0];
    }
    if (loops_.empty() || loops_.back().range != src[0]) {
      return walk_.Bad(id, "closes node ", walk_.position[src[0]],
                       ", expected the innermost open range");
    }
    open_[loops_.back().scope] = false;
    loops_.pop_back();
    scope_[id] = CurrentScope();
    return absl::OkStatus();
  }

  absl::Status Param(uint32_t id) const {
    const int64_t slot = g_.at(id).slot();
    if (slot >= static_cast<int64_t>(program_.arguments.size())) {
      return walk_.Bad(id, "slot ", slot, " is not one of the ", program_.arguments.size(),
                       " arguments");
    }
    const Program::Argument& argument = program_.arguments[slot];
    if (argument.dtype != g_.dtype(id) || g_.shape(id).size() != 1 ||
        g_.shape(id)[0] != argument.elements) {
      return walk_.Bad(id, "slot ", slot, " is ", Name(g_.dtype(id)), " ", ToString(g_.shape(id)),
                       ", expected ", Name(argument.dtype), " [", argument.elements,
                       "] as the argument");
    }
    return absl::OkStatus();
  }

  // The node's memory, of which `index` is an address.
  uint32_t MemoryOf(uint32_t index) const {
    uint32_t memory = g_.src(index)[0];
    while (g_.op(memory) == Op::kAfter) memory = g_.src(memory)[0];
    return memory;
  }

  absl::Status Access(uint32_t id, uint32_t index, bool write) const {
    const uint32_t memory = MemoryOf(index);
    if (g_.op(memory) != Op::kParam) return absl::OkStatus();
    const Program::Argument& argument = program_.arguments[g_.at(memory).slot()];
    if (write && thread_ != kNotYet && loops_.empty()) {
      return walk_.Bad(id, "writes outside of the thread range, expected it inside");
    }
    if (write ? argument.written : argument.read) return absl::OkStatus();
    return walk_.Bad(id, write ? "writes" : "reads", " argument ", g_.at(memory).slot(),
                     ", which does not say so");
  }

  // What a workgroup has only one of is not made again by a loop.
  absl::Status Shared(uint32_t id) const {
    if (parallel_.empty() || loops_.size() == parallel_.size()) return absl::OkStatus();
    return walk_.Bad(id, "belongs to the workgroup, expected it outside of loops and roles");
  }

  // A program for many threads is all inside of its parallel ranges: only values are computed
  // before the last of them, and nothing is after the first that ends.
  absl::Status CheckPlace(uint32_t id) {
    const Op op = g_.op(id);
    if (closed_ != kNotYet && op != Op::kEnd) {
      return walk_.Bad(id, "comes after the end of a parallel range (node ",
                       walk_.position[closed_], ")");
    }
    if (Is(op, kEffect) || op == Op::kShuffle || op == Op::kMma || op == Op::kLoadMatrix) {
      effect_ = id;
    }
    return absl::OkStatus();
  }

  absl::Status ScalarAddresses(uint32_t id, size_t count) const {
    for (size_t i = 0; i < count; ++i) {
      const uint32_t index = g_.src(id)[i];
      if (!g_.shape(index).empty()) {
        return walk_.Bad(id, "source ", i, " has shape ", ToString(g_.shape(index)),
                         ", expected one address");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Copy(uint32_t id) const {
    const std::span<const uint32_t> src = g_.src(id);
    TG_RETURN_IF_ERROR(ScalarAddresses(id, src.size()));
    for (size_t i = 0; i < 2; ++i) {
      const uint32_t memory = MemoryOf(src[i]);
      if (g_.op(memory) == Op::kBuffer && g_.at(memory).space() != AddressSpace::kLocal) {
        return walk_.Bad(id, "source ", i,
                         " points into registers, expected global or local "
                         "memory");
      }
      TG_RETURN_IF_ERROR(Access(id, src[i], i == 0));
    }
    const std::span<const int64_t> arg = g_.arg(id);
    if (arg[0] > 1 && arg[2] < arg[1]) {
      return walk_.Bad(id, "has rows of ", arg[1], " elements ", arg[2],
                       " apart, which overlap where they are written");
    }
    return absl::OkStatus();
  }

  absl::Status Wait(uint32_t id) const {
    for (uint32_t src : g_.src(id)) {
      if (g_.op(src) != Op::kCopyAsync || g_.src(src).size() < 3) continue;
      return walk_.Bad(id, "waits for node ", walk_.position[src],
                       ", whose bytes a phased barrier counts, expected a wait_phase");
    }
    return absl::OkStatus();
  }

  absl::Status LoadMatrix(uint32_t id) const {
    constexpr int64_t kLanes = 32;
    if (program_.warp == kLanes && threads_ % kLanes == 0) return absl::OkStatus();
    return walk_.Bad(id, "is run by warps of ", kLanes, " threads, but the workgroup's ", threads_,
                     " threads are in warps of ", program_.warp);
  }

  // All threads of the scope run it, and it is made for so many.
  absl::Status Mma(uint32_t id) const {
    const MmaInfo& mma = g_.at(id).mma();
    constexpr int64_t kWarpsOfWarpgroup = 4;
    int64_t warps = 0;  // of the scope; 0: one thread
    if (mma.scope == Scope::kWarp) warps = 1;
    if (mma.scope == Scope::kWarpgroup) warps = kWarpsOfWarpgroup;
    if (warps > 0) {
      const int64_t threads = warps * program_.warp;
      if (threads != mma.threads) {
        return walk_.Bad(id, mma.name, " is made for ", mma.threads, " threads, but ", warps,
                         " warps have ", threads);
      }
      const bool role = role_ != kNotYet;
      if (role ? g_.at(role_).first_warp() % warps != 0 || g_.at(role_).warps() % warps != 0
               : threads_ % threads != 0) {
        return walk_.Bad(id, mma.name, " is run by ", warps, " warps together, expected ",
                         role ? "the role" : "the workgroup", " to be made of such");
      }
    }
    if (g_.op(id) == Op::kMma) return absl::OkStatus();
    TG_RETURN_IF_ERROR(ScalarAddresses(id, 2));
    const std::span<const uint32_t> src = g_.src(id);
    if (g_.shape(src[2]).size() != 1 || g_.shape(src[2])[0] != mma.c_size()) {
      return walk_.Bad(id, "source 2 has shape ", ToString(g_.shape(src[2])), ", expected [",
                       mma.c_size(), "]");
    }
    for (size_t i = 0; i < src.size(); ++i) {
      if (g_.src(src[i]).size() == 3) return walk_.Bad(id, "source ", i, " has a gate");
    }
    return absl::OkStatus();
  }

  const Program& program_;
  const VerifyWalk& walk_;
  const Graph& g_;
  std::vector<uint32_t> scope_;  // by id
  std::vector<bool> open_;       // by scope
  std::vector<Loop> loops_;
  std::vector<AxisType> parallel_;  // of the parallel ranges, which come first
  int64_t groups_ = 1;              // at most
  int64_t threads_ = 1;             // of a workgroup
  uint32_t role_ = kNotYet;         // the open one
  uint32_t thread_ = kNotYet;
  uint32_t effect_ = kNotYet;  // the last effect
  uint32_t closed_ = kNotYet;  // the first parallel range that has ended
};

}  // namespace

bool IsIdentifier(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return letter(c) || digit(c); });
}

absl::Status Verify(const Program& program) {
  if (program.graph == nullptr) return InvalidArgument("the program has no graph");
  for (uint32_t id : program.order) {
    if (id >= program.graph->size()) {
      return InvalidArgument("the order names node ", id, ", expected less than ",
                             program.graph->size());
    }
  }
  const VerifyWalk walk(*program.graph, program.order, {});
  return ProgramVerifier(program, walk).Run();
}

}  // namespace telegrad
