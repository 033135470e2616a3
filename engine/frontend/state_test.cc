// State files: known bytes, round trips, and what must be refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/base/strings.h"
#include "engine/frontend/host_bytes.h"
#include "engine/frontend/npy.h"
#include "engine/frontend/safetensors.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

std::string_view Message(const absl::Status& status) { return ToStd(status.message()); }

// A tensor of `dtype` whose bytes are all different where they may be.
HostTensor Sample(DType dtype, Shape shape) {
  HostTensor out{dtype, std::move(shape), {}};
  const int64_t n = NumElements(out.shape) * ByteSize(dtype);
  for (int64_t i = 0; i < n; ++i) {
    out.bytes += static_cast<char>(IsBool(dtype) ? i % 2 : (i * 37 + 11) % 251);
  }
  return out;
}

std::string File(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), 8);
  out += header;
  out += data;
  return out;
}

absl::Status ReadStatus(std::string_view header, std::string_view data) {
  return ReadSafetensors(File(header, data)).status();
}

TEST(HostBytes, Utf8) {
  EXPECT_TRUE(IsUtf8("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
  for (std::string_view bad : {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
                               "\xf4\x90\x80\x80", "\xff", "\xf0\x8f\xbf\xbf"}) {
    EXPECT_FALSE(IsUtf8(bad)) << testing::PrintToString(bad);
  }
}

TEST(Safetensors, KnownFile) {
  const auto read = ReadSafetensors(
      File(R"({"__metadata__":{"format":"pt"},)"
           R"( "b\u00e9\ud83d\ude00": {"shape":[2],"dtype":"I16","data_offsets":[4,8]},)"
           R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
           R"("none":{"dtype":"U8","shape":[3,0],"data_offsets":[8,8]}}  )",
           std::string_view("\0\0\x80\x3f\x01\0\xff\xff", 8)));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->metadata.at("format"), "pt");
  ASSERT_EQ(read->tensors.size(), 3u);
  EXPECT_EQ(read->tensors.at("a"), HostTensor::Of<float>({}, {1.0f}));
  EXPECT_EQ(read->tensors.at("b\xc3\xa9\xf0\x9f\x98\x80"), HostTensor::Of<int16_t>({2}, {1, -1}));
  EXPECT_EQ(read->tensors.at("none"), (HostTensor{DType::kUInt8, {3, 0}, ""}));
}

TEST(Safetensors, WritesKnownBytes) {
  Safetensors content;
  content.tensors["a"] = HostTensor::Of<uint8_t>({1}, {7});
  content.tensors["w\""] = HostTensor::Of<float>({1, 1}, {1.0f});
  const auto written = WriteSafetensors(content);
  ASSERT_TRUE(written.ok()) << written.status();
  // Wider elements first; spaces up to a multiple of 8.
  std::string header = R"({"w\"":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
                       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(*written, File(header, std::string_view("\0\0\x80\x3f\x07", 5)));
}

TEST(Safetensors, RoundTripsEveryType) {
  Safetensors content;
  for (const DTypeInfo& row : AllDTypes().subspan(1)) {
    content.tensors[StrCat(row.text, "/\xe2\x82\xac\n\\")] = Sample(row.dtype, {3, 2});
    content.tensors[StrCat(row.text, "0")] = Sample(row.dtype, {});
    content.tensors[StrCat(row.text, "empty")] = Sample(row.dtype, {4, 0});
  }
  content.metadata["k\t"] = "v\x01\"";
  const auto written = WriteSafetensors(content);
  ASSERT_TRUE(written.ok()) << written.status();
  const auto read = ReadSafetensors(*written);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, content);
}

TEST(Safetensors, Refuses) {
  const auto refuses = [](std::string_view header, std::string_view data, std::string_view why) {
    const absl::Status status = ReadStatus(header, data);
    EXPECT_FALSE(status.ok()) << header;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(std::string(why))) << header;
  };
  const auto one = [](std::string_view shape, std::string_view offsets) {
    return StrCat(R"({"a":{"dtype":"F32","shape":)", shape, R"(,"data_offsets":)", offsets, "}}");
  };
  refuses(one("[1]", "[0,8]"), "12345678", "needs 4 bytes, got 8");
  refuses(one("[1]", "[4,8]"), "12345678", "expected a begin of 0");
  refuses(one("[1]", "[0,4]"), "12345678", "belong to no tensor");
  refuses(one("[2]", "[0,8]"), "1234", "an end of at most 4");
  refuses(one("[1]", "[4,0]"), "1234", "offsets");
  refuses(one("[4611686018427387904,4]", "[0,0]"), "", "elements");
  refuses(one("[99999999999999999999]", "[0,0]"), "", "too large");
  refuses(one("[-1]", "[0,4]"), "1234", "integer >= 0");
  refuses(one("[01]", "[0,4]"), "1234", "leading zero");
  refuses(one("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,4]"), "1234", "16 items");
  refuses(one("[1]", "[0,4,4]"), "1234", "2 items");
  refuses(one("[1]", "[0]"), "1234", "a begin and an end");
  refuses(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
          R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          "1234", "one after the other");
  refuses(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
          R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
          "", "appears twice");
  refuses(R"({"a":{"dtype":"F32","dtype":"F32","shape":[0],"data_offsets":[0,0]}})", "",
          "appears twice");
  refuses(R"({"a":{"dtype":"F32","shape":[0]}})", "", "lacks");
  refuses(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\x02", "expected 0 or 1");
  refuses(R"( {})", "", "does not begin with '{'");
  refuses(R"({} x)", "", "the end of the text");
  refuses("{\"\\ud800\":1}", "", "surrogate");
  refuses("{\"\xff\":1}", "", "UTF-8");
  refuses("{\"a", "", "ends in a string");
  EXPECT_EQ(ReadStatus(R"({"a":{"dtype":"F8_E4M3","shape":[0],"data_offsets":[0,0]}})", "").code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_FALSE(ReadSafetensors("1234567").ok());
  EXPECT_FALSE(ReadSafetensors("\xff\xff\xff\xff\xff\xff\xff\xff{}").ok());
  Safetensors bad;
  bad.tensors["a"] = {DType::kFloat32, {2}, "1234"};
  EXPECT_FALSE(WriteSafetensors(bad).ok());
}

std::string Npy(std::string_view dict, std::string_view data, int major = 1, int minor = 0) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(major);
  out += static_cast<char>(minor);
  const auto length = static_cast<uint32_t>(dict.size());
  out.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  out += dict;
  out += data;
  return out;
}

TEST(Npy, KnownFile) {
  // numpy.save of numpy.array([[1, 2, 3]], dtype='<i2'): 10 + 118 bytes, then the elements.
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<i2', 'fortran_order': False, 'shape': (1, 3), }";
  expected.append(127 - expected.size(), ' ');
  expected += '\n';
  expected += std::string_view("\x01\0\x02\0\x03\0", 6);
  const HostTensor tensor = HostTensor::Of<int16_t>({1, 3}, {1, 2, 3});
  const auto written = WriteNpy(tensor);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(*written, expected);
  const auto read = ReadNpy(expected);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, tensor);
}

TEST(Npy, RoundTripsEveryTypeAndVersion) {
  for (const DTypeInfo& row : AllDTypes().subspan(1)) {
    for (int major = 1; major <= 3; ++major) {
      for (const Shape& shape : {Shape{}, Shape{5}, Shape{2, 0}, Shape{2, 3, 4}}) {
        const HostTensor tensor = Sample(row.dtype, shape);
        const auto written = WriteNpy(tensor, major);
        ASSERT_TRUE(written.ok()) << written.status();
        EXPECT_EQ((written->size() - tensor.bytes.size()) % 64, 0u);
        const auto read = ReadNpy(*written);
        ASSERT_TRUE(read.ok()) << read.status();
        EXPECT_EQ(*read, tensor);
      }
    }
  }
}

TEST(Npy, ReadsOlderForms) {
  const auto read =
      ReadNpy(Npy("{\"shape\": (2,3,), 'fortran_order':False,'descr':'|u1'}\n", "abcdef", 2));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, (HostTensor{DType::kUInt8, {2, 3}, "abcdef"}));
}

TEST(Npy, Refuses) {
  const auto refuses = [](std::string_view dict, absl::StatusCode code, std::string_view why) {
    const absl::Status status = ReadNpy(Npy(dict, "1234")).status();
    EXPECT_EQ(status.code(), code) << dict << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(std::string(why))) << dict;
  };
  const auto header = [](std::string_view descr, std::string_view order, std::string_view shape) {
    return StrCat("{'descr': ", descr, ", 'fortran_order': ", order, ", 'shape': ", shape, ", }\n");
  };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnknown = absl::StatusCode::kUnimplemented;
  refuses(header("'<f4'", "True", "(1,)"), kUnknown, "Fortran");
  refuses(header("'>f4'", "False", "(1,)"), kUnknown, "big-endian");
  refuses(header("'|O'", "False", "(1,)"), kUnknown, "Python objects");
  refuses(header("'<c8'", "False", "(1,)"), kUnknown, "not supported");
  refuses(header("[('a', '<f4')]", "False", "(1,)"), kUnknown, "structured");
  refuses(header("'<f4'", "False", "(1)"), kBad, "not a tuple");
  refuses(header("'<f4'", "False", "(-1,)"), kBad, ">= 0");
  refuses(header("'<f4'", "False", "(2,)"), kBad, "needs 8 bytes, got 4");
  refuses(header("'<f4'", "False", "(99999999999999999999,)"), kBad, "too large");
  refuses(header("'<f4'", "False", "(2305843009213693952,8)"), kBad, "elements");
  refuses(header("'<f4'", "0", "(1,)"), kBad, "True or False");
  refuses("{'descr': '<f4', 'fortran_order': False}", kBad, "missing");
  refuses("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", kBad, "twice");
  refuses(header("'<f4'", "False", "(1,)") + "x", kBad, "after the dict");
  EXPECT_FALSE(ReadNpy("").ok());
  EXPECT_FALSE(ReadNpy(Npy("{}", "", 4)).ok());
  EXPECT_FALSE(ReadNpy(Npy(header("'<f4'", "False", "(1,)"), "1234", 1, 1)).ok());
}

// Whatever the damage: a Status, or tensors that keep their contract.
template <typename Read, typename Check>
void Damage(const std::string& file, Read read, Check check) {
  for (size_t n = 0; n < file.size(); ++n) {
    EXPECT_FALSE(read(std::string_view(file).substr(0, n)).ok()) << n;
  }
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::string bad = file;
    const size_t flips = 1 + random() % 3;
    for (size_t i = 0; i < flips; ++i) {
      bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    }
    if (const auto got = read(bad); got.ok()) check(*got);
  }
}

TEST(Safetensors, SurvivesDamage) {
  Safetensors content;
  content.tensors["a"] = Sample(DType::kFloat32, {2, 2});
  content.tensors["flag"] = Sample(DType::kBool, {3});
  content.metadata["format"] = "pt";
  const auto file = WriteSafetensors(content);
  ASSERT_TRUE(file.ok());
  Damage(*file, ReadSafetensors, [](const Safetensors& got) {
    for (const auto& [name, tensor] : got.tensors) EXPECT_TRUE(CheckHostTensor(tensor).ok());
    EXPECT_TRUE(WriteSafetensors(got).ok());
  });
}

TEST(Npy, SurvivesDamage) {
  const auto file = WriteNpy(Sample(DType::kFloat32, {2, 3}));
  ASSERT_TRUE(file.ok());
  Damage(*file, ReadNpy, [](const HostTensor& got) { EXPECT_TRUE(CheckHostTensor(got).ok()); });
}

}  // namespace
}  // namespace telegrad
