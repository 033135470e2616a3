// OpenSSL's object of a connection is for one thread at a time, so after the handshake a mutex is
// held for each call of it, none of which waits: the descriptor does not block, and who has to wait
// does so without.
#include "engine/net/psk_tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/net/own_certificate.h"

namespace telegrad {
namespace {

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// TLS_AES_128_GCM_SHA256, RFC 8446, appendix B.4: the one suite, and the hash of the key with it.
constexpr unsigned char kSuite[] = {0x13, 0x01};
constexpr const char* kSuiteName = "TLS_AES_128_GCM_SHA256";
// Received at a time: several records.
constexpr size_t kReadAhead = 128 << 10;
// Encrypted by one call, during which nothing is received.
constexpr size_t kMostSent = 256 << 10;
constexpr size_t kMaxIdentity = 64;
// Under one key: far below the 2^24.5 records that AES-GCM is good for (RFC 8446, section 5.5).
constexpr uint64_t kBytesOfKey = uint64_t{64} << 30;

// OpenSSL's own way to a socket raises SIGPIPE where the peer is gone, which is not for a library
// to ignore: this one is the same in all else.
int FdOf(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int WriteBytes(BIO* bio, const char* data, size_t size, size_t* written) {
  BIO_clear_retry_flags(bio);
  const ssize_t n = send(FdOf(bio), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  *written = n > 0 ? static_cast<size_t>(n) : 0;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return n > 0 ? 1 : 0;
}

int ReadBytes(BIO* bio, char* data, size_t size, size_t* read) {
  BIO_clear_retry_flags(bio);
  const ssize_t n = recv(FdOf(bio), data, size, MSG_DONTWAIT);
  *read = n > 0 ? static_cast<size_t>(n) : 0;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return n > 0 ? 1 : 0;
}

long Control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

// Null if there is no memory.
BIO* BioOf(int fd) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_write_ex(m, WriteBytes);
    BIO_meth_set_read_ex(m, ReadBytes);
    BIO_meth_set_ctrl(m, Control);
    return m;
  }();
  BIO* bio = BIO_new(method);
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  return bio;
}

std::string LastError() {
  char text[256] = "closed by the peer";
  if (const unsigned long error = ERR_get_error(); error != 0) {
    ERR_error_string_n(error, text, sizeof(text));
  }
  ERR_clear_error();
  return text;
}

// Takes `secret` for what an earlier connection left behind, which is what an external key is to
// TLS. Null if there is no memory.
SSL_SESSION* SessionOf(SSL* ssl, std::string_view secret) {
  Owned<SSL_SESSION> session(SSL_SESSION_new());
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kSuite);
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session.get(),
                                  reinterpret_cast<const unsigned char*>(secret.data()),
                                  secret.size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
    return nullptr;
  }
  return session.release();
}

// What an end knows, for the callbacks.
struct Knows {
  PresharedKey key;          // a client
  FindSecret secret;         // a server
  bool certificate = false;  // a server that also takes clients without a key
};
const Knows& KnownTo(SSL* ssl) { return *static_cast<const Knows*>(SSL_get_app_data(ssl)); }

int OfferKey(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* id_size,
             SSL_SESSION** session) {
  const PresharedKey& key = KnownTo(ssl).key;
  *id = reinterpret_cast<const unsigned char*>(key.identity.data());
  *id_size = key.identity.size();
  *session = SessionOf(ssl, key.secret);
  return *session != nullptr ? 1 : 0;
}

int FindKey(SSL* ssl, const unsigned char* id, size_t id_size, SSL_SESSION** session) {
  *session = nullptr;  // not known: the handshake fails for want of a certificate
  if (id_size > kMaxIdentity) return 1;
  const auto secret = KnownTo(ssl).secret({reinterpret_cast<const char*>(id), id_size});
  if (!secret) return 1;
  *session = SessionOf(ssl, *secret);
  return *session != nullptr ? 1 : 0;
}

enum class Side : uint8_t { kClient, kServer, kServerWithCertificate };

Owned<SSL_CTX> MakeContext(Side side) {
  const bool server = side != Side::kClient;
  Owned<SSL_CTX> context(SSL_CTX_new(server ? TLS_server_method() : TLS_client_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context.get(), kSuiteName) != 1) {
    return nullptr;
  }
  // A client that is shown a certificate trusts nobody's. A server asks for none.
  if (!server) SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (side == Side::kServerWithCertificate) {
    const OwnCertificate* const own = OwnCertificate::OfProcess();
    if (own == nullptr || SSL_CTX_use_certificate(context.get(), own->certificate()) != 1 ||
        SSL_CTX_use_PrivateKey(context.get(), own->key()) != 1) {
      return nullptr;
    }
  }
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadAhead);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_psk_use_session_callback(context.get(), OfferKey);
  SSL_CTX_set_psk_find_session_callback(context.get(), FindKey);
  return context;
}

class TlsSocket final : public StreamSocket {
 public:
  TlsSocket(UniqueFd fd, std::chrono::milliseconds stall, Owned<SSL> ssl, Knows knows)
      : StreamSocket(std::move(fd), stall), knows_(std::move(knows)), ssl_(std::move(ssl)) {}

  // Both have proved the key when it is over, or the server has shown its certificate.
  bool KeepsBytes() const override { return true; }
  absl::Status Handshake() override {
    SSL_set_app_data(ssl_.get(), &knows_);
    BIO* const bio = BioOf(fd());
    if (bio == nullptr) return Internal("TLS: ", LastError());
    SSL_set_bio(ssl_.get(), bio, bio);
    while (true) {
      ERR_clear_error();
      const int result = SSL_do_handshake(ssl_.get());
      if (result == 1) break;
      TG_ASSIGN_OR_RETURN(const Moved moved, Result(result, 0));
      TG_RETURN_IF_ERROR(Await(moved.wait_for));
    }
    if (SSL_session_reused(ssl_.get()) == 1 || knows_.certificate) return absl::OkStatus();
    return absl::UnavailableError("TLS: the peer does not have the key");
  }

 protected:
  absl::StatusOr<Moved> TryReceive(std::span<std::byte> into, bool /*may_wait*/) override {
    MutexLock lock(mutex_);
    ERR_clear_error();  // what other users of OpenSSL left on this thread
    size_t bytes = 0;
    const int result = SSL_read_ex(ssl_.get(), into.data(), into.size(), &bytes);
    return Result(result, bytes);
  }
  absl::StatusOr<Moved> TrySend(std::span<const std::byte> out, bool) override {
    MutexLock lock(mutex_);
    ERR_clear_error();
    if (sent_ >= kBytesOfKey) {
      SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);  // goes with the next bytes
      sent_ = 0;
    }
    out = out.first(std::min(out.size(), kMostSent));
    size_t bytes = 0;
    const int result = SSL_write_ex(ssl_.get(), out.data(), out.size(), &bytes);
    sent_ += bytes;
    return Result(result, bytes);
  }
  bool HasReceived() const override {
    MutexLock lock(mutex_);
    return SSL_has_pending(ssl_.get()) == 1;
  }

 private:
  absl::StatusOr<Moved> Result(int result, size_t bytes) {
    if (result == 1) return Moved{bytes};
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return Moved{0, POLLIN};
      case SSL_ERROR_WANT_WRITE:
        return Moved{0, POLLOUT};
      default:
        return absl::UnavailableError(StrCat("TLS: ", LastError()));
    }
  }

  Knows knows_;
  mutable Mutex mutex_;
  const Owned<SSL> ssl_;
  uint64_t sent_ TG_GUARDED_BY(mutex_) = 0;  // under the present key
};

absl::StatusOr<std::unique_ptr<StreamSocket>> MakeEnd(UniqueFd fd, std::chrono::milliseconds stall,
                                                      Side side, Knows knows) {
  static SSL_CTX* const contexts[] = {MakeContext(Side::kClient).release(),
                                      MakeContext(Side::kServer).release(),
                                      MakeContext(Side::kServerWithCertificate).release()};
  ERR_clear_error();
  SSL_CTX* const context = contexts[static_cast<size_t>(side)];
  if (context == nullptr) return Internal("TLS 1.3 is not to be had from this OpenSSL");
  Owned<SSL> ssl(SSL_new(context));
  if (ssl == nullptr) return Internal("TLS: ", LastError());
  if (side == Side::kClient) {
    SSL_set_connect_state(ssl.get());
  } else {
    SSL_set_accept_state(ssl.get());
  }
  return std::make_unique<TlsSocket>(std::move(fd), stall, std::move(ssl), std::move(knows));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StreamSocket>> TlsClient(UniqueFd fd,
                                                        std::chrono::milliseconds stall,
                                                        PresharedKey key) {
  return MakeEnd(std::move(fd), stall, Side::kClient, {.key = std::move(key), .secret = {}});
}

absl::StatusOr<std::unique_ptr<StreamSocket>> TlsServer(UniqueFd fd,
                                                        std::chrono::milliseconds stall,
                                                        FindSecret find_secret) {
  return MakeEnd(std::move(fd), stall, Side::kServer,
                 {.key = {}, .secret = std::move(find_secret)});
}

absl::StatusOr<std::unique_ptr<StreamSocket>> TlsServerWithCertificate(
    UniqueFd fd, std::chrono::milliseconds stall, FindSecret find_secret) {
  return MakeEnd(std::move(fd), stall, Side::kServerWithCertificate,
                 {.key = {}, .secret = std::move(find_secret), .certificate = true});
}

}  // namespace telegrad
