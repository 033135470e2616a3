// NVIDIA's driver library, opened at run time: one binary runs with it and without.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "devices/cuda/cuda_api.h"

namespace telegrad::cuda {

// The oldest CUDA whose driver has all of symbols.def, and takes the PTX that is made.
inline constexpr int kOldestVersion = 12'000;

struct Symbols {
#define CUDA_SYMBOL(name, version, parameters) CUresult(*name) parameters = nullptr;
#include "devices/cuda/symbols.def"
#undef CUDA_SYMBOL
};

// Calls `name` through `owner`, a Library, whose Check makes a Status of the result.
#define TG_CUDA(owner, name, ...) (owner).Check(#name, (owner).api().name(__VA_ARGS__))

// Thread-safe, and never closed again: the driver has threads and exit handlers of its own.
class Library {
 public:
  // NOT_FOUND: there is no such library, or no GPU behind it. FAILED_PRECONDITION: it is too old,
  // or does not work; says what is missing and which version has it.
  static absl::StatusOr<std::shared_ptr<const Library>> Open(const std::string& path);

  const Symbols& api() const { return api_; }
  int version() const { return version_; }
  // OK, or what the driver says went wrong in `call`. RESOURCE_EXHAUSTED where it is out of memory,
  // UNAVAILABLE where the device is not to be had, INVALID_ARGUMENT for a program that it cannot
  // load, else INTERNAL.
  absl::Status Check(std::string_view call, CUresult result) const;

 private:
  Symbols api_;
  int version_ = 0;
};

}  // namespace telegrad::cuda
