// Memory of the host that an NV device has pinned: copied without a step between, and the process's
// own also when the device is lost or its driver does not let go of it.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "devices/nv/gpu.h"
#include "tests/nv/nv_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kPage = 4096;

// Pages of a mapping of their own.
class Pages {
 public:
  explicit Pages(size_t bytes)
      : at_(static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0))),
        bytes_(bytes) {
    EXPECT_NE(at_, MAP_FAILED);
  }
  ~Pages() {
    if (bytes_ > 0) Unmap(bytes_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* at() const { return at_; }
  // The first of them.
  void Unmap(size_t bytes) {
    EXPECT_EQ(munmap(at_, bytes), 0);
    at_ += bytes;
    bytes_ -= bytes;
  }

 private:
  std::byte* at_;
  size_t bytes_;
};

bool AreThere(void* at, size_t bytes) {
  std::vector<unsigned char> resident((bytes + kPage - 1) / kPage);
  return mincore(at, bytes, resident.data()) == 0;
}

// One transfer each way, of more bytes than a chunk of the staging has.
TEST_F(Nv, CopiesStraightFromAndToPinnedMemory) {
  Open([](NvOptions& options) { options.memory_limit = 64 << 20; });
  constexpr int64_t kBytes = 9 << 20;
  EXPECT_TRUE(device().Makes(MemoryKind::kPinnedHost));
  const int64_t used = device().memory_used(), footprint = device().memory_footprint();
  const auto pinned = device().AllocOf(MemoryKind::kPinnedHost, kBytes);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_EQ(device().memory_used(), used);
  EXPECT_EQ(device().memory_footprint(), footprint);
  auto* const bytes = static_cast<char*>((*pinned)->host());
  for (int64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i * 7 + i / 4093);
  const std::string expected(bytes, kBytes);
  const BufferView buffer = Buffer(kBytes);
  const auto copies = [&] { return driver().Locked([&] { return driver().gpu.copies; }); };
  const int before = copies();
  EXPECT_EQ(Copied(buffer, Whole(*pinned)).Wait(), absl::OkStatus());
  EXPECT_EQ(copies(), before + 1);
  std::fill_n(bytes, kBytes, '?');
  EXPECT_EQ(Copied(Whole(*pinned), buffer).Wait(), absl::OkStatus());
  EXPECT_EQ(copies(), before + 2);
  EXPECT_TRUE(std::string(bytes, kBytes) == expected);
  // A part of it, which begins within a page.
  EXPECT_EQ(Copied({buffer.memory, 0, 5}, {*pinned, 4099, 5}).Wait(), absl::OkStatus());
  EXPECT_EQ(Read({buffer.memory, 0, 5}), expected.substr(4099, 5));
  ExpectNoErrors();
}

// It stays pinned for the next transfer, until the device goes.
TEST_F(Nv, LendsPinnedMemory) {
  Open([](NvOptions& options) { options.memory_limit = 64 << 20; });
  constexpr int64_t kBytes = 5 << 20;
  const BufferView buffer = Buffer(kBytes);
  const auto copies = [&] { return driver().Locked([&] { return driver().gpu.copies; }); };
  const int before = copies();
  void* at = nullptr;
  for (int round = 0; round < 3; ++round) {
    const auto lent = device().LendPinned(kBytes);
    ASSERT_NE(lent, nullptr);
    EXPECT_TRUE(at == nullptr || lent->host() == at);
    at = lent->host();
    std::memset(at, 'a' + round, kBytes);
    EXPECT_EQ(Copied(buffer, {lent, 0, kBytes}).Wait(), absl::OkStatus());
  }
  EXPECT_EQ(copies(), before + 3);
  EXPECT_TRUE(driver().Locked([&] { return driver().IsPinned(static_cast<std::byte*>(at)); }));
  EXPECT_EQ(Read({buffer.memory, kBytes - 4, 4}), "cccc");
  ExpectNoErrors();
}

// What the driver has pinned goes when the GPU does; the bytes stay.
TEST_F(Nv, PinnedMemoryIsUnpinnedWithTheGpu) {
  Open();
  const auto is_pinned = [&](const std::shared_ptr<Memory>& memory) {
    return driver().Locked(
        [&] { return driver().IsPinned(static_cast<const std::byte*>(memory->host())); });
  };
  auto old = *device().AllocOf(MemoryKind::kPinnedHost, 100'000);
  EXPECT_TRUE(is_pinned(old));
  std::memcpy(old->host(), "kept", 4);
  driver().Locked([&] { driver().gpu.fault_in = 1; });
  EXPECT_FALSE(Run({Next()}, {Buffer(1)})->Wait().ok());
  EXPECT_EQ(device().AllocOf(MemoryKind::kPinnedHost, 1).status().code(),
            absl::StatusCode::kUnavailable);
  ASSERT_EQ(device().Recover(), absl::OkStatus());
  EXPECT_FALSE(is_pinned(old));
  EXPECT_EQ(old->Health(), absl::OkStatus());
  // The next generation copies it as it copies other memory of the host.
  const BufferView fresh = Buffer(4);
  EXPECT_EQ(Copied(fresh, {old, 0, 4}).Wait(), absl::OkStatus());
  EXPECT_EQ(Read(fresh), "kept");
  EXPECT_EQ(Copied({old, 4, 4}, fresh).Wait(), absl::OkStatus());
  EXPECT_EQ(std::string(static_cast<char*>(old->host()), 8), "keptkept");
  const auto next = *device().AllocOf(MemoryKind::kPinnedHost, 100'000);
  EXPECT_TRUE(is_pinned(next));
  old = nullptr;
  EXPECT_TRUE(is_pinned(next));
  EXPECT_THAT(driver().Locked([&] { return driver().gpu.errors; }),
              ElementsAre(HasSubstr("that the test had fail")));
}

// Pages that the driver does not let go of could be written at any time: they are used for nothing
// else.
TEST_F(Nv, PagesThatStayPinnedAreKept) {
  Open();
  leaks_nothing_ = false;
  constexpr int64_t kBytes = 64 << 20;  // which go back to the system when they are freed
  auto pinned = *device().AllocOf(MemoryKind::kPinnedHost, kBytes);
  void* at = pinned->host();
  pinned = nullptr;
  EXPECT_FALSE(AreThere(at, kBytes));
  pinned = *device().AllocOf(MemoryKind::kPinnedHost, kBytes);
  at = pinned->host();
  driver().Locked([&] {
    driver().faults.fail_call = driver().calls();
    driver().faults.fail_status = 0x40;
  });
  pinned = nullptr;
  EXPECT_TRUE(AreThere(at, kBytes));
}

TEST(NvPages, ArePinnedAndFound) {
  fakes::FakeDriver driver;
  driver.Start();
  auto gpu = nv::Gpu::Open(driver, 0, "NV:0", FakeNvOptions(driver).limits);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  constexpr size_t kBytes = 3 * kPage;
  Pages both(2 * kBytes);
  std::byte* const pages = both.at();
  std::byte* const other = pages + kBytes;
  EXPECT_EQ((*gpu)->AddressOf(pages, 1), 0u);
  ASSERT_EQ((*gpu)->PinPages(pages, kBytes), absl::OkStatus());
  ASSERT_EQ((*gpu)->PinPages(other, kBytes), absl::OkStatus());
  const uint64_t address = (*gpu)->AddressOf(pages, kBytes);
  ASSERT_NE(address, 0u);
  EXPECT_NE(address, reinterpret_cast<uintptr_t>(pages));
  EXPECT_EQ((*gpu)->AddressOf(pages + 5, kBytes - 5), address + 5);
  EXPECT_EQ((*gpu)->AddressOf(pages - 1, 1), 0u);
  // Side by side for the host are not side by side for the GPU.
  EXPECT_EQ((*gpu)->AddressOf(pages, kBytes + 1), 0u);
  EXPECT_NE((*gpu)->AddressOf(other, 1), 0u);
  EXPECT_EQ((*gpu)->AddressOf(other + kBytes, 1), 0u);
  EXPECT_EQ((*gpu)->UnpinPages(pages), absl::OkStatus());
  EXPECT_EQ((*gpu)->AddressOf(pages, 1), 0u);
  EXPECT_NE((*gpu)->AddressOf(other, kBytes), 0u);

  // What the kernel driver takes.
  const auto refused = [&](std::byte* at) {
    return std::string((*gpu)->PinPages(at, kPage).message());
  };
  EXPECT_THAT(refused(pages + 64), HasSubstr("NV_ERR_NOT_SUPPORTED"));
  EXPECT_THAT(refused(other + kPage), HasSubstr("NV_ERR_STATE_IN_USE"));
  both.Unmap(kBytes);
  EXPECT_THAT(refused(pages), HasSubstr("NV_ERR_INVALID_ADDRESS"));

  EXPECT_THAT((*gpu)->Close(), IsEmpty());
  EXPECT_EQ((*gpu)->UnpinPages(other), absl::OkStatus()) << "they are not pinned any more";
  EXPECT_THAT(driver.Live(), IsEmpty());
  EXPECT_THAT(driver.gpu.errors, IsEmpty());
}

// Whichever call fails while the GPU is closed, its owner is told whether the pages are his again.
TEST(NvPages, AreTheirOwnersWhenTheDriverHasLetGo) {
  const Pages pages(kPage);
  int kept = 0, calls = 1;
  for (int call = 0; call < calls; ++call) {
    fakes::FakeDriver driver;
    driver.Start();
    auto gpu = nv::Gpu::Open(driver, 0, "NV:0", FakeNvOptions(driver).limits);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    ASSERT_EQ((*gpu)->PinPages(pages.at(), kPage), absl::OkStatus());
    ASSERT_TRUE(driver.Locked([&] { return driver.IsPinned(pages.at()); }));
    const int before = driver.calls();
    driver.Locked([&] {
      driver.faults.fail_call = before + call;
      driver.faults.fail_status = 0x40;
    });
    (*gpu)->Close();
    calls = driver.calls() - before;
    const bool live = driver.Locked([&] { return driver.IsPinned(pages.at()); });
    EXPECT_EQ((*gpu)->UnpinPages(pages.at()).ok(), !live) << "call " << call;
    if (live) ++kept;
  }
  EXPECT_EQ(kept, 2) << "its addresses, and the pages";
}

// The fake's own strictness, by which the tests above see a range that is freed too early.
TEST(NvPages, AreNotToGoWhileTheyArePinned) {
  fakes::FakeDriver driver;
  driver.Start();
  auto gpu = nv::Gpu::Open(driver, 0, "NV:0", FakeNvOptions(driver).limits);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  Pages own(kPage);
  std::byte* const pages = own.at();
  ASSERT_EQ((*gpu)->PinPages(pages, kPage), absl::OkStatus());
  own.Unmap(kPage);
  EXPECT_EQ((*gpu)->UnpinPages(pages).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(driver.gpu.errors, ElementsAre("pages went while they were pinned"));
  EXPECT_EQ((*gpu)->UnpinPages(pages).code(), absl::StatusCode::kInternal) << "it stays so";
}

}  // namespace
}  // namespace telegrad
