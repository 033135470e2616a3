// Control flow. A condition and a number of rounds are found at import where they can be: then the
// branch taken, or the rounds one after the other, become part of the graph, and carried values may
// change their shapes. A condition that only a run decides selects between both branches' results.
#include <algorithm>
#include <limits>

#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/onnx/step_rows.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxRounds = 65536;  // of one Loop or Scan

std::string WhatDecides(NodeContext& c, const Value& value) {
  const std::string names = c.values().Unknown(value);
  if (names.empty()) return "is too costly to compute at import";
  return StrCat("depends on ", names, ", only known when the model runs: give values of inputs at ",
                "import");
}

// One element as a bool; nothing if that takes more effort.
absl::StatusOr<std::optional<bool>> Truth(NodeContext& c, Value* value, Effort effort) {
  TG_ASSIGN_OR_RETURN(const HostTensor* known, c.values().ToHost(value, effort));
  if (known == nullptr) return std::nullopt;
  if (!IsBool(known->dtype) || known->bytes.size() != 1) {
    return InvalidArgument("the condition is ", Name(known->dtype), " ", ToString(known->shape),
                           ", expected one bool");
  }
  return known->bytes[0] != 0;
}

absl::Status OutputAll(NodeContext& c, const std::vector<ValueRef>& results) {
  if (results.size() < c.node().outputs.size()) {
    return InvalidArgument("its graph has ", results.size(), " results, the node ",
                           c.node().outputs.size());
  }
  for (const ValueRef& result : results) TG_RETURN_IF_ERROR(c.OutputValue(result));
  return absl::OkStatus();
}

absl::StatusOr<ValueRef> Select(NodeContext& c, const Tensor& condition, const ValueRef& yes,
                                const ValueRef& no) {
  if (yes->kind != Value::Kind::kTensor || no->kind != Value::Kind::kTensor) {
    return Unimplemented("its results are no tensors and the condition is only known when the ",
                         "model runs");
  }
  TG_ASSIGN_OR_RETURN(const Tensor a, c.values().ToTensor(yes.get()));
  TG_ASSIGN_OR_RETURN(const Tensor b, c.values().ToTensor(no.get()));
  if (a.dtype() != b.dtype() || a.rank() != b.rank()) {
    return Unimplemented("its branches give ", Name(a.dtype()), " ", ToString(a.dims()), " and ",
                         Name(b.dtype()), " ", ToString(b.dims()),
                         ", and the condition is only known when the model runs");
  }
  if (a.dims() == b.dims()) return Values::FromTensor(condition.Where(a, b));
  // Storage for the larger of either; the sizes are those of the branch that is taken.
  Builder& builder = c.builder();
  Dims sizes, words;
  for (int64_t i = 0; i < a.rank(); ++i) {
    const Dim x = a.dims()[i], y = b.dims()[i];
    const int64_t bound = std::max(x.size(), y.size());
    Dim size = x;
    if (x != y) {
      const Tensor taken = condition.Where(AsTensor(&builder, x), AsTensor(&builder, y));
      TG_ASSIGN_OR_RETURN(size, c.RunSize(taken, bound));
    }
    sizes.push_back(size);
    words.insert(words.end(), {Dim(0), Dim(bound)});
  }
  const auto padded = [&](const Tensor& t) {
    return builder.MakeSized(Op::kPad, DType::kVoid, {t}, words);
  };
  Tensor out = condition.Where(padded(a), padded(b));
  for (int64_t i = 0; i < a.rank(); ++i) out = out.Narrow(i, 0, sizes[i]);
  return Values::FromTensor(out);
}

// A tensor of `rows` rounds' results along a new axis; of none, by what the graph declares.
absl::StatusOr<ValueRef> StackRounds(NodeContext& c, const std::vector<ValueRef>& rows,
                                     const ValueInfo& declared, int64_t axis) {
  std::vector<Tensor> parts;
  for (const ValueRef& row : rows) {
    TG_ASSIGN_OR_RETURN(const Tensor part, c.values().ToTensor(row.get()));
    parts.push_back(part);
  }
  if (!parts.empty()) return Values::FromTensor(StackSteps(parts, axis));
  const auto dtype = DTypeFromOnnx(static_cast<int>(declared.elem_type));
  if (!dtype) return Unimplemented("no round gives '", declared.name, "' a type");
  Shape shape;
  for (const Dimension& dim : declared.shape) shape.push_back(std::max<int64_t>(dim.value, 0));
  const auto rank = static_cast<int64_t>(shape.size());
  shape.insert(shape.begin() + std::clamp<int64_t>(axis < 0 ? axis + rank + 1 : axis, 0, rank), 0);
  return Values::FromTensor(c.builder().Zeros(shape, *dtype));
}

// The rounds of a Loop node.
class Rounds {
 public:
  Rounds(NodeContext& c, const GraphProto& body, std::vector<ValueRef> carried)
      : c_(c), body_(body), carried_(std::move(carried)), rows_(body.outputs.size()) {}

  // One more; `condition` is what it goes on with.
  absl::Status Run(int64_t round, ValueRef* condition) {
    if (round == kMaxRounds) {
      return ResourceExhausted("the loop has more than ", kMaxRounds, " rounds");
    }
    std::vector<ValueRef> inputs;
    for (HostTensor fixed : {HostTensor::Of<int64_t>({}, {round}),
                             HostTensor{DType::kBool, {}, std::string(1, '\1')}}) {
      TG_ASSIGN_OR_RETURN(inputs.emplace_back(), c_.values().FromKnown(std::move(fixed)));
    }
    inputs.insert(inputs.end(), carried_.begin(), carried_.end());
    TG_ASSIGN_OR_RETURN(std::vector<ValueRef> results, c_.ImportGraph(body_, inputs));
    if (results.size() < 1 + carried_.size()) {
      return InvalidArgument("its graph has ", results.size(), " results, expected at least ",
                             1 + carried_.size());
    }
    *condition = results[0];
    for (size_t i = 0; i < carried_.size(); ++i) carried_[i] = results[1 + i];
    for (size_t i = 1 + carried_.size(); i < results.size(); ++i) rows_[i].push_back(results[i]);
    return absl::OkStatus();
  }

  // What a condition that depends on inputs is found with: all carried values, so that no round
  // computes those before it again.
  std::vector<Value*> Carried() const {
    std::vector<Value*> out;
    for (const ValueRef& value : carried_) out.push_back(value.get());
    return out;
  }

  absl::StatusOr<std::vector<ValueRef>> Results() const {
    std::vector<ValueRef> out = carried_;
    for (size_t i = 1 + carried_.size(); i < body_.outputs.size(); ++i) {
      TG_ASSIGN_OR_RETURN(out.emplace_back(), StackRounds(c_, rows_[i], body_.outputs[i], 0));
    }
    return out;
  }

 private:
  NodeContext& c_;
  const GraphProto& body_;
  std::vector<ValueRef> carried_;
  std::vector<std::vector<ValueRef>> rows_;  // by result of the graph
};

// How a Scan goes over one of its inputs or results.
struct ScanAxis {
  int64_t axis = 0;
  bool backward = false;
};

absl::StatusOr<std::vector<ScanAxis>> ScanAxes(NodeContext& c, std::string_view axes,
                                               std::string_view directions, size_t count) {
  const std::vector<int64_t> zeros(count, 0);
  TG_ASSIGN_OR_RETURN(const auto at, axes.empty() ? zeros : c.Ints(axes, zeros));
  TG_ASSIGN_OR_RETURN(const auto way, directions.empty() ? zeros : c.Ints(directions, zeros));
  if (at.size() != count || way.size() != count) {
    return InvalidArgument("'", axes, "' and '", directions, "' have ", at.size(), " and ",
                           way.size(), " numbers, expected ", count);
  }
  std::vector<ScanAxis> out;
  for (size_t i = 0; i < count; ++i) out.push_back({at[i], way[i] != 0});
  return out;
}

struct ScanParts {
  std::vector<ValueRef> states;
  std::vector<Tensor> inputs;
  std::vector<ScanAxis> input_axes, output_axes;
};

// States and stacked results.
absl::StatusOr<std::vector<ValueRef>> RunScan(NodeContext& c, const GraphProto& body,
                                              ScanParts parts, int64_t rounds) {
  const size_t n = parts.states.size();
  std::vector<std::vector<ValueRef>> rows(body.outputs.size());
  std::vector<StepRows> slices;
  for (size_t i = 0; i < parts.inputs.size(); ++i) {
    slices.emplace_back(parts.inputs[i], parts.input_axes[i].axis);
  }
  for (int64_t round = 0; round < rounds; ++round) {
    std::vector<ValueRef> inputs = parts.states;
    for (size_t i = 0; i < slices.size(); ++i) {
      const int64_t at = parts.input_axes[i].backward ? rounds - 1 - round : round;
      inputs.push_back(Values::FromTensor(slices[i].At(at)));
    }
    TG_RETURN_IF_ERROR(c.builder().status());
    TG_ASSIGN_OR_RETURN(const std::vector<ValueRef> results, c.ImportGraph(body, inputs));
    for (size_t i = 0; i < results.size(); ++i) {
      if (i < n) parts.states[i] = results[i];
      if (i >= n) rows[i].push_back(results[i]);
    }
  }
  std::vector<ValueRef> out = parts.states;
  for (size_t i = n; i < body.outputs.size(); ++i) {
    const auto [axis, backward] = parts.output_axes[i - n];
    if (backward) std::ranges::reverse(rows[i]);
    TG_ASSIGN_OR_RETURN(out.emplace_back(), StackRounds(c, rows[i], body.outputs[i], axis));
  }
  return out;
}

absl::StatusOr<int64_t> ScanRounds(const ScanParts& parts) {
  int64_t rounds = -1;
  for (size_t i = 0; i < parts.inputs.size(); ++i) {
    const Tensor& x = parts.inputs[i];
    TG_ASSIGN_OR_RETURN(const int64_t axis,
                        ResolveAxis("scan", parts.input_axes[i].axis, x.rank()));
    if (rounds >= 0 && x.dim(axis) != rounds) {
      return InvalidArgument("its inputs have ", rounds, " and ", x.dim(axis), " slices");
    }
    rounds = x.dim(axis);
  }
  if (rounds <= kMaxRounds) return rounds;
  return ResourceExhausted("the scan has ", rounds, " rounds; the limit is ", kMaxRounds);
}

// Before opset 9 axis 0 of everything is a batch, each with a length of its own, and what lies
// behind it in the results is 0.
absl::Status BatchedScan(NodeContext& c, const GraphProto& body, size_t num_inputs,
                         std::vector<ScanAxis> input_axes) {
  std::vector<Tensor> given;
  for (int i = 1; i < c.num_inputs(); ++i) {
    TG_ASSIGN_OR_RETURN(given.emplace_back(), c.Input(i));
    if (given.back().rank() < 1) return InvalidArgument("input ", i, " has no batch axis");
  }
  const size_t states = given.size() - num_inputs;
  const int64_t batch = given[0].dim(0);
  std::vector<int64_t> lengths;
  if (c.HasInput(0)) {
    TG_ASSIGN_OR_RETURN(lengths, c.Numbers(0));
    if (static_cast<int64_t>(lengths.size()) != batch) {
      return InvalidArgument("has ", lengths.size(), " lengths, the batch is ", batch);
    }
  }
  std::vector<std::vector<Tensor>> results(body.outputs.size());
  for (int64_t b = 0; b < batch; ++b) {
    ScanParts parts{{}, {}, input_axes, std::vector<ScanAxis>(body.outputs.size())};
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i].dim(0) != batch) return InvalidArgument("input ", i + 1, " has another batch");
      const Tensor part = given[i].Slice(0, b, b + 1).Squeeze(0);
      if (i < states) parts.states.push_back(Values::FromTensor(part));
      if (i >= states) parts.inputs.push_back(part);
    }
    TG_RETURN_IF_ERROR(c.builder().status());
    TG_ASSIGN_OR_RETURN(const int64_t most, ScanRounds(parts));
    const int64_t rounds = lengths.empty() ? most : lengths[b];
    if (rounds < 0 || rounds > most) return InvalidArgument("a length of ", rounds);
    // A backward input is read backward from its own end.
    for (Tensor& x : parts.inputs) x = x.Slice(0, 0, rounds);
    TG_ASSIGN_OR_RETURN(const auto out, RunScan(c, body, std::move(parts), rounds));
    for (size_t i = 0; i < out.size(); ++i) {
      TG_ASSIGN_OR_RETURN(Tensor part, c.values().ToTensor(out[i].get()));
      if (i >= states && rounds < most) {
        Shape padded = ToShape(part.shape());
        padded[0] = most;
        part = part.PadTo(padded);
      }
      results[i].push_back(part);
    }
  }
  for (const std::vector<Tensor>& parts : results) {
    if (parts.empty()) return InvalidArgument("the batch is empty");
    TG_RETURN_IF_ERROR(c.Output(Stack(parts)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status IfOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const GraphProto* then_branch, c.Body("then_branch"));
  TG_ASSIGN_OR_RETURN(const GraphProto* else_branch, c.Body("else_branch"));
  TG_ASSIGN_OR_RETURN(const ValueRef condition, c.Get(0));
  TG_ASSIGN_OR_RETURN(const auto truth, Truth(c, condition.get(), Effort::kInputs));
  if (truth) {
    TG_ASSIGN_OR_RETURN(const auto out, c.ImportGraph(*truth ? *then_branch : *else_branch, {}));
    return OutputAll(c, out);
  }
  TG_ASSIGN_OR_RETURN(const auto yes, c.ImportGraph(*then_branch, {}));
  TG_ASSIGN_OR_RETURN(const auto no, c.ImportGraph(*else_branch, {}));
  TG_ASSIGN_OR_RETURN(const Tensor decides, c.Input(0));
  if (!IsBool(decides.dtype()) || decides.size() != 1) {
    return InvalidArgument("the condition is not one bool");
  }
  if (yes.size() != no.size()) return InvalidArgument("its branches have different results");
  std::vector<ValueRef> out;
  for (size_t i = 0; i < yes.size(); ++i) {
    TG_ASSIGN_OR_RETURN(out.emplace_back(), Select(c, decides.Reshape(Shape{}), yes[i], no[i]));
  }
  TG_RETURN_IF_ERROR(c.builder().status());
  return OutputAll(c, out);
}

absl::Status LoopOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const GraphProto* body, c.Body("body"));
  int64_t most = std::numeric_limits<int64_t>::max();
  if (c.HasInput(0)) {
    TG_ASSIGN_OR_RETURN(const std::vector<int64_t> trips, c.Numbers(0));
    if (trips.size() != 1) return InvalidArgument("the number of rounds is not one number");
    most = trips[0];
  }
  std::vector<ValueRef> carried;
  for (int i = 2; i < c.num_inputs(); ++i) {
    TG_ASSIGN_OR_RETURN(carried.emplace_back(), c.Get(i));
  }
  ValueRef condition;
  if (c.HasInput(1)) {
    TG_ASSIGN_OR_RETURN(condition, c.Get(1));
  }
  Rounds rounds(c, *body, std::move(carried));
  for (int64_t round = 0; round < most; ++round) {
    if (condition != nullptr) {
      TG_ASSIGN_OR_RETURN(auto goes_on, Truth(c, condition.get(), Effort::kConstants));
      if (!goes_on) {
        std::vector<Value*> needed = rounds.Carried();
        needed.push_back(condition.get());
        TG_RETURN_IF_ERROR(c.values().AllToHost(needed, Effort::kInputs).status());
        TG_ASSIGN_OR_RETURN(goes_on, Truth(c, condition.get(), Effort::kKnown));
      }
      if (!goes_on) {
        return Unimplemented("the condition of round ", round, " ", WhatDecides(c, *condition));
      }
      if (!*goes_on) break;
    }
    ValueRef next;
    TG_RETURN_IF_ERROR(rounds.Run(round, &next));
    // Without a condition at the beginning, that of the graph counts all the same.
    condition = next;
  }
  TG_ASSIGN_OR_RETURN(const auto out, rounds.Results());
  TG_RETURN_IF_ERROR(c.builder().status());
  return OutputAll(c, out);
}

absl::Status ScanOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const GraphProto* body, c.Body("body"));
  TG_ASSIGN_OR_RETURN(const Attribute* number, c.Required("num_scan_inputs", AttributeType::kInt));
  const bool batched = c.opset() < 9;
  const int all = c.num_inputs() - (batched ? 1 : 0);
  if (number->i < 1 || number->i > all) {
    return InvalidArgument("'num_scan_inputs' is ", number->i, " of ", all, " inputs");
  }
  const auto inputs = static_cast<size_t>(number->i);
  const size_t states = static_cast<size_t>(all) - inputs;
  if (body->outputs.size() < states) return InvalidArgument("its graph has too few results");
  const size_t outputs = body->outputs.size() - states;
  if (batched) {
    TG_ASSIGN_OR_RETURN(auto axes, ScanAxes(c, "", "directions", inputs));
    return BatchedScan(c, *body, inputs, std::move(axes));
  }
  ScanParts parts;
  TG_ASSIGN_OR_RETURN(parts.input_axes,
                      ScanAxes(c, "scan_input_axes", "scan_input_directions", inputs));
  TG_ASSIGN_OR_RETURN(parts.output_axes,
                      ScanAxes(c, "scan_output_axes", "scan_output_directions", outputs));
  for (int i = 0; i < all; ++i) {
    TG_ASSIGN_OR_RETURN(const ValueRef value, c.Get(i));
    if (static_cast<size_t>(i) < states) {
      parts.states.push_back(value);
      continue;
    }
    TG_ASSIGN_OR_RETURN(parts.inputs.emplace_back(), c.values().ToTensor(value.get()));
  }
  TG_ASSIGN_OR_RETURN(const int64_t rounds, ScanRounds(parts));
  TG_ASSIGN_OR_RETURN(const auto out, RunScan(c, *body, std::move(parts), rounds));
  TG_RETURN_IF_ERROR(c.builder().status());
  return OutputAll(c, out);
}

// The graph for each element; tensors are the same for all of them, other sequences have one each.
absl::Status SequenceMapOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const GraphProto* body, c.Body("body"));
  std::vector<ValueRef> given;
  for (int i = 0; i < c.num_inputs(); ++i) {
    TG_ASSIGN_OR_RETURN(given.emplace_back(), c.Get(i));
  }
  if (given[0]->kind != Value::Kind::kSequence) {
    return InvalidArgument("input 0 is ", Name(given[0]->kind), ", expected a sequence");
  }
  std::vector<ValueRef> out;
  for (size_t i = 0; i < body->outputs.size(); ++i) {
    out.push_back(std::make_shared<Value>(Value{.kind = Value::Kind::kSequence}));
    const auto dtype = DTypeFromOnnx(static_cast<int>(body->outputs[i].elem_type));
    if (dtype) out.back()->element_type = *dtype;
  }
  for (size_t at = 0; at < given[0]->elements.size(); ++at) {
    std::vector<ValueRef> inputs;
    for (const ValueRef& value : given) {
      const bool sequence = value->kind == Value::Kind::kSequence;
      if (sequence && value->elements.size() != given[0]->elements.size()) {
        return InvalidArgument("its sequences have ", given[0]->elements.size(), " and ",
                               value->elements.size(), " elements");
      }
      inputs.push_back(sequence ? value->elements[at] : value);
    }
    TG_ASSIGN_OR_RETURN(const auto results, c.ImportGraph(*body, inputs));
    for (size_t i = 0; i < out.size(); ++i) {
      if (results[i]->kind == Value::Kind::kSequence) {
        return Unimplemented("a sequence of sequences is not supported");
      }
      out[i]->elements.push_back(results[i]);
    }
  }
  return OutputAll(c, out);
}

}  // namespace telegrad::onnx
