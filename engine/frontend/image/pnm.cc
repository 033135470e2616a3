// Netpbm's PBM, PGM and PPM, in text and in bytes, and PAM (the manual pages pbm(5), pgm(5), ppm(5)
// and pam(5)). A file may hold several images; the first is read.
#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "engine/frontend/image/raster.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxPnmValue = 65535;

bool IsBlank(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }

class PnmReader {
 public:
  explicit PnmReader(std::string_view bytes) : rest_(bytes) {}

  // Letters or digits behind blanks and comments, which end with their line.
  std::string_view Token() {
    while (!rest_.empty() && (IsBlank(rest_[0]) || rest_[0] == '#')) {
      if (rest_[0] == '#') {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size() - 1));
      }
      rest_.remove_prefix(1);
    }
    const auto end = std::ranges::find_if(rest_, [](char c) { return IsBlank(c) || c == '#'; });
    const std::string_view token = rest_.substr(0, static_cast<size_t>(end - rest_.begin()));
    rest_.remove_prefix(token.size());
    return token;
  }
  absl::StatusOr<int64_t> Number(int64_t most) {
    const std::string_view token = Token();
    int64_t out = -1;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), out);
    if (error != std::errc() || end != token.data() + token.size() || out < 0 || out > most) {
      return DamagedImage("expected a number from 0 to ", most, ", got '", token.substr(0, 20),
                          "'");
    }
    return out;
  }
  // The next 0 or 1 of a PBM in text, where nothing need be between them; -1 if there is none.
  int Bit() {
    while (!rest_.empty() && IsBlank(rest_[0])) rest_.remove_prefix(1);
    if (rest_.empty() || (rest_[0] != '0' && rest_[0] != '1')) return -1;
    const int bit = rest_[0] - '0';
    rest_.remove_prefix(1);
    return bit;
  }
  // Behind the one blank after the header.
  std::string_view Data() const { return rest_.empty() ? rest_ : rest_.substr(1); }

 private:
  std::string_view rest_;
};

struct PnmHeader {
  int64_t width = 0, height = 0, most = 1;
  int samples = 1;  // of a pixel in the file
};

absl::StatusOr<PnmHeader> ReadPam(PnmReader* r) {
  PnmHeader h;
  for (std::string_view key = r->Token(); key != "ENDHDR"; key = r->Token()) {
    if (key == "WIDTH") {
      TG_ASSIGN_OR_RETURN(h.width, r->Number(kMaxImageSide));
    } else if (key == "HEIGHT") {
      TG_ASSIGN_OR_RETURN(h.height, r->Number(kMaxImageSide));
    } else if (key == "DEPTH") {
      TG_ASSIGN_OR_RETURN(const int64_t depth, r->Number(4));
      h.samples = static_cast<int>(depth);
    } else if (key == "MAXVAL") {
      TG_ASSIGN_OR_RETURN(h.most, r->Number(kMaxPnmValue));
    } else if (key == "TUPLTYPE") {
      (void)r->Token();  // DEPTH says it
    } else {
      return DamagedImage("'", key.substr(0, 20), "' in its header");
    }
  }
  return h;
}

absl::StatusOr<PnmHeader> ReadPnmHeader(char kind, PnmReader* r) {
  if (kind == '7') return ReadPam(r);
  PnmHeader h;
  TG_ASSIGN_OR_RETURN(h.width, r->Number(kMaxImageSide));
  TG_ASSIGN_OR_RETURN(h.height, r->Number(kMaxImageSide));
  const bool bitmap = kind == '1' || kind == '4';
  if (!bitmap) {
    TG_ASSIGN_OR_RETURN(h.most, r->Number(kMaxPnmValue));
  }
  h.samples = kind == '3' || kind == '6' ? 3 : 1;
  return h;
}

uint8_t Scaled(int64_t value, int64_t most) {
  return static_cast<uint8_t>((2 * 255 * std::min(value, most) + most) / (2 * most));
}

// A 1 is black.
absl::Status ReadBits(bool text, PnmReader* r, Raster* out) {
  const std::string_view data = text ? std::string_view() : r->Data();
  const int64_t stride = (out->width() + 7) / 8;
  if (!text && static_cast<int64_t>(data.size()) < stride * out->height()) {
    return DamagedImage("it ends in its pixels");
  }
  for (int64_t y = 0; y < out->height(); ++y) {
    for (int64_t x = 0; x < out->width(); ++x) {
      const int bit = text ? r->Bit() : data[y * stride + x / 8] >> (7 - x % 8) & 1;
      if (bit < 0) return DamagedImage("it ends in its pixels");
      out->Row(y)[x] = bit == 0 ? 255 : 0;
    }
  }
  return absl::OkStatus();
}

absl::Status ReadSamples(const PnmHeader& h, bool text, PnmReader* r, Raster* out) {
  const std::string_view data = text ? std::string_view() : r->Data();
  const int wide = h.most > 255 ? 2 : 1;
  const int64_t count = h.width * h.height * h.samples;
  if (!text && static_cast<int64_t>(data.size()) < count * wide) {
    return DamagedImage("it ends in its pixels");
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(data.data());
  uint8_t* const to = out->Row(0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = 0;
    if (text) {
      TG_ASSIGN_OR_RETURN(value, r->Number(h.most));
    } else {
      value = wide == 1 ? bytes[i] : bytes[2 * i] << 8 | bytes[2 * i + 1];
    }
    const int64_t sample = i % h.samples;  // those behind the colours are transparency
    if (sample < out->channels())
      to[i / h.samples * out->channels() + sample] = Scaled(value, h.most);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DecodePnm(std::string_view bytes, Raster* out) {
  const char kind = bytes[1];
  PnmReader r(bytes.substr(2));
  TG_ASSIGN_OR_RETURN(const PnmHeader h, ReadPnmHeader(kind, &r));
  if (h.most < 1 || h.samples < 1) return DamagedImage("a largest value or a depth of 0");
  TG_RETURN_IF_ERROR(out->Start(h.width, h.height, h.samples >= 3 ? 3 : 1));
  if (kind == '1' || kind == '4') return ReadBits(kind == '1', &r, out);
  return ReadSamples(h, kind == '2' || kind == '3', &r, out);
}

}  // namespace telegrad
