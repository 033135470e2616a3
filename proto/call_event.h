// What a completion queue of gRPC tells the thread that looks at it. Servers and clients have the
// same kind, so that one thread can hear of calls that are received and of calls that are made.
#pragma once

namespace telegrad {

class CallEvent {
 public:
  virtual ~CallEvent() = default;
  // `ok` as CompletionQueue::Next has it. The event may be gone when this returns.
  virtual void Happened(bool ok) = 0;

  // What gRPC is given for the event, and gives back.
  void* tag() { return this; }
  static CallEvent* Of(void* tag) { return static_cast<CallEvent*>(tag); }
};

}  // namespace telegrad
