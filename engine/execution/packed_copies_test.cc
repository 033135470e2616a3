// Copies of weights: when they are made, that they follow the contents, and that they give way.
#include "engine/execution/packed_copies.h"

#include <functional>
#include <utility>

#include "engine/base/account.h"
#include "engine/execution/charged_memory.h"
#include "engine/execution/execution_test.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {
namespace {

// Panels of the weight are larger than a first-level cache whatever the width of vectors: smaller
// ones are read without a copy.
constexpr int64_t kRows = 64, kInner = 512, kColumns = 384;

class PackedCopiesTest : public ExecutionTest {
 protected:
  PackedCopiesTest() : ExecutionTest(int64_t{16} << 20) {}

  // y (slot 2) [rows, columns] = x (slot 0) [rows, inner] times w (slot 1) [inner, columns].
  static FrozenGraph Product(float scale = 1) {
    Builder b;
    const Tensor x = b.Param(DType::kFloat32, {kRows, kInner}, "x");
    const Tensor w = b.Param(DType::kFloat32, {kInner, kColumns}, "w");
    b.Output(scale == 1 ? x.MatMul(w) : x.MatMul(w) * scale, "y");
    return b.Finish()->graph;
  }

  BufferView Known(int64_t elements, float first) {
    std::vector<float> values(static_cast<size_t>(elements));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = first + static_cast<float>(i * 7 % 31) / 8;
    }
    BufferView out = Buffer(values);
    out.content = NewContent();
    return out;
  }
  static void Fill(const BufferView& view, float value) {
    auto* const to = static_cast<float*>(view.memory->host());
    std::fill(to, to + view.length / 4, value);
  }
  std::vector<float> Run(const Executable& e) {
    const auto end = e.Submit(std::vector{x_, w_, y_}, {});
    EXPECT_TRUE(end.ok() && end->Wait().ok()) << end.status();
    return Values(y_);
  }
  std::vector<float> Expected() const {
    const std::vector<float> x = Values(x_), w = Values(w_);
    std::vector<float> y(kRows * kColumns, 0);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t k = 0; k < kInner; ++k) {
        for (int64_t j = 0; j < kColumns; ++j) {
          y[i * kColumns + j] += x[i * kInner + k] * w[k * kColumns + j];
        }
      }
    }
    return y;
  }
  void ExpectRight(const Executable& e) {
    const std::vector<float> want = Expected(), got = Run(e);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-3F * (1 + std::abs(want[i]))) << i;
    }
  }

  BufferView x_ = Known(kRows * kInner, -1), w_ = Known(kInner * kColumns, -2),
             y_ = Buffer(kRows * kColumns * 4);
};

TEST_F(PackedCopiesTest, AreMadeOnceTheSameContentsComeAgain) {
  ExecutableCache cache({});
  const auto e = Make(cache, Product());
  ExpectRight(*e);
  const int64_t without = device_->memory_used();
  ExpectRight(*e);
  EXPECT_EQ(device_->memory_used(), without + kInner * kColumns * 4);
  // Bytes that change unannounced are not seen: the run reads the copy.
  const std::vector<float> before = Run(*e);
  Fill(w_, 0);
  EXPECT_EQ(Run(*e), before);
  w_.content = NewContent();
  for (int i = 0; i < 3; ++i) ExpectRight(*e);
  EXPECT_EQ(device_->memory_used(), without + kInner * kColumns * 4) << "the old copy is gone";
}

TEST_F(PackedCopiesTest, AreNotMadeOfUnknownContents) {
  ExecutableCache cache({});
  const auto e = Make(cache, Product());
  w_.content = 0;
  ExpectRight(*e);
  const int64_t used = device_->memory_used();
  Fill(w_, 3);
  for (int i = 0; i < 3; ++i) ExpectRight(*e);
  EXPECT_EQ(device_->memory_used(), used);
}

// An input that changes in each run does not keep a weight from being packed once.
TEST_F(PackedCopiesTest, AreKeptBesideContentsThatChange) {
  ExecutableCache cache({});
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {kRows, kInner}, "x");
  const Tensor w = b.Param(DType::kFloat32, {kInner, kColumns}, "w");
  const Tensor v = b.Param(DType::kFloat32, {kInner, kColumns}, "v");
  b.Output(x.MatMul(w), "y");
  b.Output(x.MatMul(v), "z");
  const auto e = Make(cache, b.Finish()->graph);
  BufferView changing = Known(kInner * kColumns, 3), z = Buffer(kRows * kColumns * 4);
  const auto run = [&] {
    changing.content = NewContent();
    const auto end = e->Submit(std::vector{x_, w_, changing, y_, z}, {});
    EXPECT_TRUE(end.ok() && end->Wait().ok()) << end.status();
  };
  run();
  const int64_t without = device_->memory_used();
  for (int i = 0; i < 2; ++i) run();
  EXPECT_EQ(device_->memory_used(), without + kInner * kColumns * 4);
  Fill(changing, 0);
  run();
  const std::vector<float> want = Expected(), y = Values(y_);
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(y[i], want[i], 1e-3F * (1 + std::abs(want[i])));
  EXPECT_EQ(Values(z), std::vector<float>(kRows * kColumns, 0));
}

TEST_F(PackedCopiesTest, AreSharedByExecutables) {
  ExecutableCache cache({});
  const auto one = Make(cache, Product()), other = Make(cache, Product(/*scale=*/2));
  ASSERT_NE(one, other);
  for (int i = 0; i < 2; ++i) ExpectRight(*one);
  const int64_t used = device_->memory_used();
  const std::vector<float> y = Run(*other);
  EXPECT_EQ(device_->memory_used(), used);
  Run(*one);
  const std::vector<float> half = Values(y_);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], 2 * half[i]);
}

// Does something else on the thread that submits before the first work, as a device does that runs
// there what others have submitted.
class InterruptedQueues final : public RunQueues {
 public:
  explicit InterruptedQueues(std::function<void()> first) : first_(std::move(first)) {}
  absl::StatusOr<TimelinePoint> Submit(Device& device, QueueKind kind, SlicedWork work) override {
    if (const auto first = std::exchange(first_, nullptr)) first();
    return DirectQueues().Submit(device, kind, std::move(work));
  }

 private:
  std::function<void()> first_;
};

// The last session of a tenant may go, or another one run, within the submission that makes a copy.
TEST_F(PackedCopiesTest, AreReleasedAndAskedForWhileOneIsMade) {
  ExecutableCache cache({});
  const auto e = Make(cache, Product());
  ExpectRight(*e);
  bool interrupted = false;
  InterruptedQueues queues([&] {
    cache.ReleaseTemporaries();
    ExpectRight(*e);
    interrupted = true;
  });
  const auto end = e->Submit(std::vector{x_, w_, y_}, {}, nullptr, nullptr, queues);
  ASSERT_TRUE(end.ok() && end->Wait().ok()) << end.status();
  EXPECT_TRUE(interrupted);
  ExpectRight(*e);
  cache.ReleaseTemporaries();
  const int64_t released = device_->memory_used();
  for (int i = 0; i < 2; ++i) ExpectRight(*e);
  EXPECT_EQ(device_->memory_used(), released + kInner * kColumns * 4) << "there is one copy";
}

TEST_F(PackedCopiesTest, GiveWayToOtherMemory) {
  ExecutableCache cache({});
  const auto e = Make(cache, Product());
  for (int i = 0; i < 2; ++i) ExpectRight(*e);
  cache.ReleaseTemporaries();
  const int64_t released = device_->memory_used();
  ExpectRight(*e);
  EXPECT_EQ(device_->memory_used(), released + kInner * kColumns * 4)
      << "packed again, because there is memory";
  // No room for a copy beside the temporaries that a run needs to pack for itself.
  cache.ReleaseTemporaries();
  const int64_t temporary = e->cost().temporary_bytes;
  const int64_t room = device_->memory_limit() - device_->memory_used();
  const BufferView rest = Buffer(room - temporary - (temporary >> 1));
  for (int i = 0; i < 3; ++i) ExpectRight(*e);
}

TEST_F(PackedCopiesTest, AreChargedAndGoBeforeTheTenantIsRefused) {
  const auto account = std::make_shared<Account>("device memory", int64_t{1} << 20, "");
  PackedCopies copies(device_.get(), account);
  const std::vector<PackedCopies::Wanted> wanted{{w_, "k", w_.length}};
  int made = 0;
  const auto make = [&](size_t, const BufferView&) -> absl::StatusOr<TimelinePoint> {
    ++made;
    return TimelinePoint();
  };
  EXPECT_FALSE(copies.Get(wanted, make)[0].has_value());
  EXPECT_TRUE(copies.Get(wanted, make)[0].has_value());
  EXPECT_TRUE(copies.Get(wanted, make)[0].has_value());
  EXPECT_EQ(made, 1);
  EXPECT_GE(account->used(), w_.length);
  copies.Release();
  EXPECT_EQ(account->used(), 0);
  const auto taken = Reservation::Try(account, account->limit());
  ASSERT_TRUE(taken.has_value());
  EXPECT_FALSE(copies.Get(wanted, make)[0].has_value()) << "no memory: the run packs for itself";
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace telegrad
