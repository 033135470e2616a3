// JPEG through libjpeg (libjpeg-turbo: baseline and progressive). Its defaults are those that
// ONNX's ImageDecoder demands: chroma is interpolated linearly ("fancy upsampling") and the
// transform is the exact one. An error leaves the library by longjmp, over frames without
// destructors.
#include "engine/frontend/image/raster.h"

#ifdef TELEGRAD_WITH_JPEG

#include <jerror.h>   // after jpeglib.h
#include <jpeglib.h>  // after <cstdio>, which it needs

#include <csetjmp>
#include <cstdio>
#include <vector>

namespace telegrad {
namespace {

// A progressive file of some kilobytes may have any number of passes over all of its coefficients.
constexpr int kMaxScans = 500;
constexpr long kMaxJpegMemory = 1L << 30;

struct JpegReader {
  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf failed = {};
  char message[JMSG_LENGTH_MAX] = {};
  bool too_many_scans = false;
  bool truncated = false;
};

JpegReader* ReaderOf(j_common_ptr info) { return static_cast<JpegReader*>(info->client_data); }

[[noreturn]] void OnError(j_common_ptr info) {
  JpegReader* const reader = ReaderOf(info);
  info->err->format_message(info, reader->message);
  std::longjmp(reader->failed, 1);
}

// Negative levels are warnings. Those of a file that ends too early are errors here, others
// (rubbish between segments, say) are common and leave the picture as it is.
void OnMessage(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) {
    ReaderOf(info)->truncated = true;
    OnError(info);
  }
}

void OnProgress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans) {
    ReaderOf(info)->too_many_scans = true;
    OnError(info);
  }
}

// Each of these is one step inside setjmp: false after an error.
bool ReadJpegHeader(JpegReader* reader, std::string_view bytes) {
  if (setjmp(reader->failed) != 0) return false;
  jpeg_decompress_struct* const info = &reader->info;
  jpeg_mem_src(info, reinterpret_cast<const unsigned char*>(bytes.data()),
               static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(info, TRUE);
  switch (info->jpeg_color_space) {
    case JCS_GRAYSCALE:
      info->out_color_space = JCS_GRAYSCALE;
      break;
    case JCS_CMYK:
    case JCS_YCCK:
      info->out_color_space = JCS_CMYK;
      break;
    default:
      info->out_color_space = JCS_RGB;
  }
  info->mem->max_memory_to_use = kMaxJpegMemory;
  info->progress = &reader->progress;
  jpeg_calc_output_dimensions(info);
  return true;
}

// `inks`: a row of CMYK, else null.
bool ReadJpegRows(JpegReader* reader, Raster* out, uint8_t* inks) {
  if (setjmp(reader->failed) != 0) return false;
  jpeg_decompress_struct* const info = &reader->info;
  jpeg_start_decompress(info);
  while (info->output_scanline < info->output_height) {
    const int64_t y = info->output_scanline;
    JSAMPROW row = inks != nullptr ? inks : out->Row(y);
    if (jpeg_read_scanlines(info, &row, 1) != 1) return false;
    if (inks == nullptr) continue;
    // Adobe's programs store how much of an ink is missing.
    const int inverted = info->saw_Adobe_marker != 0 ? 0 : 255;
    for (int64_t x = 0; x < out->width(); ++x) {
      const uint8_t* const ink = inks + 4 * x;
      const int black = ink[3] ^ inverted;
      out->SetRgb(x, y, static_cast<uint8_t>((ink[0] ^ inverted) * black / 255),
                  static_cast<uint8_t>((ink[1] ^ inverted) * black / 255),
                  static_cast<uint8_t>((ink[2] ^ inverted) * black / 255));
    }
  }
  jpeg_finish_decompress(info);
  return true;
}

absl::Status JpegStatus(const JpegReader& reader) {
  if (reader.too_many_scans) return ResourceExhausted("more than ", kMaxScans, " scans");
  if (reader.truncated) return DamagedImage("it ends too early");
  const int code = reader.errors.msg_code;
  if (code == JERR_OUT_OF_MEMORY || code == JERR_NO_BACKING_STORE) {
    return ResourceExhausted("it needs more than ", kMaxJpegMemory, " bytes of memory");
  }
  return DamagedImage(std::string_view(reader.message));
}

absl::Status ReadJpeg(JpegReader* reader, std::string_view bytes, Raster* out) {
  if (!ReadJpegHeader(reader, bytes)) return JpegStatus(*reader);
  const jpeg_decompress_struct& info = reader->info;
  const bool gray = info.out_color_space == JCS_GRAYSCALE;
  TG_RETURN_IF_ERROR(out->Start(info.output_width, info.output_height, gray ? 1 : 3));
  std::vector<uint8_t> inks;
  if (info.out_color_space == JCS_CMYK) inks.resize(size_t{4} * info.output_width);
  const bool done = ReadJpegRows(reader, out, inks.empty() ? nullptr : inks.data());
  return done ? absl::OkStatus() : JpegStatus(*reader);
}

bool CreateJpeg(JpegReader* reader) {
  reader->info.err = jpeg_std_error(&reader->errors);
  reader->errors.error_exit = OnError;
  reader->errors.emit_message = OnMessage;
  reader->progress.progress_monitor = OnProgress;
  reader->info.client_data = reader;
  if (setjmp(reader->failed) != 0) return false;
  jpeg_create_decompress(&reader->info);  // keeps err and client_data
  return true;
}

}  // namespace

absl::Status DecodeJpeg(std::string_view bytes, Raster* out) {
  JpegReader reader;
  if (!CreateJpeg(&reader)) return JpegStatus(reader);
  const absl::Status status = ReadJpeg(&reader, bytes, out);
  jpeg_destroy_decompress(&reader.info);
  return status;
}

}  // namespace telegrad

#else

namespace telegrad {

absl::Status DecodeJpeg(std::string_view, Raster*) {
  return Unimplemented("this program was built without libjpeg");
}

}  // namespace telegrad

#endif
