// Marks on the stream of a queue, and how the host sees that the GPU has passed them: by a word of
// its memory that the stream writes behind each, where the driver can do that. One look at the word
// tells of all marks before it and asks nothing of the driver. Each mark has an event, too, for
// other streams that wait for it: a driver does not know what a wait for a word is waiting for, and
// may order the streams so that it never ends. Where the word is not written, as by a driver
// without such writes, or after a fault, the event tells.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "devices/stream/context.h"

namespace telegrad::stream {

struct Mark {
  EventHandle event = nullptr;  // null: it stands for all that is on the stream
  uint64_t word = 0;            // what the word is from there on; 0: only the event tells
};

class Marks {
 public:
  // `words`: whether the driver writes them. Without memory for a word there are events alone.
  Marks(std::shared_ptr<Context> context, bool words);
  // When the stream has ended.
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // Records the mark, whose event is given, behind all that is on the stream, which is always the
  // same; an error if it is not. In the current context. One thread at a time.
  absl::Status Put(Mark* mark, StreamHandle stream);
  // Whether the word tells that the GPU has passed it. Any thread.
  bool Shows(const Mark& mark) const { return mark.word != 0 && Look() >= mark.word; }

 private:
  uint64_t Look() const;

  const std::shared_ptr<Context> context_;
  uint64_t* word_ = nullptr;  // null: there is none
  Address address_ = 0;       // of it, for the GPU
  uint64_t last_ = 0;         // that was put
  bool writes_ = true;        // until the driver refuses it
};

}  // namespace telegrad::stream
