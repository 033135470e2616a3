// The tensor level, and the entry point.
//
// Stores to one slot must be in a total order. Post-order is a topological order, so it is enough
// that each store depends on the one before it among the stores to its slot: a depth-first search
// from the later store that ignores everything before the earlier one. In an honest graph the
// store's own target names its predecessor and the search ends at once; a hostile one can make
// every search long, so all searches together have a limit.
#include "engine/ir/verify.h"

#include "absl/container/flat_hash_map.h"
#include "engine/ir/verify_walk.h"

namespace telegrad {
namespace internal {
namespace {

constexpr int64_t kMaxSearchSteps = 50'000'000;
constexpr uint32_t kNone = 0xffffffff;

class TensorVerifier {
 public:
  explicit TensorVerifier(const VerifyWalk& walk)
      : walk_(walk), g_(walk.graph), base_(g_.size(), kNone), visited_(g_.size(), kNone) {}

  absl::Status Run(uint32_t root) {
    if (g_.op(root) != Op::kSink) return walk_.Bad(root, "is the root, expected sink");
    for (uint32_t id : walk_.order) {
      if (g_.op(id) == Op::kSink && id != root) return walk_.Bad(id, "expected only as the root");
      TG_RETURN_IF_ERROR(Node(id));
    }
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
        return CheckSlot(id);
      case Op::kReshape:
      case Op::kPermute:
      case Op::kFlip:
      case Op::kShrink:
        base_[id] = base_[src[0]];
        return absl::OkStatus();
      case Op::kAfter:
        return After(id);
      case Op::kStore:
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

  // A slot is one buffer, so all its params are one node.
  absl::Status CheckSlot(uint32_t id) {
    const int64_t slot = g_.arg(id)[0];
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
        return walk_.Bad(id, "source ", i, " stores to slot ", g_.arg(written)[0],
                         ", expected slot ", g_.arg(src[0])[0]);
      }
    }
    base_[id] = src[0];
    return absl::OkStatus();
  }

  absl::Status CheckOrder() {
    // In post-order, so that the first error found is always the same one.
    absl::flat_hash_map<int64_t, uint32_t> last;
    for (uint32_t id : walk_.order) {
      if (g_.op(id) != Op::kStore) continue;
      const int64_t slot = g_.arg(base_[g_.src(id)[0]])[0];
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
      steps_ += static_cast<int64_t>(src.size());
      if (steps_ > kMaxSearchSteps) {
        return ResourceExhausted("the order of the stores takes more than ", kMaxSearchSteps,
                                 " steps to prove; expected each store's target to be its param "
                                 "after the store before it");
      }
      // Reversed: the target, which usually names the earlier store, is looked at first.
      for (size_t i = src.size(); i-- > 0;) {
        if (src[i] == earlier) return absl::OkStatus();
        if (walk_.position[src[i]] < walk_.position[earlier] || visited_[src[i]] == later) continue;
        visited_[src[i]] = later;
        stack_.push_back(src[i]);
      }
    }
    return walk_.Bad(
        later, "stores to slot ", slot, ", as node ",
        earlier < walk_.numbers.size() ? walk_.numbers[earlier] : walk_.position[earlier],
        " does, in no defined order; expected an after between them");
  }

  const VerifyWalk& walk_;
  const Graph& g_;
  std::vector<uint32_t> base_;     // by id: the param that a node is a storable view of
  std::vector<uint32_t> visited_;  // by id: the last search that saw it
  std::vector<uint32_t> stack_;
  absl::flat_hash_map<int64_t, uint32_t> slots_;  // the param of each slot
  int64_t steps_ = 0;
};

}  // namespace

absl::Status VerifyTensor(const VerifyWalk& walk, uint32_t root) {
  return TensorVerifier(walk).Run(root);
}

}  // namespace internal

absl::Status Verify(UOp root, Level level, std::span<const uint32_t> numbers) {
  if (!root.valid()) return InvalidArgument("there is no graph, expected a root");
  const internal::VerifyWalk walk(*root.graph(), PostOrder(root), numbers);
  constexpr std::string_view kNames[] = {"", "tensor", "kernel", "", "program"};
  for (uint32_t id : walk.order) {
    if (!IsAt(walk.graph.op(id), level)) {
      return walk.Bad(id, "is not an op of the ", kNames[level], " level");
    }
  }
  switch (level) {
    case kTensorLevel:
      return internal::VerifyTensor(walk, root.id());
    case kKernelLevel:
      return internal::VerifyKernel(walk, root.id());
    case kProgramLevel:
      return absl::OkStatus();
  }
  return Internal("unknown level ", static_cast<int>(level));
}

}  // namespace telegrad
