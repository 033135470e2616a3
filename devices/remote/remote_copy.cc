// A copy has succeeded when the receiving server has all bytes, whatever the sending one says. If
// one half fails, the other is cancelled. The failure of the copy is the receiving server's, unless
// that was cancelled: then it is the first one.
#include "devices/remote/remote_copy.h"

#include <utility>
#include <vector>

#include "devices/remote/remote_items.h"
#include "devices/remote/remote_peers.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// Of a half whose session is over: that. What the session says then of what was under way differs
// with how it ended, and who ended it.
absl::Status Of(const RemoteCopy::End& end, const absl::Status& status) {
  if (status.ok()) return status;
  RemoteLink& link = *end.link;
  if (absl::Status lost = link.LostSession(end.generation); !lost.ok()) return lost;
  return absl::Status(status.code(), StrCat(link.name(), ": ", Reason(status)));
}

}  // namespace

void RemoteCopy::Start() {
  std::string key;
  absl::Status status = from_.link->WithSession(from_.generation, [&](RemoteSession& session) {
    key = session.connection().server().peer_key;
  });
  const Future<PeerTicket> admitted;
  if (status.ok()) {
    status = to_.link->WithSession(to_.generation, [&](RemoteSession& session) {
      session.AdmitPeerTold(key, bytes_, to_.link->grace(), admitted);
    });
  }
  if (!status.ok()) return Ended(status);
  admitted.Then([self = shared_from_this()](const absl::StatusOr<PeerTicket>& ticket) {
    RemoteLink::Later([self, ticket] { self->Admitted(ticket); });
  });
}

void RemoteCopy::Admitted(const absl::StatusOr<PeerTicket>& ticket) {
  if (absl::IsDeadlineExceeded(ticket.status())) {
    to_.link->LoseSession(to_.generation,
                          absl::UnavailableError("the server has not answered a request for a "
                                                 "ticket within the time that it has"));
    return Ended(to_.link->WithSession(to_.generation, [](RemoteSession&) {}));
  }
  if (!ticket.ok()) return Ended(Of(to_, ticket.status()));
  to_.link->peers()->InOrder(
      [self = shared_from_this(), ticket = *ticket] { self->PostBoth(ticket); });
}

void RemoteCopy::PostBoth(const PeerTicket& ticket) {
  bool cancelled;
  {
    const MutexLock lock(mutex_);
    cancelled = ended_;
    begun_ = !cancelled;
  }
  if (cancelled) {  // into no buffer: it fails, and the transfer ends
    return to_.link->PostTo(to_.generation, Future<Done>(), [ticket](RemoteSession& session) {
      session.ReceiveTold(0, 0, 0, ticket.transfer, Future<Done>());
    });
  }
  const Future<Done> sent, received;
  const auto self = shared_from_this();
  sent.Then([self](const absl::StatusOr<Done>& done) {
    RemoteLink::Later(
        [self, status = done.status()] { self->HalfEnded(self->send_, Of(self->from_, status)); });
  });
  received.Then([self](const absl::StatusOr<Done>& done) {
    RemoteLink::Later(
        [self, status = done.status()] { self->HalfEnded(self->receive_, Of(self->to_, status)); });
  });
  std::string address;
  (void)to_.link->WithSession(to_.generation, [&](RemoteSession& session) {
    address = session.connection().server().bulk_address;
  });
  from_.link->PostTo(from_.generation, sent, [self, ticket, address, sent](RemoteSession& session) {
    self->send_.operation = session.NextOperation();
    session.SendTold(self->from_.handle, self->from_.offset, self->bytes_, address, ticket, sent);
  });
  to_.link->PostTo(to_.generation, received, [self, ticket, received](RemoteSession& session) {
    self->receive_.operation = session.NextOperation();
    session.ReceiveTold(self->to_.handle, self->to_.offset, self->bytes_, ticket.transfer,
                        received);
  });
  Posted();
  bool failed;
  {
    const MutexLock lock(mutex_);
    failed = !why_.ok();
  }
  if (!failed) return;
  CancelHalf(from_, send_);  // it failed before there was anything to be cancelled
  CancelHalf(to_, receive_);
}

void RemoteCopy::Posted() {
  posted_ = true;
  std::function<void()> posted;
  {
    const MutexLock lock(mutex_);
    posted.swap(on_posted_);
  }
  if (posted) posted();
}

void RemoteCopy::Ended(const absl::Status& status) {
  std::function<void(const absl::Status&)> ended;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(ended_, true)) return;
    ended.swap(on_ended_);
  }
  ended(status);
  Posted();
}

void RemoteCopy::HalfEnded(Half& half, const absl::Status& status) {
  const Half& other = &half == &send_ ? receive_ : send_;
  std::function<void(const absl::Status&)> ended;
  absl::Status result;
  {
    const MutexLock lock(mutex_);
    if (half.ended) return;  // nobody waits for an answer this late
    half.ended = true;
    half.status = status;
    if (why_.ok()) why_ = status;
    if (other.ended) {
      ended_ = true;
      ended.swap(on_ended_);
      const bool of_receiver = receive_.status.ok() || !absl::IsCancelled(receive_.status);
      result = of_receiver ? receive_.status : why_;
    }
  }
  if (ended) return ended(result);
  if (!status.ok()) CancelHalf(&half == &send_ ? to_ : from_, other);
}

void RemoteCopy::Cancel(const absl::Status& why) {
  std::function<void(const absl::Status&)> ended;
  {
    const MutexLock lock(mutex_);
    if (ended_) return;
    if (why_.ok()) why_ = why;
    // In one step, for PostBoth may begin at any time.
    ended_ = !begun_;
    if (ended_) ended.swap(on_ended_);
  }
  if (ended) {
    ended(why);
    return Posted();
  }
  CancelHalf(from_, send_);
  CancelHalf(to_, receive_);
}

void RemoteCopy::Look() {
  std::vector<std::pair<Half*, const End*>> silent;
  {
    const MutexLock lock(mutex_);
    if (ended_ || cancelled_ns_ == 0) return;
    const int64_t waited = SteadyNs() - cancelled_ns_;
    for (const auto& [half, end] : {std::pair(&send_, &from_), std::pair(&receive_, &to_)}) {
      if (!half->ended && waited > absl::ToInt64Nanoseconds(end->link->grace())) {
        silent.emplace_back(half, end);
      }
    }
  }
  for (const auto& [half, end] : silent) {
    HalfEnded(*half, Of(*end, absl::UnavailableError("the server has not ended a copy that was "
                                                     "cancelled within the time that it has to "
                                                     "answer")));
  }
}

// Behind the operation, where it has not been sent yet. If it was not posted either, PostBoth
// cancels it.
void RemoteCopy::CancelHalf(const End& end, const Half& half) {
  {
    const MutexLock lock(mutex_);
    if (cancelled_ns_ == 0) cancelled_ns_ = SteadyNs();
  }
  end.link->PostTo(end.generation, Future<Done>(),
                   [self = shared_from_this(), &half](RemoteSession& session) {
                     const uint64_t operation = half.operation;
                     if (operation != 0) session.Cancel(operation, operation);
                   });
}

}  // namespace telegrad
