// The key by which a server shows another one who it is on a bulk socket between the two: Ed25519
// (RFC 8032), made anew at each start and never stored. Whoever gives out a ticket binds it to the
// public half, so that it is of no use to anybody else.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

struct evp_pkey_st;

namespace telegrad {

inline constexpr size_t kPeerKeyBytes = 32, kPeerSignatureBytes = 64;

class PeerKey {
 public:
  static absl::StatusOr<std::unique_ptr<PeerKey>> Generate();
  ~PeerKey();
  PeerKey(const PeerKey&) = delete;
  PeerKey& operator=(const PeerKey&) = delete;

  const std::string& public_key() const { return public_key_; }  // kPeerKeyBytes
  // Of the token of a bulk socket, kPeerSignatureBytes.
  absl::StatusOr<std::string> Sign(std::string_view token) const;

 private:
  PeerKey(evp_pkey_st* key, std::string public_key)
      : key_(key), public_key_(std::move(public_key)) {}
  evp_pkey_st* const key_;
  const std::string public_key_;
};

bool IsPeerSignature(std::string_view public_key, std::string_view token,
                     std::string_view signature);

}  // namespace telegrad
