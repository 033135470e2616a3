// Bulk sockets without gRPC, driven by a client of the test's own: transfers in all variants,
// and what happens when the client violates the protocol.
#include <zlib.h>

#include <random>
#include <thread>

#include "engine/base/crc32c.h"
#include "engine/base/status.h"
#include "engine/net/frames.h"
#include "engine/net/tcp.h"
#include "engine/wire/compression.h"
#include "proto/transport.h"
#include "server/data/bulk_listener.h"
#include "tests/server/bulk_token.h"
#include "tests/server/session_fixture.h"
#include "tests/server/transfer_requests.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr std::chrono::milliseconds kStall{20'000};

class BulkSocketTest : public SessionTest {
 protected:
  void SetUp() override { Start({.addresses = {"127.0.0.1:0"}}); }
  void TearDown() override {
    if (session_) session_->Close();
    bulk_.reset();
    EXPECT_EQ(metrics_.count(Metric::kBulkSockets), 0);
  }
  void Start(BulkOptions options) {
    bulk_.reset();
    auto bulk = BulkListener::Start(options, &metrics_);
    ASSERT_TRUE(bulk.ok()) << bulk.status();
    bulk_ = *std::move(bulk);
  }
  std::unique_ptr<StreamSocket> Dial() {
    auto fd = ConnectTcp(bulk_->addresses().front(), std::chrono::steady_clock::now() + kStall);
    EXPECT_TRUE(fd.ok()) << fd.status();
    return std::make_unique<StreamSocket>(*std::move(fd), kStall);
  }
  static absl::Status Say(StreamSocket& socket, const v1::TransferRequest& request,
                          std::string_view data = {}) {
    return SendFrame(socket, request.SerializeAsString(), std::as_bytes(std::span(data)));
  }
  static v1::TransferRequest Attach(const PresharedKey& key) {
    v1::TransferRequest request;
    request.mutable_attach()->set_token(Token(key));
    return request;
  }
  // The next message; its data is in data_. An empty one when the connection is over.
  // Anything but credit.
  v1::TransferResponse Hear(StreamSocket& socket) {
    v1::TransferResponse response = HearAll(socket);
    while (response.has_credit()) response = HearAll(socket);
    return response;
  }
  v1::TransferResponse HearAll(StreamSocket& socket) {
    v1::TransferResponse response;
    const auto frame = ReceiveFrame(socket, 1 << 16, kChunkBytes);
    if (!frame.ok()) return response;
    data_.resize(frame->payload_bytes);
    if (!socket.Receive(std::as_writable_bytes(std::span(data_))).ok()) return response;
    EXPECT_TRUE(response.ParseFromString(frame->head));
    return response;
  }
  // With a ticket of session_, attached.
  std::unique_ptr<StreamSocket> Attached(v1::Checksum checksum = v1::CHECKSUM_CRC32C) {
    session();
    const auto key = bulk_->Admit(session_);
    EXPECT_TRUE(key.ok()) << key.status();
    auto socket = Dial();
    v1::TransferRequest request = Attach(*key);
    request.mutable_attach()->set_checksum(checksum);
    EXPECT_TRUE(Say(*socket, request).ok());
    const auto attached = Hear(*socket);
    EXPECT_EQ(attached.attached().checksum(), checksum);
    EXPECT_GT(attached.attached().credit(), 0u);
    EXPECT_TRUE(IsProof(attached.attached().proof(), key->secret, Prover::kServer, kNonce));
    EXPECT_EQ(attached.attached().chunk_bytes(), static_cast<uint64_t>(kChunkBytes));
    return socket;
  }
  static absl::Status SendChunk(StreamSocket& socket, uint64_t transfer, uint64_t offset,
                                std::string_view data) {
    return Say(socket, ChunkHead(transfer, offset, data), data);
  }
  uint64_t StartUpload(uint64_t handle, uint64_t transfer, uint64_t bytes) {
    return Submit(WriteOp{handle, 0, nullptr, transfer, bytes});
  }
  void StartDownload(uint64_t handle, uint64_t transfer, uint64_t bytes) {
    EXPECT_TRUE(StatusOf(Submit(ReadOp{handle, 0, bytes, transfer})).ok());
  }
  static std::string Noise(size_t size) {
    std::mt19937 random(11);
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    return bytes;
  }

  std::unique_ptr<BulkListener> bulk_;
  std::string data_;
};

TEST_F(BulkSocketTest, ChunksGoToTheirBufferAndComeBack) {
  constexpr size_t kBytes = 3 << 20;
  const std::string data = Noise(kBytes);
  Alloc(1, kBytes);
  StartUpload(1, 1, kBytes);
  auto one = Attached(), two = Attached();
  ASSERT_TRUE(SendChunk(*one, 1, 2 << 20, data.substr(2 << 20)).ok());
  ASSERT_TRUE(SendChunk(*two, 1, 0, data.substr(0, 1 << 20)).ok());
  ASSERT_TRUE(SendChunk(*one, 1, 1 << 20, data.substr(1 << 20, 1 << 20)).ok());
  EXPECT_TRUE(Bytes(Read(1, kBytes)) == data);
  StartDownload(1, 2, kBytes);
  ASSERT_TRUE(Say(*two, Pull(2, 5, kBytes - 5)).ok());
  std::string got;
  while (got.size() < kBytes - 5) {
    const v1::TransferResponse response = Hear(*two);
    ASSERT_TRUE(response.has_download()) << response.ShortDebugString();
    EXPECT_EQ(response.download().offset(), 5 + got.size());
    EXPECT_EQ(response.download().checksum(), Crc32c(data_.data(), data_.size()));
    got += data_;
  }
  EXPECT_TRUE(got == data.substr(5));
  EXPECT_EQ(metrics_.count(Metric::kBulkAdmitted), 2);
  EXPECT_EQ(metrics_.count(Metric::kChunksRefused), 0);
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), static_cast<int64_t>(kBytes));
}

TEST_F(BulkSocketTest, AStreamMayUseTheChecksumOfZlib) {
  const std::string data = Noise(300'000);
  Alloc(1, data.size());
  StartUpload(1, 1, data.size());
  auto socket = Attached(v1::CHECKSUM_CRC32);
  ASSERT_TRUE(SendChunk(*socket, 1, 0, data).ok());
  const v1::TransferResponse refused = Hear(*socket);
  EXPECT_EQ(refused.refused().code(), static_cast<uint32_t>(absl::StatusCode::kDataLoss))
      << "it has the sum of CRC-32C";
  v1::TransferRequest chunk = ChunkHead(1, 0, data);
  const auto sum = [](std::string_view bytes) {
    return static_cast<uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
  };
  chunk.mutable_upload()->set_checksum(sum(data));
  ASSERT_TRUE(Say(*socket, chunk, data).ok());
  EXPECT_TRUE(Bytes(Read(1, data.size())) == data);
  StartDownload(1, 2, data.size());
  ASSERT_TRUE(Say(*socket, Pull(2, 0, data.size())).ok());
  v1::TransferResponse response = Hear(*socket);
  while (response.has_credit()) response = Hear(*socket);
  EXPECT_EQ(response.download().checksum(), sum(data));
  EXPECT_TRUE(data_ == data);
}

TEST_F(BulkSocketTest, WithinAMachineAStreamMayDoWithoutChecksums) {
  Alloc(1, 4);
  StartUpload(1, 1, 4);
  auto socket = Attached(v1::CHECKSUM_NONE);
  v1::TransferRequest chunk = ChunkHead(1, 0, "data");
  chunk.mutable_upload()->clear_checksum();
  ASSERT_TRUE(Say(*socket, chunk, "data").ok());
  EXPECT_EQ(Bytes(Read(1, 4)), "data");
  StartDownload(1, 2, 4);
  ASSERT_TRUE(Say(*socket, Pull(2, 0, 4)).ok());
  EXPECT_EQ(Hear(*socket).download().checksum(), 0u);
  EXPECT_EQ(data_, "data");
}

TEST_F(BulkSocketTest, ChunksAreStagedUntilTheirTurn) {
  Alloc(1, 4);
  auto socket = Attached();
  ASSERT_TRUE(SendChunk(*socket, 1, 0, "data").ok());
  // Answered after the chunk.
  ASSERT_TRUE(Say(*socket, Pull(77, 0, 1)).ok());
  EXPECT_EQ(Hear(*socket).refused().transfer(), 77u);
  EXPECT_EQ(tenant_->accounts[Quota::kHostStaging].used(),
            static_cast<int64_t>(env_.limits.staged_bytes / Transfers::kStreams));
  StartUpload(1, 1, 4);
  EXPECT_EQ(Bytes(Read(1, 4)), "data");
}

TEST_F(BulkSocketTest, CompressedBothWays) {
  constexpr size_t kBytes = 1 << 20;
  const std::string zeros(kBytes, '\0');
  Alloc(1, kBytes);
  auto socket = Attached();
  uint64_t transfer = 0;
  for (const CompressionMethod& method : CompressionMethods()) {
    std::string packed;
    ASSERT_TRUE(Compress(method, std::as_bytes(std::span(zeros)), &packed));
    StartUpload(1, ++transfer, kBytes);
    v1::TransferRequest request = ChunkHead(transfer, 0, zeros);
    request.mutable_upload()->set_compression(method.number);
    ASSERT_TRUE(Say(*socket, request, packed).ok());
    EXPECT_TRUE(Bytes(Read(1, kBytes)) == zeros);
    StartDownload(1, ++transfer, kBytes);
    request = Pull(transfer, 0, kBytes);
    request.mutable_pull()->set_compression(method.number);
    ASSERT_TRUE(Say(*socket, request).ok());
    const v1::TransferResponse response = Hear(*socket);
    EXPECT_EQ(response.download().compression(), method.number);
    EXPECT_LT(data_.size(), kBytes / 16);
    session().transfers().Release(transfer);
  }
}

TEST_F(BulkSocketTest, WhatIsWrongWithOneChunkIsTold) {
  Alloc(1, 8);
  StartUpload(1, 1, 8);
  auto socket = Attached();
  ASSERT_TRUE(Say(*socket, ChunkHead(1, 0, "damaged!"), "demaged!").ok());
  const v1::Refused refused = Hear(*socket).refused();
  EXPECT_EQ(refused.code(), static_cast<uint32_t>(Code::kDataLoss));
  EXPECT_EQ(refused.bytes(), 8u);
  // The data of what is refused before it is received is skipped.
  ASSERT_TRUE(SendChunk(*socket, 1, 6, "beyond").ok());
  EXPECT_EQ(Hear(*socket).refused().code(), static_cast<uint32_t>(Code::kInvalidArgument));
  ASSERT_TRUE(SendChunk(*socket, 1, 0, "good one").ok());
  EXPECT_EQ(Bytes(Read(1, 8)), "good one");
  ASSERT_TRUE(SendChunk(*socket, 1, 0, "late").ok());
  EXPECT_EQ(Hear(*socket).refused().code(), static_cast<uint32_t>(Code::kNotFound));
  EXPECT_EQ(metrics_.count(Metric::kChunksRefused), 2);  // the late one was only not needed
}

TEST_F(BulkSocketTest, BeyondItsCreditAStreamIsRefused) {
  env_.limits.staged_bytes = 4 << 20;
  session();
  auto socket = Dial();
  ASSERT_TRUE(Say(*socket, Attach(*bulk_->Admit(session_))).ok());
  const v1::Attached attached = Hear(*socket).attached();
  EXPECT_EQ(attached.credit(), 1u << 20);
  const std::string part(attached.chunk_bytes(), 'x');
  for (uint64_t at = 0; at <= attached.credit(); at += part.size()) {
    ASSERT_TRUE(SendChunk(*socket, 1, at, part).ok());
  }
  const v1::Refused refused = Hear(*socket).refused();
  EXPECT_EQ(refused.offset(), attached.credit());
  EXPECT_EQ(refused.code(), static_cast<uint32_t>(Code::kResourceExhausted));
  EXPECT_THAT(refused.message(), HasSubstr("credit"));
}

// What breaks the protocol: the connection ends and the reason is told.
TEST_F(BulkSocketTest, WhoBreaksTheRulesIsCutOff) {
  Alloc(1, 8);
  const std::string too_long(kChunkBytes + 1, 'x');
  v1::TransferRequest unknown = ChunkHead(1, 0, "x");
  unknown.mutable_upload()->set_compression(static_cast<v1::Compression>(99));
  v1::TransferRequest short_of = ChunkHead(1, 0, "four");
  v1::TransferRequest big = ChunkHead(1, 0, "x");
  big.mutable_upload()->set_bytes(kChunkBytes + 1);
  const struct {
    std::string head, data, says;
  } kRows[] = {{"\xff\xff garbage", "", "malformed"},
               {v1::TransferRequest().SerializeAsString(), "", "has no field"},
               {Attach({}).SerializeAsString(), "", "first message"},
               {unknown.SerializeAsString(), "x", "compression 99"},
               {short_of.SerializeAsString(), "3by", "comes with 3"},
               {big.SerializeAsString(), "x", "the largest is"},
               {std::string(kMaxDataHeadBytes + 1, 'h'), "", "a frame of"},
               {"", too_long, "a frame of"}};
  for (const auto& row : kRows) {
    auto socket = Attached();
    SendFrame(*socket, row.head, std::as_bytes(std::span(row.data))).IgnoreError();
    const v1::TransferResponse response = Hear(*socket);
    EXPECT_EQ(response.ended().code(), static_cast<uint32_t>(Code::kInvalidArgument)) << row.says;
    EXPECT_THAT(response.ended().message(), HasSubstr(row.says));
    std::byte byte;
    EXPECT_EQ(socket->Receive({&byte, 1}).code(), Code::kUnavailable);
    if (&row != kRows) socket.reset();  // the first one stays, and is not waited for either
    sink_->Await([&] { return metrics_.count(Metric::kBulkSockets) == 0; });
  }
}

TEST_F(BulkSocketTest, WithoutATicketThereIsNothing) {
  session();
  const PresharedKey key = *bulk_->Admit(session_);
  v1::TransferRequest other = Attach(key);
  other.mutable_attach()->mutable_token()->back() ^= 1;
  const struct {
    std::string head, data, says;
    Code code;
  } kRows[] = {
      {other.SerializeAsString(), "", "unknown ticket", Code::kPermissionDenied},
      {Attach({}).SerializeAsString(), "", "unknown ticket", Code::kPermissionDenied},
      {ChunkHead(1, 0, "x").SerializeAsString(), "", "must be attach", Code::kInvalidArgument},
      {"GET / HTTP/1.1\r\n", "", "must be attach", Code::kInvalidArgument},
      {Attach(key).SerializeAsString(), "data", "a frame of", Code::kInvalidArgument},
      {std::string(2000, 'h'), "", "a frame of", Code::kInvalidArgument}};
  for (const auto& row : kRows) {
    auto socket = Dial();
    SendFrame(*socket, row.head, std::as_bytes(std::span(row.data))).IgnoreError();
    const v1::TransferResponse response = Hear(*socket);
    EXPECT_EQ(response.ended().code(), static_cast<uint32_t>(row.code)) << row.says;
    EXPECT_THAT(response.ended().message(), HasSubstr(row.says));
  }
  EXPECT_EQ(metrics_.count(Metric::kBulkAdmitted), 0);
  auto socket = Dial();
  ASSERT_TRUE(Say(*socket, Attach(key)).ok());
  EXPECT_TRUE(Hear(*socket).has_attached()) << "the ticket is still good";
}

// A chunk whose sender is gone in its midst is missing as a whole, and comes over another
// connection.
TEST_F(BulkSocketTest, ABrokenChunkIsMissing) {
  Alloc(1, 8);
  StartUpload(1, 1, 8);
  auto socket = Attached();
  ASSERT_TRUE(SendChunk(*socket, 1, 0, "1234").ok());
  const std::string head = ChunkHead(1, 4, "5678").SerializeAsString();
  std::string frame = {static_cast<char>(head.size()), 0, 0, 0, 4, 0, 0, 0};
  frame += head + "56";
  ASSERT_TRUE(socket->Send(std::as_bytes(std::span(frame))).ok());
  socket.reset();
  auto again = Attached();
  v1::TransferResponse response;
  do {  // as long as the first connection has not ended
    ASSERT_TRUE(SendChunk(*again, 1, 4, "5678").ok());
    ASSERT_TRUE(Say(*again, Pull(77, 0, 1)).ok());
    response = Hear(*again);
    if (response.refused().transfer() == 1) {
      EXPECT_EQ(response.refused().code(), static_cast<uint32_t>(Code::kUnavailable));
      EXPECT_EQ(Hear(*again).refused().transfer(), 77u);
    }
  } while (response.refused().transfer() == 1);
  EXPECT_EQ(Bytes(Read(1, 8)), "12345678");
}

// Ends while its connection waits: for a message, in the middle of one, for its client to read.
TEST_F(BulkSocketTest, ConnectionsEndWithTheirSession) {
  constexpr size_t kBytes = 64 << 20;
  Alloc(1, kBytes);
  Write(1, "there");
  StartDownload(1, 1, kBytes);
  auto idle = Attached(), amid = Attached(), unread = Attached();
  const std::string half("\x20\0\0\0", 4);
  ASSERT_TRUE(amid->Send(std::as_bytes(std::span(half))).ok());
  ASSERT_TRUE(Say(*unread, Pull(1, 0, kBytes)).ok());
  sink_->Await([&] { return metrics_.count(Metric::kBytesRead) > 0; });
  session_->Close();
  session_.reset();
  std::byte byte;
  while (idle->Receive({&byte, 1}).ok()) {
  }
  sink_->Await([&] { return metrics_.count(Metric::kBulkSockets) == 0; });
}

// A chunk arrives though its client reads nothing of all that it has asked for.
TEST_F(BulkSocketTest, NeitherDirectionWaitsForTheOther) {
  constexpr size_t kBytes = 16 << 20;
  Alloc(1, kBytes);
  Alloc(2, 4);
  Write(1, "there");
  StartDownload(1, 1, kBytes);
  StartUpload(2, 2, 4);
  auto socket = Attached();
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(Say(*socket, Pull(1, 0, kBytes)).ok());
  ASSERT_TRUE(SendChunk(*socket, 2, 0, "amid").ok());
  EXPECT_EQ(Bytes(Read(2, 4)), "amid");
}

TEST_F(BulkSocketTest, ThereAreOnlySoMany) {
  Start({.addresses = {"127.0.0.1:0"}, .most = 2});
  auto one = Attached(), two = Attached();
  const auto more = bulk_->Admit(session_);
  EXPECT_EQ(more.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()), HasSubstr("--bulk-sockets"));
  one.reset();
  sink_->Await([&] { return metrics_.count(Metric::kBulkSockets) == 1; });
  EXPECT_TRUE(Attached() != nullptr);
}

// Who shows no ticket does not keep others out.
TEST_F(BulkSocketTest, ThoseThatWaitTooLongMakeRoom) {
  std::vector<std::unique_ptr<StreamSocket>> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(Dial());
  std::byte gone;
  while (silent[50]->Receive({&gone, 1}).ok()) {
  }
  sink_->Await([&] { return metrics_.count(Metric::kBulkSockets) <= BulkListener::kMostWaiting; });
  EXPECT_TRUE(Attached() != nullptr);
  std::byte byte;
  EXPECT_EQ(silent.front()->Receive({&byte, 1}).code(), Code::kUnavailable);
}

TEST_F(BulkSocketTest, UnderTlsTheTicketIsTheKey) {
  Start({.addresses = {"127.0.0.1:0"}, .tls = true});
  Alloc(1, 4);
  StartUpload(1, 1, 4);
  const PresharedKey key = *bulk_->Admit(session_);
  const auto dial = [&](const PresharedKey& shown) {
    return *TlsClient(
        *ConnectTcp(bulk_->addresses().front(), std::chrono::steady_clock::now() + kStall), kStall,
        shown);
  };
  auto guess = dial({key.identity, std::string(32, 'g')});
  EXPECT_EQ(guess->Handshake().code(), Code::kUnavailable);
  auto clear = Dial();
  ASSERT_TRUE(Say(*clear, Attach(key)).ok());
  EXPECT_FALSE(Hear(*clear).has_attached());
  auto socket = dial(key);
  ASSERT_TRUE(socket->Handshake().ok());
  ASSERT_TRUE(Say(*socket, Attach(key)).ok());
  ASSERT_TRUE(Hear(*socket).has_attached());
  ASSERT_TRUE(SendChunk(*socket, 1, 0, "safe").ok());
  EXPECT_EQ(Bytes(Read(1, 4)), "safe");
  EXPECT_EQ(dial(key)->Handshake().code(), Code::kUnavailable) << "it was used";
}

TEST_F(BulkSocketTest, AnAddressThatIsTakenIsSaid) {
  const auto second = BulkListener::Start({.addresses = bulk_->addresses()}, &metrics_);
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(bulk_->addresses().front()));
}

// Connections that break at random points of their messages: what is there in the end is whole.
TEST_F(BulkSocketTest, CutOffAnywhere) {
  constexpr size_t kChunk = 64 << 10, kChunks = 64;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(StrCat("seed ", seed));
  std::mt19937 random(seed);
  const std::string data = Noise(kChunk * kChunks);
  Alloc(1, data.size());
  StartUpload(1, 1, data.size());
  int cuts = 0;
  for (auto state = session().transfers().Stat(1); state.ok() && !state->missing.empty();
       state = session().transfers().Stat(1)) {
    auto socket = Attached();
    bool cut = false;
    for (const ByteRange& range : state->missing) {
      ASSERT_EQ(range.offset % kChunk, 0u) << "a part of a chunk was taken for all of it";
      const std::string_view chunk = std::string_view(data).substr(range.offset, kChunk);
      const std::string head = ChunkHead(1, range.offset, chunk).SerializeAsString();
      std::string frame = {static_cast<char>(head.size()), 0, 0, 0, 0, 0, 1, 0};
      frame += head;
      frame += chunk;
      cut = random() % 3 == 0;
      if (cut) frame.resize(random() % frame.size());
      ASSERT_TRUE(socket->Send(std::as_bytes(std::span(frame))).ok());
      if (cut) break;
    }
    if (!cut) {  // answered when all before it was taken
      ASSERT_TRUE(Say(*socket, Pull(77, 0, 1)).ok());
      while (!Hear(*socket).has_refused()) {
      }
    }
    cuts += cut ? 1 : 0;
    socket.reset();
    sink_->Await([&] { return metrics_.count(Metric::kBulkSockets) == 0; });
  }
  EXPECT_TRUE(Bytes(Read(1, data.size())) == data);
  EXPECT_GT(cuts, 0);
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), static_cast<int64_t>(data.size()));
}

}  // namespace
}  // namespace telegrad
