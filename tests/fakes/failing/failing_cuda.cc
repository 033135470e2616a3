// NVIDIA's driver library, failing where a test says so; but for the function that tells its
// version, which is no row of the table.
#include "devices/cuda/cuda_api.h"

using namespace telegrad::cuda;  // NOLINT: the types of the table

#define SYMBOL_TABLE "devices/cuda/symbols.def"
#include "tests/fakes/failing/failing.h"

extern "C" FAILING_API CUresult cuDriverGetVersion(int* version) {
  const auto function =
      reinterpret_cast<CUresult (*)(int*)>(dlsym(telegrad::failing::Below(), __func__));
  return function == nullptr ? CUDA_ERROR_UNKNOWN : function(version);
}
