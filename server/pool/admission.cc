// Compares the predicted memory and time of a run with the limits; an error names both.
#include "server/pool/admission.h"

#include <cmath>

#include "engine/base/rate_limit.h"
#include "engine/base/status.h"

namespace telegrad {

absl::Status Admit(const RunCost& cost, const RunLimits& limits) {
  if (limits.bytes > 0 && cost.peak_bytes() > limits.bytes) {
    return ResourceExhausted("run: needs ", cost.peak_bytes(), " bytes at a time (",
                             cost.input_bytes, " of inputs, ", cost.output_bytes, " of outputs, ",
                             cost.temporary_bytes, " of temporaries); run_memory is limited to ",
                             limits.bytes, "; raise it with --run-memory");
  }
  if (const double ms = std::ceil(cost.seconds * 1e3); ms > static_cast<double>(limits.ms)) {
    return ResourceExhausted("run: is predicted to take ", ms, " ms on the device, for ",
                             cost.flops, " arithmetic operations and ", cost.bytes,
                             " bytes moved; run_time is limited to ", limits.ms,
                             " ms; raise it with --run-time");
  }
  const double launch_ms = std::ceil(cost.launch_seconds * 1e3);
  if (launch_ms > static_cast<double>(limits.launch_ms)) {
    return ResourceExhausted("run: one of its kernels cannot be cut into launches shorter than ",
                             launch_ms, " ms, as predicted; launch_time is limited to ",
                             limits.launch_ms,
                             " ms; give it more independent results or sum in several steps, or "
                             "raise it with --launch-time");
  }
  return absl::OkStatus();
}

absl::Status AdmitDeadline(int64_t left_ns, double run_ns, double end_ns) {
  constexpr double kNsPerMs = 1e6;
  const auto left = static_cast<double>(left_ns);
  if (end_ns <= left) return absl::OkStatus();
  const auto figures = StrCat("is predicted to end after ", std::ceil(end_ns / kNsPerMs),
                              " ms, of which it runs for ", std::ceil(run_ns / kNsPerMs),
                              " ms, and its deadline is in ", std::floor(left / kNsPerMs), " ms");
  if (run_ns > left) {
    return absl::DeadlineExceededError(
        StrCat("run: ", figures, "; it was not started; raise timeout_ms, or make it smaller"));
  }
  // By then what is ahead of it has shrunk to what its deadline allows.
  const auto retry_ms = static_cast<int64_t>(std::ceil((end_ns - left) / kNsPerMs));
  return WithRetryAfter(ResourceExhausted("run: ", figures, "; it was not started; try again in ",
                                          retry_ms, " ms, or raise timeout_ms"),
                        retry_ms);
}

}  // namespace telegrad
