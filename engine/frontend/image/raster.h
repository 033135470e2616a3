// What decoders of image formats fill in, and the list of them.
#pragma once

#include <string_view>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/frontend/image/image.h"

namespace telegrad {

inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;
inline constexpr int64_t kMaxImageSide = 1 << 20;

// The picture while it is decoded, gray or RGB.
class Raster {
 public:
  explicit Raster(Budget* budget) : held_(budget), budget_(budget) {}

  // Checks the size that a file claims and takes memory for it, the decoder's own included, before
  // the decoder takes any.
  absl::Status Start(int64_t width, int64_t height, int channels);

  int64_t width() const { return image_.width; }
  int64_t height() const { return image_.height; }
  int channels() const { return image_.channels; }
  uint8_t* Row(int64_t y) {
    return reinterpret_cast<uint8_t*>(image_.pixels.data()) + y * width() * channels();
  }
  void SetRgb(int64_t x, int64_t y, uint8_t r, uint8_t g, uint8_t b) {
    uint8_t* const at = Row(y) + 3 * x;
    at[0] = r;
    at[1] = g;
    at[2] = b;
  }
  Image Take() { return std::move(image_); }
  Budget* budget() { return budget_; }

 private:
  Budget::Held held_;
  Budget* budget_;
  Image image_;
};

template <typename... Args>
absl::Status DamagedImage(const Args&... what) {
  return InvalidArgument("damaged image: ", what...);
}

// Each calls Start before it writes a row.
absl::Status DecodeBmp(std::string_view bytes, Raster* out);
absl::Status DecodePnm(std::string_view bytes, Raster* out);
absl::Status DecodeTiff(std::string_view bytes, Raster* out);
absl::Status DecodeJpeg(std::string_view bytes, Raster* out);
absl::Status DecodePng(std::string_view bytes, Raster* out);
absl::Status DecodeWebp(std::string_view bytes, Raster* out);
absl::Status DecodeJpeg2000(std::string_view bytes, Raster* out);

}  // namespace telegrad
