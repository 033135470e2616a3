// The pauses before the starts of a process that ends again and again at once: soon after its start
// and without having ended any work. The first that does is replaced without a pause.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "engine/base/strings.h"

namespace telegrad {

inline constexpr absl::Duration kShortWorkerLife = absl::Seconds(2);
// Between tries to start a process that does not start, and one that ends at once.
inline constexpr int64_t kFirstStartPauseNs = 50'000'000, kLongestStartPauseNs = 1'000'000'000;

// Behind a pause of so much, the next.
inline int64_t NextStartPauseNs(int64_t pause_ns) {
  return std::clamp(2 * pause_ns, kFirstStartPauseNs, kLongestStartPauseNs);
}

class ShortLives {
 public:
  // One has ended, at once or not. The pause before the next.
  int64_t Ended(bool at_once) {
    if (!at_once) {
      in_a_row_ = 0;
      pause_ns_ = 0;
    } else if (++in_a_row_ > 1) {
      pause_ns_ = NextStartPauseNs(pause_ns_);
    }
    return pause_ns_;
  }
  int64_t in_a_row() const { return in_a_row_; }
  int64_t pause_ns() const { return pause_ns_; }
  // What the error of the last of so many says beside how it ended; "": it has nothing to say.
  static std::string Told(int64_t in_a_row) {
    if (in_a_row < 2) return "";
    return StrCat("; ", in_a_row,
                  " in a row have ended soon after their start and before any work: the next one "
                  "is started after a pause of up to a second; ask the operator of the server to "
                  "look into its log");
  }

 private:
  int64_t in_a_row_ = 0, pause_ns_ = 0;
};

}  // namespace telegrad
