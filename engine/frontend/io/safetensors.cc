// Nothing is allocated by a size from the file before that size has been compared with the file's
// length, and the ranges must tile the data, so a small file cannot describe large or overlapping
// tensors.
#include "engine/frontend/io/safetensors.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxSafetensorsHeader =
    100'000'000;  // the limit of the format's reference reader

struct Entry {
  std::string name, dtype;
  Shape shape;
  int64_t begin = -1, end = -1;
};

bool ReadSizes(JsonReader* json, size_t limit, std::vector<int64_t>* out) {
  if (!json->Eat('[')) return false;
  if (json->Eat(']')) return true;
  do {
    int64_t value = 0;
    if (out->size() == limit || !json->Size(&value)) return false;
    out->push_back(value);
  } while (json->Eat(','));
  return json->Eat(']');
}

bool ReadMetadata(JsonReader* json, Metadata* out) {
  if (!json->Eat('{')) return false;
  if (json->Eat('}')) return true;
  do {
    std::string key, value;
    if (!json->String(&key) || !json->Eat(':') || !json->String(&value)) return false;
    if (!out->emplace(std::move(key), std::move(value)).second) return false;
  } while (json->Eat(','));
  return json->Eat('}');
}

bool ReadEntry(JsonReader* json, Entry* out) {
  bool dtype = false, shape = false, offsets = false;
  if (!json->Eat('{')) return false;
  do {
    std::string key;
    if (!json->String(&key) || !json->Eat(':')) return false;
    if (key == "dtype" && !dtype) {
      dtype = json->String(&out->dtype);
      if (!dtype) return false;
    } else if (key == "shape" && !shape) {
      shape = ReadSizes(json, kMaxRank, &out->shape);
      if (!shape) return false;
    } else if (key == "data_offsets" && !offsets) {
      std::vector<int64_t> range;
      offsets = ReadSizes(json, 2, &range) && range.size() == 2;
      if (!offsets) return false;
      out->begin = range[0];
      out->end = range[1];
    } else {
      return false;
    }
  } while (json->Eat(','));
  return json->Eat('}') && dtype && shape && offsets;
}

absl::Status ReadHeader(JsonReader* json, std::vector<Entry>* entries, Metadata* metadata) {
  const auto bad = [&](std::string_view what) {
    return InvalidArgument("safetensors: header byte ", json->position(), ": ", what);
  };
  bool has_metadata = false;
  if (!json->Eat('{')) return bad("expected {");
  if (!json->Eat('}')) {
    do {
      Entry entry;
      if (!json->String(&entry.name) || !json->Eat(':')) return bad("expected a name");
      if (entry.name == "__metadata__") {
        if (has_metadata || !ReadMetadata(json, metadata)) {
          return bad("__metadata__ is not one object of unique strings");
        }
        has_metadata = true;
        continue;
      }
      if (!ReadEntry(json, &entry)) {
        return bad("expected an object of one dtype, shape and data_offsets");
      }
      entries->push_back(std::move(entry));
    } while (json->Eat(','));
    if (!json->Eat('}')) return bad("expected }");
  }
  return json->AtEnd() ? absl::OkStatus() : bad("expected the end");
}

uint64_t Length(std::string_view head) {
  uint64_t length = 0;
  std::memcpy(&length, head.data(), kLengthBytes);
  return length;
}

}  // namespace

bool LooksLikeSafetensors(std::string_view head) {
  return head.size() > kLengthBytes && Length(head) <= kMaxSafetensorsHeader &&
         std::string_view("{ \t\r\n").find(head[kLengthBytes]) != std::string_view::npos;
}

absl::StatusOr<TensorListing> ListSafetensors(const ByteSource& source) {
  TG_ASSIGN_OR_RETURN(const std::string head, source.ReadString(0, kLengthBytes));
  const uint64_t length = Length(head);
  if (length > kMaxSafetensorsHeader ||
      length > static_cast<uint64_t>(source.size()) - kLengthBytes) {
    return InvalidArgument("safetensors: a header of ", length, " bytes does not fit");
  }
  TG_ASSIGN_OR_RETURN(const std::string header, source.ReadString(kLengthBytes, length));
  TensorListing out{.format = "safetensors", .tensors = {}, .metadata = {}};
  std::vector<Entry> entries;
  JsonReader json(header);
  TG_RETURN_IF_ERROR(ReadHeader(&json, &entries, &out.metadata));

  const int64_t data = kLengthBytes + static_cast<int64_t>(length);
  const int64_t data_bytes = source.size() - data;
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t at = 0;
  for (Entry& e : entries) {
    const std::optional<DType> dtype = DTypeFromSafetensors(e.dtype);
    if (!dtype) return Unimplemented("safetensors: '", e.name, "' has element type ", e.dtype);
    const absl::StatusOr<int64_t> size = CheckedByteSize(*dtype, e.shape);
    if (!size.ok()) {
      return InvalidArgument("safetensors: '", e.name, "': ", ToStd(size.status().message()));
    }
    if (e.begin != at || e.end < e.begin || e.end - e.begin != *size || e.end > data_bytes) {
      return InvalidArgument("safetensors: '", e.name, "', ", e.dtype, " ", ToString(e.shape),
                             ", has the bytes [", e.begin, ", ", e.end, "), expected ", *size,
                             " of them from ", at, " within ", data_bytes);
    }
    TensorEntry& entry = out.tensors.emplace_back();
    entry.name = std::move(e.name);
    entry.dtype = *dtype;
    entry.shape = std::move(e.shape);
    entry.offset = data + at;
    entry.bytes = entry.stored = *size;
    at = e.end;
  }
  if (at != data_bytes) {
    return InvalidArgument("safetensors: ", data_bytes - at, " bytes belong to no tensor");
  }
  return out;
}

absl::Status WriteSafetensors(const std::map<std::string, HostTensor>& tensors,
                              const std::map<std::string, std::string>& metadata, ByteSink* sink) {
  std::vector<std::string> fields;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) {
      if (!IsUtf8(key) || !IsUtf8(value)) {
        return InvalidArgument("safetensors: metadata is not UTF-8");
      }
      pairs.push_back(StrCat(JsonQuote(key), ":", JsonQuote(value)));
    }
    fields.push_back(StrCat("\"__metadata__\":{", absl::StrJoin(pairs, ","), "}"));
  }
  int64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!IsUtf8(name) || name == "__metadata__") {
      return InvalidArgument("safetensors: a tensor cannot have the name ", JsonQuote(name));
    }
    TG_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(tensor.dtype, tensor.shape));
    if (tensor.bytes.size() != static_cast<size_t>(size)) {
      return InvalidArgument("safetensors: '", name, "' has ", tensor.bytes.size(),
                             " bytes, expected ", size);
    }
    if (Info(tensor.dtype).safetensors.empty()) {
      return Unimplemented("safetensors has no element type ", Name(tensor.dtype), ", of '", name,
                           "'");
    }
    fields.push_back(StrCat(JsonQuote(name), ":{\"dtype\":\"", Info(tensor.dtype).safetensors,
                            "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                            "],\"data_offsets\":[", at, ",", at + size, "]}"));
    at += size;
  }
  std::string header = StrCat("{", absl::StrJoin(fields, ","), "}");
  header.append((8 - header.size() % 8) % 8, ' ');  // the data is aligned
  const uint64_t length = header.size();
  std::string head(kLengthBytes, '\0');
  std::memcpy(head.data(), &length, kLengthBytes);
  TG_RETURN_IF_ERROR(sink->Append(head + header));
  for (const auto& [name, tensor] : tensors) TG_RETURN_IF_ERROR(sink->Append(tensor.bytes));
  return absl::OkStatus();
}

}  // namespace telegrad
