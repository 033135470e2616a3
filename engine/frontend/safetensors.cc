// The reader first parses the header into entries, then sorts them by offset: the file is valid if
// each begins where the one before ended and the last ends with the file. So every byte belongs to
// one tensor, and nothing can be read twice or allocated beyond the file's length.
#include "engine/frontend/safetensors.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "engine/base/status.h"
#include "engine/frontend/host_bytes.h"
#include "engine/frontend/json_cursor.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

constexpr std::string_view kMetadata = "__metadata__";
constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation
constexpr size_t kMaxTensors = 1'000'000;

struct Entry {
  std::string name;
  DType dtype = DType::kVoid;
  Shape shape;
  int64_t begin = 0, end = 0;
};

// Calls `item` for each member of the list between `open` and `close`.
template <typename F>
absl::Status ForEach(JsonCursor& json, char open, char close, F item) {
  TG_RETURN_IF_ERROR(json.Consume(open));
  if (json.TryConsume(close)) return absl::OkStatus();
  do {
    TG_RETURN_IF_ERROR(item());
  } while (json.TryConsume(','));
  return json.Consume(close);
}

template <typename F>
absl::Status ForEachMember(JsonCursor& json, F member) {
  return ForEach(json, '{', '}', [&]() -> absl::Status {
    TG_ASSIGN_OR_RETURN(std::string key, json.String());
    TG_RETURN_IF_ERROR(json.Consume(':'));
    return member(std::move(key));
  });
}

absl::StatusOr<std::vector<int64_t>> Integers(JsonCursor& json, size_t limit) {
  std::vector<int64_t> out;
  TG_RETURN_IF_ERROR(ForEach(json, '[', ']', [&]() -> absl::Status {
    if (out.size() == limit) return json.Error(StrCat("the list has more than ", limit, " items"));
    TG_ASSIGN_OR_RETURN(const int64_t value, json.Integer());
    out.push_back(value);
    return absl::OkStatus();
  }));
  return out;
}

absl::StatusOr<Entry> ParseEntry(JsonCursor& json, std::string name) {
  Entry entry;
  entry.name = std::move(name);
  bool has_dtype = false, has_shape = false, has_offsets = false;
  const auto once = [&](bool* seen, std::string_view key) -> absl::Status {
    if (*seen) return json.Error(StrCat("'", key, "' appears twice"));
    *seen = true;
    return absl::OkStatus();
  };
  TG_RETURN_IF_ERROR(ForEachMember(json, [&](std::string key) -> absl::Status {
    if (key == "dtype") {
      TG_RETURN_IF_ERROR(once(&has_dtype, key));
      TG_ASSIGN_OR_RETURN(const std::string type, json.String());
      const std::optional<DType> dtype = DTypeFromSafetensors(type);
      if (!dtype) {
        return Unimplemented("tensor '", entry.name, "' has the unknown element type '", type, "'");
      }
      entry.dtype = *dtype;
    } else if (key == "shape") {
      TG_RETURN_IF_ERROR(once(&has_shape, key));
      TG_ASSIGN_OR_RETURN(entry.shape, Integers(json, kMaxRank));
    } else if (key == "data_offsets") {
      TG_RETURN_IF_ERROR(once(&has_offsets, key));
      TG_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, Integers(json, 2));
      if (offsets.size() != 2) return json.Error("'data_offsets' needs a begin and an end");
      entry.begin = offsets[0];
      entry.end = offsets[1];
    } else {
      return json.Error(StrCat("tensor '", entry.name, "' has the unknown key '", key, "'"));
    }
    return absl::OkStatus();
  }));
  if (!has_dtype || !has_shape || !has_offsets) {
    return json.Error(
        StrCat("tensor '", entry.name, "' lacks one of dtype, shape and data_offsets"));
  }
  return entry;
}

absl::Status ParseMetadata(JsonCursor& json, std::map<std::string, std::string>* out) {
  return ForEachMember(json, [&](std::string key) -> absl::Status {
    TG_ASSIGN_OR_RETURN(std::string value, json.String());
    if (!out->emplace(std::move(key), std::move(value)).second) {
      return json.Error("a metadata key appears twice");
    }
    return absl::OkStatus();
  });
}

absl::Status ParseHeader(std::string_view header, std::vector<Entry>* entries,
                         std::map<std::string, std::string>* metadata) {
  if (!header.starts_with('{')) return InvalidArgument("the header does not begin with '{'");
  JsonCursor json(header);
  bool has_metadata = false;
  TG_RETURN_IF_ERROR(ForEachMember(json, [&](std::string key) -> absl::Status {
    if (key == kMetadata) {
      if (has_metadata) return json.Error("'__metadata__' appears twice");
      has_metadata = true;
      return ParseMetadata(json, metadata);
    }
    if (entries->size() == kMaxTensors) return json.Error("there are too many tensors");
    TG_ASSIGN_OR_RETURN(Entry entry, ParseEntry(json, std::move(key)));
    entries->push_back(std::move(entry));
    return absl::OkStatus();
  }));
  return json.End();
}

absl::StatusOr<Safetensors> Read(std::string_view file) {
  if (file.size() < kLengthBytes) return InvalidArgument("the file is shorter than 8 bytes");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes) {
    return InvalidArgument("the header's length ", length, " is over the file's ", file.size(),
                           " bytes or the limit of ", kMaxHeaderBytes);
  }
  Safetensors out;
  std::vector<Entry> entries;
  TG_RETURN_IF_ERROR(ParseHeader(file.substr(kLengthBytes, length), &entries, &out.metadata));
  const std::string_view data = file.substr(kLengthBytes + length);

  std::ranges::sort(entries, {}, [](const Entry& e) { return std::tie(e.begin, e.end, e.name); });
  int64_t next = 0;
  for (Entry& e : entries) {
    if (e.begin != next || e.end < e.begin || static_cast<uint64_t>(e.end) > data.size()) {
      return InvalidArgument("tensor '", e.name, "' has the offsets [", e.begin, ", ", e.end,
                             "), expected a begin of ", next, " and an end of at most ",
                             data.size(), ": tensors lie one after the other");
    }
    next = e.end;
    absl::StatusOr<HostTensor> tensor =
        HostTensorFromBytes(e.dtype, std::move(e.shape), data.substr(e.begin, e.end - e.begin));
    if (!tensor.ok()) {
      return InvalidArgument("tensor '", e.name, "': ", ToStd(tensor.status().message()));
    }
    if (!out.tensors.emplace(e.name, *std::move(tensor)).second) {
      return InvalidArgument("tensor '", e.name, "' appears twice");
    }
  }
  if (static_cast<uint64_t>(next) != data.size()) {
    return InvalidArgument("the last ", data.size() - next, " bytes belong to no tensor");
  }
  return out;
}

absl::Status CheckText(std::string_view what, std::string_view text) {
  if (IsUtf8(text)) return absl::OkStatus();
  return InvalidArgument("safetensors: a ", what, " is not UTF-8");
}

absl::StatusOr<std::string> MetadataJson(const std::map<std::string, std::string>& metadata) {
  std::string out;
  for (const auto& [key, value] : metadata) {
    TG_RETURN_IF_ERROR(CheckText("metadata key", key));
    TG_RETURN_IF_ERROR(CheckText("metadata value", value));
    StrAppend(&out, out.empty() ? "" : ",", JsonQuote(key), ":", JsonQuote(value));
  }
  return StrCat(JsonQuote(kMetadata), ":{", out, "}");
}

std::string IntegersJson(std::span<const int64_t> list) {
  std::string out;
  for (int64_t value : list) StrAppend(&out, out.empty() ? "" : ",", value);
  return StrCat("[", out, "]");
}

}  // namespace

absl::StatusOr<Safetensors> ReadSafetensors(std::string_view file) {
  absl::StatusOr<Safetensors> out = Read(file);
  if (out.ok()) return out;
  return absl::Status(out.status().code(), StrCat("safetensors: ", ToStd(out.status().message())));
}

absl::StatusOr<std::string> WriteSafetensors(const Safetensors& content) {
  using Item = std::pair<const std::string, HostTensor>;
  std::vector<const Item*> order;
  for (const Item& item : content.tensors) {
    TG_RETURN_IF_ERROR(CheckText("name", item.first));
    if (item.first == kMetadata) return InvalidArgument("safetensors: '", kMetadata, "' is taken");
    if (absl::Status s = CheckHostTensor(item.second); !s.ok()) {
      return InvalidArgument("safetensors: tensor '", item.first, "': ", ToStd(s.message()));
    }
    order.push_back(&item);
  }
  std::ranges::stable_sort(order, std::greater<>(),
                           [](const Item* i) { return ByteSize(i->second.dtype); });

  std::string header;
  if (!content.metadata.empty()) {
    TG_ASSIGN_OR_RETURN(header, MetadataJson(content.metadata));
  }
  int64_t offset = 0;
  for (const Item* item : order) {
    const HostTensor& t = item->second;
    const int64_t ends[] = {offset, offset + static_cast<int64_t>(t.bytes.size())};
    offset = ends[1];
    StrAppend(&header, header.empty() ? "" : ",", JsonQuote(item->first), ":{\"dtype\":\"",
              Info(t.dtype).safetensors, "\",\"shape\":", IntegersJson(t.shape),
              ",\"data_offsets\":", IntegersJson(ends), "}");
  }
  header = StrCat("{", header, "}");
  header.append((8 - header.size() % 8) % 8, ' ');
  if (header.size() > kMaxHeaderBytes)
    return InvalidArgument("safetensors: the header is too long");

  const uint64_t length = header.size();
  std::string out(kLengthBytes, '\0');
  std::memcpy(out.data(), &length, kLengthBytes);
  out.reserve(kLengthBytes + length + offset);
  out += header;
  for (const Item* item : order) out += item->second.bytes;
  return out;
}

}  // namespace telegrad
