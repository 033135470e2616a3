// Tenants that share a device, with the real engine: what each is charged, and that none can see
// the data or the activity of another.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <ranges>
#include <thread>
#include <utility>

#include "devices/cpu/cpu_device.h"
#include "engine/compile/compiler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/session/session.h"
#include "server/tenant/caching_engine.h"
#include "server/tenant/tenant_directory.h"
#include "tests/server/copy_graph.h"
#include "tests/server/session_ends.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

// One session of one tenant.
class Client {
 public:
  Client(const Environment& env, std::shared_ptr<Tenant> tenant)
      : session_(std::make_shared<Session>(env, std::move(tenant), SessionTerms{.id = 1}, sink_)) {}
  // Returns when the session is gone, which it is once its last callback has returned.
  ~Client() {
    session_->Close();
    const std::weak_ptr<Session> session = std::exchange(session_, nullptr);
    while (!session.expired()) std::this_thread::yield();
  }

  template <typename Op>
  Answer Do(Op op) {
    EXPECT_TRUE(
        session_->Submit(*sink_, {.id = ++last_id_, .action = MakeAction(std::move(op))}).ok());
    const uint64_t id = last_id_;
    EXPECT_TRUE(session_->Submit(*sink_, {.id = ++last_id_, .action = MakeAction(SyncOp{})}).ok());
    EXPECT_TRUE(sink_->Take(last_id_).status.ok());
    return sink_->TakeIfThere(id);
  }
  absl::Status Alloc(uint64_t handle, int64_t bytes) {
    return Do(AllocOp{handle, static_cast<uint64_t>(bytes), ""}).status;
  }
  absl::Status Free(uint64_t handle) { return Do(FreeOp{{handle}}).status; }
  absl::Status Write(uint64_t handle, std::string bytes) {
    return Do(WriteOp{handle, 0, std::make_unique<StringPayload>(std::move(bytes))}).status;
  }
  std::string Read(uint64_t handle, uint64_t bytes) {
    const Answer answer = Do(ReadOp{handle, 0, bytes});
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    const auto& result = As<ReadResult>(answer);
    if (!result.held) return result.copy;
    return {static_cast<const char*>(result.held->memory()->host()) + result.at, result.bytes};
  }
  absl::Status Put(const FrozenGraph& graph) { return Do(PutOf(graph, false)).status; }
  Answer Run(const FrozenGraph& graph, std::vector<uint64_t> handles) {
    return Do(RunOp{std::string(ContentHash(graph.root()).view()), std::move(handles)});
  }
  bool Has(const FrozenGraph& graph) {
    const Answer answer = Do(HasOp{std::string(ContentHash(graph.root()).view())});
    return As<HasResult>(answer).has;
  }

 private:
  const std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  std::shared_ptr<Session> session_;
  uint64_t last_id_ = 0;
};

// out (slot 1) = y * flip(y) by way of a temporary y = -in (slot 0), of n floats.
FrozenGraph ThroughTemporary(int64_t n) {
  Graph g;
  const auto param = [&](int64_t slot) { return g.Param(slot, DType::kFloat32, Shape{n}); };
  const UOp y = g.Make(Op::kContiguous, {g.Make(Op::kNeg, {param(0)})});
  const UOp product = g.Make(Op::kMul, {y, g.Make(Op::kFlip, {y}, Shape{0})});
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {param(1), product})}));
}

class TenantMemory : public ::testing::Test {
 protected:
  TenantMemory() {
    CpuOptions options;
    options.target = HostTarget(1);
    options.threads = 1;
    options.memory_limit = 64 * kMiB;
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*OpenCpu(options));
    device_ = devices[0].get();
    pool_ = *DevicePool::Create(std::move(devices));
    env_ = {pool_.get(), &workers_, &compilers_, &metrics_, {}};
  }
  void Serve(std::string_view file) {
    directory_ = std::make_unique<TenantDirectory>(
        *ParseTenants(file, "file", {}), /*max_idle=*/2,
        [this](const Accounts& accounts) {
          return std::make_shared<CachingEngine>(ExecutableCache::Limits{}, caches_,
                                                 accounts.for_caches());
        },
        &metrics_);
  }
  std::shared_ptr<Tenant> Find(std::string_view name) { return *directory_->Find(name); }
  Client Connect(std::string_view name) { return Client(env_, Find(name)); }
  int64_t Used(std::string_view name, Quota quota) { return Find(name)->accounts[quota].used(); }

  // What a run used goes a moment after it has ended.
  bool NothingIsInUse() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (device_->memory_used() != 0) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  Metrics metrics_;
  std::shared_ptr<SharedCaches> caches_ = std::make_shared<SharedCaches>(ExecutableCache::Limits{});
  Device* device_ = nullptr;
  std::unique_ptr<DevicePool> pool_;
  TaskPool workers_{1};
  TaskPool compilers_{1};
  Environment env_;
  std::unique_ptr<TenantDirectory> directory_;
};

TEST_F(TenantMemory, AccountsSayWhatTheDeviceSays) {
  Serve("[*]");
  const FrozenGraph graph = ThroughTemporary(1000);
  {
    Client a = Connect("a"), b = Connect("b");
    EXPECT_TRUE(a.Alloc(1, 4000).ok() && a.Alloc(2, 4000).ok() && a.Alloc(3, 0).ok());
    EXPECT_TRUE(b.Alloc(1, kMiB).ok());
    EXPECT_EQ(Used("a", Quota::kDeviceMemory), 2 * 4032 + 64);
    EXPECT_EQ(Used("b", Quota::kDeviceMemory), kMiB);
    EXPECT_TRUE(a.Put(graph).ok());
    ASSERT_TRUE(a.Run(graph, {1, 2}).status.ok());
    EXPECT_EQ(Used("a", Quota::kDeviceMemory), 2 * 4032 + 64 + 4096) << "with the temporary";
    const auto both = [&] {
      return Used("a", Quota::kDeviceMemory) + Used("b", Quota::kDeviceMemory);
    };
    EXPECT_EQ(both(), device_->memory_used());
    EXPECT_TRUE(a.Free(1).ok());
    EXPECT_EQ(both(), device_->memory_used());
  }
  EXPECT_TRUE(NothingIsInUse()) << "temporaries go with the last session";
  for (const std::string_view name : {"a", "b"}) {
    EXPECT_EQ(Used(name, Quota::kDeviceMemory), 0) << name;
  }
}

TEST_F(TenantMemory, IsReservedBeforeItIsTaken) {
  Serve("[a]\ndevice_memory = 1MiB\n[*]");
  Client a = Connect("a"), a2 = Connect("a"), b = Connect("b");
  EXPECT_TRUE(a.Alloc(1, 700'000).ok());
  const int64_t used = device_->memory_used();
  const absl::Status over = a2.Alloc(1, 400'000);
  EXPECT_TRUE(absl::IsResourceExhausted(over));
  EXPECT_EQ(over.message(),
            "device_memory of tenant a is limited to 1048576: 700032 in use, 400000 more asked "
            "for; raise it with device_memory = VALUE below [a] in the file of --tenants");
  EXPECT_EQ(device_->memory_used(), used);
  EXPECT_TRUE(b.Alloc(1, 2 * kMiB).ok()) << "another's quota is another's";
  EXPECT_TRUE(a.Free(1).ok());
  EXPECT_TRUE(a2.Alloc(2, 400'000).ok()) << "what one session frees, the other may have";
}

TEST_F(TenantMemory, TemporariesCount) {
  Serve("[a]\ndevice_memory = 20KiB");
  const FrozenGraph graph = ThroughTemporary(1000), large = ThroughTemporary(1600);
  Client a = Connect("a");
  EXPECT_TRUE(a.Alloc(1, 4000).ok() && a.Alloc(2, 4000).ok());
  EXPECT_TRUE(a.Put(graph).ok() && a.Put(large).ok());
  EXPECT_TRUE(a.Run(graph, {1, 2}).status.ok());
  EXPECT_TRUE(a.Alloc(3, 10'000).ok()) << "temporaries that no run uses make room";
  EXPECT_EQ(Used("a", Quota::kDeviceMemory), 2 * 4032 + 10'048);
  const absl::Status over = a.Run(graph, {1, 2}).status;
  EXPECT_TRUE(absl::IsResourceExhausted(over));
  EXPECT_THAT(std::string(over.message()),
              HasSubstr("temporaries of the run: device_memory of tenant a is limited to 20480: "
                        "18112 in use, 4096 more asked for"));
  EXPECT_TRUE(a.Free(3).ok());
  EXPECT_TRUE(a.Run(graph, {1, 2}).status.ok());
}

// A reader that is slow holds what it reads, also when the handle is freed.
TEST_F(TenantMemory, IsChargedUntilTheLastReferenceGoes) {
  Serve("[a]\ndevice_memory = 1MiB");
  Client a = Connect("a");
  EXPECT_TRUE(a.Alloc(1, 700'000).ok());
  {
    const Answer reading = a.Do(ReadOp{1, 0, 700'000});
    ASSERT_TRUE(reading.status.ok() && As<ReadResult>(reading).held != nullptr);
    EXPECT_TRUE(a.Free(1).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(a.Alloc(2, 700'000)));
    EXPECT_TRUE(a.Free(2).ok());
  }
  EXPECT_TRUE(a.Alloc(3, 700'000).ok());
}

TEST_F(TenantMemory, WhatOneFreesIsZeroForTheNext) {
  Serve("[*]");
  Client a = Connect("a"), b = Connect("b");
  // Pieces of slabs, whole slabs and blocks; as many as a may have, so that b gets the same memory.
  for (const int64_t bytes : {int64_t{64}, int64_t{1000}, 200 * int64_t{1024}, 3 * kMiB}) {
    const int64_t count = std::min<int64_t>(20 * kMiB / bytes, 500);
    for (int64_t h = 1; h <= count; ++h) {
      ASSERT_TRUE(a.Alloc(static_cast<uint64_t>(h), bytes).ok());
      ASSERT_TRUE(a.Write(static_cast<uint64_t>(h), std::string(bytes, '\xa5')).ok());
    }
    for (int64_t h = 1; h <= count; ++h) ASSERT_TRUE(a.Free(static_cast<uint64_t>(h)).ok());
    for (int64_t h = 1; h <= count; ++h) {
      ASSERT_TRUE(b.Alloc(static_cast<uint64_t>(h), bytes).ok());
      ASSERT_EQ(b.Read(static_cast<uint64_t>(h), bytes), std::string(bytes, '\0')) << bytes;
    }
    for (int64_t h = 1; h <= count; ++h) ASSERT_TRUE(b.Free(static_cast<uint64_t>(h)).ok());
  }
}

// The engine's own memory, looked at from inside: a's temporaries keep what a computed for its next
// run, b's begin with zeros although a has given back the very same memory.
TEST_F(TenantMemory, TemporariesOfOneAreZeroForTheNext) {
  const auto bytes = [](const BufferView& view) {
    return std::string(static_cast<const char*>(view.memory->host()),
                       static_cast<size_t>(view.length));
  };
  for (const int64_t size : {int64_t{4096}, 4 * kMiB}) {
    Temporaries a(device_, nullptr, caches_->temporaries);
    Temporaries b(device_, nullptr, caches_->temporaries);
    void* first = nullptr;
    {
      const auto view = a.Shared(size);
      ASSERT_TRUE(view.ok()) << view.status();
      first = view->memory->host();
      std::memset(first, 0xa5, static_cast<size_t>(size));
    }
    EXPECT_EQ(bytes(*a.Shared(size)), std::string(static_cast<size_t>(size), '\xa5'));
    EXPECT_EQ(bytes(*b.Shared(size)), std::string(static_cast<size_t>(size), '\0')) << "beside a's";
    b.Release();
    a.Release();
    const auto reused = b.Shared(size);
    ASSERT_TRUE(reused.ok());
    EXPECT_EQ(reused->memory->host(), first) << "so that the next line says something";
    EXPECT_EQ(bytes(*reused), std::string(static_cast<size_t>(size), '\0'));
  }
}

TEST_F(TenantMemory, OneIsNotToldWhatAnotherHas) {
  Serve("[*]");
  Client a = Connect("a"), b = Connect("b");
  const FrozenGraph graph = ThroughTemporary(100);
  for (Client* client : {&a, &b}) {
    EXPECT_TRUE(client->Alloc(1, 400).ok() && client->Alloc(2, 400).ok());
  }
  EXPECT_TRUE(a.Put(graph).ok());
  ASSERT_TRUE(a.Run(graph, {1, 2}).status.ok());
  EXPECT_FALSE(b.Has(graph));
  EXPECT_TRUE(absl::IsNotFound(b.Run(graph, {1, 2}).status));
  EXPECT_TRUE(b.Put(graph).ok());
  const Answer first = b.Run(graph, {1, 2});
  ASSERT_TRUE(first.status.ok());
  EXPECT_FALSE(As<RunResult>(first).cached) << "a has it cached";
  EXPECT_GT(As<RunResult>(first).compile_ns, 0u);
  EXPECT_TRUE(As<RunResult>(b.Run(graph, {1, 2})).cached);
  EXPECT_EQ(caches_->stats().kernels_compiled, 2u) << "the code is shared all the same";
  EXPECT_EQ(Used("a", Quota::kCacheBytes), Used("b", Quota::kCacheBytes)) << "and charged to both";

  const absl::Status full = b.Alloc(3, 64 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_EQ(full.message(),
            "CPU:0, whose limit is 67108864 bytes for all, has no room for 67108864 now");
}

// The device is full of temporaries that a keeps for its next run, and no run uses.
TEST_F(TenantMemory, WhatOneKeepsGoesToWhoNeedsIt) {
  Serve("[*]");
  const FrozenGraph graph = ThroughTemporary(5 * kMiB);  // 20 MiB each
  Client a = Connect("a"), b = Connect("b");
  EXPECT_TRUE(a.Alloc(1, 20 * kMiB).ok() && a.Alloc(2, 20 * kMiB).ok());
  EXPECT_TRUE(a.Put(graph).ok());
  ASSERT_TRUE(a.Run(graph, {1, 2}).status.ok());
  EXPECT_EQ(device_->memory_used(), 60 * kMiB);
  EXPECT_TRUE(b.Alloc(1, 10 * kMiB).ok());
  EXPECT_EQ(Used("a", Quota::kDeviceMemory), 40 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(a.Run(graph, {1, 2}).status));
  EXPECT_TRUE(b.Free(1).ok());
  EXPECT_TRUE(a.Run(graph, {1, 2}).status.ok());
}

TEST_F(TenantMemory, CacheBytesDropTheLeastRecentlyUsed) {
  Serve("[probe]\n[a]\ncache_bytes = 1");
  const FrozenGraph graphs[] = {ThroughTemporary(100), ThroughTemporary(200),
                                ThroughTemporary(300)};
  int64_t bytes[3];
  {
    Client probe = Connect("probe");
    EXPECT_TRUE(probe.Alloc(1, 2000).ok() && probe.Alloc(2, 2000).ok());
    int64_t before = 0;
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(probe.Put(graphs[i]).ok());
      ASSERT_TRUE(probe.Run(graphs[i], {1, 2}).status.ok());
      bytes[i] = Used("probe", Quota::kCacheBytes) - before;
      before += bytes[i];
      EXPECT_GT(bytes[i], 1000) << "two kernels";
    }
  }
  Client tiny = Connect("a");
  EXPECT_TRUE(tiny.Alloc(1, 2000).ok() && tiny.Alloc(2, 2000).ok() && tiny.Put(graphs[0]).ok());
  EXPECT_TRUE(tiny.Run(graphs[0], {1, 2}).status.ok()) << "used once, not kept";
  EXPECT_EQ(Used("a", Quota::kCacheBytes), 0);

  Serve(StrCat("[two]\ncache_bytes = ", bytes[0] + bytes[1] + bytes[2] - 1));
  Client two = Connect("two");
  EXPECT_TRUE(two.Alloc(1, 2000).ok() && two.Alloc(2, 2000).ok());
  const auto cached = [&](int i) {
    EXPECT_TRUE(two.Put(graphs[i]).ok());
    const Answer answer = two.Run(graphs[i], {1, 2});
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    return As<RunResult>(answer).cached;
  };
  for (const int i : {0, 1}) EXPECT_FALSE(cached(i));
  EXPECT_TRUE(cached(0));
  EXPECT_FALSE(cached(2));
  EXPECT_EQ(Used("two", Quota::kCacheBytes), bytes[0] + bytes[2]);
  EXPECT_TRUE(cached(0));
  EXPECT_FALSE(cached(1)) << "used longest ago when 2 came";
}

TEST_F(TenantMemory, EveryAccountIsZeroInTheEnd) {
  Serve("[*]");
  std::vector<Accounts> accounts;
  for (const std::string_view name : {"a", "b", "c", "d"}) {
    Client client = Connect(name);
    const FrozenGraph graph = ThroughTemporary(1000);
    EXPECT_TRUE(client.Alloc(1, 4000).ok() && client.Alloc(2, 4000).ok());
    EXPECT_TRUE(client.Write(1, std::string(4000, 'x')).ok());
    EXPECT_TRUE(client.Put(graph).ok());
    ASSERT_TRUE(client.Run(graph, {1, 2}).status.ok());
    client.Read(2, 4000);
    accounts.push_back(Find(name)->accounts);
    for (const Quota quota : {Quota::kDeviceMemory, Quota::kGraphs, Quota::kCacheBytes}) {
      EXPECT_GT(accounts.back()[quota].used(), 0);
    }
  }
  EXPECT_TRUE(NothingIsInUse());
  EXPECT_EQ(directory_->All().size(), 3u) << "two idle ones, and the last to come";
  directory_.reset();
  // A callback may still be letting go of its session.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto all_given_back = [&] {
    return std::ranges::all_of(accounts, [](const Accounts& of) {
      return std::ranges::all_of(std::views::iota(0, kNumQuotas),
                                 [&](int q) { return of[static_cast<Quota>(q)].used() == 0; });
    });
  };
  while (!all_given_back() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  for (const Accounts& of : accounts) {
    for (int q = 0; q < kNumQuotas; ++q) {
      EXPECT_EQ(of[static_cast<Quota>(q)].used(), 0) << of[static_cast<Quota>(q)].name();
    }
  }
}

}  // namespace
}  // namespace telegrad
