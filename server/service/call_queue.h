// The calls of one gRPC server, as its completion queue reports them to a few threads: a call
// arrives, a message has come or was sent, a call is over. Every call gets a RawStream as its
// handler.
//
// gRPC's own callbacks would do as well, but hand the end of each call to another thread, and
// waking that costs as much as a small answer.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "server/service/late_reads.h"
#include "server/service/raw_stream.h"

namespace telegrad {

class CallQueue {
 public:
  // A handler, which owns itself until OnOver. The context stays until then.
  using Open = std::function<RawStream*(grpc::GenericServerContext*)>;

  // Before the server is built. What `open` uses outlives the queue.
  CallQueue(grpc::ServerBuilder* builder, Open open);
  ~CallQueue() { Stop(); }

  // Once the server is there: takes calls.
  void Start();
  // Once the server is shut down: waits for the handlers of all calls, and ends the threads. May be
  // called again.
  void Stop();

  // Calls that this process makes may use it, too, with a CallEvent as their tag; all of them are
  // over before Stop.
  grpc::CompletionQueue* queue() { return queue_.get(); }

 private:
  class Call;
  void Expect();
  bool Await(LateReads& late, void** event, bool* ok);
  void Run();
  void Forget();

  const Open open_;
  grpc::AsyncGenericService service_;
  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::vector<std::thread> threads_;
  Mutex mutex_;
  ConditionVariable none_;
  int calls_ TG_GUARDED_BY(mutex_) = 0;  // those that are yet to arrive, too
  bool stopped_ TG_GUARDED_BY(mutex_) = false;
};

}  // namespace telegrad
