// Large writes and reads of the client library through the real daemon.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <random>
#include <thread>

#include "engine/base/crc32c.h"
#include "engine/net/frames.h"
#include "engine/net/tcp.h"
#include "engine/wire/compression.h"
#include "telegrad/v1/compute.grpc.pb.h"
#include "telegrad/v1/data.grpc.pb.h"
#include "tests/fakes/cutting_proxy.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> Random(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  std::mt19937_64 random(7);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(&data[i], &word, 8);
  }
  return data;
}

constexpr size_t kBytes = 24 << 20;

class BulkTest : public DaemonTest {
 protected:
  // There and back; over two buffers, so that one upload waits behind the other.
  void ThereAndBack(Connection& connection) {
    const std::vector<uint8_t> data = Random(kBytes);
    auto session = *connection.OpenSession();
    const uint64_t handles[] = {session->NewHandle(), session->NewHandle()};
    for (const uint64_t handle : handles) {
      session->Alloc(handle, kBytes);
      session->Write(handle, 0, Bytes(data));
    }
    for (const uint64_t handle : handles) {
      std::vector<uint8_t> out(kBytes);
      const auto read = session->Read(handle, 0, Writable(out)).Get();
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(out == data);
    }
    EXPECT_TRUE(session->Sync().Get().ok()) << session->status();
  }
};

TEST_F(BulkTest, ThereAndBackOverSeveralConnections) {
  ThereAndBack(*connection_);
  EXPECT_EQ(Stat("telegrad_written_bytes_total"), 2.0 * kBytes);
  EXPECT_EQ(Stat("telegrad_chunks_refused_total"), 0);
  EXPECT_TRUE(BecomesZero("telegrad_buffers"));
}

TEST_F(BulkTest, OverBulkSocketsWhereTheServerHasSome) {
  ThereAndBack(*connection_);
  const double admitted = Stat("telegrad_bulk_sockets_admitted_total");
  EXPECT_GT(admitted, 0);
  EXPECT_TRUE(BecomesZero("telegrad_bulk_sockets"));
  ConnectOptions options;
  options.bulk_sockets = false;
  ThereAndBack(**Connection::Connect(address_, options));
  EXPECT_EQ(Stat("telegrad_bulk_sockets_admitted_total"), admitted);
}

TEST_F(BulkTest, WithoutThemOverGrpc) {
  Start({"--bulk-listen", "none"});
  EXPECT_EQ(connection_->server().bulk_address, "");
  ThereAndBack(*connection_);
  // Nor where they cannot be reached.
  Start({});
  ConnectOptions options;
  options.bulk_address = "127.0.0.1:1";
  ThereAndBack(**Connection::Connect(address_, options));
  EXPECT_EQ(Stat("telegrad_bulk_sockets_admitted_total"), 0);
  // Nor where there are enough already: one stream of each session has to do without.
  Start({"--bulk-sockets", "1"});
  ThereAndBack(*connection_);
  EXPECT_LE(Stat("telegrad_bulk_sockets_admitted_total"), 1);
}

// The way to the sockets is closed in the middle of a session.
TEST_F(BulkTest, WhereSocketsAreNoMoreGrpcGoesOn) {
  fakes::CuttingProxy proxy(connection_->server().bulk_address);
  ConnectOptions options;
  options.bulk_address = proxy.address();
  options.timeout = absl::Seconds(2);
  const auto connection = *Connection::Connect(address_, options);
  const auto session = *connection->OpenSession();
  const std::vector<uint8_t> data = Random(kBytes);
  const uint64_t handle = session->NewHandle();
  session->Alloc(handle, kBytes);
  for (const bool closed : {false, true}) {
    if (closed) proxy.Close();
    session->Write(handle, 0, Bytes(data));
    std::vector<uint8_t> out(kBytes);
    const auto read = session->Read(handle, 0, Writable(out)).Get();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(out == data);
  }
  EXPECT_GT(Stat("telegrad_bulk_sockets_admitted_total"), 0);
  EXPECT_TRUE(BecomesZero("telegrad_bulk_sockets"));
}

// Somebody else listens where the client was led, as at the end of a tunnel: one who says nothing,
// and one who would like to have the tensors.
TEST_F(BulkTest, SomebodyElseGetsNoTensor) {
  for (const bool answers : {false, true}) {
    const UniqueFd listener = *ListenTcp("127.0.0.1:0");
    std::atomic<int64_t> more = 0;  // bytes behind the ticket
    std::thread impostor([&] {
      std::vector<std::thread> each;
      for (int i = 0; i < ConnectOptions().data_streams; ++i) {
        pollfd polled = {listener.get(), POLLIN, 0};
        poll(&polled, 1, -1);
        UniqueFd fd(accept(listener.get(), nullptr, nullptr));
        if (!fd.valid()) break;  // the session was over before it tried once more
        each.emplace_back([&, fd = std::move(fd)]() mutable {
          StreamSocket socket(std::move(fd), std::chrono::milliseconds(20'000));
          ASSERT_TRUE(ReceiveFrame(socket, 1024, 0).ok());
          v1::TransferResponse response;
          response.mutable_attached()->set_credit(8 << 20);
          response.mutable_attached()->set_chunk_bytes(1 << 20);
          response.mutable_attached()->set_proof(std::string(32, 'p'));
          const std::string said = response.SerializeAsString();
          ASSERT_TRUE(!answers || SendFrame(socket, said, {}).ok());
          std::byte byte;
          while (socket.Receive({&byte, 1}).ok()) ++more;
        });
      }
      for (std::thread& thread : each) thread.join();
    });
    ConnectOptions options;
    options.bulk_address = StrCat("127.0.0.1:", PortOf(listener));
    ThereAndBack(**Connection::Connect(address_, options));
    shutdown(listener.get(), SHUT_RDWR);
    impostor.join();
    EXPECT_EQ(more, 0);
  }
  EXPECT_EQ(Stat("telegrad_bulk_sockets_admitted_total"), 0);
}

TEST_F(BulkTest, TheDaemonEndsWithSocketsThatAreOpen) {
  const std::vector<uint8_t> data = Random(kBytes);
  auto session = *connection_->OpenSession();
  const uint64_t handle = session->NewHandle();
  session->Alloc(handle, kBytes);
  session->Write(handle, 0, Bytes(data));
  ASSERT_TRUE(session->Sync().Get().ok()) << session->status();
  EXPECT_GT(Stat("telegrad_bulk_sockets"), 0);
  daemon_->Signal(SIGTERM);
  daemon_->Signal(SIGTERM);  // without waiting for the session's client
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
}

TEST_F(BulkTest, Compressed) {
  for (const Compression method : {Compression::kLz4, Compression::kZstd}) {
    fakes::CuttingProxy proxy(address_);
    ConnectOptions options;
    options.compression = method;
    options.bulk_sockets = false;  // which would go past the proxy
    auto connection = *Connection::Connect(proxy.address(), options);
    auto session = *connection->OpenSession();
    const uint64_t handle = session->NewHandle();
    std::vector<uint32_t> counted(kBytes / 4), out(kBytes / 4);
    for (size_t i = 0; i < counted.size(); ++i) counted[i] = static_cast<uint32_t>(i / 100);
    session->Alloc(handle, kBytes);
    session->Write(handle, 0, Bytes(counted));
    ASSERT_TRUE(session->Read(handle, 0, Writable(out)).Get().ok());
    EXPECT_TRUE(out == counted);
    EXPECT_LT(proxy.bytes_up(), static_cast<int64_t>(kBytes) / 4);
    EXPECT_LT(proxy.bytes_down(), static_cast<int64_t>(kBytes) / 4);
    ThereAndBack(*connection);  // noise is sent as it is
  }
}

// The operations go straight to the daemon and the chunks through a proxy that cuts them off: over
// gRPC, and over bulk sockets.
class CutOffTest : public BulkTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    Start({});
    const bool sockets = GetParam();
    proxy_ = std::make_unique<fakes::CuttingProxy>(sockets ? connection_->server().bulk_address
                                                           : address_);
    ConnectOptions options;
    (sockets ? options.bulk_address : options.data_address) = proxy_->address();
    cut_off_ = *Connection::Connect(address_, options);
  }
  void TearDown() override {
    EXPECT_EQ(Stat("telegrad_bulk_sockets_admitted_total") > 0, GetParam());
  }
  // Waits until a part of the bytes has passed.
  static bool Passes(const std::function<int64_t()>& count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (count() < static_cast<int64_t>(kBytes) / 4) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }
  std::unique_ptr<fakes::CuttingProxy> proxy_;
  std::shared_ptr<Connection> cut_off_;
};

TEST_P(CutOffTest, AnUploadSendsOnlyWhatIsMissingAgain) {
  const std::vector<uint8_t> data = Random(kBytes), none(kBytes);
  constexpr int kCuts = 6;
  proxy_->CutEachAfter(3 << 20, kCuts);
  auto session = *cut_off_->OpenSession();
  const uint64_t handle = session->NewHandle();
  session->Alloc(handle, kBytes);
  session->Write(handle, 0, Bytes(data));
  ASSERT_TRUE(session->Sync().Get().ok()) << session->status();
  EXPECT_GT(proxy_->cuts(), 0);  // the last connections may be through before they are cut
  std::vector<uint8_t> out(kBytes);
  auto direct = session->Read(handle, 0, Writable(out)).Get();
  ASSERT_TRUE(direct.ok()) << direct.status();
  EXPECT_TRUE(out == data);
  // A chunk that had arrived and came again would overlap, and be refused.
  EXPECT_EQ(Stat("telegrad_written_bytes_total"), static_cast<double>(kBytes));
  EXPECT_EQ(Stat("telegrad_chunks_refused_total"), 0);
}

TEST_P(CutOffTest, ADownloadAsksOnlyForWhatIsMissing) {
  const std::vector<uint8_t> data = Random(kBytes);
  auto session = *cut_off_->OpenSession();
  const uint64_t handle = session->NewHandle();
  session->Alloc(handle, kBytes);
  session->Write(handle, 0, Bytes(data));
  ASSERT_TRUE(session->Sync().Get().ok()) << session->status();
  std::vector<uint8_t> out(kBytes);
  Future<Done> read = session->Read(handle, 0, Writable(out));
  ASSERT_TRUE(Passes([&] { return proxy_->bytes_down(); }));
  proxy_->Cut();
  ASSERT_TRUE(read.Get().ok()) << read.Get().status();
  EXPECT_TRUE(out == data);
  // And it was released, so the buffer can be written.
  session->WriteCopy(handle, 0, Bytes(std::vector<uint8_t>(16, 1)));
  EXPECT_TRUE(session->Sync().Get().ok());
}

TEST_P(CutOffTest, ASessionEndsWithATransferUnderWay) {
  const std::vector<uint8_t> data = Random(kBytes);
  {
    auto session = *cut_off_->OpenSession();
    const uint64_t handle = session->NewHandle();
    session->Alloc(handle, kBytes);
    session->Write(handle, 0, Bytes(data));
    ASSERT_TRUE(Passes([&] { return proxy_->bytes_up(); }));
  }
  EXPECT_TRUE(BecomesZero("telegrad_buffers"));
  EXPECT_TRUE(BecomesZero("telegrad_sessions"));
}

INSTANTIATE_TEST_SUITE_P(Over, CutOffTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Sockets" : "Grpc"; });

}  // namespace
}  // namespace telegrad
