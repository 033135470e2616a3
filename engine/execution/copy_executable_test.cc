// Executables that only copy: ranges go to ranges, sources are read at the run's turn, and
// graphs that need a kernel or overwrite what they read are refused.
#include "engine/execution/copy_executable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "devices/npy/npy_device.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr DType kF32 = DType::kFloat32;

// Three slots of 8 floats: slot i holds 10i, 10i + 1, ...
class CopyExecutableTest : public ::testing::Test {
 protected:
  CopyExecutableTest() {
    for (int i = 0; i < 3; ++i) {
      values_.emplace_back(8);
      std::iota(values_[i].begin(), values_[i].end(), 10.0f * i);
    }
  }
  UOp Slot(int64_t i) { return g_.Param(i, kF32, Shape{8}); }
  UOp Store(UOp to, UOp value) { return g_.Make(Op::kStore, {to, value}); }
  UOp After(UOp memory, UOp store) { return g_.Make(Op::kAfter, {memory, store}); }
  UOp Piece(UOp x, int64_t begin, int64_t size) {
    return g_.Make(Op::kShrink, {x}, Shape{begin, size});
  }
  absl::StatusOr<std::shared_ptr<const Executable>> Make(const std::vector<UOp>& stores) {
    const UOp sink = g_.Make(Op::kSink, DType::kVoid, stores);
    EXPECT_TRUE(g_.status().ok()) << g_.status();
    return MakeCopyExecutable(Freeze(sink), *device_);
  }
  void Run(const std::vector<UOp>& stores) {
    const auto made = Make(stores);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ((*made)->num_launches(), 0);
    std::vector<BufferView> bindings;
    for (std::vector<float>& v : values_) {
      bindings.push_back({*device_->Import(v.data(), 32, nullptr), 0, 32});
    }
    const auto point = (*made)->Submit(bindings, {});
    ASSERT_TRUE(point.ok()) << point.status();
    EXPECT_EQ(point->Wait(), absl::OkStatus());
  }
  void ExpectRefusal(const std::vector<UOp>& stores, const char* text) {
    const absl::Status status = Make(stores).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("NPY:0 runs no programs"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  Graph g_;
  std::vector<std::vector<float>> values_;
  const std::unique_ptr<NpyDevice> device_ = OpenNpy({});
};

TEST_F(CopyExecutableTest, PiecesGoToPieces) {
  const UOp square = g_.Make(Op::kReshape, {Slot(0)}, Shape{4, 2});
  const UOp rows = g_.Make(Op::kShrink, {square}, Shape{1, 2, 0, 2});
  Run({Store(Piece(Slot(1), 3, 4), g_.Make(Op::kReshape, {rows}, Shape{4}))});
  EXPECT_THAT(values_[1], ElementsAre(10, 11, 12, 2, 3, 4, 5, 17));
}

TEST_F(CopyExecutableTest, ReadsWhatIsThereAtItsTurn) {
  const UOp first = Store(Slot(1), Slot(0));
  const UOp second = Store(Slot(2), After(Slot(1), first));
  Run({first, second});
  EXPECT_EQ(values_[2], values_[0]);
}

TEST_F(CopyExecutableTest, RefusesWhatNeedsAProgram) {
  const UOp slot = Slot(0);
  ExpectRefusal({Store(Slot(1), g_.Make(Op::kFlip, {slot}, Shape{0}))}, "flip of [8]");
  ExpectRefusal({Store(Slot(1), Piece(g_.Make(Op::kNeg, {slot}), 0, 8))}, "neg of [8]");
  ExpectRefusal({Store(Piece(slot, 0, 2), g_.ConstFloat(kF32, 1))}, "const");
  const UOp column = Piece(slot, 0, 4);
  const UOp strided =
      g_.Make(Op::kShrink, {g_.Make(Op::kReshape, {slot}, Shape{4, 2})}, Shape{0, 4, 1, 1});
  ExpectRefusal({Store(column, g_.Make(Op::kReshape, {strided}, Shape{4}))}, "shrink of [4, 1]");
}

TEST_F(CopyExecutableTest, RefusesToReadWhatIsOverwritten) {
  ExpectRefusal({Store(Slot(0), Slot(1)), Store(Slot(1), Slot(0))},
                "before the graph overwrote it");
}

}  // namespace
}  // namespace telegrad
