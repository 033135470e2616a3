// Dimensions that a model names and each run decides: one import for all sizes equals, for each, an
// import for that size alone.
#include <random>

#include "engine/frontend/onnx/test_run_sizes.h"

namespace telegrad::onnx {
namespace {

using test::Attributes;
using test::Import;
using test::Ints;
using test::ModelWriter;

HostTensor RandomOf(DType dtype, const Shape& shape, std::mt19937_64* random) {
  if (dtype == DType::kFloat32) return test::Random(shape, random);
  std::vector<int64_t> values(static_cast<size_t>(NumElements(shape)));
  for (int64_t& v : values) v = static_cast<int64_t>((*random)() % 8);
  return HostTensor::Of<int64_t>(shape, values);
}

// "N" is 1 to `most`.
void ExpectLikeFixedSizes(const std::string& file, int64_t most) {
  ImportOptions options;
  options.ranges["N"] = {1, most};
  const OnnxPlan all = Import(file, options);
  ASSERT_EQ(all.plan.variables.size(), 1u);
  std::mt19937_64 random(17);
  for (int64_t n = 1; n <= most; ++n) {
    SCOPED_TRACE(n);
    ImportOptions fixed;
    fixed.dims["N"] = n;
    const OnnxPlan one = Import(file, fixed);
    std::vector<HostTensor> inputs;
    for (const OnnxValue& input : one.inputs) {
      const Slot& slot = one.plan.slots[input.slot];
      inputs.push_back(RandomOf(slot.dtype, slot.shape, &random));
    }
    const auto want = test::Run(one, inputs), got = test::Run(all, inputs, {{"N", n}});
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->size(), want->size());
    for (size_t i = 0; i < want->size(); ++i) test::Expect((*got)[i], (*want)[i]);
  }
}

// As transformers are exported: as many rows of a table of positions as a text has tokens.
TEST(RunDims, PartsOfATableHaveTheSizeOfTheRun) {
  ExpectLikeFixedSizes(
      ModelWriter()
          .Input("ids", DType::kInt64, {2, -1})
          .Initializer("positions", HostTensor::Of<int64_t>({1, 6}, {5, 4, 3, 2, 1, 0}))
          .Initializer("zero", HostTensor::Of<int64_t>({1}, {0}))
          .Initializer("one", HostTensor::Of<int64_t>({1}, {1}))
          .Initializer("first", HostTensor::Of<int64_t>({}, {1}))
          .Node("Shape", {"ids"}, {"shape"})
          .Node("Gather", {"shape", "first"}, {"length"})
          .Node("Unsqueeze", {"length", "zero"}, {"end"})
          .Node("Slice", {"positions", "zero", "end", "one"}, {"part"})
          .Node("Add", {"ids", "part"}, {"y"})
          .Output("y")
          .File(13),
      6);
}

// As PyTorch's newer exporter writes a size: Shape of one axis, and Squeeze without axes.
TEST(RunDims, ASqueezedSizeIsOne) {
  ExpectLikeFixedSizes(ModelWriter()
                           .Input("x", DType::kInt64, {2, -1})
                           .Initializer("zero", HostTensor::Of<int64_t>({}, {0}))
                           .Initializer("one", HostTensor::Of<int64_t>({}, {1}))
                           .Node("Shape", {"x"}, {"size"}, {{"start", int64_t{1}}})
                           .Node("Squeeze", {"size"}, {"length"})
                           .Node("Squeeze", {"length"}, {"again"})
                           .Node("Range", {"zero", "again", "one"}, {"positions"})
                           .Node("Add", {"x", "positions"}, {"y"})
                           .Output("y")
                           .File(15),
                       5);
}

TEST(RunDims, RepeatsMayBeSizes) {
  ExpectLikeFixedSizes(ModelWriter()
                           .Input("x", DType::kFloat32, {3, -1})
                           .Initializer("row", HostTensor::Of<float>({1, 2}, {1.5F, -2}))
                           .Initializer("two", HostTensor::Of<int64_t>({1}, {2}))
                           .Node("Shape", {"x"}, {"shape"}, {{"start", int64_t{1}}})
                           .Node("Concat", {"shape", "two"}, {"times"}, {{"axis", int64_t{0}}})
                           .Node("Tile", {"row", "times"}, {"repeated"})
                           .Node("MatMul", {"x", "repeated"}, {"y"})
                           .Node("Concat", {"two", "shape"}, {"other"}, {{"axis", int64_t{0}}})
                           .Node("Tile", {"row", "other"}, {"wide"})
                           .Output("y")
                           .Output("wide")
                           .File(15),
                       4);
}

// [N or 5 steps, 2 or N sequences, 3 inputs] into states of 4.
std::string Recurrent(std::string_view op, int64_t gates, bool steps, Attributes attributes) {
  std::mt19937_64 random(3);
  const bool both = attributes.contains("direction") &&
                    std::get<std::string>(attributes["direction"]) == "bidirectional";
  const int64_t d = both ? 2 : 1;
  attributes["hidden_size"] = int64_t{4};
  test::Names outputs = {"y", "h"};
  if (op == "LSTM") outputs.push_back("c");
  ModelWriter writer;
  writer.Input("x", DType::kFloat32, steps ? Shape{-1, 2, 3} : Shape{5, -1, 3})
      .Input("h0", DType::kFloat32, {d, steps ? 2 : -1, 4})
      .Initializer("w", test::Random({d, gates * 4, 3}, &random))
      .Initializer("r", test::Random({d, gates * 4, 4}, &random))
      .Initializer("b", test::Random({d, gates * 8}, &random))
      .Node(op, {"x", "w", "r", "b", "", "h0"}, outputs, attributes);
  for (const std::string& output : outputs) writer.Output(output);
  return writer.File(14);
}

TEST(RunDims, RecurrencesHaveAsManyStepsAndSequencesAsTheRun) {
  for (const bool steps : {true, false}) {
    SCOPED_TRACE(steps ? "steps" : "sequences");
    ExpectLikeFixedSizes(Recurrent("LSTM", 4, steps, {{"direction", std::string("bidirectional")}}),
                         4);
    ExpectLikeFixedSizes(Recurrent("GRU", 3, steps, {{"direction", std::string("reverse")}}), 4);
    ExpectLikeFixedSizes(Recurrent("RNN", 1, steps, {}), 4);
  }
}

}  // namespace
}  // namespace telegrad::onnx
