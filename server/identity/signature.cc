// OpenSSL does the cryptography. An ECDSA signature is two numbers of 32 bytes in a token and DER
// for OpenSSL.
#include "server/identity/signature.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include <functional>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr std::string_view kEdDsa = "EdDSA", kEs256 = "ES256", kRs256 = "RS256", kHs256 = "HS256";
constexpr int kMinRsaBits = 2048;
constexpr size_t kMinSecretBytes = 32;
constexpr size_t kEcNumberBytes = 32;

const unsigned char* Data(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

absl::StatusOr<std::string_view> AlgorithmOf(EVP_PKEY* key) {
  switch (EVP_PKEY_get_base_id(key)) {
    case EVP_PKEY_ED25519:
      return kEdDsa;
    case EVP_PKEY_EC: {
      char group[32] = "";
      EVP_PKEY_get_group_name(key, group, sizeof(group), nullptr);
      if (std::string_view(group) == "prime256v1") return kEs256;
      return InvalidArgument("an EC key on ", group, "; expected one on P-256");
    }
    case EVP_PKEY_RSA:
      if (EVP_PKEY_get_bits(key) >= kMinRsaBits) return kRs256;
      return InvalidArgument("an RSA key of ", EVP_PKEY_get_bits(key), " bits; expected at least ",
                             kMinRsaBits);
    default:
      return InvalidArgument("expected an Ed25519, EC (P-256) or RSA key");
  }
}

// Empty unless `raw` is two numbers.
std::string EcdsaToDer(std::string_view raw) {
  if (raw.size() != 2 * kEcNumberBytes) return "";
  ECDSA_SIG* const signature = ECDSA_SIG_new();
  ECDSA_SIG_set0(signature, BN_bin2bn(Data(raw), kEcNumberBytes, nullptr),
                 BN_bin2bn(Data(raw) + kEcNumberBytes, kEcNumberBytes, nullptr));
  unsigned char* der = nullptr;
  const int size = i2d_ECDSA_SIG(signature, &der);
  std::string out(reinterpret_cast<char*>(der), size > 0 ? static_cast<size_t>(size) : 0);
  OPENSSL_free(der);
  ECDSA_SIG_free(signature);
  return out;
}

}  // namespace

absl::StatusOr<SignatureKey> SignatureKey::FromPem(std::string_view pem) {
  if (pem.find("PRIVATE KEY") != std::string_view::npos) {
    return InvalidArgument("a private key; the server needs the public one alone");
  }
  BIO* const bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  EVP_PKEY* const read = PEM_read_bio_PUBKEY(bio, nullptr, no_passphrase, nullptr);
  BIO_free(bio);
  ERR_clear_error();
  if (read == nullptr) return InvalidArgument("no public key in PEM (\"BEGIN PUBLIC KEY\")");
  SignatureKey key;
  key.key_.reset(read, &EVP_PKEY_free);
  TG_ASSIGN_OR_RETURN(key.algorithm_, AlgorithmOf(read));
  key.fingerprint_ = std::hash<std::string_view>()(pem);
  return key;
}

absl::StatusOr<SignatureKey> SignatureKey::FromSecret(std::string secret) {
  if (secret.size() < kMinSecretBytes) {
    return InvalidArgument("a secret of ", secret.size(), " bytes; expected at least ",
                           kMinSecretBytes);
  }
  SignatureKey key;
  key.algorithm_ = kHs256;
  key.secret_ = std::move(secret);
  key.fingerprint_ = std::hash<std::string_view>()(key.secret_);
  return key;
}

bool SignatureKey::Verify(std::string_view message, std::string_view signature) const {
  if (key_ == nullptr) {
    const std::string want = Hmac(secret_, message);
    return signature.size() == want.size() &&
           CRYPTO_memcmp(signature.data(), want.data(), want.size()) == 0;
  }
  std::string der;
  if (algorithm_ == kEs256) signature = der = EcdsaToDer(signature);
  EVP_MD_CTX* const context = EVP_MD_CTX_new();
  const EVP_MD* const digest = algorithm_ == kEdDsa ? nullptr : EVP_sha256();
  const bool valid = EVP_DigestVerifyInit(context, nullptr, digest, nullptr, key_.get()) == 1 &&
                     EVP_DigestVerify(context, Data(signature), signature.size(), Data(message),
                                      message.size()) == 1;
  EVP_MD_CTX_free(context);
  ERR_clear_error();
  return valid;
}

std::string Hmac(std::string_view secret, std::string_view message) {
  std::string out(32, '\0');
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), Data(message), message.size(),
       reinterpret_cast<unsigned char*>(out.data()), nullptr);
  return out;
}

}  // namespace telegrad
