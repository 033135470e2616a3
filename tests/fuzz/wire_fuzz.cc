// The wire form: whatever is admitted is written so that it is read as the same graph.
#include "engine/ir/content_hash.h"
#include "engine/ir/verify.h"
#include "engine/wire/graph_codec.h"
#include "telegrad/v1/graph.pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/wire_mutator.h"

const int telegrad::fuzz::kDamageOneIn = 4;

FUZZ_TARGET(data) {
  using namespace telegrad;
  static fuzz::Count count("admitted");
  count.Input();
  v1::Graph message;
  if (!message.ParseFromArray(data.data(), static_cast<int>(data.size()))) return;
  Budget budget;
  const auto graph = FromProto(message, &budget);
  if (!graph.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(graph.status()) ||
               absl::IsResourceExhausted(graph.status()));
    FUZZ_CHECK(!graph.status().message().empty());
    return;
  }
  count.Passed();
  FUZZ_CHECK(Verify(graph->root(), kTensorLevel).ok());
  v1::Graph written;
  ToProto(graph->root(), &written);
  const auto again = FromProto(written, &budget);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(ContentHash(again->root()) == ContentHash(graph->root()));
}
