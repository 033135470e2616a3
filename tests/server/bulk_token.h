// The proof by which a client of a bulk socket shows that it has a ticket.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/net/proof.h"
#include "engine/net/psk_tls.h"

namespace telegrad {

inline constexpr std::string_view kNonce = "sixteen bytes...";

inline std::string Token(const PresharedKey& key) {
  return StrCat(key.identity, kNonce, Prove(key.secret, Prover::kClient, kNonce));
}

}  // namespace telegrad
