#include "engine/frontend/onnx/ml_common.h"

#include <numbers>

#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

// The quantile function of the normal distribution by S. Winitzki's approximation of the inverse
// error function ("A handy approximation for the error function and its inverse", 2008), which the
// project's reference implementation uses as well.
Tensor Probit(const Tensor& p) {
  constexpr double kA = 0.147;
  const Tensor x = p * 2.0 - 1.0;
  const Tensor log = ((1.0 - x) * (x + 1.0)).Log();
  const Tensor v = log * 0.5 + 2.0 / (std::numbers::pi * kA);
  const Tensor root = ((v * v - log / kA).Sqrt() - v).Sqrt() * std::numbers::sqrt2;
  return x.Lt(0.0).Where(-root, root);
}

}  // namespace

absl::StatusOr<Tensor> Features(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  if (x.rank() != 1 && x.rank() != 2) {
    return InvalidArgument("features of shape ", ToString(x.shape()));
  }
  const Tensor wide = x.Cast(x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
  return x.rank() == 1 ? wide.Unsqueeze(0) : wide;
}

absl::StatusOr<Tensor> FloatWeight(NodeContext& c, const Shape& shape,
                                   const std::vector<float>& values) {
  TG_ASSIGN_OR_RETURN(const Tensor out, c.Weight(HostTensor::Of<float>(shape, values)));
  return out.Reshape(shape);
}

absl::StatusOr<Tensor> DoubleWeight(NodeContext& c, const Shape& shape,
                                    const std::vector<double>& values) {
  TG_ASSIGN_OR_RETURN(const Tensor out, c.Weight(HostTensor::Of<double>(shape, values)));
  return out.Reshape(shape);
}

absl::StatusOr<Tensor> IntWeight(NodeContext& c, const std::vector<int64_t>& values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  TG_ASSIGN_OR_RETURN(const Tensor out, c.Weight(HostTensor::Of<int64_t>(shape, values)));
  return out.Reshape(shape);
}

absl::StatusOr<std::vector<double>> FloatsOrTensor(NodeContext& c, const std::string& name) {
  const std::string other = name + "_as_tensor";
  if (c.HasAttribute(other)) {
    if (c.HasAttribute(name)) {
      return InvalidArgument("has both '", name, "' and '", other, "', expected one of them");
    }
    TG_ASSIGN_OR_RETURN(const Attribute* a, c.Required(other, AttributeType::kTensor));
    TG_ASSIGN_OR_RETURN(const HostTensor value, ToHostTensor(*a->t));
    return value.AsDoubles();
  }
  TG_ASSIGN_OR_RETURN(const std::vector<float> values, c.Floats(name, {}));
  return std::vector<double>(values.begin(), values.end());
}

absl::StatusOr<Tensor> PostTransform(std::string_view name, const Tensor& scores) {
  if (name == "NONE") return scores;
  if (name == "LOGISTIC") return scores.Sigmoid();
  if (name == "SOFTMAX") return scores.Softmax(-1);
  if (name == "PROBIT") return Probit(scores);
  if (name == "SOFTMAX_ZERO") {
    // As SOFTMAX, but a score of 0 stays 0.
    const Tensor kept = scores.Ne(0);
    const Tensor e = kept.Where((scores - scores.Max({-1}, true)).Exp(), 0.0);
    const Tensor sum = e.Sum({-1}, true);
    return e / sum.Eq(0).Where(1, sum);
  }
  return InvalidArgument("'post_transform' is '", name,
                         "', expected NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT");
}

absl::StatusOr<Tensor> PostTransform(NodeContext& c, const Tensor& scores) {
  TG_ASSIGN_OR_RETURN(const std::string_view name, c.String("post_transform", "NONE"));
  return PostTransform(name, scores);
}

absl::StatusOr<Labels> ReadLabels(NodeContext& c, const std::string& prefix) {
  Labels out;
  std::string found;
  const auto take = [&](const char* suffix) {
    const std::string name = prefix + suffix;
    if (!found.empty() || !c.HasAttribute(name)) return false;
    found = name;
    return true;
  };
  for (const char* suffix : {"_int64s", "_ints"}) {
    if (!take(suffix)) continue;
    TG_ASSIGN_OR_RETURN(const std::vector<int64_t> ints, c.Ints(found, {}));
    out.numbers = HostTensor::Of<int64_t>({static_cast<int64_t>(ints.size())}, ints);
  }
  if (take("_floats")) {
    TG_ASSIGN_OR_RETURN(const std::vector<float> floats, c.Floats(found, {}));
    out.numbers = HostTensor::Of<float>({static_cast<int64_t>(floats.size())}, floats);
  }
  if (take("_strings")) {
    TG_ASSIGN_OR_RETURN(const std::vector<std::string_view> strings, c.Strings(found));
    out.is_strings = true;
    out.strings.assign(strings.begin(), strings.end());
  }
  if (take("_tensor")) {
    TG_ASSIGN_OR_RETURN(const Attribute* a, c.Required(found, AttributeType::kTensor));
    if (a->t->data_type == kStringType) {
      TG_ASSIGN_OR_RETURN(StringTensor strings, ToStrings(*a->t));
      out.is_strings = true;
      out.strings = std::move(strings.values);
    } else {
      TG_ASSIGN_OR_RETURN(out.numbers, ToHostTensor(*a->t));
      out.numbers.shape = {NumElements(out.numbers.shape)};
    }
  }
  if (found.empty()) return InvalidArgument("has no attribute '", prefix, "_...'");
  return out;
}

absl::Status OutputLabels(NodeContext& c, const Labels& labels, const ValueRef& positions) {
  if (!labels.is_strings) {
    TG_ASSIGN_OR_RETURN(const Tensor table, c.Weight(labels.numbers));
    TG_ASSIGN_OR_RETURN(const Tensor at, c.values().ToTensor(positions.get()));
    return c.Output(table.Reshape(labels.numbers.shape).Gather(at));
  }
  TG_ASSIGN_OR_RETURN(const HostTensor* known, c.values().ToHost(positions.get(), Effort::kInputs));
  if (known == nullptr) {
    return Unimplemented("its labels are strings, which depend on ", c.values().Unknown(*positions),
                         ", only known when the model runs: give values of inputs at import");
  }
  StringTensor out{known->shape, {}};
  Budget::Held held(c.values().budget());
  for (const int64_t at : known->Values<int64_t>()) {
    const std::string& label = labels.strings.at(static_cast<size_t>(at));
    TG_RETURN_IF_ERROR(held.Grow(static_cast<int64_t>(sizeof(std::string) + label.size())));
    out.values.push_back(label);
  }
  return c.OutputStrings(std::move(out));
}

}  // namespace telegrad::onnx
