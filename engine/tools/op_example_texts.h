// The examples of ops that are not elementwise, written out: "--- NAME", then the graph or program
// in text form.
#pragma once

#include <string_view>

namespace telegrad {

extern const std::string_view kTensorExamples;
// A program may be the example of several ops: its name is theirs, joined by two underscores.
extern const std::string_view kProgramExamples;

}  // namespace telegrad
