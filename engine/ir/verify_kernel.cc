// The kernel level. Which ranges are open at a node is a bit set, propagated in post-order: a RANGE
// opens itself, REDUCE and END close the ranges they name, and nothing may be open at the SINK.
#include "absl/container/flat_hash_map.h"
#include "engine/ir/verify_walk.h"

namespace telegrad::internal {
namespace {

constexpr size_t kMaxOpenSetWords = size_t{1} << 26;

bool IsMemory(Op op) {
  return op == Op::kParam || op == Op::kBuffer || op == Op::kMBarrier || op == Op::kAfter;
}

enum class MemoryKind { kAnywhere, kLocalMemory, kRegisters, kPhase };

// The sources that are addresses, and the memory that these must point to.
struct Address {
  Op op;
  size_t source;
  MemoryKind kind;
};
constexpr Address kAddresses[] = {
    {Op::kLoad, 0, MemoryKind::kAnywhere},          {Op::kStore, 0, MemoryKind::kAnywhere},
    {Op::kArrive, 0, MemoryKind::kPhase},           {Op::kWaitPhase, 0, MemoryKind::kPhase},
    {Op::kCopyAsync, 0, MemoryKind::kAnywhere},     {Op::kCopyAsync, 1, MemoryKind::kAnywhere},
    {Op::kCopyAsync, 2, MemoryKind::kPhase},        {Op::kMmaAsync, 0, MemoryKind::kLocalMemory},
    {Op::kMmaAsync, 1, MemoryKind::kLocalMemory},   {Op::kMmaAsync, 2, MemoryKind::kRegisters},
    {Op::kLoadMatrix, 0, MemoryKind::kLocalMemory},
};

const Address* FindAddress(Op op, size_t source) {
  for (const Address& a : kAddresses) {
    if (a.op == op && a.source == source) return &a;
  }
  return nullptr;
}

absl::Status CheckAddress(const VerifyWalk& walk, uint32_t id, size_t i, MemoryKind kind) {
  const Graph& g = walk.graph;
  uint32_t memory = g.src(g.src(id)[i])[0];
  while (g.op(memory) == Op::kAfter) memory = g.src(memory)[0];
  const bool phase = g.op(memory) == Op::kMBarrier;
  if (phase != (kind == MemoryKind::kPhase)) {
    return walk.Bad(id, "source ", i, " points into ", Name(g.op(memory)), ", expected ",
                    phase ? "param or buffer" : "mbarrier");
  }
  if (kind != MemoryKind::kLocalMemory && kind != MemoryKind::kRegisters) return absl::OkStatus();
  const AddressSpace want =
      kind == MemoryKind::kLocalMemory ? AddressSpace::kLocal : AddressSpace::kRegister;
  if (g.op(memory) == Op::kBuffer && g.at(memory).space() == want) {
    return absl::OkStatus();
  }
  return walk.Bad(id, "source ", i, " does not point into ", Name(want), " memory");
}

class KernelVerifier {
 public:
  explicit KernelVerifier(const VerifyWalk& walk) : walk_(walk), g_(walk.graph) {}

  absl::Status Run(uint32_t root) {
    if (g_.op(root) != Op::kSink) return walk_.Bad(root, "is the root, expected sink");
    for (uint32_t id : walk_.order) {
      if (g_.op(id) == Op::kSink && id != root) return walk_.Bad(id, "expected only as the root");
      TG_RETURN_IF_ERROR(VerifyAccess(walk_, id));
      TG_RETURN_IF_ERROR(Node(id));
    }
    return CheckClosed(root);
  }

 private:
  absl::Status Node(uint32_t id) {
    const std::span<const uint32_t> src = g_.src(id);
    switch (g_.op(id)) {
      case Op::kSink:
        for (size_t i = 0; i < src.size(); ++i) {
          if (g_.op(src[i]) != Op::kStore && g_.op(src[i]) != Op::kEnd) {
            return walk_.BadSource(id, i, "store or end");
          }
        }
        return absl::OkStatus();
      case Op::kEnd:
        if (g_.op(src[0]) == Op::kRange) return walk_.BadSource(id, 0, "store or end");
        return absl::OkStatus();
      case Op::kReduce:
        for (size_t i = 1; i < src.size(); ++i) {
          const AxisType type = g_.at(src[i]).axis_type();
          if (type != AxisType::kReduce && type != AxisType::kUnroll && type != AxisType::kUpcast &&
              type != AxisType::kVector && type != AxisType::kLocal && type != AxisType::kWarp) {
            return walk_.Bad(id, "reduces over a range of type ", Name(type),
                             ", expected reduce, unroll, upcast, vector, local or warp");
          }
        }
        return absl::OkStatus();
      case Op::kRange:
        return Range(id);
      default:
        return absl::OkStatus();
    }
  }

  absl::Status Range(uint32_t id) {
    const auto bit = static_cast<uint32_t>(range_bits_.size());
    const int64_t range_id = g_.at(id).range_id();
    if (!range_bits_.try_emplace(range_id, bit).second) {
      return walk_.Bad(id, "id ", range_id, " is used twice, expected unique range ids");
    }
    return absl::OkStatus();
  }

  absl::Status CheckClosed(uint32_t root) {
    const size_t words = (range_bits_.size() + 63) / 64;
    if (words == 0) return absl::OkStatus();
    if (words * walk_.order.size() > kMaxOpenSetWords) {
      return ResourceExhausted("a kernel with ", range_bits_.size(), " ranges and ",
                               walk_.order.size(), " nodes is too large to verify");
    }
    std::vector<uint64_t> open(words * walk_.order.size());
    const auto set = [&](uint32_t id) { return &open[words * walk_.position[id]]; };
    for (uint32_t id : walk_.order) {
      const Op op = g_.op(id);
      const bool closes = op == Op::kReduce || op == Op::kEnd;
      const std::span<const uint32_t> src = g_.src(id);
      uint64_t* mine = set(id);
      for (uint32_t s : closes ? src.first(1) : src) {
        for (size_t w = 0; w < words; ++w) mine[w] |= set(s)[w];
      }
      if (op == Op::kRange) {
        const uint32_t bit = range_bits_[g_.at(id).range_id()];
        mine[bit / 64] |= uint64_t{1} << (bit % 64);
      }
      if (!closes) continue;
      for (uint32_t s : src.subspan(1)) {
        const uint32_t bit = range_bits_[g_.at(s).range_id()];
        mine[bit / 64] &= ~(uint64_t{1} << (bit % 64));
      }
    }
    for (uint32_t id : walk_.order) {
      if (g_.op(id) != Op::kRange) continue;
      const uint32_t bit = range_bits_[g_.at(id).range_id()];
      if (set(root)[bit / 64] >> (bit % 64) & 1) {
        return walk_.Bad(id, "is still open at the sink, expected an end or a reduce to close it");
      }
    }
    return absl::OkStatus();
  }

  const VerifyWalk& walk_;
  const Graph& g_;
  absl::flat_hash_map<int64_t, uint32_t> range_bits_;  // by range id
};

}  // namespace

absl::Status VerifyAccess(const VerifyWalk& walk, uint32_t id) {
  const Graph& g = walk.graph;
  const Op op = g.op(id);
  const std::span<const uint32_t> src = g.src(id);
  for (size_t i = 0; i < src.size(); ++i) {
    const Op source = g.op(src[i]);
    const Address* const address = FindAddress(op, i);
    const bool memory = (op == Op::kIndex || op == Op::kAfter) && i == 0;
    if (address != nullptr) {
      if (source != Op::kIndex) return walk.BadSource(id, i, "index");
      TG_RETURN_IF_ERROR(CheckAddress(walk, id, i, address->kind));
    }
    if (memory && !IsMemory(source)) return walk.BadSource(id, i, "param, buffer or after");
    if (address == nullptr && source == Op::kIndex) {
      return walk.Bad(id, "source ", i, " is an address, expected a load of it");
    }
    if (!memory && IsMemory(source)) {
      return walk.Bad(id, "source ", i, " is memory (", Name(source), "), expected a load from it");
    }
  }
  if (g.at(id).symbolic()) return walk.Bad(id, "has a symbolic size, expected fixed ones");
  if (op == Op::kBitcast && Info(g.dtype(id)).bits != Info(g.dtype(src[0])).bits) {
    return walk.Bad(id, "from ", Name(g.dtype(src[0])), " to ", Name(g.dtype(id)),
                    " changes the width");
  }
  if (op == Op::kIndex && g.shape(src[0]).size() != 1) {
    return walk.Bad(id, "the buffer has shape ", ToString(g.shape(src[0])),
                    ", expected one dimension");
  }
  return absl::OkStatus();
}

absl::Status VerifyKernel(const VerifyWalk& walk, uint32_t root) {
  return KernelVerifier(walk).Run(root);
}

}  // namespace telegrad::internal
