// Transfers of a session without a network: chunks in any order, under credit, beside operations.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>

#include "devices/null/null_device.h"
#include "engine/base/status.h"
#include "server/data/local_data.h"
#include "server/session/session_registry.h"
#include "tests/server/transfer_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

// As if it had been copied: what it stands for takes no memory.
class NoContent final : public ChunkContent {
  absl::Status CopyTo(std::byte*) const override { return absl::OkStatus(); }
};

TEST_F(TransferTest, ChunksArriveInAnyOrder) {
  Alloc(1, 10);
  StartUpload(1, 1, 8, 1);
  EXPECT_TRUE(Chunk(1, 5, "fgh").ok());
  EXPECT_TRUE(Chunk(1, 0, "ab").ok());
  auto state = session().transfers().Stat(1);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->bytes, 8u);
  EXPECT_EQ(state->missing, (std::vector<ByteRange>{{2, 3}}));
  EXPECT_TRUE(Chunk(1, 0, "ab").ok()) << "once more, after a connection broke";
  EXPECT_TRUE(Chunk(1, 2, "cde").ok());
  EXPECT_EQ(Bytes(Read(1, 8, 1)), "abcdefgh");
  EXPECT_EQ(Chunk(1, 0, "ab").code(), Code::kNotFound);
  EXPECT_EQ(session().transfers().Stat(1).status().code(), Code::kNotFound);
  EXPECT_EQ(stream_->granted, 12u) << "for what was refused, too";
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), 8);
}

TEST_F(TransferTest, WhatFollowsWaitsForTheLastByte) {
  Alloc(1, 4);
  StartUpload(1, 1, 4);
  const uint64_t read = Read(1, 4);
  EXPECT_TRUE(Chunk(1, 0, "abc").ok());
  EXPECT_FALSE(session().Idle());
  EXPECT_TRUE(sink_->order().empty()) << "answered before the bytes were there";
  EXPECT_TRUE(Chunk(1, 3, "d").ok());
  EXPECT_EQ(Bytes(read), "abcd");
}

TEST_F(TransferTest, ChunksBeforeTheirTurnAreStagedUnderCredit) {
  env_.limits.staged_bytes = 4;
  Alloc(1, 6);
  Write(1, "before");
  const uint64_t held = StartDownload(1, 1, 6);
  ASSERT_TRUE(StatusOf(held).ok());
  StartUpload(1, 2, 6);
  EXPECT_TRUE(Chunk(2, 0, "ab").ok());
  EXPECT_TRUE(Chunk(2, 2, "cd").ok());
  EXPECT_EQ(stream_->granted, 0u);
  const absl::Status beyond = Chunk(2, 4, "ef");
  EXPECT_EQ(beyond.code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("the credit of this stream, 4;"));
  EXPECT_EQ(Pull(1, 2, 4), "fore") << "the download keeps what it was";
  session().transfers().Release(1);
  EXPECT_TRUE(session().transfers().FindDownload(1).status().code() == Code::kNotFound);
  sink_->Await([&] { return stream_->granted == 4; });
  EXPECT_TRUE(Chunk(2, 4, "ef").ok());
  EXPECT_EQ(Bytes(Read(1, 6)), "abcdef");
}

TEST_F(TransferTest, ChunksMayArriveBeforeTheirOperation) {
  Alloc(1, 4);
  EXPECT_TRUE(Chunk(7, 0, "abcd").ok());
  EXPECT_TRUE(Chunk(7, 4, "beyond").ok()) << "nobody knows yet how many bytes there are";
  EXPECT_TRUE(Chunk(6, 0, "for a number that no operation takes").ok());
  EXPECT_EQ(session().transfers().Stat(7).status().code(), Code::kUnavailable);
  EXPECT_EQ(stream_->granted, 0u);
  StartUpload(1, 7, 4);
  EXPECT_EQ(Bytes(Read(1, 4)), "abcd");
  EXPECT_EQ(stream_->granted, 46u) << "what belongs nowhere is dropped";
}

TEST_F(TransferTest, ChunksOutsideOfTheWholeAreRefused) {
  Alloc(1, 16);
  StartUpload(1, 1, 8, 4);
  const NoContent none;
  const ByteRange outside[] = {
      {8, 1},          {7, 2},          {0, 9},          {0, 0},
      {UINT64_MAX, 1}, {UINT64_MAX, 2}, {1, UINT64_MAX}, {UINT64_MAX - 3, 8}};
  for (const ByteRange& range : outside) {
    const absl::Status status = session().transfers().Take(1, range, none, Credit());
    EXPECT_FALSE(status.ok()) << range.offset << " + " << range.bytes;
    const absl::Status early = session().transfers().Take(99, range, none, Credit());
    if (range.offset > INT64_MAX || range.bytes > INT64_MAX || range.bytes == 0) {
      EXPECT_FALSE(early.ok()) << range.offset << " + " << range.bytes;
    }
  }
  EXPECT_TRUE(Chunk(1, 2, "cd").ok());
  EXPECT_EQ(Chunk(1, 1, "bc").code(), Code::kInvalidArgument) << "overlaps the end";
  EXPECT_EQ(Chunk(1, 3, "de").code(), Code::kInvalidArgument) << "overlaps the beginning";
  EXPECT_EQ(Chunk(1, 0, "abcdefgh").code(), Code::kInvalidArgument) << "covers it";
  EXPECT_TRUE(Chunk(1, 0, "ab").ok());
  EXPECT_TRUE(Chunk(1, 4, "efgh").ok());
  EXPECT_EQ(Bytes(Read(1, 8, 4)), "abcdefgh");
}

TEST_F(TransferTest, NumbersAscendAndAreLimited) {
  env_.limits.transfers = 2;
  Alloc(1, 4);
  Write(1, "abcd");
  ASSERT_TRUE(StatusOf(StartDownload(1, 5, 4)).ok());
  EXPECT_EQ(StatusOf(StartDownload(1, 5, 4)).code(), Code::kInvalidArgument);
  EXPECT_EQ(StatusOf(StartDownload(1, 4, 4)).code(), Code::kInvalidArgument);
  ASSERT_TRUE(StatusOf(StartDownload(1, 6, 4)).ok());
  const absl::Status more = StatusOf(StartDownload(1, 7, 4));
  EXPECT_EQ(more.code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(more.message()), HasSubstr("--transfers"));
  EXPECT_EQ(Chunk(8, 0, "a").code(), Code::kResourceExhausted);
  session().transfers().Release(5);
  ASSERT_TRUE(StatusOf(StartDownload(1, 8, 2, 2)).ok());
  EXPECT_EQ(Pull(8, 0, 2), "cd");
}

TEST_F(TransferTest, AFailedOperationEndsItsTransfer) {
  Alloc(1, 4);
  EXPECT_EQ(StatusOf(StartUpload(2, 1, 4)).code(), Code::kNotFound);
  EXPECT_EQ(Chunk(1, 0, "abcd").code(), Code::kNotFound);
  EXPECT_EQ(StatusOf(StartUpload(1, 2, 5)).code(), Code::kInvalidArgument);
  EXPECT_EQ(Chunk(2, 0, "abcd").code(), Code::kNotFound);
  EXPECT_EQ(StatusOf(Read(1, 4)).code(), Code::kInvalidArgument) << "the buffer is poisoned";
  EXPECT_EQ(StatusOf(StartDownload(1, 3, 4)).code(), Code::kInvalidArgument);
  EXPECT_EQ(session().transfers().FindDownload(3).status().code(), Code::kNotFound);
  StartUpload(1, 4, 4);
  EXPECT_TRUE(Chunk(4, 0, "good").ok());
  EXPECT_EQ(Bytes(Read(1, 4)), "good") << "written anew";
}

TEST_F(TransferTest, ADownloadWaitsForItsRunAndHoldsItsBuffer) {
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  Write(1, "abcd");
  Write(2, "zzzz");
  engine_.gate.Close();
  Run(2, 1);
  const uint64_t ready = StartDownload(2, 1, 4);
  EXPECT_EQ(session().transfers().FindDownload(1).status().code(), Code::kNotFound);
  engine_.gate.Open();
  ASSERT_TRUE(StatusOf(ready).ok());
  const uint64_t write = Submit(WriteOp{2, 0, std::make_unique<StringPayload>("late")});
  const uint64_t read = Read(2, 4);
  EXPECT_EQ(Pull(1, 0, 4), "abcd");
  EXPECT_EQ(Pull(1, 1, 2), "bc") << "once more";
  EXPECT_LT(write, read);
  session().transfers().Release(1);
  EXPECT_EQ(Bytes(read), "late");
}

TEST_F(TransferTest, ACancelledUploadPoisonsItsBuffer) {
  Alloc(1, 4);
  const uint64_t arriving = StartUpload(1, 1, 4);
  const uint64_t waiting = StartUpload(1, 2, 4);
  EXPECT_TRUE(Chunk(1, 0, "ab").ok());
  EXPECT_TRUE(Chunk(2, 0, "cd").ok());
  session().Cancel(*sink_, ++last_id_, arriving, waiting);
  EXPECT_EQ(StatusOf(arriving).code(), Code::kCancelled);
  EXPECT_EQ(StatusOf(waiting).code(), Code::kCancelled);
  EXPECT_EQ(Chunk(1, 2, "cd").code(), Code::kNotFound);
  EXPECT_EQ(Chunk(2, 2, "cd").code(), Code::kNotFound);
  EXPECT_EQ(stream_->granted, 8u);
  EXPECT_EQ(StatusOf(Read(1, 4)).code(), Code::kCancelled);
}

TEST_F(TransferTest, ClosingGivesEverythingBack) {
  Alloc(1, 1 << 20);
  StartUpload(1, 1, 1 << 20);
  StartUpload(1, 2, 1 << 20);
  EXPECT_TRUE(Chunk(1, 0, std::string(1000, 'a')).ok());
  EXPECT_TRUE(Chunk(2, 0, std::string(1000, 'b')).ok());
  EXPECT_GT(staged(), 0);
  session().Close();
  EXPECT_TRUE(stream_->ended);
  EXPECT_FALSE(Chunk(2, 5000, "late").ok());
  EXPECT_FALSE(session().transfers().Attach(stream_).ok());
  credit_->Close();
  credit_.reset();
  EXPECT_EQ(staged(), 0);
}

TEST_F(TransferTest, StreamsShareWhatASessionMayStage) {
  std::vector<std::shared_ptr<CreditLine>> lines;
  for (int i = 0; i < Transfers::kStreams; ++i) {
    auto line = session().transfers().Attach(stream_);
    ASSERT_TRUE(line.ok()) << line.status();
    lines.push_back(*std::move(line));
  }
  const auto more = session().transfers().Attach(stream_);
  EXPECT_EQ(more.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()), HasSubstr("--staged-bytes"));
  EXPECT_EQ(staged(), env_.limits.staged_bytes);
  // What a stream has staged stays reserved when it is over.
  ASSERT_TRUE(session().transfers().Take(1, {0, 5}, Content("early"), *lines[0]).ok());
  lines.clear();
  EXPECT_EQ(staged(), env_.limits.staged_bytes / Transfers::kStreams);
  Alloc(1, 5);
  StartUpload(1, 1, 5);
  EXPECT_EQ(Bytes(Read(1, 5)), "early");
  EXPECT_EQ(staged(), 0);
}

// Several streams with the same chunks in different orders, some of them damaged at first.
TEST_F(TransferTest, RandomChunksOverSeveralStreams) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  constexpr uint64_t kBytes = 200'000;
  std::string data(kBytes, '\0');
  std::mt19937 random(seed);
  for (char& c : data) c = static_cast<char>(random());
  std::vector<ByteRange> chunks;
  for (uint64_t at = 0; at < kBytes;) {
    const uint64_t n = std::min<uint64_t>(kBytes - at, 1 + random() % 3000);
    chunks.push_back({at, n});
    at += n;
  }
  Alloc(1, kBytes);
  const auto stream = [&](uint32_t own) {
    std::mt19937 order(own);
    auto credit = *session().transfers().Attach(stream_);
    std::vector<ByteRange> mine = chunks;
    std::shuffle(mine.begin(), mine.end(), order);
    for (size_t i = 0; i < mine.size(); ++i) {
      const ByteRange c = mine[i];
      const std::string bytes = data.substr(c.offset, c.bytes);
      const bool damaged = order() % 8 == 0;
      const Content content(damaged ? std::string(c.bytes, 'x') : bytes,
                            damaged ? absl::DataLossError("checksum") : absl::OkStatus());
      const absl::Status status = session().transfers().Take(1, c, content, *credit);
      if (status.code() == Code::kNotFound) return;  // the others have sent all of it
      const bool again = status.code() == Code::kDataLoss || status.code() == Code::kUnavailable ||
                         status.code() == Code::kResourceExhausted;
      if (again) mine.push_back(c);
      ASSERT_TRUE(again || status.ok()) << status;
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 3; ++i) threads.emplace_back(stream, seed + i);
  StartUpload(1, 1, kBytes);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Bytes(Read(1, kBytes)), data);
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), static_cast<int64_t>(kBytes));
  EXPECT_EQ(staged(), 0);
}

// On a device that only counts, behind copies: offsets beyond 4 GiB without the memory for them.
TEST_F(TransferTest, MoreThan4GiBThroughADeviceThatTheHostCannotAddress) {
  constexpr uint64_t kBytes = (uint64_t{5} << 30) + 17, kChunk = 1 << 20;
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 256 << 20}));
  NullDevice* null = nullptr;
  auto opened = OpenNull({.memory_limit = int64_t{8} << 30});
  null = opened.get();
  devices.push_back(std::move(opened));
  pool_ = *DevicePool::Create(std::move(devices));
  env_.devices = pool_.get();
  Submit(AllocOp{1, kBytes, null->name()});
  StartUpload(1, 1, kBytes);
  const NoContent none;
  // The beginning last, so that the middle is what is missing.
  for (uint64_t at = kChunk; at < kBytes;) {
    const uint64_t n = std::min(kChunk, kBytes - at);
    const absl::Status status = session().transfers().Take(1, {at, n}, none, Credit());
    if (status.code() == Code::kResourceExhausted) continue;  // the device is behind
    ASSERT_TRUE(status.ok()) << status;
    at += n;
  }
  EXPECT_EQ(session().transfers().Stat(1)->bytes, kBytes);
  sink_->Await([&] {
    const auto missing = session().transfers().Stat(1)->missing;
    return missing == std::vector<ByteRange>{{0, kChunk}};
  });
  absl::Status first;
  do {
    first = session().transfers().Take(1, {0, kChunk}, none, Credit());
  } while (first.code() == Code::kResourceExhausted);  // the device is behind
  ASSERT_TRUE(first.ok()) << first;
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(null->counts().copied_bytes, static_cast<int64_t>(kBytes));
  ASSERT_TRUE(StatusOf(StartDownload(1, 2, kBytes)).ok());
  EXPECT_EQ(Pull(2, kBytes - 17, 17).size(), 17u);
  EXPECT_EQ(null->counts().copied_bytes, static_cast<int64_t>(kBytes) + 17);
  EXPECT_LT(pool_->devices()[0]->memory_used(), 64 << 20);
  session().Close();
}

// What it has copied out is paid for until it has been sent.
TEST_F(TransferTest, WhatIsFetchedFromSuchADeviceIsChargedToTheTenant) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 256 << 20}));
  devices.push_back(OpenNull({}));
  const std::string null = devices[1]->name();
  pool_ = *DevicePool::Create(std::move(devices));
  env_.devices = pool_.get();
  quotas_[Quota::kHostStaging] = 1000;
  Submit(AllocOp{1, 1000, null});
  ASSERT_TRUE(StatusOf(StartDownload(1, 1, 1000)).ok());
  const auto download = *session().transfers().FindDownload(1);
  const auto fetch = [&](uint64_t at) {
    absl::StatusOr<FetchedBytes> bytes;
    const TimelinePoint done{std::make_shared<Timeline>(), 1};
    download->Fetch({at, 600}, /*ahead=*/false, [&](absl::StatusOr<FetchedBytes> fetched) {
      bytes = std::move(fetched);
      done.timeline->Signal(1);
    });
    (void)done.Wait();
    return bytes;
  };
  const Account& account = *tenant_->accounts.shared(Quota::kHostStaging);
  {
    const auto first = fetch(0);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(account.used(), 600);
    const absl::Status second = fetch(400).status();
    EXPECT_EQ(second.code(), Code::kResourceExhausted);
    EXPECT_THAT(std::string(second.message()), HasSubstr("host_staging of tenant test"));
  }
  // The queue lets go of its reference after the point is reached.
  sink_->Await([&] { return account.used() == 0; });
  EXPECT_TRUE(fetch(400).ok());
  session().Close();
}

// Memory that a process shares is of use only for sessions of the tenant that its user stands for.
TEST_F(TransferTest, SharedMemoryReachesOnlyItsOwnTenantsSessions) {
  const std::shared_ptr<Engine> tenant_engine(&engine_, [](Engine*) {});
  SessionRegistry registry(env_);
  const auto own = std::make_shared<Tenant>("own", tenant_engine, &metrics_);
  const auto other = std::make_shared<Tenant>("other", tenant_engine, &metrics_);
  const auto session = *registry.Create(own, false, 0, sink_);
  auto handlers = LocalDataHandlers(&workers_, FinderIn(&registry, [&](const std::string& name) {
    return absl::StatusOr<std::shared_ptr<Tenant>>(name == "own" ? own : other);
  }));
  ASSERT_TRUE(session->Submit(*sink_, {.id = 1, .action = MakeAction(AllocOp{1, 5, ""})}).ok());
  ASSERT_TRUE(
      session->Submit(*sink_, {.id = 2, .action = MakeAction(WriteOp{1, 0, nullptr, 1, 5})}).ok());
  std::string text;
  for (const char c : session->terms().token) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", static_cast<uint8_t>(c));
    text += hex;
  }
  text += StrCat(" ", registry.epoch(), " 1 3 5");
  const auto upload = [&](const std::string& tenant) {
    UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(pwrite(fd.get(), "---bytes---", 11, 0), 11);
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    LocalSocket::Request request{
        .principal = {}, .text = text, .descriptors = {}, .answer_later = {}};
    request.principal.tenant = tenant;
    request.descriptors.push_back(std::move(fd));
    return handlers.at("upload")(std::move(request)).status();
  };
  EXPECT_EQ(upload("other").code(), Code::kNotFound);
  ASSERT_TRUE(upload("own").ok());
  ASSERT_TRUE(session->Submit(*sink_, {.id = 3, .action = MakeAction(ReadOp{1, 0, 5})}).ok());
  EXPECT_EQ(Bytes(3), "bytes");
  EXPECT_EQ(own->accounts[Quota::kSharedFiles].limit(), 64);
  registry.Close(session, absl::CancelledError("the test is over"));
  EXPECT_EQ(other->accounts[Quota::kSharedFiles].used(), 0);
}

}  // namespace
}  // namespace telegrad
