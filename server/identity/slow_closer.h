// Closes descriptors that clients have passed, on a thread of its own. Closing one can take as
// long as its maker likes (a socket that lingers, a file of a file system in user space), which
// threads that serve all clients must not wait for.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "engine/base/unique_fd.h"

namespace telegrad {

// Thread-safe.
class SlowCloser {
 public:
  SlowCloser();
  // Does not wait: what is not closed by then is closed later, or with the process.
  ~SlowCloser();

  // Counts for the user who sent it until it is closed.
  void Close(UniqueFd fd, uid_t of);
  size_t open(uid_t of) const;  // of that user, that are yet to be closed

 private:
  struct State;
  static void Serve(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace telegrad
