// NonMaxSuppression when the model runs. The boxes of a class are taken in the order of their
// scores, each unless one taken before overlaps it, which makes every box depend on all before it.
// They are sorted and go in blocks; where few boxes may be taken of many, only the best ones do,
// and the rows of which that does not suffice are picked one by one, without an order.
#include <algorithm>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/run_select.h"
#include "engine/frontend/onnx/suppression.h"
#include "engine/frontend/tensor/dim_math.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxBlocks = 1600;  // each is some launches and half a thousand nodes
constexpr int64_t kMaxPicks = 1024;   // each is two launches and fifty nodes

// [batch, n, 4] as corners in their order.
Boxes ReadBoxes(const Tensor& boxes, bool center) {
  const auto column = [&](int64_t i) { return boxes.Slice(2, i, i + 1).Squeeze(2); };
  const Tensor a = column(0), b = column(1), c = column(2), d = column(3);
  if (center) return {b - d / 2.0, a - c / 2.0, b + d / 2.0, a + c / 2.0};
  return {a.Minimum(c), b.Minimum(d), a.Maximum(c), b.Maximum(d)};
}

// Zeros up to the bounds of the sizes and then up to `n` on one axis.
Tensor Filled(Builder& b, const Tensor& x, int64_t axis, int64_t n) {
  Dims words;
  for (int64_t i = 0; i < x.rank(); ++i) {
    words.push_back(0);
    words.push_back(i == axis ? n : x.dim(i));
  }
  return b.MakeSized(Op::kPad, DType::kVoid, {x}, words);
}

absl::StatusOr<ScoredBoxes> ReadScoredBoxes(NodeContext& c, const Tensor& boxes,
                                            const Tensor& given, int64_t padded) {
  TG_ASSIGN_OR_RETURN(const int64_t center, c.Int("center_point_box", 0));
  Builder& b = c.builder();
  ScoredBoxes out;
  out.scores = Filled(b, given, 2, padded);
  out.eligible = b.Iota(DType::kInt64, padded)
                     .Lt(AsTensor(&b, given.dims()[2]))
                     .Expand({given.dim(0), given.dim(1), padded});
  if (c.HasInput(4)) {
    TG_ASSIGN_OR_RETURN(const Tensor least, c.ScalarInput(4));
    out.eligible = out.eligible.And(out.scores.Gt(least));
  }
  out.boxes = ReadBoxes(Filled(b, boxes, 1, padded), center != 0);
  out.threshold = b.Const(DType::kFloat32, 0.0);
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(out.threshold, c.ScalarInput(3));
  }
  return out;
}

// What picking costs, in overlaps that are computed: a launch takes as long as some thousands of
// them, and the search for the best box as long as one. Rounds need a number that is known.
constexpr int64_t kLaunch = 4096, kLaunchesOfBlock = 5;

int64_t CostOneByOne(int64_t rows, int64_t n, int64_t most) {
  return most > 0 && most <= kMaxPicks ? most * (2 * kLaunch + 2 * rows * n) : INT64_MAX;
}

int64_t CostInBlocks(int64_t rows, int64_t count) {
  return count / kSuppressionBlock * kLaunchesOfBlock * kLaunch + rows * count * count;
}

// How many of a row's boxes are looked at first: some of the best are suppressed. A quarter of the
// row costs little beside all of it.
int64_t BestOf(int64_t n, int64_t most) {
  constexpr int64_t kLeast = 256, kMany = 1024;
  const int64_t wanted = std::min(2 * most, std::max(kMany, n / 4));
  return std::min(n, CeilDiv(std::max(kLeast, wanted), kSuppressionBlock) * kSuppressionBlock);
}

// Of the best boxes alone, which suffice if `most` of them are taken or no others are eligible. The
// rows of which that is not so are picked from all; the run decides how many there are, and where
// there are none, as usual, these rounds are launches of loops without iterations.
absl::StatusOr<Picks> PickOfBest(NodeContext& c, const ScoredBoxes& all, int64_t count,
                                 const Tensor& number, int64_t most) {
  Builder& b = c.builder();
  const Picks first = PickInBlocks(b, all, count, number);
  const Dim rows = all.rows();
  const auto in_rows = [&](const Tensor& t) { return t.Reshape(Dims{rows, all.n()}); };
  const auto counted = [](const Tensor& t) { return t.Cast(DType::kInt64).Sum({1}); };
  const Tensor open =
      counted(first.taken).Lt(number).And(counted(in_rows(all.eligible)).Gt(count)).Contiguous();
  // A few rows would be a tile without a loop, and it is the loop that ends early.
  constexpr int64_t kLoop = 16;
  const int64_t bound = std::max(rows.size(), kLoop);
  TG_ASSIGN_OR_RETURN(const Dim size, c.RunSize(open.CountNonzero(), bound));
  const Tensor row = open.Nonzero(bound, 0).Squeeze(1).Narrow(0, 0, size).Contiguous();
  const auto of_rows = [&](const Tensor& t) {
    return in_rows(t).Gather(row).Unsqueeze(1).Contiguous();
  };
  const Tensor image = row.FloorDiv(all.classes());
  const Boxes boxes = all.boxes.Each([&](const Tensor& t) { return t.Gather(image).Contiguous(); });
  const ScoredBoxes rest{of_rows(all.scores), of_rows(all.eligible), boxes, all.threshold};
  const Picks second = PickOneByOne(b, rest, most);
  const int64_t places = std::max(count, second.taken.dim(1));
  const Tensor place = (open.Cast(DType::kInt64).CumSum(0) - 1).Contiguous();
  const auto joined = [&](const Tensor& one, const Tensor& other) {
    const auto padded = [&](const Tensor& t) { return t.Pad({0, 0, 0, places - t.dim(1)}); };
    const Tensor known = WithBounds(other).Contiguous();
    return open.Unsqueeze(1).Where(padded(known.Gather(place)), padded(one)).Contiguous();
  };
  return Picks{joined(first.taken, second.taken), joined(first.box, second.box)};
}

}  // namespace

Tensor Overlaps(const Boxes& a, const Boxes& b, const Tensor& threshold) {
  const Tensor height = a.y2.Minimum(b.y2) - a.y1.Maximum(b.y1);
  const Tensor width = a.x2.Minimum(b.x2) - a.x1.Maximum(b.x1);
  const Tensor common = height.Gt(0).And(width.Gt(0)).Where(height * width, 0.0);
  const Tensor all = a.Area() + b.Area() - common;
  return all.Gt(0).Where(common / all, 0.0).Gt(threshold);
}

absl::Status NonMaxSuppressionOfRun(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor boxes, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor scores, c.Input(1));
  const bool fits = boxes.dtype() == DType::kFloat32 && scores.dtype() == DType::kFloat32 &&
                    boxes.rank() == 3 && scores.rank() == 3 && boxes.dim(2) == 4 &&
                    boxes.dims()[0] == scores.dims()[0] && boxes.dims()[1] == scores.dims()[2];
  if (!fits) {
    return InvalidArgument("boxes are ", Name(boxes.dtype()), " ", ToString(boxes.dims()),
                           " and scores ", Name(scores.dtype()), " ", ToString(scores.dims()),
                           ", expected f32 [batch, n, 4] and [batch, classes, n]");
  }
  Builder& b = c.builder();
  const int64_t n = scores.dim(2), rows = scores.dim(0) * scores.dim(1);
  if (!scores.dims()[0].is_static() || !scores.dims()[1].is_static() || n == 0 || rows == 0 ||
      n > kSuppressionBlock * kMaxBlocks) {
    return Unimplemented("scores of shape ", ToString(scores.dims()), " that each run decides");
  }
  Tensor most = b.Const(DType::kInt64, 0);
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(most, c.ScalarInput(2));
  }
  const int64_t padded = CeilDiv(n, kSuppressionBlock) * kSuppressionBlock;
  TG_ASSIGN_OR_RETURN(const ScoredBoxes all, ReadScoredBoxes(c, boxes, scores, padded));
  // As many as there are at most, where that is known.
  UOp number = most.uop();
  while (number.is(Op::kReshape) || number.is(Op::kExpand)) number = number.src(0);
  const int64_t constant = number.is_const() ? std::clamp<int64_t>(number.const_word(), 0, n) : 0;
  const int64_t each = number.is_const() ? constant : n;
  const int64_t best = BestOf(padded, each);
  const int64_t rounds = CostOneByOne(rows, padded, constant);
  Picks picks;
  if (CostInBlocks(rows, padded) <= rounds) {
    picks = PickInBlocks(b, all, padded, most);
  } else if (best < padded && CostInBlocks(rows, best) < rounds) {
    TG_ASSIGN_OR_RETURN(picks, PickOfBest(c, all, best, most, constant));
  } else {
    picks = PickOneByOne(b, all, constant);
  }
  const int64_t places = picks.taken.dim(1);
  TG_ASSIGN_OR_RETURN(const Dim count, c.RunSize(picks.taken.CountNonzero(), rows * each));
  const Tensor at = picks.taken.Nonzero(rows * each, 0);  // [bound, 2] of row and place
  const Tensor row = at.Slice(1, 0, 1).Squeeze(1), place = at.Slice(1, 1, 2).Squeeze(1);
  const Tensor box = picks.box.Flatten().Gather(row * places + place);
  const Tensor columns[] = {row.FloorDiv(scores.dim(1)), row.FloorMod(scores.dim(1)), box};
  return c.Output(Stack(columns, 1).Narrow(0, 0, count));
}

}  // namespace telegrad::onnx
