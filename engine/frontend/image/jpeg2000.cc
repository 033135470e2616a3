// JPEG 2000 through OpenJPEG: files (JP2) and bare codestreams.
#include "engine/frontend/image/raster.h"

#ifdef TELEGRAD_WITH_OPENJPEG

#include <openjpeg.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

namespace telegrad {
namespace {

constexpr OPJ_SIZE_T kStreamBuffer = 1 << 16;

// The file as a stream.
struct J2kSource {
  std::string_view bytes;
  size_t at = 0;
};

OPJ_SIZE_T ReadJ2k(void* to, OPJ_SIZE_T count, void* user) {
  auto* const source = static_cast<J2kSource*>(user);
  const size_t n = std::min<size_t>(count, source->bytes.size() - source->at);
  if (n == 0) return static_cast<OPJ_SIZE_T>(-1);
  std::memcpy(to, source->bytes.data() + source->at, n);
  source->at += n;
  return n;
}

OPJ_BOOL SeekJ2k(OPJ_OFF_T to, void* user) {
  auto* const source = static_cast<J2kSource*>(user);
  if (to < 0 || static_cast<size_t>(to) > source->bytes.size()) return OPJ_FALSE;
  source->at = static_cast<size_t>(to);
  return OPJ_TRUE;
}

OPJ_OFF_T SkipJ2k(OPJ_OFF_T by, void* user) {
  auto* const source = static_cast<J2kSource*>(user);
  const auto left = static_cast<OPJ_OFF_T>(source->bytes.size() - source->at);
  if (by < 0 || left == 0) return -1;
  const OPJ_OFF_T n = std::min(by, left);
  source->at += static_cast<size_t>(n);
  return n;
}

void Ignore(const char*, void*) {}

template <auto kDestroy>
struct J2kDelete {
  template <typename T>
  void operator()(T* what) const {
    kDestroy(what);
  }
};

// A sample as 0 to 255.
uint8_t J2kSample(const opj_image_comp_t& c, int64_t x, int64_t y) {
  const int64_t column = std::min<int64_t>(x / c.dx, c.w - 1),
                row = std::min<int64_t>(y / c.dy, c.h - 1);
  int64_t value = c.data[row * c.w + column];
  if (c.sgnd != 0) value += int64_t{1} << (c.prec - 1);
  const int64_t most = (int64_t{1} << c.prec) - 1;
  value = std::clamp<int64_t>(value, 0, most);
  return static_cast<uint8_t>(c.prec >= 8 ? value >> (c.prec - 8)
                                          : (510 * value + most) / (2 * most));
}

uint8_t Byte(double value) {
  return static_cast<uint8_t>(std::clamp(std::lround(value), 0L, 255L));
}

absl::Status CheckComponents(const opj_image_t& image) {
  if (image.numcomps < 1 || image.numcomps > 5) {
    return Unimplemented(image.numcomps, " components");
  }
  for (OPJ_UINT32 i = 0; i < image.numcomps; ++i) {
    const opj_image_comp_t& c = image.comps[i];
    if (c.prec < 1 || c.prec > 31 || c.dx < 1 || c.dy < 1) return DamagedImage("component ", i);
  }
  return absl::OkStatus();
}

absl::Status PixelsOf(const opj_image_t& image, Raster* out) {
  for (OPJ_UINT32 i = 0; i < image.numcomps; ++i) {
    const opj_image_comp_t& c = image.comps[i];
    if (c.data == nullptr || c.w < 1 || c.h < 1) return DamagedImage("component ", i);
  }
  for (int64_t y = 0; y < out->height(); ++y) {
    for (int64_t x = 0; x < out->width(); ++x) {
      const uint8_t a = J2kSample(image.comps[0], x, y);
      if (out->channels() == 1) {
        out->Row(y)[x] = a;
        continue;
      }
      const uint8_t b = J2kSample(image.comps[1], x, y), c = J2kSample(image.comps[2], x, y);
      if (image.color_space == OPJ_CLRSPC_SYCC) {  // IEC 61966-2-1, annex F
        const double cb = b - 128.0, cr = c - 128.0;
        out->SetRgb(x, y, Byte(a + 1.402 * cr), Byte(a - 0.344136 * cb - 0.714136 * cr),
                    Byte(a + 1.772 * cb));
      } else {
        out->SetRgb(x, y, a, b, c);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodeJpeg2000(std::string_view bytes, Raster* out) {
  const bool bare = bytes.starts_with("\xff\x4f");
  const std::unique_ptr<opj_codec_t, J2kDelete<opj_destroy_codec>> codec(
      opj_create_decompress(bare ? OPJ_CODEC_J2K : OPJ_CODEC_JP2));
  const std::unique_ptr<opj_stream_t, J2kDelete<opj_stream_destroy>> stream(
      opj_stream_create(kStreamBuffer, OPJ_TRUE));
  if (codec == nullptr || stream == nullptr) return ResourceExhausted("no memory for OpenJPEG");
  J2kSource source{bytes};
  opj_stream_set_user_data(stream.get(), &source, nullptr);
  opj_stream_set_user_data_length(stream.get(), bytes.size());
  opj_stream_set_read_function(stream.get(), ReadJ2k);
  opj_stream_set_seek_function(stream.get(), SeekJ2k);
  opj_stream_set_skip_function(stream.get(), SkipJ2k);
  opj_set_error_handler(codec.get(), Ignore, nullptr);
  opj_set_warning_handler(codec.get(), Ignore, nullptr);
  opj_set_info_handler(codec.get(), Ignore, nullptr);
  opj_dparameters_t parameters;
  opj_set_default_decoder_parameters(&parameters);
  opj_image_t* header = nullptr;
  if (opj_setup_decoder(codec.get(), &parameters) == OPJ_FALSE ||
      opj_read_header(stream.get(), codec.get(), &header) == OPJ_FALSE) {
    opj_image_destroy(header);
    return DamagedImage("its header");
  }
  const std::unique_ptr<opj_image_t, J2kDelete<opj_image_destroy>> image(header);
  TG_RETURN_IF_ERROR(CheckComponents(*image));
  // Of gray with transparency there are two components; those behind the colours are left out.
  TG_RETURN_IF_ERROR(out->Start(int64_t{image->x1} - image->x0, int64_t{image->y1} - image->y0,
                                image->numcomps >= 3 ? 3 : 1));
  if (opj_decode(codec.get(), stream.get(), image.get()) == OPJ_FALSE ||
      opj_end_decompress(codec.get(), stream.get()) == OPJ_FALSE) {
    return DamagedImage("its pixels");
  }
  // A palette may have made three components of one.
  if ((image->numcomps >= 3 ? 3 : 1) != out->channels()) {
    TG_RETURN_IF_ERROR(CheckComponents(*image));
    const int64_t width = out->width(), height = out->height();
    TG_RETURN_IF_ERROR(out->Start(width, height, image->numcomps >= 3 ? 3 : 1));
  }
  return PixelsOf(*image, out);
}

}  // namespace telegrad

#else

namespace telegrad {

absl::Status DecodeJpeg2000(std::string_view, Raster*) {
  return Unimplemented("this program was built without OpenJPEG");
}

}  // namespace telegrad

#endif
