// The header is a Python dict literal with three keys. Only the subset that NumPy writes is read:
// strings in either quote without escapes, True, False and tuples of decimal integers.
#include "engine/frontend/io/npy.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/frontend/tensor/host_bytes.h"

namespace telegrad {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxNpyHeader = kNpyHead - 12;

class Header {
 public:
  explicit Header(std::string_view text) : text_(text) {}

  bool Eat(char c) {
    Skip();
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool Word(std::string_view word) {
    Skip();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::string_view> String() {
    Skip();
    if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) return std::nullopt;
    const size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view out = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return out;
  }
  std::optional<Shape> Tuple() {
    if (!Eat('(')) return std::nullopt;
    Shape out;
    while (!Eat(')')) {
      Skip();
      int64_t dim = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0) return std::nullopt;
      text_.remove_prefix(end - text_.data());
      out.push_back(dim);
      if (Eat(',')) continue;
      if (!Eat(')')) return std::nullopt;
      break;
    }
    return out;
  }
  bool AtEnd() {
    Skip();
    return text_.empty();
  }

 private:
  void Skip() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
  }
  std::string_view text_;
};

struct HeaderFields {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran;
  std::optional<Shape> shape;
};

absl::StatusOr<HeaderFields> ParseHeader(std::string_view text) {
  const auto bad = [](std::string_view why) { return InvalidArgument("npy: the header ", why); };
  Header header(text);
  HeaderFields out;
  if (!header.Eat('{')) return bad("is not a dict");
  while (!header.Eat('}')) {
    const std::optional<std::string_view> key = header.String();
    if (!key || !header.Eat(':')) return bad("has no key where one is due");
    if (*key == "descr" && !out.descr) {
      out.descr = header.String();
      if (!out.descr) return Unimplemented("npy: structured element types");
    } else if (*key == "fortran_order" && !out.fortran) {
      if (header.Word("True"))
        out.fortran = true;
      else if (header.Word("False"))
        out.fortran = false;
      else
        return bad("has a fortran_order that is neither True nor False");
    } else if (*key == "shape" && !out.shape) {
      out.shape = header.Tuple();
      if (!out.shape) return bad("has a shape that is not a tuple of sizes");
    } else {
      return InvalidArgument("npy: the header has an unknown or second key '", *key, "'");
    }
    if (header.Eat(',')) continue;
    if (!header.Eat('}')) return bad("does not end its dict");
    break;
  }
  if (!header.AtEnd()) return bad("goes on after its dict");
  if (!out.descr || !out.fortran || !out.shape) return bad("lacks descr, fortran_order or shape");
  return out;
}

}  // namespace

absl::StatusOr<TensorEntry> ParseNpyHeader(std::string_view head, int64_t size) {
  if (!head.starts_with(kMagic) || head.size() < 10) return InvalidArgument("npy: no magic string");
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(head[i])); };
  const size_t version = byte(6);
  if ((version != 1 && version != 2) || byte(7) != 0) {
    return Unimplemented("npy: version ", version, ".", byte(7), ", expected 1.0 or 2.0");
  }
  size_t begin = 10, length = byte(8) | byte(9) << 8;
  if (version == 2) {
    if (head.size() < 12) return InvalidArgument("npy: the file ends in its header");
    begin = 12;
    length |= byte(10) << 16 | byte(11) << 24;
  }
  if (length > kMaxNpyHeader || length > head.size() - begin) {
    return InvalidArgument("npy: a header of ", length, " bytes does not fit");
  }
  TG_ASSIGN_OR_RETURN(const HeaderFields fields, ParseHeader(head.substr(begin, length)));
  const std::optional<DType> dtype = DTypeFromNumpy(*fields.descr);
  if (!dtype) return Unimplemented("npy: element type '", *fields.descr, "'");
  TensorEntry out;
  out.name = kOnlyTensor;
  out.dtype = *dtype;
  out.shape = *fields.shape;
  TG_ASSIGN_OR_RETURN(out.bytes, CheckedByteSize(*dtype, out.shape));
  out.offset = static_cast<int64_t>(begin + length);
  out.stored = size - out.offset;
  if (out.stored != out.bytes) {
    return InvalidArgument("npy: ", out.stored, " bytes of data for ", Name(*dtype), " ",
                           ToString(out.shape), ", expected ", out.bytes);
  }
  if (*fields.fortran && out.shape.size() > 1) {
    int64_t stride = 1;
    for (const int64_t dim : out.shape) {
      out.strides.push_back(stride);
      stride *= std::max<int64_t>(dim, 1);
    }
  }
  return out;
}

absl::StatusOr<TensorListing> ListNpy(const ByteSource& source) {
  TG_ASSIGN_OR_RETURN(const std::string head,
                      source.ReadString(0, std::min(kNpyHead, source.size())));
  TG_ASSIGN_OR_RETURN(TensorEntry entry, ParseNpyHeader(head, source.size()));
  return TensorListing{.format = "npy", .tensors = {std::move(entry)}, .metadata = {}};
}

absl::StatusOr<std::string> FormatNpyHeader(DType dtype, const Shape& shape) {
  if (Info(dtype).numpy.empty()) return Unimplemented("npy has no element type ", Name(dtype));
  std::string header =
      StrCat("{'descr': '", Info(dtype).numpy, "', 'fortran_order': False, 'shape': (",
             absl::StrJoin(shape, ", "), shape.size() == 1 ? "," : "", "), }");
  // The data begins at a multiple of 64 bytes; rank is at most 16, so that two bytes hold the
  // length.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string out(kMagic);
  out += {1, 0, static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  return out + header;
}

absl::Status WriteNpy(const HostTensor& tensor, ByteSink* sink) {
  TG_RETURN_IF_ERROR(CheckHostTensor(tensor));
  TG_ASSIGN_OR_RETURN(const std::string header, FormatNpyHeader(tensor.dtype, tensor.shape));
  TG_RETURN_IF_ERROR(sink->Append(header));
  return sink->Append(tensor.bytes);
}

}  // namespace telegrad
