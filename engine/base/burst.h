// What a thread puts off while it handles several events that are there at once, because it is
// cheaper once after all of them than after each: to send what the events have left to be sent.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/container/inlined_vector.h"

namespace telegrad {

class Burst {
 public:
  // What is put off.
  class Part {
   public:
    virtual ~Part() = default;
    // On the thread that has put it off.
    virtual void EndOfBurst() = 0;
  };

  // From here on this thread puts off. No other burst of the thread is open.
  Burst();
  ~Burst();
  Burst(const Burst&) = delete;
  Burst& operator=(const Burst&) = delete;

  // Whether something is put off, and has not been for too long.
  bool MayGoOn() const;

  // Once, however often it is put off. False if this thread is in no burst: then it is for the
  // caller to do at once.
  static bool PutOff(std::shared_ptr<Part> part);
  // The same, but that it is done before those, and may put them off.
  static bool PutOffFirst(std::shared_ptr<Part> part);
  // Does what this thread has put off, before it waits for somebody who may wait for that.
  static void Flush();

 private:
  // In their order. Few, so that a burst of one event allocates nothing.
  class Parts {
   public:
    bool empty() const { return next_ == parts_.size(); }
    void Add(std::shared_ptr<Part> part);  // unless it is among them
    std::shared_ptr<Part> Take();          // the first

   private:
    absl::InlinedVector<std::shared_ptr<Part>, 8> parts_;
    size_t next_ = 0;
  };
  void Begin();
  static void Do(Parts& parts, bool& ending);

  Parts first_, parts_;
  bool first_ending_ = false, ending_ = false;
  int64_t since_ns_ = 0;  // the first of them was put off
};

}  // namespace telegrad
