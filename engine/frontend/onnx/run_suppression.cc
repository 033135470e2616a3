// NonMaxSuppression when the model runs. The boxes of a class are taken in the order of their
// scores, each unless one taken before overlaps it, which makes every box depend on all before it.
// Blocks of boxes bound the steps: what the boxes taken of a block suppress is one reduction;
// within a block a word has a bit for each box, and each of them in turn clears the bits of those
// that it overlaps.
#include <algorithm>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/run_select.h"
#include "engine/frontend/tensor/dim_math.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kBlock = 64;        // boxes, one for each bit of a word
constexpr int64_t kMaxBlocks = 1600;  // each is some launches and half a thousand nodes
constexpr int64_t kLeastHalved = 8;   // blocks

// Corners, [..., n] each.
struct Boxes {
  Tensor y1, x1, y2, x2;

  template <typename F>
  Boxes Each(F f) const {
    return {f(y1), f(x1), f(y2), f(x2)};
  }
  Tensor Area() const { return (y2 - y1) * (x2 - x1); }
};

// [batch, n, 4] as corners in their order.
Boxes ReadBoxes(const Tensor& boxes, bool center) {
  const auto column = [&](int64_t i) { return boxes.Slice(2, i, i + 1).Squeeze(2); };
  const Tensor a = column(0), b = column(1), c = column(2), d = column(3);
  if (center) return {b - d / 2.0, a - c / 2.0, b + d / 2.0, a + c / 2.0};
  return {a.Minimum(c), b.Minimum(d), a.Maximum(c), b.Maximum(d)};
}

// Whether boxes overlap by more than the threshold, broadcast.
Tensor Overlaps(const Boxes& a, const Boxes& b, const Tensor& threshold) {
  const Tensor height = a.y2.Minimum(b.y2) - a.y1.Maximum(b.y1);
  const Tensor width = a.x2.Minimum(b.x2) - a.x1.Maximum(b.x1);
  const Tensor common = height.Gt(0).And(width.Gt(0)).Where(height * width, 0.0);
  const Tensor all = a.Area() + b.Area() - common;
  return all.Gt(0).Where(common / all, 0.0).Gt(threshold);
}

// One block of boxes takes its turn: it ends what it suppresses in all. Boxes are [blocks, rows,
// kBlock], rows of them in the order of their scores; `turn` [1] is the number of the block.
Tensor TakeTurn(Builder& b, const Boxes& boxes, const Tensor& alive, const Tensor& turn,
                const Tensor& threshold) {
  const Tensor bit = b.Iota(DType::kInt64, kBlock);
  const Tensor power = b.Const(DType::kInt64, 1).ShiftLeft(bit);
  const Tensor later = bit.Gt(bit.Unsqueeze(1));  // [of a box, the other]
  const Tensor number = b.Iota(DType::kInt64, alive.dim(0)).Unsqueeze(1).Unsqueeze(1);
  const auto each = [](int64_t axis) {
    return [axis](const Tensor& t) { return t.Unsqueeze(axis); };
  };
  const auto of_turn = [&](const Tensor& t) { return t.Gather(turn); };
  const Boxes mine = boxes.Each(of_turn);  // [1, rows, kBlock]
  const Tensor within = Overlaps(mine.Each(each(3)), mine.Each(each(2)), threshold).And(later);
  const Tensor leaves = within.Where(power, 0).Sum({3}).BitwiseNot().Contiguous();
  Tensor word = of_turn(alive).Where(power, 0).Sum({2}).Contiguous();  // [1, rows]
  for (int64_t j = 0; j + 1 < kBlock; ++j) {
    const Tensor mask = leaves.Slice(2, j, j + 1).Squeeze(2);
    word = word.And(b.Const(DType::kInt64, int64_t{1} << j)).Ne(0).Where(word.And(mask), word);
  }
  const Tensor taken = word.Contiguous().Unsqueeze(2).ShiftRight(bit).And(1).Ne(0);
  const Tensor ends =
      Overlaps(boxes.Each(each(3)), mine.Each(each(2)), threshold).And(taken.Unsqueeze(2)).Any({3});
  const Tensor stays = number.Lt(turn).Or(ends.Not());
  return number.Eq(turn).Where(taken, alive.And(stays)).Contiguous();
}

// The boxes that are taken. The number of the turn is in memory, so that all turns run the same
// kernels, which are compiled once; where half of the blocks have had their turns, the rest goes on
// without them.
Tensor Greedy(Builder& b, Boxes boxes, const Tensor& eligible, const Tensor& threshold) {
  std::vector<Tensor> done;
  Tensor alive = eligible;
  // Past the end where there is nothing to do, so that it is not known before the run.
  const Tensor any = eligible.Any();
  while (true) {
    const int64_t blocks = alive.dim(0), half = blocks >= kLeastHalved ? blocks / 2 : blocks;
    Tensor turn = any.Where(b.Const(DType::kInt64, 0), blocks).Reshape({1}).Contiguous();
    for (int64_t i = 0; i < half; ++i) {
      alive = TakeTurn(b, boxes, alive, turn, threshold);
      turn = (turn + 1).Contiguous();
    }
    if (half == blocks) break;
    const auto rest = [&](const Tensor& t) { return t.Slice(0, half, blocks).Contiguous(); };
    done.push_back(alive.Slice(0, 0, half));
    boxes = boxes.Each(rest);
    alive = rest(alive);
  }
  done.push_back(alive);
  return Concat(done, 0);
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

// The rows of `scores` [batch, classes, n] with its boxes, in the order of the scores.
struct Candidates {
  Tensor order;     // [rows, n] of the positions
  Tensor eligible;  // [blocks, rows, kBlock], as the boxes are
  Boxes boxes;
};

absl::StatusOr<Candidates> Sort(NodeContext& c, const Tensor& boxes, const Tensor& given,
                                int64_t padded) {
  TG_ASSIGN_OR_RETURN(const int64_t center, c.Int("center_point_box", 0));
  Builder& b = c.builder();
  const Dims dims = given.dims();
  const int64_t batch = dims[0].size(), classes = dims[1].size(), rows = batch * classes;
  const Tensor scores = Filled(b, given, 2, padded);
  Tensor eligible =
      b.Iota(DType::kInt64, padded).Lt(AsTensor(&b, dims[2])).Expand({batch, classes, padded});
  if (c.HasInput(4)) {
    TG_ASSIGN_OR_RETURN(const Tensor least, c.ScalarInput(4));
    eligible = eligible.And(scores.Gt(least));
  }
  // What is not eligible comes last, whatever its score.
  const Tensor key = eligible.Where(scores, -std::numeric_limits<double>::infinity());
  const Tensor order = key.ArgSort(2, true).Cast(DType::kInt64).Contiguous();
  const int64_t blocks = padded / kBlock;
  const auto in_blocks = [&](const Tensor& t) {
    return t.TakeAlong(2, order).Reshape({rows, blocks, kBlock}).Permute({1, 0, 2}).Contiguous();
  };
  const auto in_order = [&](const Tensor& t) {
    return in_blocks(t.Unsqueeze(1).Expand({batch, classes, padded}));
  };
  return Candidates{order.Reshape({rows, padded}), in_blocks(eligible),
                    ReadBoxes(Filled(b, boxes, 1, padded), center != 0).Each(in_order)};
}

}  // namespace

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
      n > kBlock * kMaxBlocks) {
    return Unimplemented("scores of shape ", ToString(scores.dims()), " that each run decides");
  }
  Tensor most = b.Const(DType::kInt64, 0), threshold = b.Const(DType::kFloat32, 0.0);
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(most, c.ScalarInput(2));
  }
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(threshold, c.ScalarInput(3));
  }
  const int64_t padded = CeilDiv(n, kBlock) * kBlock;
  TG_ASSIGN_OR_RETURN(const Candidates all, Sort(c, boxes, scores, padded));
  Tensor taken = Greedy(b, all.boxes, all.eligible, threshold);
  taken = taken.Permute({1, 0, 2}).Reshape({rows, padded});
  taken = taken.And(taken.Cast(DType::kInt64).CumSum(1).Le(most)).Contiguous();
  // As many as there are at most, where that is known.
  const int64_t each =
      most.uop().is_const() ? std::clamp<int64_t>(most.uop().const_word(), 0, n) : n;
  TG_ASSIGN_OR_RETURN(const Dim count, c.RunSize(taken.CountNonzero(), rows * each));
  const Tensor at = taken.Nonzero(rows * each, 0);  // [bound, 2] of row and place
  const Tensor row = at.Slice(1, 0, 1).Squeeze(1), place = at.Slice(1, 1, 2).Squeeze(1);
  const Tensor box = all.order.Flatten().Gather(row * padded + place);
  const Tensor columns[] = {row.FloorDiv(scores.dim(1)), row.FloorMod(scores.dim(1)), box};
  return c.Output(Stack(columns, 1).Narrow(0, 0, count));
}

}  // namespace telegrad::onnx
