// Shared by the tests of the tensor interpreter: graphs as text, slots as vectors.
#pragma once

#include <cstring>
#include <string_view>
#include <vector>

#include "engine/ir/text.h"
#include "engine/reference/tensor_eval.h"

namespace telegrad::reference {

using Bytes = std::vector<uint8_t>;

template <typename T>
Bytes ToBytes(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <typename T>
std::vector<T> FromBytes(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline absl::Status Eval(std::string_view text, std::vector<Bytes>& slots,
                         const Variables& variables = {}, const Budget::Limits& limits = {}) {
  Graph graph;
  const absl::StatusOr<UOp> root = Parse(text, &graph);
  if (!root.ok()) return root.status();
  Budget budget(limits);
  return Evaluate(*root, slots, &budget, variables);
}

}  // namespace telegrad::reference
