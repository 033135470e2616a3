// Names and texts of results.
#include <iterator>

#include "tests/fakes/cuda/abi.h"

namespace {

struct Row {
  int number;
  const char* name;
  const char* text;
};

constexpr Row kRows[] = {
#define RESULT(name, number, text) {number, #name, text},
#include "tests/fakes/cuda/results.def"
#undef RESULT
};

int Find(int result, const char** out, const char* Row::* field) {
  if (out == nullptr) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  for (const Row& row : kRows) {
    if (row.number == result) *out = row.*field;
  }
  return *out == nullptr ? fakecuda::CUDA_ERROR_INVALID_VALUE : fakecuda::CUDA_SUCCESS;
}

}  // namespace

FAKE_CUDA_API int cuGetErrorName(int result, const char** name) {
  return Find(result, name, &Row::name);
}

FAKE_CUDA_API int cuGetErrorString(int result, const char** text) {
  return Find(result, text, &Row::text);
}
