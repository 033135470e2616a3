// Tests of error messages by tables: an expression with a mistake, and the message that it has
// to give.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "engine/frontend/tensor/builder.h"

namespace telegrad::testing {

struct Mistake {
  void (*make)(const Tensor& x);  // x: f32 [3, 4]
  std::string_view message;
};

inline void CheckMessages(std::span<const Mistake> mistakes) {
  for (const Mistake& m : mistakes) {
    Builder b;
    m.make(b.Param(DType::kFloat32, {3, 4}, "x"));
    EXPECT_EQ(std::string(b.status().message()), m.message);
    EXPECT_EQ(b.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace telegrad::testing
