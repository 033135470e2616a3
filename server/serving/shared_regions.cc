// Regions by tenant and name, each with an open descriptor; reads and writes use pread and
// pwrite within the registered range.
#include "server/serving/shared_regions.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kMostNameBytes = 255;

bool IsKeyRest(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

absl::Status CheckRegionName(std::string_view name) {
  if (!name.empty() && name.size() <= kMostNameBytes) return absl::OkStatus();
  return InvalidArgument("a shared memory region needs a name of 1 to ", kMostNameBytes, " bytes");
}

absl::Status RegionExists(std::string_view name) {
  return absl::AlreadyExistsError(
      StrCat("there is a shared memory region '", Clip(name, 64), "' already"));
}

absl::Status NoRegion(std::string_view name) {
  return NotFound("there is no shared memory region '", Clip(name, 64), "'");
}

absl::Status CheckPart(const RegionPart& part, uint64_t bytes) {
  const auto offset = static_cast<uint64_t>(part.offset);
  if (part.offset >= 0 && part.bytes >= 0 && offset <= bytes &&
      static_cast<uint64_t>(part.bytes) <= bytes - offset) {
    return absl::OkStatus();
  }
  return InvalidArgument("the shared memory region '", Clip(part.region, 64), "' has ", bytes,
                         " bytes, not ", part.bytes, " from byte ", part.offset, " on");
}

absl::Status NoRoom(std::string_view output, int64_t bytes, const RegionPart& part) {
  return InvalidArgument("output '", output, "' has ", bytes,
                         " bytes, and the request has room for ", part.bytes,
                         " in the shared memory region '", Clip(part.region, 64), "'");
}

bool SharedRegions::Has(const std::string& tenant, const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto of = regions_.find(tenant);
  return of != regions_.end() && of->second.contains(name);
}

absl::Status SharedRegions::CheckEnabled() const {
  if (enabled()) return absl::OkStatus();
  return Unimplemented(
      "this server takes no shared memory; start it with --models-shared-memory PREFIX");
}

absl::Status SharedRegions::Register(const std::string& tenant, Region region) {
  TG_RETURN_IF_ERROR(CheckEnabled());
  TG_RETURN_IF_ERROR(CheckRegionName(region.name));
  const std::string begin = StrCat("/", prefix_, tenant, "@");
  const std::string_view key = region.key;
  if (key.size() > kMostNameBytes || !key.starts_with(begin) ||
      !IsKeyRest(key.substr(begin.size()))) {
    return InvalidArgument("the key '", Clip(key, 64), "' of shared memory is expected to be '",
                           begin, "' and then letters, digits, '.', '_' and '-'");
  }
  const auto file = std::make_shared<const UniqueFd>(
      shm_open(region.key.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0));
  struct stat about{};
  if (!file->valid() || fstat(file->get(), &about) != 0 || !S_ISREG(about.st_mode)) {
    return InvalidArgument("the shared memory '", Clip(key, 64), "' cannot be opened");
  }
  const auto size = static_cast<uint64_t>(about.st_size);
  if (region.offset > size || region.bytes > size - region.offset) {
    return InvalidArgument("the shared memory '", Clip(key, 64), "' has ", size, " bytes, not ",
                           region.bytes, " from byte ", region.offset, " on");
  }
  const MutexLock lock(mutex_);
  auto& regions = regions_[tenant];
  if (regions.contains(region.name)) return RegionExists(region.name);
  if (regions.size() >= kMost) {
    return ResourceExhausted("a tenant may have ", kMost, " shared memory regions");
  }
  const std::string name = region.name;
  regions.emplace(name, Entry{std::move(region), file});
  return absl::OkStatus();
}

absl::Status SharedRegions::Unregister(const std::string& tenant, const std::string& name) {
  TG_RETURN_IF_ERROR(CheckEnabled());
  const MutexLock lock(mutex_);
  const auto it = regions_.find(tenant);
  if (it == regions_.end()) return absl::OkStatus();
  if (name.empty()) {
    it->second.clear();
  } else {
    it->second.erase(name);
  }
  if (it->second.empty()) regions_.erase(it);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SharedRegions::Region>> SharedRegions::List(
    const std::string& tenant, const std::string& name) const {
  TG_RETURN_IF_ERROR(CheckEnabled());
  std::vector<Region> out;
  const MutexLock lock(mutex_);
  if (const auto it = regions_.find(tenant); it != regions_.end()) {
    for (const auto& [key, entry] : it->second) {
      if (name.empty() || name == key) out.push_back(entry.region);
    }
  }
  if (!name.empty() && out.empty()) return NoRegion(name);
  return out;
}

absl::StatusOr<std::pair<std::shared_ptr<const UniqueFd>, int64_t>> SharedRegions::Find(
    const std::string& tenant, const RegionPart& part) const {
  TG_RETURN_IF_ERROR(CheckEnabled());
  const MutexLock lock(mutex_);
  const auto of = regions_.find(tenant);
  if (of == regions_.end()) return NoRegion(part.region);
  const auto it = of->second.find(part.region);
  if (it == of->second.end()) return NoRegion(part.region);
  const Region& region = it->second.region;
  TG_RETURN_IF_ERROR(CheckPart(part, region.bytes));
  return std::pair(it->second.fd,
                   static_cast<int64_t>(region.offset + static_cast<uint64_t>(part.offset)));
}

absl::Status SharedRegions::Read(const std::string& tenant, const RegionPart& part,
                                 std::string* out) const {
  TG_ASSIGN_OR_RETURN(const auto found, Find(tenant, part));
  out->resize(static_cast<size_t>(part.bytes));
  for (size_t at = 0; at < out->size();) {
    const ssize_t n = pread(found.first->get(), out->data() + at, out->size() - at,
                            found.second + static_cast<int64_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return InvalidArgument("the shared memory region '", Clip(part.region, 64),
                             "' has become shorter");
    }
    at += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status SharedRegions::Write(const std::string& tenant, const RegionPart& part,
                                  const void* data, int64_t bytes) const {
  TG_ASSIGN_OR_RETURN(const auto found, Find(tenant, part));
  // A write behind the end would make the memory longer.
  struct stat about{};
  if (fstat(found.first->get(), &about) != 0 || about.st_size < found.second + part.bytes) {
    return InvalidArgument("the shared memory region '", Clip(part.region, 64),
                           "' has become shorter");
  }
  const auto* from = static_cast<const char*>(data);
  for (int64_t at = 0; at < bytes;) {
    const ssize_t n =
        pwrite(found.first->get(), from + at, static_cast<size_t>(bytes - at), found.second + at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return absl::UnavailableError(
          StrCat("the shared memory region '", Clip(part.region, 64), "': ", std::strerror(errno)));
    }
    at += n;
  }
  return absl::OkStatus();
}

}  // namespace telegrad
