// What cuTensorMapEncodeTiled takes and refuses.
#include "tests/fakes/cuda/ptx/tensor_map.h"

#include <array>
#include <functional>

#include "tests/fakes/cuda/driver_fixture.h"

namespace fakecuda {
namespace {

struct MapArguments {
  int type = 7;  // f32
  uint32_t rank = 3;
  uint64_t address = 0;
  std::array<uint64_t, 5> sizes = {100, 20, 3, 4, 5};
  std::array<uint64_t, 4> strides = {416, 8320, 33280, 133120};
  std::array<uint32_t, 5> boxes = {32, 8, 1, 1, 1};
  std::array<uint32_t, 5> steps = {1, 2, 1, 1, 1};
  int interleave = 0, swizzle = 3, promotion = 2, fill = 0;
};

class TensorMapTest : public DriverTest {
 protected:
  int Encode(const MapArguments& a, size_t shift = 0) {
    return cu.cuTensorMapEncodeTiled(map_.data() + shift, a.type, a.rank,
                                     reinterpret_cast<void*>(a.address), a.sizes.data(),
                                     a.strides.data(), a.boxes.data(), a.steps.data(), a.interleave,
                                     a.swizzle, a.promotion, a.fill);
  }
  void ExpectRefused(const char* what, const std::function<void(MapArguments&)>& change) {
    MapArguments a;
    a.address = memory_;
    change(a);
    EXPECT_EQ(Encode(a), CUDA_ERROR_INVALID_VALUE) << what;
  }
  void ExpectTaken(const char* what, const std::function<void(MapArguments&)>& change) {
    MapArguments a;
    a.address = memory_;
    change(a);
    EXPECT_EQ(Encode(a), CUDA_SUCCESS) << what;
  }

  alignas(64) std::array<uint8_t, 256> map_ = {};
  DevicePointer memory_ = 0;
};

TEST_F(TensorMapTest, IsEncoded) {
  EXPECT_EQ(Encode({}), CUDA_ERROR_NOT_INITIALIZED);
  Start();
  memory_ = Alloc(1 << 20);
  ExpectTaken("as it is", [](MapArguments&) {});
  TensorMapBytes bytes;
  std::copy_n(map_.begin(), bytes.size(), bytes.begin());
  const auto map = DecodeTensorMap(bytes);
  ASSERT_TRUE(map.has_value());
  EXPECT_EQ(map->address, memory_);
  EXPECT_EQ(map->rank, 3u);
  EXPECT_EQ(map->element_bytes, 4u);
  EXPECT_EQ(map->sizes[2], 3u);
  EXPECT_EQ(map->strides[2], 8320u);
  EXPECT_EQ(map->boxes[0], 32u);
  EXPECT_EQ(map->steps[1], 2u);
  EXPECT_EQ(map->span, 128u);
  bytes[100] ^= 1;
  EXPECT_TRUE(DecodeTensorMap(bytes).has_value()) << "behind the checksum";
  bytes[3] ^= 1;
  EXPECT_FALSE(DecodeTensorMap(bytes).has_value());
  EXPECT_EQ(cu.fakeCudaCount("tensor_maps"), 1);
  EXPECT_EQ(Problems(), "");
}

// CUDA Driver API reference, cuTensorMapEncodeTiled, requirement by requirement.
TEST_F(TensorMapTest, IsChecked) {
  Start();
  memory_ = Alloc(1 << 20);
  MapArguments right;
  right.address = memory_;
  EXPECT_EQ(Encode(right, 64), CUDA_SUCCESS);
  EXPECT_EQ(Encode(right, 32), CUDA_ERROR_INVALID_VALUE) << "the map's own alignment";
  ExpectRefused("type", [](MapArguments& a) { a.type = 99; });
  ExpectRefused("rank 0", [](MapArguments& a) { a.rank = 0; });
  ExpectRefused("rank 6", [](MapArguments& a) { a.rank = 6; });
  ExpectTaken("rank 5", [](MapArguments& a) { a.rank = 5; });
  ExpectRefused("address", [](MapArguments& a) { a.address += 8; });
  ExpectRefused("size 0", [](MapArguments& a) { a.sizes[1] = 0; });
  ExpectTaken("size 2^32", [](MapArguments& a) { a.sizes[1] = uint64_t{1} << 32; });
  ExpectRefused("size 2^32 + 1", [](MapArguments& a) { a.sizes[1] = (uint64_t{1} << 32) + 1; });
  ExpectRefused("stride", [](MapArguments& a) { a.strides[0] = 424; });
  ExpectRefused("stride 0", [](MapArguments& a) { a.strides[0] = 0; });
  ExpectRefused("stride 2^40", [](MapArguments& a) { a.strides[1] = uint64_t{1} << 40; });
  ExpectRefused("box 0", [](MapArguments& a) { a.boxes[1] = 0; });
  ExpectRefused("box 257", [](MapArguments& a) { a.boxes[1] = 257; });
  ExpectTaken("box 256", [](MapArguments& a) { a.boxes[1] = 256; });
  ExpectRefused("a row of 12 bytes", [](MapArguments& a) { a.boxes[0] = 3; });
  ExpectRefused("a row beyond the swizzle", [](MapArguments& a) { a.boxes[0] = 36; });
  ExpectRefused("the same of 64", [](MapArguments& a) { a.swizzle = 2; });
  ExpectTaken("without one", [](MapArguments& a) { a.boxes[0] = 36, a.swizzle = 0; });
  ExpectRefused("step 0", [](MapArguments& a) { a.steps[1] = 0; });
  ExpectRefused("step 9", [](MapArguments& a) { a.steps[1] = 9; });
  ExpectTaken("the first step is ignored", [](MapArguments& a) { a.steps[0] = 9; });
  ExpectRefused("swizzle", [](MapArguments& a) { a.swizzle = 9; });
  ExpectRefused("promotion", [](MapArguments& a) { a.promotion = 4; });
  ExpectRefused("fill", [](MapArguments& a) { a.fill = 2; });
  ExpectTaken("NaN", [](MapArguments& a) { a.fill = 1; });
  ExpectRefused("NaN of integers", [](MapArguments& a) { a.fill = 1, a.type = 2; });
  const auto interleaved = [](MapArguments& a) { a.interleave = 2, a.swizzle = 1; };
  ExpectTaken("interleaved", interleaved);
  ExpectRefused("interleaved, rank 2", [&](MapArguments& a) { interleaved(a), a.rank = 2; });
  ExpectRefused("interleaved, other swizzle",
                [&](MapArguments& a) { interleaved(a), a.swizzle = 3; });
  ExpectRefused("interleaved, stride",
                [&](MapArguments& a) { interleaved(a), a.strides[0] = 432; });
  ExpectRefused("interleaved, address", [&](MapArguments& a) { interleaved(a), a.address += 16; });
}

TEST_F(TensorMapTest, OfAnOlderGpuThereIsNone) {
  cu.fakeCudaSet("capability", 80);
  Start();
  MapArguments a;
  a.address = Alloc(1024);
  EXPECT_EQ(Encode(a), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace fakecuda
