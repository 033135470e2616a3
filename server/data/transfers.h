// The transfers of a session: the uploads and downloads that its operations have named, and the
// streams that carry them. Transfers have ascending numbers, which distinguish a transfer whose
// operation has not arrived yet over another connection from one that has ended: its chunks are
// staged, like those of an operation that waits for its turn. Those that another server sends have
// numbers that are given out here, from kFirstAdmitted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/account.h"
#include "engine/base/mutex.h"
#include "server/admin/metrics.h"
#include "server/data/credit.h"
#include "server/data/download.h"
#include "server/data/upload.h"
#include "server/pool/session_queues.h"
#include "server/tenant/limits.h"

namespace telegrad {

// A stream of transfers, as the session sees it.
class TransferSink {
 public:
  virtual ~TransferSink() = default;
  // Called from any thread, without locks.
  virtual void OnGranted(uint64_t bytes) = 0;
  virtual void OnSessionEnded() = 0;
};

// Thread-safe.
class Transfers {
 public:
  // Streams that share the bytes that a session may stage.
  static constexpr int64_t kStreams = 4;
  static constexpr uint64_t kFirstAdmitted = uint64_t{1} << 63;

  // `count` counts for the server, the tenant and the session; it may be called after the end of
  // the session.
  Transfers(const SessionLimits& limits, std::shared_ptr<SessionQueues> queues,
            std::function<void(Metric, int64_t)> count,
            const std::shared_ptr<Account>& tenant_staging);
  ~Transfers();

  // The account of the session's tenant.
  const std::shared_ptr<const Share>& share() const { return queues_->share(); }

  // Staged chunks that are not needed. They are released without a lock, because their release
  // notifies streams.
  struct Leftovers {
    ~Leftovers();
    std::vector<std::shared_ptr<Upload>> uploads;
    std::vector<CreditLine::Part> credit;
  };

  // Called by the session, in the order of its operations. INVALID_ARGUMENT unless the number is
  // above all before it, RESOURCE_EXHAUSTED if there are too many.
  absl::StatusOr<std::shared_ptr<Upload>> Expect(uint64_t transfer, uint64_t bytes,
                                                 Leftovers* leftovers);
  absl::Status Announce(uint64_t transfer, Leftovers* leftovers);  // a download that may begin
  void Begin(uint64_t transfer, std::shared_ptr<const Download> download);
  // An upload of another server, before the operation that names its buffer. RESOURCE_EXHAUSTED if
  // there are too many transfers.
  struct Admitted {
    uint64_t transfer = 0;
    std::shared_ptr<Upload> upload;
  };
  absl::StatusOr<Admitted> Admit(uint64_t bytes);
  // It, for the one operation that receives it: NOT_FOUND if another one has named it, too.
  absl::StatusOr<std::shared_ptr<Upload>> Claim(uint64_t transfer);
  // The operation is over: an upload that has not ended does so now.
  void Finish(uint64_t transfer);
  // The session has ended: ends uploads, drops downloads, notifies streams.
  void Close(const absl::Status& why);

  // Called by streams. RESOURCE_EXHAUSTED if there is no credit left, ABORTED if the session has
  // ended. `leaves_room`: credit for another stream must be left, as for one whose bytes may have
  // to wait here until what another one carries has arrived.
  absl::StatusOr<std::shared_ptr<CreditLine>> Attach(const std::shared_ptr<TransferSink>& sink,
                                                     bool leaves_room = false);
  // See Upload::Take. A chunk has at most kMaxChunkBytes.
  absl::Status Take(uint64_t transfer, ByteRange range, const ChunkContent& content,
                    CreditLine& credit);
  // For callers that provide all of its bytes in another way. NOT_FOUND if it has ended.
  absl::StatusOr<std::shared_ptr<Upload>> FindUpload(uint64_t transfer);
  // NOT_FOUND if it has not begun or has ended.
  absl::StatusOr<std::shared_ptr<const Download>> FindDownload(uint64_t transfer) const;
  void Release(uint64_t transfer);
  // NOT_FOUND if the upload has ended, UNAVAILABLE if its operation has not arrived.
  absl::StatusOr<Upload::State> Stat(uint64_t transfer) const;

 private:
  absl::Status UseNumberLocked(uint64_t transfer, Leftovers* leftovers) TG_REQUIRES(mutex_);
  absl::StatusOr<std::shared_ptr<Upload>> UploadLocked(uint64_t transfer) TG_REQUIRES(mutex_);
  absl::Status CheckRoomLocked() const TG_REQUIRES(mutex_);

  const SessionLimits& limits_;
  const std::shared_ptr<SessionQueues> queues_;
  const std::function<void(Metric, int64_t)> count_;
  const std::shared_ptr<Account> session_staging_, tenant_staging_;

  mutable Mutex mutex_;
  bool closed_ TG_GUARDED_BY(mutex_) = false;
  uint64_t last_ TG_GUARDED_BY(mutex_) = 0;      // the number of the last operation that named one
  uint64_t attached_ TG_GUARDED_BY(mutex_) = 0;  // streams, so far
  uint64_t admitted_ TG_GUARDED_BY(mutex_) = kFirstAdmitted;  // the next number
  std::set<uint64_t> unclaimed_ TG_GUARDED_BY(mutex_);        // of those admitted
  std::map<uint64_t, std::shared_ptr<Upload>> uploads_ TG_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<const Download>> downloads_
      TG_GUARDED_BY(mutex_);  // null: has not begun
  std::vector<std::weak_ptr<TransferSink>> sinks_ TG_GUARDED_BY(mutex_);
};

// The session that a stream of transfers serves.
class TransferOwner {
 public:
  virtual ~TransferOwner() = default;
  virtual Transfers& transfers() = 0;
  // A message of its client has arrived.
  virtual void Renew() = 0;
  // For the server, the tenant and the session.
  virtual void Count(Metric metric, int64_t n) = 0;
};

}  // namespace telegrad
