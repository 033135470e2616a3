// telegrad.v1.Compute: every Execute stream opens or resumes a session.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string_view>

#include "engine/base/account.h"
#include "engine/net/stream_socket.h"
#include "server/service/call_watch.h"
#include "server/service/execute_call.h"
#include "server/service/open_calls.h"
#include "server/service/router.h"
#include "server/session/session_registry.h"

namespace telegrad {

class ComputeService {
 public:
  // `watch` looks at the streams on sockets, as the router has it look at those of gRPC.
  // `message_bytes`: that all those on sockets together may have of messages that are arriving.
  ComputeService(const Environment& env, SessionRegistry& registry, CallWatch* watch,
                 int64_t message_bytes)
      : env_(env),
        registry_(registry),
        watch_(watch),
        messages_(std::make_shared<Account>("memory for messages on bulk sockets", message_bytes,
                                            "raise --grpc-memory")) {}

  RawStream* Execute(grpc::ServerContextBase* context, Caller caller);
  // Serves a stream of this caller on a bulk socket until it is over, on the calling thread.
  // Returns why it was not served, or why the connection broke.
  absl::Status ExecuteOn(const std::shared_ptr<StreamSocket>& socket, Caller caller);

  // Lets every session complete its operations and accept no more.
  void Drain();
  // Waits until no stream is left, or it is that late; those of gRPC and those on sockets.
  void AwaitNone(std::chrono::system_clock::time_point deadline) { calls_.AwaitNone(deadline); }
  // Ends every stream now, and AwaitNone: a stream whose client does not read what is being sent
  // goes with its connection.
  void EndAll();

 private:
  RawStream* Start(Caller caller, std::string_view traceparent);

  const Environment& env_;
  SessionRegistry& registry_;
  CallWatch* const watch_;
  const std::shared_ptr<Account> messages_;
  OpenCalls<ExecuteCall> calls_;
  std::atomic<bool> draining_ = false;
};

}  // namespace telegrad
