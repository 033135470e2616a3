// The mark is a payload without content.
#include "engine/base/device_lost.h"

#include "absl/strings/cord.h"

namespace telegrad {
namespace {

constexpr char kDeviceLost[] = "telegrad/device-lost";

}  // namespace

absl::Status DeviceLostError(std::string_view why) {
  absl::Status status = absl::UnavailableError(absl::string_view(why.data(), why.size()));
  status.SetPayload(kDeviceLost, absl::Cord());
  return status;
}

bool IsDeviceLost(const absl::Status& status) { return status.GetPayload(kDeviceLost).has_value(); }

}  // namespace telegrad
