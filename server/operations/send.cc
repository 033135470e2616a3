// Like a download: it holds its buffer from its turn on, sends once what writes the buffer has
// ended, and only what writes the buffer waits for it.
#include "server/operations/send.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/net/proof.h"
#include "server/data/download.h"
#include "server/data/peers.h"
#include "server/session/turn.h"

namespace telegrad {
namespace {

class SendAction final : public Action {
 public:
  explicit SendAction(SendOp op) : op_(std::move(op)) {}

  void Arrive(const Arrival& arrival) override {
    cancellation_ = std::make_shared<Cancellation>(arrival.session, arrival.env.clock, INT64_MAX);
  }
  std::shared_ptr<Cancellation> cancellation() const override { return cancellation_; }
  Step Do(Turn& turn) override;

 private:
  absl::Status Check(const Turn& turn) const;

  SendOp op_;
  std::shared_ptr<Cancellation> cancellation_;
};

absl::Status SendAction::Check(const Turn& turn) const {
  if (turn.env().peers == nullptr) return Unimplemented("this server sends to no others");
  TG_RETURN_IF_ERROR(turn.env().peers->CheckAllowed(op_.address));
  if (op_.identity.size() != kIdentityBytes || op_.secret.size() != kSecretBytes) {
    return InvalidArgument("send of handle ", op_.handle, ": a ticket of ", op_.identity.size(),
                           " and ", op_.secret.size(), " bytes, expected ", kIdentityBytes, " and ",
                           kSecretBytes);
  }
  return absl::OkStatus();
}

Step SendAction::Do(Turn& turn) {
  if (const absl::Status status = Check(turn); !status.ok()) return turn.Fail(status);
  const auto found = turn.handles().Find(op_.handle);
  if (!found.ok()) return turn.Fail(found.status());
  Buffer& buffer = **found;
  if (!buffer.Poison().ok()) return turn.Fail(buffer.Poison());
  const auto size = static_cast<uint64_t>(buffer.bytes());
  if (op_.bytes == 0 || op_.offset > size || op_.bytes > size - op_.offset) {
    return turn.Fail(InvalidArgument("send of handle ", op_.handle, ": ", op_.bytes, " bytes at ",
                                     op_.offset, " are not inside of its ", size));
  }
  const absl::Status taken = turn.tenant().TakeTransfer(op_.bytes, turn.env().clock->Ns());
  if (!taken.ok()) return turn.Fail(taken);
  auto held = std::make_shared<HeldRead>(buffer.memory());
  buffer.ReadUntil(held);
  PeerSend::Request request{.address = std::move(op_.address),
                            .transfer = op_.transfer,
                            .ticket = {std::move(op_.identity), std::move(op_.secret)},
                            .tls = op_.tls,
                            .bytes = std::make_shared<const Download>(
                                std::move(held), op_.offset, op_.bytes, buffer.device(),
                                turn.queues(), turn.tenant().accounts.shared(Quota::kHostStaging)),
                            .cancellation = cancellation_,
                            .done = [answer = turn.Later(/*quiet=*/false, cancellation_)](
                                        const absl::Status& status) { answer.Give(status); }};
  auto send = [request = std::move(request), peers = turn.env().peers,
               session = turn.queues()](const absl::Status& status) mutable {
    if (status.ok()) return peers->Send(std::move(request), session);
    request.bytes.reset();
    request.done(status);
  };
  const TimelinePoint written = buffer.last_write();
  if (IsReached(written)) {
    send(absl::OkStatus());  // else Poison has said so
  } else {
    written.timeline->OnReached(written.value, std::move(send));
  }
  return Step::kDone;
}

}  // namespace

std::unique_ptr<Action> MakeAction(SendOp op) {
  return std::make_unique<SendAction>(std::move(op));
}

}  // namespace telegrad
