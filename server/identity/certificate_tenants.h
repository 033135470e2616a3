// The tenant of a verified client certificate, by its subject alternative names:
//
//   URI telegrad://tenant/NAME         tenant NAME
//   URI telegrad://tenant/NAME/admin   the same, and may administer
//   any other                          as a file says, a line for each name:
//
//     # kind:value                          tenant  [admin]
//     uri:spiffe://example.org/trainer      research
//     dns:worker.example.org                research
//     email:ann@example.org                 ops      admin
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "server/identity/principal.h"
#include "server/identity/reloaded.h"

namespace telegrad {

// One subject alternative name.
struct CertificateName {
  std::string_view kind;  // "uri", "dns" or "email"
  std::string value;
};

class CertificateTenants {
 public:
  // The file may change while the daemon runs; one that cannot be parsed is logged, and the last
  // valid one stays in force. An empty path is no file.
  static absl::StatusOr<std::unique_ptr<CertificateTenants>> Open(const std::string& path);

  // UNAUTHENTICATED unless all names that are known mean the same.
  absl::StatusOr<Principal> Find(std::span<const CertificateName> names);
  void Refresh() { rows_.Refresh(); }  // looks now whether the file has changed

  using Rows = std::map<std::string, Principal>;             // by "kind:value"
  static absl::StatusOr<Rows> Parse(std::string_view text);  // the error has the line

 private:
  explicit CertificateTenants(const std::string& path, Rows first, std::string stamp);
  Reloaded<Rows> rows_;
};

}  // namespace telegrad
