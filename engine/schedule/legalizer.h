// The walk that legalizes, for the files that it is spread over: legalize.cc has its order, calls
// and loops; legalize_node.cc what one node becomes; legalize_devices.cc what moves between
// devices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/schedule/legalize.h"
#include "engine/schedule/legalize_bits.h"

namespace telegrad {

// What a node became: `count` entries of a pool from `first`.
struct InstanceRef {
  uint32_t first = 0;
  uint32_t count = 0;
};

class Legalizer {
 public:
  // `variables`: none where they stay.
  Legalizer(UOp sink, std::optional<std::span<const VarValue>> variables, Budget* budget,
            const Placement* placement)
      : from_(*sink.graph()),
        sink_(sink),
        order_(PostOrder(sink)),
        keeps_variables_(!variables),
        budget_(budget),
        placement_(placement),
        top_(sink.id() + 1),
        held_(budget) {
    if (variables) variables_.assign(variables->begin(), variables->end());
  }

  absl::StatusOr<FrozenGraph> Run();

 private:
  static constexpr uint32_t kTop = 0;  // the scope of what is in no body

  struct Scope {
    std::vector<InstanceRef> args;
    absl::flat_hash_map<uint32_t, InstanceRef> made;
  };
  struct Frame {
    uint32_t scope;
    uint32_t node;
    int next = 0;                           // the next source to look at
    bool inside = false;                    // of a CALL or LOOP: its body is being walked
    int64_t iteration = 0;                  // of a LOOP
    int64_t trips = 0;                      // of a LOOP: at most so many
    std::vector<InstanceRef> carried = {};  // of a LOOP
  };

  absl::Status CheckVariables();
  absl::Status Walk();
  // Sets `*out` when `frame`, whose sources are made, is done; else has pushed its body.
  absl::Status Finish(size_t frame, std::optional<InstanceRef>* out);
  absl::Status FinishCall(size_t frame, std::optional<InstanceRef>* out);
  absl::Status FinishLoop(size_t frame, std::optional<InstanceRef>* out);
  // Of a loop that is unrolled up to `most` iterations, where variables stay: UNIMPLEMENTED if they
  // decide about more of them than are worth it.
  absl::Status CheckTrips(UOp trips, int64_t most);
  // Whether a variable that stays decides about the bounds of a node of the new graph.
  bool Varies(UOp u);
  void Enter(size_t frame, std::vector<InstanceRef> args);
  absl::StatusOr<InstanceRef> Leave(size_t frame);
  absl::StatusOr<InstanceRef> Structure(const Frame& frame, UOp u);

  absl::StatusOr<InstanceRef> Instances(const Frame& frame, UOp u);
  absl::StatusOr<UOp> Node(UOp u, std::span<const UOp> src);
  // One whose sizes, or those of its sources, only the run knows: `sizes` are those that `arg`
  // names.
  absl::StatusOr<UOp> Symbolic(UOp u, std::span<const UOp> src, std::span<const UOp> sizes,
                               std::span<const int64_t> arg);
  // The value of an integer that the engine computes with.
  UOp Integer(UOp old, UOp x) {
    return IsPacked(old.dtype()) ? CarriedCast(&g_, x, old.dtype(), DType::kInt8) : x;
  }
  absl::StatusOr<UOp> Var(UOp u, std::span<const UOp> src);
  absl::StatusOr<UOp> Store(UOp u, std::span<const UOp> src);
  UOp StoreInside(UOp target, UOp value);
  UOp Undone(UOp movement, ShapeView from, UOp x);
  UOp After(UOp u, std::span<const UOp> src);
  absl::StatusOr<UOp> Param(UOp u);
  UOp Window(UOp u, UOp x, std::span<const int64_t> arg);

  // Devices.
  absl::StatusOr<int64_t> DeviceOf(int64_t number) const;
  absl::StatusOr<InstanceRef> Copy(UOp u, UOp x);
  absl::StatusOr<InstanceRef> Collective(UOp u, InstanceRef all);
  // `x` where `like` is.
  UOp Near(UOp x, UOp like) {
    return like.devices().empty() ? x : CopyTo(&g_, x, like.devices()[0], budget_);
  }

  // The bytes of a packed PARAM, or of one after stores; an invalid UOp for anything else.
  UOp PackedMemory(UOp u) const {
    const auto it = packed_.find(u.id());
    return it == packed_.end() ? UOp() : it->second;
  }

  bool Known(uint32_t scope, uint32_t node) const {
    return scope == kTop ? top_[node].count > 0 : scopes_[scope - 1].made.contains(node);
  }
  InstanceRef Of(uint32_t scope, UOp u) const {
    return scope == kTop ? top_[u.id()] : scopes_[scope - 1].made.at(u.id());
  }
  UOp Instance(InstanceRef ref, uint32_t i) const {
    return pool_[ref.first + (ref.count > 1 ? i : 0)];
  }
  InstanceRef Single(UOp u) {
    pool_.push_back(u);
    return {static_cast<uint32_t>(pool_.size()) - 1, 1};
  }
  InstanceRef Repeated(UOp u, size_t count) {
    pool_.insert(pool_.end(), count, u);
    return {static_cast<uint32_t>(pool_.size() - count), static_cast<uint32_t>(count)};
  }
  InstanceRef List(std::span<const InstanceRef> values) {
    lists_.insert(lists_.end(), values.begin(), values.end());
    return {static_cast<uint32_t>(lists_.size() - values.size()),
            static_cast<uint32_t>(values.size())};
  }
  absl::Status Spend(int64_t n);

  const Graph& from_;
  const UOp sink_;
  const std::vector<uint32_t> order_;
  const bool keeps_variables_;
  std::vector<VarValue> variables_;
  Budget* budget_;
  const Placement* const placement_;  // null: all on one device
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  Graph& g_ = *graph_;
  std::vector<Frame> stack_;
  std::vector<Scope> scopes_;                  // scope n is scopes_[n - 1]
  std::vector<InstanceRef> top_;               // by node
  std::vector<UOp> pool_;                      // instances
  std::vector<InstanceRef> lists_;             // values of tuples
  absl::flat_hash_map<uint32_t, UOp> packed_;  // by old node
  absl::flat_hash_set<UOp> clipped_;           // views with elements that are not the param's
  std::vector<bool> varies_;                   // by new node, as far as it was asked for
  int64_t spent_ = 0, calls_ = 0;
  int64_t varying_trips_ = 0;  // iterations of all loops about which a variable decides
  Budget::Held held_;
};

}  // namespace telegrad
