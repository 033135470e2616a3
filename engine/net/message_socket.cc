#include "engine/net/message_socket.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "engine/base/byte_codec.h"
#include "engine/base/status.h"
#include "engine/base/thread.h"

namespace telegrad {
namespace {

constexpr size_t kLengths = 8;
// Longer messages are left to the thread, which need not copy them.
constexpr size_t kCopiedBytes = 64 << 10;
// Memory for a message is taken as its bytes arrive, in parts of this size.
constexpr size_t kPartBytes = 256 << 10;
// That a peer has to end the connection after a farewell.
constexpr std::chrono::seconds kFarewellTime{1};

std::string Lengths(size_t message, size_t farewell) {
  ByteWriter out;
  out.Word(static_cast<uint32_t>(message));
  out.Word(static_cast<uint32_t>(farewell));
  return out.Take();
}

size_t BytesIn(const MessageSocket::Pieces& pieces) {
  size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  return bytes;
}

std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

MessageSocket::MessageSocket(std::shared_ptr<StreamSocket> socket, size_t most_bytes,
                             std::function<void(bool ok)> sent, std::shared_ptr<Account> memory)
    : socket_(std::move(socket)),
      most_bytes_(most_bytes),
      sent_(std::move(sent)),
      memory_(std::move(memory)) {}

MessageSocket::~MessageSocket() {
  Shutdown();
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

absl::Status MessageSocket::Start() {
  TG_ASSIGN_OR_RETURN(thread_, StartThread([this] { SendRest(); }));
  return absl::OkStatus();
}

absl::Status MessageSocket::Fill() {
  std::memmove(arrived_.data(), arrived_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  TG_ASSIGN_OR_RETURN(const size_t n, socket_->ReceiveSome(std::span(arrived_).subspan(end_)));
  end_ += n;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> MessageSocket::Receive() {
  while (end_ - begin_ < kLengths) TG_RETURN_IF_ERROR(Fill());
  ByteReader lengths({reinterpret_cast<const char*>(arrived_.data()) + begin_, kLengths});
  const auto bytes = lengths.Word<uint32_t>(), farewell = lengths.Word<uint32_t>();
  if (bytes > most_bytes_ || farewell > most_bytes_ || (bytes > 0 && farewell > 0)) {
    return InvalidArgument("a message of ", bytes, " bytes, or a farewell of ", farewell,
                           "; there may be ", most_bytes_);
  }
  begin_ += kLengths;
  const size_t all = bytes + farewell;
  const size_t here = std::min(all, end_ - begin_);
  std::string message(reinterpret_cast<const char*>(arrived_.data()) + begin_, here);
  begin_ += here;
  Reservation held;
  while (message.size() < all) {
    const size_t have = message.size(), part = std::min(all - have, kPartBytes);
    TG_ASSIGN_OR_RETURN(Reservation more, Reservation::Take(memory_, static_cast<int64_t>(part)));
    held.Add(std::move(more));
    message.resize(have + part);
    TG_RETURN_IF_ERROR(socket_->Receive(std::as_writable_bytes(std::span(message).subspan(have))));
  }
  if (bytes > 0) return message;
  farewell_ = std::move(message);
  return std::nullopt;
}

bool MessageSocket::has_more() const {
  if (end_ - begin_ < kLengths) return false;
  ByteReader lengths({reinterpret_cast<const char*>(arrived_.data()) + begin_, kLengths});
  const size_t bytes = lengths.Word<uint32_t>(), farewell = lengths.Word<uint32_t>();
  return bytes + farewell <= end_ - begin_ - kLengths;
}

bool MessageSocket::Send(Pieces pieces, bool more) {
  const size_t bytes = BytesIn(pieces);
  if (bytes > kCopiedBytes) {
    SendLater(std::move(pieces));
    return false;
  }
  copy_ = Lengths(bytes, 0);
  for (const auto& piece : pieces) {
    copy_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  // Where that fails, so will what is left.
  const absl::StatusOr<size_t> sent = socket_->SendSome(std::as_bytes(std::span(copy_)), more);
  if (sent.ok() && *sent == copy_.size()) return true;
  Leave({BytesOf(copy_).subspan(sent.ok() ? *sent : 0)});
  return false;
}

void MessageSocket::SendLater(Pieces pieces) {
  copy_ = Lengths(BytesIn(pieces), 0);
  pieces.insert(pieces.begin(), BytesOf(copy_));
  Leave(std::move(pieces));
}

void MessageSocket::Leave(Pieces pieces) {
  {
    const MutexLock lock(mutex_);
    left_ = std::move(pieces);
  }
  changed_.notify_all();
}

void MessageSocket::End(std::string farewell) {
  {
    const MutexLock lock(mutex_);
    end_with_ = std::move(farewell);
  }
  changed_.notify_all();
}

void MessageSocket::AwaitEnd() {
  ReleasableLock lock(mutex_);
  while (!ended_) changed_.wait(lock);
}

absl::Status MessageSocket::SendLeft(const Pieces& left) {
  for (const auto& piece : left) TG_RETURN_IF_ERROR(socket_->Send(std::as_bytes(piece)));
  return absl::OkStatus();
}

void MessageSocket::SendRest() {
  ReleasableLock lock(mutex_);
  while (true) {
    while (!left_ && !end_with_ && !closing_) changed_.wait(lock);
    if (left_) {
      const Pieces left = *std::exchange(left_, std::nullopt);
      lock.unlock();
      const bool ok = SendLeft(left).ok();
      if (!ok) Shutdown();
      sent_(ok);
      lock.lock();
      continue;
    }
    if (!end_with_) return;
    const std::string farewell = *std::exchange(end_with_, std::nullopt);
    lock.unlock();
    const std::string lengths = Lengths(0, farewell.size());
    (void)SendLeft({BytesOf(lengths), BytesOf(farewell)});  // a broken connection needs none
    socket_->EndSending();
    lock.lock();
    ended_ = true;
    changed_.notify_all();
    const auto until = std::chrono::steady_clock::now() + kFarewellTime;
    while (!closing_ && changed_.wait_until(lock, until) != std::cv_status::timeout) {
    }
    lock.unlock();
    Shutdown();
    return;
  }
}

}  // namespace telegrad
