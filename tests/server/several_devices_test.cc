// A session's runs over several devices, with the real engine: which device a graph's number means,
// and the order of runs whose transfers are in other queues.
#include <cstring>

#include "devices/cpu/cpu_device.h"
#include "devices/drivers.h"
#include "engine/compile/compiler.h"
#include "engine/ir/content_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/session/session.h"
#include "server/tenant/caching_engine.h"
#include "tests/fakes/loopback/graph_loader.h"
#include "tests/fakes/loopback/loopback_device.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/server/session_ends.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kI32 = DType::kInt32;

class SeveralDevices : public ::testing::Test {
 protected:
  SeveralDevices() {
    DriverOptions options;
    options.host = HostTarget(2);
    options.cpu_memory = int64_t{64} << 20;
    options.cpu_devices = 2;
    options.disk_roots = {"d=" + directory_.path().string()};
    options.disk_growth = 1000;
    std::vector<std::unique_ptr<Device>> devices = *OpenDevices(options);
    devices.push_back(OpenLoopback(
        {.inner =
             *OpenCpu({.threads = 1, .memory_limit = int64_t{64} << 20, .target = HostTarget(1)}),
         .load =
             MakeGraphLoader(std::make_shared<ExecutableCache>(ExecutableCache::Limits{}), {})}));
    pool_ = *DevicePool::Create(std::move(devices));
    env_ = {pool_.get(), &workers_, &compilers_, &metrics_, {}};
    const Accounts accounts("test", Quotas(), "");
    tenant_ = std::make_shared<Tenant>(
        "test", accounts,
        std::make_shared<CachingEngine>(ExecutableCache::Limits{}, caches_, accounts.for_caches()),
        &metrics_);
    session_ = std::make_shared<Session>(env_, tenant_, SessionTerms{.id = 1}, answers_);
  }
  ~SeveralDevices() override { session_->Close(); }

  template <typename Op>
  uint64_t Submit(Op op) {
    EXPECT_TRUE(
        session_->Submit(*answers_, {.id = ++last_id_, .action = MakeAction(std::move(op))}).ok());
    return last_id_;
  }
  absl::Status StatusOf(uint64_t id) { return answers_->Take(id).status; }
  void Alloc(uint64_t handle, std::string device, std::vector<int32_t> words = {0, 0, 0, 0}) {
    Submit(AllocOp{handle, 16, std::move(device)});
    Write(handle, words);
    ASSERT_TRUE(StatusOf(Submit(SyncOp{})).ok());
  }
  void Write(uint64_t handle, const std::vector<int32_t>& words) {
    std::string bytes(reinterpret_cast<const char*>(words.data()), 4 * words.size());
    Submit(WriteOp{handle, 0, std::make_unique<StringPayload>(std::move(bytes))});
  }
  std::vector<int32_t> Read(uint64_t handle) {
    const Answer answer = answers_->Take(Submit(ReadOp{handle, 0, 16}));
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    if (!answer.status.ok()) return {};
    const auto& result = As<ReadResult>(answer);
    std::vector<int32_t> words(4);
    const void* from = result.held ? result.held->memory()->host() : result.copy.data();
    std::memcpy(words.data(), from, 16);
    return words;
  }

  UOp Param(int64_t slot, int64_t device) { return g_.Param(slot, kI32, Shape{4}, device); }
  UOp Copy(UOp x, int64_t device) { return g_.Make(Op::kCopy, DType::kVoid, {x}, {device}); }
  std::string Put(const std::vector<std::pair<UOp, UOp>>& stores) {
    std::vector<UOp> roots;
    for (const auto& [to, value] : stores) roots.push_back(g_.Make(Op::kStore, {to, value}));
    const FrozenGraph graph = Freeze(g_.Make(Op::kSink, DType::kVoid, roots));
    const Digest hash = ContentHash(graph.root());
    const absl::Status put = StatusOf(Submit(PutOf(graph, /*compile=*/true)));
    EXPECT_TRUE(put.ok()) << put;
    return std::string(hash.view());
  }
  // slot 1 (number 1) += slot 0 (number 0).
  std::string AddAcross() {
    return Put({{Param(1, 1), g_.Make(Op::kAdd, {Param(1, 1), Copy(Param(0, 0), 1)})}});
  }
  uint64_t Run(const std::string& hash, std::vector<uint64_t> handles,
               std::vector<std::string> devices = {}) {
    return Submit(
        RunOp{.hash = hash, .handles = std::move(handles), .devices = std::move(devices)});
  }

  TemporaryDirectory directory_;
  Graph g_;
  std::shared_ptr<SharedCaches> caches_ = std::make_shared<SharedCaches>(ExecutableCache::Limits{});
  Metrics metrics_;
  std::unique_ptr<DevicePool> pool_;
  TaskPool workers_{1};
  TaskPool compilers_{1};
  Environment env_;
  std::shared_ptr<Tenant> tenant_;
  std::shared_ptr<Sink> answers_ = std::make_shared<Sink>();
  std::shared_ptr<Session> session_;
  uint64_t last_id_ = 0;
};

TEST_F(SeveralDevices, NumbersAreTheDevicesOfTheBuffers) {
  Alloc(1, "CPU:0", {1, 2, 3, 4});
  Alloc(2, "CPU:1", {10, 20, 30, 40});
  const std::string add = AddAcross();
  ASSERT_TRUE(StatusOf(Run(add, {1, 2})).ok());
  EXPECT_THAT(Read(2), ElementsAre(11, 22, 33, 44));
  EXPECT_EQ(caches_->stats().bytes_sent, 16);
  // The other way round it is the same graph.
  ASSERT_TRUE(StatusOf(Run(add, {2, 1})).ok());
  EXPECT_THAT(Read(1), ElementsAre(12, 24, 36, 48));
  EXPECT_EQ(caches_->stats().bytes_sent, 32);
  // On one device nothing is sent.
  Alloc(3, "CPU:0", {1, 1, 1, 1});
  ASSERT_TRUE(StatusOf(Run(add, {3, 1})).ok());
  EXPECT_THAT(Read(1), ElementsAre(13, 25, 37, 49));
  EXPECT_EQ(caches_->stats().bytes_sent, 32);
}

TEST_F(SeveralDevices, TheRequestSaysWhatNoSlotDoes) {
  // Device 1 computes, and has no slot.
  const UOp there = Copy(Param(0, 0), 1);
  const std::string graph = Put({{Param(1, 0), Copy(g_.Make(Op::kMul, {there, there}), 0)}});
  Alloc(1, "CPU:0", {1, 2, 3, 4});
  Alloc(2, "CPU:0");
  ASSERT_TRUE(StatusOf(Run(graph, {1, 2}, {"CPU:0", "LOOPBACK:0"})).ok());
  EXPECT_THAT(Read(2), ElementsAre(1, 4, 9, 16));
  EXPECT_EQ(caches_->stats().bytes_sent, 32);
  // The server's second device, where the request says nothing; the buffers' own.
  ASSERT_TRUE(StatusOf(Run(graph, {2, 1})).ok());
  EXPECT_THAT(Read(1), ElementsAre(1, 16, 81, 256));
  ASSERT_TRUE(StatusOf(Run(graph, {1, 2}, {"", "CPU:0"})).ok());
  EXPECT_THAT(Read(2), ElementsAre(1, 256, 6561, 65536));
  EXPECT_EQ(caches_->stats().bytes_sent, 64);
}

TEST_F(SeveralDevices, BuffersLieBeyondTheSeam) {
  Alloc(1, "LOOPBACK:0", {1, 2, 3, 4});
  Alloc(2, "CPU:1", {10, 20, 30, 40});
  const std::string add = AddAcross();
  ASSERT_TRUE(StatusOf(Run(add, {1, 2})).ok());
  EXPECT_THAT(Read(2), ElementsAre(11, 22, 33, 44));
  ASSERT_TRUE(StatusOf(Run(add, {2, 1})).ok());
  EXPECT_THAT(Read(1), ElementsAre(12, 24, 36, 48));
  // All of it beyond.
  Alloc(3, "LOOPBACK:0", {1, 1, 1, 1});
  ASSERT_TRUE(StatusOf(Run(add, {3, 1})).ok());
  EXPECT_THAT(Read(1), ElementsAre(13, 25, 37, 49));
  EXPECT_EQ(caches_->stats().bytes_sent, 32);
}

// What a run keeps on a disk between its steps is written there.
TEST_F(SeveralDevices, ADiskThatMayOnlyBeReadHoldsNoValuesOfRuns) {
  Alloc(1, "CPU:0", {1, 2, 3, 4});
  Alloc(2, "CPU:0");
  const std::string hash = Put({{Param(1, 0), Copy(Copy(Param(0, 0), 1), 0)}});
  tenant_->Grant({.read = {"*"}});
  const absl::Status refused = StatusOf(Run(hash, {1, 2}, {"CPU:0", "DISK:d"}));
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("may not write DISK:d"));
  tenant_->Grant({.write = {"d"}});
  const absl::Status granted = StatusOf(Run(hash, {1, 2}, {"CPU:0", "DISK:d"}));
  EXPECT_TRUE(granted.ok()) << granted;
  EXPECT_THAT(Read(2), ElementsAre(1, 2, 3, 4));
}

// A value of up to 4 MB is handed over, of which the run has 40 bytes: the limit of a run is for
// those. Of more it is refused.
TEST_F(SeveralDevices, TheLimitOfARunIsForWhatItsValuesNeed) {
  session_->Close();
  constexpr int64_t kLimit = int64_t{1} << 20, kMost = int64_t{1} << 20;
  env_.limits.run.bytes = kLimit;
  const Accounts accounts("limited", Quotas(), "");
  tenant_ =
      std::make_shared<Tenant>("limited", accounts,
                               std::make_shared<CachingEngine>(ExecutableCache::Limits{}, caches_,
                                                               accounts.for_caches(), kLimit),
                               &metrics_);
  session_ = std::make_shared<Session>(env_, tenant_, SessionTerms{.id = 2}, answers_);
  const UOp n = g_.Make(Op::kVar, DType::kVoid, {}, {0, 0, kMost, 1});
  const UOp iota = g_.Make(Op::kCast, kI32, {g_.Make(Op::kIota, DType::kInt64, {n}, {-1})});
  const UOp one = g_.Make(Op::kShrink, {Param(0, 0)}, std::vector<int64_t>{0, 1});
  const UOp x = g_.Make(Op::kAdd, {iota, g_.Make(Op::kReshape, DType::kVoid, {one}, {})});
  const UOp sum = g_.Make(Op::kReduce, {Copy(x, 1)}, std::vector<int64_t>{0, 0});
  const UOp all = g_.Make(Op::kExpand, {g_.Make(Op::kReshape, {sum}, Shape{1})}, Shape{4});
  const std::string graph = Put({{Param(1, 1), all}});
  Alloc(1, "CPU:0", {1, 0, 0, 0});
  Alloc(2, "CPU:1");
  const auto run = [&](int64_t value) {
    return StatusOf(Submit(RunOp{.hash = graph, .handles = {1, 2}, .variables = {{0, value}}}));
  };
  ASSERT_TRUE(run(10).ok());
  EXPECT_THAT(Read(2), ElementsAre(55, 55, 55, 55));
  EXPECT_THAT(run(kMost).message(), HasSubstr("--run-memory"));
}

TEST_F(SeveralDevices, ErrorsNameTheSlotAndTheDevice) {
  Alloc(1, "CPU:0");
  Alloc(2, "CPU:1");
  const std::string add = AddAcross();
  EXPECT_THAT(StatusOf(Run(add, {1, 2}, {"CPU:1"})).message(),
              HasSubstr("slot 0 is on CPU:0, but the graph has it on device 0, which is CPU:1"));
  EXPECT_THAT(StatusOf(Run(add, {1, 2}, {"GPU:0"})).message(), HasSubstr("unknown device"));
  const std::string same = Put({{Param(1, 0), g_.Make(Op::kNeg, {Param(0, 0)})}});
  EXPECT_THAT(StatusOf(Run(same, {1, 2})).message(),
              HasSubstr("slot 1 is on CPU:1, but the graph has it on device 0, which is CPU:0"));
  const std::string far = Put({{Param(1, 0), Copy(Copy(Param(0, 0), 9), 0)}});
  const absl::Status nowhere = StatusOf(Run(far, {1, 1}));
  EXPECT_EQ(nowhere.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(nowhere.message(), HasSubstr("names device 9"));
  EXPECT_THAT(nowhere.message(), HasSubstr("this server has 4 devices"));
  // What would have been written is poisoned, nothing else.
  Alloc(3, "CPU:1");
  EXPECT_FALSE(StatusOf(Run(add, {3, 2}, {"CPU:0"})).ok());
  EXPECT_FALSE(StatusOf(Submit(ReadOp{2, 0, 16})).ok());
  EXPECT_THAT(Read(3), ElementsAre(0, 0, 0, 0));
}

// A transfer reads a buffer in a queue of its own; the run that overwrites it comes after.
TEST_F(SeveralDevices, WhatATransferReadsIsOverwrittenAfterIt) {
  Alloc(1, "CPU:0", {1, 1, 1, 1});
  Alloc(2, "CPU:1");
  Alloc(3, "CPU:0", {5, 5, 5, 5});
  const std::string add = AddAcross();
  const std::string grow = Put({{Param(0, 0), g_.Make(Op::kAdd, {Param(0, 0), Param(1, 0)})}});
  int32_t w = 1, sum = 0;
  std::vector<uint64_t> ids;
  for (int i = 0; i < 200; ++i) {
    ids.push_back(Run(add, {1, 2}));
    ids.push_back(Run(grow, {1, 3}));
    sum += w;
    w += 5;
  }
  for (const uint64_t id : ids) ASSERT_TRUE(StatusOf(id).ok());
  EXPECT_THAT(Read(1), ElementsAre(w, w, w, w));
  EXPECT_THAT(Read(2), ElementsAre(sum, sum, sum, sum));
}

// So is what the host writes.
TEST_F(SeveralDevices, WhatATransferReadsIsWrittenAfterIt) {
  Alloc(1, "CPU:0");
  Alloc(2, "CPU:1");
  const std::string add = AddAcross();
  int32_t sum = 0;
  for (int32_t i = 1; i <= 100; ++i) {
    Write(1, {i, i, i, i});
    Run(add, {1, 2});
    sum += i;
  }
  EXPECT_THAT(Read(2), ElementsAre(sum, sum, sum, sum));
}

// Wherever the two buffers are; a device that the host cannot address is on either side.
TEST_F(SeveralDevices, BuffersAreCopied) {
  uint64_t handle = 1;
  for (const char* from : {"CPU:0", "CPU:1", "LOOPBACK:0"}) {
    for (const char* to : {"CPU:0", "CPU:1", "LOOPBACK:0"}) {
      SCOPED_TRACE(StrCat(from, " to ", to));
      Alloc(handle, from, {1, 2, 3, 4});
      Alloc(handle + 1, to, {5, 6, 7, 8});
      Submit(
          CopyOp{.from = handle, .from_offset = 4, .to = handle + 1, .to_offset = 8, .bytes = 8});
      EXPECT_THAT(Read(handle + 1), ElementsAre(5, 6, 2, 3));
      Submit(CopyOp{.from = handle + 1, .to = handle, .bytes = 16});
      Write(handle + 1, {0, 0, 0, 0});  // behind the copy that reads it
      EXPECT_THAT(Read(handle), ElementsAre(5, 6, 2, 3));
      EXPECT_THAT(Read(handle + 1), ElementsAre(0, 0, 0, 0));
      handle += 2;
    }
  }
}

TEST_F(SeveralDevices, CopiesThatDoNotFitSpoilTheirTarget) {
  for (const char* device : {"CPU:0", "LOOPBACK:0"}) {
    Alloc(1, device, {1, 2, 3, 4});
    Alloc(2, device, {5, 6, 7, 8});
    const auto code = [&](const CopyOp& op) { return StatusOf(Submit(op)).code(); };
    EXPECT_EQ(code({.from = 9, .to = 2, .bytes = 4}), absl::StatusCode::kNotFound);
    EXPECT_EQ(code({.from = 1, .to = 9, .bytes = 4}), absl::StatusCode::kNotFound);
    EXPECT_EQ(code({.from = 1, .from_offset = 16, .to = 2, .bytes = 1}),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(code({.from = 1, .to = 2, .to_offset = UINT64_MAX, .bytes = UINT64_MAX}),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(answers_->Take(Submit(ReadOp{2, 0, 16})).status.code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(code({.from = 1, .to = 2, .bytes = 4}), absl::StatusCode::kInvalidArgument)
        << "a part does not mend it";
    EXPECT_EQ(code({.from = 2, .to = 1, .bytes = 16}), absl::StatusCode::kInvalidArgument)
        << "nor is it worth a copy";
    Write(1, {1, 2, 3, 4});
    Submit(CopyOp{.from = 1, .to = 2, .bytes = 16});
    EXPECT_THAT(Read(2), ElementsAre(1, 2, 3, 4)) << "all of it does";
    Submit(FreeOp{{1, 2}});
  }
}

// A tenant with little room for what is on its way, and with memory for its buffers alone: an
// operation waits for what the session itself has under way.
class LittleMemory : public SeveralDevices {
 protected:
  static constexpr int64_t kBytes = int64_t{8} << 20;

  void Limit(int64_t staged, int64_t memory) {
    Quotas quotas;
    quotas[Quota::kHostStaging] = staged;
    quotas[Quota::kDeviceMemory] = memory;
    const Accounts accounts("little", quotas, "");
    tenant_ = std::make_shared<Tenant>(
        "little", accounts,
        std::make_shared<CachingEngine>(ExecutableCache::Limits{}, caches_, accounts.for_caches()),
        &metrics_);
    session_->Close();
    session_ = std::make_shared<Session>(env_, tenant_, SessionTerms{.id = 2}, answers_);
    last_id_ = 0;
  }
  void WriteAll(uint64_t handle, char value) {
    Submit(WriteOp{handle, 0, std::make_unique<StringPayload>(std::string(kBytes, value))});
  }
  // Whether the read has brought nothing but that. Lets go of its answer.
  bool Is(uint64_t read, char value) {
    const Answer answer = answers_->Take(read);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    if (!answer.status.ok()) return false;
    const auto& result = As<ReadResult>(answer);
    const auto* from = static_cast<const char*>(result.held->memory()->host());
    return std::string(from, result.bytes) == std::string(kBytes, value);
  }
};

TEST_F(LittleMemory, AReadWaitsForTheSessionsWrites) {
  Limit(kBytes, kBytes);
  Submit(AllocOp{1, kBytes, "LOOPBACK:0"});
  for (const char value : {'a', 'b', 'c'}) {
    WriteAll(1, value);  // whose bytes are being copied when the read comes
    EXPECT_TRUE(Is(Submit(ReadOp{1, 0, kBytes}), value)) << value;
  }
  const auto taken = Reservation::Charge(tenant_->accounts.shared(Quota::kHostStaging), 1);
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(Submit(ReadOp{1, 0, kBytes}))))
      << "nothing is under way that would make room";
}

// Its bytes are charged as they arrive.
TEST_F(LittleMemory, AWriteNeedsNoFurtherRoom) {
  Limit(2 * kBytes, 2 * kBytes);
  Submit(AllocOp{1, kBytes, "LOOPBACK:0"});
  Submit(AllocOp{2, kBytes, "LOOPBACK:0"});
  WriteAll(1, 'a');
  const uint64_t read = Submit(ReadOp{1, 0, kBytes});
  WriteAll(2, 'b');  // while the answer to the read is there
  EXPECT_TRUE(Is(read, 'a'));
  EXPECT_TRUE(Is(Submit(ReadOp{2, 0, kBytes}), 'b'));
  answers_->Await([&] { return tenant_->accounts[Quota::kHostStaging].used() == 0; });
}

}  // namespace
}  // namespace telegrad
