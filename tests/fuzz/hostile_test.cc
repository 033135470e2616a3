// The whole way of adversarial graphs, from message to programs: each ends in success or in a
// Status, after a number of steps that the budget bounds (the clock is not asked), and holds no
// more memory than the budget and a small multiple of the request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/lowering/lower.h"
#include "engine/schedule/schedule.h"
#include "engine/wire/graph_codec.h"
#include "engine/wire/testing/adversarial_graphs.h"
#include "engine/wire/testing/hostile_graphs.h"

// Counts what this program and its static libraries allocate (the linker's --wrap).
extern "C" {
void* __real_malloc(size_t size);
void* __real_realloc(void* memory, size_t size);
void __real_free(void* memory);
}

namespace {

std::atomic<int64_t> live{0}, peak{0};

void* Count(void* memory) {
  if (memory == nullptr) std::abort();
  const int64_t now = live += static_cast<int64_t>(malloc_usable_size(memory));
  int64_t seen = peak;
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
  return memory;
}

void Uncount(void* memory) {
  if (memory != nullptr) live -= static_cast<int64_t>(malloc_usable_size(memory));
}

}  // namespace

extern "C" {
void* __wrap_malloc(size_t size) { return Count(__real_malloc(size)); }
void* __wrap_realloc(void* memory, size_t size) {
  Uncount(memory);
  return Count(__real_realloc(memory, size));
}
void __wrap_free(void* memory) {
  Uncount(memory);
  __real_free(memory);
}
}

// A sanitizer has operators of its own. Memory that comes from them is not counted; everything else
// is tested there as well.
#if defined(COUNTS_NEW)
void* operator new(size_t size) { return __wrap_malloc(size); }
void operator delete(void* memory) noexcept { __wrap_free(memory); }
void operator delete(void* memory, size_t) noexcept { __wrap_free(memory); }
#endif

namespace telegrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// What a request may hold besides what its budget counts, per byte of it and in all.
constexpr int64_t kBytesPerByte = 64;
constexpr int64_t kBytesBesides = 32 * kMiB;
constexpr int kFewNodes = 2'000;  // such graphs are sent twice

Budget::Limits SmallLimits() {
  Budget::Limits limits;
  limits.nodes = 1'200'000;
  limits.rewrites = 300'000;
  limits.steps = 20'000'000;
  limits.expression = 100'000;
  limits.kernels = 2'000;
  limits.bytes = 256 * kMiB;
  limits.time = std::chrono::hours(24);
  return limits;
}

struct Outcome {
  absl::Status status;
  int kernels = 0;
  int64_t peak = 0;
};

absl::Status Process(const std::string& request, int* kernels) {
  v1::Graph message;
  if (!message.ParseFromString(request)) return absl::InvalidArgumentError("no message");
  Budget budget(SmallLimits());
  TG_ASSIGN_OR_RETURN(const FrozenGraph graph, FromProto(message, &budget));
  message.Clear();
  TG_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleGraph(graph.root(), &budget));
  Target target;
  target.vector_bytes = 64;
  for (const ScheduledKernel& kernel : schedule.kernels) {
    TG_RETURN_IF_ERROR(Lower(kernel.graph, target, "test", &budget).status());
    ++*kernels;
  }
  return absl::OkStatus();
}

Outcome Measure(const std::string& request) {
  Outcome outcome;
  const int64_t before = live;
  peak = before;
  outcome.status = Process(request, &outcome.kernels);
  outcome.peak = peak - before;
  return outcome;
}

void Expect(const std::string& name, const v1::Graph& graph) {
  SCOPED_TRACE(name);
  const std::string request = graph.SerializeAsString();
  const Outcome first = Measure(request);
  if (!first.status.ok()) {
    EXPECT_EQ(first.status.code(), absl::StatusCode::kResourceExhausted) << first.status;
    EXPECT_THAT(std::string(first.status.message()), ::testing::HasSubstr("while "));
  }
  EXPECT_LE(first.peak, SmallLimits().bytes + kBytesBesides +
                            kBytesPerByte * static_cast<int64_t>(request.size()));
  // Counted, not timed: the same graph ends at the same place each time.
  if (graph.nodes_size() <= kFewNodes) {
    const Outcome again = Measure(request);
    EXPECT_EQ(first.status, again.status);
    EXPECT_EQ(first.kernels, again.kernels);
  }
  std::printf("%-44s %8zu bytes, peak %6.1f MiB, %4d kernels, %s\n", name.c_str(), request.size(),
              static_cast<double>(first.peak) / kMiB, first.kernels,
              first.status.ToString().c_str());
}

TEST(Hostile, AdversarialGraphsEndWithinTheirBudget) {
  for (const auto& [name, graph] : testing::AdversarialGraphs()) Expect(name, graph);
}

TEST(Hostile, ADeepChainEndsWithinItsBudget) {
  Expect("chain of 1000000 nodes", testing::DeepChain(1'000'000));
}

// A symbolic size that is a product of products: 2^60 ways to its only factor. That of ones is one.
TEST(Hostile, ProductsOfSizesHaveOnlySoManyFactors) {
  for (const int64_t factor : {1, 2}) {
    Graph g;
    UOp size = g.Const(DType::kInt64, factor);
    for (int i = 0; i < 60; ++i) size = g.Make(Op::kMul, {size, size});
    const UOp x = g.Param(0, DType::kFloat32, Shape{1});
    const int64_t words[] = {-2};
    g.Make(Op::kReshape, {x, size}, words);
    const auto expected = factor == 1 ? absl::StatusCode::kOk : absl::StatusCode::kInvalidArgument;
    EXPECT_EQ(g.status().code(), expected) << g.status();
  }
}

// Wherever a budget ends, cancelling included, what is under way ends with its error.
TEST(Hostile, BudgetsMayEndAnywhere) {
  Graph g;
  const UOp x = g.Param(1, DType::kFloat64, Shape{64}), y = g.Param(2, DType::kFloat64, Shape{64});
  UOp value = x;
  for (int i = 0; i < 3; ++i) {
    for (const Op op : {Op::kSin, Op::kExp2, Op::kLog2}) value = g.Make(op, {value});
    value = g.Make(Op::kAdd, {g.Make(Op::kPow, {value, y}), x});
  }
  const int64_t axis[] = {static_cast<int64_t>(ReduceKind::kAdd), 0};
  value = g.Make(Op::kReduce, {value}, axis);
  const UOp out = g.Param(0, DType::kFloat64, Shape{1});
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kStore, {out, value})});
  ASSERT_TRUE(g.status().ok()) << g.status();
  Target target;
  target.vector_bytes = 64;
  const auto run = [&](const Budget::Limits& limits) -> absl::Status {
    Budget budget(limits);
    TG_ASSIGN_OR_RETURN(const Schedule schedule, ScheduleGraph(sink, &budget));
    for (const ScheduledKernel& kernel : schedule.kernels) {
      TG_RETURN_IF_ERROR(Lower(kernel.graph, target, "test", &budget).status());
    }
    return absl::OkStatus();
  };
  for (int64_t Budget::Limits::* const limit :
       {&Budget::Limits::rewrites, &Budget::Limits::expression}) {
    absl::Status status = absl::UnknownError("not tried");
    int64_t n = 1;
    for (; !status.ok() && n < 10'000'000; n += 1 + n / 50) {
      Budget::Limits limits = SmallLimits();
      limits.*limit = n;
      status = run(limits);
      if (!status.ok()) {
        EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      }
    }
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_GT(n, 100) << "it ended somewhere";
  }
}

}  // namespace
}  // namespace telegrad
