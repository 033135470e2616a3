// The hand-written programs with inputs and with what a plain computation in C++ makes of them.
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ir/program.h"
#include "engine/reference/program_eval.h"

namespace telegrad::testing {

struct Problem {
  std::string_view name;  // of the file, without ".uop"
  std::vector<std::vector<uint8_t>> arguments = {};
  std::vector<int64_t> variables = {};
  // The last argument as it should become: f32 where `floats` is set, i32 otherwise.
  bool floats = true;
  std::vector<double> want = {};
  double tolerance = 0;  // of 1 + |want|
};

inline void PrintTo(const Problem& problem, std::ostream* out) {
  *out << std::string(problem.name);
}

std::vector<Problem> AllProblems();

Problem FindProblem(std::string_view name);

// A file of this folder.
std::string ReadData(std::string_view name);
// Runs `text` on a copy of the problem's arguments and compares. The status is the program's, or
// DATA_LOSS where the result is not as wanted.
absl::Status RunProblem(const Problem& problem, std::string_view text,
                        reference::RunOptions options);

}  // namespace telegrad::testing
