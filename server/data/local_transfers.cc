// Copies pieces of a few MiB, by at most a few workers for one transfer, so that other work of
// the pool goes on between them.
#include "server/data/local_transfers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// Long enough that handing it to a worker costs nothing beside the copy.
constexpr uint64_t kPieceBytes = 4 << 20;
// Workers that one transfer keeps busy.
constexpr int kLanes = 2;

// Copies between a buffer and shared memory, range by range, by a few workers at a time.
class SharedCopy : public std::enable_shared_from_this<SharedCopy> {
 public:
  using Copy = std::function<absl::Status(ByteRange)>;
  SharedCopy(TaskPool* workers, std::shared_ptr<const Share> share, uint64_t bytes, Copy copy,
             Copied done)
      : workers_(workers),
        share_(std::move(share)),
        bytes_(bytes),
        copy_(std::move(copy)),
        done_(std::move(done)) {}

  void Start() {
    for (int i = 0; i < kLanes; ++i) Post();
  }

 private:
  void Post() {
    workers_->Post([self = shared_from_this()] { self->Next(); }, share_);
  }
  // After each piece the lane goes to the end of its tenant's tasks, and it is others' turn.
  void Next() {
    ByteRange piece;
    absl::Status ended;
    {
      const MutexLock lock(mutex_);
      if (status_.ok()) piece = {next_, std::min(kPieceBytes, bytes_ - next_)};
      next_ += piece.bytes;
      if (piece.bytes == 0 && --lanes_ > 0) return;
      ended = status_;
    }
    if (piece.bytes == 0) return done_(ended);
    const absl::Status status = copy_(piece);
    {
      const MutexLock lock(mutex_);
      if (status_.ok()) status_ = status;
    }
    Post();
  }

  TaskPool* const workers_;
  const std::shared_ptr<const Share> share_;
  const uint64_t bytes_;
  const Copy copy_;
  const Copied done_;
  Mutex mutex_;
  uint64_t next_ TG_GUARDED_BY(mutex_) = 0;
  int lanes_ TG_GUARDED_BY(mutex_) = kLanes;
  absl::Status status_ TG_GUARDED_BY(mutex_);
};

class FileContent final : public ChunkContent {
 public:
  FileContent(const SealedFile& file, ByteRange range) : file_(file), range_(range) {}
  absl::Status CopyTo(std::byte* to) const override {
    return file_.Read(range_.offset, {to, range_.bytes});
  }

 private:
  const SealedFile& file_;
  const ByteRange range_;
};

}  // namespace

absl::Status UploadFrom(std::shared_ptr<const SealedFile> file, uint64_t transfer,
                        Transfers& transfers, TaskPool* workers) {
  TG_ASSIGN_OR_RETURN(const std::shared_ptr<Upload> upload, transfers.FindUpload(transfer));
  const uint64_t bytes = file->bytes();
  const auto copy = [upload, file = std::move(file)](ByteRange piece) {
    // Its only part comes back when the piece is in its place, also where a device takes it there.
    const TimelinePoint placed{std::make_shared<Timeline>(), 1};
    const auto line = std::make_shared<CreditLine>(
        /*stream=*/0, piece.bytes, std::vector<Reservation>(),
        [timeline = placed.timeline](uint64_t) { timeline->Signal(1); });
    const absl::Status taken =
        upload->Take(piece, FileContent(*file, piece), *line->Take(piece.bytes));
    (void)placed.Wait();
    return taken;
  };
  const auto shared_copy = std::make_shared<SharedCopy>(
      workers, transfers.share(), bytes, copy, [upload, bytes](const absl::Status& status) {
        if (!status.ok()) return upload->End(status);
        if (upload->Stat().bytes == bytes) return;
        upload->End(absl::InvalidArgumentError(
            "the shared memory is shorter than the write that it should fill"));
      });
  return upload->WhenOpen([shared_copy] { shared_copy->Start(); });
}

absl::Status DownloadTo(std::shared_ptr<const SealedFile> file, uint64_t transfer,
                        std::shared_ptr<Transfers> transfers, TaskPool* workers, Copied copied) {
  TG_ASSIGN_OR_RETURN(const auto download, transfers->FindDownload(transfer));
  if (file->bytes() != download->bytes()) {
    return InvalidArgument("transfer ", transfer, " has ", download->bytes(),
                           " bytes, and the shared memory ", file->bytes());
  }
  const auto copy = [download, file](ByteRange piece) {
    absl::StatusOr<FetchedBytes> fetched;
    const TimelinePoint there{std::make_shared<Timeline>(), 1};
    download->Fetch(piece, /*ahead=*/false,
                    [&fetched, timeline = there.timeline](absl::StatusOr<FetchedBytes> f) {
                      fetched = std::move(f);
                      timeline->Signal(1);
                    });
    (void)there.Wait();
    TG_RETURN_IF_ERROR(fetched.status());
    return file->Write(piece.offset, {fetched->data, piece.bytes});
  };
  const auto done = [transfers, transfer, copied = std::move(copied)](const absl::Status& status) {
    if (status.ok()) transfers->Release(transfer);
    copied(status);
  };
  std::make_shared<SharedCopy>(workers, transfers->share(), file->bytes(), copy, done)->Start();
  return absl::OkStatus();
}

}  // namespace telegrad
