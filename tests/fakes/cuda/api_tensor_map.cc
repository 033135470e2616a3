// Tensor maps, with every requirement that the CUDA Driver API reference has for
// cuTensorMapEncodeTiled (section "Tensor Map Object Management").
#include <cstring>

#include "tests/fakes/cuda/device_memory.h"
#include "tests/fakes/cuda/ptx/tensor_map.h"
#include "tests/fakes/cuda/state.h"

using fakecuda::Call;
using fakecuda::TensorMap;

namespace {

// By CUtensorMapDataType; those of less than a byte, from CUDA 12.8 on, are not made.
struct DataType {
  uint32_t bytes;
  bool is_float;
};
constexpr DataType kDataTypes[] = {{1, false}, {2, false}, {4, false}, {4, false}, {8, false},
                                   {8, false}, {2, true},  {4, true},  {8, true},  {2, true},
                                   {4, true},  {4, true},  {4, true}};
constexpr uint32_t kNoInterleave = 0, kInterleave32 = 2;
constexpr uint32_t kSpans[] = {0, 32, 64, 128};  // by CUtensorMapSwizzle

bool Within(uint64_t x, uint64_t most) { return x >= 1 && x <= most; }

bool IsValid(const TensorMap& map, bool is_float) {
  const bool plain = map.interleave == kNoInterleave;
  const uint64_t multiple = map.interleave == kInterleave32 ? 32 : 16;
  if (!plain && map.rank < 3) return false;
  if (map.address % multiple != 0) return false;
  if (map.fills_nan && !is_float) return false;
  if (map.interleave == kInterleave32 && map.span != 32) return false;
  for (uint32_t i = 0; i < map.rank; ++i) {
    if (!Within(map.sizes[i], uint64_t{1} << 32) || !Within(map.boxes[i], 256)) return false;
    if (!(plain && i == 0) && !Within(map.steps[i], 8)) return false;
    if (i == 0) continue;
    if (map.strides[i] == 0 || map.strides[i] % multiple != 0) return false;
    if (map.strides[i] >= uint64_t{1} << 40) return false;
  }
  if (!plain) return true;
  const uint32_t row = map.boxes[0] * map.element_bytes;
  return row % 16 == 0 && (map.span == 0 || row <= map.span);
}

}  // namespace

FAKE_CUDA_API int cuTensorMapEncodeTiled(void* out, int type, uint32_t rank, void* address,
                                         const uint64_t* sizes, const uint64_t* strides,
                                         const uint32_t* boxes, const uint32_t* steps,
                                         int interleave, int swizzle, int promotion, int fill) {
  Call call;
  FAKE_RETURN_IF_FAILED(call);
  if (call.driver().knobs.capability < 90) return fakecuda::CUDA_ERROR_NOT_SUPPORTED;
  const auto is_one_of = [](int value, size_t count) {
    return value >= 0 && static_cast<size_t>(value) < count;
  };
  if (out == nullptr || reinterpret_cast<uintptr_t>(out) % 64 != 0 || sizes == nullptr ||
      (strides == nullptr && rank > 1) || boxes == nullptr || steps == nullptr ||
      !Within(rank, fakecuda::kMostDimensions) || !is_one_of(type, std::size(kDataTypes)) ||
      !is_one_of(interleave, 3) || !is_one_of(swizzle, std::size(kSpans)) ||
      !is_one_of(promotion, 4) || !is_one_of(fill, 2)) {
    return fakecuda::CUDA_ERROR_INVALID_VALUE;
  }
  TensorMap map{.address = reinterpret_cast<uint64_t>(address),
                .rank = rank,
                .element_bytes = kDataTypes[type].bytes,
                .interleave = static_cast<uint32_t>(interleave),
                .span = kSpans[swizzle],
                .fills_nan = fill != 0};
  for (uint32_t i = 0; i < rank; ++i) {
    map.sizes[i] = sizes[i];
    map.strides[i] = i == 0 ? map.element_bytes : strides[i - 1];
    map.boxes[i] = boxes[i];
    map.steps[i] = steps[i];
  }
  if (!IsValid(map, kDataTypes[type].is_float)) return fakecuda::CUDA_ERROR_INVALID_VALUE;
  if (interleave == 0) map.steps[0] = 1;  // it is ignored
  // The real driver does not look at what is there.
  if (!fakecuda::IsDeviceAddress(map.address)) {
    call.driver().Problem("a tensor map of memory that is no device's");
  }
  const fakecuda::TensorMapBytes bytes = fakecuda::EncodeTensorMap(map);
  std::memcpy(out, bytes.data(), bytes.size());
  ++call.driver().counters.tensor_maps;
  return fakecuda::CUDA_SUCCESS;
}
