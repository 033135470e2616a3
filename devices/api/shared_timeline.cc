// The importer's thread sleeps on the word. It copies what it reads before it uses it, and takes
// nothing of it for more than what it is: values to compare, a code, a text of bounded length.
#include "devices/api/shared_timeline.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "engine/base/status.h"
#include "engine/base/thread.h"

namespace telegrad {
namespace {

// Between two looks at whether the other process is there.
constexpr int64_t kLookNs = 100'000'000;

absl::Status StatusOf(const SharedFailure& failure) {
  const int32_t code = failure.code;
  const uint32_t bytes = std::min(failure.message_bytes, kSharedMessage);
  const std::string message(failure.message, bytes);
  if (code < 1 || code > 16) return absl::UnknownError(absl::string_view(message));
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

// What the thread has, which may outlive the importer.
struct Import {
  UniqueFd process;
  std::unique_ptr<SharedMapping> mapping;
  Timeline timeline;
  std::atomic<bool> stop{false};

  SharedTimeline& shared() const { return *reinterpret_cast<SharedTimeline*>(mapping->base()); }

  // Reaches what is reached there. What it is at now.
  uint64_t Follow(uint64_t seen) {
    const uint64_t now = shared().word.value.load(std::memory_order_acquire);
    if (now <= seen) return seen;
    const uint32_t failures = std::min(shared().failures.load(), kSharedFailures);
    for (uint32_t i = 0; i < failures; ++i) {
      const SharedFailure& failure = shared().failure[i];
      const uint64_t first = failure.first.load(), last = std::min(failure.last.load(), now);
      if (first < 1 || last < first || last <= seen) continue;
      timeline.Signal(first - 1);
      timeline.Signal(last, StatusOf(failure));
    }
    timeline.Signal(now);
    return now;
  }

  void Serve() {
    uint64_t seen = 0;
    while (!stop.load()) {
      pollfd ended{process.get(), POLLIN, 0};
      const bool is_over = poll(&ended, 1, 0) > 0;
      seen = Follow(seen);
      if (is_over) {
        timeline.Signal(UINT64_MAX,
                        absl::UnavailableError("the process that had the timeline has ended"));
        return;
      }
      shared().word.Sleep(seen + 1, kLookNs);
    }
  }
};

class Importer {
 public:
  Importer(std::shared_ptr<Import> import, std::thread thread)
      : import_(std::move(import)), thread_(std::move(thread)) {}
  // Perhaps by a callback, on the thread itself.
  ~Importer() {
    import_->stop.store(true);
    import_->shared().word.Ring();
    if (thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }
  Importer(const Importer&) = delete;
  Importer& operator=(const Importer&) = delete;
  Timeline& timeline() const { return import_->timeline; }

 private:
  const std::shared_ptr<Import> import_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExportedTimeline>> ExportedTimeline::Create() {
  TG_ASSIGN_OR_RETURN(ExportedFile file, CreateExportedFile(sizeof(SharedTimeline)));
  TG_ASSIGN_OR_RETURN(auto mapping, SharedMapping::Map(file.file.get(), sizeof(SharedTimeline)));
  return std::unique_ptr<ExportedTimeline>(
      new ExportedTimeline(std::move(file), std::move(mapping)));
}

void ExportedTimeline::Fail(uint64_t first, uint64_t last, const absl::Status& status) {
  const uint32_t count = shared().failures.load();
  if (count == kSharedFailures) {
    shared().failure[count - 1].last.store(last);
    return;
  }
  SharedFailure& failure = shared().failure[count];
  failure.first.store(first);
  failure.last.store(last);
  failure.code = static_cast<int32_t>(status.code());
  failure.message_bytes =
      static_cast<uint32_t>(std::min<size_t>(status.message().size(), kSharedMessage));
  std::memcpy(failure.message, status.message().data(), failure.message_bytes);
  shared().failures.store(count + 1);
}

absl::StatusOr<std::shared_ptr<Timeline>> ImportTimeline(std::string_view handle) {
  const auto import = std::make_shared<Import>();
  // First the process, then its file: so the process is that of the file.
  import->process =
      UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, ExportingProcess(handle), 0)));
  TG_ASSIGN_OR_RETURN(const UniqueFd file, OpenExportedFile(handle));
  if (!import->process.valid()) {
    return ResourceExhausted("the system watches no more processes");
  }
  TG_ASSIGN_OR_RETURN(import->mapping, SharedMapping::Map(file.get(), sizeof(SharedTimeline)));
  TG_ASSIGN_OR_RETURN(std::thread thread, StartThread([import] { import->Serve(); }));
  const auto importer = std::make_shared<Importer>(import, std::move(thread));
  return std::shared_ptr<Timeline>(importer, &importer->timeline());
}

}  // namespace telegrad
