// Builder: owns a graph in the making and its slot table. Tensors are handles on it and must not
// outlive it. One thread at a time.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
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
  Tensor Const(DType dtype, const Operand& number);
  Tensor Full(DType dtype, const Dims& shape, const Operand& number);
  Tensor Zeros(const Dims& shape, DType dtype = DType::kFloat32);
  Tensor Ones(const Dims& shape, DType dtype = DType::kFloat32);
  Tensor Iota(DType dtype, const Dim& n);  // 0, 1, ... n - 1
  // NumPy's arange: begin, begin + step, ... before `end`; begin + i * step in i64 or f64, rounded
  // to the type. i32 if all three are integers, else f32, unless said.
  Tensor Arange(const Operand& begin, const Operand& end, const Operand& step = 1,
                DType dtype = DType::kVoid);
  Tensor Linspace(double begin, double end, int64_t count, DType dtype = DType::kFloat32);
  Tensor Eye(int64_t rows, std::optional<int64_t> columns = {}, DType dtype = DType::kFloat32);
  // The values as they are, a part of the plan: an input slot that is bound by whoever runs it.
  Tensor From(const HostTensor& values, std::string_view name);
  // A few numbers as constants of the graph, row-major.
  Tensor Literal(DType dtype, const Shape& shape, std::span<const double> values);
  Tensor Literal(std::initializer_list<double> values) {  // a vector of f32
    return Literal(DType::kFloat32, {static_cast<int64_t>(values.size())},
                   std::span(values.begin(), values.size()));
  }
  // A scalar i64 that each run chooses: a multiple of `multiple` within [min, max]. Sizes and
  // positions made of it are symbolic (dims.h).
  Tensor Variable(std::string_view name, int64_t min, int64_t max, int64_t multiple = 1);

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
  // Of an op whose argument words are sizes, some of which may be symbolic.
  Tensor MakeSized(Op op, DType dtype, std::initializer_list<Tensor> src,
                   std::span<const Dim> sizes);
  Tensor Fail(absl::Status status);  // records the error unless there is one; an invalid tensor
  Graph& graph() { return graph_; }

 private:
  Tensor AddSlot(DType dtype, const Shape& shape, std::string_view name, SlotRole role, Init init);

  // Which slot the target of a store is a view of, or -1 after an error.
  int64_t StoredSlot(const Tensor& target, const Tensor& value);
  UOp MakeStore(const Tensor& target, const Tensor& value);

  Graph graph_;
  std::vector<Slot> slots_;
  std::vector<PlanVariable> variables_;
  std::vector<UOp> stores_;
  std::vector<bool> stored_;           // by slot
  std::map<int64_t, size_t> updates_;  // by slot, which of the stores
  std::vector<Tensor> trainable_;
};

}  // namespace telegrad
