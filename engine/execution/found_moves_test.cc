// What searches have found comes back as it was put, or not at all, whatever happens to the files;
// kernels are made with it, or with the heuristic's list where it does not fit.
#include "engine/execution/found_moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "devices/cpu/cpu_device.h"
#include "engine/base/files.h"
#include "engine/base/strings.h"
#include "engine/compile/compiler.h"
#include "engine/execution/device_measure.h"
#include "engine/execution/kernel_cache.h"
#include "engine/execution/kernel_heat.h"
#include "engine/execution/prediction.h"
#include "engine/ir/content_hash.h"
#include "engine/lowering/lower.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

const FoundList kList{.moves = "VECTORIZE r0 4, THREAD r0, OUTER r0",
                      .better = true,
                      .heuristic_ns = 500,
                      .best_ns = 400,
                      .measured = 77};

bool Same(const FoundList& a, const FoundList& b) {
  return a.moves == b.moves && a.better == b.better && a.heuristic_ns == b.heuristic_ns &&
         a.best_ns == b.best_ns && a.measured == b.measured;
}

class FoundMovesTest : public ::testing::Test {
 protected:
  FoundMovesTest()
      : path_(StrCat(testing::TempDir(), "found_", getpid(), "_",
                     testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(path_);
  }
  ~FoundMovesTest() override { fs::remove_all(path_); }

  std::unique_ptr<FoundMoves> Open() {
    return *FoundMoves::Open(
        {.path = path_, .on_ignored = [this](const std::string&, const std::string& why) {
           ignored_.push_back(why);
         }});
  }
  std::string FileOf(const std::string& key) const {
    return path_ + "/" + FoundMoves::FileName(key);
  }

  const std::string path_;
  std::vector<std::string> ignored_;
};

TEST_F(FoundMovesTest, AreThereAfterARestart) {
  const std::string key = FoundMoves::Key("abc", {}, "target");
  EXPECT_FALSE(Open()->Get(key));
  Open()->Put(key, kList);
  const auto list = Open()->Get(key);
  ASSERT_TRUE(list);
  EXPECT_TRUE(Same(*list, kList));
  EXPECT_FALSE(Open()->Get(FoundMoves::Key("abd", {}, "target")));
  const int32_t weights[] = {1};
  EXPECT_FALSE(Open()->Get(FoundMoves::Key("abc", weights, "target")));
  EXPECT_FALSE(Open()->Get(FoundMoves::Key("abc", {}, "target2")));
  EXPECT_TRUE(ignored_.empty());
}

// Of a file that was changed in any way nothing is used, and it is said why.
TEST_F(FoundMovesTest, ChangedFilesAreIgnored) {
  const std::string key = FoundMoves::Key("abc", {}, "target");
  const std::string good = FoundMoves::ToFile(key, kList);
  std::mt19937_64 rng(11);
  int changed = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good;
    switch (rng() % 4) {
      case 0:
        bad[rng() % bad.size()] = static_cast<char>(rng());
        break;
      case 1:
        bad.resize(rng() % bad.size());
        break;
      case 2:
        bad.insert(rng() % bad.size(), 1, static_cast<char>(rng()));
        break;
      default:
        bad.erase(rng() % bad.size(), 1 + rng() % 20);
    }
    if (bad == good) continue;
    ++changed;
    EXPECT_FALSE(FoundMoves::FromFile(bad, key).ok()) << i << ": " << bad;
  }
  EXPECT_GT(changed, 1900);
  ASSERT_TRUE(FoundMoves::FromFile(good, key).ok());
  // Whoever can write the checksum can write a list, which is then read like any other text.
  FoundList hostile = kList;
  hostile.moves = "UPCAST r0 99999999999999999999";
  EXPECT_FALSE(FoundMoves::FromFile(FoundMoves::ToFile(key, hostile), key).ok());
  hostile.moves = std::string(100'000, 'x');
  EXPECT_FALSE(FoundMoves::FromFile(FoundMoves::ToFile(key, hostile), key).ok());
  EXPECT_FALSE(FoundMoves::FromFile(good, key + "x").ok());

  Open()->Put(key, kList);
  std::ofstream(FileOf(key), std::ios::trunc) << good.substr(0, good.size() - 3);
  EXPECT_FALSE(Open()->Get(key));
  ASSERT_EQ(ignored_.size(), 1u);
  EXPECT_THAT(ignored_[0], ::testing::HasSubstr("checksum"));
  EXPECT_FALSE(fs::exists(FileOf(key)));
}

TEST_F(FoundMovesTest, AFolderThatOthersWriteIsRefused) {
  fs::create_directory(path_);
  fs::permissions(path_, fs::perms::all);
  EXPECT_TRUE(absl::IsFailedPrecondition(FoundMoves::Open({.path = path_}).status()));
}

// y[i] = x[i] + x[i]
FrozenGraph Twice() {
  Graph g;
  const UOp i = g.Range(0, AxisType::kLoop, g.Index(4096));
  const UOp x =
      g.Make(Op::kLoad, {g.Make(Op::kIndex, {g.Param(1, DType::kFloat32, Shape{4096}), i})});
  const UOp to = g.Make(Op::kIndex, {g.Param(0, DType::kFloat32, Shape{4096}), i});
  const UOp store = g.Make(Op::kStore, {to, g.Make(Op::kAdd, {x, x})});
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kEnd, DType::kVoid, {store, i}, {})}));
}

class FoundKernelTest : public FoundMovesTest {
 protected:
  FoundKernelTest() : found_(Open()) {
    CpuOptions options;
    options.threads = 2;
    options.target = HostTarget(2);
    device_ = *OpenCpu(options);
    services_.found = found_;
    services_.heat = heat_;
    key_ = FoundMoves::Key(ContentHash(Twice().root()).Hex(), {}, device_->target().Key());
  }
  std::shared_ptr<const Kernel> Get(KernelCache& cache) {
    Budget budget;
    const auto kernel = cache.Get(Twice(), *device_, &budget);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return kernel.ok() ? *kernel : nullptr;
  }

  std::unique_ptr<Device> device_;
  const std::shared_ptr<FoundMoves> found_;
  const std::shared_ptr<KernelHeat> heat_ = std::make_shared<KernelHeat>();
  KernelServices services_;
  std::string key_;
};

TEST_F(FoundKernelTest, AKernelIsMadeWithTheListThatWasFound) {
  KernelCache cache(100, services_);
  const auto before = Get(cache);
  EXPECT_FALSE(before->found);
  found_->Put(key_, {.moves = before->moves, .better = false});
  EXPECT_EQ(Get(cache), before);  // nothing better was found
  found_->Put(key_, kList);
  const auto after = Get(cache);
  EXPECT_NE(after, before);
  EXPECT_EQ(after->moves, kList.moves);
  EXPECT_EQ(Get(cache), after);
  EXPECT_EQ(cache.stats().compiled, 2u);
}

// Two ranges, of which the kernel has one; and what no kernel could have.
TEST_F(FoundKernelTest, AListThatDoesNotFitIsIgnored) {
  for (const char* moves : {"UPCAST r7 2", "THREAD r0, THREAD r0", "VECTORIZE r0 4096"}) {
    KernelCache cache(100, services_);
    FoundList list = kList;
    list.moves = moves;
    found_->Put(key_, list);
    const size_t before = ignored_.size();
    const auto kernel = Get(cache);
    ASSERT_NE(kernel, nullptr);
    EXPECT_NE(kernel->moves, moves);
    EXPECT_EQ(ignored_.size(), before + 1);
    EXPECT_FALSE(found_->Get(key_));
  }
}

// What is left of a caller's budget says nothing of a list that others use.
TEST_F(FoundKernelTest, AListOutlivesABudgetThatIsUsedUp) {
  KernelCache cache(100, services_);
  found_->Put(key_, kList);
  Budget::Limits limits;
  limits.steps = 1;
  Budget budget(limits);
  EXPECT_TRUE(absl::IsResourceExhausted(cache.Get(Twice(), *device_, &budget).status()));
  EXPECT_TRUE(found_->Get(key_));
  EXPECT_EQ(Get(cache)->moves, kList.moves);
}

// A long program is measured in slices, as it is run, and one that is too long is not.
TEST_F(FoundKernelTest, MeasuringCutsLaunches) {
  Budget budget;
  auto program = Lower(Twice(), device_->target(), "k", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  program->flops = 20e-3 * device_->rates().launch_flops();
  program->iterations = 4096;
  std::vector<RunSlice> slices;
  MeasureOptions options;
  options.run = [&](std::shared_ptr<const std::vector<RunSlice>> given,
                    const std::vector<BufferView>&) -> absl::StatusOr<double> {
    slices = *given;
    return 0.02;
  };
  DeviceMeasure measure(*device_, CompileInProcess(), options);
  ASSERT_TRUE(measure.Seconds(*program, HUGE_VAL, &budget).ok());
  EXPECT_GE(slices.size(), 4u);
  for (const RunSlice& slice : slices) EXPECT_LE(slice.seconds, kSegmentSeconds * 1.001);
  options.longest_seconds = 0.01;
  DeviceMeasure strict(*device_, CompileInProcess(), options);
  const absl::Status refused = strict.Seconds(*program, HUGE_VAL, &budget).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
}

// Loops that end at a number of the run are measured with all of their iterations.
TEST_F(FoundKernelTest, MeasuringEndsNoLoopEarly) {
  Graph g;
  const UOp zero = g.Index(0), r = g.Range(0, AxisType::kReduce, g.Index(64));
  const auto load = [&](int64_t slot, DType dtype, int64_t n, UOp index) {
    return g.Make(Op::kLoad, {g.Make(Op::kIndex, {g.Param(slot, dtype, Shape{n}), index})});
  };
  const auto negated = [&](UOp x) { return g.Make(Op::kMul, {x, g.Index(-1)}); };
  const UOp loaded = g.Make(Op::kMax, {load(1, DType::kInt64, 1, zero), zero});
  const UOp given = negated(g.Make(Op::kMax, {negated(loaded), g.Index(-64)}));
  const UOp value =
      g.Make(Op::kWhere, {g.Make(Op::kCmpLt, {r, given}), load(2, DType::kFloat32, 64, r),
                          g.ConstFloat(DType::kFloat32, 0)});
  const UOp sum =
      g.Make(Op::kReduce, DType::kVoid, {value, r}, {static_cast<int64_t>(ReduceKind::kAdd)});
  const UOp to = g.Make(Op::kIndex, {g.Param(0, DType::kFloat32, Shape{1}), zero});
  const FrozenGraph kernel = Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {to, sum})}));
  Budget budget;
  const auto program = Lower(kernel, device_->target(), "k", &budget);
  ASSERT_TRUE(program.ok()) << program.status();
  int64_t number = 0;
  MeasureOptions options;
  options.run = [&](std::shared_ptr<const std::vector<RunSlice>>,
                    const std::vector<BufferView>& bindings) -> absl::StatusOr<double> {
    number = *static_cast<const int64_t*>(bindings[1].memory->host());
    return 1e-3;
  };
  DeviceMeasure measure(*device_, CompileInProcess(), options);
  ASSERT_TRUE(measure.Seconds(*program, HUGE_VAL, &budget).ok());
  EXPECT_GE(number, 64);
}

TEST_F(FoundKernelTest, TheHottestKernelIsTakenOnce) {
  KernelCache cache(100, services_);
  const auto kernel = Get(cache);
  KernelInfo info;
  info.heat = kernel->heat;
  info.seconds = 3;
  KernelInfo other;
  other.seconds = 1;
  const auto share = std::make_shared<const Share>("a"), more = std::make_shared<const Share>("b");
  const KernelInfo both[] = {info, other};
  heat_->Spent(both, 400, share);
  EXPECT_FALSE(heat_->TakeHottest(301));
  heat_->Spent(both, 800, more);
  EXPECT_FALSE(heat_->TakeHottest(901));
  const auto hot = heat_->TakeHottest(900);
  ASSERT_TRUE(hot);
  EXPECT_EQ(hot->key, key_);
  EXPECT_EQ(hot->ns, 900);
  EXPECT_EQ(hot->share, more);
  heat_->Spent(both, 10'000, share);
  EXPECT_FALSE(heat_->TakeHottest(1));
  heat_->PutBack(key_);
  EXPECT_EQ(heat_->TakeHottest(1)->ns, 7500);
}

TEST(KernelHeat, KnowsNothingOfWhatIsTooLarge) {
  Graph g;
  const UOp x = g.Param(1, DType::kFloat32, Shape{1});
  UOp sum = g.Make(Op::kLoad, {g.Make(Op::kIndex, {x, g.Index(0)})});
  for (int i = 0; i < 5000; ++i) sum = g.Make(Op::kAdd, {sum, sum});
  const UOp to = g.Make(Op::kIndex, {g.Param(0, DType::kFloat32, Shape{1}), g.Index(0)});
  const FrozenGraph graph = Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {to, sum})}));
  EXPECT_EQ(KernelHeat().Know({"0", "k", graph, {}, "CPU:0"}), 0u);
}

TEST(KernelHeat, KnowsABoundedNumber) {
  KernelHeat heat(3);
  Graph g;
  const FrozenGraph graph = Twice();
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 3; ++i) numbers.push_back(heat.Know({StrCat(i), "k", graph, {}, "CPU:0"}));
  for (int i : {0, 2}) {
    KernelInfo info;
    info.heat = numbers[static_cast<size_t>(i)];
    info.seconds = 1;
    heat.Spent({&info, 1}, 100 + i, nullptr);
  }
  heat.Know({"3", "k", graph, {}, "CPU:0"});  // takes the place of 1, which has taken nothing
  EXPECT_EQ(heat.Know({"0", "k", graph, {}, "CPU:0"}), numbers[0]);
  EXPECT_EQ(heat.TakeHottest(1)->key, "2");
  EXPECT_EQ(heat.TakeHottest(1)->key, "0");
  EXPECT_FALSE(heat.TakeHottest(1));
}

// However hot the kernels of one tenant are, those of another have their share of the places.
void ExpectThatPlacesAreShared(const std::shared_ptr<Share>& many,
                               const std::shared_ptr<Share>& few) {
  many->SetWeight(1);
  few->SetWeight(3);
  KernelHeat heat(8);
  const FrozenGraph graph = Twice();
  const auto know = [&](const std::string& key, const std::shared_ptr<const Share>& share,
                        int64_t ns) {
    KernelInfo info;
    info.heat = heat.Know({key, "k", graph, {}, "CPU:0"}, share);
    info.seconds = 1;
    heat.Spent({&info, 1}, ns, share);
    return info.heat;
  };
  for (int i = 0; i < 8; ++i) know(StrCat("m", i), many, 1'000'000 + i);
  std::vector<uint64_t> numbers;
  for (int i = 0; i < 6; ++i) numbers.push_back(know(StrCat("f", i), few, 10 + i));
  for (int i = 8; i < 100; ++i) know(StrCat("m", i), many, 1'000'000 + i);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(know(StrCat("f", i), few, 0), numbers[static_cast<size_t>(i)]) << "of weight 3 of 4";
  }
  EXPECT_EQ(heat.TakeHottest(1)->key, "m99");
}

TEST(KernelHeat, NoTenantTakesThePlacesOfAnother) {
  const auto a = std::make_shared<Share>("a"), b = std::make_shared<Share>("b");
  ExpectThatPlacesAreShared(a, b);  // whichever of them has the lower address
  ExpectThatPlacesAreShared(b, a);
}

}  // namespace
}  // namespace telegrad
