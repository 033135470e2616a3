// How the daemon ends: the signals that it waits for, and its drain.
#pragma once

#include <signal.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "server/admin/service_manager.h"
#include "server/http_front_end.h"
#include "server/pool/task_pool.h"
#include "server/service/call_watch.h"
#include "server/service/compute_service.h"
#include "server/service/health_service.h"
#include "server/service/listeners.h"

namespace telegrad {

// Ends the process, with exit code 0, when a signal that ends the daemon comes while devices are
// being opened: drivers' libraries and other servers may take any time, or never come back, and
// nothing has been served yet.
class EndWhileOpening {
 public:
  explicit EndWhileOpening(const sigset_t& signals);
  ~EndWhileOpening();
  EndWhileOpening(const EndWhileOpening&) = delete;
  EndWhileOpening& operator=(const EndWhileOpening&) = delete;

  // What is being opened from now on; logged, so that what hangs has a name.
  void Opens(const std::string& driver);

 private:
  void Watch();

  sigset_t ends_;  // without the one that reloads
  int stop_ = -1;  // an eventfd
  Mutex mutex_;
  std::string opening_ TG_GUARDED_BY(mutex_) = "devices";
  std::thread thread_;
};

// Waits for the signal that ends the daemon, and reloads on SIGHUP. A service manager with a
// watchdog hears twice in its interval that the daemon is alive, which is when its workers still
// take tasks.
int WaitForEnd(const sigset_t& signals, ServiceManager& manager, TaskPool& workers,
               const std::function<void()>& reload);

// Takes no new work, and waits up to `seconds` for what runs; a second signal cancels it at once.
// `http` is null where there is none.
void DrainAndStop(Listeners& listeners, ComputeService& compute, HealthService& health,
                  HttpFrontEnd* http, CallWatch& watch, int64_t seconds, const sigset_t& signals,
                  int signal);

}  // namespace telegrad
