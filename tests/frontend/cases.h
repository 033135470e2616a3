// Value cases: what methods of Tensor give, against values that NumPy (PyTorch where NumPy has no
// such function) computed.
//
// A case is a row: the method it is about (a row of methods.def), the name under which
// tests/data/frontend/<section>.safetensors.gz has its variants, and the expression. Data of
// variant V (0, 1, ...) of case C: "C/V/in0", "C/V/in1", ... -> "C/V/out0", ...; and for cases that
// are differentiable, optionally, "C/V/w0", ... and "C/V/grad0", ...: the gradients of
// sum(out0 * w0) + ... with respect to each float input.
//
// Every variant runs on the reference interpreter and on the CPU device. A differentiable case also
// has its gradient, and the gradient of that, compared with central differences in f64.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "engine/frontend/tensor/index.h"
#include "engine/frontend/tensor/tensor.h"

namespace telegrad::testing {

using Inputs = std::vector<Tensor>;

struct Case {
  std::string_view method;
  std::string_view name;
  std::vector<Tensor> (*run)(Builder& b, const Inputs& in);
  // The error allowed on floats, in units of the last place of the output's type: of the element,
  // or of the largest element of the output. 0: exact.
  double units = 4;
  enum Scale { kElement, kLargest } scale = kElement;
  bool differentiable = false;
  // Where the finite differences are taken: inputs are drawn from [low, high), no two nearer to
  // each other than the step, so that maxima have no ties.
  double low = -2, high = 2;
};

// Runs the value tests of a section, or the gradient tests of its differentiable cases.
void CheckValues(std::string_view section, std::span<const Case> cases);
void CheckGradients(std::string_view section, std::span<const Case> cases);
// The comparison with differences alone: float inputs give shapes, the others also values.
void CheckDifferences(const Case& c, std::span<const HostTensor> in);

// A section of the cases, each in a file of its own.
std::span<const Case> ElementwiseCases();
std::span<const Case> MovementCases();
std::span<const Case> IndexingCases();
std::span<const Case> ReductionCases();
std::span<const Case> ProductCases();
std::span<const Case> LossCases();

}  // namespace telegrad::testing
