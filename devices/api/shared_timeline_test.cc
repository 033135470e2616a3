// Timelines that processes share: which points another process sees reached and failed, also those
// from before it looked, more failures than there is room for, and the end of the exporter.
#include "devices/api/shared_timeline.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<Timeline> Imported(Timeline& timeline) {
  const auto handle = timeline.Export();
  EXPECT_TRUE(handle.ok()) << handle.status();
  auto imported = ImportTimeline(*handle);
  EXPECT_TRUE(imported.ok()) << imported.status();
  return imported.ok() ? *imported : nullptr;
}

TEST(SharedTimeline, SeesWhatWasAndWhatComes) {
  Timeline timeline;
  timeline.Signal(2);
  timeline.Signal(4, absl::InternalError("three and four"));
  timeline.Signal(5);
  const auto imported = Imported(timeline);
  EXPECT_EQ(imported->Wait(5), absl::OkStatus());
  EXPECT_EQ(imported->Wait(2), absl::OkStatus());
  EXPECT_EQ(imported->Wait(3), absl::InternalError("three and four"));
  EXPECT_EQ(imported->Wait(4), absl::InternalError("three and four"));
  Timeline seen;
  imported->OnReached(8, [&](const absl::Status& status) { seen.Signal(1, status); });
  std::thread other([&] {
    timeline.Signal(6);
    timeline.Signal(9, absl::NotFoundError("what is there"));
  });
  EXPECT_EQ(seen.Wait(1), absl::NotFoundError("what is there"));
  EXPECT_EQ(imported->Wait(6), absl::OkStatus());
  EXPECT_EQ(imported->Wait(7), absl::NotFoundError("what is there"));
  other.join();
}

TEST(SharedTimeline, OneHandleForMany) {
  Timeline timeline;
  const auto first = timeline.Export(), second = timeline.Export();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, *second);
  std::vector<std::shared_ptr<Timeline>> readers;
  for (int i = 0; i < 4; ++i) readers.push_back(*ImportTimeline(*first));
  timeline.Signal(3);
  for (const auto& reader : readers) EXPECT_EQ(reader->Wait(3), absl::OkStatus());
}

TEST(SharedTimeline, NoFailureIsLeftOut) {
  Timeline timeline;
  const auto imported = Imported(timeline);
  constexpr uint64_t kPoints = 200;
  for (uint64_t point = 1; point <= kPoints; ++point) {
    timeline.Signal(point,
                    point % 2 == 0 ? absl::InternalError(std::to_string(point)) : absl::OkStatus());
  }
  EXPECT_FALSE(imported->Wait(kPoints).ok());
  for (uint64_t point = 2; point <= kPoints; point += 2) {
    EXPECT_FALSE(imported->StatusOf(point).ok()) << point;
  }
  EXPECT_EQ(imported->StatusOf(1), absl::OkStatus());
  EXPECT_EQ(imported->StatusOf(2), absl::InternalError("2"));
}

TEST(SharedTimeline, AHandleThatIsNone) {
  Timeline timeline;
  std::string handle = *timeline.Export();
  handle.back() = handle.back() == '0' ? '1' : '0';
  for (const std::string& none : {handle, std::string("x"), std::string()}) {
    EXPECT_EQ(ImportTimeline(none).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// A callback may be the last to hold it.
TEST(SharedTimeline, IsDroppedByItsOwnThread) {
  Timeline timeline;
  auto imported = Imported(timeline);
  Timeline done;
  Timeline& raw = *imported;
  raw.OnReached(1, [held = std::move(imported), &done](const absl::Status&) mutable {
    held.reset();
    done.Signal(1);
  });
  timeline.Signal(1);
  EXPECT_EQ(done.Wait(1), absl::OkStatus());
}

// A process that exports a timeline, reaches its first point, and waits to be killed.
TEST(SharedTimeline, TheExporterEnds) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    Timeline timeline;
    timeline.Signal(1);
    const std::string handle = *timeline.Export();
    if (write(ends[1], handle.data(), handle.size()) < 0) _exit(1);
    close(ends[1]);
    pause();
    _exit(0);
  }
  close(ends[1]);
  std::string handle;
  char buffer[256];
  for (ssize_t bytes; (bytes = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    handle.append(buffer, static_cast<size_t>(bytes));
  }
  close(ends[0]);
  const auto imported = ImportTimeline(handle);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ((*imported)->Wait(1), absl::OkStatus());
  EXPECT_FALSE((*imported)->Wait(2, absl::ZeroDuration()).ok());
  kill(child, SIGKILL);
  const absl::Status ended = (*imported)->Wait(2);
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(ended.message()), HasSubstr("has ended"));
  EXPECT_EQ((*imported)->Wait(1), absl::OkStatus());
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(ImportTimeline(handle).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace telegrad
