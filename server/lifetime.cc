#include "server/lifetime.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <thread>

#include "engine/base/strings.h"
#include "server/admin/log.h"

namespace telegrad {

int WaitForEnd(const sigset_t& signals, ServiceManager& manager, TaskPool& workers,
               const std::function<void()>& reload) {
  const auto interval =
      std::chrono::duration_cast<std::chrono::nanoseconds>(manager.watchdog()) / 2;
  const timespec wait{static_cast<time_t>(interval.count() / 1'000'000'000),
                      static_cast<long>(interval.count() % 1'000'000'000)};
  const auto alive = std::make_shared<std::atomic<bool>>(true);
  while (true) {
    int signal = 0;
    if (interval.count() == 0) {
      sigwait(&signals, &signal);
    } else {
      if (alive->exchange(false)) {
        manager.Notify("WATCHDOG=1");
        workers.Post([alive] { *alive = true; });
      }
      signal = sigtimedwait(&signals, nullptr, &wait);
    }
    if (signal == SIGHUP) {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      manager.Notify(StrCat("RELOADING=1\nMONOTONIC_USEC=",
                            std::chrono::duration_cast<std::chrono::microseconds>(now).count()));
      reload();
      manager.Notify("READY=1");
    }
    if (signal == SIGTERM || signal == SIGINT) return signal;
  }
}

void DrainAndStop(Listeners& listeners, ComputeService& compute, HealthService& health,
                  HttpFrontEnd* http, CallWatch& watch, int64_t seconds, const sigset_t& signals,
                  int signal) {
  Log(LogLevel::kInfo, "draining", {{"signal", signal}, {"seconds", seconds}});
  health.StopServing();
  watch.Drain();
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(seconds);
  compute.Drain();
  if (http != nullptr) http->Drain();
  std::thread shutdown([&] {
    listeners.Shutdown(deadline);
    compute.AwaitNone(deadline);  // the streams on sockets
    if (http != nullptr) http->AwaitDrained(deadline);
  });
  // The second signal: everybody who waits for the deadline is cancelled now.
  std::thread impatient([&] {
    int again = SIGHUP;
    while (again == SIGHUP) sigwait(&signals, &again);
    listeners.CancelCalls();
    compute.EndAll();
    if (http != nullptr) http->EndAll();
  });
  listeners.Wait();
  shutdown.join();
  kill(getpid(), SIGTERM);  // ends the wait for a second signal
  impatient.join();
}

}  // namespace telegrad
