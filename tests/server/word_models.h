// Models that map words, which are strings, to numbers and back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/frontend/onnx/test_model.h"

namespace telegrad {

// y = 1, 2, 3 for the words "one", "two", "three" of x, and -1 for others.
inline std::string NumbersOfWords() {
  return onnx::test::ModelWriter()
      .StringInput("x", {-1})
      .Output("y", DType::kInt64, {-1})
      .Node("LabelEncoder", {"x"}, {"y"},
            {{"keys_strings", onnx::test::Names{"one", "two", "three"}},
             {"values_int64s", std::vector<int64_t>{1, 2, 3}},
             {"default_int64", int64_t{-1}}},
            "ai.onnx.ml")
      .File(13, 2);
}

// y = "one", "two", "" for the numbers 1, 2, 3 of x, and "many" for others.
inline std::string WordsOfNumbers() {
  return onnx::test::ModelWriter()
      .Input("x", DType::kInt64, {-1})
      .StringOutput("y", {-1})
      .Node("LabelEncoder", {"x"}, {"y"},
            {{"values_strings", onnx::test::Names{"one", "two", ""}},
             {"keys_int64s", std::vector<int64_t>{1, 2, 3}},
             {"default_string", std::string("many")}},
            "ai.onnx.ml")
      .File(13, 2);
}

}  // namespace telegrad
