// The tensor level, and the entry point.
//
// Stores to one slot must be in a total order. Post-order is a topological order, so it is enough
// that each store depends on the one before it among the stores to its slot: a depth-first search
// from the later store that ignores everything before the earlier one. In an honest graph the
// store's own target names its predecessor and the search ends at once; a hostile one can make
// every search long, so all searches together have a limit. The walks of function bodies share it:
// one node may be part of many bodies.
#include "engine/ir/verify.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/verify_walk.h"

namespace telegrad {
namespace internal {
namespace {

constexpr uint32_t kNone = 0xffffffff;

class TensorVerifier {
 public:
  TensorVerifier(const VerifyWalk& walk, Budget* budget)
      : walk_(walk),
        budget_(budget),
        g_(walk.graph),
        base_(g_.size(), kNone),
        visited_(g_.size(), kNone),
        host_(g_.size(), false),
        whole_(g_.size(), false) {}

  absl::Status Run(uint32_t root) {
    if (g_.op(root) != Op::kSink) return walk_.Bad(root, "is the root, expected sink");
    for (uint32_t id : walk_.order) {
      if (g_.op(id) == Op::kSink && id != root) return walk_.Bad(id, "expected only as the root");
      TG_RETURN_IF_ERROR(Node(id));
      TG_RETURN_IF_ERROR(CheckSymbolic(id));
    }
    TG_RETURN_IF_ERROR(CheckBodies(root));
    return CheckOrder();
  }

 private:
  absl::Status Node(uint32_t id) {
    const std::span<const uint32_t> src = g_.src(id);
    switch (g_.op(id)) {
      case Op::kSink:
        for (size_t i = 0; i < src.size(); ++i) {
          if (g_.op(src[i]) != Op::kStore) return walk_.BadSource(id, i, "store");
        }
        return absl::OkStatus();
      case Op::kParam:
        base_[id] = id;
        whole_[id] = true;
        return CheckSlot(id);
      case Op::kReshape:
      case Op::kPermute:
      case Op::kFlip:
      case Op::kShrink:
        base_[id] = base_[src[0]];
        whole_[id] = g_.op(id) == Op::kReshape && whole_[src[0]];
        return absl::OkStatus();
      case Op::kAfter:
        return After(id);
      case Op::kStore:
        if (IsPacked(g_.dtype(src[0])) && !whole_[src[0]]) {
          return walk_.Bad(id, "writes a part of a packed ", Name(g_.dtype(src[0])),
                           " buffer, expected the whole of it in order");
        }
        if (base_[src[0]] == kNone) {
          return walk_.Bad(id, "source 0 is ", Name(g_.op(src[0])),
                           ", expected a view (reshape, permute, flip, shrink) of a param, or of a "
                           "param after stores");
        }
        return absl::OkStatus();
      default:
        return absl::OkStatus();
    }
  }

  // Sizes are computed before anything runs: from constants and variables that each run gives.
  absl::Status CheckSymbolic(uint32_t id) {
    const Op op = g_.op(id);
    const std::span<const uint32_t> src = g_.src(id);
    const bool host_op = op == Op::kConst || op == Op::kVar || Is(op, kAlu);
    host_[id] = host_op && g_.dtype(id) == DType::kInt64 && g_.shape(id).empty() &&
                (op != Op::kVar || src.empty()) &&
                std::ranges::all_of(src, [&](uint32_t s) { return host_[s]; });
    if (!Is(op, kSymbolic)) return absl::OkStatus();
    for (size_t i = static_cast<size_t>(Info(op).min_src); i < src.size(); ++i) {
      if (!host_[src[i]]) {
        return walk_.Bad(id, "the symbolic size (source ", i,
                         ") depends on more than constants and variables without a source");
      }
    }
    return absl::OkStatus();
  }

  // A value belongs to the graph or to one body; a body names nothing but its own arguments.
  absl::Status CheckBodies(uint32_t root) {
    bool functions = false;
    for (uint32_t id : walk_.order) {
      const Op op = g_.op(id);
      functions |= op == Op::kArg || op == Op::kCall || op == Op::kLoop;
    }
    if (!functions) return absl::OkStatus();
    const Budget::Doing doing(budget_, "verifying the bodies of functions");
    std::vector<uint32_t> calls{
        root};  // whose parts are still to be walked; the root stands for all
    std::vector<uint32_t> seen(g_.size(), kNone);
    std::vector<bool> called(g_.size(), false);
    for (size_t next = 0; next < calls.size(); ++next) {
      const uint32_t call = calls[next];
      stack_.assign(1, call == root ? root : g_.src(call)[0]);
      while (!stack_.empty()) {
        const uint32_t id = stack_.back();
        stack_.pop_back();
        if (seen[id] == call) continue;
        seen[id] = call;
        const bool calls_on = g_.op(id) == Op::kCall || g_.op(id) == Op::kLoop;
        TG_RETURN_IF_ERROR(call == root ? Outside(id) : Inside(id, call));
        if (calls_on && !called[id]) {
          called[id] = true;
          calls.push_back(id);
        }
        const std::span<const uint32_t> src = g_.src(id).subspan(calls_on ? 1 : 0);
        TG_RETURN_IF_ERROR(budget_->SpendSteps(static_cast<int64_t>(src.size()) + 1));
        stack_.insert(stack_.end(), src.begin(), src.end());
      }
    }
    return absl::OkStatus();
  }

  absl::Status Outside(uint32_t id) const {
    if (g_.op(id) != Op::kArg) return absl::OkStatus();
    return walk_.Bad(id, "is outside of a body, expected only in the body of a call or loop");
  }

  absl::Status Inside(uint32_t id, uint32_t call) const {
    const Op op = g_.op(id);
    if (op == Op::kParam || op == Op::kAfter || Is(op, kEffect)) {
      return walk_.Bad(id, "is in the body of node ", Number(call),
                       ", expected a body to depend on its arguments only");
    }
    if (op != Op::kArg) return absl::OkStatus();
    const std::span<const uint32_t> src = g_.src(call);
    const bool loop = g_.op(call) == Op::kLoop;
    const int64_t number = g_.at(id).slot();
    if (loop && number == 0) {
      if (g_.dtype(id) == DType::kInt64 && g_.shape(id).empty()) return absl::OkStatus();
      return walk_.Bad(id, "is ", Name(g_.dtype(id)), " ", ToString(g_.shape(id)),
                       ", expected the iteration of node ", Number(call), ", a scalar i64");
    }
    if (number + 1 >= static_cast<int64_t>(src.size())) {
      return walk_.Bad(id, "is argument ", number, " of node ", Number(call), ", which has ",
                       src.size() - 1);
    }
    const UOp value = g_.at(src[static_cast<size_t>(number) + 1]);
    if (value.dtype() == g_.dtype(id) && SameShape(value, g_.at(id)) &&
        (value.place() == 0 || value.place() == g_.place(id))) {
      return absl::OkStatus();
    }
    return walk_.Bad(id, "is ", Name(g_.dtype(id)), " ", ToString(g_.shape(id)), " on device ",
                     g_.at(id).device(), ", expected as argument ", number, " of node ",
                     Number(call), ": ", Name(value.dtype()), " ", ToString(value.shape()), " on ",
                     ToString(value.devices()));
  }

  uint32_t Number(uint32_t id) const {
    return id < walk_.numbers.size() ? walk_.numbers[id] : walk_.position[id];
  }

  // A slot is one buffer, so all its params are one node.
  absl::Status CheckSlot(uint32_t id) {
    const int64_t slot = g_.at(id).slot();
    const uint32_t first = slots_.try_emplace(slot, id).first->second;
    if (first == id) return absl::OkStatus();
    return walk_.Bad(id, "slot ", slot, " is ", Name(g_.dtype(id)), " ", ToString(g_.shape(id)),
                     ", expected ", Name(g_.dtype(first)), " ", ToString(g_.shape(first)),
                     " as elsewhere");
  }

  absl::Status After(uint32_t id) {
    const std::span<const uint32_t> src = g_.src(id);
    if (g_.op(src[0]) != Op::kParam) return walk_.BadSource(id, 0, "param");
    for (size_t i = 1; i < src.size(); ++i) {
      if (g_.op(src[i]) != Op::kStore) return walk_.BadSource(id, i, "store");
      const uint32_t written = base_[g_.src(src[i])[0]];
      if (written != src[0]) {
        return walk_.Bad(id, "source ", i, " stores to slot ", g_.at(written).slot(),
                         ", expected slot ", g_.at(src[0]).slot());
      }
    }
    base_[id] = src[0];
    whole_[id] = true;
    return absl::OkStatus();
  }

  absl::Status CheckOrder() {
    const Budget::Doing doing(budget_, "proving the order of the stores");
    // In post-order, so that the first error found is always the same one.
    absl::flat_hash_map<int64_t, uint32_t> last;
    for (uint32_t id : walk_.order) {
      if (g_.op(id) != Op::kStore) continue;
      const int64_t slot = g_.at(base_[g_.src(id)[0]]).slot();
      const auto [it, first] = last.try_emplace(slot, id);
      if (first) continue;
      TG_RETURN_IF_ERROR(CheckDepends(id, it->second, slot));
      it->second = id;
    }
    return absl::OkStatus();
  }

  absl::Status CheckDepends(uint32_t later, uint32_t earlier, int64_t slot) {
    stack_.assign(1, later);
    while (!stack_.empty()) {
      const std::span<const uint32_t> src = g_.src(stack_.back());
      stack_.pop_back();
      const absl::Status spent = budget_->SpendSteps(static_cast<int64_t>(src.size()));
      if (!spent.ok()) {
        return absl::Status(spent.code(),
                            StrCat(spent.message(),
                                   "; expected each store's target to be its param after the store "
                                   "before it"));
      }
      // Reversed: the target, which usually names the earlier store, is looked at first.
      for (size_t i = src.size(); i-- > 0;) {
        if (src[i] == earlier) return absl::OkStatus();
        if (walk_.position[src[i]] < walk_.position[earlier] || visited_[src[i]] == later) continue;
        visited_[src[i]] = later;
        stack_.push_back(src[i]);
      }
    }
    return walk_.Bad(later, "stores to slot ", slot, ", as node ", Number(earlier),
                     " does, in no defined order; expected an after between them");
  }

  const VerifyWalk& walk_;
  Budget* budget_;
  const Graph& g_;
  std::vector<uint32_t> base_;     // by id: the param that a node is a storable view of
  std::vector<uint32_t> visited_;  // by id: the last search that saw it
  std::vector<bool> host_;         // by id: known before anything runs
  std::vector<bool> whole_;        // by id: a param or reshapes of one
  std::vector<uint32_t> stack_;
  absl::flat_hash_map<int64_t, uint32_t> slots_;  // the param of each slot
};

}  // namespace

absl::Status VerifyTensor(const VerifyWalk& walk, uint32_t root, Budget* budget) {
  return TensorVerifier(walk, budget).Run(root);
}

}  // namespace internal

absl::Status Verify(UOp root, Level level, std::span<const uint32_t> numbers, Budget* budget) {
  if (!root.valid()) return InvalidArgument("there is no graph, expected a root");
  const internal::VerifyWalk walk(*root.graph(), PostOrder(root), numbers);
  constexpr std::string_view kNames[] = {"", "tensor", "kernel", "", "program"};
  for (uint32_t id : walk.order) {
    if (!IsAt(walk.graph.op(id), level)) {
      return walk.Bad(id, "is not an op of the ", kNames[level], " level");
    }
  }
  switch (level) {
    case kTensorLevel: {
      Budget own;
      return internal::VerifyTensor(walk, root.id(), budget != nullptr ? budget : &own);
    }
    case kKernelLevel:
      return internal::VerifyKernel(walk, root.id());
    case kProgramLevel:
      return absl::OkStatus();
  }
  return Internal("unknown level ", static_cast<int>(level));
}

}  // namespace telegrad
