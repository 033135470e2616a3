// The classes of cve_test.cc that are of the transport and of who may call: floods of HTTP/2, paths
// that are almost those of a method, and surfaces that there should not be.
#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <set>
#include <thread>

#include "google/protobuf/descriptor.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "proto/transport.h"
#include "telegrad/v1/session.grpc.pb.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/raw_session.h"

namespace telegrad {
namespace {

// The client's end of HTTP/2 (RFC 9113), as far as opening streams and resetting them.
class Http2 {
 public:
  explicit Http2(const std::string& address) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to));
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, 0, ""));
  }
  ~Http2() { close(fd_); }

  static std::string Frame(int type, int flags, uint32_t stream, const std::string& payload) {
    std::string out;
    for (const int shift : {16, 8, 0}) out.push_back(static_cast<char>(payload.size() >> shift));
    out.push_back(static_cast<char>(type));
    out.push_back(static_cast<char>(flags));
    for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<char>(stream >> shift));
    return out + payload;
  }
  // HEADERS that open a call, with literals that are not indexed (RFC 7541, 6.2.2).
  static std::string Call(uint32_t stream, const std::string& path) {
    std::string block;
    const auto add = [&](const std::string& name, const std::string& value) {
      block.push_back(0);
      for (const std::string& text : {name, value}) {
        block.push_back(static_cast<char>(text.size()));
        block += text;
      }
    };
    add(":method", "POST");
    add(":scheme", "http");
    add(":path", path);
    add(":authority", "localhost");
    add("te", "trailers");
    add("content-type", "application/grpc");
    return Frame(1, 4, stream, block);  // END_HEADERS
  }
  // False once the other end has hung up. What it sends meanwhile is read, so that nobody waits.
  bool Send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      pollfd ready{fd_, POLLIN | POLLOUT, 0};
      poll(&ready, 1, -1);
      char buffer[4096];
      if ((ready.revents & POLLIN) != 0) {
        const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
        if (n <= 0) return false;
        received_.append(buffer, static_cast<size_t>(n));
      }
      if ((ready.revents & (POLLERR | POLLHUP)) != 0) return false;
      if ((ready.revents & POLLOUT) == 0) continue;
      const ssize_t n = send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n > 0) at += static_cast<size_t>(n);
    }
    return true;
  }
  const std::string& received() const { return received_; }
  // Whether the other end hangs up: waits for it, within reason.
  bool IsOver() {
    constexpr int kPatienceMs = 60'000;
    char buffer[4096];
    while (true) {
      pollfd ready{fd_, POLLIN, 0};
      if (poll(&ready, 1, kPatienceMs) == 0) return false;
      if (recv(fd_, buffer, sizeof(buffer), 0) <= 0) return true;
    }
  }
  // Until there are as many bytes, or the end.
  void Receive(size_t bytes) {
    char buffer[4096];
    while (received_.size() < bytes) {
      pollfd ready{fd_, POLLIN, 0};
      poll(&ready, 1, -1);
      const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
      if (n <= 0) return;
      received_.append(buffer, static_cast<size_t>(n));
    }
  }

 private:
  int fd_;
  std::string received_;
};

class CveTransportTest : public DaemonTest {
 protected:
  // Opens calls and resets them at once, over one connection.
  static void Flood(Http2& peer, const std::string& path, int calls) {
    const std::string cancel("\0\0\0\x08", 4);
    uint32_t stream = 1;
    for (int i = 0; i < calls; ++i, stream += 2) {
      if (!peer.Send(Http2::Call(stream, path) + Http2::Frame(3, 0, stream, cancel))) return;
    }
  }
};

// Streams that are opened and reset at once. The transport keeps some 20 KB of each until its end
// was handled, so whoever resets too many is hung up on.
TEST_F(CveTransportTest, CVE_2023_44487_WhoResetsTooOftenIsHungUpOn) {
  Start({"--max-resets", "20"});
  RawSession session(connection_->channel());
  ASSERT_EQ(session.Ask(AllocRequest(1, 8)), absl::OkStatus());
  for (const char* path :
       {"/telegrad.v1.Compute/Execute", "/telegrad.v1.Data/Transfer",
        "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/no/such"}) {
    SCOPED_TRACE(path);
    Http2 peer(address_);
    Flood(peer, path, 2'000);
    EXPECT_TRUE(peer.IsOver());
  }
  EXPECT_EQ(session.Ask(AllocRequest(2, 8)), absl::OkStatus());
}

// Where they are not, none of the streams is a session before its first message has said so, so
// that they take nobody else's place and leave nothing.
TEST_F(CveTransportTest, CVE_2023_44487_RapidResetsTakeNobodysPlace) {
  Start({"--max-sessions", "4", "--max-resets", "0"});
  std::thread flood([&] {
    Http2 peer(address_);
    Flood(peer, "/telegrad.v1.Compute/Execute", 5'000);
  });
  {
    RawSession session(connection_->channel());
    for (uint64_t handle = 1; handle <= 100; ++handle) {
      EXPECT_EQ(session.Ask(AllocRequest(handle, 8)), absl::OkStatus());
    }
    flood.join();
    EXPECT_EQ(session.Ask(AllocRequest(101, 8)), absl::OkStatus());
  }
  EXPECT_TRUE(BecomesZero("telegrad_sessions"));
}

// And those that are opened and left: the server says beforehand how many it takes.
TEST_F(CveTransportTest, CVE_2023_44487_StreamsOfAConnectionAreLimited) {
  Http2 peer(address_);
  peer.Receive(9);
  ASSERT_GE(peer.received().size(), 9u);
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(peer.received()[at]); };
  ASSERT_EQ(byte(3), 4) << "SETTINGS come first";
  const size_t length = size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2);
  peer.Receive(9 + length);
  ASSERT_GE(peer.received().size(), 9 + length);
  uint64_t most = UINT32_MAX;
  for (size_t at = 9; at + 6 <= 9 + length; at += 6) {
    if (byte(at) != 0 || byte(at + 1) != 3) continue;  // MAX_CONCURRENT_STREAMS
    most = uint64_t{byte(at + 2)} << 24 | uint64_t{byte(at + 3)} << 16 | byte(at + 4) << 8 |
           byte(at + 5);
  }
  EXPECT_LE(most, 4096u);
}

// Sending from memory that may change meanwhile; off in gRPC unless asked for.
TEST(CveTransportTableTest, CVE_2024_11407_ZeroCopySendingIsNotAskedFor) {
  for (const ChannelArgument& row : kChannelArguments) {
    EXPECT_EQ(std::string(row.name).find("zerocopy"), std::string::npos) << row.name;
  }
}

// A path that is almost a method's is no method.
TEST_F(CveTransportTest, CVE_2026_24206_OnlyTheExactPathIsAMethod) {
  grpc::GenericStub stub(connection_->channel());
  for (const char* path :
       {"/telegrad.v1.Session/Stats/", "//telegrad.v1.Session/Stats", "/telegrad.v1.session/stats",
        "/telegrad.v1.Session/../Session/Stats", "/telegrad.v1.Session/Stats?x",
        "/telegrad.v1.Session/Stat%73", "/telegrad.v1.Session/", "/telegrad.v1.Session", "/"}) {
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    grpc::ByteBuffer request, response;
    const grpc::Slice nothing;
    request = grpc::ByteBuffer(&nothing, 1);
    const auto call = stub.PrepareUnaryCall(&context, path, request, &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) {
    }
    EXPECT_FALSE(status.ok()) << path;
    EXPECT_FALSE(response.Valid() && response.Length() > 0) << path;
  }
}

// Shared memory is nothing that a request names: no message can say a region or a file
// descriptor, and unless the operator says so there is no socket over which one could be passed.
TEST_F(CveTransportTest, CVE_2025_23319_NoMessageNamesSharedMemory) {
  std::vector<const google::protobuf::Descriptor*> todo;
  std::set<const google::protobuf::Descriptor*> seen;
  for (const char* name : {"telegrad.v1.Session", "telegrad.v1.Compute", "telegrad.v1.Data"}) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    ASSERT_NE(service, nullptr) << name;
    for (int i = 0; i < service->method_count(); ++i) {
      todo.push_back(service->method(i)->input_type());
    }
  }
  while (!todo.empty()) {
    const auto* type = todo.back();
    todo.pop_back();
    if (!seen.insert(type).second) continue;
    for (int i = 0; i < type->field_count(); ++i) {
      const auto* field = type->field(i);
      // A server's, which has to be one that the operator names (--peer).
      if (field->full_name() == "telegrad.v1.Send.address") continue;
      if (field->message_type() != nullptr) todo.push_back(field->message_type());
      for (const char* word :
           {"shm", "shared", "region", "pointer", "address", "url", "pickle", "callback", "fd"}) {
        EXPECT_EQ(("_" + field->name() + "_").find(StrCat("_", word, "_")), std::string::npos)
            << field->full_name();
      }
    }
  }
  EXPECT_GT(seen.size(), 20u);
  grpc::ClientContext context;
  v1::HelloRequest request;
  v1::HelloResponse response;
  for (auto* range : {request.mutable_protocol(), request.mutable_graph_form()}) {
    range->set_min(0);
    range->set_max(99);
  }
  const auto stub = v1::Session::NewStub(connection_->channel());
  ASSERT_TRUE(stub->Hello(&context, request, &response).ok());
  EXPECT_EQ(response.local_socket(), "");
}

// A message that becomes a thousand times as long is not unpacked, whoever sends it, and to
// whatever method: the limit of its length would be looked at only afterwards.
TEST_F(CveTransportTest, CompressedMessagesAreNotUnpacked) {
  const auto channel = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  const int64_t before = daemon_->PeakResident();
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(std::string(256 << 20, '\0'));
  grpc::health::v1::HealthCheckResponse response;
  const auto status =
      grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  EXPECT_LT(daemon_->PeakResident() - before, int64_t{64} << 20);
}

// A daemon that listens and then finds that something else does not start takes its leave of those
// who call already, and ends; here it is killed if it does not.
TEST_F(CveTransportTest, AStartThatFailsEndsTheCallsThatItHas) {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  ASSERT_EQ(bind(probe, reinterpret_cast<sockaddr*>(&at), size), 0);
  getsockname(probe, reinterpret_cast<sockaddr*>(&at), &size);
  close(probe);
  const std::string address = StrCat("127.0.0.1:", ntohs(at.sin_port));
  std::atomic<bool> over = false;
  std::thread callers([&] {
    std::vector<std::unique_ptr<Http2>> peers;  // which stay
    while (!over) {
      auto peer = std::make_unique<Http2>(address);
      std::string calls;
      for (uint32_t stream = 1; stream < 40; stream += 2) {
        calls += Http2::Call(stream, "/grpc.health.v1.Health/Watch") +
                 Http2::Frame(0, 1, stream, std::string(5, '\0'));
      }
      if (peer->Send(calls)) peers.push_back(std::move(peer));
    }
  });
  for (int i = 0; i < 3; ++i) {
    // The address for HTTP is taken, by the daemon of the fixture.
    testing::Process daemon(
        TELEGRADD, {"--listen", address, "--bulk-listen", "none", "--models", ::testing::TempDir(),
                    "--models-control", "explicit", "--http", address_, "--log-level", "off"});
    std::atomic<bool> ended = false;
    std::thread watch([&, pid = daemon.pid()] {
      const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (!ended && std::chrono::steady_clock::now() < late) std::this_thread::yield();
      if (!ended) kill(pid, SIGKILL);
    });
    const testing::Output out = daemon.Wait();
    ended = true;
    watch.join();
    EXPECT_EQ(out.exit_code, 1) << out.text;
    EXPECT_THAT(out.text, ::testing::HasSubstr(address_));
  }
  over = true;
  callers.join();
}

}  // namespace
}  // namespace telegrad
