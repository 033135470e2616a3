// For tests only: tensor files in memory.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/byte_codec.h"
#include "engine/base/strings.h"
#include "engine/frontend/io/byte_sink.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/tensor/host_random.h"

namespace telegrad::testing {

using Tensors = std::map<std::string, HostTensor>;

// Pseudorandom bytes of that type; bools are 0 or 1.
inline HostTensor Filled(DType dtype, const Shape& shape, uint64_t seed) {
  HostTensor out{dtype, shape, std::string(*CheckedByteSize(dtype, shape), '\0')};
  for (size_t i = 0; i < out.bytes.size(); ++i) {
    out.bytes[i] = static_cast<char>(RandomBits(seed, i) & (IsBool(dtype) ? 1 : 0xff));
  }
  return out;
}

inline absl::StatusOr<std::shared_ptr<const TensorFile>> Parse(std::string_view bytes) {
  return ReadTensorFile(MemorySource(std::string(bytes), "a file"));
}

inline absl::StatusOr<Tensors> LoadAll(std::string_view bytes, int64_t limit = 1 << 20) {
  const auto file = Parse(bytes);
  if (!file.ok()) return file.status();
  return (*file)->LoadAll(limit);
}

// What `write` puts into a sink.
template <typename Write>
std::string Written(const Write& write) {
  StringSink sink;
  const absl::Status status = write(&sink);
  EXPECT_TRUE(status.ok()) << status;
  return sink.bytes();
}

// Expects an error with that code whose message names the file and holds `text`.
inline void ExpectRefused(std::string_view bytes, absl::StatusCode code, std::string_view text) {
  const absl::Status status = LoadAll(bytes).status();
  EXPECT_EQ(status.code(), code) << status << ", expected " << text;
  EXPECT_NE(status.message().find(ToAbsl(text)), absl::string_view::npos)
      << status << ", expected " << text;
  EXPECT_NE(status.message().find("a file"), absl::string_view::npos) << status;
}

}  // namespace telegrad::testing
