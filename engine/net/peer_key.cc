#include "engine/net/peer_key.h"

#include <openssl/evp.h>

#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

// So that no signature under this key means anything else.
std::string Signed(std::string_view token) { return StrCat("telegrad peer", token); }

const unsigned char* Unsigned(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MD_CTX, FreeContext>;

}  // namespace

absl::StatusOr<std::unique_ptr<PeerKey>> PeerKey::Generate() {
  std::unique_ptr<EVP_PKEY, FreeKey> key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  std::string raw(kPeerKeyBytes, '\0');
  size_t size = raw.size();
  if (key == nullptr ||
      EVP_PKEY_get_raw_public_key(key.get(), reinterpret_cast<unsigned char*>(raw.data()), &size) !=
          1 ||
      size != raw.size()) {
    return Internal("the cryptographic library made no Ed25519 key");
  }
  return std::unique_ptr<PeerKey>(new PeerKey(key.release(), std::move(raw)));
}

PeerKey::~PeerKey() { EVP_PKEY_free(key_); }

absl::StatusOr<std::string> PeerKey::Sign(std::string_view token) const {
  const std::string text = Signed(token);
  const Context context(EVP_MD_CTX_new());
  std::string signature(kPeerSignatureBytes, '\0');
  size_t size = signature.size();
  if (context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                     Unsigned(text), text.size()) != 1 ||
      size != signature.size()) {
    return Internal("the cryptographic library made no Ed25519 signature");
  }
  return signature;
}

bool IsPeerSignature(std::string_view public_key, std::string_view token,
                     std::string_view signature) {
  const std::unique_ptr<EVP_PKEY, FreeKey> key(EVP_PKEY_new_raw_public_key(
      EVP_PKEY_ED25519, nullptr, Unsigned(public_key), public_key.size()));
  const Context context(EVP_MD_CTX_new());
  const std::string text = Signed(token);
  return key != nullptr && context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), Unsigned(signature), signature.size(), Unsigned(text),
                          text.size()) == 1;
}

}  // namespace telegrad
