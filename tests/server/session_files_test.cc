// A session whose buffers are files: operations take effect in the same order, through staged
// copies.
#include <filesystem>
#include <fstream>

#include "devices/disk/disk_device.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/server/session_fixture.h"

namespace telegrad {
namespace {

// With a disk beside the CPU.
class FileSessionTest : public SessionTest {
 protected:
  FileSessionTest() {
    std::ofstream(directory_.path() / "digits") << "0123456789";
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 64 << 20}));
    devices.push_back(*OpenDisk({.name = "d", .directory = directory_.path(), .growth = 1000}));
    device_ = devices[0].get();
    pool_ = *DevicePool::Create(std::move(devices));
    env_.devices = pool_.get();
  }
  ~FileSessionTest() override {
    if (session_) session_->Close();
  }
  uint64_t AllocFile(uint64_t handle, uint64_t bytes, OpenMode mode = OpenMode::kRead,
                     uint64_t offset = 0, const std::string& path = "digits") {
    return Submit(AllocOp{handle, bytes, "DISK:d", AllocOp::File{path, offset, mode}});
  }

  TemporaryDirectory directory_;
};

TEST_F(FileSessionTest, OperationsOnAFileKeepTheirOrder) {
  AllocFile(1, 10, OpenMode::kWrite);
  const uint64_t before = Read(1, 10);
  Write(1, "ab", 2);
  const uint64_t between = Read(1, 4);
  Write(1, "c", 0);
  const uint64_t after = Read(1, 3, 0);
  EXPECT_EQ(Bytes(before), "0123456789");
  EXPECT_EQ(Bytes(between), "01ab");
  EXPECT_EQ(Bytes(after), "c1a");
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), 3);
  EXPECT_EQ(metrics_.count(Metric::kBytesRead), 17);
}

TEST_F(FileSessionTest, OneReadIsStagedAtATime) {
  env_.limits.copied_read_bytes = 0;  // else an answer this short keeps no memory
  AllocFile(1, 10);
  const Account& staged = tenant_->accounts[Quota::kHostStaging];
  ASSERT_EQ(staged.used(), 0);
  Answer first = sink_->Take(Read(1, 10));
  const uint64_t second = Read(1, 5, 5);
  EXPECT_EQ(staged.used(), 10) << "more than one read";
  first = {};  // sent
  EXPECT_EQ(Bytes(second), "56789");
  sink_->Await([&] { return staged.used() == 0; });
}

TEST_F(FileSessionTest, FailuresOfTheFileAreOfTheOperation) {
  AllocFile(1, 10, OpenMode::kWrite);
  ASSERT_TRUE(Sync().ok());
  std::filesystem::resize_file(directory_.path() / "digits", 4);
  const absl::Status read = StatusOf(Read(1, 10));
  EXPECT_TRUE(absl::IsOutOfRange(read)) << read;
  EXPECT_EQ(Bytes(Read(1, 4)), "0123") << "what is there is read";
  AllocFile(2, 4);
  const absl::Status refused = StatusOf(Write(2, "x"));
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(StatusOf(Read(2, 4)), refused) << "it is not what the client expects";
  EXPECT_EQ(Bytes(Read(1, 4)), "0123");
  AllocFile(3, 1, OpenMode::kRead, UINT64_MAX);
  EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(Read(3, 1))));
}

TEST_F(FileSessionTest, DisksAreGrantedByTenant) {
  disks_ = {};
  AllocFile(1, 10);
  const auto denied = [&](uint64_t id) { return absl::IsPermissionDenied(StatusOf(id)); };
  EXPECT_TRUE(denied(last_id_));
  EXPECT_TRUE(denied(Submit(AllocOp{2, 10, "DISK:d"}))) << "a file without a name";
  tenant_->Grant({.read = {"other", "d"}});
  AllocFile(3, 10);
  EXPECT_EQ(Bytes(Read(3, 10)), "0123456789");
  EXPECT_TRUE(denied(AllocFile(4, 10, OpenMode::kWrite)));
  EXPECT_TRUE(denied(AllocFile(5, 10, OpenMode::kCreate, 0, "new")));
  EXPECT_TRUE(denied(Submit(AllocOp{6, 10, "DISK:d"})));
  EXPECT_THAT(std::string(StatusOf(AllocFile(7, 1, OpenMode::kWrite)).message()),
              ::testing::HasSubstr("disk_write = d below [test]"));
  tenant_->Grant({.write = {"d"}});
  AllocFile(8, 10, OpenMode::kWrite);
  Write(8, "x");  // changes what is there, as the command line's documentation says
  EXPECT_EQ(Bytes(Read(8, 3)), "x12");
  tenant_->Grant({.write = {"other"}});
  EXPECT_TRUE(denied(AllocFile(9, 10)));
}

TEST_F(FileSessionTest, GrowthIsTheTenants) {
  quotas_[Quota::kDiskBytes] = 100;
  AllocFile(1, 60, OpenMode::kCreate, 0, "a");
  ASSERT_TRUE(Sync().ok());
  const Account& account = tenant_->accounts[Quota::kDiskBytes];
  EXPECT_EQ(account.used(), 60);
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(AllocFile(2, 20, OpenMode::kCreate, 30, "b"))));
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "b"));
  EXPECT_TRUE(absl::IsAlreadyExists(StatusOf(AllocFile(3, 10, OpenMode::kCreate, 0, "a"))));
  EXPECT_EQ(account.used(), 60) << "what was not made costs nothing";
  Submit(FreeOp{{1}});
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(account.used(), 60) << "the file stays";
  Submit(AllocOp{4, 40, "DISK:d"});
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(last_id_))) << "64 bytes at least";
}

}  // namespace
}  // namespace telegrad
