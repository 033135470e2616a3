// How the daemon ends: the signals that it waits for, and its drain.
#pragma once

#include <signal.h>

#include <cstdint>
#include <functional>

#include "server/admin/service_manager.h"
#include "server/http_front_end.h"
#include "server/pool/task_pool.h"
#include "server/service/call_watch.h"
#include "server/service/compute_service.h"
#include "server/service/health_service.h"
#include "server/service/listeners.h"

namespace telegrad {

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
