// Into how many commands a copy is cut.
#include "engine/execution/run_queues.h"

#include "engine/execution/execution_test.h"

namespace telegrad {
namespace {

class RunQueuesTest : public ExecutionTest {
 protected:
  // Lengths of the parts of a copy, which lie one behind the other.
  std::vector<int64_t> Parts(int64_t bytes, const Device* other) {
    CopyBytes copy;
    copy.from = {.binding = 0, .offset = 64};
    copy.to = {.binding = 1, .offset = 128};
    copy.length = bytes;
    std::vector<PredictedCommand> commands;
    AddCopy(copy, *device_, &commands, other);
    std::vector<int64_t> lengths;
    int64_t at = 0;
    for (const PredictedCommand& command : commands) {
      EXPECT_EQ(command.command.copy.from.offset, 64 + at);
      EXPECT_EQ(command.command.copy.to.offset, 128 + at);
      lengths.push_back(command.command.copy.length);
      at += lengths.back();
    }
    EXPECT_EQ(at, bytes);
    return lengths;
  }
};

TEST_F(RunQueuesTest, ALongCopyIsCutIntoPartsOfItsSegment) {
  device_->declared.bytes = 1e10;
  // 5 ms at 10 GB/s, every byte read and written.
  EXPECT_EQ(Parts(100'000'000, nullptr),
            (std::vector<int64_t>{25'000'000, 25'000'000, 25'000'000, 25'000'000}));
  // Never into parts below 4 MiB.
  device_->declared.bytes = 1e6;
  EXPECT_EQ(Parts(5 << 20, nullptr), (std::vector<int64_t>{4 << 20, 1 << 20}));
}

// Every part is a connection of its own, which costs more than it is worth.
TEST_F(RunQueuesTest, ACopyBetweenServersIsOneTransferWhateverTheRate) {
  device_->linked.emplace();
  for (const double rate : {1e6, 1e9, 1e10}) {
    device_->declared.bytes = rate;
    EXPECT_EQ(Parts(int64_t{1} << 30, device_.get()), std::vector<int64_t>{int64_t{1} << 30});
  }
  EXPECT_EQ(Parts((int64_t{1} << 30) + 1, device_.get()).size(), 2u);
}

}  // namespace
}  // namespace telegrad
