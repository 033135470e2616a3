// Reads that the streams of a thread have put off for a moment, because an answer is about to be
// written. HTTP/2 has to tell the peer of a message that was taken that there is room for another
// one. In gRPC (1.51.1) that goes out with what is written next, but once a read begins, at once
// and by itself: a packet more for each message. So a read that begins behind the answer is
// cheaper; but it may not wait for an answer that takes long.
//
// A thread that has an object of this class looks after what it has put off.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

namespace telegrad {

class LateReads {
 public:
  class Reader {
   public:
    virtual ~Reader() = default;
    // Whether the read that was put off until then has not begun.
    virtual bool IsLate(int64_t until_ns) const = 0;
    // Begins it, unless it has begun. On the thread that has put it off.
    virtual void ReadNow(int64_t until_ns) = 0;
  };

  LateReads();
  ~LateReads();
  LateReads(const LateReads&) = delete;
  LateReads& operator=(const LateReads&) = delete;

  // Puts a read off until that time of Clock::Steady, which is not before that of another one.
  // False if nobody on this thread looks after it: then it is for the caller to begin it at once.
  static bool PutOff(std::weak_ptr<Reader> reader, int64_t until_ns);

  // When the first one is to begin that has not begun; INT64_MAX: there is none.
  int64_t FirstNs();
  // Begins those whose time has come.
  void Begin(int64_t now_ns);

 private:
  struct Late {
    std::weak_ptr<Reader> reader;
    int64_t until_ns;
  };
  std::deque<Late> late_;
};

}  // namespace telegrad
