// The limits of one session; those of tenants are in quotas.h. Exceeding a limit is
// RESOURCE_EXHAUSTED with the limit's name and value, or back-pressure: the stream is not read
// until there is room.
#pragma once

#include <cstdint>

#include "engine/base/budget.h"
#include "engine/types/limits.h"
#include "server/pool/admission.h"

namespace telegrad {

inline constexpr int64_t kMinLeaseMs = 1000;

struct SessionLimits {
  int64_t sessions = 1024;             // of the whole server
  int64_t handles = int64_t{1} << 20;  // buffers of one session
  int64_t bytes = int64_t{1} << 40;    // buffer bytes of one session
  int64_t run_handles = kMaxParams;    // bindings of one run
  int64_t trace_events = 16'384;       // that one answer tells
  int64_t head_bytes = 1 << 20;        // of one operation beside its data

  RunLimits run;       // what one run may take of a device
  Budget::Limits job;  // of the verification or compilation of one graph

  // Back-pressure.
  int64_t staged_bytes = int64_t{32} << 20;  // received payloads that wait for their buffer
  int64_t queued_operations = 1024;          // operations that wait for their turn
  int64_t unanswered = 4096;                 // operations whose answer is not ready
  int64_t runs_in_flight = 256;              // on the device
  int64_t transfers = 1024;                  // uploads and downloads that have not ended

  // Limits of a resumable session.
  int64_t lease_ms = 60'000;        // where the client requests none
  int64_t max_lease_ms = 3600'000;  // the longest that it may request
  int64_t grace_ms = 30'000;        // after its stream broke
  // Answers that are kept until the client acknowledges them, and the bytes of the reads and
  // imports among them. One more answer ends the session; one beyond those bytes is not kept.
  int64_t unacknowledged = 32'768;
  int64_t kept_bytes = int64_t{16} << 20;

  // Reads up to this size are copied as soon as their bytes are ready, so that writers of the
  // buffer never wait for the client; longer ones are sent from device memory, and writers wait
  // until they are sent.
  int64_t copied_read_bytes = int64_t{64} << 10;
};

}  // namespace telegrad
