// The figures are those of cuTensorMapEncodeTiled in the CUDA Driver API reference, section "Tensor
// Map Object Management": no other interface for tensor maps has been met so far. Its example has
// strides that grow from dimension to dimension; those of a permuted tensor do not, and are taken.
#include "devices/api/check_tensor_map.h"

#include "engine/base/checked.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 32;
constexpr int64_t kMostBox = 256;
constexpr int64_t kMostStep = 8;
constexpr int64_t kStridesBelow = int64_t{1} << 40;
constexpr int64_t kBoxRow = 16;          // bytes of which an innermost row is a multiple
constexpr int64_t kInterleavedRank = 3;  // the least

// Of the span that a swizzle permutes; 0: there is none.
int64_t SpanBytes(TensorSwizzle swizzle) {
  constexpr int64_t kBytes[] = {0, 32, 64, 128};
  return kBytes[static_cast<size_t>(swizzle)];
}

absl::Status CheckElement(const TensorMap& map) {
  if (map.element == DType::kVoid || IsPacked(map.element)) {
    return InvalidArgument("a tensor map of ", Name(map.element), ", expected whole bytes");
  }
  constexpr DTypeSet kWithNan = {DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                                 DType::kFloat64};
  if (map.fill == TensorFill::kNan && !kWithNan.Has(map.element)) {
    return InvalidArgument("a tensor map of ", Name(map.element),
                           " filled with NaN, expected f16, bf16, f32 or f64");
  }
  return absl::OkStatus();
}

absl::Status CheckStride(const TensorMap& map, size_t i) {
  const int64_t stride = map.strides[i];
  if (i == 0) {
    if (stride == ByteSize(map.element)) return absl::OkStatus();
    return InvalidArgument("a stride of ", stride, " bytes in dimension 0, expected ",
                           ByteSize(map.element), ", those of an element of ", Name(map.element));
  }
  if (stride > 0 && stride < kStridesBelow && stride % map.alignment() == 0) {
    return absl::OkStatus();
  }
  return InvalidArgument("a stride of ", stride, " bytes in dimension ", i,
                         ", expected a multiple of ", map.alignment(), " from there to below 2^40");
}

absl::Status CheckDimension(const TensorMap& map, size_t i) {
  if (map.sizes[i] < 1 || map.sizes[i] > kMostElements) {
    return InvalidArgument("a size of ", map.sizes[i], " in dimension ", i, ", expected 1 to 2^32");
  }
  if (map.boxes[i] < 1 || map.boxes[i] > kMostBox) {
    return InvalidArgument("a box of ", map.boxes[i], " in dimension ", i, ", expected 1 to ",
                           kMostBox);
  }
  if (map.steps[i] < 1 || map.steps[i] > kMostStep) {
    return InvalidArgument("a step of ", map.steps[i], " in dimension ", i, ", expected 1 to ",
                           kMostStep);
  }
  return CheckStride(map, i);
}

// What holds of the innermost dimension of a tensor that is not interleaved.
absl::Status CheckRow(const TensorMap& map) {
  if (map.steps[0] != 1) {
    return InvalidArgument("a step of ", map.steps[0],
                           " in dimension 0, expected 1 where it is not interleaved");
  }
  const int64_t bytes = map.boxes[0] * ByteSize(map.element);
  if (bytes % kBoxRow != 0) {
    return InvalidArgument("a box of ", bytes, " bytes in dimension 0, expected a multiple of ",
                           kBoxRow);
  }
  const int64_t span = SpanBytes(map.swizzle);
  if (span == 0 || bytes <= span) return absl::OkStatus();
  return InvalidArgument("a box of ", bytes, " bytes in dimension 0, expected at most the ", span,
                         " of its swizzle");
}

absl::Status CheckInterleaved(const TensorMap& map) {
  if (map.rank < kInterleavedRank) {
    return InvalidArgument("an interleaved tensor map of rank ", map.rank, ", expected at least ",
                           kInterleavedRank);
  }
  if (map.interleave == TensorInterleave::k32Bytes && map.swizzle != TensorSwizzle::k32Bytes) {
    return InvalidArgument("a tensor map interleaved by 32 bytes, expected a swizzle of 32");
  }
  return absl::OkStatus();
}

// As TensorMap has them where nothing is said.
absl::Status CheckBeyond(const TensorMap& map, size_t i) {
  const TensorMap none;
  if (map.sizes[i] == none.sizes[i] && map.strides[i] == none.strides[i] &&
      map.boxes[i] == none.boxes[i] && map.steps[i] == none.steps[i]) {
    return absl::OkStatus();
  }
  return InvalidArgument("dimension ", i, " of a tensor map of rank ", map.rank, " is described");
}

}  // namespace

absl::Status CheckTensorMap(const TensorMap& map) {
  if (map.rank < 1 || map.rank > kTensorMapRank) {
    return InvalidArgument("a tensor map of rank ", map.rank, ", expected 1 to ", kTensorMapRank);
  }
  TG_RETURN_IF_ERROR(CheckElement(map));
  for (size_t i = 0; i < map.sizes.size(); ++i) {
    TG_RETURN_IF_ERROR(static_cast<int64_t>(i) < map.rank ? CheckDimension(map, i)
                                                          : CheckBeyond(map, i));
  }
  TG_RETURN_IF_ERROR(map.interleave == TensorInterleave::kNone ? CheckRow(map)
                                                               : CheckInterleaved(map));
  return TensorMapBytes(map).status();
}

absl::StatusOr<int64_t> TensorMapBytes(const TensorMap& map) {
  int64_t end = ByteSize(map.element);
  for (size_t i = 0; i < static_cast<size_t>(map.rank); ++i) {
    int64_t last = 0;
    if (!CheckedMul(map.sizes[i] - 1, map.strides[i], &last) || !CheckedAdd(end, last, &end)) {
      return InvalidArgument("a tensor map of more than 2^63 - 1 bytes");
    }
  }
  return end;
}

absl::Status RefuseTensorMaps(const ProgramImage& image, std::string_view device,
                              std::string_view lacks) {
  if (!image.signature.Takes(ParameterKind::kTensorMap)) return absl::OkStatus();
  return Unimplemented(device, ": the program ", image.name, " takes tensor maps, and ", lacks);
}

}  // namespace telegrad
