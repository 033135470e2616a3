// The handler may call from any thread; its reactions are called by the one that runs the call. It
// may have one read and one write under way, and nothing after Finish: anything else is a finding.
#include "tests/fuzz/service_peer.h"

#include "tests/fuzz/fuzz.h"

namespace telegrad::fuzz {

void ServicePeer::Finish(const grpc::Status& status) {
  std::lock_guard lock(mutex_);
  FUZZ_CHECK(!finished_);
  finished_ = true;
  status_ = status;
  changed_.notify_all();
}

void ServicePeer::Read(grpc::ByteBuffer* message) {
  std::lock_guard lock(mutex_);
  FUZZ_CHECK(reading_ == nullptr);
  reading_ = message;
  changed_.notify_all();
}

void ServicePeer::Write(const grpc::ByteBuffer& message, const grpc::WriteOptions&) {
  std::lock_guard lock(mutex_);
  FUZZ_CHECK(!writing_ && !finished_);
  FUZZ_CHECK(message.Valid());
  writing_ = true;
  ++written_;
  changed_.notify_all();
}

void ServicePeer::WriteAndFinish(const grpc::ByteBuffer& message, const grpc::WriteOptions&,
                                 const grpc::Status& status) {
  {
    std::lock_guard lock(mutex_);
    FUZZ_CHECK(!writing_ && !finished_);
    FUZZ_CHECK(message.Valid());
    ++written_;
  }
  Finish(status);
}

void ServicePeer::DeliverRead(std::unique_lock<std::mutex>& lock) {
  grpc::ByteBuffer* const to = std::exchange(reading_, nullptr);
  const bool ok = !messages_.empty() && !cancelled_ && !finished_;
  if (ok) {
    *to = std::move(messages_.front());
    messages_.pop_front();
  }
  lock.unlock();
  handler_->OnReadDone(ok);
  lock.lock();
}

grpc::Status ServicePeer::Run(RawStream* handler) {
  handler_ = handler;
  handler->Bind(this);
  std::unique_lock lock(mutex_);
  while (true) {
    const auto leaves = [this] {
      return cancels_ && !cancelled_ && !finished_ && (messages_.empty() || reading_ == nullptr);
    };
    changed_.wait(lock, [&] { return reading_ != nullptr || writing_ || finished_ || leaves(); });
    if (writing_) {
      writing_ = false;
      const bool ok = !cancelled_;
      lock.unlock();
      handler_->OnWriteDone(ok);
      lock.lock();
    } else if (leaves()) {
      cancelled_ = true;
      lock.unlock();
      handler_->OnCancel();
      lock.lock();
    } else if (reading_ != nullptr) {
      DeliverRead(lock);
    } else {
      break;  // finished, and nothing is under way
    }
  }
  lock.unlock();
  handler_->OnDone();  // the handler is gone after this
  return status_;
}

}  // namespace telegrad::fuzz
