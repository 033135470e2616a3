// A kernel that several carry out one after another, with temporaries between them, and what writes
// these: nodes of the kernel are copied, some of them replaced.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

struct KernelPart {
  FrozenGraph graph;
  // By PARAM slot: an argument of the kernel that it is a part of, or ~i: temporary i.
  std::vector<int> arguments;
  std::string reason;
};

struct KernelParts {
  std::vector<KernelPart> kernels;   // in order
  std::vector<int64_t> temporaries;  // elements of 4 bytes
};

class PartWriter {
 public:
  using Replaced = absl::flat_hash_map<uint32_t, UOp>;

  // New ranges are numbered from `first_range`: beyond those of `from` if any of these is copied.
  explicit PartWriter(const Graph& from, int64_t first_range = 0)
      : from_(from), graph_(std::make_shared<Graph>()), next_range_(first_range) {}
  Graph& g() { return *graph_; }

  UOp Loop(int64_t size) { return g().Range(next_range_++, AxisType::kLoop, g().Index(size)); }
  UOp Reduced(int64_t size) { return g().Range(next_range_++, AxisType::kReduce, g().Index(size)); }
  UOp Param(int argument, int64_t elements, DType dtype = DType::kFloat32) {
    return g().Param(SlotOf(argument), dtype, Shape{elements});
  }
  UOp Add(UOp a, UOp b) { return g().Make(Op::kAdd, {a, b}); }
  UOp Times(UOp a, int64_t k) { return k == 1 ? a : g().Make(Op::kMul, {a, g().Index(k)}); }
  UOp Plus(UOp a, int64_t k) { return k == 0 ? a : Add(a, g().Index(k)); }
  UOp Load(UOp memory, UOp index) {
    return g().Make(Op::kLoad, {g().Make(Op::kIndex, {memory, index})});
  }
  UOp Less(UOp a, int64_t limit) { return g().Make(Op::kCmpLt, {a, g().Index(limit)}); }
  // The sum of `value` over the ranges.
  UOp Sum(UOp value, std::span<const UOp> ranges);

  // `root` of the other kernel with nodes replaced; accesses only where `gate` holds, if given.
  UOp Copy(UOp root, const Replaced& with, UOp gate);

  void Store(UOp address, UOp value, std::span<const UOp> loops);
  void Nest(UOp end) { nests_.push_back(end); }

  absl::StatusOr<KernelPart> Finish(std::string reason);
  // A kernel that is the other one's sink with nodes replaced.
  absl::StatusOr<KernelPart> Copied(UOp sink, const Replaced& with, std::string reason);

 private:
  int64_t SlotOf(int argument);

  const Graph& from_;
  std::shared_ptr<Graph> graph_;
  std::vector<int> arguments_;
  std::vector<UOp> nests_;
  int64_t next_range_;
};

}  // namespace telegrad
