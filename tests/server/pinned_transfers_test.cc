// Transfers to and from a GPU, on the fake driver: through memory that the driver has locked once,
// so that the GPU copies what the transport has received and what it will send, and else through
// the chunks of the GPU's queues.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/data/local_transfers.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/server/transfer_fixture.h"

namespace telegrad {
namespace {

class PinnedTransferTest : public TransferTest {
 protected:
  // In place of the session's devices: the host's, and a GPU whose driver keeps so much locked.
  void UseGpu(int64_t pinned) {
    fake_.Set("devices", 1);
    CudaOptions options = FakeOptions();
    options.pinned_memory = pinned;
    std::vector<std::string> notes;
    auto gpus = OpenCudas(options, &notes);
    ASSERT_EQ(gpus.size(), 1u) << ::testing::PrintToString(notes);
    gpu_ = gpus[0].get();
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 256 << 20}));
    devices.push_back(std::move(gpus[0]));
    pool_ = *DevicePool::Create(std::move(devices));
    env_.devices = pool_.get();
    held_ = fake_.Count("live_host_allocations");
  }
  // Writes a buffer in chunks, and reads it back in as many.
  void WriteAndRead(uint64_t number, int chunks) {
    Submit(AllocOp{number, static_cast<uint64_t>(chunks) * kChunk, gpu_->name()});
    StartUpload(number, 2 * number, static_cast<uint64_t>(chunks) * kChunk);
    const auto content = [&](int i) {
      return std::string(kChunk - 1, static_cast<char>('a' + i)) + std::to_string(i);
    };
    for (int i = 0; i < chunks; ++i) {
      EXPECT_TRUE(Chunk(2 * number, static_cast<uint64_t>(i) * kChunk, content(i)).ok());
    }
    ASSERT_TRUE(Sync().ok());
    ASSERT_TRUE(
        StatusOf(StartDownload(number, 2 * number + 1, static_cast<uint64_t>(chunks) * kChunk))
            .ok());
    for (int i = 0; i < chunks; ++i) {
      EXPECT_TRUE(Pull(2 * number + 1, static_cast<uint64_t>(i) * kChunk, kChunk) == content(i));
    }
  }
  int64_t locked() { return fake_.Count("host_registrations"); }
  // That the driver has allocated for the queues to copy through.
  int64_t chunks() {
    return fake_.Count("live_host_allocations") - held_ -
           (locked() - fake_.Count("host_unregistrations"));
  }

  static constexpr uint64_t kChunk = 100'000;
  FakeCuda fake_;
  Device* gpu_ = nullptr;

 private:
  int64_t held_ = 0;
};

TEST_F(PinnedTransferTest, GpusCopyWhatArrivesAndWhatIsSent) {
  UseGpu(64 << 20);
  for (uint64_t number = 1; number <= 5; ++number) WriteAndRead(number, 4);
  EXPECT_GT(locked(), 0);
  EXPECT_LE(locked(), 8) << "as many as were on their way at a time, of 40";
  EXPECT_EQ(chunks(), 0) << "nothing was copied once more";
  session().Close();
  session_ = nullptr;
  pool_ = nullptr;
  EXPECT_EQ(fake_.Count("host_unregistrations"), locked());
  EXPECT_EQ(fake_.Count("live_host_allocations"), 0);
}

TEST_F(PinnedTransferTest, WithoutItTheQueuesCopy) {
  UseGpu(0);
  WriteAndRead(1, 4);
  EXPECT_EQ(locked(), 0);
  EXPECT_GT(chunks(), 0);
}

TEST_F(PinnedTransferTest, WhereTheDriverLocksNoneTheQueuesCopy) {
  UseGpu(64 << 20);
  fake_.Set("register_error", 2);
  WriteAndRead(1, 4);
  EXPECT_EQ(locked(), 0);
  EXPECT_GT(chunks(), 0);
}

// Memory that a client of this machine shares: the workers copy between it and locked memory.
TEST_F(PinnedTransferTest, MemoryThatAClientSharesIsCopiedOnce) {
  UseGpu(64 << 20);
  TaskPool workers(2);
  constexpr uint64_t kBytes = 10 << 20;
  const auto share = [](const std::string& bytes, bool write) {
    const int fd = memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    auto file = SealedFile::Open(UniqueFd(dup(fd)), 0, bytes.size(), write, Reservation());
    EXPECT_TRUE(file.ok()) << file.status();
    return std::pair(UniqueFd(fd), *std::move(file));
  };
  std::string content(kBytes, 0);
  for (uint64_t i = 0; i < kBytes; ++i) content[i] = static_cast<char>(i * 7 + i / 4093);
  Submit(AllocOp{1, kBytes, gpu_->name()});
  StartUpload(1, 1, kBytes);
  const auto [from_fd, from] = share(content, false);
  ASSERT_TRUE(UploadFrom(from, 1, session().transfers(), &workers).ok());
  ASSERT_TRUE(Sync().ok());
  ASSERT_TRUE(StatusOf(StartDownload(1, 2, kBytes)).ok());
  const auto [to_fd, to] = share(std::string(kBytes, '?'), true);
  const TimelinePoint done{std::make_shared<Timeline>(), 1};
  ASSERT_TRUE(DownloadTo(to, 2, {session_, &session().transfers()}, &workers,
                         [&](const absl::Status& status) { done.timeline->Signal(1, status); })
                  .ok());
  ASSERT_EQ(done.Wait(), absl::OkStatus());
  std::string back(kBytes, 0);
  EXPECT_EQ(pread(to_fd.get(), back.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
  EXPECT_TRUE(back == content);
  EXPECT_EQ(chunks(), 0);
  EXPECT_GT(locked(), 0);
  EXPECT_LE(locked(), 6) << "for two workers";
}

}  // namespace
}  // namespace telegrad
