// Builder: owns a graph in the making and its slot table. Tensors are handles on it and must not
// outlive it. One thread at a time.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/plan.h"
#include "engine/frontend/tensor/tensor.h"
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

  // Effects. Store writes `value`, broadcast, into a state or output slot that nothing is stored to
  // yet, or into a view of one: numbers, slices (symbolic ones too) and new axes of At, and what
  // else reshapes, permutes, flips or narrows. Tensors that are there keep their values: reading
  // the slot gives what it was before the run.
  void Store(const Tensor& target, const Tensor& value);
  // The same as often as one likes, one after the other: each writes into the slot as the one
  // before has left it. The slot's new value, which reads and views what is stored by then:
  //   keys = b.Assign(keys.At({Ellipsis(), Slice(position, position + 1), Slice()}), key);
  Tensor Assign(const Tensor& view, const Tensor& value);
  // Store into a whole state slot that takes the place of an earlier Update of it: what uses a slot
  // several times in one run (a random stream, running statistics) tells its last value so far.
  void Update(const Tensor& slot, const Tensor& value);
  // The value of the last Update of a slot, else the slot itself.
  Tensor Updated(const Tensor& slot) const;
  // An output slot for `value`; its number, or -1 after an error. Where an axis is symbolic the
  // slot has room for the bound, and only the elements that are there are written.
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

  // How the gradient of a composition of operations flows to `sources` (before it in the graph),
  // where that is better known as another composition than the rules of the operations in between
  // would find it: `rule` gives the gradient of each source from that of the value.
  struct Derivative {
    std::vector<Tensor> sources;
    std::function<std::vector<Tensor>(const Tensor& gradient)> rule;
  };
  void SetDerivative(const Tensor& value, Derivative derivative);
  const Derivative* FindDerivative(uint32_t id) const;  // of a node; null if it has none

 private:
  UOp StoreInto(const Tensor& target, const Tensor& value);  // the slot's param
  Tensor AddSlot(DType dtype, const Shape& shape, std::string_view name, SlotRole role, Init init);

  Graph graph_;
  std::vector<Slot> slots_;
  std::unordered_set<std::string> slot_names_;
  std::vector<PlanVariable> variables_;
  std::vector<UOp> stores_;
  std::vector<Tensor> current_;  // by slot: after the last store to it; invalid before the first
  std::map<int64_t, size_t> updates_;  // by slot: which of the stores is its Update
  std::vector<Tensor> trainable_;
  std::map<uint32_t, Derivative> derivatives_;
};

}  // namespace telegrad
