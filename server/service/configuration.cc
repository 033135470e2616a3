// Parses and checks flags, the file and its tenants together. A reload checks the new file in
// the same way and then applies what can change.
#include "server/service/configuration.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/config_file.h"
#include "engine/base/status.h"
#include "server/admin/address.h"
#include "server/admin/log.h"
#include "server/flags.h"
#include "server/identity/reloaded.h"
#include "server/identity/tls_files.h"

namespace telegrad {
namespace {

constexpr int kWrongUsage = 2;

// Flags that say nothing without another one.
absl::Status CheckPairs(const Flags& flags) {
  constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {"tls-cert", "tls-key"},
      {"tls-key", "tls-cert"},
      {"tls-client-ca", "tls-cert"},
      {"tls-tenants", "tls-client-ca"},
      {"tls-crl", "tls-client-ca"},
      {"jwt-issuer", "jwt-keys"},
      {"remote-tls-cert", "remote-tls-key"},
      {"remote-tls-key", "remote-tls-cert"}};
  for (const auto& [flag, needed] : kPairs) {
    if (!flags.GetString(flag).empty() && flags.GetString(needed).empty()) {
      return InvalidArgument("--", flag, " needs --", needed);
    }
  }
  if (!flags.GetList("local-users").empty() && flags.GetString("local-socket").empty()) {
    return InvalidArgument("--local-users needs --local-socket");
  }
  if (!flags.GetString("http").empty() && flags.GetList("models").empty()) {
    return InvalidArgument("--http needs --models");
  }
  return absl::OkStatus();
}

absl::Status CheckAddresses(const Flags& flags) {
  for (const char* name : {"metrics", "http", "otlp"}) {
    if (flags.GetString(name).empty()) continue;
    if (const auto parsed = ParseListenAddress(flags.GetString(name)); !parsed.ok()) {
      return InvalidArgument("--", name, " ", ToStd(parsed.status().message()));
    }
  }
  for (const char* name : {"listen", "data-listen", "admin-listen", "bulk-listen"}) {
    for (const std::string& text : flags.GetList(name)) {
      if (text == "systemd" || text.starts_with("systemd:") || text == "none") continue;
      if (const auto parsed = ParseListenAddress(text); !parsed.ok()) {
        return InvalidArgument("--", name, " ", ToStd(parsed.status().message()));
      }
    }
  }
  return absl::OkStatus();
}

TlsFiles TlsFilesOf(const Flags& flags) {
  return {.certificate = flags.GetString("tls-cert"),
          .key = flags.GetString("tls-key"),
          .client_ca = flags.GetString("tls-client-ca")};
}

absl::StatusOr<Quotas> DefaultQuotas(const Flags& flags, bool one_tenant) {
  Quotas defaults;
  if (one_tenant) defaults[Quota::kSessions] = flags.GetInt("max-sessions");
  for (const std::string& assignment : flags.GetList("default-quota")) {
    if (absl::Status set = defaults.Set(assignment); !set.ok()) {
      return InvalidArgument("--default-quota: ", ToStd(set.message()));
    }
  }
  return defaults;
}

// Whether callers are asked who they are.
bool HasCredentials(const Flags& flags) {
  return !flags.GetString("jwt-keys").empty() || !flags.GetString("tls-client-ca").empty() ||
         !flags.GetString("local-socket").empty();
}

}  // namespace

absl::StatusOr<Configuration> Configuration::Load(const Flags& command_line) {
  Configuration out{.flags = command_line};
  const std::string& path = command_line.GetString("config");
  if (path.empty()) return out;
  const absl::StatusOr<std::string> text = ReadSmallFile(path);
  if (!text.ok()) {
    return InvalidArgument("--config ", path, ": ", ToStd(text.status().message()));
  }
  TG_ASSIGN_OR_RETURN(ConfigFile file, ParseConfig(*text, path, kDaemonFlags));
  std::map<std::string_view, std::vector<std::string>> values;
  for (ConfigFile::Setting& setting : file.settings) {
    values[setting.row->name].push_back(std::move(setting.value));
  }
  for (auto& [name, all] : values) {
    if (!command_line.given(name)) out.flags.Replace(name, std::move(all));
  }
  out.sections = std::move(file.sections);
  out.says_whole = SaysItIsWhole(*text);
  if (!out.sections.empty() && !out.flags.GetString("tenants").empty()) {
    return InvalidArgument("--config ", path, " has sections of tenants, and --tenants ",
                           out.flags.GetString("tenants"),
                           " is another file of them; expected one of the two");
  }
  return out;
}

absl::StatusOr<TenantTable> Configuration::Tenants(bool one_tenant) const {
  TG_ASSIGN_OR_RETURN(const Quotas defaults, DefaultQuotas(flags, one_tenant));
  if (!sections.empty()) {
    TG_ASSIGN_OR_RETURN(TenantTable table,
                        ParseTenants(sections, flags.GetString("config"), defaults));
    table.flag = "--config";
    return table;
  }
  if (const std::string& file = flags.GetString("tenants"); !file.empty()) {
    return ReadTenants(file, defaults);
  }
  return TenantTable{.named = {}, .others = defaults};
}

absl::Status Configuration::Check() const {
  TG_RETURN_IF_ERROR(CheckPairs(flags));
  TG_RETURN_IF_ERROR(CheckAddresses(flags));
  TG_RETURN_IF_ERROR(Tenants(!HasCredentials(flags)).status());
  const TlsFiles tls = TlsFilesOf(flags);
  return tls.certificate.empty() ? absl::OkStatus() : CheckTlsFiles(tls);
}

std::string Configuration::Print() const {
  std::string out = PrintConfig(kDaemonFlags, flags);
  const size_t first = sections.find('[');
  if (first != std::string::npos) StrAppend(&out, sections.substr(first));
  if (!SaysItIsWhole(out)) StrAppend(&out, out.ends_with('\n') ? "" : "\n", "# end\n");
  return out;
}

Reloader::Reloader(Flags command_line, Configuration running, Authenticator* authenticator,
                   TenantDirectory* tenants)
    : command_line_(std::move(command_line)),
      started_(running),
      authenticator_(*authenticator),
      tenants_(*tenants),
      now_(std::move(running)) {
  const auto table = started_.Tenants(authenticator_.open());
  tenants_say_whole_ = table.ok() && table->says_whole;
}

int64_t Reloader::drain_seconds() const {
  const MutexLock lock(mutex_);
  return now_.flags.GetInt("drain-seconds");
}

absl::StatusOr<std::vector<std::string>> Reloader::Reload() {
  const MutexLock lock(mutex_);
  auto waiting = ReloadLocked();
  if (!waiting.ok()) {
    Log(LogLevel::kError, "reload_refused", {{"reason", waiting.status().message()}});
    return waiting;
  }
  std::string names;
  for (const std::string& name : *waiting) StrAppend(&names, names.empty() ? "" : ",", name);
  if (!names.empty()) Log(LogLevel::kWarning, "restart_needed", {{"flags", names}});
  Log(LogLevel::kInfo, "reloaded");
  return waiting;
}

absl::Status Reloader::CheckWhole(const Configuration& next, const TenantTable& tenants) const {
  const auto cut = [](std::string_view flag, const std::string& file) {
    return InvalidArgument("--", flag, " ", file, ": its last line was \"# end\" and is not any ",
                           "more, so the file may be cut; end it with that line, or restart");
  };
  if (now_.says_whole && !next.says_whole) return cut("config", next.flags.GetString("config"));
  const std::string& file = next.flags.GetString("tenants");
  if (tenants_say_whole_ && !tenants.says_whole && file == now_.flags.GetString("tenants")) {
    return cut("tenants", file);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Reloader::ReloadLocked() {
  TG_ASSIGN_OR_RETURN(Configuration next, Configuration::Load(command_line_));
  TG_RETURN_IF_ERROR(next.Check());
  TG_ASSIGN_OR_RETURN(TenantTable table, next.Tenants(authenticator_.open()));
  TG_RETURN_IF_ERROR(CheckWhole(next, table));
  // From here on nothing fails.
  const std::string& level = next.flags.GetString("log-level");
  if (level != now_.flags.GetString("log-level")) SetLogLevel(*LogLevelFromText(level));
  authenticator_.Refresh();
  tenants_say_whole_ = table.says_whole;
  tenants_.Replace(std::move(table));
  std::vector<std::string> waiting;
  for (const FlagRow& row : kDaemonFlags) {
    if (row.reload == FlagReload::kReloaded || row.reload == FlagReload::kCommandLine) continue;
    if (next.flags.GetList(row.name) != started_.flags.GetList(row.name)) {
      waiting.emplace_back(row.name);
    }
  }
  now_ = std::move(next);
  return waiting;
}

std::optional<int> AnswerConfiguration(const Flags& command_line,
                                       const absl::StatusOr<Configuration>& loaded) {
  const bool check = command_line.GetBool("check-config");
  if (!check && !command_line.GetBool("print-config")) return std::nullopt;
  absl::Status status = loaded.status();
  if (status.ok() && check) status = loaded->Check();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return kWrongUsage;
  }
  const std::string& file = command_line.GetString("config");
  const std::string text =
      !check ? loaded->Print()
             : StrCat(file.empty() ? "the command line" : file, ": no mistakes were found\n");
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace telegrad
