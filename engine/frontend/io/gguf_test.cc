// GGUF: a file that the package gguf wrote (tests/data/state), and malformed ones.
#include "engine/frontend/io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/frontend/io/test_files.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using testing::ExpectRefused;
using testing::LoadAll;
using testing::Parse;

TEST(Gguf, ReadsWhatItsPackageWrites) {
  const auto file = OpenTensorFile("tests/data/state/quants.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->format(), "GGUF v3");
  EXPECT_EQ((*file)->tensors().size(), std::size(kGgufTypes));
  const auto expected = OpenTensorFile("tests/data/state/expected.safetensors");
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const GgufTypeInfo& type : kGgufTypes) {
    SCOPED_TRACE(std::string(type.name));
    const TensorEntry* entry = (*file)->Find(type.name);
    ASSERT_NE(entry, nullptr);
    const auto want = (*expected)->Load(StrCat("quants.gguf/", type.name));
    ASSERT_TRUE(want.ok()) << want.status();
    EXPECT_EQ(entry->shape, want->shape);
    EXPECT_EQ(entry->quantized.has_value(), type.quantized());
    if (type.quantized()) continue;
    EXPECT_EQ(*(*file)->Load(*entry), *want);
  }
}

TEST(Gguf, MetadataHasItsTypes) {
  const auto file = OpenTensorFile("tests/data/state/quants.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto value = [&](std::string_view key) {
    const auto it = (*file)->metadata().find(StrCat("meta.", key));
    EXPECT_NE(it, (*file)->metadata().end()) << key;
    return it->second;
  };
  EXPECT_EQ(std::get<uint64_t>(value("u8")), 200u);
  EXPECT_EQ(std::get<int64_t>(value("i8")), -100);
  EXPECT_EQ(std::get<uint64_t>(value("u16")), 60000u);
  EXPECT_EQ(std::get<int64_t>(value("i16")), -30000);
  EXPECT_EQ(std::get<uint64_t>(value("u32")), 4000000000u);
  EXPECT_EQ(std::get<int64_t>(value("i32")), -2000000000);
  EXPECT_EQ(std::get<uint64_t>(value("u64")), uint64_t{1} << 63);
  EXPECT_EQ(std::get<int64_t>(value("i64")), -(int64_t{1} << 62));
  EXPECT_EQ(std::get<double>(value("f32")), 0.25);
  EXPECT_EQ(std::get<double>(value("f64")), 1e300);
  EXPECT_EQ(std::get<bool>(value("bool")), true);
  EXPECT_EQ(std::get<std::string>(value("string")),
            "gr\xc3\xbc\xc3\x9f"
            "e");
  EXPECT_THAT(std::get<std::vector<std::string>>(value("strings")), ElementsAre("a", "", "bc"));
  EXPECT_THAT(std::get<HostTensor>(value("numbers")).Values<int32_t>(), ElementsAre(1, -2, 3));
  EXPECT_EQ(ToString(value("numbers")), "i32 [3]");
  EXPECT_EQ(ToString(value("strings")), "3 strings");
}

// A file in the making: what follows the magic.
struct Gguf {
  uint32_t version = 3;
  uint64_t tensor_count = 0, metadata_count = 0;
  std::string body = {};

  static std::string Key(std::string_view key, uint32_t type) {
    ByteWriter w;
    w.Text(key);
    w.Word(type);
    return w.Take();
  }
  template <typename T>
  static std::string Raw(T value) {
    ByteWriter w;
    w.Word(value);
    return w.Take();
  }
  template <typename T>
  Gguf& Value(std::string_view key, uint32_t type, T value) {
    ++metadata_count;
    body += Key(key, type) + Raw(value);
    return *this;
  }
  Gguf& Array(std::string_view key, uint32_t type, uint64_t count, std::string_view values) {
    ++metadata_count;
    body += Key(key, 9) + Raw(type) + Raw(count) + std::string(values);
    return *this;
  }
  Gguf& Tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
    ++tensor_count;
    ByteWriter w;
    w.Text(name);
    w.Word(static_cast<uint32_t>(dims.size()));
    for (uint64_t dim : dims) w.Word(dim);
    w.Word(type);
    w.Word(offset);
    body += w.Take();
    return *this;
  }
  // With `data` bytes after the aligned header.
  std::string File(size_t data, size_t alignment = 32) const {
    ByteWriter w;
    w.Word(version);
    w.Word(tensor_count);
    w.Word(metadata_count);
    std::string out = "GGUF" + w.Take() + body;
    if (data > 0) out.resize((out.size() + alignment - 1) / alignment * alignment + data, '\7');
    return out;
  }
};

TEST(Gguf, DimsAreReversedAndOffsetsAligned) {
  const auto file = LoadAll(Gguf{}
                                .Value("general.alignment", 4, uint32_t{8})
                                .Tensor("a", {3, 2}, 24, 0)
                                .Tensor("b", {1}, 24, 8)
                                .Tensor("none", {0}, 24, 16)
                                .File(9, 8));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->at("a").shape, (Shape{2, 3}));
  EXPECT_EQ(file->at("b").bytes, "\7");
  EXPECT_EQ(file->at("none").bytes, "");
  EXPECT_EQ(LoadAll(Gguf{.version = 2}.Tensor("scalar", {}, 0, 0).File(4))->at("scalar").shape,
            Shape{});
}

TEST(Gguf, RefusesWhatIsMalformed) {
  using enum absl::StatusCode;
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  const struct {
    std::string file;
    absl::StatusCode code;
    std::string message;
  } cases[] = {
      {"GGUF", kInvalidArgument, "4 bytes are due"},
      {Gguf{.version = 1}.File(0), kUnimplemented, "version 1"},
      {Gguf{.version = 0x03000000}.File(0), kUnimplemented, "big-endian"},
      {Gguf{.tensor_count = kHuge}.File(0), kInvalidArgument, "are due"},
      {Gguf{.metadata_count = kHuge}.File(0), kInvalidArgument, "are due"},
      {Gguf{.metadata_count = 1, .body = Gguf::Raw(kHuge)}.File(0), kInvalidArgument,
       "9223372036854775808 bytes are due"},
      {Gguf{}.Value("k", 13, 0).File(0), kInvalidArgument, "metadata 'k': value type 13"},
      {Gguf{}.Value("k", 7, uint8_t{2}).File(0), kInvalidArgument, "expected 0 or 1"},
      {Gguf{}.Value("k", 0, uint8_t{2}).Value("k", 0, uint8_t{2}).File(0), kInvalidArgument,
       "metadata 'k' appears twice"},
      {Gguf{}.Array("k", 9, 1, "").File(0), kUnimplemented, "array of arrays"},
      {Gguf{}.Array("k", 14, 1, "").File(0), kInvalidArgument, "value type 14"},
      {Gguf{}.Array("k", 12, kHuge, "").File(0), kInvalidArgument,
       "an array of 9223372036854775808"},
      {Gguf{}.Array("k", 12, 3, std::string(20, 'x')).File(0), kInvalidArgument,
       "24 bytes are due"},
      {Gguf{}.Array("k", 8, kHuge, "").File(0), kResourceExhausted, "strings"},
      {Gguf{}.Array("k", 8, 1 << 20, "").File(0), kInvalidArgument, "8 bytes are due"},
      {Gguf{}.Value("general.alignment", 4, uint32_t{0}).File(0), kInvalidArgument, "power of two"},
      {Gguf{}.Value("general.alignment", 4, uint32_t{24}).File(0), kInvalidArgument,
       "power of two"},
      {Gguf{}.Value("general.alignment", 6, 32.0f).File(0), kInvalidArgument, "power of two"},
      {Gguf{}.Tensor("t", {2}, 24, 0).File(1), kInvalidArgument, "tensor 't', [2], needs 2 bytes"},
      {Gguf{}.Tensor("t", {2}, 24, 7).File(99), kInvalidArgument, "a multiple of 32"},
      {Gguf{}.Tensor("t", {2}, 24, kHuge).File(99), kInvalidArgument, "9223372036854775808"},
      {Gguf{}.Tensor("t", {2}, 24, 96).File(96), kInvalidArgument, "needs 2 bytes"},
      {Gguf{}.Tensor("t", {33}, 24, 0).Tensor("u", {1}, 24, 32).File(99), kInvalidArgument,
       "'u' has the bytes from"},
      {Gguf{}.Tensor("t", {1}, 24, 0).Tensor("t", {1}, 24, 32).File(99), kInvalidArgument,
       "'t' appears twice"},
      {Gguf{}.Tensor(std::string_view("a\0b", 3), {1}, 24, 0).File(9), kInvalidArgument, "a\\000b"},
      {Gguf{}.Tensor("\xff", {1}, 24, 0).File(9), kInvalidArgument, "UTF-8"},
      {Gguf{}.Tensor("", {1}, 24, 0).File(9), kInvalidArgument, "without a name"},
      {Gguf{}.Tensor("t", {kHuge}, 24, 0).File(9), kInvalidArgument, "a dimension of"},
      {Gguf{}.Tensor("t", {1 << 20, 1 << 20, 1 << 20}, 24, 0).File(9), kInvalidArgument, "limit"},
      {Gguf{}.Tensor("t", {0, 1 << 20, 1 << 20, 1 << 20}, 24, 0).File(9), kInvalidArgument,
       "limit"},
      {Gguf{}.Tensor("t", {1, 1, 1, 1, 1}, 24, 0).File(9), kInvalidArgument, "rank 5"},
      {Gguf{}.Tensor("t", {16, 2}, 2, 0).File(18), kInvalidArgument, "not whole Q4_0 blocks of 32"},
      {Gguf{}.Tensor("t", {}, 2, 0).File(18), kInvalidArgument, "not whole Q4_0 blocks of 32"},
      {Gguf{}.Tensor("t", {32}, 2, 0).File(17), kInvalidArgument, "needs 18 bytes"},
      {Gguf{}.Tensor("t", {32}, 4, 0).File(18), kUnimplemented, "type 4"},
  };
  for (const auto& c : cases) ExpectRefused(c.file, c.code, c.message);
}

}  // namespace
}  // namespace telegrad
