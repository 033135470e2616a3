// Reads the lists with OpenSSL, checks the signature of each against the authorities, and keeps
// issuers with serial numbers in a set.
#include "server/identity/revocation_list.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

// Limit of the cached ids, which are cached because every call of a connection has the same PEM.
constexpr size_t kMostKnown = 4096;

template <typename T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* value) const { kFree(value); }
};
using Certificate = std::unique_ptr<X509, Freed<X509, X509_free>>;
using Crl = std::unique_ptr<X509_CRL, Freed<X509_CRL, X509_CRL_free>>;

std::string IdOf(const X509_NAME* issuer, const ASN1_INTEGER* serial) {
  unsigned char* bytes = nullptr;
  const int size = i2d_X509_NAME(issuer, &bytes);
  std::string id(reinterpret_cast<const char*>(bytes), size > 0 ? static_cast<size_t>(size) : 0);
  OPENSSL_free(bytes);
  id.append(reinterpret_cast<const char*>(ASN1_STRING_get0_data(serial)),
            static_cast<size_t>(ASN1_STRING_length(serial)));
  return id;
}

// All that `read` finds in the text, one after another.
template <typename T, typename Read>
std::vector<T> ReadPem(const std::string& text, Read read) {
  BIO* const bio = BIO_new_mem_buf(text.data(), static_cast<int>(text.size()));
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  std::vector<T> all;
  for (T next(read(bio, nullptr, no_passphrase, nullptr)); next != nullptr;
       next.reset(read(bio, nullptr, no_passphrase, nullptr))) {
    all.push_back(std::move(next));
  }
  BIO_free(bio);
  ERR_clear_error();
  return all;
}

absl::StatusOr<std::string> ReadListFile(const std::string& path) {
  auto text = ReadSmallFile(path);
  if (text.ok()) return text;
  const std::string message = StrCat(path, ": ", text.status().message());
  if (absl::IsUnavailable(text.status())) return absl::UnavailableError(message);
  return InvalidArgument(message);
}

bool SignedByOneOf(const std::vector<Certificate>& authorities, X509_CRL* crl) {
  for (const Certificate& authority : authorities) {
    if (X509_NAME_cmp(X509_get_subject_name(authority.get()), X509_CRL_get_issuer(crl)) != 0) {
      continue;
    }
    const bool is_its = X509_CRL_verify(crl, X509_get0_pubkey(authority.get())) == 1;
    ERR_clear_error();
    if (is_its) return true;
  }
  return false;
}

absl::StatusOr<RevocationList::Ids> ReadLists(const std::string& path,
                                              const std::string& authorities_path) {
  TG_ASSIGN_OR_RETURN(const std::string text, ReadListFile(path));
  TG_ASSIGN_OR_RETURN(const std::string authorities_text, ReadListFile(authorities_path));
  const auto authorities = ReadPem<Certificate>(authorities_text, &PEM_read_bio_X509);
  const auto lists = ReadPem<Crl>(text, &PEM_read_bio_X509_CRL);
  if (lists.empty()) {
    return InvalidArgument(path, ": expected a revocation list in PEM (\"BEGIN X509 CRL\")");
  }
  // Of a file that is half written, the lists that are missing would have been forgotten.
  size_t begun = 0;
  constexpr std::string_view kBegin = "-----BEGIN X509 CRL-----";
  for (size_t at = text.find(kBegin); at != text.npos; at = text.find(kBegin, at + 1)) ++begun;
  if (lists.size() != begun) {
    return InvalidArgument(path, ": ", begun, " lists begin, of which ", lists.size(),
                           " can be parsed");
  }
  RevocationList::Ids ids;
  for (const Crl& list : lists) {
    if (!SignedByOneOf(authorities, list.get())) {
      return InvalidArgument(path, ": a list is not signed by an authority of ", authorities_path);
    }
    const ASN1_TIME* const next = X509_CRL_get0_nextUpdate(list.get());
    if (next != nullptr && X509_cmp_current_time(next) < 0) {
      Log(LogLevel::kWarning, "crl_is_late", {{"file", path}});
    }
    STACK_OF(X509_REVOKED)* const rows = X509_CRL_get_REVOKED(list.get());
    for (int i = 0; i < sk_X509_REVOKED_num(rows); ++i) {
      const X509_REVOKED* const row = sk_X509_REVOKED_value(rows, i);
      ids.insert(IdOf(X509_CRL_get_issuer(list.get()), X509_REVOKED_get0_serialNumber(row)));
    }
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RevocationList>> RevocationList::Open(
    const std::string& path, const std::string& authorities, std::chrono::milliseconds interval) {
  std::string stamp = FileStamp(path);
  TG_ASSIGN_OR_RETURN(Ids ids, ReadLists(path, authorities));
  return std::unique_ptr<RevocationList>(
      new RevocationList(path, authorities, std::move(ids), std::move(stamp), interval));
}

RevocationList::RevocationList(const std::string& path, const std::string& authorities, Ids first,
                               std::string stamp, std::chrono::milliseconds interval)
    : ids_(
          std::make_shared<const Ids>(std::move(first)), std::move(stamp),
          [path] { return FileStamp(path); },
          [path, authorities](const Ids&) -> Reloaded<Ids>::Loaded {
            absl::StatusOr<Ids> ids = ReadLists(path, authorities);
            if (!ids.ok()) {
              Log(LogLevel::kError, "tls_crl_refused", {{"reason", ids.status().message()}});
              return {.value = nullptr, .again = absl::IsUnavailable(ids.status())};
            }
            Log(LogLevel::kInfo, "tls_crl_read", {{"revoked", ids->size()}});
            return {.value = std::make_shared<const Ids>(*std::move(ids))};
          },
          interval) {}

absl::StatusOr<std::string> RevocationList::Check(const std::string& certificate) {
  std::string id;
  {
    const MutexLock lock(mutex_);
    const auto known = known_.find(certificate);
    if (known != known_.end()) id = known->second;
  }
  if (id.empty()) {
    const auto read = ReadPem<Certificate>(certificate, &PEM_read_bio_X509);
    if (read.empty()) return absl::UnauthenticatedError("the certificate cannot be parsed");
    id = IdOf(X509_get_issuer_name(read[0].get()), X509_get0_serialNumber(read[0].get()));
    const MutexLock lock(mutex_);
    if (known_.size() >= kMostKnown) known_.clear();
    known_[certificate] = id;
  }
  TG_RETURN_IF_ERROR(CheckId(id));
  return id;
}

absl::Status RevocationList::CheckId(const std::string& id) {
  if (!ids_.Get()->contains(id)) return absl::OkStatus();
  return absl::UnauthenticatedError("the certificate was revoked");
}

}  // namespace telegrad
