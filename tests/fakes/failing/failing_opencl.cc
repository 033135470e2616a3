// OpenCL's loader, failing where a test says so.
#include "engine/opencl/opencl_api.h"

using namespace telegrad::opencl;  // NOLINT: the types of the table

#define SYMBOL_TABLE "engine/opencl/symbols.def"
#include "tests/fakes/failing/failing.h"
