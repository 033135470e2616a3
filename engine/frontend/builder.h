// Builder: owns a graph in the making and its slot table. Tensors are handles on it and must not
// outlive it. One thread at a time.
#pragma once

#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/plan.h"
#include "engine/frontend/tensor.h"
#include "engine/ir/graph.h"

namespace telegrad {

class Builder {
 public:
  Builder() = default;
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // Leaves. Names are unique and not empty.
  Tensor Param(DType dtype, const Shape& shape, std::string_view name,
               SlotRole role = SlotRole::kInput);
  Tensor State(DType dtype, const Shape& shape, std::string_view name, Init init);
  // State that optimizers train; see trainable().
  Tensor Trainable(DType dtype, const Shape& shape, std::string_view name, Init init);
  Tensor Const(DType dtype, double value);  // a scalar, shape []
  Tensor Full(DType dtype, const Shape& shape, double value);
  Tensor Iota(DType dtype, int64_t n);  // 0, 1, ... n - 1

  // Effects. Store writes `value`, broadcast, into a state or output slot, or a view of one made of
  // reshape, permute, flip and shrink; at most one Store for each slot. Output makes an output slot
  // for `value` and returns its number (-1 after an error).
  void Store(const Tensor& target, const Tensor& value);
  // Store into a whole state slot that takes the place of an earlier Update of it: what uses a slot
  // several times in one run (a random stream, running statistics) tells its last value so far.
  void Update(const Tensor& slot, const Tensor& value);
  // The value of the last Update of a slot, else the slot itself.
  Tensor Updated(const Tensor& slot) const;
  int Output(const Tensor& value, std::string_view name);

  // The first error of any operation, or the plan. The builder may go on after it.
  absl::StatusOr<Plan> Finish();

  const std::vector<Tensor>& trainable() const { return trainable_; }
  const std::vector<Slot>& slots() const { return slots_; }
  // The slot that a tensor made by Param, State or Trainable stands for, else null.
  const Slot* FindSlot(const Tensor& tensor) const;
  const absl::Status& status() const { return graph_.status(); }

  // For the operations themselves.
  Tensor Make(Op op, DType dtype, std::initializer_list<Tensor> src,
              std::span<const int64_t> arg = {});
  Tensor Fail(absl::Status status);  // records the error unless there is one; an invalid tensor
  Graph& graph() { return graph_; }

 private:
  Tensor AddSlot(DType dtype, const Shape& shape, std::string_view name, SlotRole role, Init init);

  // Which slot the target of a store is a view of, or -1 after an error.
  int64_t StoredSlot(const Tensor& target, const Tensor& value);
  UOp MakeStore(const Tensor& target, const Tensor& value);

  Graph graph_;
  std::vector<Slot> slots_;
  std::vector<UOp> stores_;
  std::vector<bool> stored_;           // by slot
  std::map<int64_t, size_t> updates_;  // by slot, which of the stores
  std::vector<Tensor> trainable_;
};

}  // namespace telegrad
