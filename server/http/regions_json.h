// Regions of shared memory as JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/serving/device_regions.h"
#include "server/serving/shared_regions.h"

namespace telegrad {

// Of the body of a request that registers a region of memory of the host: a key, an offset and a
// byte_size.
absl::StatusOr<SharedRegions::Region> ParseRegion(std::string_view name, std::string_view body);

struct DeviceRegionJson {
  DeviceRegions::Region region;
  std::string handle;
};
// Of one of a GPU: a raw_handle {"b64": ...}, a device_id and a byte_size.
absl::StatusOr<DeviceRegionJson> ParseDeviceRegion(std::string_view name, std::string_view body);

std::string RegionsJson(const std::vector<SharedRegions::Region>& regions);
std::string RegionsJson(const std::vector<DeviceRegions::Region>& regions);

}  // namespace telegrad
