// The format is written by archive.py, where it is described.
#include "tests/tinygrad/captures.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/ir/scalar.h"

namespace telegrad::testing {
namespace {

constexpr std::string_view kMagic = "TGCAP001";
constexpr std::string_view kFolder = "tests/data/tinygrad";

// Takes values off the front of some bytes. Once it has failed it gives zeros.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Number() {
    T value = 0;
    const std::string_view taken = Take(sizeof(T));
    if (ok_) std::memcpy(&value, taken.data(), sizeof(T));
    return value;
  }
  std::string_view Bytes() { return Take(Number<uint32_t>()); }
  std::string_view Take(size_t n) {
    if (n > bytes_.size()) ok_ = false;
    if (!ok_) return {};
    const std::string_view taken = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return taken;
  }
  std::string_view rest() const { return bytes_; }
  bool ok() const { return ok_; }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

absl::StatusOr<std::string> Inflate(std::string_view file) {
  Cursor in(file);
  if (in.Take(kMagic.size()) != kMagic) return InvalidArgument("does not start with ", kMagic);
  std::string body(in.Number<uint32_t>(), '\0');
  uLongf size = body.size();
  const int rc = uncompress(reinterpret_cast<Bytef*>(body.data()), &size,
                            reinterpret_cast<const Bytef*>(in.rest().data()), in.rest().size());
  if (rc != Z_OK || size != body.size()) return InvalidArgument("the zlib stream is damaged");
  return body;
}

absl::StatusOr<Capture> ReadCapture(const std::string& group, Cursor& in) {
  Capture capture;
  capture.name = group + "/" + std::string(in.Bytes());
  const std::string_view graph = in.Bytes();
  if (!capture.graph.ParseFromArray(graph.data(), static_cast<int>(graph.size()))) {
    return InvalidArgument(capture.name, ": the graph is damaged");
  }
  capture.variables.resize(in.Number<uint32_t>());
  for (int64_t& value : capture.variables) value = in.Number<int64_t>();
  const auto bytes = [&] {
    const std::string_view taken = in.Bytes();
    return std::vector<uint8_t>(taken.begin(), taken.end());
  };
  capture.slots.resize(in.ok() ? in.Number<uint32_t>() : 0);
  for (CapturedSlot& slot : capture.slots) {
    const int wire = in.Number<int32_t>();
    const std::optional<DType> dtype = DTypeFromWire(wire);
    if (!dtype) return InvalidArgument(capture.name, ": unknown dtype ", wire);
    slot.dtype = *dtype;
    const bool stored = in.Number<uint32_t>() != 0;
    slot.before = bytes();
    if (stored) slot.after = bytes();
  }
  if (!in.ok()) return InvalidArgument(capture.name, ": ends too early");
  return capture;
}

double Tolerance(DType dtype) {
  const double unit = std::exp2(-Info(dtype).mantissa_bits);  // in the last place
  switch (dtype) {
    case DType::kFloat64:
      return 1e-9;
    case DType::kFloat32:
      return 1e-5;
    case DType::kFloat16:
      return 6 * unit;  // whole optimizer steps in it were captured
    default:
      return 1.5 * unit;
  }
}

double Tolerance(UOp root) {
  double tolerance = 0;
  for (uint32_t id : PostOrder(root)) {
    const DType dtype = root.graph()->dtype(id);
    if (IsFloat(dtype)) tolerance = std::max(tolerance, Tolerance(dtype));
  }
  return tolerance;
}

double Element(DType dtype, const std::vector<uint8_t>& bytes, int64_t i) {
  int64_t raw = 0;
  std::memcpy(&raw, bytes.data() + i * ByteSize(dtype), ByteSize(dtype));
  return ScalarAsDouble(dtype, ScalarFromMemory(dtype, raw));
}

std::string SlotDifference(DType dtype, double tolerance, const std::vector<uint8_t>& want,
                           const std::vector<uint8_t>& got) {
  if (want == got) return "";
  if (want.size() != got.size()) return StrCat(got.size(), " bytes, expected ", want.size());
  const int64_t n = static_cast<int64_t>(want.size()) / ByteSize(dtype);
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = std::abs(Element(dtype, want, i));
    if (std::isfinite(x)) largest = std::max(largest, x);
  }
  if (!IsFloat(dtype)) tolerance = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = Element(dtype, want, i), y = Element(dtype, got, i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (std::abs(x - y) <= tolerance * std::max(std::abs(x), largest / 8)) continue;
    return StrCat("element ", i, " of ", n, " is ", y, ", expected ", x);
  }
  // Integers of 64 bits may differ where doubles do not.
  return IsFloat(dtype) ? "" : "integers differ";
}

}  // namespace

std::vector<std::vector<uint8_t>> Capture::SlotsBefore() const {
  std::vector<std::vector<uint8_t>> out;
  for (const CapturedSlot& slot : slots) out.push_back(slot.before);
  return out;
}

std::vector<VarValue> Capture::VarValues() const {
  std::vector<VarValue> out;
  for (const int64_t value : variables) out.push_back({static_cast<int64_t>(out.size()), value});
  return out;
}

std::string Difference(const Capture& capture, UOp root,
                       const std::vector<std::vector<uint8_t>>& slots, double slack) {
  const double tolerance = slack * Tolerance(root);
  for (size_t i = 0; i < capture.slots.size(); ++i) {
    const CapturedSlot& slot = capture.slots[i];
    // What is not stored to must keep its bits.
    const std::string difference =
        slot.after ? SlotDifference(slot.dtype, tolerance, *slot.after, slots[i])
                   : (slot.before == slots[i] ? "" : "changed, expected no store");
    if (!difference.empty()) return StrCat("slot ", i, ": ", difference);
  }
  return "";
}

absl::StatusOr<std::vector<Capture>> ReadCaptures() {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, error)) {
    if (entry.path().extension() == ".tgcap") paths.push_back(entry.path());
  }
  if (error) return NotFound(kFolder, ": ", error.message());
  std::ranges::sort(paths);
  std::vector<Capture> captures;
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    TG_ASSIGN_OR_RETURN(const std::string body, Inflate(bytes));
    Cursor in(body);
    const uint32_t count = in.Number<uint32_t>();
    for (uint32_t i = 0; i < count; ++i) {
      TG_ASSIGN_OR_RETURN(Capture capture, ReadCapture(path.stem().string(), in));
      captures.push_back(std::move(capture));
    }
  }
  return captures;
}

}  // namespace telegrad::testing
