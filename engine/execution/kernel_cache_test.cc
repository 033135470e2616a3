// Whose kernels go when there are too many.
#include "engine/execution/kernel_cache.h"

#include <memory>
#include <string>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "engine/compile/compiler.h"
#include "engine/execution/executable_cache.h"
#include "engine/execution/shared_caches.h"
#include "engine/ir/content_hash.h"
#include "engine/types/machine_costs.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

class KernelCacheTest : public ::testing::Test {
 protected:
  KernelCacheTest() {
    CpuOptions options;
    options.target = HostTarget(1);
    options.target.stream_bytes = int64_t{1} << 40;
    options.threads = 1;
    device_ = *OpenCpu(options);
  }

  // Makes a graph of one kernel for the tenant, which has no executable of it; whether its kernel
  // was there.
  bool Has(const std::shared_ptr<const Share>& share, int which) {
    Graph g;
    const Shape shape{8};
    const UOp in = g.Param(0, DType::kFloat32, shape), out = g.Param(1, DType::kFloat32, shape);
    const UOp sum = g.Make(Op::kAdd, {in, g.ConstFloat(DType::kFloat32, which)});
    const FrozenGraph graph = Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})}));
    ExecutableCache cache(limits_, shared_, CacheAccounts());
    Budget budget;
    budget.SetShare(share);
    const uint64_t before = shared_->stats().kernels_compiled;
    EXPECT_TRUE(cache.Get(ContentHash(graph.root()), graph, *device_, &budget).ok());
    return shared_->stats().kernels_compiled == before;
  }

  const ExecutableCache::Limits limits_{.kernels = 8};
  const std::shared_ptr<SharedCaches> shared_ = std::make_shared<SharedCaches>(limits_);
  std::unique_ptr<Device> device_;
  const std::shared_ptr<const Share> a_ = std::make_shared<Share>("a", 1);
  const std::shared_ptr<const Share> b_ = std::make_shared<Share>("b", 1);
};

TEST_F(KernelCacheTest, OneTenantDoesNotEvictWhatIsAnothersShare) {
  for (int i = 1; i <= 3; ++i) EXPECT_FALSE(Has(b_, i));
  for (int i = 100; i < 120; ++i) EXPECT_FALSE(Has(a_, i));
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(Has(b_, i)) << i;
  for (int i = 115; i < 120; ++i) EXPECT_TRUE(Has(a_, i)) << "the rest is his who wants it " << i;
  EXPECT_FALSE(Has(a_, 100)) << "his own were dropped, the least recently used first";
}

TEST_F(KernelCacheTest, WhatOthersUseIsKeptForThem) {
  EXPECT_FALSE(Has(a_, 1));
  EXPECT_TRUE(Has(b_, 1)) << "compiled once";
  for (int i = 100; i < 120; ++i) EXPECT_FALSE(Has(a_, i));
  EXPECT_TRUE(Has(b_, 1));
  for (int i = 200; i < 220; ++i) EXPECT_FALSE(Has(b_, i));
  EXPECT_FALSE(Has(b_, 1)) << "but no longer than if they had made it";
}

// A kernel whose result is stored past the caches is not one whose result another kernel reads;
// where it is too small for that, they are one.
TEST_F(KernelCacheTest, LargeResultsMakeOtherKernels) {
  const auto compiled = [&](int64_t elements, bool read) {
    Graph g;
    const Shape shape{elements};
    const UOp in = g.Param(0, DType::kFloat32, shape), out = g.Param(1, DType::kFloat32, shape);
    const UOp store = g.Make(Op::kStore, {out, g.Make(Op::kAdd, {in, in})});
    std::vector<UOp> stores{store};
    if (read) {
      const UOp again = g.Make(Op::kNeg, {g.Make(Op::kAfter, {out, store})});
      stores.push_back(g.Make(Op::kStore, {g.Param(2, DType::kFloat32, shape), again}));
    }
    const FrozenGraph graph = Freeze(g.Make(Op::kSink, DType::kVoid, stores));
    ExecutableCache cache(limits_, shared_, CacheAccounts());
    Budget budget;
    const uint64_t before = shared_->stats().kernels_compiled;
    EXPECT_TRUE(cache.Get(ContentHash(graph.root()), graph, *device_, &budget).ok());
    return shared_->stats().kernels_compiled - before;
  };
  const int64_t large = CostsOf(device_->target()).thread.result_bytes / 4;
  EXPECT_EQ(compiled(large - 16, false), 1u);
  EXPECT_EQ(compiled(large - 16, true), 1u) << "the one that reads";
  EXPECT_EQ(compiled(large, false), 1u);
  EXPECT_EQ(compiled(large, true), 2u);
}

// A kernel whose iterations store to the same elements is lowered for one thread, and counted.
TEST_F(KernelCacheTest, CountsKernelsThatAreLoweredAgain) {
  CpuOptions options;
  options.target = HostTarget(2);
  options.threads = 2;
  const std::unique_ptr<Device> device = *OpenCpu(options);
  KernelCache cache(8);
  Budget budget;
  for (const int64_t least : {0, 2048}) {
    Graph g;
    constexpr int64_t kSize = 4096;
    const UOp i = g.Range(0, AxisType::kLoop, g.Index(kSize));
    const UOp value =
        g.Make(Op::kLoad, {g.Make(Op::kIndex, {g.Param(1, DType::kFloat32, Shape{kSize}), i})});
    const UOp at = least == 0 ? i : g.Make(Op::kMax, {i, g.Index(least)});
    const UOp to = g.Make(Op::kIndex, {g.Param(0, DType::kFloat32, Shape{kSize}), at});
    const UOp end = g.Make(Op::kEnd, DType::kVoid, {g.Make(Op::kStore, {to, value}), i});
    const auto kernel = cache.Get(Freeze(g.Make(Op::kSink, {end})), *device, &budget);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_EQ(cache.stats().lowered_again, least == 0 ? 0u : 1u);
  }
}

TEST_F(KernelCacheTest, WeightsCount) {
  const auto heavy = std::make_shared<Share>("heavy", 3);
  for (int i = 0; i < 20; ++i) Has(a_, 100 + i);
  for (int i = 0; i < 20; ++i) Has(heavy, 200 + i);
  int of_a = 0, of_heavy = 0;
  for (int i = 18; i < 20; ++i) of_a += Has(a_, 100 + i);
  for (int i = 14; i < 20; ++i) of_heavy += Has(heavy, 200 + i);
  EXPECT_EQ(of_a, 2);
  EXPECT_EQ(of_heavy, 6);
}

}  // namespace
}  // namespace telegrad
