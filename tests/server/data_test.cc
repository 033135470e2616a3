// Large writes and reads through the real daemon: what the client does with them, and what the Data
// service does with clients that do not keep to the rules.
#include <grpcpp/grpcpp.h>
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
  EXPECT_EQ(Stat("telegrad_bulk_sockets_admitted_total"), ConnectOptions().data_streams);
  EXPECT_TRUE(BecomesZero("telegrad_bulk_sockets"));
  ConnectOptions options;
  options.bulk_sockets = false;
  ThereAndBack(**Connection::Connect(address_, options));
  EXPECT_EQ(Stat("telegrad_bulk_sockets_admitted_total"), ConnectOptions().data_streams);
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
  EXPECT_EQ(Stat("telegrad_bulk_sockets"), ConnectOptions().data_streams);
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
  EXPECT_EQ(proxy_->cuts(), kCuts);
  std::vector<uint8_t> out(kBytes);
  auto direct = session->Read(handle, 0, Writable(out)).Get();
  ASSERT_TRUE(direct.ok()) << direct.status();
  EXPECT_TRUE(out == data);
  // What the proxy had taken of a chunk when it cut it off, and what the kernel had, is sent again;
  // all of it again would be six times three megabytes more.
  EXPECT_EQ(Stat("telegrad_written_bytes_total"), static_cast<double>(kBytes));
  EXPECT_EQ(Stat("telegrad_chunks_refused_total"), 0);
  EXPECT_LT(proxy_->bytes_up(), static_cast<int64_t>(kBytes) + kCuts * (2 << 20));
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
  while (proxy_->bytes_down() < static_cast<int64_t>(kBytes) / 4) std::this_thread::yield();
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
    while (proxy_->bytes_up() < static_cast<int64_t>(kBytes) / 4) std::this_thread::yield();
  }
  EXPECT_TRUE(BecomesZero("telegrad_buffers"));
  EXPECT_TRUE(BecomesZero("telegrad_sessions"));
}

INSTANTIATE_TEST_SUITE_P(Over, CutOffTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Sockets" : "Grpc"; });

// A raw client of the service, beside a session that the client library holds.
class RawDataTest : public DaemonTest {
 protected:
  void SetUp() override {
    Start({"--staged-bytes", "4194304"});
    channel_ = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
    stub_ = v1::Compute::NewStub(channel_);
    data_ = v1::Data::NewStub(channel_);
    execute_ = stub_->Execute(&execute_context_);
    v1::ExecuteRequest request;
    request.set_op_id(++op_);
    request.mutable_open()->set_protocol(1);
    execute_->Write(request);
    v1::ExecuteResponse response;
    ASSERT_TRUE(execute_->Read(&response));
    opened_ = response.open();
    request.Clear();
    request.set_op_id(++op_);
    request.mutable_alloc()->set_handle(1);
    request.mutable_alloc()->set_bytes(64);
    execute_->Write(request);
  }
  void TearDown() override {
    EndSession();
    EXPECT_TRUE(BecomesZero("telegrad_buffers"));
  }
  void EndSession() {
    if (execute_ == nullptr) return;
    execute_->WritesDone();
    v1::ExecuteResponse response;
    while (execute_->Read(&response)) {
    }
    EXPECT_TRUE(execute_->Finish().ok());
    execute_ = nullptr;
  }

  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::TransferRequest, v1::TransferResponse>> call;
    v1::TransferResponse Read() {
      v1::TransferResponse response;
      call->Read(&response);
      return response;
    }
    grpc::Status End() {
      v1::TransferResponse response;
      while (call->Read(&response)) {
      }
      return call->Finish();
    }
  };
  std::unique_ptr<Stream> OpenStream(const std::string& token, uint64_t epoch) {
    auto stream = std::make_unique<Stream>();
    stream->call = data_->Transfer(&stream->context);
    v1::TransferRequest request;
    request.mutable_attach()->set_token(token);
    request.mutable_attach()->set_epoch(epoch);
    stream->call->Write(request);
    return stream;
  }
  std::unique_ptr<Stream> OpenStream() {
    auto stream = OpenStream(opened_.token(), opened_.epoch());
    EXPECT_GT(stream->Read().attached().credit(), 0u);
    return stream;
  }
  void StartUpload(uint64_t transfer, uint64_t bytes) {
    v1::ExecuteRequest request;
    request.set_op_id(++op_);
    request.mutable_write()->set_handle(1);
    request.mutable_write()->set_transfer(transfer);
    request.mutable_write()->set_bytes(bytes);
    execute_->Write(request);
    // Chunks travel on another stream, and whoever overtakes it is not told what is wrong with
    // them.
    v1::StatUploadRequest stat;
    stat.set_token(opened_.token());
    stat.set_epoch(opened_.epoch());
    stat.set_transfer(transfer);
    grpc::Status status;
    do {
      grpc::ClientContext context;
      v1::StatUploadResponse response;
      status = data_->StatUpload(&context, stat, &response);
    } while (status.error_code() == grpc::StatusCode::UNAVAILABLE);
  }
  void StartDownload(uint64_t transfer, uint64_t bytes) {
    v1::ExecuteRequest request;
    request.set_op_id(++op_);
    request.mutable_read()->set_handle(1);
    request.mutable_read()->set_transfer(transfer);
    request.mutable_read()->set_bytes(bytes);
    execute_->Write(request);
    v1::ExecuteResponse response;
    ASSERT_TRUE(execute_->Read(&response));
    ASSERT_EQ(response.status().code(), 0u) << response.status().message();
    EXPECT_TRUE(response.read().last());
    EXPECT_TRUE(response.data().empty());
  }
  static v1::TransferRequest Chunk(uint64_t transfer, uint64_t offset, const std::string& data) {
    v1::TransferRequest request;
    v1::Chunk& chunk = *request.mutable_upload();
    chunk.set_transfer(transfer);
    chunk.set_offset(offset);
    chunk.set_bytes(static_cast<uint32_t>(data.size()));
    chunk.set_crc32c(Crc32c(data.data(), data.size()));
    request.set_data(data);
    return request;
  }
  // The code with which the server refuses a chunk.
  int Refusal(Stream& stream, const v1::TransferRequest& request) {
    stream.call->Write(request);
    return static_cast<int>(stream.Read().refused().code());
  }
  static v1::TransferRequest Pull(uint64_t transfer, uint64_t offset, uint64_t bytes) {
    v1::TransferRequest request;
    request.mutable_pull()->set_transfer(transfer);
    request.mutable_pull()->set_offset(offset);
    request.mutable_pull()->set_bytes(bytes);
    return request;
  }
  std::string ReadBack(uint64_t bytes) {
    v1::ExecuteRequest request;
    request.set_op_id(++op_);
    request.mutable_read()->set_handle(1);
    request.mutable_read()->set_bytes(bytes);
    execute_->Write(request);
    v1::ExecuteResponse response;
    execute_->Read(&response);
    return response.status().code() == 0 ? response.data() : response.status().message();
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Compute::Stub> stub_;
  std::unique_ptr<v1::Data::Stub> data_;
  grpc::ClientContext execute_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecuteRequest, v1::ExecuteResponse>> execute_;
  v1::OpenResult opened_;
  uint64_t op_ = 0;
};

TEST_F(RawDataTest, OrdinaryProtobufMessagesDo) {
  auto stream = OpenStream();
  StartUpload(1, 6);
  stream->call->Write(Chunk(1, 3, "def"));
  stream->call->Write(Chunk(1, 0, "abc"));
  EXPECT_EQ(ReadBack(6), "abcdef");
  StartDownload(2, 6);
  stream->call->Write(Pull(2, 2, 3));
  const v1::TransferResponse chunk = stream->Read();
  EXPECT_EQ(chunk.data(), "cde");
  EXPECT_EQ(chunk.download().offset(), 2u);
  EXPECT_EQ(chunk.download().crc32c(), Crc32c("cde", 3));
  v1::TransferRequest release;
  release.mutable_release()->set_transfer(2);
  stream->call->Write(release);
  EXPECT_EQ(Refusal(*stream, Pull(2, 0, 1)), grpc::StatusCode::NOT_FOUND);
}

TEST_F(RawDataTest, ChunksThatAreNotWhatTheySayAreRefused) {
  auto stream = OpenStream();
  StartUpload(1, 64);
  v1::TransferRequest damaged = Chunk(1, 0, "damaged");
  damaged.set_data("demaged");
  EXPECT_EQ(Refusal(*stream, damaged), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(Refusal(*stream, Chunk(1, 60, "beyond")), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Refusal(*stream, Chunk(1, UINT64_MAX - 2, "around")),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Refusal(*stream, Chunk(1, 0, "")), grpc::StatusCode::INVALID_ARGUMENT);
  stream->call->Write(Chunk(1, 10, "there"));
  EXPECT_EQ(Refusal(*stream, Chunk(1, 8, "overlap")), grpc::StatusCode::INVALID_ARGUMENT);
  // A bomb: says 64 bytes and becomes a megabyte.
  const std::string zeros(1 << 20, '\0');
  for (const CompressionMethod& method : CompressionMethods()) {
    std::string packed;
    ASSERT_TRUE(Compress(method, std::as_bytes(std::span(zeros)), &packed));
    v1::TransferRequest bomb = Chunk(1, 0, std::string(64, '\0'));
    bomb.mutable_upload()->set_offset(0);
    bomb.mutable_upload()->set_compression(method.number);
    bomb.set_data(packed);
    const int code = Refusal(*stream, bomb);
    EXPECT_EQ(code, grpc::StatusCode::INVALID_ARGUMENT) << method.name;
  }
  // None of it has done harm.
  stream->call->Write(Chunk(1, 0, std::string(10, 'a')));
  stream->call->Write(Chunk(1, 15, std::string(49, 'b')));
  EXPECT_EQ(ReadBack(64), std::string(10, 'a') + "there" + std::string(49, 'b'));
  EXPECT_EQ(Refusal(*stream, Chunk(1, 0, "late")), grpc::StatusCode::NOT_FOUND);
}

TEST_F(RawDataTest, PullsOutsideOfTheDownloadAreRefused) {
  auto stream = OpenStream();
  StartDownload(1, 64);
  EXPECT_EQ(Refusal(*stream, Pull(2, 0, 1)), grpc::StatusCode::NOT_FOUND);
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>{64, 1},
                                      {0, 65},
                                      {0, 0},
                                      {UINT64_MAX, 1},
                                      {1, UINT64_MAX},
                                      {UINT64_MAX, UINT64_MAX}}) {
    EXPECT_EQ(Refusal(*stream, Pull(1, offset, bytes)), grpc::StatusCode::INVALID_ARGUMENT)
        << offset << " + " << bytes;
  }
}

TEST_F(RawDataTest, ClientsThatBreakTheRulesAreCutOff) {
  const auto ends = [&](const v1::TransferRequest& request) {
    auto stream = OpenStream();
    stream->call->Write(request);
    return stream->End();
  };
  v1::TransferRequest large = Chunk(1, 0, std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(ends(large).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::TransferRequest longer = Chunk(1, 0, "abc");
  longer.set_data("abcd");
  EXPECT_EQ(ends(longer).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::TransferRequest unknown = Chunk(1, 0, "abc");
  unknown.mutable_upload()->set_compression(static_cast<v1::Compression>(77));
  EXPECT_EQ(ends(unknown).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ends({}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::TransferRequest again;
  again.mutable_attach()->set_token(opened_.token());
  EXPECT_EQ(ends(again).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  auto first = std::make_unique<Stream>();
  first->call = data_->Transfer(&first->context);
  first->call->Write(Chunk(1, 0, "abc"));
  EXPECT_EQ(first->End().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(RawDataTest, OnlyATokenOfThisServerAttaches) {
  const auto code = [&](const std::string& token, uint64_t epoch) {
    return OpenStream(token, epoch)->End().error_code();
  };
  std::string other = opened_.token();
  other[3] ^= 1;
  EXPECT_EQ(code(other, opened_.epoch()), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(code("", opened_.epoch()), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(code(opened_.token(), opened_.epoch() + 1), grpc::StatusCode::ABORTED);
  v1::StatUploadRequest request;
  v1::StatUploadResponse response;
  request.set_token(other);
  request.set_epoch(opened_.epoch());
  grpc::ClientContext context;
  EXPECT_EQ(data_->StatUpload(&context, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(RawDataTest, WhoSendsBeyondTheCreditIsRefused) {
  auto stream = OpenStream();
  const std::string chunk(256 << 10, 'x');  // of a megabyte of credit, for no operation
  for (int i = 0; i < 4; ++i) stream->call->Write(Chunk(9, i * chunk.size(), chunk));
  const v1::TransferRequest more = Chunk(9, 4 * chunk.size(), chunk);
  stream->call->Write(more);
  const v1::TransferResponse response = stream->Read();
  EXPECT_EQ(response.refused().code(), static_cast<uint32_t>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_THAT(response.refused().message(), HasSubstr("credit"));
  EXPECT_EQ(response.refused().offset(), 4 * chunk.size());
}

TEST_F(RawDataTest, StreamsEndWithTheirSession) {
  auto stream = OpenStream();
  EndSession();
  const grpc::Status end = stream->End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::ABORTED) << end.error_message();
}

// Answers that nobody reads do not pile up: the stream is not read further.
TEST_F(RawDataTest, ASlowReaderOfRefusalsIsNotReadFurther) {
  auto stream = OpenStream();
  StartDownload(1, 64);
  std::thread writer([&] {
    for (int i = 0; i < 2000; ++i) {
      if (!stream->call->Write(Pull(7, 0, 1))) break;
    }
    stream->call->WritesDone();
  });
  int refused = 0;
  v1::TransferResponse response;
  while (stream->call->Read(&response)) refused += response.has_refused() ? 1 : 0;
  writer.join();
  EXPECT_EQ(refused, 2000);
  EXPECT_TRUE(stream->call->Finish().ok());
}

}  // namespace
}  // namespace telegrad
