// Parses the file of names line by line, and looks up the names of a certificate in it. Names
// that give different tenants give none.
#include "server/identity/certificate_tenants.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

constexpr std::string_view kKinds[] = {"uri", "dns", "email"};
constexpr std::string_view kTenantUri = "telegrad://tenant/";
constexpr std::string_view kAdmin = "admin";

// Of our own form of URI.
std::optional<Principal> FromUri(std::string_view uri) {
  if (!uri.starts_with(kTenantUri)) return std::nullopt;
  const std::string_view path = uri.substr(kTenantUri.size());
  const std::string_view name = path.substr(0, path.find('/'));
  const std::string_view rest = path.substr(name.size());
  if (!IsTenantName(name) || (!rest.empty() && rest != "/admin")) return std::nullopt;
  return Principal{std::string(uri), std::string(name), !rest.empty()};
}

absl::Status ParseLine(std::string_view line, CertificateTenants::Rows* rows) {
  const std::vector<std::string> words =
      absl::StrSplit(ToAbsl(line), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.empty() || words[0].starts_with('#')) return absl::OkStatus();
  const size_t colon = words[0].find(':');
  if (colon == std::string::npos || colon + 1 == words[0].size() ||
      std::ranges::find(kKinds, words[0].substr(0, colon)) == std::end(kKinds)) {
    return InvalidArgument("\"", words[0], "\"; expected uri:VALUE, dns:VALUE or email:VALUE");
  }
  if (words.size() < 2 || !IsTenantName(words[1])) {
    return InvalidArgument("expected the name of a tenant after ", words[0]);
  }
  if (words.size() > 3 || (words.size() == 3 && words[2] != kAdmin)) {
    return InvalidArgument("expected nothing or \"admin\" after ", words[0], " ", words[1]);
  }
  if (!rows->emplace(words[0], Principal{words[0], words[1], words.size() == 3}).second) {
    return InvalidArgument("there are two lines for ", words[0]);
  }
  return absl::OkStatus();
}

absl::Status Unread(const std::string& path, const absl::Status& error) {
  const std::string message = StrCat(path, ": ", error.message());
  return absl::IsUnavailable(error) ? absl::UnavailableError(message) : InvalidArgument(message);
}

absl::StatusOr<CertificateTenants::Rows> Read(const std::string& path) {
  if (path.empty()) return CertificateTenants::Rows{};
  const absl::StatusOr<std::string> text = ReadSmallFile(path);
  if (!text.ok()) return Unread(path, text.status());
  auto rows = CertificateTenants::Parse(*text);
  if (!rows.ok()) return InvalidArgument(path, ", ", rows.status().message());
  return rows;
}

}  // namespace

absl::StatusOr<CertificateTenants::Rows> CertificateTenants::Parse(std::string_view text) {
  Rows rows;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(ToAbsl(text), '\n')) {
    ++number;
    if (const absl::Status status = ParseLine(ToStd(line), &rows); !status.ok()) {
      return InvalidArgument("line ", number, ": ", status.message());
    }
  }
  return rows;
}

absl::StatusOr<std::unique_ptr<CertificateTenants>> CertificateTenants::Open(
    const std::string& path) {
  std::string stamp = FileStamp(path);
  TG_ASSIGN_OR_RETURN(Rows rows, Read(path));
  return std::unique_ptr<CertificateTenants>(
      new CertificateTenants(path, std::move(rows), std::move(stamp)));
}

CertificateTenants::CertificateTenants(const std::string& path, Rows first, std::string stamp)
    : rows_(
          std::make_shared<const Rows>(std::move(first)), std::move(stamp),
          [path] { return FileStamp(path); },
          [path](const Rows&) -> Reloaded<Rows>::Loaded {
            absl::StatusOr<Rows> rows = Read(path);
            if (rows.ok()) return {.value = std::make_shared<const Rows>(*std::move(rows))};
            Log(LogLevel::kError, "tls_tenants_refused", {{"reason", rows.status().message()}});
            return {.value = nullptr, .again = absl::IsUnavailable(rows.status())};
          }) {}

absl::StatusOr<Principal> CertificateTenants::Find(std::span<const CertificateName> names) {
  const std::shared_ptr<const Rows> rows = rows_.Get();
  std::optional<Principal> found;
  for (const CertificateName& name : names) {
    std::optional<Principal> known;
    if (name.kind == "uri") known = FromUri(name.value);
    if (const auto row = rows->find(StrCat(name.kind, ":", name.value)); row != rows->end()) {
      known = row->second;
    }
    if (!known) continue;
    if (found && (found->tenant != known->tenant || found->admin != known->admin)) {
      return absl::UnauthenticatedError(StrCat("the certificate's names ", found->subject, " and ",
                                               known->subject, " belong to different tenants"));
    }
    if (!found) found = std::move(known);
  }
  if (found) return *std::move(found);
  return absl::UnauthenticatedError(
      "none of the certificate's names belongs to a tenant; add one to the file of --tls-tenants");
}

}  // namespace telegrad
