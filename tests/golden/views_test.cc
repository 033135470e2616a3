// What chains of views leave of index arithmetic. views.txt holds the kernel of every chain of the
// catalogue as text, checked by eye to be minimal; BLESS=1 rewrites it. Each kernel, and those of
// random chains, is compared with its chain at every point.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>

#include "engine/base/files.h"
#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/lowering/lower.h"
#include "tests/golden/view_chain.h"

namespace telegrad {
namespace {

constexpr int64_t kPoints = 4096;

class Chains {
 public:
  Tensor In(const Shape& shape) { return b_.Param(DType::kFloat32, shape, "in"); }
  // Every s-th element of `axis`, from `begin`, as a client without strides says it.
  static Tensor Strided(const Tensor& x, int64_t axis, int64_t stride, int64_t begin = 0) {
    Tensor t = x.Slice(axis, begin, x.dim(axis));
    const int64_t n = (t.dim(axis) + stride - 1) / stride;
    std::vector<int64_t> pads(2 * t.rank(), 0);
    pads[2 * axis + 1] = n * stride - t.dim(axis);
    t = t.Pad(pads);
    Shape split(t.shape().begin(), t.shape().end());
    split[axis] = n;
    split.insert(split.begin() + axis + 1, stride);
    return t.Reshape(split).Slice(axis + 1, 0, 1).Squeeze(axis + 1);
  }
  // s - 1 zeros between neighbours.
  static Tensor Spread(const Tensor& x, int64_t axis, int64_t s) {
    std::vector<int64_t> pads(2 * (x.rank() + 1), 0);
    pads[2 * (axis + 1) + 1] = s - 1;
    Shape joined(x.shape().begin(), x.shape().end());
    joined[axis] *= s;
    return x.Unsqueeze(axis + 1).Pad(pads).Reshape(joined).Slice(axis, 0, joined[axis] - s + 1);
  }
  // Row i moved right by i, as relative attention does it: [n, m] -> [n, n + m - 1].
  static Tensor Skewed(const Tensor& x) {
    const int64_t n = x.dim(0), m = x.dim(1);
    return x.Pad({0, 0, 0, n})
        .Reshape({n * (n + m)})
        .Slice(0, 0, n * (n + m - 1))
        .Reshape({n, n + m - 1});
  }

  Builder b_;
};

struct Case {
  std::string_view name;
  Tensor (*make)(Chains&);
};

constexpr Case kCatalogue[] = {
    {"reshape: merge", [](Chains& c) { return c.In({4, 6}).Reshape({24}); }},
    {"reshape: split", [](Chains& c) { return c.In({24}).Reshape({4, 6}); }},
    {"reshape: regroup", [](Chains& c) { return c.In({4, 6}).Reshape({3, 8}); }},
    {"reshape: regroup in the middle",
     [](Chains& c) { return c.In({5, 4, 6, 7}).Reshape({5, 8, 3, 7}); }},
    {"permute", [](Chains& c) { return c.In({4, 6, 8}).Permute({2, 0, 1}); }},
    {"permute, then merge neighbours that stayed",
     [](Chains& c) { return c.In({4, 6, 8}).Permute({2, 0, 1}).Reshape({8, 24}); }},
    {"permute, then merge neighbours that parted",
     [](Chains& c) { return c.In({4, 6}).Transpose().Reshape({24}); }},
    {"permute, merge and split again",
     [](Chains& c) { return c.In({4, 6}).Transpose().Reshape({24}).Reshape({6, 4}); }},
    {"permute, merge and split elsewhere",
     [](Chains& c) { return c.In({4, 6}).Transpose().Reshape({24}).Reshape({3, 8}); }},
    {"permute, merge, split, permute back",
     [](Chains& c) {
       return c.In({4, 6}).Transpose().Reshape({24}).Reshape({6, 4}).Transpose().Reshape({24});
     }},
    {"pixel shuffle",
     [](Chains& c) {
       return c.In({2, 12, 5, 7})
           .Reshape({2, 3, 2, 2, 5, 7})
           .Permute({0, 1, 4, 2, 5, 3})
           .Reshape({2, 3, 10, 14});
     }},
    {"channel shuffle",
     [](Chains& c) {
       return c.In({2, 6, 5}).Reshape({2, 2, 3, 5}).Permute({0, 2, 1, 3}).Reshape({2, 6, 5});
     }},
    {"patches of an image",
     [](Chains& c) {
       return c.In({3, 8, 12}).Reshape({3, 2, 4, 3, 4}).Permute({1, 3, 0, 2, 4}).Reshape({6, 48});
     }},
    {"heads of attention",
     [](Chains& c) { return c.In({2, 10, 24}).Reshape({2, 10, 4, 6}).Permute({0, 2, 1, 3}); }},
    {"pad", [](Chains& c) { return c.In({8}).Pad({2, 3}); }},
    {"pad, then shrink to what was there",
     [](Chains& c) { return c.In({8}).Pad({2, 3}).Shrink({2, 10}); }},
    {"pad, then shrink within", [](Chains& c) { return c.In({8}).Pad({2, 3}).Shrink({4, 9}); }},
    {"pad, then shrink to one margin",
     [](Chains& c) { return c.In({8}).Pad({2, 3}).Shrink({0, 6}); }},
    {"pad twice", [](Chains& c) { return c.In({8}).Pad({2, 3}).Pad({1, 1}); }},
    {"shrink, then pad", [](Chains& c) { return c.In({8}).Shrink({2, 6}).Pad({2, 2}); }},
    {"pad, then merge", [](Chains& c) { return c.In({4, 6}).Pad({0, 0, 0, 2}).Reshape({32}); }},
    {"pad, merge, split again",
     [](Chains& c) { return c.In({4, 6}).Pad({1, 1, 2, 2}).Reshape({60}).Reshape({6, 10}); }},
    {"pad rows, then merge",
     [](Chains& c) { return c.In({4, 6}).Pad({1, 2, 0, 0}).Reshape({42}); }},
    {"flip", [](Chains& c) { return c.In({8}).Flip({0}); }},
    {"flip twice", [](Chains& c) { return c.In({8}).Flip({0}).Flip({0}); }},
    {"flip, then shrink", [](Chains& c) { return c.In({8}).Flip({0}).Shrink({1, 5}); }},
    {"flip, then pad", [](Chains& c) { return c.In({8}).Flip({0}).Pad({2, 1}); }},
    {"flip both axes, then merge",
     [](Chains& c) { return c.In({4, 6}).Flip({0, 1}).Reshape({24}); }},
    {"flip one axis, then merge", [](Chains& c) { return c.In({4, 6}).Flip({1}).Reshape({24}); }},
    {"flip, then split", [](Chains& c) { return c.In({24}).Flip({0}).Reshape({4, 6}); }},
    {"stride that divides", [](Chains& c) { return Chains::Strided(c.In({24}), 0, 3); }},
    {"stride with a rest", [](Chains& c) { return Chains::Strided(c.In({25}), 0, 3); }},
    {"stride with an offset", [](Chains& c) { return Chains::Strided(c.In({25}), 0, 3, 2); }},
    {"stride backwards", [](Chains& c) { return Chains::Strided(c.In({25}).Flip({0}), 0, 3, 1); }},
    {"stride of two axes",
     [](Chains& c) { return Chains::Strided(Chains::Strided(c.In({9, 10}), 0, 2), 1, 3, 1); }},
    {"stride of a stride",
     [](Chains& c) { return Chains::Strided(Chains::Strided(c.In({50}), 0, 2, 1), 0, 3, 1); }},
    {"expand", [](Chains& c) { return c.In({1, 6}).Expand({4, 6}); }},
    {"expand, then merge: tiles",
     [](Chains& c) { return c.In({1, 6}).Expand({4, 6}).Reshape({24}); }},
    {"expand, then merge: repeats",
     [](Chains& c) { return c.In({6, 1}).Expand({6, 4}).Reshape({24}); }},
    {"tiles in both axes",
     [](Chains& c) { return c.In({1, 3, 1, 5}).Expand({2, 3, 4, 5}).Reshape({6, 20}); }},
    {"upsample by repeating",
     [](Chains& c) {
       return c.In({3, 4}).Reshape({3, 1, 4, 1}).Expand({3, 2, 4, 2}).Reshape({6, 8});
     }},
    {"upsample, then every second again",
     [](Chains& c) { return Chains::Strided(c.In({7, 1}).Expand({7, 2}).Reshape({14}), 0, 2); }},
    {"diagonal",
     [](Chains& c) {
       return c.In({5, 5}).Reshape({25}).Pad({0, 5}).Reshape({5, 6}).Slice(1, 0, 1).Reshape({5});
     }},
    {"skew", [](Chains& c) { return Chains::Skewed(c.In({4, 5})); }},
    {"windows", [](Chains& c) { return c.In({10}).Windows({3}); }},
    {"windows, padded", [](Chains& c) { return c.In({10}).Windows({3}, {.pads = {1}}); }},
    {"windows, stride 2", [](Chains& c) { return c.In({11}).Windows({3}, {.stride = {2}}); }},
    {"windows, dilation 2", [](Chains& c) { return c.In({11}).Windows({3}, {.dilation = {2}}); }},
    {"windows, stride 2, dilation 3, padded",
     [](Chains& c) {
       return c.In({20}).Windows({3}, {.stride = {2}, .dilation = {3}, .pads = {4}});
     }},
    {"windows that leave gaps", [](Chains& c) { return c.In({20}).Windows({2}, {.stride = {5}}); }},
    {"windows of an image, padded",
     [](Chains& c) { return c.In({2, 6, 7}).Windows({3, 3}, {.pads = {1}}); }},
    {"im2col: windows as rows of a matrix",
     [](Chains& c) {
       return c.In({3, 6, 6})
           .Windows({3, 3}, {.pads = {1}})
           .Permute({1, 2, 0, 3, 4})
           .Reshape({36, 27});
     }},
    {"im2col, stride 2",
     [](Chains& c) {
       return c.In({3, 9, 9})
           .Windows({3, 3}, {.stride = {2}})
           .Permute({1, 2, 0, 3, 4})
           .Reshape({16, 27});
     }},
    {"windows of flipped data", [](Chains& c) { return c.In({10}).Flip({0}).Windows({3}); }},
    {"convolution's sum over windows",
     [](Chains& c) { return c.In({8, 9}).Windows({3, 3}, {.pads = {1}}).Sum({2, 3}); }},
    {"pool, disjoint",
     [](Chains& c) { return c.In({8, 9}).Windows({2, 3}, {.stride = {2, 3}}).Sum({2, 3}); }},
    {"pool, disjoint, with a rest",
     [](Chains& c) { return c.In({9, 11}).Windows({2, 3}, {.stride = {2, 3}}).Sum({2, 3}); }},
    {"pool, overlapping",
     [](Chains& c) {
       return c.In({9, 9}).Windows({3, 3}, {.stride = {2}, .pads = {1}}).Sum({2, 3});
     }},
    {"transposed convolution's windows",
     [](Chains& c) { return Chains::Spread(c.In({6}), 0, 2).Pad({2, 2}).Windows({3}); }},
    {"transposed convolution of an image",
     [](Chains& c) {
       return Chains::Spread(Chains::Spread(c.In({4, 5}), 0, 2), 1, 2)
           .Pad({1, 1, 1, 1})
           .Windows({3, 3})
           .Sum({2, 3});
     }},
    {"zeros between, then taken out again",
     [](Chains& c) { return Chains::Strided(Chains::Spread(c.In({8}), 0, 3), 0, 3); }},
    {"running sum as padded windows",
     [](Chains& c) { return c.In({16}).Pad({15, 0}).Windows({16}).Sum({1}); }},
    {"blockwise transpose",
     [](Chains& c) {
       return c.In({8, 12}).Reshape({2, 4, 3, 4}).Permute({2, 1, 0, 3}).Reshape({12, 8});
     }},
};

// The only kernel of the graph that stores `value`.
struct Scheduled {
  Plan plan;
  FrozenGraph kernel;
  UOp value;
};

absl::StatusOr<Scheduled> ScheduleOne(Builder* builder, const Tensor& value) {
  builder->Output(value, "out");
  auto plan = builder->Finish();
  if (!plan.ok()) return plan.status();
  Budget budget;
  auto schedule = ScheduleGraph(plan->graph.root(), &budget);
  if (!schedule.ok()) return schedule.status();
  if (schedule->kernels.size() != 1) return absl::InternalError("not one kernel");
  Scheduled out{*std::move(plan), schedule->kernels[0].graph, {}};
  out.value = out.plan.graph.root().src(0).src(1);
  while (out.value.is(Op::kReshape) && out.value.src(0).is(Op::kReduce)) {
    out.value = out.value.src(0);
  }
  return out;
}

TEST(Views, TheCatalogueIsAsTheFileSays) {
  const std::string path = std::string(GOLDEN_DIR) + "/views.txt";
  std::mt19937_64 random(1);
  std::string text;
  for (const Case& c : kCatalogue) {
    Chains chains;
    const auto scheduled = ScheduleOne(&chains.b_, c.make(chains));
    ASSERT_TRUE(scheduled.ok()) << c.name << ": " << scheduled.status();
    const std::string line = test::Text(scheduled->kernel);
    EXPECT_EQ(test::Difference(scheduled->value, scheduled->kernel, int64_t{1} << 20, &random), "")
        << c.name << "\n"
        << line;
    StrAppend(&text, c.name, "\n  ", line, "\n");
  }
  if (std::getenv("BLESS") != nullptr) {
    ASSERT_TRUE(WriteFile(path, text).ok());
    return;
  }
  const auto file = ReadFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file, text) << "BLESS=1 rewrites " << path;
}

class RandomChains {
 public:
  RandomChains(std::mt19937_64* random) : random_(*random) {}

  Tensor Make() {
    Shape shape;
    for (int64_t rank = 1 + Below(3); rank > 0; --rank) shape.push_back(1 + Below(9));
    Tensor t = chains_.In(shape);
    for (int64_t steps = 2 + Below(7); steps > 0; --steps) {
      const Tensor next = Step(t);
      if (next.valid() && next.size() > 0 && next.size() <= 20'000 && next.rank() <= 6) t = next;
    }
    return t;
  }
  Builder* builder() { return &chains_.b_; }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  Tensor Step(const Tensor& t) {
    const int64_t axis = Below(t.rank());
    Shape shape(t.shape().begin(), t.shape().end());
    std::vector<int64_t> pairs;
    switch (Below(9)) {
      case 0:
        return t.Reshape({t.size()});
      case 1:
        if (axis + 1 == t.rank()) return t;
        shape[axis] *= shape[axis + 1];
        shape.erase(shape.begin() + axis + 1);
        return t.Reshape(shape);
      case 2:
        for (int64_t d : {2, 3, 4, 5}) {
          if (shape[axis] % d != 0 || Below(2) == 0) continue;
          shape[axis] /= d;
          shape.insert(shape.begin() + axis + Below(2), d);
          return t.Reshape(shape);
        }
        return t;
      case 3: {
        Axes axes(t.rank());
        for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
        std::shuffle(axes.begin(), axes.end(), random_);
        return t.Permute(axes);
      }
      case 4:
        return t.Flip({axis});
      case 5:
        for (size_t i = 0; i < 2 * shape.size(); ++i) pairs.push_back(Below(3));
        return t.Pad(pairs);
      case 6:
        for (int64_t d : shape) {
          const int64_t begin = Below(std::min<int64_t>(d, 3));
          pairs.push_back(begin);
          pairs.push_back(begin + 1 + Below(d - begin));
        }
        return t.Shrink(pairs);
      case 7: {
        shape.insert(shape.begin() + axis, 1);
        const Tensor u = t.Reshape(shape);
        shape[axis] = 1 + Below(4);
        return u.Expand(shape);
      }
      default:
        if (Below(2) == 0) return Chains::Strided(t, axis, 1 + Below(4));
        if (t.dim(-1) < 4) return t;
        return t.Windows({2}, {.stride = {1 + Below(3)}, .dilation = {1 + Below(2)}});
    }
  }

  std::mt19937_64& random_;
  Chains chains_;
};

TEST(Views, RandomChainsKeepEveryElement) {
  const char* given = std::getenv("TELEGRAD_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "TELEGRAD_SEED=" << seed);
  std::mt19937_64 random(seed);
  LoweringReport report;
  for (int i = 0; i < 1500; ++i) {
    RandomChains chains(&random);
    const auto scheduled = ScheduleOne(chains.builder(), chains.Make());
    ASSERT_TRUE(scheduled.ok()) << scheduled.status();
    ASSERT_EQ(test::Difference(scheduled->value, scheduled->kernel, kPoints, &random), "")
        << "chain " << i << "\n"
        << test::Text(scheduled->kernel);
    Target target;
    target.vector_bytes = 64;
    target.vector_registers = 32;
    target.threads = 2;
    Budget budget;
    const auto program = Lower(scheduled->kernel, target, "kernel", &budget, &report);
    ASSERT_TRUE(program.ok()) << program.status();
  }
  const BoundsStats& bounds = report.bounds;
  std::cout << bounds.proved << " accesses proved, " << bounds.gated << " gated\n";
  EXPECT_GE(bounds.proved, 99 * bounds.gated);
}

}  // namespace
}  // namespace telegrad
