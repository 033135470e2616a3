// The inference protocol over HTTP with TLS: the certificates of the flags that gRPC uses,
// certificates of clients, and renewal without a restart.
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>

#include "engine/net/tcp.h"
#include "tests/server/auth_fixture.h"
#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// A client that trusts one authority and may show a certificate.
class TlsClient {
 public:
  TlsClient(const std::string& authority, const std::string& certificate, const std::string& key)
      : context_(SSL_CTX_new(TLS_client_method())) {
    EXPECT_EQ(SSL_CTX_load_verify_locations(context_, authority.c_str(), nullptr), 1);
    SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    if (certificate.empty()) return;
    EXPECT_EQ(SSL_CTX_use_certificate_file(context_, certificate.c_str(), SSL_FILETYPE_PEM), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context_, key.c_str(), SSL_FILETYPE_PEM), 1);
  }
  ~TlsClient() { SSL_CTX_free(context_); }
  void MostVersion(int version) { SSL_CTX_set_max_proto_version(context_, version); }

  // The whole answer; empty where there was no handshake. `serial`: of the server's certificate.
  std::string Ask(const std::string& address, const std::string& request,
                  std::string* serial = nullptr) const {
    auto fd = ConnectTcp(address, std::chrono::steady_clock::now() + std::chrono::seconds(30));
    EXPECT_TRUE(fd.ok()) << fd.status();
    fcntl(fd->get(), F_SETFL, 0);  // to wait in reads
    const timeval most{.tv_sec = 60, .tv_usec = 0};
    setsockopt(fd->get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
    SSL* const ssl = SSL_new(context_);
    SSL_set_fd(ssl, fd->get());
    SSL_set1_host(ssl, "localhost");
    std::string out;
    if (SSL_connect(ssl) == 1) {
      if (serial != nullptr) *serial = SerialOf(ssl);
      SSL_write(ssl, request.data(), static_cast<int>(request.size()));
      char bytes[4096];
      for (int n = 0; (n = SSL_read(ssl, bytes, sizeof(bytes))) > 0;) {
        out.append(bytes, static_cast<size_t>(n));
      }
    }
    SSL_free(ssl);
    ERR_clear_error();
    return out;
  }

 private:
  static std::string SerialOf(SSL* ssl) {
    X509* const certificate = SSL_get1_peer_certificate(ssl);
    const ASN1_INTEGER* const number = X509_get_serialNumber(certificate);
    std::string out(reinterpret_cast<const char*>(number->data),
                    static_cast<size_t>(number->length));
    X509_free(certificate);
    return out;
  }
  SSL_CTX* const context_;
};

std::string Get(std::string_view path) {
  return StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
}

class ServingTlsTest : public ServingTest {
 protected:
  ServingTlsTest() : keys_("http_tls") {}
  void SetUp() override {
    WriteModel("add", AddModel(1));
    std::ofstream(keys_.path("tenants")) << "[alice]\nmodels = add\n[bob]\n[ops]\nmodels = *\n";
    options_.credentials = keys_.Certificate("ops");
    std::vector<std::string> flags = keys_.TlsFlags();
    flags.insert(flags.end(), {"--http", "127.0.0.1:0", "--tls-client-ca", keys_.path("ca.pem"),
                               "--tenants", keys_.path("tenants")});
    StartServing(flags);
    ASSERT_THAT(http_, StartsWith("127.0.0.1:"));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!As("").Ask(http_, Get("/v2/health/ready")).starts_with("HTTP/1.1 200")) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    }
  }
  TlsClient As(const std::string& tenant) const {
    if (tenant.empty()) return {keys_.path("ca.pem"), "", ""};
    const ClientCredentials of = keys_.Certificate(tenant);
    return {of.tls_ca, of.tls_cert, of.tls_key};
  }
  std::string Serial() const {
    std::string serial;
    EXPECT_THAT(As("").Ask(http_, Get("/v2/health/live"), &serial), StartsWith("HTTP/1.1 200"));
    return serial;
  }

  Keys keys_;
};

TEST_F(ServingTlsTest, ACertificateSaysWhoAsks) {
  const std::string model = Get("/v2/models/add");
  EXPECT_THAT(As("alice").Ask(http_, model), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(As("bob").Ask(http_, model), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(As("").Ask(http_, model), StartsWith("HTTP/1.1 401"));
  const std::string body =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]})";
  const std::string answer = As("alice").Ask(
      http_, StrCat("POST /v2/models/add/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                    "Content-Length: ",
                    body.size(), "\r\n\r\n", body));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("[2,3,4,5]"));
}

TEST_F(ServingTlsTest, ACertificateOfAnotherAuthorityIsNone) {
  const Keys others("http_tls_others");
  const ClientCredentials of = others.Certificate("alice");
  const TlsClient stranger(keys_.path("ca.pem"), of.tls_cert, of.tls_key);
  EXPECT_THAT(stranger.Ask(http_, Get("/v2/models/add")), StartsWith("HTTP/1.1 401"));
  // A server's certificate stands for no caller.
  const TlsClient server(keys_.path("ca.pem"), keys_.path("server.pem"), keys_.path("server.key"));
  EXPECT_THAT(server.Ask(http_, Get("/v2/models/add")), StartsWith("HTTP/1.1 401"));
}

TEST_F(ServingTlsTest, OldVersionsAndPlainTextAreRefused) {
  TlsClient old = As("alice");
  old.MostVersion(TLS1_1_VERSION);
  EXPECT_EQ(old.Ask(http_, Get("/v2/health/live")), "");
  auto fd = ConnectTcp(http_, std::chrono::steady_clock::now() + std::chrono::seconds(30));
  ASSERT_TRUE(fd.ok()) << fd.status();
  fcntl(fd->get(), F_SETFL, 0);  // to wait in recv
  const std::string request = Get("/v2/health/live");
  send(fd->get(), request.data(), request.size(), MSG_NOSIGNAL);
  std::string out;
  char bytes[4096];
  for (ssize_t n = 0; (n = recv(fd->get(), bytes, sizeof(bytes), 0)) > 0;) {
    out.append(bytes, static_cast<size_t>(n));
  }
  EXPECT_EQ(out.find("HTTP/"), std::string::npos) << out;
}

TEST_F(ServingTlsTest, NewCertificatesNeedNoRestart) {
  const std::string before = Serial();
  std::ofstream(keys_.path("server.pem")) << "no certificate";
  daemon_->Signal(SIGHUP);
  EXPECT_EQ(Serial(), before) << "the last right one stays in force";
  keys_.Make({"--renew"});
  daemon_->Signal(SIGHUP);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Serial() == before) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
}

TEST(ServingTlsFlagsTest, OtherMachinesReachOnlyWhatIsGuarded) {
  const Keys keys("http_tls_flags");
  const TemporaryFolder models;
  std::vector<std::string> flags = {"--models",     models.path(), "--http",      "0.0.0.0:0",
                                    "--listen",     "127.0.0.1:0", "--log-level", "off",
                                    "--cpu-memory", "268435456"};
  testing::Output output = testing::RunProgram(TELEGRADD, flags);
  EXPECT_NE(output.exit_code, 0);
  EXPECT_THAT(output.text, HasSubstr("would travel in the clear; give --tls-cert"));
  for (const std::string& flag : keys.TlsFlags()) flags.push_back(flag);
  output = testing::RunProgram(TELEGRADD, flags);
  EXPECT_NE(output.exit_code, 0);
  EXPECT_THAT(output.text, HasSubstr("callers would not be authenticated"));
}

}  // namespace
}  // namespace telegrad
