// BMP, as Windows' BITMAPFILEHEADER and BITMAPCOREHEADER, BITMAPINFOHEADER and its successors
// (their first 40 bytes and the masks are what counts): 1 to 32 bits a pixel, run lengths, rows of
// either order.
#include <bit>
#include <vector>

#include "engine/base/byte_codec.h"
#include "engine/frontend/image/raster.h"

namespace telegrad {
namespace {

constexpr uint32_t kFileHeader = 14, kCoreHeader = 12, kInfoHeader = 40;
// The field biCompression.
enum Compression : uint32_t {
  kNone = 0,
  kRle8 = 1,
  kRle4 = 2,
  kBitFields = 3,
  kAlphaBitFields = 6
};

struct BmpHeader {
  uint32_t data_at = 0, size = 0, compression = kNone, colors = 0;
  int64_t width = 0, height = 0;
  bool top_down = false;
  int bits = 0;
  uint32_t masks[3] = {0, 0, 0};
  std::vector<uint32_t> palette;  // 0xRRGGBB
};

absl::StatusOr<BmpHeader> ReadBmpHeader(std::string_view bytes) {
  BmpHeader h;
  ByteReader r(bytes);
  (void)r.Word<uint16_t>();  // BM
  (void)r.Word<uint64_t>();  // the file's size, which many writers get wrong, and 0
  h.data_at = r.Word<uint32_t>();
  h.size = r.Word<uint32_t>();
  if (h.size == kCoreHeader) {
    h.width = r.Word<uint16_t>();
    h.height = r.Word<uint16_t>();
  } else if (h.size >= kInfoHeader && h.size <= 256) {
    h.width = r.Word<int32_t>();
    h.height = r.Word<int32_t>();
  } else {
    return DamagedImage("a header of ", h.size, " bytes");
  }
  (void)r.Word<uint16_t>();  // planes
  h.bits = r.Word<uint16_t>();
  if (h.size >= kInfoHeader) {
    h.compression = r.Word<uint32_t>();
    for (int i = 0; i < 3; ++i) (void)r.Word<uint32_t>();  // the data's size, pixels a metre
    h.colors = r.Word<uint32_t>();
    (void)r.Word<uint32_t>();
  }
  if (!r.ok()) return DamagedImage("it ends in its header");
  h.top_down = h.height < 0;
  if (h.top_down) h.height = -h.height;
  size_t palette_at = kFileHeader + h.size;
  const bool fields = h.compression == kBitFields || h.compression == kAlphaBitFields;
  if (fields) {
    for (uint32_t& mask : h.masks) mask = r.Word<uint32_t>();
    if (h.size == kInfoHeader) palette_at += h.compression == kBitFields ? 12 : 16;
  } else if (h.bits == 16) {
    h.masks[0] = 31 << 10, h.masks[1] = 31 << 5, h.masks[2] = 31;
  } else if (h.bits == 32) {
    h.masks[0] = 0xff0000, h.masks[1] = 0xff00, h.masks[2] = 0xff;
  }
  if (h.bits <= 8) {
    const uint32_t most = 1U << h.bits;
    const uint32_t count = h.colors == 0 || h.colors > most ? most : h.colors;
    ByteReader colors(bytes.substr(std::min(palette_at, bytes.size())));
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t b = colors.Word<uint8_t>(), g = colors.Word<uint8_t>(),
                     red = colors.Word<uint8_t>();
      if (h.size != kCoreHeader) (void)colors.Word<uint8_t>();
      h.palette.push_back(red << 16 | g << 8 | b);
    }
    h.palette.resize(most);  // what has no colour is black
    if (!colors.ok()) return DamagedImage("it ends in its palette");
  }
  if (!r.ok() || h.data_at > bytes.size()) return DamagedImage("it ends before its pixels");
  return h;
}

void SetColor(const BmpHeader& h, int64_t x, int64_t row, uint32_t color, Raster* out) {
  out->SetRgb(x, h.top_down ? row : h.height - 1 - row, static_cast<uint8_t>(color >> 16),
              static_cast<uint8_t>(color >> 8), static_cast<uint8_t>(color));
}

// The bits of a mask as a number up to 255.
uint8_t Field(uint32_t pixel, uint32_t mask) {
  if (mask == 0) return 0;
  const int shift = std::countr_zero(mask);
  const uint64_t most = mask >> shift;
  return static_cast<uint8_t>(uint64_t{(pixel & mask) >> shift} * 255 / most);
}

absl::Status ReadRows(const BmpHeader& h, std::string_view data, Raster* out) {
  const int64_t stride = (h.width * h.bits + 31) / 32 * 4;
  const int64_t last = (h.width * h.bits + 7) / 8;  // the last row may lack its padding
  if (static_cast<int64_t>(data.size()) < stride * (h.height - 1) + last) {
    return DamagedImage("it ends in its pixels");
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(data.data());
  for (int64_t row = 0; row < h.height; ++row) {
    const uint8_t* const from = bytes + row * stride;
    for (int64_t x = 0; x < h.width; ++x) {
      uint32_t color = 0;
      if (h.bits <= 8) {
        const int64_t bit = x * h.bits;
        const int shift = static_cast<int>(8 - h.bits - bit % 8);
        color = h.palette[(from[bit / 8] >> shift) & ((1 << h.bits) - 1)];
      } else if (h.bits == 24) {
        color = static_cast<uint32_t>(from[3 * x + 2] << 16 | from[3 * x + 1] << 8 | from[3 * x]);
      } else {
        uint32_t pixel = 0;
        std::memcpy(&pixel, from + x * h.bits / 8, static_cast<size_t>(h.bits / 8));
        color = static_cast<uint32_t>(Field(pixel, h.masks[0]) << 16 |
                                      Field(pixel, h.masks[1]) << 8 | Field(pixel, h.masks[2]));
      }
      SetColor(h, x, row, color, out);
    }
  }
  return absl::OkStatus();
}

// A count and a colour, or 0 and: 0 ends the row, 1 the picture, 2 moves, more are so many pixels
// as they are. What is left out has the first colour.
absl::Status ReadRuns(const BmpHeader& h, std::string_view data, Raster* out) {
  for (int64_t row = 0; row < h.height; ++row) {
    for (int64_t x = 0; x < h.width; ++x) SetColor(h, x, row, h.palette[0], out);
  }
  ByteReader r(data);
  int64_t x = 0, row = 0;
  const auto put = [&](int index) {
    if (x < h.width && row < h.height) SetColor(h, x, row, h.palette[index], out);
    ++x;
  };
  const auto index = [&](int byte, int i) {
    return h.bits == 8 ? byte : (i % 2 == 0 ? byte >> 4 : byte & 15);
  };
  while (row < h.height) {
    const int count = r.Word<uint8_t>(), value = r.Word<uint8_t>();
    if (!r.ok()) return DamagedImage("it ends in its pixels");
    if (count > 0) {
      for (int i = 0; i < count; ++i) put(index(value, i));
    } else if (value == 0) {
      x = 0;
      ++row;
    } else if (value == 1) {
      break;
    } else if (value == 2) {
      x += r.Word<uint8_t>();
      row += r.Word<uint8_t>();
    } else {
      int byte = 0;
      for (int i = 0; i < value; ++i) {
        if (h.bits == 8 || i % 2 == 0) byte = r.Word<uint8_t>();
        put(index(byte, i));
      }
      const int bytes = h.bits == 8 ? value : (value + 1) / 2;
      if (bytes % 2 != 0) (void)r.Word<uint8_t>();  // pairs of bytes
    }
  }
  return r.ok() ? absl::OkStatus() : DamagedImage("it ends in its pixels");
}

}  // namespace

absl::Status DecodeBmp(std::string_view bytes, Raster* out) {
  TG_ASSIGN_OR_RETURN(const BmpHeader h, ReadBmpHeader(bytes));
  TG_RETURN_IF_ERROR(out->Start(h.width, h.height, 3));
  const std::string_view data = bytes.substr(h.data_at);
  if ((h.compression == kRle8 && h.bits == 8) || (h.compression == kRle4 && h.bits == 4)) {
    return ReadRuns(h, data, out);
  }
  const bool fields = h.compression == kBitFields || h.compression == kAlphaBitFields;
  const bool direct = h.bits == 16 || h.bits == 32;
  if (h.compression != kNone && !(fields && direct)) {
    return Unimplemented("compression ", h.compression, " with ", h.bits, " bits a pixel");
  }
  if (!direct && h.bits != 1 && h.bits != 2 && h.bits != 4 && h.bits != 8 && h.bits != 24) {
    return DamagedImage(h.bits, " bits a pixel");
  }
  return ReadRows(h, data, out);
}

}  // namespace telegrad
