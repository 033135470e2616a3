// The table of quotas with names and units, and the parser of the file, whose errors name the
// line.
#include "server/tenant/quotas.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "engine/base/config_file.h"
#include "engine/base/share.h"
#include "engine/base/status.h"
#include "server/identity/principal.h"
#include "server/identity/reloaded.h"

namespace telegrad {
namespace {

constexpr QuotaInfo kQuotas[] = {
#define QUOTA(enumerator, name, least, most, default_limit, unit, what) \
  {name, least, most, default_limit, unit, what},
#include "server/tenant/tenants.def"
#undef QUOTA
};

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// What a client or an operator wrote, short and printable.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxTenantNameBytes)) out += c >= ' ' && c < 127 ? c : '?';
  return out + "\"";
}

absl::StatusOr<int64_t> ParseLimit(std::string_view text) {
  constexpr std::pair<std::string_view, int> kUnits[] = {
      {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  std::string_view digits = text;
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (!text.ends_with(unit)) continue;
    digits = Trim(text.substr(0, text.size() - unit.size()));
    shift = bits;
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0 ||
      value > INT64_MAX >> shift) {
    return InvalidArgument(Quoted(text), " is not a whole number from 0 to ", INT64_MAX,
                           ", optionally followed by KiB, MiB, GiB or TiB");
  }
  return value << shift;
}

constexpr std::string_view kDiskRead = "disk_read", kDiskWrite = "disk_write";
constexpr std::string_view kActsFor = "acts_for", kModels = "models";

absl::StatusOr<std::set<std::string, std::less<>>> ParseRoots(std::string_view quota,
                                                              std::string_view text) {
  std::set<std::string, std::less<>> roots;
  while (!(text = Trim(text)).empty()) {
    const std::string_view root = text.substr(0, text.find_first_of(" \t"));
    const auto allowed = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    };
    if (root != "*" && !std::ranges::all_of(root, allowed)) {
      return InvalidArgument(
          quota, ": ", Quoted(root),
          " is not the name of a disk root; expected names as in --disk-root NAME=DIR, "
          "with blanks between them, or *");
    }
    roots.emplace(root);
    text.remove_prefix(root.size());
  }
  return roots;
}

absl::StatusOr<std::set<std::string, std::less<>>> ParseModelNames(std::string_view text) {
  std::set<std::string, std::less<>> names;
  while (!(text = Trim(text)).empty()) {
    const std::string_view name = text.substr(0, text.find_first_of(" \t"));
    const std::string_view letters = name.ends_with('*') ? name.substr(0, name.size() - 1) : name;
    const auto allowed = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    };
    if (!std::ranges::all_of(letters, allowed)) {
      return InvalidArgument(
          kModels, ": ", Quoted(name),
          " is not a model's name; expected names, or beginnings of names with * "
          "behind them, with blanks between them");
    }
    names.emplace(name);
    text.remove_prefix(name.size());
  }
  return names;
}

absl::StatusOr<std::set<std::string, std::less<>>> ParseTenantNames(std::string_view text) {
  std::set<std::string, std::less<>> names;
  while (!(text = Trim(text)).empty()) {
    const std::string_view name = text.substr(0, text.find_first_of(" \t"));
    if (name != "*" && !IsTenantName(name)) {
      return InvalidArgument(
          kActsFor, ": ", Quoted(name),
          " is not the name of a tenant; expected names with blanks between them, or *");
    }
    names.emplace(name);
    text.remove_prefix(name.size());
  }
  return names;
}

// Reads the file line by line.
class Parser {
 public:
  Parser(std::string_view file, const Quotas& defaults) : mistakes_(file), defaults_(defaults) {
    table_.others.reset();
    table_.from_file = true;
  }

  void Line(std::string_view line) {
    ++number_;
    line = Trim(line.substr(0, line.find('#')));
    if (line.empty()) return;
    const absl::Status status = line.front() == '[' ? Section(line) : Assignment(line);
    if (!status.ok()) mistakes_.Add(number_, ToStd(status.message()));
  }

  absl::StatusOr<TenantTable> Take() && {
    TG_RETURN_IF_ERROR(mistakes_.ToStatus());
    return std::move(table_);
  }

 private:
  absl::Status Section(std::string_view line) {
    if (line.back() != ']') return InvalidArgument("expected a section header, [NAME] or [*]");
    const std::string name(line.substr(1, line.size() - 2));
    set_.clear();
    if (name == "*") {
      if (table_.others) return InvalidArgument("there are two sections [*]");
      section_ = &table_.others.emplace(defaults_);
      return absl::OkStatus();
    }
    if (!IsTenantName(name)) {
      return InvalidArgument(Quoted(name), " is not the name of a tenant; expected 1 to ",
                             kMaxTenantNameBytes,
                             " letters, digits, '-', '_' or '.', the first a letter or digit");
    }
    const auto [it, fresh] = table_.named.emplace(name, defaults_);
    if (!fresh) return InvalidArgument("a second section [", name, "]");
    section_ = &it->second;
    return absl::OkStatus();
  }

  absl::Status Assignment(std::string_view line) {
    if (section_ == nullptr) {
      return InvalidArgument(
          "a quota stands before the first section; section [*] applies to all tenants without one "
          "of their own");
    }
    TG_RETURN_IF_ERROR(section_->Set(line));
    const std::string name(Trim(line.substr(0, line.find('='))));
    if (!set_.insert(name).second) return InvalidArgument("a second ", name, " in this section");
    return absl::OkStatus();
  }

  Mistakes mistakes_;
  const Quotas defaults_;
  TenantTable table_;
  Quotas* section_ = nullptr;
  std::set<std::string> set_;  // in this section
  int number_ = 0;
};

}  // namespace

std::span<const QuotaInfo> AllQuotas() { return kQuotas; }

bool DiskGrants::MayRead(std::string_view root) const {
  return read.contains("*") || read.contains(root) || MayWrite(root);
}

bool DiskGrants::MayWrite(std::string_view root) const {
  return write.contains("*") || write.contains(root);
}

DiskGrants Quotas::DisksOf(std::string_view tenant) const {
  if (disks_) return *disks_;
  if (tenant == kLocalTenant) return {.write = {"*"}};
  return {};
}

bool ModelGrants::May(std::string_view model) const {
  return names.contains(model) || std::ranges::any_of(names, [&](std::string_view name) {
           return name.ends_with('*') && model.starts_with(name.substr(0, name.size() - 1));
         });
}

ModelGrants Quotas::ModelsOf(std::string_view tenant) const {
  if (models_) return *models_;
  if (tenant == kLocalTenant) return {.names = {"*"}};
  return {};
}

Quotas::Quotas() { std::ranges::transform(kQuotas, limits_.begin(), &QuotaInfo::default_limit); }

absl::Status Quotas::Set(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    return InvalidArgument(Quoted(assignment), " is not NAME=VALUE");
  }
  const std::string_view name = Trim(assignment.substr(0, equals));
  if (name == kDiskRead || name == kDiskWrite) {
    TG_ASSIGN_OR_RETURN(auto roots, ParseRoots(name, Trim(assignment.substr(equals + 1))));
    if (!disks_) disks_.emplace();
    (name == kDiskRead ? disks_->read : disks_->write) = std::move(roots);
    return absl::OkStatus();
  }
  if (name == kModels) {
    TG_ASSIGN_OR_RETURN(auto names, ParseModelNames(Trim(assignment.substr(equals + 1))));
    models_ = ModelGrants{.names = std::move(names)};
    return absl::OkStatus();
  }
  if (name == kActsFor) {
    TG_ASSIGN_OR_RETURN(acts_for_, ParseTenantNames(Trim(assignment.substr(equals + 1))));
    return absl::OkStatus();
  }
  const auto row = std::ranges::find(kQuotas, name, &QuotaInfo::name);
  if (row == std::end(kQuotas)) {
    std::string known;
    for (const QuotaInfo& q : kQuotas) StrAppend(&known, known.empty() ? "" : ", ", q.name);
    return InvalidArgument("unknown quota ", Quoted(name), "; there are ", known, ", ", kDiskRead,
                           ", ", kDiskWrite, ", ", kActsFor, ", ", kModels);
  }
  const auto limit = ParseLimit(Trim(assignment.substr(equals + 1)));
  if (!limit.ok()) return InvalidArgument(name, ": ", ToStd(limit.status().message()));
  if (*limit < row->least) {
    return InvalidArgument(name, ": ", *limit, " is too small; expected at least ", row->least);
  }
  if (*limit > row->most) {
    return InvalidArgument(name, ": ", *limit, " is too large; expected at most ", row->most);
  }
  limits_[static_cast<size_t>(row - kQuotas)] = *limit;
  return absl::OkStatus();
}

absl::StatusOr<TenantTable> ParseTenants(std::string_view text, std::string_view file,
                                         const Quotas& defaults) {
  Parser parser(file, defaults);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    parser.Line(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return std::move(parser).Take();
}

absl::StatusOr<TenantTable> ReadTenants(const std::string& file, const Quotas& defaults) {
  const absl::StatusOr<std::string> text = ReadSmallFile(file);
  if (!text.ok()) {
    return InvalidArgument("cannot read ", file, ": ", ToStd(text.status().message()));
  }
  TG_ASSIGN_OR_RETURN(TenantTable table, ParseTenants(*text, file, defaults));
  table.says_whole = SaysItIsWhole(*text);
  return table;
}

}  // namespace telegrad
