// The limits of tenants, and the file that gives each its own:
//
//   # comment
//   [*]                        every tenant without a section of its own; none: they are refused
//   device_memory = 8GiB
//
//   [alice]
//   sessions = 16
//   disk_read = models data    the disk roots whose files it may read; * is all of them
//   disk_write = scratch       and those in which it may also make files and change what they have
//   models = resnet50 team-*   the models of --models that it may use; * ends a beginning of names
//   acts_for = bob carol       the tenants for whom it may act; * is all of them
//
// A quota that a section does not set is that of --default-quota, or else the default in
// tenants.def.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace telegrad {

enum class Quota : int {
#define QUOTA(enumerator, ...) enumerator,
#include "server/tenant/tenants.def"
#undef QUOTA
};

inline constexpr int kNumQuotas = 0
#define QUOTA(...) +1
#include "server/tenant/tenants.def"
#undef QUOTA
    ;

struct QuotaInfo {
  std::string_view name;
  int64_t least, most;  // that it may be set to
  int64_t default_limit;
  std::string_view unit;
  std::string_view what;
};

// All rows, indexed by Quota.
std::span<const QuotaInfo> AllQuotas();

// Disk roots by name, "*" for all.
struct DiskGrants {
  std::set<std::string, std::less<>> read = {}, write = {};
  std::string flag = "--tenants";  // that names the file with the grants
  bool MayRead(std::string_view root) const;
  bool MayWrite(std::string_view root) const;
};

// Models by name, or by the beginning of names with '*' behind it.
struct ModelGrants {
  std::set<std::string, std::less<>> names = {};
  bool May(std::string_view model) const;
};

class Quotas {
 public:
  Quotas();  // the defaults of the table
  int64_t& operator[](Quota quota) { return limits_[static_cast<size_t>(quota)]; }
  int64_t operator[](Quota quota) const { return limits_[static_cast<size_t>(quota)]; }

  // `assignment` is NAME=VALUE; the value a whole number of at least 0, also with KiB, MiB, GiB or
  // TiB. For disk_read, disk_write, models and acts_for it is a list of names with blanks between
  // them.
  // INVALID_ARGUMENT says what of it is wrong.
  absl::Status Set(std::string_view assignment);

  // Whether it may act for that tenant; where nothing is said, for none.
  bool ActsFor(std::string_view tenant) const {
    return acts_for_.contains("*") || acts_for_.contains(tenant);
  }

  // Where nothing is said, the tenant `local` may use all disk roots and others none.
  DiskGrants DisksOf(std::string_view tenant) const;
  // Likewise all models and none.
  ModelGrants ModelsOf(std::string_view tenant) const;

 private:
  std::optional<DiskGrants> disks_;
  std::optional<ModelGrants> models_;
  std::set<std::string, std::less<>> acts_for_;
  std::array<int64_t, kNumQuotas> limits_;
};

struct TenantTable {
  std::map<std::string, Quotas, std::less<>> named;
  std::optional<Quotas> others = Quotas();  // none: only the named are served
  bool from_file = false;                   // else all are others
  std::string flag = "--tenants";           // that names the file
  bool says_whole = false;                  // the file of --tenants, see config_file.h
};

// INVALID_ARGUMENT has a line for each mistake, "FILE:LINE: ...".
absl::StatusOr<TenantTable> ParseTenants(std::string_view text, std::string_view file,
                                         const Quotas& defaults);
absl::StatusOr<TenantTable> ReadTenants(const std::string& file, const Quotas& defaults);

}  // namespace telegrad
