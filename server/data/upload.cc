// A chunk claims its range under the lock and is copied without it, so that several streams copy at
// the same time and no range is copied twice. The end of the upload waits for the last claim,
// because later operations of the session start after it.
#include "server/data/upload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "server/data/staging.h"

namespace telegrad {
namespace {

class StagedContent final : public ChunkContent {
 public:
  StagedContent(const std::byte* bytes, uint64_t size) : bytes_(bytes), size_(size) {}
  absl::Status CopyTo(std::byte* to) const override {
    std::memcpy(to, bytes_, size_);
    return absl::OkStatus();
  }

 private:
  const std::byte* const bytes_;
  const uint64_t size_;
};

}  // namespace

void Upload::Expect(uint64_t bytes, std::vector<CreditLine::Part>* dropped) {
  const MutexLock lock(mutex_);
  bytes_ = bytes;
  const auto outside = std::stable_partition(staged_.begin(), staged_.end(), [&](const Staged& s) {
    return s.range.offset + s.range.bytes <= bytes;
  });
  if (outside == staged_.end()) return;
  for (auto it = outside; it != staged_.end(); ++it) dropped->push_back(std::move(it->credit));
  staged_.erase(outside, staged_.end());
  received_ = {};
  staged_bytes_ = 0;
  for (const Staged& s : staged_) {
    received_.Add(s.range);
    staged_bytes_ += s.range.bytes;
  }
}

void Upload::Open(BufferView target, Device* device) {
  std::vector<Staged> staged;
  std::function<void()> opened;
  {
    const MutexLock lock(mutex_);
    if (end_) return;
    opened.swap(when_open_);
    target_ = std::move(target);
    device_ = device;
    open_ = true;
    staged.swap(staged_);
    staged_bytes_ = 0;
    for (const Staged& s : staged) claims_.push_back({s.range});
    claims_.push_back({{0, 0}});  // this thread's, until all of them are placed
  }
  for (Staged& s : staged) {
    const StagedContent content(s.bytes.get(), s.range.bytes);
    // These were acknowledged to the client, so they cannot be requested again.
    if (auto status = Place(s.range, content, std::move(s.credit)); !status.ok()) End(status);
    s.bytes.reset();
  }
  Settle({0, 0}, /*placed=*/true);
  if (opened) opened();
}

absl::Status Upload::WhenOpen(std::function<void()> callback) {
  {
    const MutexLock lock(mutex_);
    if (end_) return NotFound("transfer ", transfer_, " has ended");
    if (when_open_) {
      return FailedPrecondition("transfer ", transfer_, " gets its bytes in another way already");
    }
    if (!open_) {
      when_open_ = std::move(callback);
      return absl::OkStatus();
    }
  }
  callback();
  return absl::OkStatus();
}

uint64_t Upload::staged_bytes() const {
  const MutexLock lock(mutex_);
  return staged_bytes_;
}

void Upload::End(const absl::Status& why) {
  std::vector<Staged> dropped;
  std::function<void()> dropped_callback;  // holds what is not needed any more
  absl::Status end;
  {
    const MutexLock lock(mutex_);
    dropped_callback.swap(when_open_);
    if (!end_) end_ = why;
    end = *end_;
    dropped.swap(staged_);
    staged_bytes_ = 0;
    for (const Claim& claim : claims_) {  // of the target, whose remaining bytes may never arrive
      if (open_ && claim.content != nullptr) claim.content->Abandon();
    }
    if (!claims_.empty()) return;
  }
  ended_.timeline->Signal(ended_.value, end);
}

const Upload::Claim* Upload::FindClaimLocked(ByteRange range) const {
  const auto it = std::find_if(claims_.begin(), claims_.end(), [&](const Claim& claim) {
    return claim.range.offset < range.offset + range.bytes &&
           range.offset < claim.range.offset + claim.range.bytes;
  });
  return it != claims_.end() ? &*it : nullptr;
}

void Upload::ArrivedLocked(ByteRange range) {
  ClaimLocked(range)->content = nullptr;
  ++arrivals_;
  settled_.notify_all();
}

std::vector<Upload::Claim>::iterator Upload::ClaimLocked(ByteRange range) {
  return std::find_if(claims_.begin(), claims_.end(),
                      [&](const Claim& claim) { return claim.range == range; });
}

absl::Status Upload::CheckInsideLocked(ByteRange range) const {
  if (end_) return NotFound("transfer ", transfer_, " has ended");
  const uint64_t limit = bytes_.value_or(INT64_MAX);
  if (range.bytes == 0 || range.offset > limit || range.bytes > limit - range.offset) {
    return InvalidArgument("transfer ", transfer_, ": a chunk of ", range.bytes, " bytes at ",
                           range.offset, " is not inside of its ", limit);
  }
  return absl::OkStatus();
}

absl::Status Upload::AdmitLocked(ByteRange range) const {
  TG_RETURN_IF_ERROR(CheckInsideLocked(range));
  if (received_.Contains(range)) return absl::OkStatus();
  if (FindClaimLocked(range) != nullptr) {
    return absl::UnavailableError(StrCat("transfer ", transfer_, ": bytes of the chunk at ",
                                         range.offset,
                                         " are being received over another stream; send it again"));
  }
  if (received_.Overlaps(range)) {
    return InvalidArgument("transfer ", transfer_, ": a chunk of ", range.bytes, " bytes at ",
                           range.offset, " overlaps others that have arrived");
  }
  if (staged_.size() + claims_.size() >= kMaxChunks) {
    return ResourceExhausted("transfer ", transfer_, " has ", kMaxChunks,
                             " chunks that are not in their buffer; send larger ones");
  }
  if (received_.SizeWith(range) > kMaxRanges) {
    return ResourceExhausted("transfer ", transfer_, " has received ", received_.size(),
                             " separate ranges; there may be ", kMaxRanges,
                             "; send what lies between them first");
  }
  return absl::OkStatus();
}

absl::Status Upload::Take(ByteRange range, const ChunkContent& content, CreditLine::Part credit) {
  ReleasableLock lock(mutex_);
  TG_RETURN_IF_ERROR(CheckInsideLocked(range));
  for (auto claim = ClaimLocked(range);
       claim != claims_.end() && claim->content != nullptr && claim->stream < credit.stream() &&
       claim->content->Abandon();
       claim = ClaimLocked(range)) {
    settled_.wait(lock);
  }
  TG_RETURN_IF_ERROR(AdmitLocked(range));
  if (received_.Contains(range)) return absl::OkStatus();
  claims_.push_back({range, &content, credit.stream()});
  if (open_) {
    lock.unlock();
    return Place(range, content, std::move(credit));
  }
  lock.unlock();
  std::unique_ptr<std::byte[]> bytes(new std::byte[range.bytes]);
  if (absl::Status status = content.CopyTo(bytes.get()); !status.ok()) {
    Settle(range, /*placed=*/false);
    return status;
  }
  lock.lock();
  ArrivedLocked(range);
  // Meanwhile the operation may have arrived, which states the length; the upload may also be open.
  const absl::Status inside = CheckInsideLocked(range);
  if (inside.ok() && open_) {
    lock.unlock();
    return Place(range, StagedContent(bytes.get(), range.bytes), std::move(credit));
  }
  if (inside.ok()) {
    received_.Add(range);
    staged_bytes_ += range.bytes;
    staged_.push_back({range, std::move(bytes), std::move(credit)});
  }
  lock.unlock();
  Settle(range, /*placed=*/false);
  return absl::IsNotFound(inside) ? absl::OkStatus() : inside;  // the chunk is not needed
}

// Writes a range that was checked to be inside of the upload after its length became known.
absl::Status Upload::Place(ByteRange range, const ChunkContent& content, CreditLine::Part credit) {
  void* const host = target_.memory->host();
  if (host == nullptr) return PlaceStaged(range, content, std::move(credit));
  absl::Status status =
      content.CopyTo(static_cast<std::byte*>(host) + target_.offset + range.offset);
  Settle(range, status.ok());
  return status;
}

// Its device copies it out of memory of the host, for which the credit is kept until then.
absl::Status Upload::PlaceStaged(ByteRange range, const ChunkContent& content,
                                 CreditLine::Part credit) {
  auto staging = AllocInTransit(*device_, range.bytes);
  absl::Status status = staging.status();
  if (status.ok()) status = content.CopyTo(static_cast<std::byte*>((*staging)->host()));
  if (!status.ok()) {
    Settle(range, /*placed=*/false);
    return status;
  }
  {
    const MutexLock lock(mutex_);
    ArrivedLocked(range);
  }
  BufferView to = target_;
  to.offset += static_cast<int64_t>(range.offset);
  to.length = static_cast<int64_t>(range.bytes);
  const auto copied =
      EnqueueCopy(*queues_, *device_, std::move(to), Part(*staging, 0, range.bytes), {});
  if (!copied.ok()) {
    Settle(range, /*placed=*/false);
    return copied.status();
  }
  {
    // From here on no client can mend what becomes of it: an error ends the upload.
    const MutexLock lock(mutex_);
    received_.Add(range);
  }
  copied->timeline->OnReached(
      copied->value, [self = shared_from_this(), range,
                      credit = std::make_shared<CreditLine::Part>(std::move(credit))](
                         const absl::Status& status) { self->Settle(range, status.ok(), status); });
  return absl::OkStatus();
}

void Upload::Settle(ByteRange range, bool placed, const absl::Status& fatal) {
  std::vector<Staged> dropped;
  absl::Status end;
  {
    const MutexLock lock(mutex_);
    claims_.erase(ClaimLocked(range));
    settled_.notify_all();
    if (placed) {
      if (range.bytes > 0) ++arrivals_;
      received_.Add(range);
      placed_ += range.bytes;
      count_(Metric::kBytesWritten, static_cast<int64_t>(range.bytes));
    }
    if (!end_ && !fatal.ok()) end_ = fatal;
    if (!end_ && open_ && placed_ == *bytes_) end_ = absl::OkStatus();
    if (!end_ || !claims_.empty()) return;
    end = *end_;
    dropped.swap(staged_);
  }
  ended_.timeline->Signal(ended_.value, end);
}

bool Upload::is_open() const {
  const MutexLock lock(mutex_);
  return open_;
}

uint64_t Upload::arrivals() const {
  const MutexLock lock(mutex_);
  return arrivals_;
}

Upload::State Upload::Stat() const {
  const MutexLock lock(mutex_);
  State state;
  state.bytes = bytes_.value_or(0);
  if (bytes_) state.missing = received_.Missing(*bytes_);
  return state;
}

}  // namespace telegrad
