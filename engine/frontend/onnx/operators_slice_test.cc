// Slices, splits, tiles and triangles against NumPy's meaning, spelled as loops or numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/onnx/test_node.h"

namespace telegrad::onnx {
namespace {

using test::Expect;
using test::Floats;
using test::Ints;
using test::OneNode;

HostTensor List(Ints values) {
  const auto n = static_cast<int64_t>(values.size());
  return HostTensor::Of<int64_t>({n}, values);
}

HostTensor Counting(const Shape& shape) {
  std::vector<float> values(NumElements(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return HostTensor::Of<float>(shape, values);
}

// What Python's range(n)[start:stop:step] lists, from its definition: the numbers are walked one by
// one.
std::vector<float> PythonSlice(int64_t n, int64_t start, int64_t stop, int64_t step) {
  const auto from_end = [n](int64_t at) { return at < 0 ? at + n : at; };
  start = from_end(start);
  stop = from_end(stop);
  if (step > 0) start = std::max<int64_t>(start, 0);
  if (step < 0) start = std::min(start, n - 1);
  if (step < 0) stop = std::max<int64_t>(stop, -1);
  std::vector<float> out;
  for (int64_t at = start; step > 0 ? at < std::min(stop, n) : at > stop; at += step) {
    if (at >= 0) out.push_back(static_cast<float>(at));
  }
  return out;
}

TEST(Slice, EveryStartStopAndStepOfShortLists) {
  const std::vector<bool> fixed = {false, true, true, true, true};
  for (const int64_t n : {1, 5}) {
    for (int64_t start = -n - 2; start <= n + 2; ++start) {
      for (int64_t stop = -n - 2; stop <= n + 2; ++stop) {
        for (const int64_t step : {1, 2, 3, 9, -1, -2, -9}) {
          // Unlike Python, ONNX clamps the start of a backward slice to an element.
          const int64_t first = step < 0 ? std::max(start, -n) : start;
          const std::vector<float> want = PythonSlice(n, first, stop, step);
          SCOPED_TRACE(StrCat(n, "[", start, ":", stop, ":", step, "]"));
          Expect(OneNode{"Slice", 13, {}, fixed}(
                     {Counting({n}), List({start}), List({stop}), List({0}), List({step})}),
                 HostTensor::Of<float>({static_cast<int64_t>(want.size())}, want));
        }
      }
    }
  }
}

TEST(Slice, AxesAndOpsets) {
  const HostTensor x = Counting({2, 3, 4});
  const std::vector<bool> fixed = {false, true, true, true, true};
  Expect(OneNode{"Slice", 9, {{"starts", Ints{1, 0}}, {"ends", Ints{9, -2}}, {"axes", Ints{2, 1}}}}(
             {x}),
         Floats({2, 1, 3}, {1, 2, 3, 13, 14, 15}));
  Expect(OneNode{"Slice", 9, {{"starts", Ints{1}}, {"ends", Ints{2}}}}({x}),
         Floats({1, 3, 4}, {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}));
  Expect(OneNode{"Slice", 13, {}, fixed}(
             {x, List({INT64_MAX, 2}), List({INT64_MIN, 3}), List({-1, 1}), List({-3, INT64_MAX})}),
         Floats({2, 1, 2}, {11, 8, 23, 20}));
  const auto code = [&](const HostTensor& axes, const HostTensor& steps) {
    return OneNode{"Slice", 13, {}, fixed}({x, List({0, 0}), List({1, 1}), axes, steps})
        .status()
        .code();
  };
  EXPECT_EQ(code(List({1, 2}), List({1, 0})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(List({1, -2}), List({1, 1})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(List({1, 3}), List({1, 1})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(List({1}), List({1, 1})), absl::StatusCode::kInvalidArgument);
  // Steps that only the run knows. Starts and ends may be.
  EXPECT_EQ((OneNode{"Slice", 13, {}, {false, true, true, true, false}}(
                 {x, List({0}), List({1}), List({0}), List({1})}))
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(OneNode{"Slice"}({x, List({0}), List({1})}).ok());
}

TEST(Split, SizesGivenEqualAndUneven) {
  const HostTensor x = Counting({2, 5});
  const auto expect = [&](const OneNode& node, const std::vector<HostTensor>& inputs,
                          const std::vector<HostTensor>& want) {
    test::Names names;
    for (size_t i = 0; i < want.size(); ++i) names.push_back(StrCat("out", i));
    const auto got = node.Results(inputs, names);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < want.size(); ++i) Expect((*got)[i], want[i]);
  };
  const HostTensor front = Floats({2, 2}, {0, 1, 5, 6}), back = Floats({2, 3}, {2, 3, 4, 7, 8, 9});
  expect({"Split", 11, {{"axis", int64_t{1}}, {"split", Ints{2, 3}}}}, {x}, {front, back});
  expect({"Split", 13, {{"axis", int64_t{-1}}}, {false, true}}, {x, List({2, 3})}, {front, back});
  expect({"Split", 13}, {x}, {Floats({1, 5}, {0, 1, 2, 3, 4}), Floats({1, 5}, {5, 6, 7, 8, 9})});
  expect({"Split", 18, {{"axis", int64_t{1}}, {"num_outputs", int64_t{2}}}}, {x},
         {Floats({2, 3}, {0, 1, 2, 5, 6, 7}), Floats({2, 2}, {3, 4, 8, 9})});
  const auto code = [&](const OneNode& node, const std::vector<HostTensor>& inputs) {
    return node.Results(inputs, {"a", "b"}).status().code();
  };
  EXPECT_EQ(code({"Split", 13, {{"axis", int64_t{1}}}}, {x}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"Split", 13, {{"axis", int64_t{1}}}, {false, true}}, {x, List({2, 4})}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"Split", 13, {{"axis", int64_t{1}}}, {false, true}}, {x, List({2, 2})}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({"Split", 13, {{"axis", int64_t{1}}}, {false, true}}, {x, List({6, -1})}),
            absl::StatusCode::kInvalidArgument);
}

TEST(Tile, RepeatsAxes) {
  const std::vector<bool> fixed = {false, true};
  Expect(OneNode{"Tile", 13, {}, fixed}({Floats({2, 1}, {1, 2}), List({2, 3})}),
         Floats({4, 3}, {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}));
  Expect(OneNode{"Tile", 13, {}, fixed}({Floats({2}, {1, 2}), List({0})}), Floats({0}, {}));
  EXPECT_EQ(OneNode({"Tile", 13, {}, fixed})({Floats({2}, {1, 2}), List({-1})}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Trilu, EveryDiagonal) {
  const HostTensor x = Counting({2, 3, 4});
  for (int64_t k = -4; k <= 5; ++k) {
    for (const bool upper : {true, false}) {
      std::vector<float> want = x.Values<float>();
      for (int64_t i = 0; i < 24; ++i) {
        const int64_t row = i / 4 % 3, column = i % 4;
        if (upper ? column - row < k : column - row > k) want[i] = 0;
      }
      SCOPED_TRACE(StrCat(upper ? "upper " : "lower ", k));
      Expect(
          OneNode{"Trilu", 14, {{"upper", int64_t{upper}}}}({x, HostTensor::Of<int64_t>({}, {k})}),
          HostTensor::Of<float>({2, 3, 4}, want));
    }
  }
  const HostTensor mask{DType::kBool, {2, 2}, std::string(4, '\1')};
  Expect(OneNode{"Trilu", 14}({mask}), {DType::kBool, {2, 2}, std::string("\1\1\0\1", 4)});
}

// Beyond the axis a wrapped one repeats and a reflected one goes to and fro, as NumPy's pad does.
TEST(Pad, MoreThanTheAxisHas) {
  const auto pad = [](const std::string& mode, const HostTensor& x, const Ints& pads) {
    return OneNode{"Pad", 19, {{"mode", mode}}, {false, true}}(
        {x, HostTensor::Of<int64_t>({static_cast<int64_t>(pads.size())}, pads)});
  };
  const HostTensor x = Floats({3}, {1, 2, 3});
  Expect(pad("wrap", x, {4, 5}), Floats({12}, {3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2}));
  Expect(pad("reflect", x, {3, 5}), Floats({11}, {2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2}));
  Expect(pad("reflect", Floats({1}, {7}), {2, 1}), Floats({4}, {7, 7, 7, 7}));
  Expect(pad("wrap", x, {-1, 4}), Floats({6}, {2, 3, 1, 2, 3, 1}));
}

// An axis that is made of parts of parts takes several times as long.
TEST(Pad, ReflectedAxesAreStoredOneByOne) {
  const auto onnx =
      ImportOnnx(test::ModelWriter()
                     .Input("x", DType::kFloat32, {1, 2, 3})
                     .Initializer("pads", HostTensor::Of<int64_t>({6}, {0, 1, 1, 0, 0, 2}))
                     .Node("Pad", {"x", "pads"}, {"y"}, {{"mode", std::string("reflect")}})
                     .Output("y")
                     .File(13));
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  int stored = 0;
  const UOp root = onnx->plan.graph.root();
  for (const uint32_t id : PostOrder(root)) stored += root.graph()->at(id).is(Op::kContiguous);
  EXPECT_EQ(stored, 1);
  const auto got = test::Run(*onnx, {HostTensor::Of<float>({1, 2, 3}, {1, 2, 3, 4, 5, 6})});
  ASSERT_TRUE(got.ok()) << got.status();
  test::Expect((*got)[0], HostTensor::Of<float>({1, 3, 6}, {5, 4, 5, 6, 5, 4,  //
                                                            2, 1, 2, 3, 2, 1,  //
                                                            5, 4, 5, 6, 5, 4}));
}

}  // namespace
}  // namespace telegrad::onnx
