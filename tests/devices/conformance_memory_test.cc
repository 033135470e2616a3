// Kinds of memory: what a device makes of each, that bytes of pinned memory are
// copied in the order of the commands, and that another process opens what is
// exported. See conformance.h.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/escaping.h"
#include "engine/base/status.h"
#include "tests/devices/conformance.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kHandleVariable[] = "TELEGRAD_TEST_HANDLE";

TEST_P(Conformance, AKindIsMadeOrRefused) {
  SKIP_IF_EXCLUDED(no_alloc);
  OpenDevice();
  EXPECT_TRUE(device_->Makes(MemoryKind::kDevice));
  EXPECT_EQ(Buffer(8).memory->kind(), MemoryKind::kDevice);
  for (const MemoryKind kind : {MemoryKind::kPinnedHost, MemoryKind::kExported}) {
    SCOPED_TRACE(NameOf(kind));
    const auto memory = device_->AllocOf(kind, 100);
    if (!device_->Makes(kind)) {
      EXPECT_EQ(memory.status().code(), absl::StatusCode::kUnimplemented);
      EXPECT_THAT(std::string(memory.status().message()),
                  AllOf(HasSubstr(device_->name()), HasSubstr(std::string(NameOf(kind)))));
      continue;
    }
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ((*memory)->kind(), kind);
    EXPECT_EQ((*memory)->size(), 100);
    EXPECT_TRUE((*memory)->writable());
    ExpectBytes(Whole(*memory), std::string(100, '\0'));
    EXPECT_EQ(Copied({*memory, 4, 4}, HostBuffer(*host_, "some")).Wait(), absl::OkStatus());
    ExpectBytes({*memory, 2, 8}, std::string("\0\0some\0\0", 8));
    EXPECT_EQ(device_->AllocOf(kind, -1).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(device_->AllocOf(kind, 0).ok());
  }
  // Nobody allocates what is another process's.
  EXPECT_EQ(device_->AllocOf(MemoryKind::kImported, 8).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(device_->ExportHandle(*Buffer(8).memory).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(Conformance, ExportedMemoryCountsAsTheDevices) {
  SKIP_IF_EXCLUDED(no_alloc);
  OpenDevice();
  if (!device_->Makes(MemoryKind::kExported)) GTEST_SKIP() << "it exports no memory";
  const int64_t before = device_->memory_used();
  {
    const auto memory = device_->AllocOf(MemoryKind::kExported, 1 << 20);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_GE(device_->memory_used(), before + (1 << 20));
    EXPECT_EQ(device_->AllocOf(MemoryKind::kExported, kLimit).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(device_->memory_used(), before);
}

// It is the host's, of which a device may have less than of its own, or more.
TEST_P(Conformance, PinnedMemoryCountsForNoLimit) {
  SKIP_IF_EXCLUDED(no_alloc);
  OpenDevice();
  if (!device_->Makes(MemoryKind::kPinnedHost)) GTEST_SKIP() << "it pins no memory";
  if (device_->host_visible()) GTEST_SKIP() << "all of its memory is the host's";
  const int64_t used = device_->memory_used();
  const int64_t bytes = device_->memory_limit() == kLimit ? kLimit + 1 : 1 << 20;
  const auto pinned = device_->AllocOf(MemoryKind::kPinnedHost, bytes);
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_EQ(device_->memory_used(), used);
  EXPECT_TRUE(device_->Alloc(std::min<int64_t>(device_->memory_limit() - used, kLimit) / 2).ok());
}

TEST_P(Conformance, PinnedMemoryIsCopiedInOrder) {
  SKIP_IF_EXCLUDED(no_alloc);
  OpenDevice();
  if (!device_->Makes(MemoryKind::kPinnedHost)) GTEST_SKIP() << "it pins no memory";
  const BufferView pinned = Whole(*device_->AllocOf(MemoryKind::kPinnedHost, 4));
  ASSERT_NE(pinned.memory->host(), nullptr);
  const BufferView first = Buffer(4), second = Buffer(4), third = Buffer(4);
  const BufferView abcd = HostBuffer(*host_, "abcd"), wxyz = HostBuffer(*host_, "wxyz");
  const BufferView out = HostBuffer(*host_, "????");
  // By their numbers in the submission, each to the one and from the other.
  enum { kPinned, kFirst, kSecond, kThird, kAbcd, kWxyz, kOut };
  const std::pair<int, int> copies[] = {{kFirst, kAbcd},    {kPinned, kFirst}, {kOut, kPinned},
                                        {kSecond, kPinned}, {kPinned, kWxyz},  {kThird, kPinned}};
  std::vector<Command> commands;
  for (const auto& [to, from] : copies) {
    commands.push_back(CopyCommand({.to = {to, 0}, .from = {from, 0}, .length = 4}));
  }
  const auto encoded = device_->Encode(commands);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  for (int round = 0; round < 50; ++round) {
    // The other queue waits for it without the host, and the host reads what it
    // brought.
    const BufferView late = HostBuffer(*host_, "????");
    const auto point =
        device_->queue().Submit(*encoded, {pinned, first, second, third, abcd, wxyz, out}, {});
    ASSERT_TRUE(point.ok()) << point.status();
    ASSERT_EQ(Copied(late, pinned, {*point}).Wait(), absl::OkStatus());
    EXPECT_EQ(point->Wait(), absl::OkStatus());
    if (!GetParam().no_contents.empty()) continue;
    EXPECT_EQ(Bytes(out), "abcd");
    EXPECT_EQ(Bytes(late), "wxyz");
    EXPECT_EQ(Bytes(pinned), "wxyz");
  }
  ExpectBytes(second, "abcd");
  ExpectBytes(third, "wxyz");
}

// The exit code of this test again in a process of its own, which is told the
// handle.
int RunAgain(const std::string& test, const std::string& handle) {
  const std::string filter = "--gtest_filter=" + test;
  std::string program = "/proc/self/exe", given = filter;
  char* const arguments[] = {program.data(), given.data(), nullptr};
  const std::string variable =
      StrCat(kHandleVariable, "=", std::string(absl::BytesToHexString(handle)));
  std::vector<std::string> texts{variable};
  for (char** at = environ; *at != nullptr; ++at) texts.emplace_back(*at);
  std::vector<char*> environment;
  for (std::string& text : texts) environment.push_back(text.data());
  environment.push_back(nullptr);
  pid_t process = 0;
  EXPECT_EQ(posix_spawn(&process, program.c_str(), nullptr, nullptr, arguments, environment.data()),
            0);
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  return status;
}

TEST_P(Conformance, AnotherProcessOpensWhatIsExported) {
  SKIP_IF_EXCLUDED(no_alloc);
  OpenDevice();
  if (const char* const handle = std::getenv(kHandleVariable); handle != nullptr) {
    const std::string bytes = absl::HexStringToBytes(handle);
    EXPECT_EQ(device_->ImportHandle(bytes, 1 << 20).status().code(),
              absl::StatusCode::kInvalidArgument);
    const auto memory = device_->ImportHandle(bytes, 64);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ((*memory)->kind(), MemoryKind::kImported);
    EXPECT_EQ(Read({*memory, 8, 12}), "written here");
    EXPECT_EQ(Copied({*memory, 20, 13}, HostBuffer(*host_, "written there")).Wait(),
              absl::OkStatus());
    return;
  }
  if (!device_->Makes(MemoryKind::kExported)) GTEST_SKIP() << "it exports no memory";
  EXPECT_TRUE(device_->Makes(MemoryKind::kImported));
  const BufferView memory = Whole(*device_->AllocOf(MemoryKind::kExported, 64));
  ASSERT_EQ(Copied({memory.memory, 8, 12}, HostBuffer(*host_, "written here")).Wait(),
            absl::OkStatus());
  const auto handle = device_->ExportHandle(*memory.memory);
  ASSERT_TRUE(handle.ok()) << handle.status();
  const auto& test = *::testing::UnitTest::GetInstance()->current_test_info();
  EXPECT_EQ(RunAgain(StrCat(test.test_suite_name(), ".", test.name()), *handle), 0);
  EXPECT_EQ(Read({memory.memory, 8, 25}), "written herewritten there");
  for (const std::string& none : {std::string(), std::string(64, 'x'), *handle + "1"}) {
    EXPECT_EQ(device_->ImportHandle(none, 64).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(device_->ImportHandle(*handle, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

// The last reference to a trace may hold a session and its buffers: whoever drops it has no lock
// that freeing takes.
TEST_P(Conformance, WhatASubmissionHoldsMayFreeMemory) {
  OpenDevice();
  const BufferView buffer = Buffer(4), from = HostBuffer(*host_, "1234");
  const auto commands = *device_->Encode({CopyCommand({{0, 0}, {1, 0}, 4})});
  constexpr int kTimes = 20;
  const auto freed = std::make_shared<Timeline>();
  for (uint64_t i = 1; i <= kTimes; ++i) {
    auto trace = std::shared_ptr<RunTrace>(
        new RunTrace(i % 2 == 0), [held = Buffer(8).memory, freed, i](RunTrace* told) mutable {
          delete told;
          held.reset();
          freed->Signal(i);
        });
    const auto point =
        device_->queue(QueueKind::kCopy).Submit(commands, {buffer, from}, {}, std::move(trace));
    ASSERT_TRUE(point.ok()) << point.status();
    EXPECT_EQ(point->Wait(), absl::OkStatus());
    ASSERT_TRUE(freed->Wait(i, absl::Seconds(60)).ok()) << "it is not freed, or waits for a lock";
  }
}

// Whoever drops memory may hold any lock, which what follows the end of some work may take.
TEST_P(Conformance, FreeingCallsNobodyBack) {
  OpenDevice();
  const BufferView buffer = Buffer(4), from = HostBuffer(*host_, "1234");
  const auto commands = *device_->Encode({CopyCommand({{0, 0}, {1, 0}, 4})});
  Mutex mutex;
  constexpr int kTimes = 20;
  for (int i = 0; i < kTimes; ++i) {
    auto memory = Buffer(8).memory;
    const auto never = std::make_shared<Timeline>();
    const auto cancellation = std::make_shared<Cancellation>();
    const auto point = device_->queue(QueueKind::kCopy)
                           .Submit(commands, {buffer, from}, std::vector{TimelinePoint{never, 1}},
                                   nullptr, cancellation);
    ASSERT_TRUE(point.ok()) << point.status();
    const auto told = std::make_shared<Timeline>();
    point->timeline->OnReached(point->value, [&mutex, told](const absl::Status&) {
      {
        const MutexLock lock(mutex);
      }
      told->Signal(1);  // without it, which may be gone as soon as that is seen
    });
    {
      const MutexLock lock(mutex);
      cancellation->Cancel();
      memory.reset();  // here the device may see that the work has ended
    }
    never->Signal(1);
    ASSERT_TRUE(told->Wait(1, absl::Seconds(60)).ok());
  }
}

}  // namespace
}  // namespace telegrad
