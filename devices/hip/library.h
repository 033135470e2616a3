// AMD's HIP library, opened at run time: one binary runs with it and without.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "devices/hip/hip_api.h"

namespace telegrad::hip {

// The oldest HIP whose library has all of symbols.def and loads the code objects that are made:
// 6.0, as hipRuntimeGetVersion says it.
inline constexpr int kOldestVersion = 60'000'000;

struct Symbols {
#define HIP_SYMBOL(name, parameters) hipError_t(*name) parameters = nullptr;
#include "devices/hip/symbols.def"
#undef HIP_SYMBOL
};

// Calls `name` through `owner`, a Library, whose Check makes a Status of the result.
#define TG_HIP(owner, name, ...) (owner).Check(#name, (owner).api().name(__VA_ARGS__))

// Thread-safe, and never closed again: HIP has threads and exit handlers of its own.
class Library {
 public:
  // The first of `paths`, separated by colons, that can be opened. NOT_FOUND: there is no such
  // library, or no GPU behind it. FAILED_PRECONDITION: it is too old, or does not work; says what
  // is missing.
  static absl::StatusOr<std::shared_ptr<const Library>> Open(std::string_view paths);

  const Symbols& api() const { return api_; }
  int version() const { return version_; }
  // OK, or what HIP says went wrong in `call`. RESOURCE_EXHAUSTED where it is out of memory,
  // INVALID_ARGUMENT for a program that it cannot load, else INTERNAL.
  absl::Status Check(std::string_view call, hipError_t result) const;

 private:
  Symbols api_;
  int version_ = 0;
};

}  // namespace telegrad::hip
