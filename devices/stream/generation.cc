// The threads of the queues end first, then the context with all that the driver has in it.
#include "devices/stream/generation.h"

#include "engine/base/status.h"

namespace telegrad::stream {

void StreamGeneration::Interrupt() { context_->driver().Lose(context_->health()); }

absl::Status StreamGeneration::Close() {
  const bool ends = context_->driver().EndsStuckWork();
  const auto at_work = [&] { return !ends && context_->stuck() && !context_->HasCalmed(); };
  const auto still = [&] {
    return absl::UnavailableError(
        StrCat(context_->name(),
               " is still at work on something that does not end; it is free again when that has "
               "ended, or the process: restart the daemon if it does not"));
  };
  if (at_work()) return still();
  context_->driver().Lose(absl::UnavailableError(StrCat(context_->name(), " is replaced")));
  device_ = nullptr;
  if (at_work()) return still();
  context_->Discard();
  return absl::OkStatus();
}

}  // namespace telegrad::stream
