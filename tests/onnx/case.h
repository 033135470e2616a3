// A case in the layout of the ONNX project's backend tests: NAME/model.onnx and
// NAME/test_data_set_N/{input,output}_N.pb.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ir/graph.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad::testing {

struct OnnxCase {
  std::string folder;  // where model.onnx lies
  std::string name;    // the last part of it
  std::string op;      // what it is about; "?" where nobody says
  // Outputs are random numbers: only their types and shapes are compared.
  bool random = false;
  double rtol = 1e-3, atol = 1e-7;
  // Imported for the shapes of its tensors alone: what their values decide is decided by the run.
  bool by_shape = false;
};

// The cases in the folders of `folder`, sorted by name; operators, tolerances and what is random
// come from its manifest.tsv (a header line, then a line for each case) where it has one. NOT_FOUND
// if there are none.
absl::StatusOr<std::vector<OnnxCase>> FindOnnxCases(const std::string& folder);

// Runs a graph without variables on what its slots hold, and leaves there what they then hold.
using RunOnSlots = std::function<absl::Status(UOp sink, Slots* slots)>;

// Imports the model, runs it on the inputs of every data set, and compares types, shapes and
// values: floats within atol + rtol * |expected|, of f16 and bf16 at least 1e-2 each, everything
// else bit by bit. OK, or what went wrong.
absl::Status RunOnnxCase(const OnnxCase& item, const RunOnSlots& run);

}  // namespace telegrad::testing
