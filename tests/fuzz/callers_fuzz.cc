// Everything from which the identity and the rights of a caller are derived: tokens, the files
// of tenants, keys, and flags of that kind. The first byte selects one.
#include <string>
#include <string_view>
#include <vector>

#include "server/identity/base64url.h"
#include "server/identity/certificate_tenants.h"
#include "server/identity/local_socket.h"
#include "server/identity/token.h"
#include "server/tenant/quotas.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad {
namespace {

const std::string& Secret() {
  static const std::string secret(32, 's');
  return secret;
}

const KeySet& Keys() {
  static const KeySet keys = {{"shared", *SignatureKey::FromSecret(Secret())}};
  return keys;
}

absl::StatusOr<Principal> Verify(std::string_view token) {
  const absl::StatusOr<Principal> principal = VerifyToken(
      token, Keys(), {.issuer = "", .audience = "telegrad"}, absl::FromUnixSeconds(1'800'000'000));
  if (principal.ok()) {
    FUZZ_CHECK(IsTenantName(principal->tenant));
  } else {
    FUZZ_CHECK(absl::IsUnauthenticated(principal.status()));
    FUZZ_CHECK(!principal.status().message().empty());
  }
  return principal;
}

// Nobody who does not know the secret makes a token.
void FuzzToken(std::string_view token) { FUZZ_CHECK(!Verify(token).ok()); }

// Header and claims, each up to a newline, with a signature that holds.
void FuzzSigned(std::string_view text) {
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return;
  const std::string message =
      StrCat(Base64UrlEncode(text.substr(0, line)), ".", Base64UrlEncode(text.substr(line + 1)));
  const std::string signature = Hmac(Secret(), message);
  const bool taken = Verify(StrCat(message, ".", Base64UrlEncode(signature))).ok();
  std::string other = signature;
  other.back() = static_cast<char>(other.back() ^ 1);
  FUZZ_CHECK(!Verify(StrCat(message, ".", Base64UrlEncode(other))).ok());
  static fuzz::Count count("signed tokens taken");
  count.Input();
  if (taken) count.Passed();
}

void FuzzTenants(std::string_view text) {
  const absl::StatusOr<TenantTable> table = ParseTenants(text, "file", Quotas());
  if (!table.ok()) {
    FUZZ_CHECK(table.status().message().substr(0, 5) == "file:");
    return;
  }
  const auto check = [](const Quotas& quotas) {
    for (int i = 0; i < kNumQuotas; ++i) FUZZ_CHECK(quotas[static_cast<Quota>(i)] >= 0);
  };
  for (const auto& [name, quotas] : table->named) {
    FUZZ_CHECK(IsTenantName(name));
    check(quotas);
  }
  if (table->others) check(*table->others);
}

void FuzzCertificates(std::string_view text) {
  const auto rows = CertificateTenants::Parse(text);
  if (!rows.ok()) {
    FUZZ_CHECK(!rows.status().message().empty());
    return;
  }
  for (const auto& [name, principal] : *rows) {
    FUZZ_CHECK(name.find(':') != std::string::npos);
    FUZZ_CHECK(IsTenantName(principal.tenant));
  }
}

// Names as they stand in a certificate, each on a line: whoever they mean has a tenant's name.
void FuzzNames(std::string_view text) {
  static CertificateTenants* const tenants = CertificateTenants::Open("")->release();
  std::vector<CertificateName> names;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    names.push_back({"uri", std::string(text.substr(0, end))});
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  const auto principal = tenants->Find(names);
  FUZZ_CHECK(principal.ok() ? IsTenantName(principal->tenant)
                            : absl::IsUnauthenticated(principal.status()));
}

}  // namespace
}  // namespace telegrad

FUZZ_TARGET(data) {
  using namespace telegrad;
  if (data.empty()) return;
  const std::string_view text(reinterpret_cast<const char*>(data.data()) + 1, data.size() - 1);
  switch (data[0] % 8) {
    case 0:
      return FuzzToken(text);
    case 1:
    case 2:
      return FuzzSigned(text);
    case 3:
      return FuzzTenants(text);
    case 4:
      return FuzzCertificates(text);
    case 5:
      return FuzzNames(text);
    case 6: {
      const auto key = SignatureKey::FromPem(text);
      if (key.ok()) FUZZ_CHECK(!key->Verify("message", text));
      return;
    }
    default: {
      const std::string row(text);
      (void)LocalUsers::Parse({&row, 1});
      Quotas quotas;
      (void)quotas.Set(text);
      return;
    }
  }
}
