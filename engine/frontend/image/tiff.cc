// TIFF 6.0 (Adobe, 1992): the first image of a file, in strips or tiles, of unsigned samples of 1
// to 16 bits. Its strips are decoded one at a time into rows of samples, which a second step turns
// into colours. Facsimile and JPEG compression are not supported.
#include <cstring>
#include <vector>

#include "engine/frontend/image/raster.h"
#include "engine/frontend/image/tiff_codecs.h"

namespace telegrad {
namespace {

constexpr size_t kMaxTiffEntries = 512;
constexpr int64_t kMaxTiffStrips = 1 << 20;

// Tags of TIFF 6.0, part 1 and sections 14 to 16.
enum Tag : uint16_t {
  kImageWidth = 256,
  kImageLength = 257,
  kBitsPerSample = 258,
  kCompressionTag = 259,
  kPhotometric = 262,
  kFillOrder = 266,
  kStripOffsets = 273,
  kSamplesPerPixel = 277,
  kRowsPerStrip = 278,
  kStripByteCounts = 279,
  kPlanarConfiguration = 284,
  kPredictor = 317,
  kColorMap = 320,
  kTileWidth = 322,
  kTileLength = 323,
  kTileOffsets = 324,
  kTileByteCounts = 325,
  kSampleFormat = 339,
};
enum Photometric : int64_t {
  kWhiteIsZero = 0,
  kBlackIsZero = 1,
  kTiffRgb = 2,
  kPalette = 3,
  kCmyk = 5
};

// Numbers of either byte order, at places that the file tells.
class TiffFile {
 public:
  explicit TiffFile(std::string_view bytes) : bytes_(bytes), big_(bytes[0] == 'M') {}

  bool big() const { return big_; }
  absl::StatusOr<uint32_t> Number(uint64_t at, size_t width) const {
    if (at > bytes_.size() || bytes_.size() - at < width) return DamagedImage("it ends too early");
    uint32_t out = 0;
    for (size_t i = 0; i < width; ++i) {
      const auto byte = static_cast<uint8_t>(bytes_[at + (big_ ? i : width - 1 - i)]);
      out = out << 8 | byte;
    }
    return out;
  }
  absl::StatusOr<std::string_view> Part(uint64_t at, uint64_t size) const {
    if (at > bytes_.size() || bytes_.size() - at < size) return DamagedImage("it ends too early");
    return bytes_.substr(at, size);
  }

 private:
  std::string_view bytes_;
  bool big_;
};

struct TiffHeader {
  int64_t width = 0, height = 0, bits = 1, compression = 1, photometric = -1, fill_order = 1;
  int64_t samples = 1, rows = 0, columns = 0, planar = 1, predictor = 1, format = 1;
  bool tiled = false;
  std::vector<uint32_t> offsets, sizes, colors;

  int64_t Across() const { return (width + columns - 1) / columns; }
  int64_t Down() const { return (height + rows - 1) / rows; }
  int64_t SamplesTogether() const { return planar == 2 ? 1 : samples; }
  int64_t RowBytes() const { return (columns * SamplesTogether() * bits + 7) / 8; }
};

// BYTE, SHORT or LONG; of the lists that are longer than the picture can need, an error.
absl::StatusOr<std::vector<uint32_t>> Entry(const TiffFile& file, uint64_t at) {
  TG_ASSIGN_OR_RETURN(const uint32_t type, file.Number(at + 2, 2));
  TG_ASSIGN_OR_RETURN(const uint32_t count, file.Number(at + 4, 4));
  const size_t width = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;
  if (width == 0 || count > kMaxTiffStrips) {
    return DamagedImage("an entry of type ", type, " with ", count, " values");
  }
  uint64_t from = at + 8;
  if (count * width > 4) {
    TG_ASSIGN_OR_RETURN(from, file.Number(at + 8, 4));
  }
  TG_RETURN_IF_ERROR(file.Part(from, count * width).status());
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < count; ++i) {
    TG_ASSIGN_OR_RETURN(const uint32_t value, file.Number(from + i * width, width));
    out.push_back(value);
  }
  return out;
}

absl::Status SetEntry(const TiffFile& file, uint32_t tag, uint64_t at, TiffHeader* h) {
  int64_t* number = nullptr;
  std::vector<uint32_t>* list = nullptr;
  switch (tag) {
    case kImageWidth:
      number = &h->width;
      break;
    case kImageLength:
      number = &h->height;
      break;
    case kBitsPerSample:
      number = &h->bits;
      break;
    case kCompressionTag:
      number = &h->compression;
      break;
    case kPhotometric:
      number = &h->photometric;
      break;
    case kFillOrder:
      number = &h->fill_order;
      break;
    case kSamplesPerPixel:
      number = &h->samples;
      break;
    case kTileLength:
    case kRowsPerStrip:
      number = &h->rows;
      break;
    case kTileWidth:
      number = &h->columns;
      break;
    case kPlanarConfiguration:
      number = &h->planar;
      break;
    case kPredictor:
      number = &h->predictor;
      break;
    case kSampleFormat:
      number = &h->format;
      break;
    case kTileOffsets:
    case kStripOffsets:
      list = &h->offsets;
      break;
    case kTileByteCounts:
    case kStripByteCounts:
      list = &h->sizes;
      break;
    case kColorMap:
      list = &h->colors;
      break;
    default:
      return absl::OkStatus();
  }
  TG_ASSIGN_OR_RETURN(std::vector<uint32_t> values, Entry(file, at));
  if (list != nullptr) {
    *list = std::move(values);
    return absl::OkStatus();
  }
  if (values.empty()) return DamagedImage("tag ", tag, " has no value");
  for (const uint32_t v : values) {  // one for each sample
    if (v != values[0]) return Unimplemented("samples that differ in tag ", tag);
  }
  *number = values[0];
  h->tiled |= tag == kTileWidth;
  return absl::OkStatus();
}

absl::Status CheckTiff(TiffHeader* h) {
  if (h->width < 1 || h->height < 1 || h->width > kMaxImageSide || h->height > kMaxImageSide) {
    return DamagedImage("it has ", h->width, " x ", h->height, " pixels");
  }
  if (!h->tiled) h->columns = h->width;
  if (h->rows < 1 || (!h->tiled && h->rows > h->height)) h->rows = h->height;
  // A tile may be larger than the picture, but not much.
  if (h->columns < 1 || h->columns > h->width + 4096 || h->rows > h->height + 4096) {
    return DamagedImage("parts of ", h->columns, " x ", h->rows, " pixels");
  }
  const bool small = h->bits == 1 || h->bits == 2 || h->bits == 4;
  if (h->format != 1 || h->samples < 1 || h->samples > 8 ||
      !(h->bits == 8 || h->bits == 16 || (small && h->samples == 1))) {
    return Unimplemented(h->samples, " samples of ", h->bits, " bits and format ", h->format);
  }
  if (h->fill_order != 1) return Unimplemented("fill order ", h->fill_order);
  if (h->predictor != 1 && !(h->predictor == 2 && h->bits >= 8)) {
    return Unimplemented("predictor ", h->predictor, " with ", h->bits, " bits");
  }
  const int64_t needed = h->photometric == kTiffRgb ? 3 : h->photometric == kCmyk ? 4 : 1;
  if (h->photometric < 0 || h->photometric > kCmyk || h->photometric == 4) {
    return Unimplemented("photometric interpretation ", h->photometric);
  }
  if (h->samples < needed) return DamagedImage(h->samples, " samples, expected ", needed);
  if (h->photometric == kPalette && (h->bits > 8 || h->colors.size() != size_t{3} << h->bits)) {
    return DamagedImage("a palette of ", h->colors.size(), " numbers");
  }
  const int64_t parts = h->Across() * h->Down() * (h->planar == 2 ? h->samples : 1);
  if (static_cast<int64_t>(h->offsets.size()) < parts ||
      static_cast<int64_t>(h->sizes.size()) < parts) {
    return DamagedImage("it has ", h->offsets.size(), " parts, expected ", parts);
  }
  return absl::OkStatus();
}

absl::StatusOr<TiffHeader> ReadTiffHeader(const TiffFile& file) {
  TiffHeader h;
  TG_ASSIGN_OR_RETURN(const uint32_t directory, file.Number(4, 4));
  TG_ASSIGN_OR_RETURN(const uint32_t count, file.Number(directory, 2));
  if (count > kMaxTiffEntries) return DamagedImage("a directory of ", count, " entries");
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t at = uint64_t{directory} + 2 + 12 * uint64_t{i};
    TG_ASSIGN_OR_RETURN(const uint32_t tag, file.Number(at, 2));
    TG_RETURN_IF_ERROR(SetEntry(file, tag, at, &h));
  }
  TG_RETURN_IF_ERROR(CheckTiff(&h));
  return h;
}

// The rows of a strip or tile, in the machine's byte order.
absl::Status ReadPart(const TiffFile& file, const TiffHeader& h, int64_t part, std::string* rows) {
  TG_ASSIGN_OR_RETURN(const std::string_view packed, file.Part(h.offsets[part], h.sizes[part]));
  TG_RETURN_IF_ERROR(UnpackTiff(h.compression, packed, rows));
  auto* const bytes = reinterpret_cast<uint8_t*>(rows->data());
  if (h.bits == 16 && file.big()) {
    for (size_t i = 0; i + 1 < rows->size(); i += 2) std::swap(bytes[i], bytes[i + 1]);
  }
  if (h.predictor == 1) return absl::OkStatus();
  // Every sample is the difference from the one of the pixel before it.
  const int64_t step = h.SamplesTogether(), count = h.columns * step;
  for (size_t row = 0; row < rows->size(); row += static_cast<size_t>(h.RowBytes())) {
    for (int64_t i = step; i < count; ++i) {
      uint8_t* const at = bytes + row + i * h.bits / 8;
      const uint8_t* const before = at - step * h.bits / 8;
      if (h.bits == 8) {
        *at = static_cast<uint8_t>(*at + *before);
      } else {
        uint16_t a = 0, b = 0;
        std::memcpy(&a, at, 2);
        std::memcpy(&b, before, 2);
        a = static_cast<uint16_t>(a + b);
        std::memcpy(at, &a, 2);
      }
    }
  }
  return absl::OkStatus();
}

// 0 to 255, of a palette the index.
uint8_t Sample(const TiffHeader& h, const uint8_t* row, int64_t i) {
  if (h.bits == 8) return row[i];
  if (h.bits == 16) return row[2 * i + 1];
  const int64_t bit = i * h.bits, most = (1 << h.bits) - 1;
  const int64_t value = (row[bit / 8] >> (8 - h.bits - bit % 8)) & most;
  return static_cast<uint8_t>(h.photometric == kPalette ? value : value * 255 / most);
}

}  // namespace

absl::Status DecodeTiff(std::string_view bytes, Raster* out) {
  const TiffFile file(bytes);
  TG_ASSIGN_OR_RETURN(const TiffHeader h, ReadTiffHeader(file));
  const bool gray = h.photometric == kWhiteIsZero || h.photometric == kBlackIsZero;
  TG_RETURN_IF_ERROR(out->Start(h.width, h.height, gray ? 1 : 3));
  Budget::Held held(out->budget());
  // The colours' samples of the whole picture, and the rows of a part of it.
  const int64_t kept = h.photometric == kTiffRgb ? 3 : h.photometric == kCmyk ? 4 : 1;
  TG_RETURN_IF_ERROR(held.Grow(h.width * h.height * kept + h.RowBytes() * h.rows));
  std::vector<uint8_t> samples(static_cast<size_t>(h.width * h.height * kept));
  const int64_t planes = h.planar == 2 ? kept : 1, together = h.SamplesTogether();
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t part = 0; part < h.Across() * h.Down(); ++part) {
      const int64_t x0 = part % h.Across() * h.columns, y0 = part / h.Across() * h.rows;
      // The last strip has fewer rows; tiles are whole.
      const int64_t height = h.tiled ? h.rows : std::min(h.rows, h.height - y0);
      std::string rows(static_cast<size_t>(h.RowBytes() * height), '\0');
      TG_RETURN_IF_ERROR(out->budget()->SpendSteps(1 + static_cast<int64_t>(rows.size()) / 16));
      TG_RETURN_IF_ERROR(ReadPart(file, h, plane * h.Across() * h.Down() + part, &rows));
      for (int64_t y = y0; y < std::min(y0 + height, h.height); ++y) {
        const auto* const row =
            reinterpret_cast<const uint8_t*>(rows.data()) + (y - y0) * h.RowBytes();
        for (int64_t x = x0; x < std::min(x0 + h.columns, h.width); ++x) {
          uint8_t* const to = samples.data() + (y * h.width + x) * kept;
          for (int64_t s = 0; s < (planes > 1 ? 1 : kept); ++s) {
            to[planes > 1 ? plane : s] = Sample(h, row, (x - x0) * together + s);
          }
        }
      }
    }
  }
  for (int64_t y = 0; y < h.height; ++y) {
    for (int64_t x = 0; x < h.width; ++x) {
      const uint8_t* const s = samples.data() + (y * h.width + x) * kept;
      if (gray) {
        out->Row(y)[x] = h.photometric == kWhiteIsZero ? static_cast<uint8_t>(255 - s[0]) : s[0];
      } else if (h.photometric == kPalette) {
        const size_t count = size_t{1} << h.bits;  // numbers of 16 bits, all reds first
        const auto color = [&](size_t i) {
          return static_cast<uint8_t>(h.colors[i * count + s[0]] >> 8);
        };
        out->SetRgb(x, y, color(0), color(1), color(2));
      } else if (h.photometric == kCmyk) {
        const auto ink = [&](int i) {
          return static_cast<uint8_t>((255 - s[i]) * (255 - s[3]) / 255);
        };
        out->SetRgb(x, y, ink(0), ink(1), ink(2));
      } else {
        out->SetRgb(x, y, s[0], s[1], s[2]);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace telegrad
