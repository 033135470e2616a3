// The system shared memory extension: memory of this machine that a client names, from which
// inputs are read and into which outputs are written. A region belongs to one tenant, and the
// name of its memory has to begin with the prefix of --models-shared-memory, the tenant's name
// and a "@", which no tenant's name contains; so a client cannot reach memory of the server, of
// other programs or of other tenants. The memory is read and written as a file, never mapped: if
// a client shrinks it meanwhile, that is an error.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/base/unique_fd.h"

namespace telegrad {

// Where in a region a tensor is.
struct RegionPart {
  std::string region;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// The regions of one tenant have names of their own, whatever memory they are in: 1 to 255 bytes.
absl::Status CheckRegionName(std::string_view name);
absl::Status RegionExists(std::string_view name);
absl::Status NoRegion(std::string_view name);
// INVALID_ARGUMENT unless the part is in its region, which has so many bytes.
absl::Status CheckPart(const RegionPart& part, uint64_t bytes);
// That an output of so many bytes does not fit the part.
absl::Status NoRoom(std::string_view output, int64_t bytes, const RegionPart& part);

// Thread-safe.
class SharedRegions {
 public:
  struct Region {
    std::string name, key;  // the key is that of shm_open
    uint64_t offset = 0, bytes = 0;
  };
  static constexpr size_t kMost = 64;  // of one tenant

  // "": no memory may be named.
  explicit SharedRegions(std::string prefix) : prefix_(std::move(prefix)) {}

  bool enabled() const { return !prefix_.empty(); }
  absl::Status Register(const std::string& tenant, Region region);
  // "": all of the tenant's.
  absl::Status Unregister(const std::string& tenant, const std::string& name);
  // By name; "": all of the tenant's.
  absl::StatusOr<std::vector<Region>> List(const std::string& tenant,
                                           const std::string& name) const;

  bool Has(const std::string& tenant, const std::string& name) const;
  // Whether there is the region, and the part in it.
  absl::Status Check(const std::string& tenant, const RegionPart& part) const {
    return Find(tenant, part).status();
  }
  // `out` gets part.bytes bytes.
  absl::Status Read(const std::string& tenant, const RegionPart& part, std::string* out) const;
  // `bytes` bytes of `data`, for which `part` is expected to have room (see NoRoom).
  absl::Status Write(const std::string& tenant, const RegionPart& part, const void* data,
                     int64_t bytes) const;

 private:
  struct Entry {
    Region region;
    std::shared_ptr<const UniqueFd> fd;
  };
  absl::Status CheckEnabled() const;
  // The file, and where the part begins in it.
  absl::StatusOr<std::pair<std::shared_ptr<const UniqueFd>, int64_t>> Find(
      const std::string& tenant, const RegionPart& part) const;

  const std::string prefix_;
  mutable Mutex mutex_;
  std::map<std::string, std::map<std::string, Entry>> regions_
      TG_GUARDED_BY(mutex_);  // by tenant and name
};

}  // namespace telegrad
