// What arrives on a bulk socket, beside a session that has a write and a read to be filled: the
// connection ends when its client does, or before, and nothing is left of it.
//
//   FLAGS, then records: HEAD_LENGTH HEAD DATA_LENGTH DATA, a byte for each length, each sent as a
//   frame; or as it is, from the first record whose HEAD_LENGTH is 255
#include <sys/socket.h>

#include <string>
#include <thread>

#include "engine/net/frames.h"
#include "engine/net/proof.h"
#include "server/data/bulk_connection.h"
#include "tests/fuzz/filled_session.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad::fuzz {
namespace {

constexpr uint8_t kAttached = 1;  // the ticket is shown first
constexpr uint8_t kTls = 2;       // on the server's side
constexpr uint8_t kRaw = 255;
constexpr std::chrono::milliseconds kStall{10'000};

class Daemon {
 public:
  void Serve(std::span<const uint8_t> input) {
    const auto session = host_.Open();
    Connect(session, input);
    host_.Close(session);
  }

 private:
  void Connect(const std::shared_ptr<Session>& session, std::span<const uint8_t> input) {
    int fds[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    const uint8_t flags = input.front();
    const PresharedKey ticket = *tickets_.Issue(session);
    const auto find = [this](std::string_view identity) { return tickets_.FindSecret(identity); };
    auto connection = std::make_shared<BulkConnection>(
        (flags & kTls) != 0 ? *TlsServer(UniqueFd(fds[1]), kStall, find)
                            : std::make_unique<StreamSocket>(UniqueFd(fds[1]), kStall),
        &tickets_, &host_.metrics());
    StreamSocket client(UniqueFd(fds[0]), kStall);
    absl::Status end;
    std::thread server([&] { end = connection->Serve(); });
    std::thread reader([&] {  // so that the server never waits for it
      std::byte byte;
      while (client.Receive({&byte, 1}).ok()) {
      }
    });
    if ((flags & kAttached) != 0) {
      v1::TransferRequest attach;
      const std::string nonce(kNonceBytes, 'n');
      attach.mutable_attach()->set_token(ticket.identity + nonce +
                                         Prove(ticket.secret, Prover::kClient, nonce));
      SendFrame(client, attach.SerializeAsString(), {}).IgnoreError();
    }
    Send(client, input.subspan(1));
    shutdown(fds[0], SHUT_WR);
    server.join();
    FUZZ_CHECK(!end.ok());
    static Count count("connections whose end was not their client's");
    count.Input();
    if (!absl::IsUnavailable(end)) count.Passed();
    reader.join();
    session->transfers().Release(SessionHost::kDownload);
  }

  static void Send(StreamSocket& client, std::span<const uint8_t> input) {
    const auto take = [&input] {
      const size_t n = std::min<size_t>(input.front(), input.size() - 1);
      const auto bytes = input.subspan(1, n);
      input = input.subspan(1 + n);
      return bytes;
    };
    while (!input.empty() && input.front() != kRaw) {
      const auto head = take();
      const auto data = input.empty() ? input : take();
      const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
      if (!SendFrame(client, text, std::as_bytes(data)).ok()) return;
    }
    if (!input.empty()) client.Send(std::as_bytes(input.subspan(1))).IgnoreError();
  }

  SessionHost host_;
  BulkTickets tickets_{128};
};

}  // namespace
}  // namespace telegrad::fuzz

FUZZ_TARGET(data) {
  static telegrad::fuzz::Daemon daemon;
  if (data.empty()) return;
  daemon.Serve({reinterpret_cast<const uint8_t*>(data.data()), data.size()});
}
