// Blocks of boxes bound the steps: what the boxes taken of a block suppress is one reduction;
// within a block a word has a bit for each box, and each of them in turn clears the bits of those
// that it overlaps.
#include <limits>
#include <vector>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/step_rows.h"
#include "engine/frontend/onnx/suppression.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kBlock = kSuppressionBlock;  // boxes, one for each bit of a word
constexpr int64_t kLeastHalved = 8;            // blocks

Tensor Bits(Builder& b) { return b.Iota(DType::kInt64, kBlock); }
Tensor Powers(Builder& b) { return b.Const(DType::kInt64, 1).ShiftLeft(Bits(b)); }

Boxes Unsqueezed(const Boxes& boxes, int64_t axis) {
  return boxes.Each([axis](const Tensor& t) { return t.Unsqueeze(axis); });
}

// Of boxes [blocks, rows, kBlock], rows of them in the order of their scores: for each box the
// word of those that it leaves to be taken of its block.
Tensor LeavesOf(Builder& b, const Boxes& boxes, const Tensor& threshold) {
  const Tensor later = Bits(b).Gt(Bits(b).Unsqueeze(1));  // [of a box, the other]
  const Tensor ends = Overlaps(Unsqueezed(boxes, 3), Unsqueezed(boxes, 2), threshold).And(later);
  return ends.Where(Powers(b), 0).Sum({3}).BitwiseNot().Contiguous();
}

// One block of boxes takes its turn: it ends what it suppresses in all. `turn` [1] is the number
// of the block.
Tensor TakeTurn(Builder& b, const Boxes& boxes, const Tensor& leaves, const Tensor& alive,
                const Tensor& turn, const Tensor& threshold) {
  const Tensor number = b.Iota(DType::kInt64, alive.dim(0)).Unsqueeze(1).Unsqueeze(1);
  const auto of_turn = [&](const Tensor& t) { return t.Gather(turn); };
  const Boxes mine = boxes.Each(of_turn);  // [1, rows, kBlock]
  const Tensor left = of_turn(leaves);
  Tensor word = of_turn(alive).Where(Powers(b), 0).Sum({2}).Contiguous();  // [1, rows]
  for (int64_t j = 0; j + 1 < kBlock; ++j) {
    const Tensor mask = left.Slice(2, j, j + 1).Squeeze(2);
    word = word.And(b.Const(DType::kInt64, int64_t{1} << j)).Ne(0).Where(word.And(mask), word);
  }
  const Tensor taken = word.Contiguous().Unsqueeze(2).ShiftRight(Bits(b)).And(1).Ne(0);
  const Tensor ends = Overlaps(Unsqueezed(boxes, 3), Unsqueezed(mine, 2), threshold)
                          .And(taken.Unsqueeze(2))
                          .Any({3});
  const Tensor stays = number.Lt(turn).Or(ends.Not());
  return number.Eq(turn).Where(taken, alive.And(stays)).Contiguous();
}

// The boxes that are taken. The number of the turn is in memory, so that all turns run the same
// kernels, which are compiled once; where half of the blocks have had their turns, the rest goes on
// without them.
Tensor Greedy(Builder& b, Boxes boxes, const Tensor& eligible, const Tensor& threshold) {
  std::vector<Tensor> done;
  Tensor alive = eligible, leaves = LeavesOf(b, boxes, threshold);
  // Past the end where there is nothing to do, so that it is not known before the run.
  const int64_t all = alive.dim(0);
  const Tensor number = b.Iota(DType::kInt64, all).Reshape({all, 1});
  const StepRows turns(eligible.Any().Where(number, all), 0);
  while (true) {
    const int64_t blocks = alive.dim(0), half = blocks >= kLeastHalved ? blocks / 2 : blocks;
    for (int64_t i = 0; i < half; ++i) {
      alive = TakeTurn(b, boxes, leaves, alive, turns.At(i), threshold);
    }
    if (half == blocks) break;
    const auto rest = [&](const Tensor& t) { return t.Slice(0, half, blocks).Contiguous(); };
    done.push_back(alive.Slice(0, 0, half));
    boxes = boxes.Each(rest);
    leaves = rest(leaves);
    alive = rest(alive);
  }
  done.push_back(alive);
  return Concat(done, 0);
}

}  // namespace

Picks PickInBlocks(Builder& b, const ScoredBoxes& all, int64_t count, const Tensor& most) {
  const Dim rows = all.rows();
  const Dims each = {all.batch(), all.classes(), all.n()};
  // What is not eligible comes last, whatever its score.
  const Tensor key = all.eligible.Where(all.scores, -std::numeric_limits<double>::infinity());
  const Tensor order = key.TopK(count, 2).second.Cast(DType::kInt64).Contiguous();
  const auto in_blocks = [&](const Tensor& t) {
    const Dims blocks = {rows, count / kBlock, kBlock};
    return t.TakeAlong(2, order).Reshape(blocks).Permute({1, 0, 2}).Contiguous();
  };
  const auto in_order = [&](const Tensor& t) { return in_blocks(t.Unsqueeze(1).Expand(each)); };
  Tensor taken = Greedy(b, all.boxes.Each(in_order), in_blocks(all.eligible), all.threshold);
  taken = taken.Permute({1, 0, 2}).Reshape(Dims{rows, count});
  taken = taken.And(taken.Cast(DType::kInt64).CumSum(1).Le(most)).Contiguous();
  return {taken, order.Reshape(Dims{rows, count})};
}

}  // namespace telegrad::onnx
