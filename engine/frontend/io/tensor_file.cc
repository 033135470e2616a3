#include "engine/frontend/io/tensor_file.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "engine/base/checked.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/frontend/io/gguf.h"
#include "engine/frontend/io/npy.h"
#include "engine/frontend/io/npz.h"
#include "engine/frontend/io/safetensors.h"
#include "engine/frontend/io/tensor_reader.h"
#include "engine/frontend/io/torch.h"
#include "engine/frontend/io/zip.h"
#include "engine/frontend/tensor/host_bytes.h"

namespace telegrad {
namespace {

constexpr size_t kMaxName = 4096;
constexpr int64_t kHead = 16;          // bytes by which a format is recognized
constexpr size_t kLoadStep = 4 << 20;  // content is allocated as it arrives

absl::Status Within(std::string_view where, const absl::Status& status) {
  if (status.ok()) return status;
  return {status.code(), ToAbsl(StrCat(where, ": ", ToStd(status.message())))};
}

absl::StatusOr<TensorListing> ListZip(const ByteSource& source) {
  TG_ASSIGN_OR_RETURN(const ZipDirectory zip, ReadZipDirectory(source));
  return IsTorch(zip) ? ListTorch(source, zip) : ListNpz(source, zip);
}

absl::StatusOr<TensorListing> RefuseLegacyTorch(const ByteSource&) {
  return Unimplemented(
      "a PyTorch file from before version 1.6; load it there and save it again, as a zip file or "
      "as safetensors");
}

struct Format {
  bool (*recognize)(std::string_view head);
  absl::StatusOr<TensorListing> (*list)(const ByteSource& source);
};

// The first row that recognizes a file has it. The zip directory of an empty archive is all there
// is of it.
constexpr Format kFormats[] = {
    {[](std::string_view head) { return head.starts_with("GGUF"); }, &ListGguf},
    {[](std::string_view head) { return head.starts_with("\x93NUMPY"); }, &ListNpy},
    {[](std::string_view head) { return head.starts_with("PK\3\4") || head.starts_with("PK\5\6"); },
     &ListZip},
    // The pickled number that begins such a file: torch/serialization.py, MAGIC_NUMBER.
    {[](std::string_view head) {
       return head.size() > 5 && head[0] == '\x80' && head.substr(2, 4) == "\x8a\x0a\x6c\xfc";
     },
     &RefuseLegacyTorch},
    {&LooksLikeSafetensors, &ListSafetensors},
};

absl::Status CheckName(const std::string& name) {
  if (name.empty()) return InvalidArgument("a tensor without a name");
  if (name.size() > kMaxName) {
    return ResourceExhausted("a tensor's name of ", name.size(), " bytes, the limit is ", kMaxName);
  }
  if (!IsUtf8(name) || name.find('\0') != std::string::npos) {
    return InvalidArgument("the tensor's name \"", absl::CEscape(name),
                           "\" is not UTF-8 without NULs");
  }
  return absl::OkStatus();
}

// Every element lies among the entry's bytes, and there are not more elements than bytes for them:
// a small file describes no large tensors.
absl::Status CheckStrides(const TensorEntry& e) {
  int64_t last = 0;
  bool fits = e.strides.size() == e.shape.size();
  for (size_t i = 0; i < e.shape.size() && fits && e.bytes > 0; ++i) {
    int64_t distance = 0;
    fits = e.strides[i] >= 0 && CheckedMul(e.strides[i], e.shape[i] - 1, &distance) &&
           CheckedAdd(last, distance, &last);
  }
  const int64_t elements = e.stored / ByteSize(e.dtype);
  if (!fits || (e.bytes > 0 && last >= elements)) {
    return InvalidArgument("'", e.name, "', ", ToString(e.shape), " with the strides ",
                           ToString(e.strides), ", leaves its ", elements, " elements");
  }
  if (e.bytes > e.stored) {
    return Unimplemented("'", e.name, "', ", ToString(e.shape), " with the strides ",
                         ToString(e.strides), ", repeats elements of the ", elements,
                         " that are stored; save a contiguous copy");
  }
  return absl::OkStatus();
}

// What every format's entries keep, whatever its reader has checked already.
absl::Status CheckEntry(const TensorEntry& e, int64_t file_bytes) {
  TG_RETURN_IF_ERROR(CheckName(e.name));
  absl::StatusOr<int64_t> bytes = CheckedByteSize(e.quantized ? DType::kUInt8 : e.dtype, e.shape);
  if (!bytes.ok()) return Within(StrCat("'", e.name, "'"), bytes.status());
  if (e.quantized) *bytes = *bytes / Info(*e.quantized).elements * Info(*e.quantized).bytes;
  if (e.bytes != *bytes) {
    return InvalidArgument("'", e.name, "', ", Name(e.dtype), " ", ToString(e.shape), ", has ",
                           e.bytes, " bytes, expected ", *bytes);
  }
  if (e.offset < 0 || e.stored < 0 || e.offset > file_bytes || e.stored > file_bytes - e.offset) {
    return InvalidArgument("'", e.name, "' has the bytes from ", e.offset, " on, ", e.stored,
                           " of them, in a file of ", file_bytes);
  }
  if (!e.strides.empty()) return CheckStrides(e);
  if (!e.deflated && e.stored != e.bytes) {
    return InvalidArgument("'", e.name, "', ", Name(e.dtype), " ", ToString(e.shape), ", needs ",
                           e.bytes, " bytes, there are ", e.stored);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TensorReader::Read(std::span<std::byte> out) {
  if (out.size() > static_cast<uint64_t>(left_)) {
    return Internal("'", name_, "': ", out.size(), " bytes are asked for, ", left_, " are left");
  }
  left_ -= static_cast<int64_t>(out.size());
  return Within(StrCat(source_->name(), ": '", name_, "'"), Next(out));
}

absl::Status TensorFile::Index() {
  for (size_t i = 0; i < tensors().size(); ++i) {
    TG_RETURN_IF_ERROR(CheckEntry(tensors()[i], source_->size()));
    if (!by_name_.emplace(tensors()[i].name, i).second) {
      return InvalidArgument("'", tensors()[i].name, "' appears twice");
    }
  }
  return absl::OkStatus();
}

const TensorEntry* TensorFile::Find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors()[it->second];
}

std::unique_ptr<TensorReader> TensorFile::Open(const TensorEntry& entry) const {
  return MakeTensorReader(source_, entry);
}

absl::StatusOr<HostTensor> TensorFile::Load(const TensorEntry& entry, int64_t limit) const {
  if (entry.bytes > limit) {
    return ResourceExhausted(name(), ": '", entry.name, "' has ", entry.bytes,
                             " bytes, the limit is ", limit);
  }
  HostTensor out{entry.quantized ? DType::kUInt8 : entry.dtype,
                 entry.quantized ? Shape{entry.bytes} : entry.shape,
                 {}};
  const std::unique_ptr<TensorReader> reader = Open(entry);
  while (reader->left() > 0) {
    const size_t at = out.bytes.size();
    const size_t n = std::min(kLoadStep, static_cast<size_t>(reader->left()));
    if (!entry.deflated) out.bytes.reserve(static_cast<size_t>(entry.bytes));
    out.bytes.resize(at + n);
    TG_RETURN_IF_ERROR(reader->Read(std::as_writable_bytes(std::span(&out.bytes[at], n))));
  }
  TG_RETURN_IF_ERROR(Within(StrCat(name(), ": '", entry.name, "'"), CheckHostTensor(out)));
  return out;
}

absl::StatusOr<HostTensor> TensorFile::Load(std::string_view tensor, int64_t limit) const {
  const TensorEntry* entry = Find(tensor);
  if (entry == nullptr) return NotFound(name(), " has no tensor '", tensor, "'");
  return Load(*entry, limit);
}

absl::StatusOr<std::map<std::string, HostTensor>> TensorFile::LoadAll(int64_t limit) const {
  std::map<std::string, HostTensor> out;
  for (const TensorEntry& entry : tensors()) {
    TG_ASSIGN_OR_RETURN(HostTensor value, Load(entry, limit));
    limit -= entry.bytes;
    out.emplace(entry.name, std::move(value));
  }
  return out;
}

absl::StatusOr<std::shared_ptr<const TensorFile>> ReadTensorFile(
    std::shared_ptr<const ByteSource> source) {
  TG_ASSIGN_OR_RETURN(const std::string head,
                      source->ReadString(0, std::min(kHead, source->size())));
  const auto format = std::ranges::find_if(
      kFormats, [&](const Format& candidate) { return candidate.recognize(head); });
  if (format == std::end(kFormats)) {
    return InvalidArgument(source->name(), ": expected safetensors, npy, npz, GGUF or PyTorch, ",
                           head.empty()
                               ? "the file is empty"
                               : StrCat("it begins with the bytes ", absl::BytesToHexString(head)));
  }
  absl::StatusOr<TensorListing> listing = format->list(*source);
  if (!listing.ok()) return Within(source->name(), listing.status());
  std::shared_ptr<TensorFile> file(new TensorFile(std::move(source), *std::move(listing)));
  TG_RETURN_IF_ERROR(Within(file->name(), file->Index()));
  return file;
}

absl::StatusOr<std::shared_ptr<const TensorFile>> OpenTensorFile(const std::string& path) {
  TG_ASSIGN_OR_RETURN(auto source, OpenSource(path));
  return ReadTensorFile(std::move(source));
}

std::string ToString(const MetadataValue& value) {
  constexpr size_t kMost = 60;
  struct Text {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return StrCat(v); }
    std::string operator()(uint64_t v) const { return StrCat(v); }
    std::string operator()(double v) const { return StrCat(v); }
    std::string operator()(const std::string& v) const {
      const bool whole = v.size() <= kMost;
      return StrCat("\"", absl::Utf8SafeCEscape(whole ? v : v.substr(0, kMost)), "\"",
                    whole ? "" : "...");
    }
    std::string operator()(const HostTensor& v) const {
      return StrCat(Name(v.dtype), " ", telegrad::ToString(v.shape));
    }
    std::string operator()(const std::vector<std::string>& v) const {
      return StrCat(v.size(), " strings");
    }
  };
  return std::visit(Text{}, value);
}

}  // namespace telegrad
