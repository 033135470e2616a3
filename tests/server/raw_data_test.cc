// The Data service of the real daemon with clients that violate its protocol.
#include <grpcpp/grpcpp.h>

#include <thread>

#include "engine/base/crc32c.h"
#include "engine/wire/compression.h"
#include "telegrad/v1/compute.grpc.pb.h"
#include "telegrad/v1/data.grpc.pb.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/transfer_requests.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

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
    // Anything but credit.
    v1::TransferResponse Read() {
      v1::TransferResponse response;
      while (call->Read(&response) && response.has_credit()) {
      }
      return response;
    }
    grpc::Status End() {
      v1::TransferResponse response;
      while (call->Read(&response)) {
      }
      return call->Finish();
    }
  };
  std::unique_ptr<Stream> OpenStream(const std::string& token, uint64_t epoch,
                                     v1::Checksum checksum = v1::CHECKSUM_CRC32C) {
    auto stream = std::make_unique<Stream>();
    stream->call = data_->Transfer(&stream->context);
    v1::TransferRequest request;
    request.mutable_attach()->set_token(token);
    request.mutable_attach()->set_epoch(epoch);
    request.mutable_attach()->set_checksum(checksum);
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
    v1::TransferRequest request = ChunkHead(transfer, offset, data);
    request.set_data(data);
    return request;
  }
  // The code with which the server refuses a chunk.
  int Refusal(Stream& stream, const v1::TransferRequest& request) {
    stream.call->Write(request);
    return static_cast<int>(stream.Read().refused().code());
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

TEST_F(RawDataTest, ChunksOverGrpcAreChecked) {
  for (const v1::Checksum wanted :
       {v1::CHECKSUM_CRC32C, v1::CHECKSUM_CRC32, v1::CHECKSUM_NONE, static_cast<v1::Checksum>(9)}) {
    const auto stream = OpenStream(opened_.token(), opened_.epoch(), wanted);
    EXPECT_EQ(stream->Read().attached().checksum(), wanted == v1::CHECKSUM_NONE ? v1::CHECKSUM_CRC32
                                                    : wanted == 9 ? v1::CHECKSUM_CRC32C
                                                                  : wanted);
  }
  auto stream = OpenStream(opened_.token(), opened_.epoch(), v1::CHECKSUM_CRC32);
  stream->Read();
  StartUpload(1, 9);
  v1::TransferRequest chunk = Chunk(1, 0, "123456789");
  EXPECT_EQ(Refusal(*stream, chunk), grpc::StatusCode::DATA_LOSS) << "that is its CRC-32C";
  chunk.mutable_upload()->set_checksum(0xCBF43926);
  stream->call->Write(chunk);
  EXPECT_EQ(ReadBack(9), "123456789");
}

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
  EXPECT_EQ(chunk.download().checksum(), Crc32c("cde", 3));
  v1::TransferRequest release;
  release.mutable_release()->set_transfer(2);
  stream->call->Write(release);
  EXPECT_EQ(Refusal(*stream, Pull(2, 0, 1)), grpc::StatusCode::NOT_FOUND);
}

// A message may hold many operations: those that the session has no room for wait in it.
TEST_F(RawDataTest, GatheredOperationsWaitForRoom) {
  constexpr int kMessages = 30, kGathered = 200, kOperations = kMessages * (1 + kGathered);
  auto stream = OpenStream();
  StartUpload(1, 6);  // behind which everything waits
  const double before = Stat("telegrad_operations_total");
  std::thread writer([&] {
    for (int i = 0; i < kMessages; ++i) {
      v1::ExecuteRequest request, one;
      request.set_op_id(++op_);
      request.mutable_read()->set_handle(1);
      for (int j = 0; j < kGathered; ++j) {
        one.set_op_id(++op_);
        one.mutable_sync();
        *request.add_gathered() = one.SerializeAsString();
      }
      execute_->Write(request);
    }
  });
  constexpr int kRoom = 1024;
  while (Stat("telegrad_operations_total") - before < kRoom) std::this_thread::yield();
  EXPECT_EQ(Stat("telegrad_staged_bytes"), 0) << "each is short, though the message is not";
  for (int i = 0; i < 200; ++i) {  // so long that it would take more, if it did
    ASSERT_LT(Stat("telegrad_operations_total") - before, kRoom + 5);
  }
  stream->call->Write(Chunk(1, 0, "abcdef"));
  for (int i = 0; i < kOperations; ++i) {
    v1::ExecuteResponse response;
    ASSERT_TRUE(execute_->Read(&response)) << i;
    ASSERT_EQ(response.status().code(), 0u) << response.status().message();
    ASSERT_EQ(response.gathered_size(), 0) << "this client has not said that it takes them";
  }
  writer.join();
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
