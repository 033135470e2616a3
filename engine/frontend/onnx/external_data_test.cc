// ONNX weights in files beside the model: they are read from the model's folder only, and parts
// outside of a file are refused.
#include "engine/frontend/onnx/external_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/base/status.h"
#include "engine/frontend/onnx/test_model.h"

namespace telegrad::onnx {
namespace {

using test::ModelWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

std::string Entry(std::string_view key, std::string_view value) {
  std::string out;
  PutBytesField(field::kEntryKey, key, &out);
  PutBytesField(field::kEntryValue, value, &out);
  return out;
}

// Three floats in a file.
std::string TensorIn(std::string_view location, std::string_view offset = "4",
                     std::string_view length = "12") {
  std::string weight;
  PutVarintField(field::kDims, 3, &weight);
  PutVarintField(field::kDataType, 1, &weight);
  PutBytesField(field::kTensorName, "w", &weight);
  PutBytesField(field::kExternalData, Entry("location", location), &weight);
  PutBytesField(field::kExternalData, Entry("offset", offset), &weight);
  PutBytesField(field::kExternalData, Entry("length", length), &weight);
  PutVarintField(field::kDataLocation, 1, &weight);
  return weight;
}

// y = -w.
std::string ModelWith(std::string_view location, std::string_view offset = "4",
                      std::string_view length = "12") {
  const std::string weight = TensorIn(location, offset, length);
  return ModelWriter().RawInitializer(weight).Node("Neg", {"w"}, {"y"}).Output("y").File(13);
}

class External : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / StrCat("onnx_external_", getpid());
    fs::create_directories(root_ / "model" / "sub");
    const HostTensor data = HostTensor::Of<float>({4}, {9, 1, 2, 3});
    for (const fs::path& path :
         {root_ / "model" / "w.bin", root_ / "model" / "sub" / "w.bin", root_ / "secret.bin"}) {
      std::ofstream(path, std::ios::binary) << data.bytes;
    }
    fs::create_symlink(root_ / "secret.bin", root_ / "model" / "link.bin");
    fs::create_directory_symlink(root_, root_ / "model" / "up");
  }
  void TearDown() override { fs::remove_all(root_); }

  absl::StatusOr<std::vector<float>> Load(const std::string& file) {
    ExternalFiles files((root_ / "model").string());
    ImportOptions options;
    options.external = [&](std::string_view location) { return files.Content(location); };
    TG_ASSIGN_OR_RETURN(const OnnxPlan onnx, ImportOnnx(file, options));
    TG_ASSIGN_OR_RETURN(const auto out, test::Run(onnx, {}));
    return out[0].Values<float>();
  }

  fs::path root_;
};

TEST_F(External, WeightsAreReadFromFilesBesideTheModel) {
  for (const char* location : {"w.bin", "./w.bin", "sub/w.bin", "sub//w.bin"}) {
    const auto got = Load(ModelWith(location));
    ASSERT_TRUE(got.ok()) << location << ": " << got.status();
    EXPECT_THAT(*got, ElementsAre(-1, -2, -3));
  }
}

TEST_F(External, NothingOutsideOfTheFolderIsRead) {
  const std::string absolute = (root_ / "secret.bin").string();
  for (const std::string& location :
       {std::string("../secret.bin"), absolute, std::string("sub/../../secret.bin"),
        std::string("link.bin"), std::string("up/secret.bin"), std::string("sub"),
        std::string("none.bin"), std::string(".")}) {
    const auto got = Load(ModelWith(location));
    EXPECT_FALSE(got.ok()) << location;
    EXPECT_THAT(got.status().ToString(), HasSubstr("'w'"));
  }
}

TEST_F(External, PartsOutsideOfTheFileAreRefused) {
  using Part = std::pair<const char*, const char*>;
  for (const auto& [offset, length] :
       {Part("8", "12"), Part("17", "0"), Part("9223372036854775807", "12"),
        Part("4", "9223372036854775807"), Part("-4", "12"), Part("x", "12"), Part("4", "8")}) {
    const auto got = Load(ModelWith("w.bin", offset, length));
    EXPECT_FALSE(got.ok()) << offset << " " << length;
  }
}

TEST_F(External, WithoutAWayToReadThemTheyAreRefused) {
  const absl::Status status = ImportOnnx(ModelWith("w.bin")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.ToString(), HasSubstr("'w.bin'"));
}

// y = f(), a function of the model whose constant is an attribute with a default: a tensor in a
// file.
TEST_F(External, ADefaultOfAFunctionMayBeInAFile) {
  std::string attribute, reference, constant, function, opset;
  PutBytesField(field::kAttributeName, "k", &attribute);
  PutVarintField(field::kAttributeType, static_cast<uint64_t>(AttributeType::kTensor), &attribute);
  PutBytesField(field::kT, TensorIn("w.bin"), &attribute);
  PutBytesField(field::kAttributeName, "value", &reference);
  PutBytesField(field::kRefAttrName, "k", &reference);
  PutVarintField(field::kAttributeType, static_cast<uint64_t>(AttributeType::kTensor), &reference);
  PutBytesField(field::kNodeOutput, "y", &constant);
  PutBytesField(field::kOpType, "Constant", &constant);
  PutBytesField(field::kNodeAttribute, reference, &constant);
  PutVarintField(field::kOpsetVersion, 13, &opset);
  PutBytesField(field::kFunctionName, "f", &function);
  PutBytesField(field::kFunctionDomain, "my", &function);
  PutBytesField(field::kFunctionOutput, "y", &function);
  PutBytesField(field::kFunctionAttributeProto, attribute, &function);
  PutBytesField(field::kFunctionNode, constant, &function);
  PutBytesField(field::kFunctionOpsetImport, opset, &function);
  std::string file =
      ModelWriter().Node("f", {}, {"k"}, {}, "my").Node("Neg", {"k"}, {"y"}).Output("y").File(13);
  PutBytesField(field::kFunctions, function, &file);
  const auto got = Load(file);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(*got, ElementsAre(-1, -2, -3));
}

// Who made it shorter is somebody else; whoever reads what was there is not killed for that.
TEST_F(External, AFileMayBecomeShorterAfterItWasRead) {
  ExternalFiles files((root_ / "model").string());
  const fs::path path = root_ / "model" / "long.bin";
  std::ofstream(path, std::ios::binary) << std::string(3 << 20, 'x');
  const auto content = files.Content("long.bin");
  ASSERT_TRUE(content.ok()) << content.status();
  fs::resize_file(path, 0);
  EXPECT_EQ(*content, std::string(3 << 20, 'x'));
  EXPECT_EQ(files.Content("long.bin")->data(), content->data()) << "it is read once";
}

}  // namespace
}  // namespace telegrad::onnx
