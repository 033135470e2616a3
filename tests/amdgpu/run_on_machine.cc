// Each argument is a range of device addresses with a gap behind it, so that an access beyond its
// end is a fault.
#include "tests/amdgpu/run_on_machine.h"

#include <cstring>

#include "gtest/gtest.h"

namespace telegrad::testing {
namespace {

using HostBytes = std::vector<uint8_t>;

constexpr uint64_t kBudget = 200'000'000;          // instructions of waves
constexpr uint64_t kFirst = uint64_t{0x7a} << 40;  // a device address
constexpr uint64_t kGap = 4096;

}  // namespace

void RunOnMachine(const ProgramImage& image, const Target& target, int64_t begin, int64_t groups,
                  std::vector<HostBytes>* arguments, fakeamd::Counts* counts) {
  const auto* elf = reinterpret_cast<const uint8_t*>(image.binary.data());
  const fakeamd::CodeObject object =
      fakeamd::LoadCodeObject({elf, image.binary.size()}, target.arch);
  ASSERT_EQ(object.error, "");
  ASSERT_EQ(object.kernels.size(), 1u);
  const fakeamd::Kernel& kernel = object.kernels[0];
  ASSERT_EQ(kernel.name, image.name);
  ASSERT_EQ(kernel.arguments.size(), arguments->size() + 1);
  EXPECT_EQ(kernel.wavefront, static_cast<uint32_t>(target.warp));
  fakeamd::MemoryView memory;
  HostBytes kernarg(kernel.kernarg_bytes);
  const auto put = [&](size_t number, uint64_t value) {
    const fakeamd::Argument& argument = kernel.arguments[number];
    ASSERT_EQ(argument.bytes, 8u);
    ASSERT_LE(argument.offset + 8u, kernarg.size());
    std::memcpy(&kernarg[argument.offset], &value, 8);
  };
  uint64_t next = kFirst;
  for (size_t i = 0; i < arguments->size(); ++i) {
    HostBytes& bytes = (*arguments)[i];
    put(i, next);
    memory.push_back({.base = next, .bytes = bytes.size(), .host = bytes.data(), .keep = nullptr});
    next = (next + bytes.size() + 2 * kGap) / kGap * kGap;
  }
  put(arguments->size(), static_cast<uint64_t>(begin));
  fakeamd::Launch launch;
  launch.object = &object;
  launch.kernel = &kernel;
  launch.grid = {static_cast<uint32_t>(groups), 1, 1};
  launch.block = {static_cast<uint32_t>(image.signature.group.x), 1, 1};
  launch.dynamic_group_bytes = static_cast<uint32_t>(image.signature.local_bytes);
  launch.kernarg = kernarg;
  launch.memory = &memory;
  launch.budget = kBudget;
  const fakeamd::Fault fault = fakeamd::Run(launch, counts);
  EXPECT_EQ(fault.code, fakeamd::FaultCode::kNone) << fault.message;
}

}  // namespace telegrad::testing
