// The planner of fusion, for the files that it is spread over: fusion.cc has the walk,
// fusion_choice.cc decides about one value, fusion_uses.cc knows which kernels need a value
// where.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/base/budget.h"
#include "engine/schedule/access.h"
#include "engine/schedule/cost.h"
#include "engine/schedule/drafts.h"
#include "engine/schedule/exact_values.h"
#include "engine/schedule/fusion.h"
#include "engine/schedule/nests.h"

namespace telegrad {

class FusionPlanner {
 public:
  FusionPlanner(UOp sink, const FusionOptions& options, Budget* budget)
      : graph_(*sink.graph()),
        size_(sink.id() + 1),
        options_(options),
        budget_(budget),
        held_(budget),
        drafts_(graph_, options) {
    plan_.order = PostOrder(sink);
    exact_ = ExactValues(graph_, plan_.order);
    CountUses();
  }

  absl::StatusOr<FusionPlan> Run() &&;

 private:
  void CountUses();
  // A sum of products joins its only user as long as that keeps its elements.
  std::vector<bool> FirstGuess() const;
  absl::Status PlanInRounds();
  absl::Status PlanOnce();
  // Whether values were to be kept between nests of a kernel that the groups do not keep: they
  // are stored or computed again then, as others are.
  bool FindFar(const std::vector<NestGroup>& groups);
  absl::Status Visit(uint32_t id);
  void EmitKernels(const std::vector<NestGroup>& groups);

  // Decisions.
  Materialize Choose(UOp u, const std::vector<KernelUse>& uses, std::string* why) const;
  // Whether the reductions that `u` holds may run where the kernel needs it.
  bool IsScalarTerm(UOp u, const std::vector<KernelUse>& uses) const;
  bool Fits(UOp u, const KernelUse& use, std::string* why) const;
  // Whether all uses are in one kernel, which a thread goes through row by row: then it may keep a
  // row of `u` for them, near to it.
  bool MayBeNear(UOp u, const std::vector<KernelUse>& uses) const;
  // A kernel that computes all of `u`, each element once, in its loops, and that no other reader
  // has to precede; -1: there is none.
  int Home(UOp u, const std::vector<KernelUse>& uses) const;
  // A STORE of `u` that is a root of the draft and the whole of a PARAM that nothing else touches;
  // 0: there is none.
  uint32_t WholeOutput(UOp u, const Draft& draft) const;

  // Uses by kernels.
  void AddUse(uint32_t node, KernelUse use);
  void MergeKernels(uint32_t id, std::vector<KernelUse>* uses);
  void Store(UOp u, const std::vector<KernelUse>& uses, std::string why);
  // What a sum of products reads from memory.
  void NoteOperand(uint32_t id, const std::vector<KernelUse>& uses);
  static double TimesRead(const Draft& draft, const Access& access, ShapeView shape, int loop);
  void AddSources(UOp u, const KernelUse& use);
  KernelUse BelowReduce(UOp u, const KernelUse& use);
  void VisitStore(UOp store);
  void VisitScatter(UOp scatter, const std::vector<KernelUse>& uses);

  // Of the tables below, without the uses and drafts.
  static constexpr int64_t kBytesPerNode = 144;

  const Graph& graph_;
  const uint32_t size_;
  const FusionOptions& options_;
  Budget* budget_;
  Budget::Held held_;
  FusionPlan plan_;
  std::vector<int> uses_;
  std::vector<uint32_t> last_user_;
  std::vector<bool> exact_;            // see ExactValues
  std::vector<bool> stored_;           // by the plan before
  absl::flat_hash_set<uint32_t> far_;  // see FindFar
  std::vector<NodeCost> costs_;
  Drafts drafts_;
  std::vector<std::vector<KernelUse>> kernel_uses_;          // of the nodes not visited yet
  absl::flat_hash_map<uint32_t, std::vector<int>> readers_;  // of what a STORE has written
  std::vector<StoredValue> stored_values_;
};

}  // namespace telegrad
