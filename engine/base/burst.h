// What a thread puts off while it handles several events that are there at once, because it is
// cheaper once after all of them than after each: to send what the events have left to be sent.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

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
  // Does what this thread has put off, before it waits for somebody who may wait for that.
  static void Flush();

 private:
  std::deque<std::shared_ptr<Part>> parts_;
  bool ending_ = false;
  int64_t since_ns_ = 0;  // the first of them was put off
};

}  // namespace telegrad
