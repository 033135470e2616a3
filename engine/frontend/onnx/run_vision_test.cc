// Operators of vision whose sizes each run decides, compared with plain loops.
#include <algorithm>
#include <limits>
#include <random>

#include "engine/frontend/onnx/test_run_sizes.h"

namespace telegrad::onnx {
namespace {

using test::Import;
using test::Ints;
using test::ModelWriter;
using test::Results;
using ::testing::ElementsAre;

struct Box {
  float y1, x1, y2, x2;
};

float OverlapOf(const Box& a, const Box& b) {
  const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (height <= 0 || width <= 0) return 0;
  const float both = height * width;
  return both / ((a.y2 - a.y1) * (a.x2 - a.x1) + (b.y2 - b.y1) * (b.x2 - b.x1) - both);
}

struct Suppressing {
  int64_t most;
  float overlap, least;
};

// Boxes with scores, some of which several boxes have, and two of which are infinite.
struct Scene {
  static constexpr int64_t kBatch = 2, kClasses = 2, kBoxes = 540;

  explicit Scene(std::mt19937_64* random) {
    std::uniform_real_distribution<float> uniform(0, 1);
    for (int64_t i = 0; i < kBatch * kBoxes; ++i) {
      const float y = 3 * uniform(*random), x = 3 * uniform(*random);
      boxes.push_back({y, x, y + 0.2f + uniform(*random), x + 0.2f + uniform(*random)});
      corners.insert(corners.end(),
                     {boxes.back().y1, boxes.back().x1, boxes.back().y2, boxes.back().x2});
    }
    for (int64_t i = 0; i < kBatch * kClasses * kBoxes; ++i) {
      scores.push_back(i % 5 == 0 ? 0.75f : uniform(*random));
    }
    scores[3] = std::numeric_limits<float>::infinity();
    scores[kBoxes + 9] = -std::numeric_limits<float>::infinity();
  }

  // By plain loops: batch, class and box of each that is taken.
  Ints Taken(const Suppressing& by) const {
    Ints want;
    for (int64_t row = 0; row < kBatch * kClasses; ++row) {
      std::vector<int64_t> order(kBoxes), taken;
      for (int64_t i = 0; i < kBoxes; ++i) order[i] = i;
      const float* of = scores.data() + row * kBoxes;
      std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return of[a] > of[b]; });
      const Box* mine = boxes.data() + row / kClasses * kBoxes;
      for (const int64_t i : order) {
        if (of[i] <= by.least || static_cast<int64_t>(taken.size()) == by.most) continue;
        const auto covers = [&](int64_t j) { return OverlapOf(mine[i], mine[j]) > by.overlap; };
        if (std::ranges::any_of(taken, covers)) continue;
        taken.push_back(i);
        want.insert(want.end(), {row / kClasses, row % kClasses, i});
      }
    }
    return want;
  }

  // Of how many rows fewer than `most` of the best `count` boxes are taken.
  int64_t OpenRows(const Suppressing& by, int64_t count) const {
    const Ints taken = Taken(by);
    int64_t open = 0;
    for (int64_t row = 0; row < kBatch * kClasses; ++row) {
      const float* of = scores.data() + row * kBoxes;
      std::vector<float> sorted(of, of + kBoxes);
      std::ranges::sort(sorted, std::greater());
      int64_t best = 0;
      for (size_t i = 0; i < taken.size(); i += 3) {
        const bool mine = taken[i] * kClasses + taken[i + 1] == row;
        best += mine && of[taken[i + 2]] > sorted[static_cast<size_t>(count)] ? 1 : 0;
      }
      open += best < by.most ? 1 : 0;
    }
    return open;
  }

  std::vector<float> corners, scores;
  std::vector<Box> boxes;
};

// `most` is an input of the model where it is below 0, else it has that value.
ModelWriter Suppression(int64_t most) {
  ModelWriter model;
  model.Input("boxes", DType::kFloat32, {Scene::kBatch, Scene::kBoxes, 4})
      .Input("scores", DType::kFloat32, {Scene::kBatch, Scene::kClasses, Scene::kBoxes});
  if (most < 0) model.Input("most", DType::kInt64, {1});
  if (most >= 0) model.Initializer("most", HostTensor::Of<int64_t>({1}, {most}));
  return model.Input("overlap", DType::kFloat32, {1})
      .Input("least", DType::kFloat32, {1})
      .Node("NonMaxSuppression", {"boxes", "scores", "most", "overlap", "least"}, {"y"})
      .Output("y");
}

void ExpectTaken(const Scene& scene, const Suppressing& by, bool fixed) {
  const OnnxPlan onnx = Import(Suppression(fixed ? by.most : -1).File(13));
  std::vector<HostTensor> inputs = {
      HostTensor::Of<float>({Scene::kBatch, Scene::kBoxes, 4}, scene.corners),
      HostTensor::Of<float>({Scene::kBatch, Scene::kClasses, Scene::kBoxes}, scene.scores)};
  if (!fixed) inputs.push_back(HostTensor::Of<int64_t>({1}, {by.most}));
  inputs.push_back(HostTensor::Of<float>({1}, {by.overlap}));
  inputs.push_back(HostTensor::Of<float>({1}, {by.least}));
  const Ints want = scene.Taken(by);
  const auto got = Results(onnx, inputs);
  SCOPED_TRACE(want.size());
  EXPECT_THAT(got[0].shape, ElementsAre(want.size() / 3, 3));
  EXPECT_EQ(got[0].Values<int64_t>(), want);
}

// 9 blocks of boxes, so that those of one suppress those of later ones, and half of the blocks
// goes on without the other half.
TEST(RunSizesOfVision, NonMaxSuppressionTakesTheBestBoxesOfEachClass) {
  std::mt19937_64 random(4);
  for (const Suppressing& by : std::vector<Suppressing>{{Scene::kBoxes, 0.3f, 0.2f},
                                                        {5, 0.5f, 0.f},
                                                        {Scene::kBoxes, 0.99f, 0.9f},
                                                        {0, 0.5f, 0.f},
                                                        {7, 0.1f, 2.f},
                                                        {Scene::kBoxes, -1.f, 0.5f}}) {
    ExpectTaken(Scene(&random), by, false);
  }
}

// Few of many are picked one by one.
TEST(RunSizesOfVision, NonMaxSuppressionPicksTheBestBoxesOneByOne) {
  std::mt19937_64 random(5);
  for (const Suppressing& by : std::vector<Suppressing>{{0, 0.5f, 0.f},
                                                        {1, 0.5f, 0.f},
                                                        {9, 0.5f, 0.f},
                                                        {70, 0.3f, 0.2f},
                                                        {20, 0.1f, -1.f},
                                                        {7, 0.1f, 2.f},
                                                        {12, 0.1f, 0.98f}}) {
    ExpectTaken(Scene(&random), by, true);
  }
}

// The 256 best boxes are looked at first: they suffice for all rows, for some, and for none.
TEST(RunSizesOfVision, NonMaxSuppressionGoesOnWhereTheBestBoxesDoNotSuffice) {
  constexpr int64_t kRows = Scene::kBatch * Scene::kClasses;
  std::mt19937_64 random(6);
  std::vector<bool> done(3, false);
  for (int i = 0; i < 100 && std::ranges::count(done, true) < 3; ++i) {
    const Scene scene(&random);
    const Suppressing by{40, 0.05f + 0.005f * static_cast<float>(i), -1.f};
    const int64_t open = scene.OpenRows(by, 256);
    const size_t kind = open == 0 ? 0 : open < kRows ? 1 : 2;
    if (done[kind]) continue;
    done[kind] = true;
    SCOPED_TRACE(open);
    ExpectTaken(scene, by, true);
  }
  EXPECT_EQ(std::ranges::count(done, true), 3);
}

// Rows and columns are doubled, by scales and by sizes that the batch is part of; the batch is not.
TEST(RunSizesOfVision, ImagesAreResizedInBatchesThatEachRunChooses) {
  const std::string file =
      ModelWriter()
          .Input("x", DType::kFloat32, {-1, 2, 2, 3})
          .Initializer("scales", HostTensor::Of<float>({4}, {1, 1, 2, 2}))
          .Initializer("first", HostTensor::Of<int64_t>({1}, {0}))
          .Initializer("second", HostTensor::Of<int64_t>({1}, {2}))
          .Initializer("spatial", HostTensor::Of<int64_t>({2}, {4, 6}))
          .Node("Shape", {"x"}, {"shape"})
          .Node("Slice", {"shape", "first", "second"}, {"kept"})
          .Node("Concat", {"kept", "spatial"}, {"sizes"}, {{"axis", int64_t{0}}})
          .Node("Resize", {"x", "", "scales"}, {"near"},
                {{"coordinate_transformation_mode", std::string("asymmetric")},
                 {"nearest_mode", std::string("floor")}})
          .Node("Resize", {"x", "", "", "sizes"}, {"linear"}, {{"mode", std::string("linear")}})
          .Output("near")
          .Output("linear")
          .File(13);
  ImportOptions options;
  options.ranges["N"] = {1, 3};
  const OnnxPlan onnx = Import(file, options);
  ASSERT_EQ(onnx.inputs.size(), 1u);
  std::mt19937_64 random(8);
  const auto mixed = [](float a, float b) { return 0.75f * a + 0.25f * b; };
  for (int64_t n = 1; n <= 3; ++n) {
    SCOPED_TRACE(n);
    const HostTensor x = test::Random({n, 2, 2, 3}, &random);
    const auto got = test::Run(onnx, {x}, {{"N", n}});
    ASSERT_TRUE(got.ok()) << got.status();
    for (const HostTensor& y : *got) ASSERT_THAT(y.shape, ElementsAre(n, 2, 4, 6));
    const std::vector<float> pixels = x.Values<float>(), near = (*got)[0].Values<float>(),
                             linear = (*got)[1].Values<float>();
    for (int64_t i = 0; i < 2 * n; ++i) {
      const float* image = pixels.data() + 6 * i;
      for (int64_t row = 0; row < 4; ++row) {
        for (int64_t column = 0; column < 6; ++column) {
          const int64_t at = 24 * i + 6 * row + column;
          EXPECT_EQ(near[at], image[row / 2 * 3 + column / 2]);
          // Each is a quarter of a pixel from the one that it lies in, towards the next.
          const int64_t r = row / 2, q = std::clamp<int64_t>(row % 2 == 0 ? r - 1 : r + 1, 0, 1);
          const int64_t c = column / 2,
                        d = std::clamp<int64_t>(column % 2 == 0 ? c - 1 : c + 1, 0, 2);
          const float want = mixed(mixed(image[3 * r + c], image[3 * r + d]),
                                   mixed(image[3 * q + c], image[3 * q + d]));
          EXPECT_NEAR(linear[at], want, 1e-6);
        }
      }
    }
  }
}

// Regions of which a run takes some, as detection networks do: pooled, upsampled, and written where
// an index says.
TEST(RunSizesOfVision, PoolsAndWritesAsManyRegionsAsThereAre) {
  const auto pooled = [](ModelWriter writer) {
    return writer
        .Node("RoiAlign", {"x", "rois", "images"}, {"pooled"},
              {{"output_height", int64_t{2}},
               {"output_width", int64_t{2}},
               {"sampling_ratio", int64_t{2}}})
        .Node("RoiAlign", {"x", "rois", "images"}, {"largest"},
              {{"output_height", int64_t{3}}, {"output_width", int64_t{1}}, {"mode", "max"}})
        .Node("ConvTranspose", {"pooled", "w"}, {"wide"})
        .Output("pooled")
        .Output("largest")
        .Output("wide");
  };
  const OnnxPlan onnx =
      Import(pooled(ModelWriter()
                        .Input("x", DType::kFloat32, {2, 2, 6, 5})
                        .Input("w", DType::kFloat32, {2, 3, 2, 2})
                        .Input("all", DType::kFloat32, {4, 4})
                        .Input("of", DType::kInt64, {4})
                        .Input("c", DType::kBool, {4})
                        .Initializer("zero", HostTensor::Of<int64_t>({}, {0}))
                        .Initializer("one", HostTensor::Of<int64_t>({}, {1}))
                        .Initializer("columns", HostTensor::Of<int64_t>({1}, {1}))
                        .Initializer("like", HostTensor::Of<int64_t>({2}, {1, 4}))
                        .Node("Compress", {"all", "c"}, {"rois"}, {{"axis", int64_t{0}}})
                        .Node("Compress", {"of", "c"}, {"images"}, {{"axis", int64_t{0}}})
                        .Node("Shape", {"rois"}, {"shape"})
                        .Node("Gather", {"shape", "zero"}, {"n"})
                        .Node("Range", {"zero", "n", "one"}, {"places"})
                        .Node("Unsqueeze", {"places", "columns"}, {"column"})
                        .Node("Expand", {"column", "like"}, {"index"})
                        .Node("Concat", {"rois", "all"}, {"both"}, {{"axis", int64_t{0}}})
                        .Node("Add", {"rois", "rois"}, {"twice"})
                        .Node("ScatterElements", {"both", "index", "twice"}, {"written"},
                              {{"axis", int64_t{0}}}))
                 .Output("written")
                 .File(16));
  std::mt19937_64 random(9);
  const HostTensor x = test::Random({2, 2, 6, 5}, &random), w = test::Random({2, 3, 2, 2}, &random);
  const std::vector<float> rois = {0, 0, 3, 4, 1, 1, 4, 5, -1, 2, 6, 5, 2, 0, 4, 1};
  const Ints of = {0, 1, 1, 0};
  for (const std::vector<int>& mask :
       std::vector<std::vector<int>>{{1, 1, 1, 1}, {0, 1, 0, 1}, {0, 0, 1, 0}, {0, 0, 0, 0}}) {
    std::vector<float> taken, written;
    Ints images;
    for (size_t i = 0; i < 4; ++i) {
      if (mask[i] == 0) continue;
      images.push_back(of[i]);
      for (size_t k = 0; k < 4; ++k) taken.push_back(rois[4 * i + k]);
    }
    for (const float v : taken) written.push_back(2 * v);
    written.insert(written.end(), rois.begin(), rois.end());
    const auto n = static_cast<int64_t>(images.size());
    SCOPED_TRACE(n);
    const auto got = Results(onnx, {x, w, HostTensor::Of<float>({4, 4}, rois),
                                    HostTensor::Of<int64_t>({4}, of), Mask(mask)});
    EXPECT_THAT(got[3].shape, ElementsAre(n + 4, 4));
    EXPECT_EQ(got[3].Values<float>(), written);
    EXPECT_THAT(got[0].shape, ElementsAre(n, 2, 2, 2));
    EXPECT_THAT(got[1].shape, ElementsAre(n, 2, 3, 1));
    EXPECT_THAT(got[2].shape, ElementsAre(n, 3, 3, 3));
    if (n == 0) continue;
    // What a model of just these regions computes.
    const OnnxPlan fixed = Import(pooled(ModelWriter()
                                             .Input("x", DType::kFloat32, {2, 2, 6, 5})
                                             .Input("w", DType::kFloat32, {2, 3, 2, 2})
                                             .Input("rois", DType::kFloat32, {n, 4})
                                             .Input("images", DType::kInt64, {n}))
                                      .File(16));
    const auto want = Results(
        fixed, {x, w, HostTensor::Of<float>({n, 4}, taken), HostTensor::Of<int64_t>({n}, images)});
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(got[i], want[i]) << i;
  }
}

}  // namespace
}  // namespace telegrad::onnx
