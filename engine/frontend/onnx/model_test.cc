// The wire reader and the model's structs, on hand-made bytes and the two known models.
#include "engine/frontend/onnx/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "engine/base/strings.h"
#include "engine/frontend/onnx/proto_reader.h"
#include "engine/frontend/onnx/test_model.h"
#include "engine/frontend/tensor/host_bytes.h"

namespace telegrad::onnx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_view_literals;

std::string LoadText(std::string_view path) {
  std::ifstream in(StrCat("tests/data/onnx/", path), std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  EXPECT_TRUE(in.good()) << path;
  return out.str();
}

TEST(ProtoReader, Fields) {
  // The examples of the encoding guide: field 1 = 150; field 2 = "testing"; then fixed fields.
  ProtoReader reader(
      "\x08\x96\x01\x12\x07testing\x1d\x01\x00\x00\x00\x21\x02\x00\x00\x00\x00\x00\x00\x00"sv);
  Field f;
  ASSERT_TRUE(reader.Next(&f));
  EXPECT_EQ(f.number, 1u);
  EXPECT_EQ(f.value, 150u);
  ASSERT_TRUE(reader.Next(&f));
  EXPECT_EQ(f.number, 2u);
  EXPECT_EQ(f.bytes, "testing");
  ASSERT_TRUE(reader.Next(&f));
  EXPECT_EQ(f.value, 1u);
  ASSERT_TRUE(reader.Next(&f));
  EXPECT_EQ(f.number, 4u);
  EXPECT_EQ(f.value, 2u);
  EXPECT_FALSE(reader.Next(&f));
  EXPECT_TRUE(reader.status().ok()) << reader.status();
}

TEST(ProtoReader, Refuses) {
  for (std::string_view bad :
       {"\x08"sv, "\x08\x96"sv, "\x12\x07test"sv, "\x1d\x01"sv, "\x21\x01"sv, "\x00\x01"sv,
        "\x0b"sv, "\x0c"sv, "\x0e\x01"sv, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"sv,
        "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv}) {
    ProtoReader reader(bad);
    Field f;
    while (reader.Next(&f)) {
    }
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument)
        << testing::PrintToString(std::string(bad));
  }
}

TEST(Tensor, TypedFieldsOfEveryType) {
  const auto read = [](DType dtype, const std::function<void(std::string*)>& put) {
    std::string file;
    PutVarintField(field::kDims, 2, &file);
    PutVarintField(field::kDataType, Info(dtype).onnx, &file);
    put(&file);
    return ReadTensorFile(file);
  };
  const auto varints = [](uint32_t number, uint64_t a, uint64_t b) {
    return [=](std::string* out) {
      PutVarintField(number, a, out);
      PutVarintField(number, b, out);
    };
  };
  const auto minus_two = static_cast<uint64_t>(-2);
  const auto equal = [](const absl::StatusOr<HostTensor>& got, const HostTensor& want) {
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, want);
  };
  equal(read(DType::kBool, varints(field::kInt32Data, 1, 0)),
        HostTensor{DType::kBool, {2}, std::string("\1\0", 2)});
  equal(read(DType::kInt8, varints(field::kInt32Data, minus_two, 3)),
        HostTensor::Of<int8_t>({2}, {-2, 3}));
  equal(read(DType::kUInt8, varints(field::kInt32Data, 255, 3)),
        HostTensor::Of<uint8_t>({2}, {255, 3}));
  equal(read(DType::kInt16, varints(field::kInt32Data, minus_two, 300)),
        HostTensor::Of<int16_t>({2}, {-2, 300}));
  equal(read(DType::kInt32, varints(field::kInt32Data, minus_two, 70000)),
        HostTensor::Of<int32_t>({2}, {-2, 70000}));
  equal(read(DType::kInt64, varints(field::kInt64Data, minus_two, 1ull << 40)),
        HostTensor::Of<int64_t>({2}, {-2, int64_t{1} << 40}));
  equal(read(DType::kUInt32, varints(field::kUint64Data, 4000000000u, 1)),
        HostTensor::Of<uint32_t>({2}, {4000000000u, 1}));
  equal(read(DType::kUInt64, varints(field::kUint64Data, ~0ull, 1)),
        HostTensor::Of<uint64_t>({2}, {~0ull, 1}));
  equal(read(DType::kFloat32,
             [](std::string* out) {
               PutFloatField(field::kFloatData, 1.5f, out);
               PutBytesField(field::kFloatData, "\0\0\0\xc0"sv, out);  // packed: -2
             }),
        HostTensor::Of<float>({2}, {1.5f, -2.0f}));
  equal(read(DType::kFloat64,
             [](std::string* out) {
               PutBytesField(field::kDoubleData, "\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\xc0"sv, out);
             }),
        HostTensor::Of<double>({2}, {1.0, -2.0}));
}

TEST(Tensor, Refuses) {
  const auto file = [](int64_t dim, uint64_t type, auto... values) {
    std::string out;
    PutVarintField(field::kDims, dim, &out);
    PutVarintField(field::kDataType, type, &out);
    (PutVarintField(field::kInt32Data, values, &out), ...);
    return out;
  };
  EXPECT_TRUE(ReadTensorFile(file(2, 6, 1, 2)).ok());
  EXPECT_FALSE(ReadTensorFile(file(2, 6, 1)).ok());
  EXPECT_FALSE(ReadTensorFile(file(2, 6, 1, 2, 3)).ok());
  EXPECT_FALSE(ReadTensorFile(file(-1, 6)).ok());
  EXPECT_FALSE(ReadTensorFile(file(int64_t{1} << 62, 6)).ok());
  EXPECT_FALSE(ReadTensorFile(file(2, 9, 1, 2)).ok()) << "2 is no bool";
  EXPECT_EQ(ReadTensorFile(file(0, 14)).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReadTensorFile(file(0, 0)).status().code(), absl::StatusCode::kUnimplemented);
  std::string external = file(0, 6);
  PutVarintField(field::kDataLocation, 1, &external);
  EXPECT_THAT(ReadTensorFile(external).status().ToString(), HasSubstr("another file"));
}

TEST(Tensor, RoundTripsEveryType) {
  for (const DTypeInfo& row : AllDTypes().subspan(1)) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 0}, Shape{2, 3}}) {
      HostTensor tensor{row.dtype, shape, {}};
      tensor.bytes.assign(BytesOf(row.dtype, NumElements(shape)), '\1');
      const auto file = WriteTensorFile(tensor, "x");
      ASSERT_TRUE(file.ok()) << file.status();
      const auto back = ReadTensorFile(*file);
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_EQ(*back, tensor);
    }
  }
}

TEST(Model, Mnist) {
  const std::string file = LoadText("mnist_8/model.onnx");
  const auto model = ParseModel(file);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->opset, 8);
  std::vector<std::string> ops;
  for (const Node& node : model->nodes) ops.emplace_back(node.op_type);
  EXPECT_THAT(ops, ElementsAre("Reshape", "Conv", "Add", "Relu", "MaxPool", "Conv", "Add", "Relu",
                               "MaxPool", "Reshape", "MatMul", "Add"));
  ASSERT_FALSE(model->inputs.empty());
  ASSERT_EQ(model->outputs.size(), 1u);
  EXPECT_EQ(model->outputs[0].shape.back().value, 10);
  for (const TensorProto& t : model->initializers) {
    EXPECT_TRUE(ToHostTensor(t).ok()) << t.name << ToHostTensor(t).status();
  }
}

TEST(Model, TestData) {
  const auto input = ReadTensorFile(LoadText("mnist_8/test_data_set_0/input_0.pb"));
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_EQ(input->dtype, DType::kFloat32);
  EXPECT_THAT(input->shape, ElementsAre(1, 1, 28, 28));
}

// A forest of 500 trees has more numbers than any graph has nodes.
TEST(Model, AttributesMayHaveMillionsOfNumbers) {
  const std::vector<int64_t> some(1'200'000, 1), many((1 << 24) + 1, 1);
  const auto parse = [](const std::vector<int64_t>& numbers) {
    const std::string file =
        test::ModelWriter().Node("Constant", {}, {"y"}, {{"value_ints", numbers}}).File(13);
    const auto model = ParseModel(file);
    if (model.ok()) EXPECT_EQ(model->nodes.at(0).attributes.at(0).ints, numbers);
    return model.status();
  };
  EXPECT_TRUE(parse(some).ok()) << parse(some);
  EXPECT_TRUE(absl::IsResourceExhausted(parse(many))) << parse(many);
}

TEST(Model, SurvivesDamage) {
  const std::string file = LoadText("mnist_8/model.onnx");
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bad = file;
    if (round % 2 == 0) bad.resize(random() % bad.size());
    for (int i = 0; i < 8 && !bad.empty(); ++i) {
      bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    }
    const auto model = ParseModel(bad);
    if (!model.ok()) continue;
    ++accepted;
    for (const TensorProto& t : model->initializers) {
      const auto tensor = ToHostTensor(t);
      if (tensor.ok()) {
        EXPECT_TRUE(CheckHostTensor(*tensor).ok());
      }
    }
  }
  EXPECT_GT(accepted, 0) << "every damage broke the wire; nothing behind it was tested";
}

}  // namespace
}  // namespace telegrad::onnx
