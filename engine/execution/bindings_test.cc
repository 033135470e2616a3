// The alignment that the bindings of a run must have: that of their elements, and that for which
// the kernels were compiled.
#include "engine/execution/bindings.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using testing::HasSubstr;

class Bytes final : public Memory {
 public:
  Bytes() : Memory(nullptr, 256) {}
};

// Slot 0 is 4 elements of f32, bound from `offset` on.
std::string Error(int64_t offset, int64_t alignment) {
  SlotUse slot;
  slot.dtype = DType::kFloat32;
  slot.shape = {4};
  slot.bytes = 16;
  slot.used = true;
  const BufferView view{std::make_shared<Bytes>(), offset, 64};
  return std::string(CheckBindings({&slot, 1}, {&view, 1}, alignment).message());
}

TEST(Bindings, AreAlignedToTheirElementsAndToWhatTheCodeAsksFor) {
  EXPECT_EQ(Error(4, 1), "");
  EXPECT_THAT(Error(6, 1), HasSubstr("slot 0 starts at byte 6, expected a multiple of 4"));
  EXPECT_EQ(Error(32, 16), "");
  EXPECT_THAT(Error(4, 16), HasSubstr("slot 0 starts at byte 4, expected a multiple of 16"));
  EXPECT_EQ(BindingAlignment(HostShape(1)), 1);
  EXPECT_EQ(BindingAlignment(*NvidiaTarget(9, 0, 1, 1024)), 16);
}

}  // namespace
}  // namespace telegrad
