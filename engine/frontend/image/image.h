// Encoded images as pixels: BMP, PNM, TIFF, JPEG, PNG, WebP and JPEG 2000, told apart by their
// first bytes. The files come from strangers: sizes are checked and paid for before anything is
// decoded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"

namespace telegrad {

enum class PixelFormat : uint8_t { kRgb, kBgr, kGrayscale };

struct Image {
  int64_t height = 0, width = 0;
  int channels = 0;    // 1 or 3
  std::string pixels;  // a byte for each channel, [height, width, channels]
};

// Palettes are looked up, samples of more than 8 bits keep their highest 8, transparency is left
// out, and of several images in a file the first is taken. Gray of colours is ITU-R 601's luma.
// INVALID_ARGUMENT: these are the bytes of no image, or of a damaged one. UNIMPLEMENTED: a format
// that this program was built without, or a variety of one that is not supported.
// RESOURCE_EXHAUSTED: too many pixels, or more than the budget has.
absl::StatusOr<Image> DecodeImage(std::string_view bytes, PixelFormat format, Budget* budget);

// The formats that this program was built with.
std::string ImageFormats();

}  // namespace telegrad
