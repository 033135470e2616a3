// Small datasets for examples and tests.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/host_tensor.h"

namespace telegrad {

struct Examples {
  HostTensor images;  // [n, 1, 8, 8] f32 in [0, 1]
  HostTensor labels;  // [n] i32
  int64_t size() const { return labels.shape.empty() ? 0 : labels.shape[0]; }
};

struct Digits {
  Examples train;
  Examples held_out;  // one in five of every label, the same ones everywhere
};

// Reads digits.csv.gz: gzip, 65 integers to a line, 64 pixels in 0..16 and the label in 0..9.
absl::StatusOr<Digits> ReadDigits(const std::string& path);

// The examples first, first + 1, ... of a shuffled epoch, `count` of them, wrapping around. `seed`
// names the epoch's order.
Examples Batch(const Examples& all, uint64_t seed, int64_t first, int64_t count);

}  // namespace telegrad
