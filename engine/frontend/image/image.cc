// Which decoder reads a file is a row of a table. Decoders give gray or RGB, whichever the file
// has; what the caller wants is made of that in one place.
#include "engine/frontend/image/image.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "engine/frontend/image/raster.h"

namespace telegrad {
namespace {

using std::string_view_literals::operator""sv;

// Memory for each pixel while an image is decoded: a progressive JPEG keeps two bytes of every
// coefficient, JPEG 2000 four of every sample, and the result has three.
constexpr int64_t kDecodingBytes = 24;
constexpr int64_t kPixelsOfStep = 16;  // and bytes of a file: a step visits a node of a graph

// P1 to P7 and a blank.
bool IsPnm(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '7' &&
         absl::ascii_isspace(static_cast<unsigned char>(bytes[2]));
}

struct Format {
  std::string_view name;
  std::string_view magic;  // at the start
  std::string_view second = {};
  size_t second_at = 0;
  absl::Status (*decode)(std::string_view bytes, Raster* out);
  bool built = true;
};

#ifdef TELEGRAD_WITH_JPEG
constexpr bool kHasJpeg = true;
#else
constexpr bool kHasJpeg = false;
#endif
#ifdef TELEGRAD_WITH_PNG
constexpr bool kHasPng = true;
#else
constexpr bool kHasPng = false;
#endif
#ifdef TELEGRAD_WITH_WEBP
constexpr bool kHasWebp = true;
#else
constexpr bool kHasWebp = false;
#endif
#ifdef TELEGRAD_WITH_OPENJPEG
constexpr bool kHasJpeg2000 = true;
#else
constexpr bool kHasJpeg2000 = false;
#endif

constexpr Format kFormats[] = {
    {.name = "BMP", .magic = "BM"sv, .decode = DecodeBmp},
    {.name = "JPEG", .magic = "\xff\xd8\xff"sv, .decode = DecodeJpeg, .built = kHasJpeg},
    {.name = "PNG", .magic = "\x89PNG\r\n\x1a\n"sv, .decode = DecodePng, .built = kHasPng},
    {.name = "WebP",
     .magic = "RIFF"sv,
     .second = "WEBP"sv,
     .second_at = 8,
     .decode = DecodeWebp,
     .built = kHasWebp},
    {.name = "TIFF", .magic = "II*\0"sv, .decode = DecodeTiff},
    {.name = "TIFF", .magic = "MM\0*"sv, .decode = DecodeTiff},
    {.name = "JPEG 2000",
     .magic = "\0\0\0\x0cjP  \r\n\x87\n"sv,
     .decode = DecodeJpeg2000,
     .built = kHasJpeg2000},
    {.name = "JPEG 2000",
     .magic = "\xff\x4f\xff\x51"sv,
     .decode = DecodeJpeg2000,
     .built = kHasJpeg2000},
};
constexpr Format kPnm = {.name = "PNM", .magic = "P"sv, .decode = DecodePnm};

const Format* FormatOf(std::string_view bytes) {
  for (const Format& row : kFormats) {
    if (bytes.starts_with(row.magic) && bytes.size() >= row.second_at &&
        bytes.substr(row.second_at).starts_with(row.second)) {
      return &row;
    }
  }
  return IsPnm(bytes) ? &kPnm : nullptr;
}

// ITU-R 601-2, in 16 bits of fraction.
uint8_t Luma(uint8_t r, uint8_t g, uint8_t b) {
  return static_cast<uint8_t>((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
}

void Convert(PixelFormat format, Image* image) {
  const int wanted = format == PixelFormat::kGrayscale ? 1 : 3;
  const size_t count = static_cast<size_t>(image->height * image->width);
  std::string& pixels = image->pixels;
  if (image->channels == 1 && wanted == 3) {
    pixels.resize(3 * count);
    for (size_t i = count; i-- > 0;) {
      pixels[3 * i] = pixels[3 * i + 1] = pixels[3 * i + 2] = pixels[i];
    }
  } else if (image->channels == 3 && wanted == 1) {
    const auto* const from = reinterpret_cast<const uint8_t*>(pixels.data());
    for (size_t i = 0; i < count; ++i) {
      pixels[i] = static_cast<char>(Luma(from[3 * i], from[3 * i + 1], from[3 * i + 2]));
    }
    pixels.resize(count);
  } else if (format == PixelFormat::kBgr) {
    for (size_t i = 0; i < count; ++i) std::swap(pixels[3 * i], pixels[3 * i + 2]);
  }
  image->channels = wanted;
}

}  // namespace

absl::Status Raster::Start(int64_t width, int64_t height, int channels) {
  if (width < 1 || height < 1) return DamagedImage("it has ", width, " x ", height, " pixels");
  if (width > kMaxImageSide || height > kMaxImageSide || width * height > kMaxImagePixels) {
    return ResourceExhausted("the image has ", width, " x ", height, " pixels; the limit is ",
                             kMaxImagePixels);
  }
  TG_RETURN_IF_ERROR(held_.Grow(kDecodingBytes * width * height));
  TG_RETURN_IF_ERROR(budget_->SpendSteps(1 + width * height / kPixelsOfStep));
  image_ = {.height = height, .width = width, .channels = channels, .pixels = {}};
  image_.pixels.resize(static_cast<size_t>(width * height * channels));
  return absl::OkStatus();
}

absl::StatusOr<Image> DecodeImage(std::string_view bytes, PixelFormat format, Budget* budget) {
  const Format* const row = FormatOf(bytes);
  if (row == nullptr) {
    return InvalidArgument("the bytes are of no image format that is known (", ImageFormats(), ")");
  }
  TG_RETURN_IF_ERROR(budget->SpendSteps(1 + static_cast<int64_t>(bytes.size()) / kPixelsOfStep));
  Raster raster(budget);
  const absl::Status status = row->decode(bytes, &raster);
  if (!status.ok()) {
    return absl::Status(status.code(), StrCat(row->name, ": ", ToStd(status.message())));
  }
  Image image = raster.Take();
  Convert(format, &image);
  return image;
}

std::string ImageFormats() {
  std::string out(kPnm.name);
  std::string_view last;
  for (const Format& row : kFormats) {
    if (row.built && row.name != last) StrAppend(&out, ", ", row.name);
    last = row.name;
  }
  return out;
}

}  // namespace telegrad
