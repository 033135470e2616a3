#include "server/data/transfers.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {

Transfers::Transfers(const SessionLimits& limits, std::shared_ptr<SessionQueues> queues,
                     std::function<void(Metric, int64_t)> count,
                     const std::shared_ptr<Account>& tenant_staging)
    : limits_(limits),
      queues_(std::move(queues)),
      count_(std::move(count)),
      session_staging_(std::make_shared<Account>("staged_bytes of this session",
                                                 limits.staged_bytes, "raise --staged-bytes")),
      tenant_staging_(tenant_staging) {}

Transfers::~Transfers() { Close(absl::CancelledError("the session has ended")); }

Transfers::Leftovers::~Leftovers() {
  for (const auto& upload : uploads) upload->End(absl::CancelledError("no operation names it"));
}

absl::Status Transfers::CheckRoomLocked() const {
  if (closed_) return absl::AbortedError("the session has ended");
  const auto count = static_cast<int64_t>(uploads_.size() + downloads_.size());
  if (count < limits_.transfers) return absl::OkStatus();
  return ResourceExhausted("this session has ", count, " transfers; transfers is limited to ",
                           limits_.transfers, "; let some end first, or raise --transfers");
}

absl::Status Transfers::UseNumberLocked(uint64_t transfer, Leftovers* leftovers) {
  if (transfer >= kFirstAdmitted) {
    return InvalidArgument("transfer ", transfer, ": numbers from ", kFirstAdmitted,
                           " are the server's");
  }
  if (transfer <= last_) {
    return InvalidArgument("transfer ", transfer, " follows ", last_,
                           "; numbers of transfers must increase");
  }
  // No operation will name those that were passed over.
  const auto begin = uploads_.upper_bound(last_), end = uploads_.lower_bound(transfer);
  for (auto it = begin; it != end; ++it) leftovers->uploads.push_back(std::move(it->second));
  uploads_.erase(begin, end);
  last_ = transfer;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Upload>> Transfers::UploadLocked(uint64_t transfer) {
  if (const auto it = uploads_.find(transfer); it != uploads_.end()) return it->second;
  TG_RETURN_IF_ERROR(CheckRoomLocked());
  return uploads_[transfer] = std::make_shared<Upload>(transfer, queues_, count_);
}

absl::StatusOr<std::shared_ptr<Upload>> Transfers::Expect(uint64_t transfer, uint64_t bytes,
                                                          Leftovers* leftovers) {
  const MutexLock lock(mutex_);
  TG_RETURN_IF_ERROR(UseNumberLocked(transfer, leftovers));
  TG_ASSIGN_OR_RETURN(std::shared_ptr<Upload> upload, UploadLocked(transfer));
  upload->Expect(bytes, &leftovers->credit);
  return upload;
}

absl::StatusOr<Transfers::Admitted> Transfers::Admit(uint64_t bytes) {
  std::vector<CreditLine::Part> none;
  const MutexLock lock(mutex_);
  TG_ASSIGN_OR_RETURN(std::shared_ptr<Upload> upload, UploadLocked(admitted_));
  upload->Expect(bytes, &none);
  unclaimed_.insert(admitted_);
  return Admitted{admitted_++, std::move(upload)};
}

absl::StatusOr<std::shared_ptr<Upload>> Transfers::Claim(uint64_t transfer) {
  if (transfer < kFirstAdmitted) {
    return InvalidArgument("transfer ", transfer,
                           " is not one that this server has admitted for another server");
  }
  const MutexLock lock(mutex_);
  if (unclaimed_.erase(transfer) == 0) {
    return NotFound("transfer ", transfer,
                    " of another server has ended, or another operation receives it");
  }
  return UploadLocked(transfer);
}

absl::Status Transfers::Announce(uint64_t transfer, Leftovers* leftovers) {
  const MutexLock lock(mutex_);
  TG_RETURN_IF_ERROR(UseNumberLocked(transfer, leftovers));
  if (const auto it = uploads_.find(transfer); it != uploads_.end()) {  // chunks were sent for it
    leftovers->uploads.push_back(std::move(it->second));
    uploads_.erase(it);
  }
  TG_RETURN_IF_ERROR(CheckRoomLocked());
  downloads_[transfer] = nullptr;
  return absl::OkStatus();
}

void Transfers::Begin(uint64_t transfer, std::shared_ptr<const Download> download) {
  const MutexLock lock(mutex_);
  const auto it = downloads_.find(transfer);
  if (it != downloads_.end()) it->second = std::move(download);  // else released before it began
}

void Transfers::Finish(uint64_t transfer) {
  std::shared_ptr<Upload> upload;
  std::shared_ptr<const Download> download;
  {
    const MutexLock lock(mutex_);
    unclaimed_.erase(transfer);
    if (const auto it = uploads_.find(transfer); it != uploads_.end()) {
      upload = std::move(it->second);
      uploads_.erase(it);
    }
    if (const auto it = downloads_.find(transfer); it != downloads_.end()) {
      download = std::move(it->second);
      downloads_.erase(it);
    }
  }
  // A caller that provides the bytes in another way holds the upload until its turn.
  if (upload != nullptr) upload->End(absl::CancelledError("its operation has ended"));
}

void Transfers::Close(const absl::Status& why) {
  std::map<uint64_t, std::shared_ptr<Upload>> uploads;
  std::map<uint64_t, std::shared_ptr<const Download>> downloads;
  std::vector<std::weak_ptr<TransferSink>> sinks;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    unclaimed_.clear();
    uploads.swap(uploads_);
    downloads.swap(downloads_);
    sinks.swap(sinks_);
  }
  for (const auto& [transfer, upload] : uploads) upload->End(why);
  for (const auto& weak : sinks) {
    if (const auto sink = weak.lock()) sink->OnSessionEnded();
  }
}

absl::StatusOr<std::shared_ptr<CreditLine>> Transfers::Attach(
    const std::shared_ptr<TransferSink>& sink, bool leaves_room) {
  // At least a chunk of the usual size, where a session may stage one.
  constexpr int64_t kLeast = 1 << 20;
  const int64_t bytes =
      std::max(limits_.staged_bytes / kStreams, std::min(limits_.staged_bytes, kLeast));
  std::vector<Reservation> reserved;
  for (const auto& account : {session_staging_, tenant_staging_}) {
    TG_ASSIGN_OR_RETURN(Reservation part, Reservation::Take(account, bytes));
    reserved.push_back(std::move(part));
    if (leaves_room && account->limit() - account->used() < bytes) {
      return ResourceExhausted(account->name(), ": the last ", bytes,
                               " bytes are kept for a transfer whose buffer is ready");
    }
  }
  const MutexLock lock(mutex_);
  if (closed_) return absl::AbortedError("the session has ended");
  std::erase_if(sinks_, [](const auto& weak) { return weak.expired(); });
  sinks_.push_back(sink);
  return std::make_shared<CreditLine>(++attached_, static_cast<uint64_t>(bytes),
                                      std::move(reserved),
                                      [weak = std::weak_ptr(sink)](uint64_t granted) {
                                        if (const auto sink = weak.lock()) sink->OnGranted(granted);
                                      });
}

absl::Status Transfers::Take(uint64_t transfer, ByteRange range, const ChunkContent& content,
                             CreditLine& credit) {
  // Before anything else, so that what is refused is granted again, too.
  TG_ASSIGN_OR_RETURN(CreditLine::Part part, credit.Take(range.bytes));
  TG_ASSIGN_OR_RETURN(const std::shared_ptr<Upload> upload, FindUpload(transfer));
  return upload->Take(range, content, std::move(part));
}

absl::StatusOr<std::shared_ptr<Upload>> Transfers::FindUpload(uint64_t transfer) {
  const MutexLock lock(mutex_);
  const bool known = transfer <= last_ || transfer >= kFirstAdmitted;
  if (known && !uploads_.contains(transfer)) {
    return NotFound("transfer ", transfer, " is not an upload that is under way");
  }
  return UploadLocked(transfer);
}

absl::StatusOr<std::shared_ptr<const Download>> Transfers::FindDownload(uint64_t transfer) const {
  const MutexLock lock(mutex_);
  const auto it = downloads_.find(transfer);
  if (it == downloads_.end() || it->second == nullptr) {
    return NotFound("transfer ", transfer, " is not a download that has begun and not ended");
  }
  return it->second;
}

void Transfers::Release(uint64_t transfer) {
  std::shared_ptr<const Download> download;
  const MutexLock lock(mutex_);
  const auto it = downloads_.find(transfer);
  if (it == downloads_.end()) return;
  download = std::move(it->second);
  downloads_.erase(it);
}

absl::StatusOr<Upload::State> Transfers::Stat(uint64_t transfer) const {
  std::shared_ptr<Upload> upload;
  {
    const MutexLock lock(mutex_);
    if (transfer > last_ && transfer < kFirstAdmitted) {
      return absl::UnavailableError(
          StrCat("the operation of transfer ", transfer, " has not arrived yet"));
    }
    const auto it = uploads_.find(transfer);
    if (it == uploads_.end()) {
      return NotFound("transfer ", transfer, " is not an upload that is under way");
    }
    upload = it->second;
  }
  return upload->Stat();
}

}  // namespace telegrad
