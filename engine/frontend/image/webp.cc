// WebP through libwebp: still pictures, lossy and lossless.
#include "engine/frontend/image/raster.h"

#ifdef TELEGRAD_WITH_WEBP

#include <webp/decode.h>

namespace telegrad {

absl::Status DecodeWebp(std::string_view bytes, Raster* out) {
  const auto* const data = reinterpret_cast<const uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data, bytes.size(), &features) != VP8_STATUS_OK) {
    return DamagedImage("its header");
  }
  if (features.has_animation != 0) return Unimplemented("an animation");
  TG_RETURN_IF_ERROR(out->Start(features.width, features.height, 3));
  const int64_t stride = 3 * out->width();
  if (WebPDecodeRGBInto(data, bytes.size(), out->Row(0),
                        static_cast<size_t>(stride * out->height()),
                        static_cast<int>(stride)) == nullptr) {
    return DamagedImage("its pixels");
  }
  return absl::OkStatus();
}

}  // namespace telegrad

#else

namespace telegrad {

absl::Status DecodeWebp(std::string_view, Raster*) {
  return Unimplemented("this program was built without libwebp");
}

}  // namespace telegrad

#endif
