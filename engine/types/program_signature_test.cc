// Signatures as text and as bytes, and the place of parameters.
#include "engine/types/program_signature.h"

#include "gtest/gtest.h"

namespace telegrad {
namespace {

using enum ParameterKind;

TEST(ProgramSignature, ParametersComeBackFromTheirText) {
  const std::vector<ParameterKind> all = {kBuffer, kScalar32, kScalar64, kBegin, kTensorMap};
  EXPECT_EQ(ParametersText(all), "buffer,scalar32,scalar64,begin,tensor_map");
  EXPECT_EQ(ParametersFromText(ParametersText(all)), all);
  EXPECT_EQ(ParametersFromText(""), std::vector<ParameterKind>());
  for (const char* wrong : {"buffer,", ",buffer", "buffers", "buffer begin", " buffer"}) {
    EXPECT_EQ(ParametersFromText(wrong), std::nullopt) << wrong;
  }
}

TEST(ProgramSignature, ParametersAreAligned) {
  EXPECT_EQ(ParametersBytes({}), 0);
  EXPECT_EQ(ParametersBytes(std::vector{kScalar32, kScalar32, kBuffer}), 16);
  EXPECT_EQ(ParametersBytes(std::vector{kScalar32, kBuffer, kScalar32}), 20);
  EXPECT_EQ(ParametersBytes(KernelParameters(3)), 32);
  EXPECT_EQ(ParametersBytes(std::vector{kTensorMap}), 128);
  EXPECT_EQ(ParametersBytes(std::vector{kBuffer, kTensorMap, kScalar32}), 196);
  EXPECT_EQ(ParametersBytes(std::vector{kTensorMap, kScalar32, kTensorMap}), 320);
}

TEST(ProgramSignature, SaysWhatItTakes) {
  const ProgramSignature signature{.parameters = {kBuffer, kTensorMap}};
  EXPECT_TRUE(signature.Takes(kTensorMap));
  EXPECT_FALSE(signature.Takes(kScalar32));
}

TEST(ProgramSignature, ComesBackFromItsBytes) {
  const ProgramSignature signature{.parameters = {kBuffer, kTensorMap, kScalar32, kBegin},
                                   .group = {8, 4, 2},
                                   .local_bytes = 640};
  ByteWriter out;
  Write(signature, &out);
  const std::string bytes = out.Take();
  ByteReader in(bytes);
  EXPECT_EQ(ReadSignature(&in), signature);
  EXPECT_TRUE(in.Done());
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    ByteReader short_of(std::string_view(bytes).substr(0, cut));
    ReadSignature(&short_of);
    EXPECT_FALSE(short_of.Done()) << cut;
  }
}

}  // namespace
}  // namespace telegrad
