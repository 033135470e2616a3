// Reads the files with GnuTLS, verifies a client's chain, and takes the names in its certificate
// for the authenticator.
#include "server/http/http_tls.h"

#include <gnutls/x509.h>

#include <utility>

#include "engine/base/status.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

constexpr unsigned kMostChain = 16;   // certificates of a chain
constexpr unsigned kMostNames = 256;  // alternative names of one

std::string StampOf(const TlsFiles& files) {
  std::string out;
  for (const std::string* path : {&files.certificate, &files.key, &files.client_ca}) {
    if (path->empty()) continue;
    const std::string stamp = FileStamp(*path);
    if (stamp.empty()) return "";
    StrAppend(&out, stamp, "\n");
  }
  return out;
}

absl::StatusOr<HttpTls::Texts> Read(const TlsFiles& files) {
  TG_RETURN_IF_ERROR(CheckTlsFiles(files));
  HttpTls::Texts out;
  TG_ASSIGN_OR_RETURN(out.certificate, ReadSmallFile(files.certificate));
  TG_ASSIGN_OR_RETURN(out.key, ReadSmallFile(files.key));
  if (!files.client_ca.empty()) {
    TG_ASSIGN_OR_RETURN(out.client_ca, ReadSmallFile(files.client_ca));
  }
  return out;
}

gnutls_datum_t DatumOf(const std::string& text) {
  return {.data = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())),
          .size = static_cast<unsigned>(text.size())};
}

// Certificates of a chain, the caller's own first.
class Chain {
 public:
  ~Chain() {
    for (gnutls_x509_crt_t certificate : certificates_) gnutls_x509_crt_deinit(certificate);
  }
  bool Add(const gnutls_datum_t& der) {
    gnutls_x509_crt_t certificate = nullptr;
    if (gnutls_x509_crt_init(&certificate) < 0) return false;
    certificates_.push_back(certificate);
    return gnutls_x509_crt_import(certificate, &der, GNUTLS_X509_FMT_DER) == 0;
  }
  std::vector<gnutls_x509_crt_t>& certificates() { return certificates_; }

 private:
  std::vector<gnutls_x509_crt_t> certificates_;
};

class TrustList {
 public:
  explicit TrustList(const std::string& authorities) {
    if (gnutls_x509_trust_list_init(&list_, 0) < 0) return;
    const gnutls_datum_t text = DatumOf(authorities);
    gnutls_x509_trust_list_add_trust_mem(list_, &text, nullptr, GNUTLS_X509_FMT_PEM, 0, 0);
  }
  ~TrustList() {
    if (list_ != nullptr) gnutls_x509_trust_list_deinit(list_, /*all=*/1);
  }
  bool Signed(Chain& chain) const {
    char purpose[] = GNUTLS_KP_TLS_WWW_CLIENT;
    gnutls_typed_vdata_st for_clients{.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                      .data = reinterpret_cast<unsigned char*>(purpose),
                                      .size = 0};
    unsigned wrong = 0;
    auto& certificates = chain.certificates();
    return list_ != nullptr &&
           gnutls_x509_trust_list_verify_crt2(list_, certificates.data(),
                                              static_cast<unsigned>(certificates.size()),
                                              &for_clients, 1, 0, &wrong, nullptr) == 0 &&
           wrong == 0;
  }

 private:
  gnutls_x509_trust_list_t list_ = nullptr;
};

std::string_view KindOf(unsigned type) {
  if (type == GNUTLS_SAN_URI) return "uri";
  if (type == GNUTLS_SAN_DNSNAME) return "dns";
  return type == GNUTLS_SAN_RFC822NAME ? "email" : "";
}

std::vector<CertificateName> NamesOf(gnutls_x509_crt_t certificate) {
  std::vector<CertificateName> out;
  std::string name(4096, '\0');
  for (unsigned i = 0; i < kMostNames; ++i) {
    size_t size = name.size();
    unsigned type = 0;
    const int got =
        gnutls_x509_crt_get_subject_alt_name2(certificate, i, name.data(), &size, &type, nullptr);
    if (got == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE) break;
    if (got < 0 || KindOf(type).empty()) continue;
    std::string value(name.data(), size);
    if (value.ends_with('\0')) value.pop_back();
    out.push_back({KindOf(type), std::move(value)});
  }
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpTls>> HttpTls::Open(const TlsFiles& files) {
  std::string stamp = StampOf(files);
  TG_ASSIGN_OR_RETURN(Texts first, Read(files));
  return std::unique_ptr<HttpTls>(new HttpTls(files, std::move(first), std::move(stamp)));
}

HttpTls::HttpTls(const TlsFiles& files, Texts first, std::string stamp)
    : asks_(!files.client_ca.empty()),
      texts_(
          std::make_shared<const Texts>(std::move(first)), std::move(stamp),
          [files] { return StampOf(files); },
          [files](const Texts&) -> Reloaded<Texts>::Loaded {
            absl::StatusOr<Texts> texts = Read(files);
            if (texts.ok()) return {.value = std::make_shared<const Texts>(*std::move(texts))};
            Log(LogLevel::kError, "http_tls_refused", {{"reason", texts.status().message()}});
            return {.value = nullptr, .again = absl::IsUnavailable(texts.status())};
          }) {}

bool HttpTls::Show(gnutls_pcert_st** certificates, unsigned* count, gnutls_privkey_t* key) {
  const auto texts = Get();
  const gnutls_datum_t chain = DatumOf(texts->certificate), key_text = DatumOf(texts->key);
  auto* const list =
      static_cast<gnutls_pcert_st*>(gnutls_calloc(kMostChain, sizeof(gnutls_pcert_st)));
  if (list == nullptr) return false;
  unsigned found = kMostChain;
  if (gnutls_pcert_list_import_x509_raw(list, &found, &chain, GNUTLS_X509_FMT_PEM, 0) < 0) {
    found = 0;
  }
  gnutls_privkey_t made = nullptr;
  if (found > 0 && gnutls_privkey_init(&made) == 0 &&
      gnutls_privkey_import_x509_raw(made, &key_text, GNUTLS_X509_FMT_PEM, nullptr, 0) == 0) {
    *certificates = list;
    *count = found;
    *key = made;
    return true;
  }
  if (made != nullptr) gnutls_privkey_deinit(made);
  for (unsigned i = 0; i < found; ++i) gnutls_pcert_deinit(list + i);
  gnutls_free(list);
  return false;
}

absl::StatusOr<HttpCertificate> HttpTls::CallerOf(gnutls_session_t session) {
  HttpCertificate out;
  if (!asks_) return out;
  unsigned count = 0;
  const gnutls_datum_t* const shown = gnutls_certificate_get_peers(session, &count);
  if (shown == nullptr || count == 0) return out;
  if (count > kMostChain) return absl::UnauthenticatedError("a chain of too many certificates");
  Chain chain;
  for (unsigned i = 0; i < count; ++i) {
    if (!chain.Add(shown[i])) return absl::UnauthenticatedError("a malformed certificate");
  }
  if (!TrustList(Get()->client_ca).Signed(chain)) {
    return absl::UnauthenticatedError(
        "the client certificate is not valid now, or no authority of --tls-client-ca has signed "
        "it");
  }
  gnutls_datum_t pem{};
  if (gnutls_x509_crt_export2(chain.certificates().front(), GNUTLS_X509_FMT_PEM, &pem) < 0) {
    return absl::UnauthenticatedError("a certificate that cannot be written");
  }
  out.pem.assign(reinterpret_cast<const char*>(pem.data), pem.size);
  gnutls_free(pem.data);
  out.names = NamesOf(chain.certificates().front());
  return out;
}

}  // namespace telegrad
