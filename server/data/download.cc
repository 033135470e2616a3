// Fetches a range of the buffer, copied from the device where the host cannot address its
// memory.
#include "server/data/download.h"

#include "engine/base/status.h"
#include "engine/execution/charged_memory.h"
#include "server/data/staging.h"

namespace telegrad {

void Download::Fetch(ByteRange range, bool ahead, Fetched fetched) const {
  const std::shared_ptr<Memory>& memory = held_->memory();
  if (memory->host() != nullptr) {
    const auto* base = static_cast<const std::byte*>(memory->host());
    return fetched(FetchedBytes{base + at_ + range.offset, held_});
  }
  if (ahead && staging_ != nullptr && staging_->used() > staging_->limit() / 2) {
    return fetched(ResourceExhausted(staging_->name(), " is half used"));
  }
  auto paid = Reservation::Take(staging_, static_cast<int64_t>(range.bytes));
  if (!paid.ok()) return fetched(paid.status());
  auto staging = AllocInTransit(*device_, range.bytes);
  if (!staging.ok()) return fetched(staging.status());
  staging = Charged(*std::move(staging), *std::move(paid));
  const auto copied = EnqueueCopy(*queues_, *device_, Part(*staging, 0, range.bytes),
                                  Part(memory, at_ + range.offset, range.bytes), {});
  if (!copied.ok()) return fetched(copied.status());
  copied->timeline->OnReached(
      copied->value, [staging = *staging, self = shared_from_this(),
                      fetched = std::move(fetched)](const absl::Status& status) mutable {
        if (!status.ok()) return fetched(status);
        // Held by nothing here once the bytes have been sent.
        const auto* const bytes = static_cast<const std::byte*>(staging->host());
        fetched(FetchedBytes{bytes, std::move(staging)});
      });
}

}  // namespace telegrad
