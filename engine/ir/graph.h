// The graph: an arena of interned nodes with one writer.
//
// A UOp is a handle {graph, id}; equal structure means equal id. A node's sources always have
// smaller ids, so creation order is a topological order, side tables are plain vectors (NodeMap)
// and a walk is a loop. The graph owns no buffers. A frozen graph (shared_ptr<const Graph>) may be
// read from any thread.
//
// Errors are sticky: a Make that breaks a rule of the op table records the first error and returns
// an invalid UOp, on which every further Make returns an invalid UOp at once. Check status() when
// done.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "engine/base/budget.h"
#include "engine/base/pool.h"
#include "engine/ir/op.h"
#include "engine/types/dtype.h"

namespace telegrad {

class Graph;
struct NodeKey;  // infer.h

using Shape = std::vector<int64_t>;
using ShapeView = std::span<const int64_t>;

inline constexpr uint32_t kStaticDim = 0xffffffff;

// Inclusive bounds of an integer or bool value; [INT64_MIN, INT64_MAX] when nothing is known. For a
// shaped value they hold for every element. Not tracked for floats and u64 above INT64_MAX (then:
// unknown).
struct Interval {
  int64_t lo = INT64_MIN;
  int64_t hi = INT64_MAX;
  bool known() const { return lo != INT64_MIN || hi != INT64_MAX; }
  bool constant() const { return lo == hi; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

class UOp {
 public:
  UOp() = default;
  UOp(const Graph* graph, uint32_t id) : graph_(graph), id_(id) {}

  bool valid() const { return graph_ != nullptr; }
  explicit operator bool() const { return valid(); }
  uint32_t id() const { return id_; }
  const Graph* graph() const { return graph_; }

  inline Op op() const;
  inline DType dtype() const;
  // The dims; of a symbolic one, its upper bound.
  inline ShapeView shape() const;
  // The scalar that computes a symbolic dim; invalid for a fixed one.
  inline UOp dim(int axis) const;
  inline bool symbolic() const;  // some dim is
  // The devices of a value's instances; empty: it can be anywhere. Equal lists have equal places.
  inline std::span<const int64_t> devices() const;
  inline uint16_t place() const;
  inline int num_src() const;
  inline UOp src(int i) const;
  inline std::span<const uint32_t> src_ids() const;
  inline std::span<const int64_t> arg() const;
  inline Interval bounds() const;

  bool is(Op o) const { return valid() && op() == o; }
  bool is_const() const { return is(Op::kConst); }

  // The words of an argument under the names and types that ArgFields gives them, each only of an
  // op whose argument has it; 0 where the UOp is invalid.
  int64_t const_word() const { return Word(ArgKind::kScalar, 0); }  // see scalar.h
  inline int64_t slot() const;                                      // PARAM, ARG, MBARRIER
  int64_t device() const { return Word(ArgKind::kParam, 1); }
  int64_t var_id() const { return Word(ArgKind::kVar, 0); }
  int64_t var_min() const { return Word(ArgKind::kVar, 1); }
  int64_t var_max() const { return Word(ArgKind::kVar, 2); }
  int64_t var_multiple() const { return Word(ArgKind::kVar, 3); }
  int64_t range_id() const { return Word(ArgKind::kRange, 0); }
  AxisType axis_type() const { return AxisType{Word(ArgKind::kRange, 1)}; }
  inline ReduceKind reduce_kind() const;                    // REDUCE, ALLREDUCE
  inline std::span<const int64_t> reduced_axes() const;     // REDUCE of tensors
  std::span<const int64_t> axes() const { return arg(); }   // PERMUTE, FLIP
  int64_t axis() const { return Word(ArgKind::kAxes, 0); }  // CAT, UNSHARD
  inline int64_t pair_offset(size_t axis) const;            // PAD, SHRINK
  inline int64_t pair_size(size_t axis) const;              // likewise
  ScatterKind scatter_kind() const { return ScatterKind{Word(ArgKind::kScatter, 0)}; }
  int64_t number() const { return Word(ArgKind::kNumber, 0); }  // GETTUPLE, MSELECT, WAIT, ...
  AddressSpace space() const { return AddressSpace{Word(ArgKind::kBuffer, 0)}; }
  int64_t buffer_slot() const { return Word(ArgKind::kBuffer, 1); }
  int64_t elements() const { return Word(ArgKind::kBuffer, 2); }
  Scope scope() const { return Scope{Word(ArgKind::kScope, 0)}; }
  int64_t first_warp() const { return Word(ArgKind::kRole, 0); }
  int64_t warps() const { return Word(ArgKind::kRole, 1); }
  int64_t arrivals() const { return Word(ArgKind::kMBarrier, 1); }
  int64_t box_rows() const { return Word(ArgKind::kBox, 0); }
  int64_t box_columns() const { return Word(ArgKind::kBox, 1); }
  int64_t to_stride() const { return Word(ArgKind::kBox, 2); }  // elements
  int64_t from_stride() const { return Word(ArgKind::kBox, 3); }
  inline const MmaInfo& mma() const;
  int64_t matrices() const { return Word(ArgKind::kMatrices, 0); }
  bool transposed() const { return Word(ArgKind::kMatrices, 1) != 0; }

  int64_t vmin() const { return bounds().lo; }
  int64_t vmax() const { return bounds().hi; }

  friend bool operator==(const UOp&, const UOp&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const UOp& u) {
    return H::combine(std::move(h), u.graph_, u.id_);
  }

 private:
  // Number `i` of an argument of this kind.
  inline int64_t Word(ArgKind kind, size_t i) const;

  const Graph* graph_ = nullptr;
  uint32_t id_ = 0;
};

class Graph {
 public:
  Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Adds or finds a node. `dtype` is read only where the op's TypeRule is kGiven. Sources must be
  // of this graph. Errors are sticky, see above.
  UOp Make(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg = {});
  UOp Make(Op op, DType dtype, std::initializer_list<UOp> src,
           std::initializer_list<int64_t> arg = {}) {
    return Make(op, dtype, std::span(src.begin(), src.size()), std::span(arg.begin(), arg.size()));
  }
  UOp Make(Op op, std::initializer_list<UOp> src, std::span<const int64_t> arg) {
    return Make(op, DType::kVoid, std::span(src.begin(), src.size()), arg);
  }
  UOp Make(Op op, std::initializer_list<UOp> src) { return Make(op, DType::kVoid, src); }

  UOp Const(DType dtype, int64_t value);      // of an integer value, wrapped or rounded to dtype
  UOp ConstFloat(DType dtype, double value);  // of a float value
  UOp ConstWord(DType dtype, int64_t word);   // of a word as const_word() gives it
  UOp Index(int64_t value) { return Const(DType::kInt64, value); }  // index arithmetic is i64
  UOp True() { return Const(DType::kBool, 1); }
  UOp Param(int64_t slot, DType dtype, ShapeView dims, int64_t device = 0);
  UOp Range(int64_t id, AxisType type, UOp end);

  // OK, or the first error of a Make. TakeStatus also resets it.
  const absl::Status& status() const { return status_; }
  absl::Status TakeStatus();
  // Records an error as Make would; the first one wins.
  UOp Fail(absl::Status status);

  // From now on a Make beyond the budget's limit of an expression's nodes fails. The budget
  // outlives the writing.
  void LimitSize(const Budget* budget) { budget_ = budget; }
  int64_t bytes() const;  // of memory
  // Reserves memory for that many nodes.
  void Reserve(uint32_t nodes);

  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  UOp at(uint32_t id) const { return {this, id}; }

  Op op(uint32_t id) const { return nodes_[id].op; }
  DType dtype(uint32_t id) const { return nodes_[id].dtype; }
  std::span<const uint32_t> src(uint32_t id) const {
    const Node& n = nodes_[id];
    return {src_pool_.data() + n.src_begin, n.num_src};
  }
  std::span<const int64_t> arg(uint32_t id) const {
    const Node& n = nodes_[id];
    return {arg_pool_.data() + n.arg_begin, n.num_arg};
  }
  ShapeView shape(uint32_t id) const {
    const Node& n = nodes_[id];
    return {shape_pool_.data() + n.shape_begin, n.rank};
  }
  Interval bounds(uint32_t id) const { return nodes_[id].bounds; }
  // By axis, kStaticDim or the node of the dim; empty where all dims are fixed.
  std::span<const uint32_t> symbolic_dims(uint32_t id) const {
    if (symbolic_.empty()) return {};
    const auto it = symbolic_.find(id);
    return it == symbolic_.end() ? std::span<const uint32_t>{} : it->second;
  }
  uint16_t place(uint32_t id) const { return nodes_[id].place; }
  std::span<const int64_t> devices(uint32_t id) const { return places_[place(id)]; }

 private:
  // What making a node touches lies together.
  struct Node {
    Interval bounds;
    uint32_t src_begin, arg_begin, shape_begin;  // in the pools
    uint32_t num_arg;
    uint16_t num_src;
    uint16_t place;
    uint8_t rank;
    Op op;
    DType dtype;
  };
  // The slot that holds the node, or the empty one where it belongs.
  size_t Locate(uint32_t hash, const NodeKey& key) const;
  void SetTableSize(size_t slots);
  // Where the shape begins in the pool.
  uint32_t InternShape(ShapeView shape, std::span<const UOp> src);
  uint16_t InternPlace(const std::vector<int64_t>& devices);

  Pool<Node> nodes_;
  Pool<uint32_t> src_pool_;
  Pool<int64_t> arg_pool_, shape_pool_;
  Pool<uint32_t> hashes_;  // by id
  // The intern table, open addressed by the hash's low bits. A tag is 0 where a slot is empty, else
  // bits of the hash: most other nodes differ in the tags, which stay in the processor's cache.
  std::vector<uint8_t> tags_;
  std::vector<uint32_t> table_;                                    // the id, where the tag is not 0
  absl::flat_hash_map<uint32_t, std::vector<uint32_t>> symbolic_;  // few nodes have an entry
  std::vector<std::vector<int64_t>> places_;                       // place 0: anywhere
  absl::flat_hash_map<std::vector<int64_t>, uint16_t> place_of_;
  const Budget* budget_ = nullptr;
  absl::Status status_;
};

// A failed Make returns an invalid node. Each accessor gives a harmless value for it, so that a
// computation can continue to its end and check the status there.
inline Op UOp::op() const { return valid() ? graph_->op(id_) : Op::kSink; }
inline DType UOp::dtype() const { return valid() ? graph_->dtype(id_) : DType::kVoid; }
inline ShapeView UOp::shape() const { return valid() ? graph_->shape(id_) : ShapeView(); }
inline UOp UOp::dim(int axis) const {
  if (!valid()) return {};
  const std::span<const uint32_t> dims = graph_->symbolic_dims(id_);
  if (dims.empty() || dims[axis] == kStaticDim) return {};
  return {graph_, dims[axis]};
}
inline bool UOp::symbolic() const { return valid() && !graph_->symbolic_dims(id_).empty(); }
inline std::span<const int64_t> UOp::devices() const {
  return valid() ? graph_->devices(id_) : std::span<const int64_t>();
}
inline uint16_t UOp::place() const { return valid() ? graph_->place(id_) : uint16_t{0}; }
inline int UOp::num_src() const { return static_cast<int>(src_ids().size()); }
inline UOp UOp::src(int i) const { return valid() ? UOp{graph_, graph_->src(id_)[i]} : UOp(); }
inline std::span<const uint32_t> UOp::src_ids() const {
  return valid() ? graph_->src(id_) : std::span<const uint32_t>();
}
inline std::span<const int64_t> UOp::arg() const {
  return valid() ? graph_->arg(id_) : std::span<const int64_t>();
}
inline int64_t UOp::Word(ArgKind kind, size_t i) const {
  if (!valid()) return 0;
  (void)kind;
#ifndef NDEBUG
  if (Info(op()).arg != kind) __builtin_trap();  // a word under another op's name
#endif
  return graph_->arg(id_)[i];
}
inline int64_t UOp::slot() const {
  return Word(is(Op::kMBarrier) ? ArgKind::kMBarrier : ArgKind::kParam, 0);
}
inline ReduceKind UOp::reduce_kind() const {
  return ReduceKind{Word(is(Op::kAllReduce) ? ArgKind::kKind : ArgKind::kReduce, 0)};
}
inline std::span<const int64_t> UOp::reduced_axes() const { return arg().subspan(1); }
inline int64_t UOp::pair_offset(size_t axis) const { return Word(ArgKind::kPairs, 2 * axis); }
inline int64_t UOp::pair_size(size_t axis) const { return Word(ArgKind::kPairs, 2 * axis + 1); }
inline const MmaInfo& UOp::mma() const {
  return AllMmas()[static_cast<size_t>(Word(ArgKind::kMma, 0))];
}
inline Interval UOp::bounds() const { return valid() ? graph_->bounds(id_) : Interval(); }

// A value per node of a graph, indexed by UOp. Grows when the graph has grown.
template <typename T>
class NodeMap {
 public:
  explicit NodeMap(const Graph& graph, T initial = T{})
      : values_(graph.size(), initial), initial_(initial) {}
  typename std::vector<T>::reference operator[](UOp u) { return (*this)[u.id()]; }
  typename std::vector<T>::reference operator[](uint32_t id) {
    if (id >= values_.size()) values_.resize(id + 1 + id / 2, initial_);
    return values_[id];
  }
  typename std::vector<T>::const_reference at(uint32_t id) const {
    return id < values_.size() ? values_[id] : initial_;
  }

 private:
  std::vector<T> values_;
  T initial_;
};

// A frozen graph and its root.
struct FrozenGraph {
  std::shared_ptr<const Graph> graph;
  uint32_t root_id = 0;
  UOp root() const { return {graph.get(), root_id}; }
};

// The same dims, symbolic ones included.
bool SameShape(UOp a, UOp b);
// The number of elements of a shape whose nodes passed Make (so it does not overflow).
int64_t NumElements(ShapeView shape);
std::string ToString(ShapeView shape);  // "[2, 3]"

// The nodes that `root` depends on, itself last, in post-order (sources in order, depth first).
// This is the canonical order: it depends on structure alone, not on creation order.
std::vector<uint32_t> PostOrder(UOp root);

// Copies the nodes that `root` needs into `dst` and returns the copied root.
UOp CopyLive(UOp root, Graph* dst);
// A fresh graph that holds only what `root` needs, frozen.
FrozenGraph Freeze(UOp root);

}  // namespace telegrad
