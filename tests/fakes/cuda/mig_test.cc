// GPUs in MIG mode: what a process sees of them, for each value of CUDA_VISIBLE_DEVICES.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/fakes/cuda/driver_fixture.h"
#include "tests/fakes/cuda/mig_units.h"

namespace fakecuda {
namespace {

class MigTest : public DriverTest {
 protected:
  void TearDown() override {
    unsetenv("CUDA_VISIBLE_DEVICES");
    DriverTest::TearDown();
  }
  // The UUIDs that a process sees; empty where cuInit fails.
  std::vector<std::string> See(int64_t mig, const char* visible) {
    cu.fakeCudaReset();
    cu.fakeCudaSet("mig", mig);
    visible == nullptr ? unsetenv("CUDA_VISIBLE_DEVICES")
                       : setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    std::vector<std::string> out;
    const int started = cu.cuInit(0);
    if (started != CUDA_SUCCESS) {
      EXPECT_EQ(started, CUDA_ERROR_NO_DEVICE);
      return out;
    }
    int count = 0;
    EXPECT_EQ(cu.cuDeviceGetCount(&count), CUDA_SUCCESS);
    for (int i = 0; i < count; ++i) {
      Uuid uuid{};
      EXPECT_EQ(cu.cuDeviceGetUuid_v2(&uuid, i), CUDA_SUCCESS);
      out.emplace_back(uuid.bytes, sizeof(uuid.bytes));
    }
    return out;
  }
};

TEST_F(MigTest, AProcessSeesOneInstanceAndNothingBesideIt) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  const std::string whole0 = UuidBytes(0, kWhole), whole1 = UuidBytes(1, kWhole);
  const std::string first = UuidBytes(1, 0), third = UuidBytes(1, 2);
  EXPECT_THAT(See(0, nullptr), ElementsAre(whole0, whole1));
  EXPECT_THAT(See(0x30, nullptr), ElementsAre(first));
  EXPECT_THAT(See(0x80, nullptr), ElementsAre(whole0)) << "in MIG mode, without an instance";
  EXPECT_THAT(See(0x88, nullptr), IsEmpty());
  EXPECT_THAT(See(0x30, "0"), ElementsAre(whole0));
  EXPECT_THAT(See(0x30, "1"), ElementsAre(first));
  EXPECT_THAT(See(0x30, "0,1"), ElementsAre(first));
  EXPECT_THAT(See(0x30, UuidName(1, 2).c_str()), ElementsAre(third));
  EXPECT_THAT(
      See(0x30, (UuidName(0, kWhole) + "," + UuidName(1, 2) + "," + UuidName(1, 0)).c_str()),
      ElementsAre(third));
  EXPECT_THAT(See(0x30, UuidName(1, kWhole).c_str()), ElementsAre(first));
  EXPECT_THAT(See(0x30, UuidName(1, 3).c_str()), IsEmpty()) << "it has three";
  EXPECT_THAT(See(0x30, UuidName(0, kWhole).c_str()), ElementsAre(whole0));
  EXPECT_THAT(See(0, "1,7,0"), ElementsAre(whole1)) << "up to what is none";
  EXPECT_THAT(See(0, ""), IsEmpty());
}

TEST_F(MigTest, AnInstanceIsAPartOfItsGpu) {
  cu.fakeCudaSet("memory", 64 << 20);
  ASSERT_EQ(See(0x30, nullptr).size(), 1u);
  char bus[32] = {}, name[64] = {};
  EXPECT_EQ(cu.cuDeviceGetPCIBusId(bus, sizeof(bus), 0), CUDA_SUCCESS);
  EXPECT_STREQ(bus, "0000:02:00.0");
  EXPECT_EQ(cu.cuDeviceGetName(name, sizeof(name), 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "Fake GPU sm_90 MIG 1g.16mb");
  int processors = 0;
  EXPECT_EQ(cu.cuDeviceGetAttribute(&processors, 16, 0), CUDA_SUCCESS);
  EXPECT_EQ(processors, 1);
  size_t total = 0, free = 0;
  EXPECT_EQ(cu.cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
  EXPECT_EQ(total, 16u << 20);
  Start();
  EXPECT_EQ(cu.cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 16u << 20);
  DevicePointer address = 0;
  EXPECT_EQ(cu.cuMemAlloc_v2(&address, 17 << 20), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(Alloc(15 << 20), 0u);
}

}  // namespace
}  // namespace fakecuda
