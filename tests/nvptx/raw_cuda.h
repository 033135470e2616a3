// The CUDA driver API as it is, for kernels alone: loads PTX, launches it once, and brings back
// what it wrote. The library is the fake one, or the one that the variable TELEGRAD_CUDA names,
// such as libcuda.so.1 on a machine with a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"

namespace telegrad::testing {

class RawCuda {
 public:
  static absl::StatusOr<std::unique_ptr<RawCuda>> Open(const std::string& library);
  ~RawCuda();

  // 10 * major + minor
  int capability() const { return capability_; }

  struct Slice {
    int64_t begin, workgroups;
  };
  // Launches the slices one after another on a copy of the arguments, and replaces these by it.
  absl::Status Run(const ProgramImage& image, const std::vector<Slice>& slices,
                   std::vector<std::vector<uint8_t>>* arguments);

 private:
  struct Api;
  RawCuda();
  absl::Status Start(const std::string& library);
  absl::Status Launch(const ProgramImage& image, const std::vector<Slice>& slices,
                      std::vector<uint64_t> addresses);

  std::unique_ptr<Api> api_;
  int device_ = 0;
  int capability_ = 0;
};

}  // namespace telegrad::testing
