// safetensors, npy and the JSON under them: known files, round trips, and damage of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/frontend/host_random.h"
#include "engine/frontend/json.h"
#include "engine/frontend/npy.h"
#include "engine/frontend/safetensors.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Container(std::string_view header, std::string_view data) {
  std::string out(8, '\0');
  const uint64_t n = header.size();
  std::memcpy(out.data(), &n, 8);
  return StrCat(out, header, data);
}

HostTensor Filled(DType dtype, const Shape& shape, uint64_t seed) {
  HostTensor out{dtype, shape, std::string(*CheckedByteSize(dtype, shape), '\0')};
  for (size_t i = 0; i < out.bytes.size(); ++i)
    out.bytes[i] = static_cast<char>(RandomBits(seed, i));
  return out;
}

TEST(JsonTest, StringsAndUtf8) {
  std::string s;
  EXPECT_TRUE(JsonReader(R"("a\n\u00e9\ud83d\ude00")").String(&s));
  EXPECT_EQ(s, "a\n\xc3\xa9\xf0\x9f\x98\x80");
  for (std::string_view bad :
       {"\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\x\"", "\"\n\"", "\"\xff\"",
        "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\\u-001\"", "x"}) {
    EXPECT_FALSE(JsonReader(bad).String(&s)) << bad;
  }
  int64_t n = 0;
  EXPECT_TRUE(JsonReader("9223372036854775807").Size(&n));
  EXPECT_EQ(n, INT64_MAX);
  for (std::string_view bad : {"9223372036854775808", "-1", "01", "1.5", "1e3", "", "+1"}) {
    EXPECT_FALSE(JsonReader(bad).Size(&n)) << bad;
  }
  JsonReader quoted(JsonQuote("\x01\"\\\xc3\xa9"));
  EXPECT_EQ(JsonQuote("\x01\"\\\xc3\xa9"), "\"\\u0001\\\"\\\\\xc3\xa9\"");
}

TEST(SafetensorsTest, ReadsTheFormatAsSpecified) {
  const absl::StatusOr<Safetensors> got = ParseSafetensors(
      Container(R"( {"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"__metadata__":{"k":"v"},)"
                R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}} )",
                std::string_view("\0\0\x80\x3f\7\x8", 6)));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(got->tensors.at("a").Values<float>(), ElementsAre(1.0f));
  EXPECT_THAT(got->tensors.at("b").Values<uint8_t>(), ElementsAre(7, 8));
  EXPECT_EQ(got->metadata.at("k"), "v");
}

TEST(SafetensorsTest, RoundTripOfAllTypes) {
  Safetensors in;
  in.metadata["format"] = "pt";
  for (const DTypeInfo& row : AllDTypes().subspan(1)) {
    if (row.safetensors.empty()) continue;
    in.tensors[StrCat("\xc3\xa9\"", row.text)] = Filled(row.dtype, {2, 3}, row.wire);
  }
  in.tensors["empty"] = {DType::kFloat32, {0, 5}, ""};
  const std::string file = *FormatSafetensors(in);
  const absl::StatusOr<Safetensors> out = ParseSafetensors(file);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->tensors, in.tensors);
  EXPECT_EQ(out->metadata, in.metadata);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0u);
}

TEST(SafetensorsTest, RefusesWhatIsMalformed) {
  const auto entry = [](std::string_view rest) {
    return StrCat(R"({"a":{"dtype":"U8",)", rest, "}}");
  };
  const struct {
    std::string header, data, message;
  } cases[] = {
      {entry(R"("shape":[2],"data_offsets":[0,3])"), "abc", "expected 2 of them"},
      {entry(R"("shape":[2],"data_offsets":[1,3])"), "abc", "from 0"},
      {entry(R"("shape":[2],"data_offsets":[0,2])"), "abc", "belong to no tensor"},
      {entry(R"("shape":[4],"data_offsets":[0,4])"), "abc", "within 3"},
      {entry(R"("shape":[281474976710656,9],"data_offsets":[0,2])"), "ab", "limit"},
      {entry(R"("shape":[-2],"data_offsets":[0,2])"), "ab", "expected an object"},
      {entry(R"("shape":[2],"data_offsets":[0,2],"shape":[2])"), "ab", "expected an object"},
      {entry(R"("shape":[2])"), "ab", "expected an object"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       "ab", "appears twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "a", "from 1"},
      {R"({"a":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}})", "a", "element type F8"},
      {"{} x", "", "expected the end"},
      {"[]", "", "expected {"},
  };
  for (const auto& c : cases) {
    const absl::Status status = ParseSafetensors(Container(c.header, c.data)).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.header;
  }
  EXPECT_FALSE(ParseSafetensors("\xff\xff\xff\xff\xff\xff\xff\x7f{}").ok());
  EXPECT_FALSE(FormatSafetensors({{{"\xff", {DType::kUInt8, {}, "a"}}}, {}}).ok());
  EXPECT_FALSE(FormatSafetensors({{{"a", {DType::kUInt8, {2}, "a"}}}, {}}).ok());
}

// The bytes that NumPy 1.26 writes for np.array([[1, 2, 3]], dtype='<i2').
TEST(NpyTest, ReadsAndWritesWhatNumpyWrites) {
  std::string file("\x93NUMPY\1\0v\0{'descr': '<i2', 'fortran_order': False, 'shape': (1, 3), }",
                   69);
  file.append(127 - file.size(), ' ');
  file += '\n';
  file += std::string_view("\1\0\2\0\3\0", 6);
  const absl::StatusOr<HostTensor> got = ParseNpy(file);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->shape, (Shape{1, 3}));
  EXPECT_THAT(got->Values<int16_t>(), ElementsAre(1, 2, 3));
  const std::string written = FormatNpy(*got);
  EXPECT_EQ((written.size() - 6) % 64, 0u);
  EXPECT_EQ(*ParseNpy(written), *got);
}

TEST(NpyTest, RoundTripOfAllTypesAndRanks) {
  for (const DTypeInfo& row : AllDTypes().subspan(1)) {
    if (row.numpy.empty()) continue;
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{2, 0, 3}, Shape(16, 1)}) {
      const HostTensor in = Filled(row.dtype, shape, row.wire);
      const absl::StatusOr<HostTensor> out = ParseNpy(FormatNpy(in));
      ASSERT_TRUE(out.ok()) << out.status();
      EXPECT_EQ(*out, in);
    }
  }
}

TEST(NpyTest, RefusesWhatIsMalformedOrForeign) {
  const auto parse = [](std::string_view header, int version = 1) {
    std::string file = "\x93NUMPY";
    file += {static_cast<char>(version), 0, static_cast<char>(header.size()), 0};
    if (version == 2) file += std::string(2, '\0');
    return ParseNpy(StrCat(file, header, "ab")).status();
  };
  EXPECT_TRUE(parse("{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}").ok());
  EXPECT_TRUE(parse("{'shape': (2,), \"descr\": '|u1', 'fortran_order': False,}", 2).ok());
  const auto code = [&](std::string_view header) { return parse(header).code(); };
  using enum absl::StatusCode;
  EXPECT_EQ(code("{'descr': '|u1', 'fortran_order': True, 'shape': (2,)}"), kUnimplemented);
  EXPECT_EQ(code("{'descr': '>i2', 'fortran_order': False, 'shape': (1,)}"), kUnimplemented);
  EXPECT_EQ(code("{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (1,)}"),
            kUnimplemented);
  EXPECT_EQ(code("{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}"), kInvalidArgument);
  EXPECT_EQ(code("{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}"), kInvalidArgument);
  EXPECT_EQ(code("{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999,99)}"),
            kInvalidArgument);
  EXPECT_EQ(code("{'descr': '|u1', 'fortran_order': False}"), kInvalidArgument);
  EXPECT_EQ(code("{'descr': '|u1', 'fortran_order': False, 'shape': (2,)} x"), kInvalidArgument);
  EXPECT_EQ(code("{'descr': '|u1', 'descr': '|u1', 'shape': (2,)}"), kInvalidArgument);
  EXPECT_EQ(parse("{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}", 3).code(),
            kUnimplemented);
}

// Cut and flipped files must give a Status or a well-formed tensor, never a crash.
TEST(StateFuzzTest, DamagedFiles) {
  constexpr uint64_t kSeed = 20240607;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Safetensors contents;
  contents.tensors["weight"] = Filled(DType::kFloat32, {3, 2}, 1);
  contents.tensors["bias"] = Filled(DType::kInt64, {2}, 2);
  const std::string files[] = {*FormatSafetensors(contents),
                               FormatNpy(Filled(DType::kFloat32, {3, 2}, 1))};
  uint64_t draw = 0;
  const auto check = [](const std::string& file) {
    if (const auto s = ParseSafetensors(file); s.ok()) {
      for (const auto& [name, t] : s->tensors) {
        ASSERT_EQ(static_cast<int64_t>(t.bytes.size()), *CheckedByteSize(t.dtype, t.shape));
      }
    }
    if (const auto t = ParseNpy(file); t.ok()) {
      ASSERT_EQ(static_cast<int64_t>(t->bytes.size()), *CheckedByteSize(t->dtype, t->shape));
    }
  };
  for (const std::string& file : files) {
    for (size_t n = 0; n < file.size(); ++n) {
      check(file.substr(0, n));
      EXPECT_FALSE(ParseNpy(file.substr(0, n)).ok() || ParseSafetensors(file.substr(0, n)).ok())
          << n;
    }
    for (int i = 0; i < 20'000; ++i) {
      std::string damaged = file;
      for (uint64_t k = RandomBelow(kSeed, draw++, 4) + 1; k-- > 0;) {
        const size_t at = RandomBelow(kSeed, draw++, damaged.size());
        damaged[at] ^= static_cast<char>(1 << RandomBelow(kSeed, draw++, 8));
      }
      check(damaged);
    }
  }
}

}  // namespace
}  // namespace telegrad
