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

// One that calls a member function of a call, which outlives it.
template <typename Call>
class EventOf final : public CallEvent {
 public:
  EventOf(Call* call, void (Call::*happened)(bool ok)) : call_(call), happened_(happened) {}
  void Happened(bool ok) override { (call_->*happened_)(ok); }

 private:
  Call* const call_;
  void (Call::* const happened_)(bool ok);
};

}  // namespace telegrad
