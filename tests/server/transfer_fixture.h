// A session whose transfers a test feeds and empties itself, in place of a transport.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "tests/server/session_fixture.h"

namespace telegrad {

class Content final : public ChunkContent {
 public:
  explicit Content(std::string bytes, absl::Status status = absl::OkStatus())
      : bytes_(std::move(bytes)), status_(std::move(status)) {}
  absl::Status CopyTo(std::byte* to) const override {
    std::memcpy(to, bytes_.data(), bytes_.size());
    return status_;
  }

 private:
  const std::string bytes_;
  const absl::Status status_;
};

class Granted final : public TransferSink {
 public:
  void OnGranted(uint64_t bytes) override { granted += bytes; }
  void OnSessionEnded() override { ended = true; }
  std::atomic<uint64_t> granted{0};
  std::atomic<bool> ended{false};
};

class TransferTest : public SessionTest {
 protected:
  uint64_t StartUpload(uint64_t handle, uint64_t transfer, uint64_t bytes, uint64_t offset = 0) {
    return Submit(WriteOp{handle, offset, nullptr, transfer, bytes});
  }
  uint64_t StartDownload(uint64_t handle, uint64_t transfer, uint64_t bytes, uint64_t offset = 0) {
    return Submit(ReadOp{handle, offset, bytes, transfer});
  }
  CreditLine& Credit() {
    if (credit_ == nullptr) {
      auto credit = session().transfers().Attach(stream_);
      EXPECT_TRUE(credit.ok()) << credit.status();
      credit_ = *std::move(credit);
    }
    return *credit_;
  }
  absl::Status Chunk(uint64_t transfer, uint64_t offset, const std::string& bytes) {
    return session().transfers().Take(transfer, {offset, bytes.size()}, Content(bytes), Credit());
  }
  std::string Pull(uint64_t transfer, uint64_t offset, uint64_t bytes) {
    const auto download = session().transfers().FindDownload(transfer);
    if (!download.ok()) return std::string(download.status().message());
    std::string pulled;
    const TimelinePoint done{std::make_shared<Timeline>(), 1};
    (*download)->Fetch({offset, bytes}, /*ahead=*/false, [&](absl::StatusOr<FetchedBytes> fetched) {
      if (fetched.ok()) pulled.assign(reinterpret_cast<const char*>(fetched->data), bytes);
      done.timeline->Signal(1, fetched.status());
    });
    const absl::Status status = done.Wait();
    return status.ok() ? pulled : std::string(status.message());
  }
  int64_t staged() const { return tenant_->accounts[Quota::kHostStaging].used(); }

  std::shared_ptr<Granted> stream_ = std::make_shared<Granted>();
  std::shared_ptr<CreditLine> credit_;
};

}  // namespace telegrad
