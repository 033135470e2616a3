// A step of a decoder's attention over several devices: the heads, and so the weights and the
// caches of keys and values, are sharded, and the caches grow by a row in each step.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad::testing {

struct ShardedStep {
  int64_t devices = 2;
  int64_t heads = 4;
  int64_t depth = 8;       // of a head
  int64_t width = 16;      // of the input and the result
  int64_t positions = 32;  // that the caches have

  static constexpr int64_t kPosition = 0;  // the variable: where this step is, from 0 on
  static constexpr int64_t kIn = 0, kOut = 1;
  static constexpr int64_t kPerDevice = 6;  // slots: four weights, keys, values
  int64_t slots() const { return 2 + kPerDevice * devices; }
  int64_t slot(int64_t device, int64_t i) const { return 2 + kPerDevice * device + i; }
  int64_t device_of(int64_t slot) const { return slot < 2 ? 0 : (slot - 2) / kPerDevice; }
  std::vector<int64_t> dims_of(int64_t slot) const {
    const int64_t own = heads / devices;
    if (slot == kIn) return {width, 1};
    if (slot == kOut) return {1, width};
    switch ((slot - 2) % kPerDevice) {
      case 3:
        return {own * depth, width};
      case 4:
      case 5:
        return {own, positions, depth};
      default:
        return {width, own * depth};
    }
  }
  // By slot. Weights and input between -1 and 1; the caches hold nothing.
  std::vector<std::vector<uint8_t>> Contents(std::mt19937_64& rng) const;
  // The step at the variable, or at a number.
  FrozenGraph Graph(std::optional<int64_t> position = {}) const;
};

inline std::vector<std::vector<uint8_t>> ShardedStep::Contents(std::mt19937_64& rng) const {
  std::vector<std::vector<uint8_t>> out;
  for (int64_t s = 0; s < slots(); ++s) {
    std::vector<float> values(static_cast<size_t>(NumElements(dims_of(s))));
    if (s != kOut && (s == kIn || (s - 2) % kPerDevice < 4)) {
      for (float& v : values) v = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) / 1000;
    }
    const auto* const bytes = reinterpret_cast<const uint8_t*>(values.data());
    out.emplace_back(bytes, bytes + values.size() * sizeof(float));
  }
  return out;
}

inline FrozenGraph ShardedStep::Graph(std::optional<int64_t> position) const {
  telegrad::Graph g;
  using Dims = std::vector<int64_t>;
  const auto make = [&](Op op, std::vector<UOp> src, const Dims& arg = {}) {
    return g.Make(op, DType::kVoid, src, arg);
  };
  const auto param = [&](int64_t s) {
    return g.Param(s, DType::kFloat32, dims_of(s), device_of(s));
  };
  const auto sharded = [&](std::vector<UOp> shards, int64_t axis) {
    return make(Op::kUnshard, {make(Op::kMStack, std::move(shards))}, {axis});
  };
  const auto weight = [&](int64_t i, int64_t axis) {
    std::vector<UOp> shards;
    for (int64_t d = 0; d < devices; ++d) shards.push_back(param(slot(d, i)));
    return sharded(std::move(shards), axis);
  };
  const auto sum = [&](UOp x, int64_t axis) { return make(Op::kReduce, {x}, {0, axis}); };
  const UOp at =
      position ? g.Index(*position) : make(Op::kVar, {}, {kPosition, 0, positions - 1, 1});
  const UOp rows = position ? g.Index(*position + 1) : make(Op::kAdd, {at, g.Index(1)});
  // A view of which one word is `size`.
  const auto view = [&](Op op, UOp x, Dims words, size_t word, UOp size) {
    std::vector<UOp> src{x};
    words[word] = -2;
    if (size.is_const()) {
      words[word] = size.const_word();
    } else {
      src.push_back(size);
    }
    return make(op, std::move(src), words);
  };
  Dims everywhere;
  for (int64_t d = 0; d < devices; ++d) everywhere.push_back(d);
  const int64_t own = heads / devices, all = heads * depth;
  const UOp x = make(Op::kExpand, {make(Op::kCopy, {param(kIn)}, everywhere)}, {width, all});
  const auto project = [&](int64_t i) {
    return make(Op::kReshape, {sum(make(Op::kMul, {x, weight(i, 1)}), 0)}, {heads, 1, depth});
  };
  std::vector<UOp> stores;
  // The rows of a cache up to this step, whose row it gets first.
  const auto cache = [&](int64_t i, UOp row) {
    std::vector<UOp> shards;
    for (int64_t d = 0; d < devices; ++d) {
      const UOp memory = param(slot(d, i));
      const UOp target = view(Op::kShrink, memory, {0, own, 0, 1, 0, depth}, 2, at);
      const UOp here = make(Op::kMSelect, {row}, {d});
      const UOp value = make(Op::kShrink, {here}, {d * own, own, 0, 1, 0, depth});
      stores.push_back(make(Op::kStore, {target, value}));
      shards.push_back(make(Op::kAfter, {memory, stores.back()}));
    }
    return view(Op::kShrink, sharded(std::move(shards), 0), {0, heads, 0, 0, 0, depth}, 3, rows);
  };
  const UOp keys = cache(4, project(1)), values = cache(5, project(2));
  const auto along = [&](UOp y, int64_t last) {  // for each row
    return view(Op::kExpand, y, {heads, 0, last}, 1, rows);
  };
  const UOp scores = sum(make(Op::kMul, {keys, along(project(0), depth)}), 2);
  const UOp most = make(Op::kReduce, {scores}, {2, 1});
  const UOp weights = make(Op::kExp2, {make(Op::kSub, {scores, along(most, 1)})});
  const UOp total = make(Op::kExpand, {make(Op::kRecip, {sum(weights, 1)})}, {heads, 1, depth});
  const UOp mixed =
      make(Op::kMul, {sum(make(Op::kMul, {along(weights, depth), values}), 1), total});
  const UOp column = make(Op::kExpand, {make(Op::kReshape, {mixed}, {all, 1})}, {all, width});
  const UOp result = sum(make(Op::kMul, {column, weight(3, 0)}), 0);
  stores.push_back(make(Op::kStore, {param(kOut), make(Op::kMSelect, {result}, {0})}));
  return Freeze(make(Op::kSink, stores));
}

}  // namespace telegrad::testing
