#include "engine/schedule/kernel_parts.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace telegrad {

UOp PartWriter::Sum(UOp value, std::span<const UOp> ranges) {
  std::vector<UOp> src{value};
  src.insert(src.end(), ranges.begin(), ranges.end());
  const int64_t add[] = {static_cast<int64_t>(ReduceKind::kAdd)};
  return g().Make(Op::kReduce, value.dtype(), src, add);
}

UOp PartWriter::Copy(UOp root, const Replaced& with, UOp gate) {
  const std::vector<uint32_t> order = PostOrder(root);
  absl::flat_hash_set<uint32_t> needed{root.id()};  // not what only replaced nodes depend on
  for (size_t i = order.size(); i-- > 0;) {
    if (!needed.contains(order[i]) || with.contains(order[i])) continue;
    const std::span<const uint32_t> src = from_.src(order[i]);
    needed.insert(src.begin(), src.end());
  }
  absl::flat_hash_map<uint32_t, UOp> made;
  std::vector<UOp> src;
  for (const uint32_t id : order) {
    if (!needed.contains(id)) continue;
    const UOp u = from_.at(id);
    if (const auto it = with.find(id); it != with.end()) {
      made[id] = it->second;
      continue;
    }
    src.clear();
    for (const uint32_t s : u.src_ids()) src.push_back(made[s]);
    std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
    if (u.is(Op::kParam)) arg[0] = SlotOf(static_cast<int>(arg[0]));
    if (u.is(Op::kIndex) && gate.valid()) {
      const bool gated = src.size() == 3;
      const UOp both = gated ? g().Make(Op::kAnd, {src[2], gate}) : gate;
      src.resize(2);
      src.push_back(both);
    }
    made[id] = g().Make(u.op(), u.dtype(), src, arg);
  }
  return made[root.id()];
}

void PartWriter::Store(UOp address, UOp value, std::span<const UOp> loops) {
  const UOp store = g().Make(Op::kStore, {address, value});
  if (loops.empty()) {
    nests_.push_back(store);
    return;
  }
  std::vector<UOp> end{store};
  end.insert(end.end(), loops.begin(), loops.end());
  nests_.push_back(g().Make(Op::kEnd, DType::kVoid, end));
}

absl::StatusOr<KernelPart> PartWriter::Finish(std::string reason) {
  const UOp sink = g().Make(Op::kSink, DType::kVoid, nests_);
  TG_RETURN_IF_ERROR(g().status());
  return KernelPart{{graph_, sink.id()}, std::move(arguments_), std::move(reason)};
}

absl::StatusOr<KernelPart> PartWriter::Copied(UOp sink, const Replaced& with, std::string reason) {
  const UOp copy = Copy(sink, with, {});
  TG_RETURN_IF_ERROR(g().status());
  return KernelPart{{graph_, copy.id()}, std::move(arguments_), std::move(reason)};
}

int64_t PartWriter::SlotOf(int argument) {
  const auto it = std::ranges::find(arguments_, argument);
  const auto slot = it - arguments_.begin();
  if (it == arguments_.end()) arguments_.push_back(argument);
  return slot;
}

}  // namespace telegrad
