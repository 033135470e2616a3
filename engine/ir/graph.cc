#include "engine/ir/graph.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/ir/infer.h"
#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

constexpr uint32_t kEmpty = 0xffffffff;
constexpr size_t kFirstTableSize = 64;

// Clients choose the argument words, so the table's hash is keyed: whoever does not know the key
// cannot make many nodes meet in one place of it. Ids do not depend on the hash.
struct HashKey {
  uint64_t a = 0x9e3779b97f4a7c15;
  uint64_t b = 0xd1b54a32d192ed03;
};

const HashKey& Key() {
  static const HashKey key = [] {
    HashKey k;
    if (getentropy(&k, sizeof(k)) != 0) k = HashKey();  // without entropy, still correct
    return k;
  }();
  return key;
}

// Both halves of a 128-bit product, folded.
uint64_t Fold(uint64_t x, uint64_t y) {
  const auto product = static_cast<unsigned __int128>(x) * y;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t HashNode(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg) {
  const HashKey& key = Key();
  uint64_t h = Fold(key.a ^ src.size(),
                    key.b ^ (static_cast<uint64_t>(op) << 8 | static_cast<uint64_t>(dtype)));
  for (UOp s : src) h = Fold(h ^ key.a, key.b ^ s.id());
  for (int64_t word : arg) h = Fold(h ^ key.a, key.b ^ static_cast<uint64_t>(word));
  return h;
}

constexpr int64_t kNanWord = std::bit_cast<int64_t>(std::numeric_limits<double>::quiet_NaN());

bool IsNan(int64_t word) { return std::isnan(std::bit_cast<double>(word)); }

}  // namespace

Graph::Graph() : src_begin_{0}, arg_begin_{0}, places_(1), table_(kFirstTableSize, kEmpty) {}

size_t Graph::Locate(uint64_t hash, Op op, DType dtype, std::span<const UOp> src,
                     std::span<const int64_t> arg) const {
  // The dtype is part of a node's identity only where the caller gives it; else the sources imply
  // it.
  const bool given = Info(op).type_rule == TypeRule::kGiven;
  const size_t mask = table_.size() - 1;
  size_t at = hash & mask;
  for (; table_[at] != kEmpty; at = (at + 1) & mask) {
    const uint32_t id = table_[at];
    if (hashes_[id] == hash && ops_[id] == op && (!given || dtypes_[id] == dtype) &&
        std::ranges::equal(this->src(id), src, {}, {}, &UOp::id) &&
        std::ranges::equal(this->arg(id), arg)) {
      break;
    }
  }
  return at;
}

void Graph::GrowTable() {
  std::vector<uint32_t> table(table_.size() * 2, kEmpty);
  const size_t mask = table.size() - 1;
  for (uint32_t id = 0; id < size(); ++id) {
    size_t at = hashes_[id] & mask;
    while (table[at] != kEmpty) at = (at + 1) & mask;
    table[at] = id;
  }
  table_ = std::move(table);
}

Graph::ShapeRef Graph::InternShape(ShapeView shape, std::span<const UOp> src) {
  if (shape.empty()) return {0, 0};
  // Most nodes have the shape of a source; the pool holds each of those once.
  for (UOp s : src) {
    if (std::ranges::equal(s.shape(), shape)) return shape_[s.id()];
  }
  const ShapeRef ref{static_cast<uint32_t>(shape_pool_.size()),
                     static_cast<uint32_t>(shape.size())};
  shape_pool_.insert(shape_pool_.end(), shape.begin(), shape.end());
  return ref;
}

uint16_t Graph::InternPlace(std::vector<int64_t> devices) {
  const auto next = static_cast<uint16_t>(places_.size());
  const auto [it, is_new] = place_of_.try_emplace(std::move(devices), next);
  if (is_new) places_.push_back(it->first);
  return it->second;
}

UOp Graph::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  return {};
}

absl::Status Graph::TakeStatus() { return std::exchange(status_, absl::OkStatus()); }

UOp Graph::Make(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg) {
  for (UOp s : src) {
    if (s.graph() != this) {
      return Fail(Internal(Name(op), ": a source is invalid or of another graph"));
    }
  }
  if (Info(op).type_rule != TypeRule::kGiven) dtype = DType::kVoid;
  if (op == Op::kConst && IsFloat(dtype) && arg.size() == 1 && IsNan(arg[0])) {
    arg = std::span(&kNanWord, 1);  // one NaN, one id
  }
  const uint64_t hash = HashNode(op, dtype, src, arg);
  size_t at = Locate(hash, op, dtype, src, arg);
  if (table_[at] != kEmpty) return {this, table_[at]};

  absl::StatusOr<Inferred> inferred = Infer(op, dtype, src, arg);
  if (!inferred.ok()) return Fail(std::move(inferred).status());
  if (!inferred->devices.empty()) {
    if (places_.size() > UINT16_MAX) {
      return Fail(ResourceExhausted(Name(op), ": more than ", UINT16_MAX, " lists of devices"));
    }
    inferred->place = InternPlace(std::move(inferred->devices));
  }

  const uint32_t id = size();
  ops_.push_back(op);
  dtypes_.push_back(inferred->dtype);
  for (UOp s : src) src_pool_.push_back(s.id());
  src_begin_.push_back(static_cast<uint32_t>(src_pool_.size()));
  const std::vector<int64_t> words(arg.begin(), arg.end());  // arg may point into the pool
  arg_pool_.insert(arg_pool_.end(), words.begin(), words.end());
  arg_begin_.push_back(static_cast<uint32_t>(arg_pool_.size()));
  shape_.push_back(InternShape(inferred->shape, src));
  bounds_.push_back(InferBounds(op, inferred->dtype, src, words));
  place_.push_back(inferred->place);
  if (!inferred->symbolic.empty()) symbolic_.emplace(id, std::move(inferred->symbolic));
  hashes_.push_back(hash);
  table_[at] = id;
  if (2 * (size() + 1) > table_.size()) GrowTable();
  return {this, id};
}

UOp Graph::Const(DType dtype, int64_t value) {
  return Make(Op::kConst, dtype, {}, {ScalarFromInt(dtype, value)});
}

UOp Graph::ConstFloat(DType dtype, double value) {
  return ConstWord(dtype, ScalarFromDouble(dtype, value));
}

UOp Graph::ConstWord(DType dtype, int64_t word) { return Make(Op::kConst, dtype, {}, {word}); }

UOp Graph::Param(int64_t slot, DType dtype, ShapeView dims, int64_t device) {
  std::vector<int64_t> arg{slot, device};
  arg.insert(arg.end(), dims.begin(), dims.end());
  return Make(Op::kParam, dtype, std::span<const UOp>{}, arg);
}

UOp Graph::Range(int64_t id, AxisType type, UOp end) {
  return Make(Op::kRange, DType::kVoid, {end}, {id, static_cast<int64_t>(type)});
}

bool SameShape(UOp a, UOp b) {
  return std::ranges::equal(a.shape(), b.shape()) &&
         std::ranges::equal(a.graph()->symbolic_dims(a.id()), b.graph()->symbolic_dims(b.id()));
}

int64_t NumElements(ShapeView shape) {
  int64_t n = 1;
  for (int64_t dim : shape) n *= dim;
  return n;
}

std::string ToString(ShapeView shape) { return StrCat("[", absl::StrJoin(shape, ", "), "]"); }

std::vector<uint32_t> PostOrder(UOp root) {
  struct Frame {
    uint32_t id;
    uint32_t next;
  };
  const Graph& graph = *root.graph();
  std::vector<uint32_t> order;
  std::vector<bool> seen(root.id() + 1, false);
  std::vector<Frame> stack{{root.id(), 0}};
  seen[root.id()] = true;
  while (!stack.empty()) {
    Frame& top = stack.back();
    const std::span<const uint32_t> src = graph.src(top.id);
    if (top.next == src.size()) {
      order.push_back(top.id);
      stack.pop_back();
      continue;
    }
    const uint32_t child = src[top.next++];
    if (!seen[child]) {
      seen[child] = true;
      stack.push_back({child, 0});
    }
  }
  return order;
}

UOp CopyLive(UOp root, Graph* dst) {
  const Graph& from = *root.graph();
  NodeMap<uint32_t> copied(from);
  std::vector<UOp> src;
  UOp last;
  for (uint32_t id : PostOrder(root)) {
    src.clear();
    for (uint32_t s : from.src(id)) src.push_back(dst->at(copied[s]));
    last = dst->Make(from.op(id), from.dtype(id), src, from.arg(id));
    if (!last.valid()) return last;
    copied[id] = last.id();
  }
  return last;
}

FrozenGraph Freeze(UOp root) {
  auto graph = std::make_shared<Graph>();
  const UOp copy = CopyLive(root, graph.get());
  return {std::move(graph), copy.id()};
}

}  // namespace telegrad
