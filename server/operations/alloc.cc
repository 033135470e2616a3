// Small buffers are allocated in the operation's turn; large ones, which take time to clear, and
// files are left to a worker.
#include "server/operations/alloc.h"

#include <algorithm>
#include <utility>

#include "devices/api/connects.h"
#include "devices/api/preparing_queue.h"
#include "engine/base/status.h"
#include "server/operations/placement.h"

namespace telegrad {
namespace {

// Whether a process of the tenant, or another server, may be asked for it, and may not answer.
bool MayAsk(const Turn& turn, const AllocOp& op) {
  const auto& devices = turn.env().devices->devices();
  return std::ranges::any_of(devices, [&](const auto& device) {
    if (!op.device.empty() && op.device != device->name()) return false;
    return AsksProcess(*device) ||
           // A session that names none gets another server's device only where that is the first.
           ((!op.device.empty() || device == devices.front()) &&
            AwaitsConnection(*turn.tenant().KnownView(*device)));
  });
}

// Above this it is not done on a reader's or device's thread.
constexpr int64_t kQuickAllocBytes = 4 << 20;

absl::StatusOr<std::shared_ptr<Memory>> OpenFile(const Turn& turn, const AllocOp& op,
                                                 Device& device) {
  if (op.file->offset > INT64_MAX) {
    return InvalidArgument("handle ", op.handle, ": a file offset of ", op.file->offset);
  }
  const auto offset = static_cast<int64_t>(op.file->offset);
  const auto bytes = static_cast<int64_t>(op.bytes);
  Tenant& tenant = turn.tenant();
  TG_RETURN_IF_ERROR(tenant.MayUse(device, op.file->mode != OpenMode::kRead));
  std::optional<Reservation> growth;  // for good, once the file is made
  if (op.file->mode == OpenMode::kCreate && bytes <= INT64_MAX - offset) {
    TG_ASSIGN_OR_RETURN(
        growth, Reservation::Take(tenant.accounts.shared(Quota::kDiskBytes), offset + bytes));
  }
  TG_ASSIGN_OR_RETURN(auto memory, device.Open(op.file->path, offset, bytes, op.file->mode));
  if (growth) growth->Keep();
  return memory;
}

class AllocAction final : public Action {
 public:
  explicit AllocAction(AllocOp op) : op_(std::move(op)) {}

  Step Do(Turn& turn) override {
    if (!turn.long_work() && (op_.bytes > kQuickAllocBytes || op_.file || MayAsk(turn, op_))) {
      return Step::kNeedsWorker;
    }
    Handles& handles = turn.handles();
    if (absl::Status status = handles.CheckNew(op_.handle); !status.ok()) return turn.Fail(status);
    auto buffer = NewBuffer(turn, op_);
    if (!buffer.ok()) {
      handles.AddPoisoned(op_.handle, buffer.status());
      return turn.Fail(buffer.status());
    }
    handles.Add(op_.handle, *std::move(buffer));
    return Step::kDone;
  }

  Step Refuse(Turn& turn, const absl::Status& error) override {
    if (turn.handles().CheckNew(op_.handle).ok()) turn.handles().AddPoisoned(op_.handle, error);
    return turn.Fail(error);
  }

 private:
  const AllocOp op_;
};

}  // namespace

std::unique_ptr<Action> MakeAction(AllocOp op) {
  return std::make_unique<AllocAction>(std::move(op));
}

absl::StatusOr<std::unique_ptr<Buffer>> NewBuffer(const Turn& turn, const AllocOp& op) {
  const Environment& env = turn.env();
  Tenant& tenant = turn.tenant();
  TG_RETURN_IF_ERROR(turn.handles().CheckRoom(op.handle, op.bytes));
  TG_ASSIGN_OR_RETURN(
      Reservation paid,
      Reservation::Take(tenant.accounts.shared(Quota::kHostMemory), Handles::kHandleBytes));
  Device* device = nullptr;
  if (op.device.empty()) {
    TG_ASSIGN_OR_RETURN(device, SessionDevice(turn, static_cast<int64_t>(op.bytes)));
  } else {
    TG_ASSIGN_OR_RETURN(device, env.devices->Find(op.device));
    device = tenant.View(*device);
  }
  TG_RETURN_IF_ERROR(device->Health());
  TG_RETURN_IF_ERROR(env.devices->CheckTakesWork(*device));
  const auto bytes = static_cast<int64_t>(op.bytes);
  std::shared_ptr<Memory> memory;
  if (op.file) {
    TG_ASSIGN_OR_RETURN(memory, OpenFile(turn, op, *device));
  } else {
    TG_RETURN_IF_ERROR(tenant.MayUse(*device, /*write=*/true));
    TG_ASSIGN_OR_RETURN(memory, tenant.Alloc(*device, std::max<int64_t>(bytes, 1)));
  }
  auto buffer = std::make_unique<Buffer>(std::move(memory), bytes, device, env.metrics);
  buffer->Pay(std::move(paid));
  return buffer;
}

}  // namespace telegrad
