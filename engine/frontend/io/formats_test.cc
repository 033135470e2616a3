// safetensors, npy and npz: known files, and round trips of every type and rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/frontend/io/npy.h"
#include "engine/frontend/io/npz.h"
#include "engine/frontend/io/safetensors.h"
#include "engine/frontend/io/test_files.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using testing::ExpectRefused;
using testing::Filled;
using testing::LoadAll;
using testing::Parse;
using testing::Tensors;
using testing::Written;

std::string Container(std::string_view header, std::string_view data) {
  ByteWriter w;
  w.Word(static_cast<uint64_t>(header.size()));
  return StrCat(w.Take(), header, data);
}

std::string Safetensors(const Tensors& tensors,
                        const std::map<std::string, std::string>& metadata = {}) {
  return Written([&](ByteSink* s) { return WriteSafetensors(tensors, metadata, s); });
}
std::string Npy(const HostTensor& tensor) {
  return Written([&](ByteSink* s) { return WriteNpy(tensor, s); });
}
std::string Npz(const Tensors& tensors) {
  return Written([&](ByteSink* s) { return WriteNpz(tensors, s); });
}

TEST(Safetensors, ReadsTheFormatAsSpecified) {
  const auto file = Parse(
      Container(R"( {"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"__metadata__":{"k":"v"},)"
                R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}} )",
                std::string_view("\0\0\x80\x3f\7\x8", 6)));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->format(), "safetensors");
  EXPECT_THAT((*file)->Load("a")->Values<float>(), ElementsAre(1.0f));
  EXPECT_THAT((*file)->Load("b")->Values<uint8_t>(), ElementsAre(7, 8));
  EXPECT_EQ((*file)->Load("c").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*file)->Load("a", 3).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::get<std::string>((*file)->metadata().at("k")), "v");
}

TEST(Safetensors, RoundTripOfAllTypes) {
  Tensors in;
  for (const DTypeInfo& row : AllDTypes().subspan(1)) {
    if (row.safetensors.empty()) continue;
    in[StrCat("\xc3\xa9\"", row.text)] = Filled(row.dtype, {2, 3}, row.wire);
  }
  in["empty"] = {DType::kFloat32, {0, 5}, ""};
  const std::string file = Safetensors(in, {{"format", "pt"}});
  const auto out = LoadAll(file);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, in);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ(length % 8, 0u);
}

TEST(Safetensors, RefusesWhatIsMalformed) {
  const auto entry = [](std::string_view rest) {
    return StrCat(R"({"a":{"dtype":"U8",)", rest, "}}");
  };
  using enum absl::StatusCode;
  const struct {
    std::string header, data;
    absl::StatusCode code;
    std::string message;
  } cases[] = {
      {entry(R"("shape":[2],"data_offsets":[0,3])"), "abc", kInvalidArgument, "expected 2 of them"},
      {entry(R"("shape":[2],"data_offsets":[1,3])"), "abc", kInvalidArgument, "from 0"},
      {entry(R"("shape":[2],"data_offsets":[0,2])"), "abc", kInvalidArgument, "no tensor"},
      {entry(R"("shape":[4],"data_offsets":[0,4])"), "abc", kInvalidArgument, "within 3"},
      {entry(R"("shape":[281474976710656,9],"data_offsets":[0,2])"), "ab", kInvalidArgument,
       "limit"},
      {entry(R"("shape":[9223372036854775808],"data_offsets":[0,2])"), "ab", kInvalidArgument,
       "expected an object"},
      {entry(R"("shape":[2],"data_offsets":[0,9223372036854775807])"), "ab", kInvalidArgument,
       "expected 2 of them"},
      {entry(R"("shape":[-2],"data_offsets":[0,2])"), "ab", kInvalidArgument, "expected an object"},
      {entry(R"("shape":[2],"data_offsets":[0,2],"shape":[2])"), "ab", kInvalidArgument,
       "expected an object"},
      {entry(R"("shape":[2])"), "ab", kInvalidArgument, "expected an object"},
      {entry(R"("shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"), "a",
       kInvalidArgument, "expected an object"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       "ab", kInvalidArgument, "appears twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       "a", kInvalidArgument, "from 1"},
      {R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a", kInvalidArgument,
       "a\\000b"},
      {R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a", kInvalidArgument,
       "without a name"},
      {R"({"a":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}})", "a", kUnimplemented,
       "element type F8"},
      {R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\2", kInvalidArgument,
       "0 or 1"},
      {R"({"__metadata__":{"a":"b"},"__metadata__":{"a":"b"}})", "", kInvalidArgument,
       "unique strings"},
      {"{} x", "", kInvalidArgument, "expected the end"},
      {"{", "", kInvalidArgument, "expected a name"},
      {" []", "", kInvalidArgument, "expected {"},
  };
  for (const auto& c : cases) ExpectRefused(Container(c.header, c.data), c.code, c.message);
  ExpectRefused(Container("{}", "").substr(0, 9), kInvalidArgument, "does not fit");
  ExpectRefused(StrCat(std::string_view("\0\0\0\1\0\0\0\0{", 9)), kInvalidArgument, "does not fit");
  StringSink sink;
  EXPECT_FALSE(WriteSafetensors({{"\xff", {DType::kUInt8, {}, "a"}}}, {}, &sink).ok());
  EXPECT_FALSE(WriteSafetensors({{"a", {DType::kUInt8, {2}, "a"}}}, {}, &sink).ok());
  EXPECT_FALSE(WriteSafetensors({{"a", {DType::kInt2, {4}, "a"}}}, {}, &sink).ok());
  EXPECT_EQ(sink.bytes(), "");
}

// The bytes that NumPy 1.26 writes for np.array([[1, 2, 3]], dtype='<i2').
TEST(Npy, ReadsAndWritesWhatNumpyWrites) {
  std::string file("\x93NUMPY\1\0v\0{'descr': '<i2', 'fortran_order': False, 'shape': (1, 3), }",
                   69);
  file.append(127 - file.size(), ' ');
  file += '\n';
  file += std::string_view("\1\0\2\0\3\0", 6);
  const auto got = LoadAll(file);
  ASSERT_TRUE(got.ok()) << got.status();
  const HostTensor& tensor = got->at("data");
  EXPECT_EQ(tensor.shape, (Shape{1, 3}));
  EXPECT_THAT(tensor.Values<int16_t>(), ElementsAre(1, 2, 3));
  const std::string written = Npy(tensor);
  EXPECT_EQ((written.size() - 6) % 64, 0u);
  EXPECT_EQ(*LoadAll(written), *got);
}

TEST(Npy, FortranOrderIsReadInRowMajorOrder) {
  std::string file = Npy(HostTensor::Of<uint8_t>({2, 3}, {0, 10, 1, 11, 2, 12}));
  file.replace(file.find("False, "), 7, "True,  ");
  EXPECT_THAT(LoadAll(file)->at("data").Values<uint8_t>(), ElementsAre(0, 1, 2, 10, 11, 12));
}

TEST(NpyAndNpz, RoundTripOfAllTypesAndRanks) {
  Tensors all;
  for (const DTypeInfo& row : AllDTypes().subspan(1)) {
    if (row.numpy.empty()) continue;
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{2, 0, 3}, Shape(16, 1)}) {
      const HostTensor in = Filled(row.dtype, shape, row.wire);
      const auto out = LoadAll(Npy(in));
      ASSERT_TRUE(out.ok()) << out.status();
      EXPECT_EQ(out->at("data"), in);
      all.emplace(StrCat("folder/", row.text, shape.size()), in);
    }
  }
  const auto out = LoadAll(Npz(all));
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(*out, all);
  EXPECT_EQ(LoadAll(Npz({}))->size(), 0u);
}

TEST(Npy, RefusesWhatIsMalformedOrForeign) {
  const auto parse = [](std::string_view header, int version = 1) {
    std::string file = "\x93NUMPY";
    file += {static_cast<char>(version), 0, static_cast<char>(header.size()), 0};
    if (version == 2) file += std::string(2, '\0');
    return LoadAll(StrCat(file, header, "ab")).status();
  };
  EXPECT_TRUE(parse("{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}").ok());
  EXPECT_TRUE(parse("{'shape': (2,), \"descr\": '|u1', 'fortran_order': False,}", 2).ok());
  using enum absl::StatusCode;
  const std::pair<std::string_view, absl::StatusCode> cases[] = {
      {"{'descr': '>i2', 'fortran_order': False, 'shape': (1,)}", kUnimplemented},
      {"{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (1,)}", kUnimplemented},
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}", kInvalidArgument},
      {"{'descr': '|u1', 'fortran_order': True, 'shape': (3, 1)}", kInvalidArgument},
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}", kInvalidArgument},
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999,99)}", kInvalidArgument},
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (9223372036854775808,)}",
       kInvalidArgument},
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (0, 9223372036854775807)}",
       kInvalidArgument},
      {"{'descr': '|u1', 'fortran_order': False}", kInvalidArgument},
      {"{'descr': '|u1', 'fortran_order': False, 'shape': (2,)} x", kInvalidArgument},
      {"{'descr': '|u1', 'descr': '|u1', 'shape': (2,)}", kInvalidArgument},
      {"{'descr': '|u1', 'fortran_order': Maybe, 'shape': (2,)}", kInvalidArgument},
  };
  for (const auto& [header, code] : cases) EXPECT_EQ(parse(header).code(), code) << header;
  EXPECT_EQ(parse("{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}", 3).code(),
            kUnimplemented);
  StringSink sink;
  EXPECT_EQ(WriteNpy(Filled(DType::kBFloat16, {1}, 1), &sink).code(), kUnimplemented);
}

TEST(TensorFile, NamesTheFormatsWhereItKnowsNone) {
  ExpectRefused("", absl::StatusCode::kInvalidArgument, "the file is empty");
  ExpectRefused("GIF89a", absl::StatusCode::kInvalidArgument, "474946383961");
  EXPECT_EQ(OpenTensorFile("tests/data/no_such_file").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenTensorFile("tests/data").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SaveFile, KeepsWhatWasThereWhenItFails) {
  const std::string path = ::testing::TempDir() + "/save_file_test.safetensors";
  const Tensors good = {{"a", Filled(DType::kInt32, {3}, 1)}};
  const auto save = [&](const HostTensor& extra) {
    Tensors tensors = good;
    tensors.emplace("b", extra);
    return SaveFile(path, [&](ByteSink* sink) { return WriteSafetensors(tensors, {}, sink); });
  };
  ASSERT_TRUE(save(Filled(DType::kBool, {2}, 2)).ok());
  EXPECT_FALSE(save({DType::kInt32, {3}, "short"}).ok());
  const auto file = OpenTensorFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->Load("b")->dtype, DType::kBool);
  EXPECT_FALSE(OpenTensorFile(path + ".partial").ok());
  std::remove(path.c_str());
  EXPECT_FALSE(
      SaveFile("tests/data/no_such_folder/x", [](ByteSink*) { return absl::OkStatus(); }).ok());
}

// Cut and flipped files must give a Status or well-formed tensors, never a crash.
TEST(TensorFile, DamagedFiles) {
  constexpr uint64_t kSeed = 20240607;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  const Tensors contents = {{"weight", Filled(DType::kFloat32, {3, 2}, 1)},
                            {"bias", Filled(DType::kInt64, {2}, 2)}};
  const std::string files[] = {Safetensors(contents), Npy(contents.at("weight")), Npz(contents)};
  uint64_t draw = 0;
  for (const std::string& file : files) {
    for (size_t n = 0; n < file.size(); ++n) EXPECT_FALSE(LoadAll(file.substr(0, n)).ok()) << n;
    for (int i = 0; i < 20'000; ++i) {
      std::string damaged = file;
      for (uint64_t k = RandomBelow(kSeed, draw++, 4) + 1; k-- > 0;) {
        const size_t at = RandomBelow(kSeed, draw++, damaged.size());
        damaged[at] ^= static_cast<char>(1 << RandomBelow(kSeed, draw++, 8));
      }
      const auto tensors = LoadAll(damaged);
      if (!tensors.ok()) continue;
      for (const auto& [name, t] : *tensors) {
        ASSERT_EQ(static_cast<int64_t>(t.bytes.size()), *CheckedByteSize(t.dtype, t.shape));
      }
    }
  }
}

}  // namespace
}  // namespace telegrad
