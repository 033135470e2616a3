// The ops of the tensor level that compute one tensor from tensors, and movement as a function from
// the elements of the result to those of the source, which STORE needs too.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"
#include "engine/reference/lane.h"

namespace telegrad::reference::internal {

// Bytes that count against a budget while they live.
class Storage {
 public:
  Storage(int64_t size, Budget* budget) : bytes_(static_cast<size_t>(size)), budget_(budget) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() { budget_->ReturnBytes(static_cast<int64_t>(bytes_.size())); }
  uint8_t* data() { return bytes_.data(); }

 private:
  std::vector<uint8_t> bytes_;
  Budget* budget_;
};

// One instance of a value: LaneBytes(dtype) for each element, row-major and dense over its actual
// dims. It is immutable once it is made.
struct Tensor {
  DType dtype = DType::kVoid;
  Shape dims = {};
  std::shared_ptr<Storage> storage = nullptr;

  uint8_t* at(int64_t i) const { return storage->data() + i * LaneBytes(dtype); }
  Lane lane(int64_t i) const { return ReadLane(dtype, at(i)); }
  void set(int64_t i, Lane lane) const { WriteLane(dtype, lane, at(i)); }
};

// Allocates the tensors of an evaluation and checks its deadline, both against one budget.
class EvalContext {
 public:
  explicit EvalContext(Budget* budget) : budget_(budget) {}

  // Counts one element and checks the deadline from time to time.
  absl::Status Tick() {
    if (++ticks_ % kElementsPerTimeCheck != 0) return absl::OkStatus();
    return budget_->CheckTime();
  }
  // A tensor of zeros.
  absl::StatusOr<Tensor> New(DType dtype, Shape dims);
  // The same for a value of `u`, whose shape bounds the dims.
  absl::StatusOr<Tensor> New(UOp u, Shape dims);
  Budget* budget() const { return budget_; }

 private:
  static constexpr int64_t kElementsPerTimeCheck = int64_t{1} << 16;

  Budget* budget_;
  int64_t ticks_ = 0;
};

using Sources = std::span<const Tensor* const>;

// CONST, IOTA, VAR with a source, movement, CAT, elementwise ops, REDUCE, GATHER, SCATTER,
// CONTIGUOUS and DETACH. `words` are the argument with symbolic ones replaced by their values.
absl::StatusOr<Tensor> Compute(UOp u, std::span<const int64_t> words, Sources src,
                               EvalContext* context);

// The tensors one after another along an axis; `u` is the node that this is for.
absl::StatusOr<Tensor> Concatenate(UOp u, size_t axis, Sources src, EvalContext* context);
// Element by element the reduction of all tensors.
absl::StatusOr<Tensor> ReduceAll(UOp u, ReduceKind kind, Sources src, EvalContext* context);

// A movement op on actual dims.
struct Movement {
  Op op;
  Shape from;                      // dims of the source
  Shape dims;                      // of the result
  std::span<const int64_t> words;  // axes, or offset and size by axis; must outlive this
};
Movement MovementOf(Op op, Shape from, std::span<const int64_t> words);
// Where the element `at` of the result comes from; false: from nowhere, it is a zero.
bool SourceOf(const Movement& m, std::span<const int64_t> at, std::span<int64_t> from);

// The row-major number of the element at `at`, and back.
int64_t Flat(ShapeView shape, std::span<const int64_t> at);
void Unflat(ShapeView shape, int64_t flat, std::span<int64_t> at);
// Steps `at` to the next element in row-major order.
void Advance(ShapeView shape, std::span<int64_t> at);

}  // namespace telegrad::reference::internal
