#include "engine/schedule/float_sums.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/schedule/byte_products.h"

namespace telegrad {

bool SumsIntegers(UOp u) {
  return u.is(Op::kReduce) && u.dtype() == DType::kInt32 && u.reduce_kind() == ReduceKind::kAdd &&
         u.src(0).is(Op::kMul);
}

absl::StatusOr<std::optional<KernelParts>> AddIntegersInFloat(const FrozenGraph& kernel) {
  const Graph& from = *kernel.graph;
  PartWriter k(from);
  PartWriter::Replaced with;
  for (const uint32_t id : PostOrder(kernel.root())) {
    const UOp u = from.at(id);
    if (!SumsIntegers(u)) continue;
    int64_t left = ExactTerms(u.src(0).src(0), u.src(0).src(1));
    std::vector<UOp> ranges;
    for (int i = 1; i < u.num_src(); ++i) {
      left /= std::max<int64_t>(u.src(i).src(0).vmax(), 1);
      ranges.push_back(k.Copy(u.src(i), with, {}));
    }
    if (left == 0) continue;
    const auto factor = [&](int i) {
      return k.g().Make(Op::kCast, DType::kFloat32, {k.Copy(u.src(0).src(i), with, {})}, {});
    };
    const UOp x = factor(0), y = factor(1);
    const UOp sum = k.Sum(k.g().Make(Op::kMul, {x, y}), ranges);
    with[id] = k.g().Make(Op::kCast, DType::kInt32, {sum}, {});
  }
  if (with.empty()) return std::nullopt;
  KernelParts out;
  TG_ASSIGN_OR_RETURN(KernelPart part, k.Copied(kernel.root(), with, "adds up integers in f32"));
  out.kernels.push_back(std::move(part));
  return out;
}

}  // namespace telegrad
