// PNG through libpng. An error leaves the library by longjmp, over frames without destructors.
#include "engine/frontend/image/raster.h"

#ifdef TELEGRAD_WITH_PNG

#include <png.h>

#include <csetjmp>
#include <cstring>
#include <vector>

namespace telegrad {
namespace {

constexpr png_alloc_size_t kMaxChunk = 8 << 20;  // of what is no pixels: a profile, a text

struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string_view rest;
  bool failed = false;
  char message[128] = {};
};

[[noreturn]] void OnPngError(png_structp png, png_const_charp message) {
  auto* const reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::strncpy(reader->message, message, sizeof(reader->message) - 1);
  png_longjmp(png, 1);
}

void OnPngWarning(png_structp, png_const_charp) {}

void ReadPngBytes(png_structp png, png_bytep to, size_t count) {
  auto* const reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (reader->rest.size() < count) png_error(png, "it ends too early");
  std::memcpy(to, reader->rest.data(), count);
  reader->rest.remove_prefix(count);
}

// Rows of 8 bits a sample, gray or RGB: palettes are looked up, transparency is left out.
bool ReadPngHeader(PngReader* reader) {
  png_structp const png = reader->png;
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_read_fn(png, reader, ReadPngBytes);
  png_set_user_limits(png, kMaxImageSide, kMaxImageSide);
  png_set_chunk_malloc_max(png, kMaxChunk);
  png_read_info(png, reader->info);
  png_set_palette_to_rgb(png);
  png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, reader->info);
  return true;
}

bool ReadPngRows(PngReader* reader, png_bytepp rows) {
  if (setjmp(png_jmpbuf(reader->png)) != 0) return false;
  png_read_image(reader->png, rows);
  png_read_end(reader->png, nullptr);
  return true;
}

absl::Status ReadPng(PngReader* reader, Raster* out) {
  if (!ReadPngHeader(reader)) return DamagedImage(std::string_view(reader->message));
  const int channels = png_get_channels(reader->png, reader->info);
  if (channels != 1 && channels != 3) return Internal(channels, " channels");
  TG_RETURN_IF_ERROR(out->Start(png_get_image_width(reader->png, reader->info),
                                png_get_image_height(reader->png, reader->info), channels));
  if (png_get_rowbytes(reader->png, reader->info) != static_cast<size_t>(out->width() * channels)) {
    return Internal("rows of another length");
  }
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < out->height(); ++y) rows.push_back(out->Row(y));
  if (!ReadPngRows(reader, rows.data())) return DamagedImage(std::string_view(reader->message));
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodePng(std::string_view bytes, Raster* out) {
  PngReader reader;
  reader.rest = bytes;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, OnPngError, OnPngWarning);
  if (reader.png == nullptr) return ResourceExhausted("libpng could not start");
  reader.info = png_create_info_struct(reader.png);
  const absl::Status status = reader.info == nullptr ? ResourceExhausted("no memory for the header")
                                                     : ReadPng(&reader, out);
  png_destroy_read_struct(&reader.png, &reader.info, nullptr);
  return status;
}

}  // namespace telegrad

#else

namespace telegrad {

absl::Status DecodePng(std::string_view, Raster*) {
  return Unimplemented("this program was built without libpng");
}

}  // namespace telegrad

#endif
