#include "engine/frontend/nn/datasets.h"

#include <zlib.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/base/status.h"
#include "engine/frontend/tensor/host_random.h"

namespace telegrad {
namespace {

constexpr int kPixels = 64;
constexpr int kClasses = 10;
constexpr int64_t kMaxText = int64_t{16} << 20;  // of an unpacked file
constexpr uint64_t kSplitSeed = 2024;

absl::StatusOr<std::string> ReadGzip(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) return NotFound("cannot open ", path, ": ", std::strerror(errno));
  std::string text;
  char chunk[1 << 16];
  while (true) {
    const int n = gzread(file.get(), chunk, sizeof(chunk));
    if (n < 0) return InvalidArgument(path, ": damaged gzip data");
    if (n == 0) break;
    text.append(chunk, n);
    if (static_cast<int64_t>(text.size()) > kMaxText) {
      return ResourceExhausted(path, ": more than ", kMaxText, " bytes unpacked");
    }
  }
  // gzread takes a truncated file for a short one; the close status tells.
  int error = Z_OK;
  gzerror(file.get(), &error);
  if (error != Z_OK) return InvalidArgument(path, ": damaged gzip data");
  return text;
}

using Line = std::vector<int>;

absl::StatusOr<std::vector<Line>> ParseLines(const std::string& text) {
  std::vector<Line> lines;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    Line line;
    while (true) {
      int value = 0;
      const auto [next, error] = std::from_chars(at, end, value);
      const int limit = line.size() < kPixels ? 16 : kClasses - 1;
      if (error != std::errc() || value < 0 || value > limit || line.size() > kPixels) {
        return InvalidArgument("line ", lines.size() + 1, ", column ", line.size() + 1,
                               ": expected an integer in 0..", limit);
      }
      line.push_back(value);
      at = next;
      if (at == end || *at != ',') break;
      ++at;
    }
    if (line.size() != kPixels + 1) {
      return InvalidArgument("line ", lines.size() + 1, " has ", line.size(), " numbers, expected ",
                             kPixels + 1);
    }
    while (at != end && (*at == '\r' || *at == '\n')) ++at;
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<int64_t> Shuffled(int64_t n, uint64_t seed) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = n; i > 1; --i) std::swap(order[i - 1], order[RandomBelow(seed, i, i)]);
  return order;
}

Examples SelectRows(const std::vector<Line>& lines, const std::vector<int64_t>& rows) {
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  for (int64_t row : rows) {
    for (int i = 0; i < kPixels; ++i) pixels.push_back(static_cast<float>(lines[row][i]) / 16.0f);
    labels.push_back(lines[row][kPixels]);
  }
  const auto n = static_cast<int64_t>(rows.size());
  return {HostTensor::Of<float>({n, 1, 8, 8}, std::span<const float>(pixels)),
          HostTensor::Of<int32_t>({n}, std::span<const int32_t>(labels))};
}

}  // namespace

absl::StatusOr<Digits> ReadDigits(const std::string& path) {
  TG_ASSIGN_OR_RETURN(const std::string text, ReadGzip(path));
  absl::StatusOr<std::vector<Line>> lines = ParseLines(text);
  if (!lines.ok()) return InvalidArgument(path, ": ", ToStd(lines.status().message()));
  std::vector<int64_t> train, held_out;
  int seen[kClasses] = {};
  for (int64_t row : Shuffled(static_cast<int64_t>(lines->size()), kSplitSeed)) {
    const bool held = seen[(*lines)[row][kPixels]]++ % 5 == 0;
    (held ? held_out : train).push_back(row);
  }
  return Digits{SelectRows(*lines, train), SelectRows(*lines, held_out)};
}

Examples Batch(const Examples& all, uint64_t seed, int64_t first, int64_t count) {
  const int64_t n = all.size();
  Examples out;
  out.images = {all.images.dtype, all.images.shape, {}};
  out.labels = {all.labels.dtype, {count}, {}};
  out.images.shape[0] = count;
  const std::vector<int64_t> order = Shuffled(n, seed);
  const size_t image = all.images.bytes.size() / n, label = all.labels.bytes.size() / n;
  for (int64_t i = 0; i < count; ++i) {
    const size_t row = order[(first + i) % n];
    out.images.bytes.append(all.images.bytes, row * image, image);
    out.labels.bytes.append(all.labels.bytes, row * label, label);
  }
  return out;
}

}  // namespace telegrad
