// Objects of which the daemon has one, for all sessions and served models; they outlive these.
#pragma once

#include "engine/base/clock.h"
#include "server/admin/metrics.h"
#include "server/admin/tracer.h"
#include "server/pool/device_pool.h"
#include "server/pool/task_pool.h"
#include "server/tenant/limits.h"

namespace telegrad {

class Peers;

struct Environment {
  const DevicePool* devices;
  TaskPool* workers;    // for work of milliseconds: large allocations and copies
  TaskPool* compilers;  // for long work: verifying and compiling
  Metrics* metrics;
  SessionLimits limits;
  const Clock* clock = Clock::Steady();
  Tracer* tracer = nullptr;  // null: nothing is traced
  Peers* peers = nullptr;    // null: nothing is exchanged with other servers
};

}  // namespace telegrad
