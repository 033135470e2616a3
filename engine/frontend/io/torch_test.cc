// PyTorch's zip files: those that torch.save wrote (tests/data/state), and pickles that no PyTorch
// would write.
#include "engine/frontend/io/torch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/status.h"
#include "engine/frontend/io/test_files.h"

namespace telegrad {
namespace {

using testing::ExpectRefused;
using testing::Filled;
using testing::LoadAll;
using testing::Parse;
using testing::Written;

constexpr std::string_view kFolder = "tests/data/state/";

TEST(Torch, ReadsWhatTorchSaves) {
  const auto expected = OpenTensorFile(StrCat(kFolder, "expected.safetensors"));
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const auto& [name, tensors] :
       {std::pair("torch.pt", 31), std::pair("deflated.pt", 2), std::pair("single.pt", 1)}) {
    const auto file = OpenTensorFile(StrCat(kFolder, name));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->format(), "PyTorch");
    EXPECT_EQ((*file)->tensors().size(), static_cast<size_t>(tensors));
    for (const TensorEntry& entry : (*file)->tensors()) {
      const auto want = (*expected)->Load(StrCat(name, "/", entry.name));
      ASSERT_TRUE(want.ok()) << want.status();
      const auto got = (*file)->Load(entry);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(*got, *want) << name << " " << entry.name;
    }
  }
}

TEST(Torch, NamesAndMetadataAreWaysThroughContainers) {
  const auto file = OpenTensorFile(StrCat(kFolder, "torch.pt"));
  ASSERT_TRUE(file.ok()) << file.status();
  const Metadata& metadata = (*file)->metadata();
  EXPECT_EQ(std::get<int64_t>(metadata.at("epoch")), 12);
  EXPECT_EQ(std::get<double>(metadata.at("rate")), 0.5);
  EXPECT_EQ(std::get<std::string>(metadata.at("name")), "a net");
  EXPECT_EQ(std::get<bool>(metadata.at("done")), true);
  EXPECT_EQ(std::get<int64_t>(metadata.at("sizes.1")), 6);
  EXPECT_EQ(std::get<double>(metadata.at("optimizer.param_groups.0.lr")), 1e-3);
  EXPECT_EQ((*file)->tensors()[0].name, "tensors.x");
  EXPECT_EQ((*file)->Find("tensors.x")->offset, (*file)->Find("list.1.0")->offset);  // shared
  EXPECT_EQ((*file)->Find("tensors.transposed")->strides, (Shape{1, 6}));
}

TEST(Torch, SaysWhatItDoesNotRead) {
  for (const auto& [name, text] : {std::pair("legacy.pt", "before version 1.6"),
                                   {"module.pt", "torch.nn.modules.linear.Linear"},
                                   {"expanded.pt", "'wide', [1000] with the strides [0]"}}) {
    const absl::Status status = OpenTensorFile(StrCat(kFolder, name)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(text));
  }
}

// Pieces of pickles.
std::string Text(std::string_view text) {
  ByteWriter w;
  w.Word(static_cast<uint32_t>(text.size()));
  return StrCat("X", w.Take(), text);
}
std::string Int(int64_t value) {
  ByteWriter w;
  w.Word(value);
  return "\x8a\x08" + w.Take();
}
std::string Tuple(const std::vector<int64_t>& values) {
  std::string out = "(";
  for (int64_t value : values) out += Int(value);
  return out + "t";
}
std::string Storage(int64_t elements, std::string_view type = "ctorch\nFloatStorage\n",
                    std::string_view key = "0") {
  return StrCat("(", Text("storage"), type, Text(key), Text("cpu"), Int(elements), "tQ");
}
std::string Tensor(std::string_view storage, int64_t offset, const std::vector<int64_t>& sizes,
                   const std::vector<int64_t>& strides) {
  return StrCat("ctorch._utils\n_rebuild_tensor_v2\n(", storage, Int(offset), Tuple(sizes),
                Tuple(strides), "\x89NtR");
}
// A file with that pickle and a storage of 8 floats.
std::string File(std::string_view pickle, std::string_view byteorder = "little") {
  return Written([&](ByteSink* sink) {
    ZipWriter zip(sink);
    TG_RETURN_IF_ERROR(zip.Add("a/data.pkl", {std::string_view("\x80\2", 2), pickle}));
    TG_RETURN_IF_ERROR(zip.Add("a/byteorder", {byteorder}));
    TG_RETURN_IF_ERROR(zip.Add("a/data/0", {Filled(DType::kFloat32, {8}, 1).bytes}));
    return zip.Finish();
  });
}

TEST(Torch, GathersLargeTransposesInPieces) {
  constexpr int64_t kRows = 700, kColumns = 500;  // several blocks of elements
  const HostTensor matrix = Filled(DType::kInt16, {kColumns, kRows}, 3);
  const std::string bytes = Written([&](ByteSink* sink) {
    ZipWriter zip(sink);
    const std::string storage = Storage(kRows * kColumns, "ctorch\nShortStorage\n");
    TG_RETURN_IF_ERROR(zip.Add(
        "a/data.pkl", {StrCat("\x80\2", Tensor(storage, 0, {kRows, kColumns}, {1, kRows}), ".")}));
    TG_RETURN_IF_ERROR(zip.Add("a/data/0", {matrix.bytes}));
    return zip.Finish();
  });
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto reader = (*file)->Open((*file)->tensors()[0]);
  std::string got;
  for (size_t n = 1; reader->left() > 0; n = n * 3 + 1) {  // pieces of odd sizes
    std::string piece(std::min<size_t>(n, static_cast<size_t>(reader->left())), '\0');
    ASSERT_TRUE(reader->Read(std::as_writable_bytes(std::span(piece.data(), piece.size()))).ok());
    got += piece;
  }
  const std::vector<int16_t> in = matrix.Values<int16_t>();
  const std::vector<int16_t> out = HostTensor{DType::kInt16, {}, got}.Values<int16_t>();
  ASSERT_EQ(out.size(), in.size());
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kColumns; ++c) {
      ASSERT_EQ(out[r * kColumns + c], in[c * kRows + r]) << r << " " << c;
    }
  }
}

TEST(Torch, RefusesPicklesThatAreMalformedOrDoMore) {
  using enum absl::StatusCode;
  const std::string storage = Storage(8);
  const auto tensor = [&](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                          int64_t offset = 0) {
    return Tensor(storage, offset, sizes, strides) + ".";
  };
  ASSERT_TRUE(LoadAll(File(tensor({2, 4}, {4, 1}))).ok());
  // A list of two of the list before, and so on: 2^60 ways.
  std::string bomb = "]q";
  bomb += '\0';
  for (char i = 1; i < 60; ++i) {
    bomb += StrCat("](h", std::string(1, static_cast<char>(i - 1)), "h",
                   std::string(1, static_cast<char>(i - 1)), "eq", std::string(1, i));
  }
  const struct {
    std::string pickle;
    absl::StatusCode code;
    std::string message;
  } cases[] = {
      {"", kInvalidArgument, "ends within an opcode"},
      {".", kInvalidArgument, "the stack is empty"},
      {"cos\nsystem\n" + Text("true") + "\x85R.", kUnimplemented, "os.system is not among"},
      {"cbuiltins\neval\n.", kUnimplemented, "builtins.eval"},
      {Text("posix") + Text("system") + "\x93.", kUnimplemented, "posix.system"},
      {Int(1) + Text("system") + "\x93.", kInvalidArgument, "not named by strings"},
      {"i", kUnimplemented, "opcode 105"},       // INST
      {"o", kUnimplemented, "opcode 111"},       // OBJ
      {"\x81", kUnimplemented, "opcode 129"},    // NEWOBJ
      {"\x82\1", kUnimplemented, "opcode 130"},  // EXT1
      {"P0\n", kUnimplemented, "opcode 80"},     // PERSID
      {"I01\n.", kUnimplemented, "opcode 73"},
      {std::string("\x80\5", 2) + ".", kUnimplemented, "protocol 5"},
      {std::string("h\7."), kInvalidArgument, "memo 7"},
      {"t.", kInvalidArgument, "no mark"},
      {"(a.", kInvalidArgument, "the stack is empty"},
      {")Na.", kInvalidArgument, "cannot take them"},
      {"}(Nu.", kInvalidArgument, "cannot take them"},
      {"]}b.", kUnimplemented, "an object with attributes"},
      {"NNR.", kInvalidArgument, "not a function"},
      {"ccollections\nOrderedDict\nN\x85R.", kUnimplemented, "OrderedDict with arguments"},
      {"\x8a\x09" + std::string(9, '\1') + ".", kUnimplemented, "an integer of 9 bytes"},
      {std::string("X\xff\xff\xff\xff"), kInvalidArgument, "ends within an opcode"},
      {"cposix", kInvalidArgument, "a line without an end"},
      {std::string("]q\0h\0a.", 7), kInvalidArgument, "or one holds itself"},
      {bomb + ".", kResourceExhausted, "memory"},
      {std::string("}N)s.", 5), kUnimplemented, "a key that is neither"},
      {"}" + Text("a") + Int(1) + "s" + Text("a") + Int(2) + "s.", kInvalidArgument, "twice"},
      {"}" + Text("a") + Tensor(storage, 0, {1}, {1}) + "s" + Text("a") +
           Tensor(storage, 0, {1}, {1}) + "s.",
       kInvalidArgument, "'a' appears twice"},
      {"}" + Text(std::string_view("a\0b", 3)) + Tensor(storage, 0, {1}, {1}) + "s.",
       kInvalidArgument, "a\\000b"},
      {"}" + Text("\xff") + Tensor(storage, 0, {1}, {1}) + "s.", kInvalidArgument, "UTF-8"},
      {storage + ".", kUnimplemented, "neither a tensor nor a container"},
      {tensor({9}, {1}), kInvalidArgument, "needs 36 bytes from byte 0"},
      {tensor({2}, {1}, 7), kInvalidArgument, "needs 8 bytes from byte 28"},
      {tensor({1}, {1}, 9), kInvalidArgument, "an offset of 9"},
      {tensor({1}, {1}, -1), kInvalidArgument, "an offset of -1"},
      {tensor({1}, {1}, INT64_MAX), kInvalidArgument, "an offset of"},
      {tensor({-1}, {1}), kInvalidArgument, "not numbers from 0"},
      {tensor({INT64_MIN}, {1}), kInvalidArgument, "not numbers from 0"},
      {tensor({INT64_MAX}, {1}), kInvalidArgument, "limit"},
      {tensor({1 << 20, 1 << 20, 1 << 20}, {1, 1, 1}), kInvalidArgument, "limit"},
      {tensor({2, 4}, {1}), kInvalidArgument, "as many strides as sizes"},
      {tensor({2, 4}, {4, 2}), kInvalidArgument, "leaves its 8 elements"},
      {tensor({2, 2}, {INT64_MAX, 1}), kInvalidArgument, "leaves its 8 elements"},
      {tensor({3, 4}, {0, 1}), kUnimplemented, "repeats elements"},
      {tensor(std::vector<int64_t>(17, 1), std::vector<int64_t>(17, 1)), kInvalidArgument,
       "at most 16"},
      {Tensor(Storage(INT64_MAX), 0, {1}, {1}) + ".", kInvalidArgument, "is said to have"},
      {Tensor(Storage(-1), 0, {1}, {1}) + ".", kInvalidArgument, "is said to have -1"},
      {Tensor(Storage(9), 0, {1}, {1}) + ".", kInvalidArgument, "has 32 bytes"},
      {Tensor(Storage(1, "ctorch\nFloatStorage\n", "7"), 0, {1}, {1}) + ".", kInvalidArgument,
       "no storage '7'"},
      {Tensor(Storage(1, "ctorch.storage\nUntypedStorage\n"), 0, {1}, {1}) + ".", kInvalidArgument,
       "without an element type"},
      {Tensor(Storage(1, "ctorch\nComplexFloatStorage\n"), 0, {1}, {1}) + ".", kUnimplemented,
       "torch.ComplexFloatStorage"},
      {Tensor("N", 0, {1}, {1}) + ".", kInvalidArgument, "without a storage"},
      {Tensor("NQ", 0, {1}, {1}) + ".", kInvalidArgument, "without a storage"},
      {"ctorch._utils\n_rebuild_tensor_v2\n)R.", kInvalidArgument, "makes no tensor"},
      {"ctorch._utils\n_rebuild_parameter\n)R.", kInvalidArgument, "a parameter of nothing"},
      {"ctorch\nfloat32\n)R.", kInvalidArgument, "makes no tensor"},
  };
  for (const auto& c : cases) ExpectRefused(File(c.pickle), c.code, c.message);
  ExpectRefused(File(tensor({1}, {1}), "big"), kUnimplemented, "byte order \"big\"");
}

}  // namespace
}  // namespace telegrad
