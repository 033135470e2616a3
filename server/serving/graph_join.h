// Joins the graphs of several models to one: an output of one is an input of another, without a
// slot in between. Weights stay slots of their own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"
#include "server/tenant/imported_model.h"

namespace telegrad {

class GraphJoin {
 public:
  // Nodes are spent of `budget`, which outlives this.
  explicit GraphJoin(Budget* budget) : budget_(*budget) {}

  using Values = std::map<std::string, UOp, std::less<>>;

  // An input of the whole.
  UOp Input(const std::string& name, DType dtype, const Shape& shape);
  // The same elements in another shape.
  UOp Reshape(UOp value, const Shape& shape);
  // The graph of a part, its inputs bound by their names in the model; its outputs, likewise.
  // INVALID_ARGUMENT for an input that is missing or of another type or shape; UNIMPLEMENTED for a
  // graph that writes to anything but whole outputs, each once.
  absl::StatusOr<Values> Add(const ImportedModel& part, const Values& inputs);
  // An output of the whole.
  void Output(const std::string& name, UOp value);
  // The whole, checked like a graph from outside. Nothing is called afterwards.
  absl::StatusOr<ImportedModel> Finish();

 private:
  struct Copy;
  friend struct Copy;
  UOp AddSlot(ImportedSlot slot, std::string_view content);

  Budget& budget_;
  Graph graph_;
  ImportedModel model_;
  std::vector<UOp> stores_;
  std::vector<std::shared_ptr<const void>> kept_;
  int64_t variables_ = 0;
};

}  // namespace telegrad
