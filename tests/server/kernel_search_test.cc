// The search of a daemon, on this machine's processor: a hot kernel is found and searched for, its
// tenant pays, runs use what is found, and results stay the same.
#include "server/tenant/kernel_search.h"

#include <cstring>
#include <set>
#include <string>

#include "absl/synchronization/notification.h"
#include "devices/cpu/cpu_device.h"
#include "devices/worker/worker_device.h"
#include "engine/base/mutex.h"
#include "engine/compile/compiler.h"
#include "engine/ir/content_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tenant/caching_engine.h"
#include "server/tenant/tenant_directory.h"

namespace telegrad {
namespace {

constexpr int64_t kSize = 96;
constexpr int64_t kHot = 1'000'000;  // ns
// A search may use all that it takes, of which a millisecond comes back in each second.
constexpr int64_t kBackNs = 1'000'000;
constexpr std::string_view kTenants =
    "[*]\ndevice_rate=1\ndevice_burst=1000000\ncompile_rate=1\ncompile_burst=1000000";

// Slot 2 = slot 0 x slot 1, of integers in floats: sums of them are exact in any order.
FrozenGraph ProductOfSquares() {
  Graph g;
  const auto param = [&](int64_t slot, const Shape& shape) {
    return g.Param(slot, DType::kFloat32, shape);
  };
  const auto make = [&](Op op, UOp x, const Shape& arg) {
    return g.Make(op, DType::kVoid, std::span(&x, 1), arg);
  };
  const auto wide = [&](int64_t slot, const Shape& shape) {
    const UOp square = param(slot, {kSize, kSize});
    return make(Op::kExpand, make(Op::kReshape, square, shape), {kSize, kSize, kSize});
  };
  const UOp product = g.Make(Op::kMul, {wide(0, {kSize, kSize, 1}), wide(1, {1, kSize, kSize})});
  const UOp sum = make(Op::kReduce, product, {static_cast<int64_t>(ReduceKind::kAdd), 1});
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {param(2, {kSize, 1, kSize}), sum})}));
}

CpuOptions OneThread() {
  CpuOptions options;
  options.target = HostTarget(1);
  options.threads = 1;
  options.memory_limit = int64_t{256} << 20;
  return options;
}

class KernelSearchTest : public ::testing::Test {
 protected:
  KernelSearchTest() : KernelSearchTest(*OpenCpu(OneThread())) {}
  explicit KernelSearchTest(std::unique_ptr<Device> device) {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::move(device));
    device_ = devices[0].get();
    pool_ = *DevicePool::Create(std::move(devices));
    services_.compiler = CompileInProcess();
    services_.found = *FoundMoves::Open({});
    services_.heat = std::make_shared<KernelHeat>();
    caches_ = std::make_shared<SharedCaches>(ExecutableCache::Limits{}, services_);
    directory_ = std::make_unique<TenantDirectory>(
        *ParseTenants(kTenants, "file", {}), /*max_idle=*/2,
        [this](const Accounts& accounts) {
          return std::make_shared<CachingEngine>(ExecutableCache::Limits{}, caches_,
                                                 accounts.for_caches());
        },
        &metrics_);
    tenant_ = *directory_->Find("a");
  }

  // Until the search has ended.
  void Search(double seconds) {
    absl::Notification ended;
    KernelSearch search(
        {.seconds = seconds, .hot_ns = kHot, .ended = [&] { ended.Notify(); }}, pool_.get(),
        caches_.get(), services_, [this](std::string_view name) { return directory_->Find(name); },
        &metrics_);
    ASSERT_TRUE(ended.WaitForNotificationWithTimeout(absl::Minutes(2)));
  }

  std::shared_ptr<const Executable> Executable1() {
    Budget budget;
    Device* const devices[] = {tenant_->View(*device_)};
    const auto got = tenant_->engine->Get(ContentHash(graph_.root()), graph_, devices, &budget, {});
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? got->executable : nullptr;
  }

  std::vector<float> Run(const Executable& executable) {
    std::vector<BufferView> bindings;
    for (int slot = 0; slot < 3; ++slot) {
      auto memory = *device_->Alloc(kSize * kSize * 4);
      auto* const values = static_cast<float*>(memory->host());
      for (int64_t i = 0; i < kSize * kSize; ++i) {
        values[i] = slot == 2 ? -1 : static_cast<float>((i * (slot + 3)) % 13 - 6);
      }
      bindings.push_back({std::move(memory), 0, kSize * kSize * 4});
    }
    const auto point = executable.Submit(bindings, {});
    EXPECT_TRUE(point.ok() && point->Wait().ok());
    std::vector<float> out(kSize * kSize);
    std::memcpy(out.data(), bindings[2].memory->host(), out.size() * 4);
    return out;
  }

  const FrozenGraph graph_ = ProductOfSquares();
  Metrics metrics_;
  Device* device_ = nullptr;
  std::unique_ptr<DevicePool> pool_;
  KernelServices services_;
  std::shared_ptr<SharedCaches> caches_;
  std::unique_ptr<TenantDirectory> directory_;
  std::shared_ptr<Tenant> tenant_;
};

TEST_F(KernelSearchTest, AHotKernelIsSearchedForAtItsTenantsExpense) {
  const auto before = Executable1();
  ASSERT_NE(before, nullptr);
  const std::vector<float> want = Run(*before);
  EXPECT_FALSE(services_.heat->TakeHottest(1));
  tenant_->engine->Ran(*before, 2 * kHot, tenant_->share);
  const int64_t begin = SteadyNs();
  const TenantDebts none = tenant_->Debts(begin);
  EXPECT_EQ(none.device_ns, 0);
  Search(4);  // seconds, of which a busy machine leaves few
  EXPECT_EQ(metrics_.Value(Metric::kSearches), 1);
  EXPECT_GT(metrics_.Value(Metric::kSearchPrograms), 1);
  const int64_t end = SteadyNs();
  const TenantDebts debts = tenant_->Debts(end);
  const double measured = metrics_.Value(Metric::kSearchDeviceNs) * 1e9;
  const double back = static_cast<double>(end - begin) * 1e-9 * kBackNs + 1;
  EXPECT_EQ(static_cast<double>(services_.found->stats().found), 1);
  EXPECT_GT(debts.device_ns, 0);
  EXPECT_NEAR(static_cast<double>(debts.device_ns) + back / 2, measured, back / 2 + 1e3);
  EXPECT_GT(debts.compile_ns, none.compile_ns) << "its programs were compiled";
  EXPECT_EQ(tenant_->accounts[Quota::kDeviceMemory].used(), 0) << "scratch buffers are gone";
  EXPECT_EQ(Run(*Executable1()), want);
}

// Whatever list is found: sessions get an executable with it, and the old one still runs.
TEST_F(KernelSearchTest, RunsUseWhatIsFound) {
  const auto before = Executable1();
  ASSERT_EQ(before->kernels().size(), 1u);
  const std::string moves = before->kernels()[0].moves;
  EXPECT_FALSE(before->kernels()[0].searched);
  EXPECT_EQ(Executable1(), before);
  tenant_->engine->Ran(*before, kHot, tenant_->share);
  const std::string key = services_.heat->TakeHottest(1)->key;
  services_.found->Put(key, {.moves = moves, .better = false});
  EXPECT_EQ(Executable1(), before) << "the heuristic's list was the best";
  services_.found->Put(key, {.moves = "UPCAST r0 2", .better = true});
  Device* const devices[] = {device_};
  EXPECT_EQ(tenant_->engine->Find(ContentHash(graph_.root()), devices, {}), nullptr);
  const auto after = Executable1();
  EXPECT_NE(after, before);
  EXPECT_EQ(after->kernels()[0].moves, "UPCAST r0 2");
  EXPECT_TRUE(after->kernels()[0].searched);
  EXPECT_EQ(Run(*after), Run(*before));
  EXPECT_EQ(Executable1(), after);
}

// However little it has taken, and at the expense of who asked, not of who ran it.
TEST_F(KernelSearchTest, AKernelThatSomebodyAsksForIsSearchedFor) {
  const auto executable = Executable1();
  ASSERT_TRUE(tenant_->engine->searches());
  const auto other = *directory_->Find("b");
  tenant_->engine->Ran(*executable, 1, tenant_->share);
  other->engine->Search(*executable, other->share);
  const auto hot = services_.heat->TakeHottest(kHot);
  ASSERT_TRUE(hot);
  EXPECT_EQ(hot->share, other->share);
  other->engine->Search(*executable, other->share);
  EXPECT_FALSE(services_.heat->TakeHottest(1)) << "once is enough";
}

TEST_F(KernelSearchTest, EndsWithTheDaemon) {
  const auto executable = Executable1();
  tenant_->engine->Ran(*executable, 2 * kHot, tenant_->share);
  KernelSearch search(
      {.seconds = 3600, .hot_ns = kHot}, pool_.get(), caches_.get(), services_,
      [this](std::string_view name) { return directory_->Find(name); }, &metrics_);
  // Its first program is enough to know that it runs.
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (metrics_.Value(Metric::kSearchDeviceNs) == 0 && absl::Now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_GT(metrics_.Value(Metric::kSearchDeviceNs), 0);
}

// Whose kernel it is, in whose process it is measured.
class KernelSearchInWorkers : public KernelSearchTest {
 protected:
  KernelSearchInWorkers() : KernelSearchInWorkers(std::make_shared<Workers>()) {}
  std::set<std::string> workers() {
    const MutexLock lock(workers_->mutex);
    return workers_->names;
  }

 private:
  struct Workers {
    Mutex mutex;
    std::set<std::string> names TG_GUARDED_BY(mutex);
  };
  explicit KernelSearchInWorkers(const std::shared_ptr<Workers>& workers)
      : KernelSearchTest(*OpenWorkerDevice({.cpu = OneThread(),
                                            .by_tenant = true,
                                            .executable = DEVICE_WORKER,
                                            .on_event =
                                                [workers](const WorkerEvent& event) {
                                                  const MutexLock lock(workers->mutex);
                                                  workers->names.insert(event.worker);
                                                }})),
        workers_(workers) {}

  const std::shared_ptr<Workers> workers_;
};

TEST_F(KernelSearchInWorkers, MeasuresInTheTenantsOwn) {
  const auto executable = Executable1();
  ASSERT_NE(executable, nullptr);
  tenant_->engine->Ran(*executable, 2 * kHot, tenant_->share);
  Search(2);
  EXPECT_EQ(metrics_.Value(Metric::kSearches), 1);
  EXPECT_GT(metrics_.Value(Metric::kSearchPrograms), 0);
  EXPECT_THAT(workers(), ::testing::ElementsAre("CPU:0's worker of tenant a"));
}

}  // namespace
}  // namespace telegrad
