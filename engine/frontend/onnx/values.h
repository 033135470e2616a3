// The values of a model while it is imported: initializers, inputs and results of nodes.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dims.h"

namespace telegrad::onnx {

// A list or a scalar of integers or bools, some of which only the run knows.
struct SizeList {
  DType dtype = DType::kInt64;
  bool scalar = false;  // shape [] rather than [n]
  std::vector<Dim> values;

  bool is_static() const {
    return std::ranges::all_of(values, [](const Dim& dim) { return dim.is_static(); });
  }
};

// What becomes of a size that depends on values: see NodeContext::RunSize.
enum class RunSizes : uint8_t {
  kBounded,   // storage for its bound, and a scalar of the graph that says how much of it is used
  kAtImport,  // it is computed at import, and the values that it depends on become guards
};

// What a name stands for. A tensor is one of the graph, or known on the host (an initializer, a
// constant, what was computed of such), or both. A known tensor becomes a weight of the plan when a
// node first needs it as a tensor of the graph; until then it costs nothing, and one that only
// tells a shape never reaches the plan. One element becomes a CONST instead, so that it folds into
// the kernels. A weight's content stays in the file where that has it as raw bytes. Strings, the
// lengths of sequences and whether an optional has a value are always known; an optional that has a
// value is that value.
struct Value {
  enum class Kind : uint8_t {
    kTensor,
    kStrings,
    kSequence,
    kNothing,      // an optional without a value
    kUnsupported,  // the result of a node that could not be imported
  };
  Kind kind = Kind::kTensor;
  Tensor tensor = {};
  const TensorProto* proto = nullptr;                 // the file's, or
  std::shared_ptr<const HostTensor> known = nullptr;  // what was read of it, or computed
  std::shared_ptr<const StringTensor> strings = nullptr;
  // Of a list or scalar that holds sizes of the run, beside the tensor.
  std::shared_ptr<const SizeList> sizes = nullptr;
  std::vector<std::shared_ptr<Value>> elements = {};  // of a sequence
  // Of an empty sequence, and of an optional without a value, if that is said.
  DType element_type = DType::kVoid;
  std::string_view name = {};  // the first one
};
using ValueRef = std::shared_ptr<Value>;

std::string_view Name(Value::Kind kind);

// How far the importer may go to have a tensor's content on the host.
enum class Effort : uint8_t {
  kKnown,      // only if it is there already
  kConstants,  // computed, if it depends on no input
  kInputs,     // computed, also of inputs whose values the caller has given: those become guards
};

class Values {
 public:
  Values(Builder* builder, Budget* budget, RunSizes run_sizes)
      : builder_(builder), budget_(budget), held_(budget), run_sizes_(run_sizes) {}

  // Names in a scope hide those of the scopes around it, which a function's body does not see.
  void Enter(bool sees_outer) { scopes_.push_back({.sees_outer = sees_outer}); }
  void Leave() { scopes_.pop_back(); }

  // INVALID_ARGUMENT if the scope has the name already, or it is empty, too long or not UTF-8.
  absl::Status Define(std::string_view name, ValueRef value);
  bool Has(std::string_view name) const { return Look(name) != nullptr; }
  absl::StatusOr<ValueRef> Get(std::string_view name) const;

  // A TensorProto is read when first used and must outlive this; the same one is the same value.
  absl::StatusOr<ValueRef> FromProto(const TensorProto* proto);
  absl::StatusOr<ValueRef> FromKnown(HostTensor value);
  absl::StatusOr<ValueRef> FromStrings(StringTensor value);
  static ValueRef FromTensor(const Tensor& tensor);

  absl::StatusOr<ValueRef> FromSizes(SizeList sizes);

  // The clamped scalar as a size. UNIMPLEMENTED where sizes are found at import.
  absl::StatusOr<Dim> RunSize(const Tensor& value, int64_t bound);
  // Whether something asked for one, or would have.
  bool asked_run_sizes() const { return asked_run_sizes_; }
  void AskRunSize() { asked_run_sizes_ = true; }
  RunSizes run_sizes() const { return run_sizes_; }

  // Errors if it is no tensor.
  absl::StatusOr<Tensor> ToTensor(Value* value);
  // Null if that takes more effort or more than the interpreter should do, or the content has more
  // than `most_bytes`.
  absl::StatusOr<const HostTensor*> ToHost(Value* value, Effort effort,
                                           int64_t most_bytes = INT64_MAX);
  // Several at once, so that what they share is computed once. False if one takes more effort.
  absl::StatusOr<bool> AllToHost(const std::vector<Value*>& values, Effort effort);
  // Names of the inputs without a given value that a tensor depends on.
  std::string Unknown(const Value& value);
  // Whether there were ever any.
  bool missed_inputs() const { return missed_inputs_; }

  // The content of an input of the plan, which must outlive this.
  void GiveInput(int slot, const HostTensor* content) { given_[slot] = content; }
  // The slots whose given contents were used.
  const std::set<int>& guards() const { return guards_; }

  // A name for a slot that is not taken yet: "y", else "y.out", "y.out2" and so on.
  std::string SlotName(std::string_view name, std::string_view suffix = ".out");

  std::vector<OnnxWeight> TakeWeights() { return std::move(weights_); }
  Builder* builder() const { return builder_; }
  Budget* budget() const { return budget_; }

 private:
  struct Scope {
    bool sees_outer = true;
    std::map<std::string_view, ValueRef> names = {};
  };

  const ValueRef* Look(std::string_view name) const;
  absl::Status Keep(HostTensor value, Value* out);
  absl::Status Read(Value* value);
  absl::StatusOr<Tensor> Materialize(Value* value);
  std::vector<UOp> ParamsOf(const std::vector<UOp>& roots, int64_t* elements) const;
  const std::string_view* WeightBytes(int slot) const;
  absl::StatusOr<bool> Compute(const std::vector<Value*>& values, Effort effort);

  Builder* builder_;
  Budget* budget_;
  Budget::Held held_;
  std::vector<Scope> scopes_ = std::vector<Scope>(1);
  absl::flat_hash_map<const TensorProto*, ValueRef> protos_;
  std::vector<OnnxWeight> weights_;
  absl::flat_hash_map<int, size_t> weight_of_slot_;
  std::map<int, const HostTensor*> given_;
  std::set<int> guards_;
  bool missed_inputs_ = false;
  RunSizes run_sizes_;
  bool asked_run_sizes_ = false;
  std::map<std::string, int64_t> slot_names_;  // each with how many slots were named after it
  size_t slots_named_ = 0;                     // that are in there
};

// One element as a CONST of shape [].
Tensor ConstantOf(Builder& builder, const HostTensor& value);

}  // namespace telegrad::onnx
