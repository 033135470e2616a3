// Chunks of an upload that are invalid, or arrive when they are not expected.
#include <functional>
#include <thread>

#include "devices/null/null_device.h"
#include "engine/base/status.h"
#include "server/data/transfer_stream.h"
#include "tests/server/transfer_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using CodeOf = absl::StatusCode;

TEST_F(TransferTest, AWrongChecksumLeavesTheRangeMissing) {
  Alloc(1, 4);
  StartUpload(1, 1, 4);
  const Content damaged("xxxx", absl::DataLossError("checksum"));
  EXPECT_EQ(session().transfers().Take(1, {0, 4}, damaged, Credit()).code(), CodeOf::kDataLoss);
  EXPECT_EQ(session().transfers().Take(9, {0, 4}, damaged, Credit()).code(), CodeOf::kDataLoss);
  EXPECT_EQ(stream_->granted, 8u);
  EXPECT_EQ(session().transfers().Stat(1)->missing, (std::vector<ByteRange>{{0, 4}}));
  EXPECT_TRUE(Chunk(1, 0, "good").ok());
  EXPECT_EQ(Bytes(Read(1, 4)), "good");
}

// Arrives when it is abandoned, which is never in whole.
class Stalled final : public ChunkContent {
 public:
  absl::Status CopyTo(std::byte*) const override {
    begun_.timeline->Signal(1, absl::OkStatus());
    abandoned_.Wait().IgnoreError();
    return absl::UnavailableError("gone");
  }
  bool Abandon() const override {
    if (!asked_.exchange(true)) abandoned_.timeline->Signal(1, absl::OkStatus());
    return true;
  }
  void AwaitBegin() const { begun_.Wait().IgnoreError(); }

 private:
  const TimelinePoint begun_{std::make_shared<Timeline>(), 1};
  const TimelinePoint abandoned_{std::make_shared<Timeline>(), 1};
  mutable std::atomic<bool> asked_ = false;
};

// While it is received, something happens.
class During final : public ChunkContent {
 public:
  explicit During(std::function<void()> what) : what_(std::move(what)) {}
  absl::Status CopyTo(std::byte*) const override {
    what_();
    return absl::OkStatus();
  }
  bool Abandon() const override {
    ADD_FAILURE() << "it was to be abandoned";
    return false;
  }

 private:
  const std::function<void()> what_;
};

// A chunk of an operation that has not come yet may lie anywhere. It comes, and is short, while the
// chunk is being received.
TEST_F(TransferTest, AChunkIsInsideOfTheWholeWhenItIsPlaced) {
  Credit();
  uint64_t transfer = 0;
  for (const uint64_t offset : {uint64_t{1} << 30, uint64_t{16}, uint64_t{14}}) {
    Alloc(++transfer, 16);
    const uint64_t before = stream_->granted;
    const During write([&] {
      StartUpload(transfer, transfer, 16);
      EXPECT_TRUE(Chunk(transfer, 0, "x").ok());
      EXPECT_EQ(stream_->granted, before + 1) << "it is open: the chunk went to its place";
    });
    const absl::Status taken = session().transfers().Take(transfer, {offset, 4}, write, Credit());
    EXPECT_EQ(taken.code(), CodeOf::kInvalidArgument) << taken;
    EXPECT_EQ(stream_->granted, before + 5);
    EXPECT_TRUE(Chunk(transfer, 1, "and its own end").ok());
    EXPECT_EQ(Bytes(Read(transfer, 16)), "xand its own end");
  }
}

// Who brings the bytes in another way waits for its turn, and is let go of if there is none.
TEST_F(TransferTest, WhoWaitsForAnUploadThatNeverOpensIsLetGo) {
  const auto wait_for = [&](uint64_t transfer) {
    auto waiter = std::make_shared<int>();
    const auto upload = *session().transfers().FindUpload(transfer);
    EXPECT_TRUE(upload->WhenOpen([upload, waiter] { FAIL() << "it opened"; }).ok());
    return std::weak_ptr(waiter);
  };
  Alloc(1, 4);
  const auto passed_over = wait_for(1), failed = wait_for(2), cancelled = wait_for(3);
  StartUpload(/*handle=*/9, 2, 4);  // of which there is none
  EXPECT_TRUE(passed_over.expired());
  EXPECT_TRUE(failed.expired());
  const uint64_t held = StartDownload(1, 3, 4);  // no upload at all
  EXPECT_TRUE(StatusOf(held).ok());
  EXPECT_TRUE(cancelled.expired());
}

// What is left of a connection that broke is read late, and must not break the one that took over.
TEST_F(TransferTest, AnOlderStreamTakesNoPlace) {
  Alloc(1, 4);
  StartUpload(1, 1, 4);
  const auto older = *session().transfers().Attach(stream_);
  const auto newer = *session().transfers().Attach(stream_);
  const Content late("late"), good("good");
  const During good_arrives([&] {
    EXPECT_EQ(session().transfers().Take(1, {0, 4}, late, *older).code(), CodeOf::kUnavailable);
  });
  EXPECT_TRUE(session().transfers().Take(1, {0, 4}, good_arrives, *newer).ok());
  EXPECT_EQ(session().transfers().Stat(1).status().code(), CodeOf::kNotFound);
}

// The network was pulled in the middle of a chunk, and nobody knows but its client.
TEST_F(TransferTest, AChunkThatIsSentAgainTakesThePlaceOfOneThatStalls) {
  for (const bool open : {false, true}) {
    const uint64_t transfer = open ? 2 : 1;
    if (!open) Alloc(1, 4);
    if (open) StartUpload(1, transfer, 4);
    const Stalled stalled;
    const auto older = *session().transfers().Attach(stream_);
    const auto newer = *session().transfers().Attach(stream_);
    std::thread broken([&] {
      EXPECT_EQ(session().transfers().Take(transfer, {0, 4}, stalled, *older).code(),
                CodeOf::kUnavailable);
    });
    stalled.AwaitBegin();
    const Content good("good");
    EXPECT_TRUE(session().transfers().Take(transfer, {0, 4}, good, *newer).ok());
    broken.join();
    if (!open) StartUpload(1, transfer, 4);
    EXPECT_EQ(Bytes(Read(1, 4)), "good");
  }
}

// The bytes of one message.
class TextData final : public MessageData {
 public:
  explicit TextData(std::string text) : text_(std::move(text)) {}
  uint64_t bytes() const override { return text_.size(); }
  absl::StatusOr<uint32_t> CopyTo(std::byte* to, Checksum kind) override {
    return CopyWithChecksum(kind, to, text_.data(), text_.size());
  }
  absl::StatusOr<std::span<const std::span<const uint8_t>>> Pieces() override {
    return absl::InternalError("nothing is compressed");
  }

 private:
  const std::string text_;
};

absl::Status SendChunk(TransferStream& stream, uint64_t transfer, const std::string& text) {
  v1::TransferRequest request;
  request.mutable_upload()->set_transfer(transfer);
  request.mutable_upload()->set_bytes(static_cast<uint32_t>(text.size()));
  request.mutable_upload()->set_checksum(ChecksumOf(Checksum::kCrc32c, text.data(), text.size()));
  TextData data(text);
  return stream.Accept(request, data);
}

// Two streams of a session, of whose connections one has broken.
class CutStreamTest : public TransferTest {
 protected:
  void SetUp() override {
    TransferTest::SetUp();
    session();  // is made when it is first asked for
    ASSERT_TRUE(broken_.Attach(session_, stream_, {}).ok());
    ASSERT_TRUE(next_.Attach(session_, stream_, {}).ok());
  }
  TransferStream broken_{&metrics_}, next_{&metrics_};
};

// The end of a stream is noticed on one thread while another one has its last message, and takes
// the chunk after that. Nobody can be told, and nobody has made a mistake: the bytes are missing,
// and the client sends them over another stream.
TEST_F(CutStreamTest, AChunkBehindTheEndOfItsStreamIsMissingAndNotRefused) {
  Alloc(1, 4);
  StartUpload(1, 1, 4);
  broken_.Close();
  EXPECT_TRUE(SendChunk(broken_, 1, "good").ok());
  EXPECT_FALSE(broken_.Next().has_value());
  EXPECT_EQ(session().transfers().Stat(1)->missing, (std::vector<ByteRange>{{0, 4}}));
  EXPECT_TRUE(SendChunk(next_, 1, "good").ok());
  EXPECT_EQ(Bytes(Read(1, 4)), "good");
  EXPECT_EQ(metrics_.count(Metric::kChunksRefused), 0);
}

// The client asks what is missing, and then what the broken connection has still carried arrives.
TEST_F(CutStreamTest, WhatArrivesAfterTheQuestionMayComeAgain) {
  Alloc(1, 8);
  StartUpload(1, 1, 8);
  EXPECT_EQ(session().transfers().Stat(1)->missing, (std::vector<ByteRange>{{0, 8}}));
  EXPECT_TRUE(SendChunk(broken_, 1, "good").ok());
  EXPECT_TRUE(SendChunk(next_, 1, "good").ok());
  EXPECT_TRUE(Chunk(1, 4, "rest").ok());
  EXPECT_EQ(Bytes(Read(1, 8)), "goodrest");
  EXPECT_EQ(metrics_.count(Metric::kChunksRefused), 0);
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), 8);
}

// A device that is busy has the bytes long before it has copied them. Until then they are neither
// missing nor to be refused: a client would send them again and again.
TEST_F(TransferTest, WhatABusyDeviceHasTakenIsNotMissing) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 256 << 20}));
  devices.push_back(OpenNull({}));
  Device* const null = devices[1].get();
  pool_ = *DevicePool::Create(std::move(devices));
  env_.devices = pool_.get();
  const std::shared_ptr<Memory> memory = *null->Alloc(8);
  Command copy;
  copy.kind = Command::Kind::kCopy;
  copy.copy = {{0, 0}, {0, 4}, 4};
  fakes::Gate busy;
  busy.Close();
  const TimelinePoint waits[] = {busy.point()};
  ASSERT_TRUE(
      null->queue(QueueKind::kCopy).Submit(*null->Encode({copy}), {{memory, 0, 8}}, waits).ok());
  Submit(AllocOp{1, 8, null->name()});
  StartUpload(1, 1, 8);
  EXPECT_TRUE(Chunk(1, 0, "good").ok());
  EXPECT_EQ(session().transfers().Stat(1)->missing, (std::vector<ByteRange>{{4, 4}}));
  const Content again("good");
  const auto newer = *session().transfers().Attach(stream_);
  EXPECT_TRUE(session().transfers().Take(1, {0, 4}, again, *newer).ok());
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), 0);
  EXPECT_TRUE(Chunk(1, 4, "rest").ok());
  busy.Open();
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), 8);
  session().Close();
}

// Small ones cost more than their bytes.
TEST_F(TransferTest, OnlySoManyChunksWaitForTheirPlace) {
  Alloc(1, Upload::kMaxChunks + 1);
  for (size_t i = 0; i < Upload::kMaxChunks; ++i) ASSERT_TRUE(Chunk(1, i, "x").ok()) << i;
  const absl::Status more = Chunk(1, Upload::kMaxChunks, "y");
  EXPECT_EQ(more.code(), CodeOf::kResourceExhausted);
  EXPECT_THAT(std::string(more.message()), HasSubstr("4096 chunks"));
  StartUpload(1, 1, Upload::kMaxChunks + 1);
  EXPECT_TRUE(Chunk(1, Upload::kMaxChunks, "y").ok()) << "the others are in their place now";
  EXPECT_EQ(Bytes(Read(1, 2, Upload::kMaxChunks - 1)), "xy");
}

}  // namespace
}  // namespace telegrad
