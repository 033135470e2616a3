// Admission of runs: within the limits they are accepted; above them the error names need and
// limit; a deadline that cannot be met is refused before the run.
#include "server/pool/admission.h"

#include <gtest/gtest.h>

#include "engine/base/rate_limit.h"

namespace telegrad {
namespace {

constexpr RunCost kCost{.input_bytes = 100,
                        .output_bytes = 20,
                        .temporary_bytes = 3,
                        .flops = 5e9,
                        .bytes = 7e6,
                        .seconds = 0.2001,
                        .launch_seconds = 0.1};

TEST(Admission, LetsInWhatIsWithinTheLimits) {
  EXPECT_TRUE(Admit(kCost, {}).ok());
  EXPECT_TRUE(Admit(kCost, {.bytes = 123, .ms = 201}).ok());
  EXPECT_TRUE(Admit({}, {.bytes = 1, .ms = 1}).ok());
}

TEST(Admission, SaysWhatIsNeededAndWhatTheLimitIs) {
  const absl::Status memory = Admit(kCost, {.bytes = 122});
  EXPECT_TRUE(absl::IsResourceExhausted(memory));
  EXPECT_EQ(memory.message(),
            "run: needs 123 bytes at a time (100 of inputs, 20 of outputs, 3 of temporaries); "
            "run_memory is limited to 122; raise it with --run-memory");
  const absl::Status time = Admit(kCost, {.ms = 200});
  EXPECT_TRUE(absl::IsResourceExhausted(time));
  EXPECT_EQ(time.message(),
            "run: is predicted to take 201 ms on the device, for 5e+09 arithmetic operations and "
            "7e+06 bytes moved; run_time is limited to 200 ms; raise it with --run-time");
  const absl::Status launch = Admit(kCost, {.ms = 201, .launch_ms = 99});
  EXPECT_TRUE(absl::IsResourceExhausted(launch));
  EXPECT_EQ(launch.message(),
            "run: one of its kernels cannot be cut into launches shorter than 100 ms, as "
            "predicted; launch_time is limited to 99 ms; give it more independent results or sum "
            "in several steps, or raise it with --launch-time");
}

TEST(Admission, ADeadlineThatCannotBeMetIsRefusedBeforeTheRun) {
  constexpr int64_t kMs = 1'000'000;
  EXPECT_TRUE(AdmitDeadline(10 * kMs, 10.0 * kMs, 10.0 * kMs).ok());
  const absl::Status never = AdmitDeadline(10 * kMs, 11.0 * kMs, 11.0 * kMs);
  EXPECT_TRUE(absl::IsDeadlineExceeded(never));
  EXPECT_EQ(never.message(),
            "run: is predicted to end after 11 ms, of which it runs for 11 ms, and its deadline is "
            "in 10 ms; it was not started; raise timeout_ms, or make it smaller");
  EXPECT_FALSE(RetryAfterMs(never).has_value());
  const absl::Status busy = AdmitDeadline(10 * kMs, 1.0 * kMs, 35.5 * kMs);
  EXPECT_TRUE(absl::IsResourceExhausted(busy));
  EXPECT_EQ(busy.message(),
            "run: is predicted to end after 36 ms, of which it runs for 1 ms, and its deadline is "
            "in 10 ms; it was not started; try again in 26 ms, or raise timeout_ms");
  EXPECT_EQ(RetryAfterMs(busy), 26);
}

}  // namespace
}  // namespace telegrad
