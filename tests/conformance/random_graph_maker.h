// The maker of random graphs, for the files that it is spread over: random_graph.cc has the table
// of ops and the pool, random_ops.cc the ops on values, random_bodies.cc functions, devices,
// variables.
#pragma once

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <random>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/scalar.h"
#include "tests/conformance/random_graph.h"

namespace telegrad::testing {

// What is known about a value besides its type and shape.
struct ValueFacts {
  bool exact = true;
  bool raw = false;  // bits of an input, moved around: no NaN that an op has made
};

class GraphMaker {
 public:
  GraphMaker(std::mt19937_64& rng, Graph* graph, Vocabulary vocabulary)
      : rng_(rng), g_(*graph), all_(vocabulary == Vocabulary::kAll) {
    for (const DTypeInfo& row : AllDTypes()) {
      if (row.dtype == DType::kVoid) continue;
      const bool plain = !IsStorage(row.dtype) && !IsNarrowFloat(row.dtype);
      if (all_ || plain) dtypes_.push_back(row.dtype);
    }
    for (const DType often : {DType::kFloat32, DType::kFloat32, DType::kInt32, DType::kInt64}) {
      dtypes_.push_back(often);
    }
  }

  RandomGraph Make(int size);

 private:
  using Way = UOp (GraphMaker::*)();
  struct Row {
    Way make;
    int weight;
    bool plain;
  };
  static const Row kRows[];
  static constexpr int64_t kMaxElements = 600;

  int64_t Below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  bool Chance(int64_t n) { return Below(n) == 0; }
  template <typename T, size_t N>
  T OneOf(const T (&items)[N]) {
    return items[Below(N)];
  }
  UOp Pick() { return pool_[Below(pool_.size())]; }
  template <typename Fits>
  UOp PickWhere(Fits fits) {
    for (int i = 0; i < 12; ++i) {
      const UOp u = Pick();
      if (fits(u)) return u;
    }
    return {};
  }
  UOp PickExact() {
    return PickWhere([&](UOp u) { return Of(u).exact; });
  }
  // A value that ALU ops take, made from a storage type if need be.
  UOp PickNumber() {
    UOp u = PickExact();
    if (u.valid() && IsStorage(u.dtype())) u = Cast(u, DType::kFloat32);
    return u;
  }
  ValueFacts Of(UOp u) const {
    const auto it = facts_.find(u.id());
    return it == facts_.end() ? ValueFacts{} : it->second;
  }
  UOp Note(UOp u, ValueFacts facts) {
    if (u.valid() && (!facts.exact || facts.raw)) facts_.try_emplace(u.id(), facts);
    return u;
  }
  DType AnyDType() { return dtypes_[Below(dtypes_.size())]; }

  Shape RandomShape() {
    Shape shape(Below(4));
    for (int64_t& d : shape) d = Chance(12) ? 1 : 1 + Below(9);
    if (NumElements(shape) > kMaxElements) shape = {17};
    return shape;
  }

  double Number() {
    constexpr double kSpecial[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e30, -1e-30, 255, 1e5};
    if (all_ && Chance(24)) return OneOf(kSpecial);
    return static_cast<double>(Below(33) - 16) / 8;
  }
  int64_t Word(DType dtype) {
    if (IsFloat(dtype)) {
      const double x = Number();
      return ScalarFromDouble(dtype, std::isnan(x) && !HasNan(dtype) ? 1.0 : x);
    }
    constexpr int64_t kSpecial[] = {INT64_MIN, INT64_MAX, -1, 0, 127, 128, 65535, 1 << 30};
    return ScalarFromInt(dtype, all_ && Chance(16) ? OneOf(kSpecial) : Below(23) - 7);
  }

  UOp NewSlot(DType dtype, ShapeView shape, ValueFacts after = {}) {
    const auto slot = static_cast<int64_t>(out_.slots.size());
    const int64_t n = NumElements(shape), bits = Info(dtype).bits;
    std::vector<uint8_t> bytes(BytesOf(dtype, n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t raw = ScalarToMemory(dtype, Word(dtype));
      if (IsPacked(dtype)) {
        bytes[i * bits / 8] |= static_cast<uint8_t>((raw & ((1 << bits) - 1)) << (i * bits % 8));
      } else {
        std::memcpy(bytes.data() + i * bits / 8, &raw, bits / 8);
      }
    }
    out_.slots.push_back(std::move(bytes));
    out_.dtypes.push_back(dtype);
    out_.exact.push_back(after.exact);
    return Note(g_.Param(slot, dtype, shape), {.raw = true});
  }

  UOp Input() {
    inputs_.push_back(NewSlot(AnyDType(), RandomShape()));
    return inputs_.back();
  }

  // A value of a shape and type that fits `like`, from the pool by views and casts.
  UOp Like(UOp like) {
    UOp u = PickExact();
    if (!u.valid() || !std::ranges::equal(u.shape(), like.shape())) {
      if (u.valid() && NumElements(u.shape()) == NumElements(like.shape())) {
        u = g_.Make(Op::kReshape, {u}, like.shape());
      } else {
        u = NewSlot(like.dtype(), like.shape());
      }
    }
    return Cast(u, like.dtype());
  }
  UOp Cast(UOp u, DType to) {
    if (!u.valid() || u.dtype() == to) return u;
    return g_.Make(Op::kCast, to, {u});
  }

  UOp Constant() {
    const DType dtype = AnyDType();
    return g_.ConstWord(dtype, Word(dtype));
  }
  UOp Iota() {
    constexpr DType kTypes[] = {DType::kInt32, DType::kInt64, DType::kUInt8, DType::kInt16};
    return g_.Make(Op::kIota, OneOf(kTypes), {}, {1 + Below(20)});
  }
  UOp Movement() {
    const UOp x = Pick();
    return Note(Move(x), Of(x));
  }
  UOp Move(UOp x);
  UOp Reduce();
  UOp Gather();
  UOp Scatter();
  UOp Cat();
  UOp Select();
  UOp Unary();
  UOp Binary();
  UOp Inexact();
  UOp Convert();
  UOp Bitcast();
  UOp Keep() {
    const UOp x = Pick();
    return Note(g_.Make(Chance(2) ? Op::kContiguous : Op::kDetach, {x}), Of(x));
  }
  UOp Threefry() {
    const UOp x = PickExact();
    if (!x.valid() || IsStorage(x.dtype())) return {};
    const UOp key = g_.Const(DType::kUInt64, Below(1 << 20));
    return g_.Make(Op::kThreefry, {Cast(x, DType::kUInt64), key});
  }
  UOp Sharded();
  UOp Call();
  UOp Loop();
  UOp Body(const std::vector<UOp>& args, int first);
  UOp Variable(int64_t min, int64_t max, int64_t multiple, int64_t value);
  UOp Symbolic();
  UOp DeviceScalar();

  // Sometimes an input is overwritten in place, wholly or in part, and read again after that.
  void MaybeUpdateInput(std::vector<UOp>* stores);

  std::mt19937_64& rng_;
  Graph& g_;
  const bool all_;
  std::vector<DType> dtypes_;
  std::vector<UOp> pool_, inputs_;
  absl::flat_hash_map<uint32_t, ValueFacts> facts_;
  RandomGraph out_;
};

}  // namespace telegrad::testing
