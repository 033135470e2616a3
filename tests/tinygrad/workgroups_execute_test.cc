// The captured graphs, lowered for GPUs and interpreted.
#include <gtest/gtest.h>

#include "tests/tinygrad/lowered_captures.h"

namespace telegrad {
namespace {

TEST(WorkgroupsExecute, CapturedGraphsAgree) {
  testing::ExpectLoweredCapturesAgree(*NvidiaTarget(8, 0, 108, 163840));
}

}  // namespace
}  // namespace telegrad
