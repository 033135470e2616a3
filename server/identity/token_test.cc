// The signatures of RFC 7515 (A.1 to A.3) and RFC 8037 (A.4), tokens that another implementation
// made (PyJWT 2.6 over Python's cryptography 38), and tokens that must be refused.
#include "server/identity/token.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/identity/base64url.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

// SubjectPublicKeyInfo in base64: what is between a PEM's first and last line.
constexpr std::string_view kRfcRsa =
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd/wWJcyQoTbji9"
    "k0l8W26mPddxHmfHQp+Vaw+4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL+yRT+SFd2lZS+pCgNMsD1W/YpRPEwOWvG6b3269"
    "0r2jZ47soMZo9wGzjb/7OMg0LOL+bSf63kpaSHSXndS5z5rexMdbBYUsLA9e+KXBdQOS+UTo7WTBEMa2R2CapHg665"
    "xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6/I5IhlJH7aGhyxXFvUK+DWNmoudF8NAco9/h9iaGNj8q2ethFkMLs91"
    "kzk2PAcDTW9gb54h4FRWyuXpoQIDAQAB";
constexpr std::string_view kRfcEc =
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEXH8UTNG72bfo"
    "cs3+257rn0s2ldbqkLJK2KRiMohYjlrQ==";
constexpr std::string_view kRfcEd = "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
constexpr std::string_view kEd = "MCowBQYDK2VwAyEA3zMvIjqXrMNZ0jxJ+ZerteF9PTypMlx875u6+Btj7rY=";
constexpr std::string_view kEc =
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEw1PMWU2Is9ppkRPcToBVcKHYaHGSjtjR0L+0bRWCyiaGDURfoZeNUi"
    "8djSLudcu7SOaJP4QMNs6Z/vsDxdwfzg==";
constexpr std::string_view kRsa =
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAxH8CI3m080lvFx9nGwVmIVPWdaeI5ZZXoGSyLyqTdHpuQg"
    "XY/usmgbet+mGKqSHdVBb5LqMlv5Y6/96wr2lJpGwjET5ViXMI+o4X8fEfxVknXrIwsYxH7+7H/cxds6PzK7CqcYIT"
    "612BI3lqxl7g0nwVO98+t8lkUpyw4UNiGAHQTMyZA+o6ooQSGVfb/JtXMM96DYkHJ/0j1s6wxtsCJ4hX1Z4AXRzdBk"
    "h/aFbCAuF0aXJyRBLQq2A0kyrC9jcgFk+pf02QPabEa5bnEmOqb7gSyWS/k6R4AVpzCVq7N07HXavyxU6/2wssQ0Of"
    "xcGlGwv2kgI0GR+r2JehXkUkaQIDAQAB";

// Of RFC 7515 and RFC 8037.
constexpr std::string_view kRfcHs256Token =
    "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogI"
    "mh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
constexpr std::string_view kRfcRs256Token =
    "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlL"
    "mNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7"
    "AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWz"
    "O75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZES"
    "c6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlU"
    "PQGe77Rw";
constexpr std::string_view kRfcEs256Token =
    "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlL"
    "mNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSA"
    "pmWQxfKTUJqPP3-Kg6NU1Q";
constexpr std::string_view kRfcEdDsaToken =
    "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGc"
    "vMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";

// Of PyJWT, by the keys above and by a secret of the bytes 0 to 31:
//   {"iss":"https://login.example.org", "sub":"trainer-7", "aud":["telegrad","other"],
//    "tenant":"research", "exp":4102444800, "nbf":1700000000, "iat":1700000000,
//    "scope":{"a":[1,{"b":null}]}}     and of the last one, "admin":true
constexpr std::string_view kEdDsaToken =
    "eyJhbGciOiJFZERTQSIsImtpZCI6ImVkIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbG"
    "Uub3JnIiwic3ViIjoidHJhaW5lci03IiwiYXVkIjpbInRlbGVncmFkIiwib3RoZXIiXSwidGVuYW50IjoicmVzZWFy"
    "Y2giLCJleHAiOjQxMDI0NDQ4MDAsIm5iZiI6MTcwMDAwMDAwMCwiaWF0IjoxNzAwMDAwMDAwLCJzY29wZSI6eyJhIj"
    "pbMSx7ImIiOm51bGx9XX19.Ub1-FKUOilLOnlUNBn8oIwH9vR7vBvD-fd78pkTQIg1KcpYihAr-GisZWUNstuXlpP3"
    "Rw088l8yjxdLX5enyDg";
constexpr std::string_view kEs256Token =
    "eyJhbGciOiJFUzI1NiIsImtpZCI6ImVjIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbG"
    "Uub3JnIiwic3ViIjoidHJhaW5lci03IiwiYXVkIjpbInRlbGVncmFkIiwib3RoZXIiXSwidGVuYW50IjoicmVzZWFy"
    "Y2giLCJleHAiOjQxMDI0NDQ4MDAsIm5iZiI6MTcwMDAwMDAwMCwiaWF0IjoxNzAwMDAwMDAwLCJzY29wZSI6eyJhIj"
    "pbMSx7ImIiOm51bGx9XX19.mJupgIJpgqLlY3HHSuRnxzl5s1CrtR1u8yt1UmRrPN4ZZZG9S7drpvIgDdJROEsKKcD"
    "6ZYAmov5q8Jr9tQP7hw";
constexpr std::string_view kRs256Token =
    "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wb"
    "GUub3JnIiwic3ViIjoidHJhaW5lci03IiwiYXVkIjpbInRlbGVncmFkIiwib3RoZXIiXSwidGVuYW50IjoicmVzZWF"
    "yY2giLCJleHAiOjQxMDI0NDQ4MDAsIm5iZiI6MTcwMDAwMDAwMCwiaWF0IjoxNzAwMDAwMDAwLCJzY29wZSI6eyJhI"
    "jpbMSx7ImIiOm51bGx9XX19.DuiJ4kn52mkSSFqee0hOJSSbXAwURv4dWv53ZThcr7St7403iKo7UZE38MoSpkLFim"
    "oxOP7VRUYSIj_N83O_rU4lPbc7VPNFW6P8P5lMHxCAHbms3z-x9pztjG2Pd7Ugjh9aNCXrcjTRx3JACOV1Ajg40XZR"
    "AMofoHjCXiXKM0eoygy53erT-lQc-Tdup5q1g1_-2SonEEon_dUqcToZQ1IgcPqS1Xxav1kRm-_PYxvcw4iqQh-qOj"
    "cuKr7tmRgTVifJHsWBwE9aUHyxMrKGZD72cYOaMsr37ODLZuOKgdNUEDVmD9nIByweo41d0skXocKS7hda-ftf7eVh"
    "gjibrQ";
constexpr std::string_view kHs256Token =
    "eyJhbGciOiJIUzI1NiIsImtpZCI6ImhzIiwidHlwIjoiSldUIn0.eyJpc3MiOiJodHRwczovL2xvZ2luLmV4YW1wbG"
    "Uub3JnIiwic3ViIjoidHJhaW5lci03IiwiYXVkIjpbInRlbGVncmFkIiwib3RoZXIiXSwidGVuYW50IjoicmVzZWFy"
    "Y2giLCJleHAiOjQxMDI0NDQ4MDAsIm5iZiI6MTcwMDAwMDAwMCwiaWF0IjoxNzAwMDAwMDAwLCJzY29wZSI6eyJhIj"
    "pbMSx7ImIiOm51bGx9XX0sImFkbWluIjp0cnVlfQ.99yPYNWKvNBAioG7p4Q2bvBgY2LXNYcEwZiHmGIa_t8";

std::string Pem(std::string_view base64) {
  return StrCat("-----BEGIN PUBLIC KEY-----\n", base64, "\n-----END PUBLIC KEY-----\n");
}
SignatureKey PublicKey(std::string_view base64) { return *SignatureKey::FromPem(Pem(base64)); }

std::string Secret() {
  std::string secret;
  for (char c = 0; c < 32; ++c) secret += c;
  return secret;
}

const KeySet& Keys() {
  static const KeySet keys = {{"ed", PublicKey(kEd)},
                              {"ec", PublicKey(kEc)},
                              {"rsa", PublicKey(kRsa)},
                              {"hs", *SignatureKey::FromSecret(Secret())}};
  return keys;
}

const TokenRules kRules = {.issuer = "https://login.example.org", .audience = "telegrad"};
const absl::Time kNow = absl::FromUnixSeconds(1800000000);

absl::StatusOr<Principal> Verify(std::string_view token, absl::Time now = kNow,
                                 const TokenRules& rules = kRules) {
  return VerifyToken(token, Keys(), rules, now);
}

void ExpectRefused(std::string_view token, std::string_view why) {
  const auto result = Verify(token);
  EXPECT_TRUE(absl::IsUnauthenticated(result.status())) << token << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(std::string(why))) << token;
}

std::string Signed(std::string_view header, std::string_view claims) {
  std::string token = StrCat(Base64UrlEncode(header), ".", Base64UrlEncode(claims));
  return StrCat(token, ".", Base64UrlEncode(Hmac(Secret(), token)));
}
constexpr std::string_view kHsHeader = R"({"alg":"HS256","kid":"hs"})";

// With `change` in place of, or beside, the members of a good token.
std::string Claims(std::map<std::string, std::string> change) {
  std::map<std::string, std::string> members = {{"iss", R"("https://login.example.org")"},
                                                {"sub", R"("ann")"},
                                                {"aud", R"("telegrad")"},
                                                {"tenant", R"("research")"},
                                                {"exp", "1800000100"}};
  for (const auto& [name, value] : change) members[name] = value;
  std::string text;
  for (const auto& [name, value] : members) {
    if (!value.empty()) StrAppend(&text, text.empty() ? "" : ",", "\"", name, "\":", value);
  }
  return StrCat("{", text, "}");
}

bool SignatureHolds(const SignatureKey& key, std::string_view token) {
  const size_t last = token.rfind('.');
  std::string signature;
  EXPECT_TRUE(Base64UrlDecode(token.substr(last + 1), &signature));
  return key.Verify(token.substr(0, last), signature);
}

TEST(SignatureTest, VectorsOfTheRfcs) {
  std::string secret;
  ASSERT_TRUE(Base64UrlDecode(
      "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow",
      &secret));
  const struct {
    SignatureKey key;
    std::string_view algorithm, token;
  } kCases[] = {{*SignatureKey::FromSecret(secret), "HS256", kRfcHs256Token},
                {PublicKey(kRfcRsa), "RS256", kRfcRs256Token},
                {PublicKey(kRfcEc), "ES256", kRfcEs256Token},
                {PublicKey(kRfcEd), "EdDSA", kRfcEdDsaToken}};
  for (const auto& c : kCases) {
    EXPECT_EQ(c.key.algorithm(), c.algorithm);
    EXPECT_TRUE(SignatureHolds(c.key, c.token)) << c.algorithm;
    for (const auto& other : kCases) {
      EXPECT_EQ(SignatureHolds(other.key, c.token), other.algorithm == c.algorithm);
    }
    // Each bit of the signature counts, and its length.
    const size_t last = c.token.rfind('.');
    std::string signature;
    ASSERT_TRUE(Base64UrlDecode(c.token.substr(last + 1), &signature));
    const std::string_view message = c.token.substr(0, last);
    for (size_t bit = 0; bit < 8 * signature.size(); bit += 7) {
      std::string changed = signature;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      EXPECT_FALSE(c.key.Verify(message, changed)) << c.algorithm << " bit " << bit;
    }
    EXPECT_FALSE(c.key.Verify(message, ""));
    EXPECT_FALSE(c.key.Verify(message, signature.substr(1)));
    EXPECT_FALSE(c.key.Verify(message, signature + "x"));
    EXPECT_FALSE(c.key.Verify(StrCat(message, "x"), signature));
  }
}

TEST(SignatureTest, RefusesKeysThatAreWeakOrNone) {
  EXPECT_THAT(std::string(SignatureKey::FromSecret(std::string(31, 'x')).status().message()),
              HasSubstr("31 bytes; expected at least 32"));
  EXPECT_FALSE(SignatureKey::FromPem("").ok());
  EXPECT_FALSE(SignatureKey::FromPem(Pem("AAAA")).ok());
  const auto secret = SignatureKey::FromPem("-----BEGIN PRIVATE KEY-----\n");
  EXPECT_THAT(std::string(secret.status().message()), HasSubstr("a private key"));
  // RSA of 1,024 bits and EC on P-384.
  const auto weak = SignatureKey::FromPem(
      Pem("MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCl5VdlmF4kiGCcZDhmMwEi0b8puaiyNxmUey95d8EZzxyx5kVD"
          "7jkoKpQ4PFKNGaBAOdbWS2yTSElASvcACl03PlHvPby1Z+7q0CivQhgEYGkujUYuueBJYHXrzpO9lBZwSFWn+2aH"
          "+cgZHeg9lp4Httd5ci9SDA5llVs03pnIEwIDAQAB"));
  EXPECT_THAT(std::string(weak.status().message()), HasSubstr("RSA key of 1024 bits"));
  const auto group = SignatureKey::FromPem(
      Pem("MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEKYVlakEASE3OJVAxx5LYoXOSXTI23pa0Zmcr4m1I1cVRIwWra3VtYOax"
          "ieTB1aW1BP4l785GhVZh9Vu8aWOdOtOboY7HnlstWwUeEUtlfBB9oUnQnGp6bFagPtekvYpA"));
  EXPECT_THAT(std::string(group.status().message()), HasSubstr("EC key on secp384r1"));
}

TEST(TokenTest, TakesTokensOfAnotherImplementation) {
  for (const std::string_view token : {kEdDsaToken, kEs256Token, kRs256Token}) {
    const auto principal = Verify(token);
    ASSERT_TRUE(principal.ok()) << principal.status();
    EXPECT_EQ(*principal, (Principal{"trainer-7", "research", false}));
  }
  EXPECT_EQ(*Verify(kHs256Token), (Principal{"trainer-7", "research", true}));
}

TEST(TokenTest, TimesAreChecked) {
  const absl::Time expires = absl::FromUnixSeconds(4102444800);
  EXPECT_TRUE(Verify(kEdDsaToken, expires + kLeeway - absl::Seconds(1)).ok());
  EXPECT_THAT(std::string(Verify(kEdDsaToken, expires + kLeeway).status().message()),
              HasSubstr("expired"));
  const absl::Time begins = absl::FromUnixSeconds(1700000000);
  EXPECT_TRUE(Verify(kEdDsaToken, begins - kLeeway).ok());
  EXPECT_FALSE(Verify(kEdDsaToken, begins - kLeeway - absl::Seconds(1)).ok());
  ExpectRefused(Signed(kHsHeader, Claims({{"exp", ""}})), "has no exp");
  ExpectRefused(Signed(kHsHeader, Claims({{"iat", "1800000031"}})), "in the future");
  ExpectRefused(Signed(kHsHeader, Claims({{"nbf", "1800000031"}})), "not valid yet");
  EXPECT_TRUE(Verify(Signed(kHsHeader, Claims({{"iat", "1.80000003e9"}}))).ok());
  for (const char* time :
       {"-1", "1e300", "1e99999", "\"1800000100\"", "null", "true", "[1]", "01"}) {
    ExpectRefused(Signed(kHsHeader, Claims({{"exp", time}})), "claims are malformed");
  }
}

TEST(TokenTest, ClaimsAreChecked) {
  ASSERT_TRUE(Verify(Signed(kHsHeader, Claims({}))).ok());
  EXPECT_TRUE(Verify(Signed(kHsHeader, Claims({{"iss", ""}})), kNow, {"", "telegrad"}).ok());
  EXPECT_TRUE(Verify(Signed(kHsHeader, Claims({{"admin", "true"}})))->admin);
  const struct {
    const char *name, *value, *why;
  } kCases[] = {
      {"iss", "", "iss"},
      {"iss", R"("https://login.example.org/")", "iss"},
      {"aud", "", "aud"},
      {"aud", R"("telegrad2")", "aud"},
      {"aud", "[]", "aud"},
      {"aud", "7", "malformed"},
      {"aud", R"(["telegrad",7])", "malformed"},
      {"sub", "", "sub"},
      {"sub", R"("")", "sub"},
      {"sub", "7", "malformed"},
      {"tenant", "", "tenant"},
      {"tenant", R"("")", "tenant"},
      {"tenant", R"("../other")", "tenant"},
      {"tenant", R"("a\u0000b")", "tenant"},
      {"tenant", "[\"research\"]", "malformed"},
      {"admin", "1", "malformed"},
      {"admin", R"("true")", "malformed"},
  };
  for (const auto& c : kCases) {
    ExpectRefused(Signed(kHsHeader, Claims({{c.name, c.value}})), c.why);
  }
}

TEST(TokenTest, HostileHeaders) {
  const std::string claims = Claims({});
  // No signature, said in all the ways that were ever taken for one.
  for (const char* none : {"none", "None", "NONE", "nOnE", ""}) {
    for (const char* kid : {"hs", "ed"}) {
      const std::string header = StrCat(R"({"alg":")", none, R"(","kid":")", kid, R"("})");
      ExpectRefused(StrCat(Base64UrlEncode(header), ".", Base64UrlEncode(claims), "."), "alg");
    }
  }
  // HMAC with the text of a public key as its secret.
  for (const auto& [kid, key] : {std::pair("ed", kEd), {"ec", kEc}, {"rsa", kRsa}}) {
    const std::string part =
        StrCat(Base64UrlEncode(StrCat(R"({"alg":"HS256","kid":")", kid, "\"}")), ".",
               Base64UrlEncode(claims));
    for (const std::string& secret : {Pem(key), std::string(key)}) {
      ExpectRefused(StrCat(part, ".", Base64UrlEncode(Hmac(secret, part))), "alg");
    }
  }
  const struct {
    std::string header, why;
  } kCases[] = {
      {R"({"alg":"HS256","kid":"nobody"})", "kid"},
      {R"({"alg":"HS256","kid":"../hs"})", "kid"},
      {R"({"alg":"HS256"})", "kid"},  // there are four keys
      {R"({"alg":"HS256","kid":"@local"})", "kid"},
      {R"({"alg":"HS512","kid":"hs"})", "alg"},
      {R"({"kid":"hs"})", "alg"},
      {R"({"alg":"HS256","kid":"hs","crit":["exp"]})", "crit"},
      {R"({"alg":"HS256","kid":"hs","alg":"HS256"})", "header is malformed"},
      {R"({"alg":"HS256","kid":"hs","kid":"hs"})", "header is malformed"},
      {R"({"alg":"HS256","kid":"hs","\u0061lg":"none"})", "header is malformed"},
      {R"({"alg":"HS256","kid":"hs"} x)", "header is malformed"},
      {R"({"alg":"HS256","kid":"hs",})", "header is malformed"},
      {R"({"alg":["HS256"],"kid":"hs"})", "header is malformed"},
      {R"("alg")", "header is malformed"},
      {"", "header is malformed"},
      {"{\"alg\":\"HS256\",\"kid\":\"hs\",\"x\":\"\xff\"}", "header is malformed"},
      {StrCat(R"({"alg":"HS256","kid":"hs","x":)", std::string(1000, '['), std::string(1000, ']'),
              "}"),
       "header is malformed"},
  };
  for (const auto& c : kCases) ExpectRefused(Signed(c.header, claims), c.why);
  // What names a key elsewhere is not looked at: the key is still ours.
  EXPECT_TRUE(
      Verify(Signed(R"({"alg":"HS256","kid":"hs","jku":"https://evil.example/","jwk":{"k":""}})",
                    claims))
          .ok());
}

TEST(TokenTest, HostileClaimsAndForms) {
  ExpectRefused(Signed(kHsHeader, R"({"sub":"a","sub":"b"})"), "claims are malformed");
  ExpectRefused(Signed(kHsHeader, Claims({{"x", std::string(1000, '[')}})), "claims are malformed");
  ExpectRefused(Signed(kHsHeader, Claims({{"sub", "\"\xc3\x28\""}})), "claims are malformed");
  ExpectRefused(Signed(kHsHeader, Claims({{"sub", "\"" + std::string(257, 'a') + "\""}})), "sub");
  ExpectRefused(Signed(kHsHeader, Claims({{"x", "\"" + std::string(6000, 'a') + "\""}})),
                "at most 6144 bytes");
  const std::string good = Signed(kHsHeader, Claims({}));
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string("a.b"), good + "=",
        good + ".", "." + good, good + " ", " " + good, good.substr(0, good.size() - 1), good + "A",
        std::string(1 << 20, '.'), std::string(1 << 20, 'a')}) {
    EXPECT_TRUE(absl::IsUnauthenticated(Verify(bad).status())) << bad.substr(0, 300);
  }
  // Another text of the same bytes: bits left over.
  std::string other = good;
  other.back() = other.back() == 'B' ? 'C' : static_cast<char>(other.back() + 1);
  EXPECT_FALSE(Verify(other).ok());
  // Signed for one key, presented under another.
  ExpectRefused(StrCat(Base64UrlEncode(R"({"alg":"EdDSA","kid":"ed"})"),
                       kEdDsaToken.substr(kEdDsaToken.find('.'))),
                "signature");
}

TEST(TokenTest, OurOwnTokensAreOfThisProcessAlone) {
  const LocalTokens mine("telegrad"), yours("telegrad");
  const Principal ann{"uid:\"1000\"", "research", true};
  const std::string token = mine.Issue(ann, kNow);
  EXPECT_TRUE(LocalTokens::IsOurs(token));
  EXPECT_FALSE(LocalTokens::IsOurs(kEdDsaToken));
  const TokenRules rules{"", "telegrad"};
  EXPECT_EQ(*VerifyToken(token, mine.keys(), rules, kNow), ann);
  EXPECT_FALSE(VerifyToken(token, yours.keys(), rules, kNow).ok());
  EXPECT_FALSE(Verify(token).ok());
  EXPECT_FALSE(
      VerifyToken(token, mine.keys(), rules, kNow + LocalTokens::kLifetime + kLeeway).ok());
}

class KeyFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "telegrad_keys_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Put(const std::string& name, std::string_view content) {
    std::ofstream(folder_ + "/new") << content;
    std::filesystem::rename(folder_ + "/new", folder_ + "/" + name);
  }
  absl::Status OpenStatus() { return KeyFolder::Open(folder_).status(); }
  std::string folder_;
};

TEST_F(KeyFolderTest, SaysWhichFileIsNoKey) {
  EXPECT_THAT(std::string(OpenStatus().message()), HasSubstr("the folder has no keys"));
  EXPECT_THAT(std::string(KeyFolder::Open(folder_ + "/none").status().message()),
              HasSubstr("cannot be read as a folder"));
  for (const auto& [name, content, why] :
       {std::tuple("a.txt", "x", "expected a name ending in .pem or .hs256"),
        {"a.pem", "x", "no public key in PEM"},
        {"a.hs256", "c2hvcnQ=", "a secret of 5 bytes; expected at least 32"},
        {"a.hs256", "not base64!", "expected base64"}}) {
    Put(name, content);
    EXPECT_THAT(std::string(OpenStatus().message()), HasSubstr(StrCat("/", name, ": ", why)));
    std::filesystem::remove(folder_ + "/" + name);
  }
  Put("a.pem", Pem(kEd));
  EXPECT_TRUE(OpenStatus().ok());
  Put("a.hs256", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n");
  EXPECT_THAT(std::string(OpenStatus().message()), HasSubstr("there are two keys of this name"));
}

TEST_F(KeyFolderTest, KeysComeAndGo) {
  Put("ed.pem", Pem(kEd));
  const auto keys = *KeyFolder::Open(folder_, std::chrono::milliseconds(0));
  const auto holds = [&](std::string_view token) {
    return VerifyToken(token, *keys->Keys(), kRules, kNow).ok();
  };
  EXPECT_TRUE(holds(kEdDsaToken));
  EXPECT_FALSE(holds(kEs256Token));
  Put("ec.pem", Pem(kEc));
  EXPECT_TRUE(holds(kEdDsaToken));
  EXPECT_TRUE(holds(kEs256Token));
  Put("ed.pem", Pem(kRfcEd));  // another key under the name
  EXPECT_FALSE(holds(kEdDsaToken));
  Put("ed.pem", "damaged");
  EXPECT_TRUE(holds(kEs256Token)) << "the others hold";
  EXPECT_EQ(keys->Keys()->size(), 1u);
  std::filesystem::remove_all(folder_);
  EXPECT_FALSE(holds(kEs256Token)) << "without keys nobody is known";
}

// A file that is written in place is empty, and then half of it is there.
TEST_F(KeyFolderTest, AKeyThatIsBeingWrittenStays) {
  const std::string secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
  Put("ed.pem", Pem(kEd));
  Put("hs.hs256", secret);
  const auto keys = *KeyFolder::Open(folder_, std::chrono::milliseconds(0));
  const auto write = [&](const char* name, std::string_view content) {
    std::ofstream(folder_ + "/" + name, std::ios::trunc) << content;
  };
  const std::string pem(Pem(kEd));
  for (const size_t bytes : {size_t{0}, size_t{1}, pem.size() / 2}) {
    write("ed.pem", std::string_view(pem).substr(0, bytes));
    write("hs.hs256", std::string_view(secret).substr(0, bytes / 8));
    EXPECT_EQ(keys->Keys()->size(), 2u) << bytes;
    EXPECT_TRUE(VerifyToken(kEdDsaToken, *keys->Keys(), kRules, kNow).ok()) << bytes;
  }
  write("ed.pem", Pem(kRfcEd));
  write("hs.hs256", secret);
  EXPECT_EQ(keys->Keys()->size(), 2u);
  EXPECT_FALSE(VerifyToken(kEdDsaToken, *keys->Keys(), kRules, kNow).ok()) << "another key";
  write("ed.pem", std::string_view(pem).substr(0, pem.size() / 2));
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(folder_ + "/ed.pem", now - std::chrono::seconds(3));
  EXPECT_EQ(keys->Keys()->size(), 1u) << "nobody writes it any more";
}

// That there are no descriptors says nothing about the keys.
TEST_F(KeyFolderTest, WhatCannotBeReadNowStays) {
  Put("ed.pem", Pem(kEd));
  Put("ec.pem", Pem(kEc));
  const auto keys = *KeyFolder::Open(folder_, std::chrono::milliseconds(0));
  rlimit usual{};
  getrlimit(RLIMIT_NOFILE, &usual);
  const rlimit small{64, usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  std::vector<int> taken;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  EXPECT_EQ(keys->Keys()->size(), 2u) << "not even the folder opens";
  EXPECT_EQ(keys->read_errors(), 1);
  close(taken.back());  // enough for the folder and each file in turn
  taken.pop_back();
  std::filesystem::rename(folder_ + "/ec.pem", folder_ + "/gone.txt.");
  for (const int fd : taken) close(fd);
  setrlimit(RLIMIT_NOFILE, &usual);
  std::filesystem::remove(folder_ + "/gone.txt.");
  EXPECT_EQ(keys->Keys()->size(), 1u) << "a file that is gone is gone";
  std::filesystem::remove(folder_ + "/ed.pem");
  std::filesystem::create_directory(folder_ + "/ed.pem");  // does not read, and is there
  EXPECT_EQ(keys->Keys()->size(), 1u);
  EXPECT_GE(keys->read_errors(), 2);
}

}  // namespace
}  // namespace telegrad
