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

constexpr size_t kFirstTableSize = 64;

// Clients choose the argument words, so the table's hash is keyed: without the key they cannot
// construct many nodes of one hash value. Ids do not depend on the hash.
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

// The exclusive or of both halves of a 128-bit product.
uint64_t Fold(uint64_t x, uint64_t y) {
  const auto product = static_cast<unsigned __int128>(x) * y;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint32_t HashNode(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg) {
  const HashKey& key = Key();
  uint64_t h = Fold(key.a ^ src.size(),
                    key.b ^ (static_cast<uint64_t>(op) << 8 | static_cast<uint64_t>(dtype)));
  for (UOp s : src) h = Fold(h ^ key.a, key.b ^ s.id());
  for (int64_t word : arg) h = Fold(h ^ key.a, key.b ^ static_cast<uint64_t>(word));
  return static_cast<uint32_t>(h);
}

constexpr int64_t kNanWord = std::bit_cast<int64_t>(std::numeric_limits<double>::quiet_NaN());

bool IsNan(int64_t word) { return std::isnan(std::bit_cast<double>(word)); }

// `words`, which may lie in `pool` itself, at the end of it.
void AppendWords(std::span<const int64_t> words, Pool<int64_t>* pool) {
  const bool inside = words.data() >= pool->data() && words.data() < pool->data() + pool->size();
  const ptrdiff_t from = inside ? words.data() - pool->data() : 0;
  int64_t* const to = pool->Extend(words.size());
  std::copy_n(inside ? pool->data() + from : words.data(), words.size(), to);
}

uint8_t Tag(uint32_t hash) { return static_cast<uint8_t>(hash >> 25 | 0x80); }

}  // namespace

Graph::Graph() : places_(1) { SetTableSize(kFirstTableSize); }

size_t Graph::Locate(uint32_t hash, const NodeKey& key) const {
  const size_t mask = tags_.size() - 1;
  size_t at = hash & mask;
  for (; tags_[at] != 0; at = (at + 1) & mask) {
    if (tags_[at] != Tag(hash)) continue;
    const uint32_t id = table_[at];
    const Node& n = nodes_[id];
    if (n.op != key.op || n.num_src != key.src.size() || n.num_arg != key.arg.size()) continue;
    // The dtype is part of a node's identity only where the caller gives it; else the sources imply
    // it.
    if (n.dtype != key.dtype && Info(key.op).type_rule == TypeRule::kGiven) continue;
    if (std::ranges::equal(src(id), key.src, {}, {}, &UOp::id) &&
        std::ranges::equal(arg(id), key.arg)) {
      break;
    }
  }
  return at;
}

void Graph::SetTableSize(size_t slots) {
  tags_.assign(slots, 0);
  table_.resize(slots);
  const size_t mask = slots - 1;
  for (uint32_t id = 0; id < size(); ++id) {
    size_t at = hashes_[id] & mask;
    while (tags_[at] != 0) at = (at + 1) & mask;
    tags_[at] = Tag(hashes_[id]);
    table_[at] = id;
  }
}

void Graph::Reserve(uint32_t nodes) {
  nodes_.Reserve(nodes);
  hashes_.Reserve(nodes);
  const size_t slots = std::bit_ceil(2 * (size_t{nodes} + 1));
  if (slots > tags_.size()) SetTableSize(slots);
}

uint32_t Graph::InternShape(ShapeView shape, std::span<const UOp> src) {
  if (shape.empty()) return 0;
  // Most nodes have the shape of a source; the pool holds each of those once.
  for (UOp s : src) {
    const Node& from = nodes_[s.id()];
    if (from.rank == shape.size() &&
        std::equal(shape.begin(), shape.end(), shape_pool_.data() + from.shape_begin)) {
      return from.shape_begin;
    }
  }
  const auto begin = static_cast<uint32_t>(shape_pool_.size());
  std::ranges::copy(shape, shape_pool_.Extend(shape.size()));
  return begin;
}

uint16_t Graph::InternPlace(const std::vector<int64_t>& devices) {
  const auto [it, added] = place_of_.try_emplace(devices, static_cast<uint16_t>(places_.size()));
  if (added) places_.push_back(devices);
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
  const uint32_t hash = HashNode(op, dtype, src, arg);
  __builtin_prefetch(&table_[hash & (tags_.size() - 1)], /*rw=*/1);
  const NodeKey key{op, dtype, src, arg};
  const size_t at = Locate(hash, key);
  if (tags_[at] != 0) return {this, table_[at]};

  Inferred inferred;
  if (absl::Status s = Infer(key, &inferred); !s.ok()) return Fail(std::move(s));
  if (!inferred.devices.empty()) {
    if (places_.size() > UINT16_MAX) {
      return Fail(ResourceExhausted(Name(op), ": more than ", UINT16_MAX, " lists of devices"));
    }
    inferred.place = InternPlace(inferred.devices);
  }
  const uint32_t id = size();
  if (budget_ != nullptr && id >= budget_->limits().expression) {
    return Fail(budget_->ExpressionError());
  }
  const Interval bounds = InferBounds(op, inferred.dtype, src, arg);
  const int like = inferred.like;
  const Node* const same = like >= 0 ? &nodes_[src[static_cast<size_t>(like)].id()] : nullptr;
  AppendWords(arg, &arg_pool_);  // before the shape: the words may be another node's dims
  const uint32_t shape = same != nullptr ? same->shape_begin : InternShape(inferred.shape, src);
  const size_t rank = same != nullptr ? same->rank : inferred.shape.size();
  uint32_t* const ids = src_pool_.Extend(src.size());
  for (size_t i = 0; i < src.size(); ++i) ids[i] = src[i].id();

  Node& node = *nodes_.Extend(1);  // field by field: a copy would wait for the stores
  node.bounds = bounds;
  node.src_begin = static_cast<uint32_t>(src_pool_.size() - src.size());
  node.arg_begin = static_cast<uint32_t>(arg_pool_.size() - arg.size());
  node.shape_begin = shape;
  node.num_arg = static_cast<uint32_t>(arg.size());
  node.num_src = static_cast<uint16_t>(src.size());
  node.place = inferred.place;
  node.rank = static_cast<uint8_t>(rank);
  node.op = op;
  node.dtype = inferred.dtype;
  hashes_.Add(hash);
  const std::span<const uint32_t> symbolic =
      like >= 0 ? symbolic_dims(src[static_cast<size_t>(like)].id())
                : std::span<const uint32_t>(inferred.symbolic);
  if (!symbolic.empty()) symbolic_[id] = std::vector(symbolic.begin(), symbolic.end());
  tags_[at] = Tag(hash);
  table_[at] = id;
  if (2 * (size() + 1) > table_.size()) SetTableSize(2 * table_.size());
  return {this, id};
}

int64_t Graph::bytes() const {
  constexpr size_t kSymbolicBytes = 96;  // of an entry of the map
  return static_cast<int64_t>(
      sizeof(Graph) + nodes_.bytes() + src_pool_.bytes() + arg_pool_.bytes() + shape_pool_.bytes() +
      hashes_.bytes() + tags_.size() * (sizeof(tags_[0]) + sizeof(table_[0])) +
      places_.size() * sizeof(places_[0]) + symbolic_.capacity() * kSymbolicBytes);
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
  const ShapeView x = a.shape(), y = b.shape();
  if (x.size() != y.size()) return false;
  return (x.data() == y.data() || std::ranges::equal(x, y)) &&
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
  const std::vector<uint32_t> order = PostOrder(root);
  dst->Reserve(dst->size() + static_cast<uint32_t>(order.size()));
  for (uint32_t id : order) {
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
