// Walks the graph in post-order and copies a source to the device of the node where its sources
// are on several.
#include "tests/conformance/spread_graph.h"

#include <vector>

namespace telegrad::testing {
namespace {

UOp Copy(Graph* g, UOp x, int64_t device) {
  return g->Make(Op::kCopy, DType::kVoid, {x}, {device});
}

bool OnOne(UOp x) { return x.devices().size() == 1; }

}  // namespace

UOp Spread(UOp sink, int64_t devices, std::mt19937_64& rng, Graph* to) {
  const Graph& from = *sink.graph();
  NodeMap<UOp> made(from);
  std::vector<UOp> src;
  for (const uint32_t id : PostOrder(sink)) {
    const UOp u = from.at(id);
    src.clear();
    for (const uint32_t s : u.src_ids()) src.push_back(made[s]);
    if (u.is(Op::kParam)) {
      made[id] = to->Param(u.slot(), u.dtype(), u.shape(), static_cast<int64_t>(rng() % devices));
      continue;
    }
    const bool calls = u.is(Op::kCall) || u.is(Op::kLoop);
    std::vector<int64_t> places;  // of sources
    for (const UOp x : src) {
      if (x.valid() && OnOne(x)) places.push_back(x.devices()[0]);
    }
    const bool free = u.is(Op::kSink) || u.is(Op::kTuple) || u.is(Op::kAfter) || u.is(Op::kMStack);
    if (!places.empty() && !free) {
      // A body's arguments are on device 0; a store's target stays where it is.
      const int64_t at = calls              ? 0
                         : u.is(Op::kStore) ? src[0].devices()[0]
                                            : places[rng() % places.size()];
      for (UOp& x : src) {
        if (OnOne(x) && x.devices()[0] != at) x = Copy(to, x, at);
      }
    }
    if (u.is(Op::kMStack)) {
      for (UOp& x : src) {
        if (x.devices().empty()) x = Copy(to, x, static_cast<int64_t>(rng() % devices));
      }
    }
    made[id] = to->Make(u.op(), u.dtype(), src, u.arg());
    if (!made[id].valid()) return {};
  }
  return made[sink];
}

}  // namespace telegrad::testing
