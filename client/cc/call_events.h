// Where the streams of sessions hear what has happened to them: a completion queue of the process,
// with a few threads, or one that a server of the process lends.
//
// gRPC has one thread at a time poll the sockets of all queues, and wakes the next one whenever
// that thread has got an event. A front, whose every operation is an event of its server and one of
// its client, would wake a thread for each of them; with one queue for both, a thread goes on by
// itself.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "grpcpp/grpcpp.h"

namespace telegrad {

class CallEvents {
 public:
  // The use of a queue by one call, from before the call starts until all of it was told.
  class Use {
   public:
    // The lent queue, if there is one and `cancel` may be called at any time to end the call, after
    // which it is not made on that queue again; else the process's own. No thread of the lent queue
    // may wait for such a call.
    static Use OfAny(std::function<void()> cancel);
    static Use OfOwn();
    ~Use();
    Use(Use&& other) noexcept;
    Use& operator=(Use&&) = delete;
    grpc::CompletionQueue* queue() const { return queue_; }

   private:
    Use() = default;
    grpc::CompletionQueue* queue_ = nullptr;
    std::shared_ptr<CallEvents> own_;  // null: it is the lent one's
    std::list<std::function<void()>>::iterator lent_;
  };

  // The process's own queue, which is there as long as a call uses it: its threads would poll, too.
  static std::shared_ptr<CallEvents> Own();
  ~CallEvents();

  // Calls use it from now on. Its threads call CallEvent::Happened.
  static void Lend(grpc::CompletionQueue* queue);
  // Cancels the calls that use it, and waits until it is used no more. Does nothing if none is
  // lent.
  static void TakeBack();

 private:
  CallEvents();

  const std::shared_ptr<grpc::CompletionQueue> queue_ = std::make_shared<grpc::CompletionQueue>();
  std::vector<std::thread> threads_;
};

}  // namespace telegrad
