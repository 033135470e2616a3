// Tensor graphs through the whole engine on a raw GPU: the golden graphs against the interpreter of
// tensor graphs, and a part of the captured graphs against their recorded results.
// TELEGRAD_NV_EVERY=1 takes all captured graphs.
#include <filesystem>
#include <random>

#include "engine/base/files.h"
#include "engine/ir/text.h"
#include "engine/reference/tensor_eval.h"
#include "tests/devices/captures_on_device.h"
#include "tests/nv/nv_fixture.h"

namespace telegrad {
namespace {

using ::testing::IsEmpty;

constexpr uint64_t kSeed = 17;

// The fake driver goes after the device.
struct RawGpu {
  RawGpu() {
    driver.Start();
    std::vector<std::string> notes;
    auto devices = OpenNvs(FakeNvOptions(driver), &notes);
    EXPECT_FALSE(devices.empty()) << notes[0];
    runner = std::make_unique<DeviceGraphRunner>(std::move(devices[0]));
  }
  std::vector<std::string> Errors() {
    return driver.Locked([&] { return driver.gpu.errors; });
  }
  fakes::FakeDriver driver;
  std::unique_ptr<DeviceGraphRunner> runner;
};

// Small integers, so that floats have no rounding to differ in, and indices are in range.
testing::Slots SlotsOf(const Graph& graph, UOp root, std::vector<DType>* dtypes) {
  std::mt19937_64 random(kSeed);
  testing::Slots slots;
  for (const uint32_t id : PostOrder(root)) {
    const UOp u(&graph, id);
    if (!u.is(Op::kParam)) continue;
    const auto slot = static_cast<size_t>(u.slot());
    if (slot >= slots.size()) slots.resize(slot + 1), dtypes->resize(slot + 1);
    const int64_t count = NumElements(u.shape());
    std::vector<uint8_t>& bytes = slots[slot];
    (*dtypes)[slot] = u.dtype();
    bytes.resize(static_cast<size_t>(BytesOf(u.dtype(), count)));
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const auto value = static_cast<int32_t>(random() % 5);
      if (u.dtype() == DType::kFloat32) {
        const auto real = static_cast<float>(value - 2);
        std::memcpy(&bytes[4 * i], &real, 4);
      } else {
        bytes[i * bytes.size() / static_cast<size_t>(count)] = static_cast<uint8_t>(value);
      }
    }
  }
  return slots;
}

TEST(GraphsOnNv, GoldenOnesEqualTheReference) {
  RawGpu gpu;
  int graphs = 0;
  for (const std::string folder : {GOLDEN_DIR, GOLDEN_DIR "/workgroups"}) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() != ".uop") continue;
      SCOPED_TRACE(file.path());
      std::string text = *ReadFile(file.path());
      text.resize(std::min(text.size(), text.find("--- programs\n")));
      Graph graph;
      const auto root = Parse(text, &graph);
      ASSERT_TRUE(root.ok()) << root.status();
      std::vector<DType> dtypes;
      testing::Slots want = SlotsOf(graph, *root, &dtypes), got = want;
      Budget budget;
      ASSERT_EQ(reference::Evaluate(*root, want, &budget), absl::OkStatus());
      ASSERT_EQ(gpu.runner->Run(*root, {}, &got), absl::OkStatus());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(testing::Difference(dtypes[i], /*exact=*/false, want[i], got[i]), "")
            << "slot " << i << ", inputs of seed " << kSeed;
      }
      ++graphs;
    }
  }
  EXPECT_GE(graphs, 8);
  EXPECT_THAT(gpu.Errors(), IsEmpty());
}

TEST(GraphsOnNv, CapturedOnesAgree) {
  RawGpu gpu;
  testing::ExpectCapturesAgree(*gpu.runner, {"TELEGRAD_NV_EVERY", 50});
  EXPECT_THAT(gpu.Errors(), IsEmpty());
}

}  // namespace
}  // namespace telegrad
