// The word is before the event on the stream, so that whoever has seen the event need not wait for
// the word. The write has a barrier in front of it (CU_STREAM_WRITE_VALUE_DEFAULT): whoever sees
// the word also sees what was copied to the host before.
#include "devices/stream/marks.h"

#include <utility>

namespace telegrad::stream {
namespace {

constexpr size_t kWordPage = 4096;  // a page of its own, which no thread of the host writes
constexpr unsigned int kWithBarrier = 0;

}  // namespace

// Context::Check is not asked: a device without words is no worse, and a fault also shows
// otherwise.
Marks::Marks(std::shared_ptr<Context> context, bool words) : context_(std::move(context)) {
  const Calls& calls = context_->calls();
  if (!words || !context_->Enter().ok()) return;
  void* page = nullptr;
  const unsigned int flags = context_->driver().SharedHostFlags();
  if (calls.host_allocate(&page, kWordPage, flags) != kSuccess) return;
  if (calls.host_address(&address_, page, 0) != kSuccess) {
    calls.host_free(page);
    return;
  }
  word_ = static_cast<uint64_t*>(page);
  *word_ = 0;
}

Marks::~Marks() {
  if (word_ == nullptr) return;
  context_->ReleaseUnlocked([&] { context_->calls().host_free(word_); });
}

uint64_t Marks::Look() const { return __atomic_load_n(word_, __ATOMIC_ACQUIRE); }

absl::Status Marks::Put(Mark* mark, StreamHandle stream) {
  mark->word = 0;
  if (word_ != nullptr && writes_) {
    writes_ = context_->calls().write_word(stream, address_, last_ + 1, kWithBarrier) == kSuccess;
    if (writes_) mark->word = ++last_;
  }
  return TG_STREAM(*context_, event_record, mark->event, stream);
}

}  // namespace telegrad::stream
