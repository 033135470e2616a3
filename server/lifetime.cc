#include "server/lifetime.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <thread>

#include "engine/base/strings.h"
#include "server/admin/log.h"

namespace telegrad {

EndWhileOpening::EndWhileOpening(const sigset_t& signals)
    : ends_(signals), stop_(eventfd(0, EFD_CLOEXEC)) {
  sigdelset(&ends_, SIGHUP);
  if (stop_ >= 0) thread_ = std::thread([this] { Watch(); });  // else nothing would end it
}

EndWhileOpening::~EndWhileOpening() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_, 1);
  thread_.join();
  close(stop_);
}

void EndWhileOpening::Opens(const std::string& driver) {
  Log(LogLevel::kInfo, "opening_devices", {{"driver", driver}});
  const MutexLock lock(mutex_);
  opening_ = driver;
}

// A signal that comes later stays pending for who waits for it then. The process ends without
// taking anything down, because the thread that opens may never let go of what it has.
void EndWhileOpening::Watch() {
  const int signals = signalfd(-1, &ends_, SFD_CLOEXEC | SFD_NONBLOCK);
  pollfd wait[] = {{stop_, POLLIN, 0}, {signals, POLLIN, 0}};
  signalfd_siginfo info{};
  do {
    while (poll(wait, 2, -1) < 0 && errno == EINTR) {
    }
  } while (wait[0].revents == 0 && read(signals, &info, sizeof(info)) != sizeof(info));
  close(signals);
  if (wait[0].revents != 0) return;
  std::string opening;
  {
    const MutexLock lock(mutex_);
    opening = opening_;
  }
  Log(LogLevel::kWarning, "ended_while_starting",
      {{"signal", info.ssi_signo}, {"opening", opening}});
  std::fflush(stdout);
  _exit(0);
}

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
