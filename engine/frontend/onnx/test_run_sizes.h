// For tests only: plans of models whose shapes each run decides.
#pragma once

#include <string>
#include <vector>

#include "engine/frontend/onnx/test_node.h"

namespace telegrad::onnx::test {

// Without values of inputs, so that nothing is imported again for others.
inline OnnxPlan Import(const std::string& file, const ImportOptions& options = {}) {
  auto onnx = ImportOnnx(file, options);
  EXPECT_TRUE(onnx.ok()) << onnx.status();
  if (!onnx.ok()) return {};
  EXPECT_THAT(onnx->guards, ::testing::IsEmpty());
  return *std::move(onnx);
}

inline std::vector<HostTensor> Results(const OnnxPlan& onnx,
                                       const std::vector<HostTensor>& inputs) {
  auto out = Run(onnx, inputs);
  EXPECT_TRUE(out.ok()) << out.status();
  return out.ok() ? *std::move(out) : std::vector<HostTensor>(onnx.outputs.size());
}

}  // namespace telegrad::onnx::test
