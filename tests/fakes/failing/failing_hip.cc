// AMD's HIP library, failing where a test says so; but for the function that tells its version,
// which is no row of the table.
#include "devices/hip/hip_api.h"

using namespace telegrad::hip;  // NOLINT: the types of the table

#define SYMBOL_TABLE "devices/hip/symbols.def"
#include "tests/fakes/failing/failing.h"

extern "C" FAILING_API hipError_t hipRuntimeGetVersion(int* version) {
  const auto function =
      reinterpret_cast<hipError_t (*)(int*)>(dlsym(telegrad::failing::Below(), __func__));
  return function == nullptr ? hipErrorUnknown : function(version);
}
