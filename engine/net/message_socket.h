// Messages on a stream socket, both ways and without waiting: whoever has a message sends it at
// once, as far as the system takes it, and a thread of this object sends what is left.
//
// A message is sent as its length and 0, 32 bits each, little-endian, and its bytes. The last that
// a side sends is its farewell: 0, its length, and its bytes. A connection that ends without one is
// broken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/account.h"
#include "engine/base/mutex.h"
#include "engine/net/stream_socket.h"

namespace telegrad {

class MessageSocket {
 public:
  using Pieces = std::vector<std::span<const uint8_t>>;

  // A message that is received has at most `most_bytes`. `sent` is told, on the thread of this
  // object, how a Send went that had something left. `memory`, unless null, is charged with what
  // has come of a long message until all of it has.
  MessageSocket(std::shared_ptr<StreamSocket> socket, size_t most_bytes,
                std::function<void(bool ok)> sent, std::shared_ptr<Account> memory = nullptr);
  // Ends the connection.
  ~MessageSocket();
  // Starts the thread, before all else. RESOURCE_EXHAUSTED where there is none.
  absl::Status Start();

  // The next message, however long it takes to come; nullopt: the peer has said farewell. By one
  // thread. UNAVAILABLE where the connection broke, INVALID_ARGUMENT for a message that is too
  // long, RESOURCE_EXHAUSTED where there is no memory for it.
  absl::StatusOr<std::optional<std::string>> Receive();
  // Whether Receive is known not to wait: all of the next message, a short one, has arrived.
  bool has_more() const;
  // Of the peer, when it has said it.
  const std::string& farewell() const { return farewell_; }

  // Sends a message, one at a time. True: it was sent. False: `sent` will be told, and what is
  // pointed to stays until then. `more`: another message follows at once.
  bool Send(Pieces pieces, bool more);
  // Has the thread send it, and `sent` told in any case.
  void SendLater(Pieces pieces);
  // Says farewell after all that was sent, and ends the connection when the peer has ended it, too,
  // or a second has passed. Returns at once; nothing is sent afterwards.
  void End(std::string farewell);
  // Waits until the farewell has been sent, or could not be.
  void AwaitEnd();
  // Ends the connection for both sides. From any thread.
  void Shutdown() { socket_->Shutdown(); }

 private:
  void SendRest();            // the thread
  void Leave(Pieces pieces);  // to the thread
  absl::Status SendLeft(const Pieces& left);
  absl::Status Fill();

  const std::shared_ptr<StreamSocket> socket_;
  const size_t most_bytes_;
  const std::function<void(bool)> sent_;
  const std::shared_ptr<Account> memory_;

  // Of the receiver.
  std::array<std::byte, 16 << 10> arrived_;
  size_t begin_ = 0, end_ = 0;  // of what was not taken yet
  std::string farewell_;

  std::string copy_;  // of the sender: the lengths, and a message that is short

  Mutex mutex_;
  ConditionVariable changed_;
  std::optional<Pieces> left_ TG_GUARDED_BY(mutex_);  // of the message at hand
  std::optional<std::string> end_with_ TG_GUARDED_BY(mutex_);
  bool ended_ TG_GUARDED_BY(mutex_) = false;  // the farewell was sent
  bool closing_ TG_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace telegrad
