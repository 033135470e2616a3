// Tests of all captured graphs.
#pragma once

#include "engine/wire/graph_codec.h"
#include "gtest/gtest.h"
#include "tests/tinygrad/captures.h"

namespace telegrad::testing {

// Calls run(capture, graph, variables) for each of them, admitted as a daemon admits a client's,
// until one is a fatal failure.
template <typename Run>
void ForEachCapture(const Run& run) {
  const auto captures = ReadCaptures();
  ASSERT_TRUE(captures.ok()) << captures.status();
  for (const Capture& capture : *captures) {
    Budget budget;
    const auto graph = FromProto(capture.graph, &budget);
    ASSERT_TRUE(graph.ok()) << capture.name << ": " << graph.status();
    run(capture, *graph, capture.VarValues());
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace telegrad::testing
