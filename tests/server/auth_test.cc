// Authorization: each method of the table on each listener, with every kind of insufficient
// credentials and with sufficient ones.
#include <google/protobuf/descriptor.h>

#include <set>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "server/identity/base64url.h"
#include "server/identity/signature.h"
#include "server/service/router.h"
#include "telegrad/v1/admin.pb.h"
#include "telegrad/v1/compute.pb.h"
#include "telegrad/v1/data.pb.h"
#include "telegrad/v1/session.pb.h"
#include "tests/server/auth_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

struct Row {
  std::string path;
  Access access;
  unsigned listeners;
};

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
#define METHOD(path, access, listeners, handler) {path, Access::access, listeners},
#include "server/service/methods.def"
#undef METHOD
  };
  return rows;
}

// One daemon for all methods: a call of a method does it no harm, but for one.
class MethodTest : public AuthTest {
 protected:
  void SetUp() override {
    std::string secret;
    absl::Base64Escape(std::string(32, 's'), &secret);
    std::ofstream(keys_->path("jwt/shared.hs256")) << secret;
    Start({"--jwt-keys", keys_->path("jwt"), "--tls-client-ca", keys_->path("ca.pem")});
  }

  // Calls every method on every listener; `expected` says what must come of it.
  template <typename Expected>
  void ForEach(const ClientCredentials& credentials, Expected expected) {
    for (const Row& row : Rows()) {
      for (const auto& [listener, address] :
           {std::pair(kOnCompute, address_), {kOnData, data_}, {kOnAdmin, admin_}}) {
        SCOPED_TRACE(StrCat(row.path, " on ", listener));
        expected(row, (row.listeners & listener) != 0, address,
                 [&] { return Call(address, credentials, row.path); });
      }
    }
  }
  // By a secret that the daemon knows, too.
  static std::string Signed(std::string_view tenant, absl::Time expires) {
    const std::string token =
        StrCat(Base64UrlEncode(R"({"alg":"HS256","kid":"shared"})"), ".",
               Base64UrlEncode(StrCat(R"({"aud":"telegrad","sub":"x","tenant":")", tenant,
                                      R"(","exp":)", absl::ToUnixSeconds(expires), "}")));
    return StrCat(token, ".", Base64UrlEncode(Hmac(std::string(32, 's'), token)));
  }
  // The answer to a stranger: the same whatever is asked, wherever.
  void ExpectStranger(const ClientCredentials& credentials) {
    ForEach(credentials, [](const Row& row, bool served, const std::string&, auto call) {
      const absl::Status status = call();
      if (served && row.access == Access::kAnyone) {
        EXPECT_FALSE(absl::IsUnauthenticated(status)) << status;
        return;
      }
      EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
      EXPECT_EQ(std::string(status.message()),
                "the credentials of this call are missing or not valid");
    });
  }
};

TEST_F(MethodTest, StrangersAreRefusedEverywhere) {
  const std::string good = keys_->Token("alice");
  const Keys others("others");
  const std::vector<std::pair<const char*, std::string>> kTokens = {
      {"none", ""},
      {"of another key", others.Token("alice")},
      {"garbled", good.substr(0, good.size() - 4) + "AAAA"},
      {"cut", good.substr(0, good.rfind('.'))},
      {"for another audience", keys_->Token("alice", {"--audience", "elsewhere"})},
      {"no token at all", "x"},
      {"expired", Signed("alice", absl::Now() - absl::Minutes(1))},
  };
  for (const auto& [what, token] : kTokens) {
    SCOPED_TRACE(what);
    ExpectStranger(keys_->WithToken(token));
  }
}

TEST_F(MethodTest, CallersReachWhatIsTheirs) {
  EXPECT_TRUE(
      Connect(address_, keys_->WithToken(Signed("alice", absl::Now() + absl::Minutes(1)))).ok())
      << "of the shared secret, before it expires";
  ForEach(keys_->WithToken(keys_->Token("alice")),
          [](const Row& row, bool served, const std::string&, auto call) {
            const absl::Status status = call();
            if (!served) {
              EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
            } else if (row.access == Access::kAdmin) {
              EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
              EXPECT_EQ(std::string(status.message()), "this caller may not call this method");
            } else {
              EXPECT_FALSE(absl::IsUnauthenticated(status)) << status;
              EXPECT_FALSE(absl::IsPermissionDenied(status)) << status;
              EXPECT_FALSE(absl::IsUnimplemented(status)) << status;
            }
          });
}

TEST_F(MethodTest, AdministratorsReachTheirMethodsOnTheirListenerAlone) {
  ForEach(keys_->Certificate("ops"),
          [](const Row& row, bool served, const std::string&, auto call) {
            if (row.path.ends_with("/Drain")) return;  // tested by itself
            const absl::Status status = call();
            EXPECT_EQ(absl::IsUnimplemented(status), !served) << status;
            EXPECT_FALSE(absl::IsUnauthenticated(status)) << status;
            EXPECT_FALSE(absl::IsPermissionDenied(status)) << status;
          });
}

TEST_F(MethodTest, UnknownMethodsAreSecretsToStrangers) {
  for (const char* path : {"/telegrad.v1.Session/None", "/x/y", "/telegrad.v1.Session/hello",
                           "/telegrad.v1.Session/Hello/", "//"}) {
    EXPECT_TRUE(absl::IsUnauthenticated(Call(address_, keys_->WithToken(""), path))) << path;
    EXPECT_TRUE(absl::IsUnimplemented(Call(address_, keys_->Certificate("alice"), path))) << path;
  }
}

TEST(MethodTableTest, EveryMethodOfTheWireHasARowAndNoOther) {
  std::set<std::string> rows, wire;
  for (const Row& row : Rows()) EXPECT_TRUE(rows.insert(row.path).second) << row.path;
  const auto add = [&](const google::protobuf::FileDescriptor* file) {
    for (int s = 0; s < file->service_count(); ++s) {
      const auto* service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        wire.insert(StrCat("/", service->full_name(), "/", service->method(m)->name()));
      }
    }
  };
  add(v1::Open::descriptor()->file());
  add(v1::HelloRequest::descriptor()->file());
  add(v1::Attach::descriptor()->file());
  add(v1::DrainRequest::descriptor()->file());
  for (const std::string& path : wire) EXPECT_TRUE(rows.contains(path)) << path << " has no row";
  for (const std::string& path : rows) {
    if (path.starts_with("/telegrad.")) {
      EXPECT_TRUE(wire.contains(path)) << path;
    }
  }
}

// There is no way around the router: nothing else is registered with gRPC.
TEST(MethodTableTest, NothingIsRegisteredElsewhere) {
  int generic = 0;
  for (const char* folder : {"server", "devices", "engine"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      for (const char* other :
           {"RegisterService", "RegisterCallbackGenericService", "EnableDefaultHealthCheckService",
            "InitProtoReflectionServerBuilderPlugin", "grpc_server_register_method"}) {
        EXPECT_EQ(text.find(other), std::string::npos) << entry.path() << " has " << other;
      }
      for (size_t at = 0; (at = text.find("RegisterAsyncGenericService", at)) != std::string::npos;
           ++at) {
        ++generic;
        EXPECT_EQ(entry.path().string(), "server/service/call_queue.cc");
      }
    }
  }
  EXPECT_EQ(generic, 1);
}

}  // namespace
}  // namespace telegrad
