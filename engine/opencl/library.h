// The OpenCL loader, opened at run time: one binary runs with OpenCL and without. The driver of the
// devices and the compiler of their kernels, which are in different processes, both go through it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/opencl/opencl_api.h"

namespace telegrad::opencl {

struct Symbols {
#define CL_SYMBOL(name, result, parameters) result(*name) parameters = nullptr;
#include "engine/opencl/symbols.def"
#undef CL_SYMBOL
};

// OK, or what `error` says went wrong in `call`, by the rows of errors.def.
absl::Status Check(std::string_view call, cl_int error);

// Calls a function that returns an error.
#define TG_CL(api, name, ...) ::telegrad::opencl::Check(#name, (api).name(__VA_ARGS__))

// Gives the environment what drivers need to leave this process its signals and the user's files
// alone (library.cc), where it says nothing itself. Done once, before the first library is opened;
// a process whose other threads read the environment does it before it starts them.
void PrepareEnvironment();

// Thread-safe, and never closed again: drivers have threads and exit handlers of their own.
class Library {
 public:
  // NOT_FOUND: there is no such library. FAILED_PRECONDITION: it lacks a function, which it names.
  static absl::StatusOr<std::shared_ptr<const Library>> Open(const std::string& path);

  const Symbols& api() const { return api_; }

 private:
  Symbols api_;
};

}  // namespace telegrad::opencl
