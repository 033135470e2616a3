// A tensor's content is computed on the host, when a shape or a choice depends on it, by the
// reference interpreter on that part of the graph that leads to it. So everything that a node can
// do is folded where it must be, and nothing where it need not.
#include "engine/frontend/onnx/values.h"

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/frontend/tensor/shapes.h"
#include "engine/ir/scalar.h"
#include "engine/reference/tensor_eval.h"

namespace telegrad::onnx {
namespace {

constexpr size_t kMaxNameBytes = 4096;
constexpr int64_t kMaxComputed = int64_t{1} << 25;  // elements that the interpreter makes at once
constexpr int64_t kCutElements = 4096;  // what was computed on the host is not computed again

}  // namespace

std::string_view Name(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::kTensor:
      return "a tensor";
    case Value::Kind::kStrings:
      return "a tensor of strings";
    case Value::Kind::kSequence:
      return "a sequence";
    case Value::Kind::kNothing:
      return "an optional without a value";
    case Value::Kind::kUnsupported:
      break;
  }
  return "a result that is not supported";
}

absl::Status Values::Define(std::string_view name, ValueRef value) {
  if (name.empty()) return InvalidArgument("a value has no name");
  if (name.size() > kMaxNameBytes) {
    return ResourceExhausted("the name of a value has ", name.size(), " bytes; the limit is ",
                             kMaxNameBytes);
  }
  if (!IsUtf8(name)) return InvalidArgument("the name of a value is not UTF-8");
  if (value->name.empty()) value->name = name;
  if (scopes_.back().names.emplace(name, std::move(value)).second) return absl::OkStatus();
  return InvalidArgument("the value '", name, "' is defined twice");
}

const ValueRef* Values::Look(std::string_view name) const {
  for (size_t i = scopes_.size(); i-- > 0;) {
    const auto it = scopes_[i].names.find(name);
    if (it != scopes_[i].names.end()) return &it->second;
    if (!scopes_[i].sees_outer) break;
  }
  return nullptr;
}

absl::StatusOr<ValueRef> Values::Get(std::string_view name) const {
  if (const ValueRef* found = Look(name)) return *found;
  return InvalidArgument("'", name,
                         "' is not an input, an initializer or a result of a node before it");
}

absl::Status Values::Keep(HostTensor value, Value* out) {
  TG_RETURN_IF_ERROR(held_.Grow(static_cast<int64_t>(value.bytes.size())));
  out->known = std::make_shared<const HostTensor>(std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<ValueRef> Values::FromProto(const TensorProto* proto) {
  ValueRef& value = protos_[proto];
  if (value != nullptr) return value;
  if (proto->data_type == kStringType) {
    TG_ASSIGN_OR_RETURN(StringTensor strings, ToStrings(*proto));
    TG_ASSIGN_OR_RETURN(value, FromStrings(std::move(strings)));
  } else {
    value = std::make_shared<Value>(Value{.proto = proto});
  }
  return value;
}

absl::StatusOr<ValueRef> Values::FromKnown(HostTensor value) {
  auto out = std::make_shared<Value>();
  TG_RETURN_IF_ERROR(Keep(std::move(value), out.get()));
  return out;
}

absl::StatusOr<ValueRef> Values::FromStrings(StringTensor value) {
  int64_t bytes = 0;
  for (const std::string& s : value.values) bytes += static_cast<int64_t>(s.size() + sizeof s);
  TG_RETURN_IF_ERROR(held_.Grow(bytes));
  auto out = std::make_shared<Value>(Value{.kind = Value::Kind::kStrings});
  out->strings = std::make_shared<const StringTensor>(std::move(value));
  return out;
}

absl::StatusOr<ValueRef> Values::FromSizes(SizeList sizes) {
  std::vector<Tensor> parts;
  for (const Dim& size : sizes.values) {
    const Tensor part = AsTensor(builder_, size).Cast(sizes.dtype);
    parts.push_back(sizes.scalar ? part : part.Reshape({1}));
  }
  const Tensor all = sizes.scalar ? parts[0] : Concat(parts, 0);
  TG_RETURN_IF_ERROR(builder_->status());
  const ValueRef out = FromTensor(all);
  out->sizes = std::make_shared<const SizeList>(std::move(sizes));
  return out;
}

absl::StatusOr<Dim> Values::RunSize(const Tensor& value, int64_t bound) {
  asked_run_sizes_ = true;
  if (run_sizes_ == RunSizes::kAtImport) {
    return Unimplemented("a size that each run decides is not supported here");
  }
  const int64_t arg[] = {0, 0, bound, 1};
  const Tensor size = builder_->Make(Op::kVar, DType::kVoid, {value.Cast(DType::kInt64)}, arg);
  TG_RETURN_IF_ERROR(builder_->status());
  return Dim(size);
}

ValueRef Values::FromTensor(const Tensor& tensor) {
  return std::make_shared<Value>(Value{.tensor = tensor});
}

// The proto into memory of its own.
absl::Status Values::Read(Value* value) {
  if (value->proto == nullptr || value->known != nullptr) return absl::OkStatus();
  // An element of a list takes a byte there and eight here, at most.
  Budget::Held reading(budget_);
  const size_t most =
      value->proto->has_raw ? value->proto->raw.size() : 8 * value->proto->message.size();
  TG_RETURN_IF_ERROR(reading.Grow(static_cast<int64_t>(most)));
  TG_ASSIGN_OR_RETURN(HostTensor read, ToHostTensor(*value->proto));
  return Keep(std::move(read), value);
}

absl::StatusOr<Tensor> Values::ToTensor(Value* value) {
  if (value->kind != Value::Kind::kTensor) {
    return InvalidArgument("'", value->name, "' is ", Name(value->kind), ", expected a tensor");
  }
  if (!value->tensor.valid()) {
    TG_ASSIGN_OR_RETURN(value->tensor, Materialize(value));
  }
  return value->tensor;
}

absl::StatusOr<Tensor> Values::Materialize(Value* value) {
  const TensorProto* proto = value->proto;
  OnnxWeight weight{.slot = static_cast<int>(builder_->slots().size()), .bytes = {}};
  DType dtype;
  Shape shape;
  // Nobody has checked a proto's dims yet, so they are not multiplied.
  const auto is_one = [](int64_t dim) { return dim == 1; };
  if (proto != nullptr && proto->has_raw && !std::ranges::all_of(proto->dims, is_one)) {
    TG_RETURN_IF_ERROR(CheckRaw(*proto));
    TG_ASSIGN_OR_RETURN(dtype, ElementType(*proto));
    shape = proto->dims;
    weight.bytes = proto->raw;
  } else {
    TG_RETURN_IF_ERROR(Read(value));
    dtype = value->known->dtype;
    shape = value->known->shape;
    weight.bytes = value->known->bytes;
    weight.value = value->known;
  }
  Tensor out;
  if (NumElements(shape) == 1) {
    out = ConstantOf(*builder_, *value->known).Expand(shape);
    TG_RETURN_IF_ERROR(builder_->status());
    return out;
  }
  const std::string name = SlotName(value->name.empty() ? "constant" : value->name, ".w");
  out = builder_->Param(dtype, shape, name, SlotRole::kState);
  TG_RETURN_IF_ERROR(builder_->status());
  weight_of_slot_[weight.slot] = weights_.size();
  weights_.push_back(std::move(weight));
  return out;
}

std::string Values::SlotName(std::string_view name, std::string_view suffix) {
  for (; slots_named_ < builder_->slots().size(); ++slots_named_) {
    slot_names_.emplace(builder_->slots()[slots_named_].name, 0);
  }
  std::string out(name);
  while (!slot_names_.emplace(out, 0).second) {
    const int64_t n = ++slot_names_[std::string(name)];
    out = StrCat(name, suffix, n == 1 ? "" : StrCat(n));
  }
  return out;
}

// The PARAMs that a computation of `roots` reads, and how many elements it makes: too many where
// sizes are those of the run.
std::vector<UOp> Values::ParamsOf(const std::vector<UOp>& roots, int64_t* elements) const {
  std::vector<UOp> stack = roots, out;
  *elements = 0;
  absl::flat_hash_set<uint32_t> seen;
  for (const UOp root : roots) seen.insert(root.id());
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (u.is(Op::kParam)) out.push_back(u);
    if (u.symbolic() || u.is(Op::kVar)) *elements = kMaxComputed + 1;
    // A node has at most kMaxElements, a graph kMaxNodes: the sum is cut off long before.
    if (*elements <= kMaxComputed) *elements += NumElements(u.shape());
    for (int i = 0; i < u.num_src(); ++i) {
      if (seen.insert(u.src(i).id()).second) stack.push_back(u.src(i));
    }
  }
  return out;
}

const std::string_view* Values::WeightBytes(int slot) const {
  const auto it = weight_of_slot_.find(slot);
  return it == weight_of_slot_.end() ? nullptr : &weights_[it->second].bytes;
}

std::string Values::Unknown(const Value& value) {
  std::string out;
  if (!value.tensor.valid()) return out;
  int64_t elements = 0;
  for (const UOp param : ParamsOf({value.tensor.uop()}, &elements)) {
    const int slot = static_cast<int>(param.slot());
    if (WeightBytes(slot) != nullptr || given_.contains(slot)) continue;
    StrAppend(&out, out.empty() ? "'" : "', '", builder_->slots()[slot].name);
  }
  if (out.empty()) return out;
  missed_inputs_ = true;
  return out + "'";
}

absl::StatusOr<const HostTensor*> Values::ToHost(Value* value, Effort effort, int64_t most_bytes) {
  if (value->kind != Value::Kind::kTensor) {
    return InvalidArgument("'", value->name, "' is ", Name(value->kind), ", expected a tensor");
  }
  if (value->proto != nullptr && value->known == nullptr) {
    TG_ASSIGN_OR_RETURN(const DType dtype, ElementType(*value->proto));
    TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(dtype, value->proto->dims));
    if (bytes > most_bytes) return nullptr;
    TG_RETURN_IF_ERROR(Read(value));
  }
  if (value->known == nullptr && effort != Effort::kKnown) {
    if (BytesOf(value->tensor.dtype(), value->tensor.size()) > most_bytes) return nullptr;
    TG_RETURN_IF_ERROR(Compute({value}, effort).status());
  }
  const HostTensor* known = value->known.get();
  if (known == nullptr || static_cast<int64_t>(known->bytes.size()) > most_bytes) return nullptr;
  return known;
}

absl::StatusOr<bool> Values::AllToHost(const std::vector<Value*>& values, Effort effort) {
  std::vector<Value*> unknown;
  for (Value* value : values) {
    if (value->kind != Value::Kind::kTensor) continue;
    TG_RETURN_IF_ERROR(Read(value));
    if (value->known == nullptr) unknown.push_back(value);
  }
  if (unknown.empty()) return true;
  if (effort == Effort::kKnown) return false;
  return Compute(unknown, effort);
}

// What leads to the values is copied into a graph of its own, which stores each in a slot behind
// those that there are.
absl::StatusOr<bool> Values::Compute(const std::vector<Value*>& values, Effort effort) {
  std::vector<UOp> roots;
  for (const Value* value : values) roots.push_back(value->tensor.uop());
  const size_t first = builder_->slots().size();
  std::vector<std::vector<uint8_t>> slots(first + values.size());
  std::vector<int> used;
  int64_t elements = 0;
  const std::vector<UOp> params = ParamsOf(roots, &elements);
  TG_RETURN_IF_ERROR(budget_->CheckTime());
  if (elements > kMaxComputed) return false;
  Budget::Held copies(budget_);
  for (const UOp param : params) {
    const int slot = static_cast<int>(param.slot());
    const auto given = given_.find(slot);
    const std::string_view* weight = WeightBytes(slot);
    if (weight == nullptr && (effort != Effort::kInputs || given == given_.end())) return false;
    const std::string_view bytes = weight != nullptr ? *weight : given->second->bytes;
    if (weight == nullptr) used.push_back(slot);
    TG_RETURN_IF_ERROR(copies.Grow(static_cast<int64_t>(bytes.size())));
    slots[slot].assign(bytes.begin(), bytes.end());
  }
  Graph graph;
  std::vector<UOp> stores;
  for (size_t i = 0; i < roots.size(); ++i) {
    const UOp root = CopyLive(roots[i], &graph);
    const Shape shape = ToShape(root.shape());
    const UOp param = graph.Param(static_cast<int64_t>(first + i), root.dtype(), shape);
    stores.push_back(graph.Make(Op::kStore, DType::kVoid, {param, root}));
    const int64_t bytes = BytesOf(root.dtype(), NumElements(shape));
    TG_RETURN_IF_ERROR(copies.Grow(2 * bytes));  // the slot, and the value that is made of it
    slots[first + i].resize(static_cast<size_t>(bytes));
  }
  const UOp sink = graph.Make(Op::kSink, DType::kVoid, stores);
  TG_RETURN_IF_ERROR(graph.status());
  TG_RETURN_IF_ERROR(reference::Evaluate(sink, slots, budget_));
  guards_.insert(used.begin(), used.end());
  for (size_t i = 0; i < values.size(); ++i) {
    const std::vector<uint8_t>& bytes = slots[first + i];
    const Shape shape = ToShape(roots[i].shape());
    TG_RETURN_IF_ERROR(
        Keep({roots[i].dtype(), shape, std::string(bytes.begin(), bytes.end())}, values[i]));
    if (NumElements(shape) <= kCutElements) values[i]->tensor = {};
  }
  return true;
}

Tensor ConstantOf(Builder& builder, const HostTensor& value) {
  int64_t raw = 0;
  std::memcpy(&raw, value.bytes.data(), value.bytes.size());
  const int64_t word = ScalarFromMemory(value.dtype, raw);
  return Tensor(&builder, builder.graph().ConstWord(value.dtype, word));
}

}  // namespace telegrad::onnx
