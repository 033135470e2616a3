// The signature is verified before the claims are parsed, so that a caller without a key reaches
// only the parser of the header.
#include "server/identity/token.h"

#include <openssl/rand.h>

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "server/identity/base64url.h"

namespace telegrad {
namespace {

template <typename... Args>
absl::Status Refused(const Args&... args) {
  return absl::UnauthenticatedError(StrCat(args...));
}

constexpr size_t kMaxNameBytes = 256;
constexpr std::string_view kLocalKey = "@local";  // no file of a key folder has this name
constexpr double kLastTime = 253402300799;        // the end of the year 9999

// A JSON object whose members are read one by one; each name may occur once.
template <typename Member>
bool ReadObject(std::string_view text, Member member) {
  JsonReader reader(text);
  if (!reader.Eat('{')) return false;
  std::set<std::string> names;
  if (!reader.Eat('}')) {
    do {
      std::string name;
      if (!reader.String(&name) || !reader.Eat(':') || !names.insert(name).second ||
          !member(name, reader)) {
        return false;
      }
    } while (reader.Eat(','));
    if (!reader.Eat('}')) return false;
  }
  return reader.AtEnd();
}

struct Header {
  std::string algorithm;
  std::string key;
  bool critical = false;
};

bool ReadHeader(std::string_view text, Header* header) {
  return ReadObject(text, [&](const std::string& name, JsonReader& reader) {
    if (name == "alg") return reader.String(&header->algorithm);
    if (name == "kid") return reader.String(&header->key);
    header->critical |= name == "crit";
    return reader.SkipValue();
  });
}

struct Claims {
  std::string issuer, subject, tenant;
  std::vector<std::string> audiences;
  bool admin = false;
  std::optional<absl::Time> expires, not_before, issued;
};

// A string or an array of strings.
bool ReadStrings(JsonReader& reader, std::vector<std::string>* out) {
  std::string text;
  if (!reader.Eat('[')) {
    if (!reader.String(&text)) return false;
    out->push_back(std::move(text));
    return true;
  }
  if (reader.Eat(']')) return true;
  do {
    if (!reader.String(&text)) return false;
    out->push_back(std::move(text));
  } while (reader.Eat(','));
  return reader.Eat(']');
}

bool ReadTime(JsonReader& reader, std::optional<absl::Time>* out) {
  double seconds = 0;
  if (!reader.Number(&seconds) || seconds < 0 || seconds > kLastTime) return false;
  *out = absl::UnixEpoch() + absl::Seconds(seconds);
  return true;
}

bool ReadClaims(std::string_view text, Claims* claims) {
  return ReadObject(text, [&](const std::string& name, JsonReader& reader) {
    if (name == "iss") return reader.String(&claims->issuer);
    if (name == "sub") return reader.String(&claims->subject);
    if (name == "tenant") return reader.String(&claims->tenant);
    if (name == "aud") return ReadStrings(reader, &claims->audiences);
    if (name == "admin") return reader.Bool(&claims->admin);
    if (name == "exp") return ReadTime(reader, &claims->expires);
    if (name == "nbf") return ReadTime(reader, &claims->not_before);
    if (name == "iat") return ReadTime(reader, &claims->issued);
    return reader.SkipValue();
  });
}

absl::StatusOr<Principal> CheckClaims(const Claims& claims, const TokenRules& rules,
                                      absl::Time now) {
  if (!claims.expires) return Refused("the token has no exp");
  if (now >= *claims.expires + kLeeway) return Refused("the token has expired");
  if (claims.not_before && now + kLeeway < *claims.not_before) {
    return Refused("the token is not valid yet");
  }
  if (claims.issued && now + kLeeway < *claims.issued) {
    return Refused("the token was issued in the future");
  }
  if (!rules.issuer.empty() && claims.issuer != rules.issuer) {
    return Refused("the token's iss is not ", rules.issuer);
  }
  bool meant = false;
  for (const std::string& audience : claims.audiences) meant |= audience == rules.audience;
  if (!meant) return Refused("the token's aud is not ", rules.audience);
  if (claims.subject.empty() || claims.subject.size() > kMaxNameBytes) {
    return Refused("the token's sub does not have 1 to ", kMaxNameBytes, " bytes");
  }
  if (!IsTenantName(claims.tenant)) return Refused("the token's tenant is not a tenant's name");
  return Principal{claims.subject, claims.tenant, claims.admin};
}

struct Parts {
  std::string_view header, claims, signed_part;
  std::string signature;
};

std::optional<Parts> Split(std::string_view token) {
  if (token.size() > kMaxTokenBytes) return std::nullopt;
  const size_t first = token.find('.');
  const size_t last = token.rfind('.');
  if (first == std::string_view::npos || last == first) return std::nullopt;
  Parts parts{.header = token.substr(0, first),
              .claims = token.substr(first + 1, last - first - 1),
              .signed_part = token.substr(0, last),
              .signature = {}};
  if (!Base64UrlDecode(token.substr(last + 1), &parts.signature)) return std::nullopt;
  return parts;
}

absl::StatusOr<Header> HeaderOf(const Parts& parts) {
  std::string text;
  Header header;
  if (!Base64UrlDecode(parts.header, &text) || !ReadHeader(text, &header)) {
    return Refused("the token's header is malformed");
  }
  return header;
}

}  // namespace

absl::StatusOr<Principal> VerifyToken(std::string_view token, const KeySet& keys,
                                      const TokenRules& rules, absl::Time now,
                                      std::string* signed_by) {
  const std::optional<Parts> parts = Split(token);
  if (!parts) {
    return Refused("the token is not three parts in base64url separated by dots, of at most ",
                   kMaxTokenBytes, " bytes");
  }
  TG_ASSIGN_OR_RETURN(const Header header, HeaderOf(*parts));
  if (header.critical) return Refused("the token's header has crit");
  const auto key = header.key.empty() && keys.size() == 1 ? keys.begin() : keys.find(header.key);
  if (key == keys.end()) return Refused("the token's kid names no key of this server");
  if (header.algorithm != key->second.algorithm()) {
    return Refused("the token's alg is not that of key ", key->first, ", which is ",
                   key->second.algorithm());
  }
  if (!key->second.Verify(parts->signed_part, parts->signature)) {
    return Refused("the token's signature is not by key ", key->first);
  }
  std::string text;
  Claims claims;
  if (!Base64UrlDecode(parts->claims, &text) || !ReadClaims(text, &claims)) {
    return Refused("the token's claims are malformed");
  }
  if (signed_by != nullptr) *signed_by = key->first;
  return CheckClaims(claims, rules, now);
}

LocalTokens::LocalTokens(std::string audience) : audience_(std::move(audience)), secret_(32, '\0') {
  RAND_bytes(reinterpret_cast<unsigned char*>(secret_.data()), static_cast<int>(secret_.size()));
  keys_.emplace(kLocalKey, *SignatureKey::FromSecret(secret_));
}

std::string LocalTokens::Issue(const Principal& principal, absl::Time now) const {
  const std::string header = StrCat("{\"alg\":\"HS256\",\"kid\":\"", kLocalKey, "\"}");
  const std::string claims =
      StrCat("{\"aud\":", JsonQuote(audience_), ",\"sub\":", JsonQuote(principal.subject),
             ",\"tenant\":", JsonQuote(principal.tenant),
             ",\"admin\":", principal.admin ? "true" : "false",
             ",\"exp\":", absl::ToUnixSeconds(now + kLifetime), "}");
  std::string token = StrCat(Base64UrlEncode(header), ".", Base64UrlEncode(claims));
  const std::string signature = Hmac(secret_, token);
  StrAppend(&token, ".", Base64UrlEncode(signature));
  return token;
}

bool LocalTokens::IsOurs(std::string_view token) {
  const std::optional<Parts> parts = Split(token);
  if (!parts) return false;
  const auto header = HeaderOf(*parts);
  return header.ok() && header->key == kLocalKey;
}

}  // namespace telegrad
