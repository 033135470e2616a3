#include "server/http/regions_json.h"

#include <optional>

#include "absl/strings/escaping.h"
#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "server/http/json_members.h"

namespace telegrad {
namespace {

absl::Status WrongRegion(const JsonReader& reader, std::string_view expected) {
  return InvalidArgument("the body is wrong at byte ", reader.position(),
                         ": expected an object with ", expected);
}

// WRITE(region), WRITE(region) in brackets.
template <typename Region, typename Write>
std::string RegionArray(const std::vector<Region>& regions, Write write) {
  std::string out = "[";
  for (const Region& region : regions) StrAppend(&out, out.size() > 1 ? "," : "", write(region));
  return out + "]";
}

}  // namespace

absl::StatusOr<SharedRegions::Region> ParseRegion(std::string_view name, std::string_view body) {
  SharedRegions::Region region{.name = std::string(name), .key = {}};
  JsonReader reader(body);
  int64_t offset = 0, bytes = -1;
  const bool read = ReadMembers(reader, [&](const std::string& key) {
    if (key == "key") return reader.String(&region.key);
    if (key == "offset") return reader.Size(&offset);
    if (key == "byte_size") return reader.Size(&bytes);
    return reader.SkipValue();
  });
  if (!read || !reader.AtEnd() || bytes < 0) {
    return WrongRegion(reader, "a key, an offset and a byte_size");
  }
  region.offset = static_cast<uint64_t>(offset);
  region.bytes = static_cast<uint64_t>(bytes);
  return region;
}

absl::StatusOr<DeviceRegionJson> ParseDeviceRegion(std::string_view name, std::string_view body) {
  DeviceRegionJson out{.region = {.name = std::string(name)}, .handle = {}};
  JsonReader reader(body);
  std::optional<std::string> base64;
  int64_t bytes = -1;
  const auto handle = [&](const std::string& key) {
    return key == "b64" ? reader.String(&base64.emplace()) : reader.SkipValue();
  };
  const bool read = ReadMembers(reader, [&](const std::string& key) {
    if (key == "raw_handle") return ReadMembers(reader, handle);
    if (key == "device_id") return reader.Size(&out.region.device_id);
    if (key == "byte_size") return reader.Size(&bytes);
    return reader.SkipValue();
  });
  if (!read || !reader.AtEnd() || bytes < 0 || !base64) {
    return WrongRegion(reader, "a raw_handle {\"b64\": ...}, a device_id and a byte_size");
  }
  if (!absl::Base64Unescape(ToAbsl(*base64), &out.handle)) {
    return InvalidArgument("the raw_handle is not in base64");
  }
  out.region.bytes = static_cast<uint64_t>(bytes);
  return out;
}

std::string RegionsJson(const std::vector<SharedRegions::Region>& regions) {
  return RegionArray(regions, [](const SharedRegions::Region& region) {
    return StrCat("{\"name\":", JsonQuote(region.name), ",\"key\":", JsonQuote(region.key),
                  ",\"offset\":", region.offset, ",\"byte_size\":", region.bytes, "}");
  });
}

std::string RegionsJson(const std::vector<DeviceRegions::Region>& regions) {
  return RegionArray(regions, [](const DeviceRegions::Region& region) {
    return StrCat("{\"name\":", JsonQuote(region.name), ",\"device_id\":", region.device_id,
                  ",\"byte_size\":", region.bytes, "}");
  });
}

}  // namespace telegrad
