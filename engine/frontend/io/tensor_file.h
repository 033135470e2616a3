// A tensor file: a list of named tensors, known from the file's header alone, whose contents are
// streamed when they are asked for. One idea for safetensors, npy, npz, GGUF and PyTorch files; the
// format is recognized by content.
//
//   TG_ASSIGN_OR_RETURN(auto file, OpenTensorFile("model.safetensors"));
//   for (const TensorEntry& tensor : file->tensors()) ...
//   TG_ASSIGN_OR_RETURN(const HostTensor w, file->Load("encoder.weight"));
//
// Files come from strangers. Opening one checks every name, size and range in it, and takes memory
// in proportion to its header only. INVALID_ARGUMENT for what is malformed, UNIMPLEMENTED for what
// is well formed and not read, RESOURCE_EXHAUSTED for what is over a limit; errors name the file,
// the tensor and what was expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/io/byte_source.h"
#include "engine/frontend/io/gguf_types.h"
#include "engine/frontend/tensor/host_tensor.h"

namespace telegrad {

// How the bytes in the file become a tensor's content where they are not simply that.
struct Deflated {
  int64_t inflated = 0;  // bytes of the whole stream
  int64_t skip = 0;      // of them, before the content
  uint32_t crc = 0;      // CRC-32 of the whole
};

struct TensorEntry {
  std::string name;
  DType dtype = DType::kVoid;  // of the elements; of a quantized tensor kVoid
  Shape shape;
  std::optional<GgufType> quantized;  // the content is blocks of this type: see dequantize.h
  int64_t bytes = 0;                  // of the content

  // Where it is: the bytes [offset, offset + stored) of the file are the content, unless they are
  int64_t offset = 0;
  int64_t stored = 0;
  std::optional<Deflated> deflated;  // compressed, or
  Shape strides;  // in another order than row-major: elements from one index of an axis to the next
};

// Numbers of arrays keep their type; an array of strings is a vector.
using MetadataValue = std::variant<bool, int64_t, uint64_t, double, std::string, HostTensor,
                                   std::vector<std::string>>;
using Metadata = std::map<std::string, MetadataValue, std::less<>>;
std::string ToString(const MetadataValue& value);  // in a line, long ones cut short

// The content of one tensor, from its first byte to its last.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  // Fills `out` with the next bytes, of which there are as many left.
  absl::Status Read(std::span<std::byte> out);
  int64_t left() const { return left_; }

 protected:
  TensorReader(std::shared_ptr<const ByteSource> source, const TensorEntry& entry)
      : source_(std::move(source)), name_(entry.name), left_(entry.bytes) {}
  const ByteSource& source() const { return *source_; }

 private:
  virtual absl::Status Next(std::span<std::byte> out) = 0;

  const std::shared_ptr<const ByteSource> source_;
  const std::string name_;
  int64_t left_;
};

// What a format's reader makes of a file.
struct TensorListing {
  std::string format;
  std::vector<TensorEntry> tensors;
  Metadata metadata;
};

// Immutable and thread-safe; readers keep what they need of it.
class TensorFile {
 public:
  const std::string& name() const { return source_->name(); }
  const std::string& format() const { return listing_.format; }
  const std::vector<TensorEntry>& tensors() const { return listing_.tensors; }  // as in the file
  const Metadata& metadata() const { return listing_.metadata; }
  const TensorEntry* Find(std::string_view name) const;  // null if there is none

  // `entry` is one of tensors().
  std::unique_ptr<TensorReader> Open(const TensorEntry& entry) const;
  // The whole content; a quantized tensor as u8 [bytes]. RESOURCE_EXHAUSTED over `limit` bytes.
  absl::StatusOr<HostTensor> Load(const TensorEntry& entry, int64_t limit = int64_t{1} << 40) const;
  absl::StatusOr<HostTensor> Load(std::string_view name, int64_t limit = int64_t{1} << 40) const;
  absl::StatusOr<std::map<std::string, HostTensor>> LoadAll(int64_t limit = int64_t{1} << 40) const;

 private:
  friend absl::StatusOr<std::shared_ptr<const TensorFile>> ReadTensorFile(
      std::shared_ptr<const ByteSource> source);
  TensorFile(std::shared_ptr<const ByteSource> source, TensorListing listing)
      : source_(std::move(source)), listing_(std::move(listing)) {}
  absl::Status Index();

  const std::shared_ptr<const ByteSource> source_;
  const TensorListing listing_;
  std::map<std::string_view, size_t> by_name_;  // into listing_
};

absl::StatusOr<std::shared_ptr<const TensorFile>> OpenTensorFile(const std::string& path);
absl::StatusOr<std::shared_ptr<const TensorFile>> ReadTensorFile(
    std::shared_ptr<const ByteSource> source);

}  // namespace telegrad
