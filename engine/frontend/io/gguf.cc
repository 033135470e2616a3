// The header's length is not said before it, so that it is read through a cursor. Counts are not
// believed: whatever they say takes at least a byte of the file for each.
#include "engine/frontend/io/gguf.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "engine/base/status.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxGgufHeader = 256 << 20;
constexpr int64_t kMaxStrings = 4 << 20;  // in all arrays; a vocabulary has some 100,000
constexpr uint32_t kMaxGgufRank = 4;
constexpr std::string_view kAlignmentKey = "general.alignment";

// enum gguf_metadata_value_type.
enum ValueType : uint32_t { kBool = 7, kString = 8, kArray = 9 };
struct NumberType {
  uint32_t type;
  DType dtype;
};
constexpr NumberType kNumberTypes[] = {
    {0, DType::kUInt8},   {1, DType::kInt8},   {2, DType::kUInt16},   {3, DType::kInt16},
    {4, DType::kUInt32},  {5, DType::kInt32},  {6, DType::kFloat32},  {7, DType::kBool},
    {10, DType::kUInt64}, {11, DType::kInt64}, {12, DType::kFloat64},
};

std::optional<DType> NumberDType(uint32_t type) {
  const auto row = std::ranges::find(kNumberTypes, type, &NumberType::type);
  if (row == std::end(kNumberTypes)) return std::nullopt;
  return row->dtype;
}

class Reader {
 public:
  explicit Reader(const ByteSource* source)
      : file_bytes_(source->size()), cursor_(source, 0, std::min(source->size(), kMaxGgufHeader)) {}

  absl::StatusOr<TensorListing> List() {
    absl::Status status = Header();
    for (uint64_t i = 0; i < metadata_count_ && status.ok(); ++i) status = KeyValue();
    for (uint64_t i = 0; i < tensor_count_ && status.ok(); ++i) status = Tensor();
    if (status.ok()) status = Place();
    if (!status.ok()) {
      return absl::Status(status.code(), ToAbsl(StrCat("GGUF: header byte ", cursor_.position(),
                                                       ": ", ToStd(status.message()))));
    }
    return std::move(out_);
  }

 private:
  absl::Status Header() {
    TG_ASSIGN_OR_RETURN([[maybe_unused]] const uint32_t magic, cursor_.Word<uint32_t>());
    TG_ASSIGN_OR_RETURN(const uint32_t version, cursor_.Word<uint32_t>());
    if (version != 2 && version != 3) {
      return Unimplemented("version ", version,
                           (version & 0xffff) == 0 ? ", a big-endian file" : "",
                           ", expected 2 or 3");
    }
    out_.format = StrCat("GGUF v", version);
    TG_ASSIGN_OR_RETURN(tensor_count_, cursor_.Word<uint64_t>());
    TG_ASSIGN_OR_RETURN(metadata_count_, cursor_.Word<uint64_t>());
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> String() {
    TG_ASSIGN_OR_RETURN(const uint64_t bytes, cursor_.Word<uint64_t>());
    return cursor_.Bytes(bytes);
  }

  absl::Status KeyValue() {
    TG_ASSIGN_OR_RETURN(const std::string key, String());
    TG_ASSIGN_OR_RETURN(const uint32_t type, cursor_.Word<uint32_t>());
    absl::StatusOr<MetadataValue> value = Value(type);
    if (!value.ok()) {
      return absl::Status(
          value.status().code(),
          ToAbsl(StrCat("metadata '", absl::CEscape(key), "': ", ToStd(value.status().message()))));
    }
    if (!out_.metadata.emplace(key, *std::move(value)).second) {
      return InvalidArgument("metadata '", absl::CEscape(key), "' appears twice");
    }
    return absl::OkStatus();
  }

  template <typename T, typename As>
  absl::StatusOr<MetadataValue> Number() {
    TG_ASSIGN_OR_RETURN(const T value, cursor_.Word<T>());
    return MetadataValue(static_cast<As>(value));
  }

  absl::StatusOr<MetadataValue> Value(uint32_t type) {
    if (type == kString) {
      TG_ASSIGN_OR_RETURN(std::string text, String());
      return MetadataValue(std::move(text));
    }
    if (type == kArray) return Array();
    switch (NumberDType(type).value_or(DType::kVoid)) {
      case DType::kUInt8:
        return Number<uint8_t, uint64_t>();
      case DType::kInt8:
        return Number<int8_t, int64_t>();
      case DType::kUInt16:
        return Number<uint16_t, uint64_t>();
      case DType::kInt16:
        return Number<int16_t, int64_t>();
      case DType::kUInt32:
        return Number<uint32_t, uint64_t>();
      case DType::kInt32:
        return Number<int32_t, int64_t>();
      case DType::kFloat32:
        return Number<float, double>();
      case DType::kUInt64:
        return Number<uint64_t, uint64_t>();
      case DType::kInt64:
        return Number<int64_t, int64_t>();
      case DType::kFloat64:
        return Number<double, double>();
      case DType::kBool: {
        TG_ASSIGN_OR_RETURN(const uint8_t value, cursor_.Word<uint8_t>());
        if (value > 1) return InvalidArgument("a bool of ", int{value}, ", expected 0 or 1");
        return MetadataValue(value == 1);
      }
      default:
        return InvalidArgument("value type ", type, ", expected 0 to 12");
    }
  }

  absl::StatusOr<MetadataValue> Array() {
    TG_ASSIGN_OR_RETURN(const uint32_t type, cursor_.Word<uint32_t>());
    TG_ASSIGN_OR_RETURN(const uint64_t count, cursor_.Word<uint64_t>());
    if (type == kArray) return Unimplemented("an array of arrays");
    if (type == kString) {
      strings_ += static_cast<int64_t>(std::min<uint64_t>(count, kMaxStrings + 1));
      if (strings_ > kMaxStrings) {
        return ResourceExhausted("an array of ", count, " strings; the limit for all of them is ",
                                 kMaxStrings);
      }
      std::vector<std::string> out;
      for (uint64_t i = 0; i < count; ++i) {
        TG_ASSIGN_OR_RETURN(std::string text, String());
        out.push_back(std::move(text));
      }
      return MetadataValue(std::move(out));
    }
    const std::optional<DType> dtype = NumberDType(type);
    if (!dtype) return InvalidArgument("an array of value type ", type, ", expected 0 to 12");
    if (count > static_cast<uint64_t>(cursor_.left())) {
      return InvalidArgument("an array of ", count, " values with ", cursor_.left(), " bytes left");
    }
    HostTensor out{*dtype, {static_cast<int64_t>(count)}, {}};
    TG_ASSIGN_OR_RETURN(out.bytes, cursor_.Bytes(count * static_cast<uint64_t>(ByteSize(*dtype))));
    return MetadataValue(std::move(out));
  }

  absl::Status Tensor() {
    TG_ASSIGN_OR_RETURN(std::string name, String());
    const auto where = [&] { return StrCat("tensor '", absl::CEscape(name), "'"); };
    TG_ASSIGN_OR_RETURN(const uint32_t rank, cursor_.Word<uint32_t>());
    if (rank > kMaxGgufRank) {
      return InvalidArgument(where(), " has rank ", rank, ", expected at most ", kMaxGgufRank);
    }
    TensorEntry entry;
    for (uint32_t i = 0; i < rank; ++i) {
      TG_ASSIGN_OR_RETURN(const uint64_t dim, cursor_.Word<uint64_t>());
      if (dim > static_cast<uint64_t>(kMaxElements)) {
        return InvalidArgument(where(), " has a dimension of ", dim);
      }
      entry.shape.insert(entry.shape.begin(), static_cast<int64_t>(dim));
    }
    TG_ASSIGN_OR_RETURN(const uint32_t number, cursor_.Word<uint32_t>());
    const auto row = std::ranges::find(kGgufTypes, number, &GgufTypeInfo::number);
    if (row == std::end(kGgufTypes)) return Unimplemented(where(), " has type ", number);
    const absl::StatusOr<int64_t> elements = CheckedByteSize(DType::kUInt8, entry.shape);
    if (!elements.ok()) {
      return InvalidArgument(where(), ": ", ToStd(elements.status().message()));
    }
    if ((entry.shape.empty() ? 1 : entry.shape.back()) % row->elements != 0) {
      return InvalidArgument(where(), ", ", ToString(entry.shape), ", has rows that are not whole ",
                             row->name, " blocks of ", row->elements);
    }
    entry.name = std::move(name);
    entry.dtype = row->dtype;
    if (row->quantized()) entry.quantized = row->type;
    entry.bytes = entry.stored = *elements / row->elements * row->bytes;
    TG_ASSIGN_OR_RETURN(const uint64_t offset, cursor_.Word<uint64_t>());
    if (offset > static_cast<uint64_t>(file_bytes_)) {
      return InvalidArgument("tensor '", absl::CEscape(entry.name), "' is at byte ", offset,
                             " of the data, in a file of ", file_bytes_);
    }
    entry.offset = static_cast<int64_t>(offset);
    out_.tensors.push_back(std::move(entry));
    return absl::OkStatus();
  }

  // Offsets count from the aligned end of the header; tensors share no bytes.
  absl::Status Place() {
    uint64_t alignment = 32;
    if (const auto it = out_.metadata.find(kAlignmentKey); it != out_.metadata.end()) {
      const auto* value = std::get_if<uint64_t>(&it->second);
      alignment = value != nullptr ? *value : 0;
      if (alignment == 0 || alignment > (1 << 20) || (alignment & (alignment - 1)) != 0) {
        return InvalidArgument(kAlignmentKey, " is ", ToString(it->second),
                               ", expected a power of two up to 2^20");
      }
    }
    const auto step = static_cast<int64_t>(alignment);
    const int64_t data = (cursor_.position() + step - 1) / step * step;
    std::vector<TensorEntry*> in_order;
    for (TensorEntry& e : out_.tensors) {
      if (e.offset % step != 0) {
        return InvalidArgument("tensor '", absl::CEscape(e.name), "' is at byte ", e.offset,
                               " of the data, expected a multiple of ", step);
      }
      e.offset += data;
      // An empty tensor at the very end may lie behind the padding that nobody wrote.
      if (e.bytes == 0) e.offset = std::min(e.offset, file_bytes_);
      if (e.bytes > 0) in_order.push_back(&e);
    }
    std::ranges::sort(in_order, {}, &TensorEntry::offset);
    int64_t end = data;
    for (const TensorEntry* e : in_order) {
      if (e->offset < end) {
        return InvalidArgument("tensor '", absl::CEscape(e->name), "' has the bytes from ",
                               e->offset, " on, which another has up to ", end);
      }
      if (e->bytes > file_bytes_ - e->offset) {
        return InvalidArgument("tensor '", absl::CEscape(e->name), "', ", ToString(e->shape),
                               ", needs ", e->bytes, " bytes from ", e->offset,
                               " on, the file has ", file_bytes_);
      }
      end = e->offset + e->bytes;
    }
    return absl::OkStatus();
  }

  const int64_t file_bytes_;
  SourceCursor cursor_;
  uint64_t tensor_count_ = 0, metadata_count_ = 0;
  int64_t strings_ = 0;
  TensorListing out_;
};

}  // namespace

absl::StatusOr<TensorListing> ListGguf(const ByteSource& source) { return Reader(&source).List(); }

}  // namespace telegrad
