// Lists of points that read and write the buffer, pruned as they are reached, and the error that
// poisons it.
#include "server/session/buffer.h"

#include <algorithm>
#include <utility>

#include "server/session/answer.h"

namespace telegrad {

bool IsReached(const TimelinePoint& point) {
  return point.timeline == nullptr || point.timeline->value() >= point.value;
}

Buffer::Buffer(std::shared_ptr<Memory> memory, int64_t bytes, Device* device, Metrics* metrics)
    : memory_(std::move(memory)), bytes_(bytes), device_(device), metrics_(metrics) {
  metrics_->Add(Metric::kBuffers);
  metrics_->Add(Metric::kBufferBytes, bytes_);
}

Buffer::Buffer(absl::Status error, Metrics* metrics)
    : bytes_(0), device_(nullptr), metrics_(metrics), poison_(std::move(error)) {
  metrics_->Add(Metric::kBuffers);
}

Buffer::~Buffer() {
  metrics_->Add(Metric::kBuffers, -1);
  metrics_->Add(Metric::kBufferBytes, -bytes_);
}

std::byte* Buffer::host(uint64_t offset) const {
  void* base = memory_ ? memory_->host() : nullptr;
  return base ? static_cast<std::byte*>(base) + offset : nullptr;
}

// A run that failed after its submission left its status on its timeline; it becomes the buffer's
// own here, at the first check.
const absl::Status& Buffer::Poison() {
  if (poison_.ok() && last_write_.timeline && IsReached(last_write_)) {
    absl::Status ended = last_write_.timeline->StatusOf(last_write_.value);
    last_write_ = {};
    if (!ended.ok()) SetPoison(ended);
  }
  return poison_;
}

void Buffer::SetPoison(const absl::Status& error) {
  content_ = NewContent();
  poison_ = Clipped(error);
  rewritten_ = 0;
}

void Buffer::Rewritten(uint64_t offset, uint64_t size) {
  content_ = NewContent();
  if (poison_.ok() || memory_ == nullptr) return;
  if (offset <= rewritten_) rewritten_ = std::max(rewritten_, offset + size);
  if (rewritten_ < static_cast<uint64_t>(bytes_)) return;
  poison_ = absl::OkStatus();
  last_write_ = {};  // it has ended, and how is of no importance any more
}

void Buffer::WrittenBy(const TimelinePoint& run) {
  content_ = NewContent();
  last_write_ = run;
  poison_ = absl::OkStatus();
}

void Buffer::ReadUntil(TimelinePoint copied) { copied_reads_.push_back(std::move(copied)); }
void Buffer::ReadUntil(std::weak_ptr<HeldRead> sent) { held_reads_.push_back(std::move(sent)); }

const std::vector<TimelinePoint>& Buffer::copied_reads() {
  std::erase_if(copied_reads_, [](const TimelinePoint& p) { return IsReached(p); });
  return copied_reads_;
}

std::shared_ptr<HeldRead> Buffer::held_read() {
  while (!held_reads_.empty()) {
    if (auto held = held_reads_.back().lock()) return held;
    held_reads_.pop_back();
  }
  return nullptr;
}

}  // namespace telegrad
