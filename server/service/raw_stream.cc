// A handler may start something while it is being made, before the router has told the stream all
// that it is to know. That is kept until the stream is bound, so that no reaction comes before.
#include "server/service/raw_stream.h"

namespace telegrad {

template <typename Do>
void RawStream::Start(Do op) {
  StreamTransport* transport = transport_.load(std::memory_order_acquire);
  if (transport != nullptr) return op(*transport);
  {
    const MutexLock lock(binding_);
    transport = transport_.load(std::memory_order_relaxed);
    if (transport == nullptr) {
      early_.push_back(std::move(op));
      return;
    }
  }
  op(*transport);  // without the mutex: with what ends the call, this may be gone before it returns
}

void RawStream::Bind(StreamTransport* transport) {
  const MutexLock lock(binding_);
  for (const Op& op : early_) op(*transport);
  early_.clear();
  transport_.store(transport, std::memory_order_release);
}

void RawStream::StartRead(grpc::ByteBuffer* message) {
  Start([message](StreamTransport& transport) { transport.Read(message); });
}

void RawStream::StartWrite(const grpc::ByteBuffer* message, const grpc::WriteOptions& options) {
  Start([message, options](StreamTransport& transport) { transport.Write(*message, options); });
}

// A stream that has no transport yet has nobody to whom it could be sent now.
bool RawStream::WriteNow(const grpc::ByteBuffer* message, const grpc::WriteOptions& options) {
  StreamTransport* const transport = transport_.load(std::memory_order_acquire);
  if (transport != nullptr) return transport->WriteNow(*message, options);
  StartWrite(message, options);
  return false;
}

void RawStream::StartWriteAndFinish(const grpc::ByteBuffer* message,
                                    const grpc::WriteOptions& options, const grpc::Status& status) {
  Start([message, options, status](StreamTransport& transport) {
    transport.WriteAndFinish(*message, options, status);
  });
}

void RawStream::Finish(const grpc::Status& status) {
  Start([status](StreamTransport& transport) { transport.Finish(status); });
}

void RawStream::OnDone() {
  if (times_ != nullptr) times_->Observe(Clock::Steady()->Ns() - began_ns_);
  if (row_ != nullptr) row_->Leave();
  place_ = Reservation();
  OnOver();
}

}  // namespace telegrad
