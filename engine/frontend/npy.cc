// The header is the repr of a Python dict with the keys descr, fortran_order and shape. Only what
// NumPy itself writes is read: strings in single or double quotes without escapes, True or False,
// tuples of plain integers.
#include "engine/frontend/npy.h"

#include <optional>

#include "engine/base/checked.h"
#include "engine/base/status.h"
#include "engine/frontend/host_bytes.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kVersionEnd = 8;            // magic, major, minor
constexpr uint32_t kMaxHeaderBytes = 65536;  // what one shape can need is far below
constexpr size_t kAlign = 64;
constexpr size_t kGrowthDigits = 21;

struct Header {
  std::string_view descr;
  bool fortran_order = false;
  Shape shape;
};

class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  absl::StatusOr<Header> Parse() {
    Header out;
    bool has_descr = false, has_order = false, has_shape = false;
    TG_RETURN_IF_ERROR(Expect('{'));
    while (!TryConsume('}')) {
      TG_ASSIGN_OR_RETURN(const std::string_view key, String());
      TG_RETURN_IF_ERROR(Expect(':'));
      bool* seen = nullptr;
      if (key == "descr") {
        seen = &has_descr;
        TG_ASSIGN_OR_RETURN(out.descr, Descr());
      } else if (key == "fortran_order") {
        seen = &has_order;
        TG_ASSIGN_OR_RETURN(out.fortran_order, Bool());
      } else if (key == "shape") {
        seen = &has_shape;
        TG_ASSIGN_OR_RETURN(out.shape, Tuple());
      } else {
        return Error(StrCat("unknown key '", key, "'"));
      }
      if (*seen) return Error(StrCat("'", key, "' appears twice"));
      *seen = true;
      if (!TryConsume(',')) {
        TG_RETURN_IF_ERROR(Expect('}'));
        break;
      }
    }
    Skip();
    if (at_ != text_.size()) return Error("there is text after the dict");
    if (!has_descr || !has_order || !has_shape) {
      return Error("one of descr, fortran_order and shape is missing");
    }
    return out;
  }

 private:
  absl::Status Error(std::string_view what) const {
    return InvalidArgument("npy: header at byte ", at_, ": ", what);
  }
  void Skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool TryConsume(char c) {
    Skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  absl::Status Expect(char c) {
    if (TryConsume(c)) return absl::OkStatus();
    return Error(StrCat("expected '", std::string(1, c), "'"));
  }
  absl::StatusOr<std::string_view> String() {
    const char quote = TryConsume('\'') ? '\'' : '"';
    if (quote == '"' && !TryConsume('"')) return Error("expected a string");
    const size_t end = text_.find(quote, at_);
    if (end == text_.npos) return Error("the string does not end");
    const std::string_view out = text_.substr(at_, end - at_);
    if (out.find('\\') != out.npos) return Error("the string has an escape");
    at_ = end + 1;
    return out;
  }
  absl::StatusOr<std::string_view> Descr() {
    Skip();
    if (at_ < text_.size() && text_[at_] == '[') {
      return Unimplemented("npy: structured element types are not supported");
    }
    return String();
  }
  absl::StatusOr<bool> Bool() {
    Skip();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    return Error("expected True or False");
  }
  absl::StatusOr<int64_t> Integer() {
    Skip();
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (!CheckedMul(value, 10, &value) || !CheckedAdd(value, text_[at_] - '0', &value)) {
        return Error("the size is too large");
      }
    }
    if (begin == at_) return Error("expected a size >= 0");
    return value;
  }
  // (), (2,), (2, 3) or (2, 3,); (2) is a number in Python, not a tuple.
  absl::StatusOr<Shape> Tuple() {
    TG_RETURN_IF_ERROR(Expect('('));
    Shape out;
    bool comma = false;
    while (!TryConsume(')')) {
      if (!out.empty() && !comma) return Error("expected ',' or ')'");
      if (out.size() == kMaxRank) {
        return Error(StrCat("the rank is over the limit of ", kMaxRank));
      }
      TG_ASSIGN_OR_RETURN(const int64_t dim, Integer());
      out.push_back(dim);
      comma = TryConsume(',');
    }
    if (out.size() == 1 && !comma) return Error("the shape is not a tuple");
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// How many bytes hold the header's length in a version; 0 for an unknown version.
size_t LengthBytes(int major) { return major == 1 ? 2 : major == 2 || major == 3 ? 4 : 0; }

absl::StatusOr<DType> ElementType(std::string_view descr) {
  if (const std::optional<DType> dtype = DTypeFromNumpy(descr)) return *dtype;
  if (descr.starts_with('>')) {
    return Unimplemented("npy: element type '", descr,
                         "' is big-endian; only little-endian is read");
  }
  if (descr.find('O') != descr.npos) {
    return Unimplemented("npy: element type '", descr, "' holds Python objects");
  }
  return Unimplemented("npy: element type '", descr, "' is not supported");
}

}  // namespace

absl::StatusOr<HostTensor> ReadNpy(std::string_view file) {
  if (!file.starts_with(kMagic) || file.size() < kVersionEnd) {
    return InvalidArgument("npy: the file does not begin with the magic and a version");
  }
  const int major = static_cast<uint8_t>(file[6]), minor = static_cast<uint8_t>(file[7]);
  const size_t length_bytes = LengthBytes(major);
  if (length_bytes == 0 || minor != 0) {
    return InvalidArgument("npy: version ", major, ".", minor, ", expected 1.0, 2.0 or 3.0");
  }
  uint32_t length = 0;
  const size_t begin = kVersionEnd + length_bytes;
  if (file.size() < begin) return InvalidArgument("npy: the file ends before its header");
  std::memcpy(&length, file.data() + kVersionEnd, length_bytes);
  if (length > kMaxHeaderBytes || length > file.size() - begin) {
    return InvalidArgument("npy: the header's length ", length, " is over the file's ", file.size(),
                           " bytes or the limit of ", kMaxHeaderBytes);
  }
  TG_ASSIGN_OR_RETURN(Header header, HeaderParser(file.substr(begin, length)).Parse());
  TG_ASSIGN_OR_RETURN(const DType dtype, ElementType(header.descr));
  if (header.fortran_order) {
    return Unimplemented("npy: the array is in Fortran order; save numpy.ascontiguousarray(x)");
  }
  absl::StatusOr<HostTensor> out =
      HostTensorFromBytes(dtype, std::move(header.shape), file.substr(begin + length));
  if (!out.ok()) return InvalidArgument("npy: ", ToStd(out.status().message()));
  return out;
}

absl::StatusOr<std::string> WriteNpy(const HostTensor& tensor, int major) {
  const size_t length_bytes = LengthBytes(major);
  if (length_bytes == 0) return InvalidArgument("npy: there is no version ", major, ".0");
  if (absl::Status s = CheckHostTensor(tensor); !s.ok()) {
    return InvalidArgument("npy: ", ToStd(s.message()));
  }
  std::string shape;
  for (int64_t dim : tensor.shape) StrAppend(&shape, shape.empty() ? "" : ", ", dim);
  if (tensor.shape.size() == 1) shape += ',';
  std::string header = StrCat("{'descr': '", Info(tensor.dtype).numpy,
                              "', 'fortran_order': False, 'shape': (", shape, "), }");
  // NumPy leaves room for axis 0 to grow in place, then aligns the elements.
  if (!tensor.shape.empty()) {
    header.append(kGrowthDigits - StrCat(tensor.shape[0]).size(), ' ');
  }
  const size_t unpadded = kVersionEnd + length_bytes + header.size() + 1;
  header.append(kAlign - unpadded % kAlign, ' ');
  header += '\n';

  const auto length = static_cast<uint32_t>(header.size());
  std::string out(kMagic);
  out += static_cast<char>(major);
  out += '\0';
  out.append(reinterpret_cast<const char*>(&length), length_bytes);
  out += header;
  out += tensor.bytes;
  return out;
}

}  // namespace telegrad
