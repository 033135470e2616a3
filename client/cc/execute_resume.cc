// How an ExecuteStream opens its session and keeps a resumable one. A thread, the keeper, renews
// the lease, asks which operations the server has accepted when many messages are kept for
// repetition, and replaces a broken call. It stops at the end of the grace period, when the server
// has closed the session.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/time.h"
#include "client/cc/execute_stream.h"
#include "engine/base/status.h"
#include "telegrad/v1/session.grpc.pb.h"

namespace telegrad {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kOpenId = 1;
// Pause between attempts to resume, the first and the longest; half of it is random.
constexpr milliseconds kFirstPause{10}, kLongestPause{1000};
// Time limit of the call that closes a session whose stream cannot.
constexpr milliseconds kCloseTime{1000};
// Moves to a bulk socket, one after the other, on which no operation was answered, before the
// session stays with calls.
constexpr int kMovesInVain = 3;

// The network's doing, not the server's answer.
bool IsOfTheConnection(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsInternal(status) ||
         absl::IsUnknown(status);
}

}  // namespace

void ExecuteStream::PrepareOpen() {
  open_sent_ = true;
  v1::ExecuteRequest request;
  request.set_op_id(kOpenId);
  request.set_acknowledged(AcknowledgedLocked());
  v1::Open& open = *request.mutable_open();
  open.set_protocol(connection_.server().protocol);
  open.set_client(connection_.options().client);
  open.set_resumable(options_.resumable);
  open.set_lease_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.lease)));
  open.set_token(token_);
  open.set_epoch(epoch_);
  open.set_gathers(true);
  const grpc::Slice slice(request.SerializeAsString());
  outgoing_ = grpc::ByteBuffer(&slice, 1);
}

// Handles the answer to Open.
absl::Status ExecuteStream::Opened(const v1::OpenResult& result) {
  ticket_.Set(SessionTicket{result.token(), result.epoch()});
  if (!options_.resumable) return absl::OkStatus();
  if (result.token().empty()) return Internal("the server opened a session that cannot be resumed");
  std::vector<Sent> taken;  // goes without the lock
  MutexLock lock(mutex_);
  if (token_.empty()) {
    token_ = result.token();
    epoch_ = result.epoch();
    lease_ = milliseconds(result.lease_ms());
    grace_ = milliseconds(result.grace_ms());
  }
  open_ = true;
  moving_ = MayMoveLocked();
  attempts_ = 0;
  taken = TakenLocked(result.last_op_id());
  repeat_ = 0;
  keep_alive_at_ = steady_clock::now() + lease_ / 3;
  wake_.notify_all();
  return absl::OkStatus();
}

bool ExecuteStream::MayMoveLocked() const {
  // While it moves, nobody renews its lease.
  const bool lasts = lease_ > 3 * BulkSocketOpener::kMostForAttaching;
  return lasts && connection_.options().operation_sockets &&
         connection_.server().operation_sockets && !call_->is_socket() && !closing_ &&
         moves_ < kMovesInVain;
}

// Connects a bulk socket, and ends the call, in whose place that is resumed.
void ExecuteStream::Move() {
  ++moves_;
  const SessionTicket ticket{token_, epoch_};
  const auto opener = std::make_shared<BulkSocketOpener>();
  opener_ = opener;
  mutex_.unlock();
  absl::StatusOr<std::shared_ptr<ExecuteTransport>> socket = absl::UnknownError("");
  const auto opened =
      opener->Open(connection_, ticket, /*operations=*/true, [&](std::string token) {
        v1::TransferRequest request;
        request.mutable_attach()->set_token(std::move(token));
        request.mutable_attach()->set_epoch(ticket.epoch);
        return request;
      });
  if (opened.ok() && opened->answer.has_attached()) {
    socket = ExecuteOverSocket::Create(this, opened->socket);
  }
  mutex_.lock();
  opener_ = nullptr;
  const bool moves = socket.ok() && open_ && !closing_;
  if (moves) next_ = *std::move(socket);
  moving_ = moves;
  ExecuteTransport* const call = call_.get();  // which nobody else replaces
  mutex_.unlock();
  if (moves) {
    call->TryCancel();
  } else {
    socket = absl::UnknownError("");  // it goes without the lock
    Pump();
  }
  mutex_.lock();
}

// The messages up to this operation, which need not be sent again.
std::vector<ExecuteStream::Sent> ExecuteStream::TakenLocked(uint64_t id) {
  std::vector<Sent> taken;
  while (!sent_.empty() && sent_.front().id <= id) {
    sent_bytes_ -= sent_.front().bytes;
    taken.push_back(std::move(sent_.front()));
    sent_.pop_front();
    if (repeat_ > 0) --repeat_;
  }
  return taken;
}

// The operation up to which a message acknowledges answers.
uint64_t ExecuteStream::AcknowledgedLocked() {
  unacknowledged_ = 0;
  unacknowledged_bytes_ = 0;
  acknowledges_ = false;
  return received_;
}

void ExecuteStream::PrepareAcknowledgement() {
  v1::ExecuteRequest request;
  request.set_op_id(received_);
  request.set_acknowledged(AcknowledgedLocked());
  const grpc::Slice slice(request.SerializeAsString());
  outgoing_ = grpc::ByteBuffer(&slice, 1);
}

ExecuteStream::SteadyTime ExecuteStream::GiveUpAtLocked() const {
  return broken_at_ +
         (token_.empty() ? absl::ToChronoMilliseconds(connection_.options().timeout) : grace_);
}

// When to cancel a connection on which the session has not been opened. In place of a socket there
// is a call to be had.
ExecuteStream::SteadyTime ExecuteStream::OpenedByLocked() const {
  const SteadyTime last = GiveUpAtLocked();
  return call_->is_socket() ? std::min(last, moved_at_ + BulkSocketOpener::kMostForAttaching)
                            : last;
}

// Whether to make another call after one that ended with `why`; if not, says so there.
bool ExecuteStream::MayResumeLocked(absl::Status* why) {
  if (!options_.resumable || closing_ || !broken_.ok()) return false;
  // Where a socket is refused, a call may do.
  const bool refused_socket = call_->is_socket() && !open_;
  if (!refused_socket && !IsOfTheConnection(*why)) return false;
  const auto now = steady_clock::now();
  if (std::exchange(open_, false)) broken_at_ = now;
  if (now >= GiveUpAtLocked()) {
    *why = absl::UnavailableError(
        ToAbsl(StrCat("the session could not be resumed: ", ToStd(why->message()))));
    return false;
  }
  const int doublings = std::min(attempts_, 10);
  const milliseconds pause =
      attempts_ == 0 ? milliseconds(0) : std::min(kFirstPause * (1 << doublings), kLongestPause);
  std::uniform_real_distribution<> chance(0.5, 1.0);
  resume_at_ = now + std::chrono::duration_cast<steady_clock::duration>(pause * chance(random_));
  ++attempts_;
  return true;
}

void ExecuteStream::Keep() {
  ReleasableLock lock(mutex_);
  while (!closing_ && !done_) {
    const auto now = steady_clock::now();
    const SteadyTime next = call_done_ ? resume_at_ : open_ ? keep_alive_at_ : OpenedByLocked();
    if (call_done_ && !broken_.ok()) {
      const absl::Status why = broken_;
      lock.unlock();
      Finish(why);
      lock.lock();
    } else if (moving_ && open_ && next_ == nullptr) {
      Move();
    } else if (now < next) {
      wake_.wait_until(lock, next);
    } else if (call_done_) {
      Reopen();
    } else if (open_) {
      KeepAlive();
    } else {
      ExecuteTransport* const call = call_.get();  // which nobody else replaces
      if (call->is_socket()) moves_ = kMovesInVain;
      lock.unlock();
      call->TryCancel();
      lock.lock();
      while (!closing_ && !done_ && !call_done_ && !open_) wake_.wait(lock);
    }
  }
}

// The previous call is done: no other thread uses it, or starts a write until there is another
// call.
void ExecuteStream::Reopen() {
  std::shared_ptr<ExecuteTransport> call = std::exchange(next_, nullptr);
  mutex_.unlock();
  if (call == nullptr) {
    call = std::make_shared<ExecuteOverGrpc>(this, connection_, /*resumable=*/true,
                                             /*wait_for_ready=*/true);
  }
  ExecuteTransport* const next = call.get();
  mutex_.lock();
  call_.swap(call);
  moving_ = false;
  moved_at_ = steady_clock::now();
  open_sent_ = call_ended_ = released_ = call_done_ = false;
  writing_ = true;  // nobody writes before it has started
  held_ = 0;
  mutex_.unlock();
  incoming_.Clear();
  outgoing_.Clear();  // perhaps with the caller's memory
  call.reset();
  next->Start();
  next->Read(&incoming_);
  mutex_.lock();
  writing_ = false;
  mutex_.unlock();
  Pump();
  mutex_.lock();
}

void ExecuteStream::KeepAlive() {
  v1::KeepAliveRequest request;
  v1::KeepAliveResponse response;
  request.set_token(token_);
  request.set_epoch(epoch_);
  grpc::ClientContext context;
  connection_.Authorize(&context).IgnoreError();  // the server's refusal says enough
  context.set_deadline(std::chrono::system_clock::now() + lease_ / 3);
  unary_ = &context;
  mutex_.unlock();
  const grpc::Status status =
      v1::Session::NewStub(connection_.channel())->KeepAlive(&context, request, &response);
  std::vector<Sent> taken;
  mutex_.lock();
  unary_ = nullptr;
  // Where it failed the connection is broken, or the session has ended: the stream will say so.
  if (status.ok()) taken = TakenLocked(response.last_op_id());
  const bool much = sent_bytes_ >= kMaxSentBytes / 2;
  keep_alive_at_ = steady_clock::now() + (much ? milliseconds(2) : lease_ / 3);
  // While nothing is sent, the server would keep the last answers for as long as the session lives.
  acknowledges_ |= unacknowledged_ > 0;
  mutex_.unlock();
  taken.clear();
  Pump();
  mutex_.lock();
}

// Closes the session by a call of its own, where the stream could not end in order.
void ExecuteStream::CloseSession() {
  v1::CloseRequest request;
  v1::CloseResponse response;
  {
    const MutexLock lock(mutex_);
    if (token_.empty()) return;
    request.set_token(token_);
    request.set_epoch(epoch_);
  }
  grpc::ClientContext context;
  connection_.Authorize(&context).IgnoreError();  // the server's refusal says enough
  context.set_deadline(std::chrono::system_clock::now() + kCloseTime);
  // If it does not arrive, the session ends with its grace period.
  (void)v1::Session::NewStub(connection_.channel())->Close(&context, request, &response);
}

}  // namespace telegrad
