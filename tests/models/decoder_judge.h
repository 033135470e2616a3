// The decoder of DecodeStep as loops over doubles: an independent calculation of its results.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "tests/models/models.h"

namespace telegrad::testing {

class DecoderJudge {
 public:
  using Vector = std::vector<double>;

  DecoderJudge(const DecoderShape& shape, const Plan& plan) : shape_(shape) {
    for (const Slot& slot : plan.slots) {
      if (slot.role == SlotRole::kState) weights_[slot.name] = InitialValue(slot)->AsDoubles();
    }
    keys_.resize(static_cast<size_t>(shape.layers));
    values_.resize(static_cast<size_t>(shape.layers));
  }

  // The logits behind one more token.
  Vector Step(int64_t token) {
    Vector x;
    const size_t channels = static_cast<size_t>(shape_.channels);
    for (size_t c = 0; c < channels; ++c) {
      x.push_back(weights_.at("tokens.table")[static_cast<size_t>(token) * channels + c] +
                  weights_.at("positions.table")[position_ * channels + c]);
    }
    for (size_t i = 0; i < keys_.size(); ++i) {
      const std::string name = StrCat("layer", i);
      Add(Attention(i, Linear(name + ".attention.qkv", Norm(name + ".norm1", x))), &x);
      Vector inner = Linear(name + ".perceptron.in", Norm(name + ".norm2", x));
      for (double& v : inner) {
        v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
      }
      Add(Linear(name + ".perceptron.out", inner), &x);
    }
    ++position_;
    x = Norm("norm", x);
    Vector logits(static_cast<size_t>(shape_.tokens), 0);
    for (size_t t = 0; t < logits.size(); ++t) {
      for (size_t c = 0; c < channels; ++c) {
        logits[t] += x[c] * weights_.at("tokens.table")[t * channels + c];
      }
    }
    return logits;
  }

 private:
  static void Add(const Vector& y, Vector* x) {
    for (size_t i = 0; i < y.size(); ++i) (*x)[i] += y[i];
  }

  Vector Linear(const std::string& name, const Vector& x) const {
    const Vector& weight = weights_.at(name + ".weight");
    Vector y = weights_.at(name + ".bias");
    for (size_t i = 0; i < y.size(); ++i) {
      for (size_t j = 0; j < x.size(); ++j) y[i] += weight[i * x.size() + j] * x[j];
    }
    return y;
  }

  Vector Norm(const std::string& name, const Vector& x) const {
    double mean = 0, variance = 0;
    for (const double v : x) mean += v / static_cast<double>(x.size());
    for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
    Vector y;
    for (size_t i = 0; i < x.size(); ++i) {
      y.push_back((x[i] - mean) / std::sqrt(variance + 1e-5) * weights_.at(name + ".weight")[i] +
                  weights_.at(name + ".bias")[i]);
    }
    return y;
  }

  Vector Attention(size_t layer, const Vector& qkv) {
    const auto channels = static_cast<ptrdiff_t>(shape_.channels);
    keys_[layer].emplace_back(qkv.begin() + channels, qkv.begin() + 2 * channels);
    values_[layer].emplace_back(qkv.begin() + 2 * channels, qkv.end());
    const auto size = static_cast<size_t>(shape_.channels / shape_.heads);
    Vector out(static_cast<size_t>(channels), 0);
    for (size_t begin = 0; begin < out.size(); begin += size) {
      Vector weights;
      double sum = 0;
      for (const Vector& key : keys_[layer]) {
        double score = 0;
        for (size_t c = begin; c < begin + size; ++c) score += qkv[c] * key[c];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
        sum += weights.back();
      }
      for (size_t p = 0; p < weights.size(); ++p) {
        for (size_t c = begin; c < begin + size; ++c) {
          out[c] += weights[p] / sum * values_[layer][p][c];
        }
      }
    }
    return Linear(StrCat("layer", layer, ".attention.out"), out);
  }

  const DecoderShape shape_;
  std::map<std::string, Vector> weights_;
  std::vector<std::vector<Vector>> keys_, values_;  // by layer and position
  size_t position_ = 0;
};

}  // namespace telegrad::testing
