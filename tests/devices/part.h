// A part of many cases. Drivers and their fakes are slow, so that an ordinary run takes every n-th
// case; an environment variable says another n, and 1 takes all.
#pragma once

#include <cstdlib>

namespace telegrad::testing {

class Part {
 public:
  // Every n-th case from the `first` on, where the variable `name` is n, else every
  // `otherwise`-th.
  Part(const char* name, int otherwise, int first = 0) {
    const char* named = std::getenv(name);
    const int every = named == nullptr ? otherwise : std::atoi(named);
    every_ = every < 1 ? 1 : every;
    first_ = first % every_;
  }
  // Whether the next case is one of them; counts.
  bool TakesNext() {
    const bool takes = seen_++ % every_ == first_;
    taken_ += takes ? 1 : 0;
    return takes;
  }
  int taken() const { return taken_; }

 private:
  int every_, first_;
  int seen_ = 0, taken_ = 0;
};

}  // namespace telegrad::testing
