// Nothing is allocated by a size from the file before that size has been compared with the file's
// length, and the ranges must tile the data, so a small file cannot describe large or overlapping
// tensors.
#include "engine/frontend/safetensors.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/frontend/json.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the format's reference reader

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

bool ReadMetadata(JsonReader* json, std::map<std::string, std::string>* out) {
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

absl::Status ReadHeader(JsonReader* json, std::vector<Entry>* entries,
                        std::map<std::string, std::string>* metadata) {
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

}  // namespace

absl::StatusOr<Safetensors> ParseSafetensors(std::string_view file) {
  if (file.size() < 8) return InvalidArgument("safetensors: shorter than its length field");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length > kMaxHeader || length > file.size() - 8) {
    return InvalidArgument("safetensors: a header of ", length, " bytes does not fit");
  }
  Safetensors out;
  std::vector<Entry> entries;
  JsonReader json(file.substr(8, length));
  TG_RETURN_IF_ERROR(ReadHeader(&json, &entries, &out.metadata));

  const std::string_view data = file.substr(8 + length);
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t at = 0;
  for (Entry& e : entries) {
    const std::optional<DType> dtype = DTypeFromSafetensors(e.dtype);
    if (!dtype) return Unimplemented("safetensors: '", e.name, "' has element type ", e.dtype);
    TG_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(*dtype, e.shape));
    if (e.begin != at || e.end < e.begin || e.end - e.begin != size ||
        e.end > static_cast<int64_t>(data.size())) {
      return InvalidArgument("safetensors: '", e.name, "', ", e.dtype, " ", ToString(e.shape),
                             ", has the bytes [", e.begin, ", ", e.end, "), expected ", size,
                             " of them from ", at, " within ", data.size());
    }
    HostTensor tensor{*dtype, e.shape, std::string(data.substr(at, size))};
    if (!out.tensors.emplace(e.name, std::move(tensor)).second) {
      return InvalidArgument("safetensors: '", e.name, "' appears twice");
    }
    at = e.end;
  }
  if (at != static_cast<int64_t>(data.size())) {
    return InvalidArgument("safetensors: ", data.size() - at, " bytes belong to no tensor");
  }
  return out;
}

absl::StatusOr<std::string> FormatSafetensors(const Safetensors& contents) {
  std::vector<std::string> fields;
  std::string data;
  if (!contents.metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : contents.metadata) {
      if (!IsUtf8(key) || !IsUtf8(value))
        return InvalidArgument("safetensors: metadata is not UTF-8");
      pairs.push_back(StrCat(JsonQuote(key), ":", JsonQuote(value)));
    }
    fields.push_back(StrCat("\"__metadata__\":{", absl::StrJoin(pairs, ","), "}"));
  }
  for (const auto& [name, tensor] : contents.tensors) {
    if (!IsUtf8(name) || name == "__metadata__") {
      return InvalidArgument("safetensors: a tensor cannot have the name ", JsonQuote(name));
    }
    TG_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(tensor.dtype, tensor.shape));
    if (tensor.bytes.size() != static_cast<size_t>(size)) {
      return InvalidArgument("safetensors: '", name, "' has ", tensor.bytes.size(),
                             " bytes, expected ", size);
    }
    fields.push_back(StrCat(JsonQuote(name), ":{\"dtype\":\"", Info(tensor.dtype).safetensors,
                            "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                            "],\"data_offsets\":[", data.size(), ",", data.size() + size, "]}"));
    data += tensor.bytes;
  }
  std::string header = StrCat("{", absl::StrJoin(fields, ","), "}");
  header.append((8 - header.size() % 8) % 8, ' ');  // the data is aligned
  const uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

}  // namespace telegrad
