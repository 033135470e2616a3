// A pool of values grows by one op at a time; a table says which ops there are and how often each
// is tried. What the op table forbids is skipped.
#include "tests/conformance/random_graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/scalar.h"

namespace telegrad::testing {
namespace {

constexpr int64_t kMaxElements = 600;

// What is known about a value besides its type and shape.
struct Facts {
  bool exact = true;
  bool raw = false;  // bits of an input, moved around: no NaN that an op has made
};

class Maker {
 public:
  Maker(std::mt19937_64& rng, Graph* graph, Vocabulary vocabulary)
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
  using Way = UOp (Maker::*)();
  struct Row {
    Way make;
    int weight;
    bool plain;
  };
  static const Row kRows[];

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
  Facts Of(UOp u) const {
    const auto it = facts_.find(u.id());
    return it == facts_.end() ? Facts{} : it->second;
  }
  UOp Note(UOp u, Facts facts) {
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

  UOp NewSlot(DType dtype, ShapeView shape, Facts after = {}) {
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
  absl::flat_hash_map<uint32_t, Facts> facts_;
  RandomGraph out_;
};

const Maker::Row Maker::kRows[] = {
    {&Maker::Input, 4, true},     {&Maker::Constant, 2, true},  {&Maker::Iota, 2, true},
    {&Maker::Movement, 12, true}, {&Maker::Reduce, 4, true},    {&Maker::Gather, 4, true},
    {&Maker::Convert, 4, true},   {&Maker::Keep, 1, true},      {&Maker::Select, 3, true},
    {&Maker::Unary, 3, true},     {&Maker::Binary, 9, true},    {&Maker::Cat, 3, false},
    {&Maker::Scatter, 3, false},  {&Maker::Inexact, 6, false},  {&Maker::Bitcast, 3, false},
    {&Maker::Threefry, 1, false}, {&Maker::Sharded, 2, false},  {&Maker::Call, 2, false},
    {&Maker::Loop, 2, false},     {&Maker::Symbolic, 2, false}, {&Maker::DeviceScalar, 1, false},
};

RandomGraph Maker::Make(int size) {
  for (int i = 0; i < 3; ++i) pool_.push_back(Input());
  int total = 0;
  for (const Row& row : kRows) total += all_ || row.plain ? row.weight : 0;
  for (int tries = 0; static_cast<int>(pool_.size()) < size && tries < 20 * size; ++tries) {
    int64_t at = Below(total);
    const Row* row = kRows;
    for (;; ++row) {
      if (!all_ && !row->plain) continue;
      at -= row->weight;
      if (at < 0) break;
    }
    const UOp u = (this->*row->make)();
    if (u.valid() && NumElements(u.shape()) <= 2 * kMaxElements) pool_.push_back(u);
    (void)g_.TakeStatus();
  }
  std::vector<UOp> stores;
  MaybeUpdateInput(&stores);
  const int outputs = 1 + static_cast<int>(Below(3));
  for (int i = 0; i < outputs; ++i) {
    const auto n = static_cast<int64_t>(pool_.size());
    const UOp value = pool_[n - 1 - Below(std::min<int64_t>(n, 6))];
    const UOp target = NewSlot(value.dtype(), value.shape(), {.exact = Of(value).exact});
    stores.push_back(g_.Make(Op::kStore, {target, value}));
  }
  out_.sink = g_.Make(Op::kSink, DType::kVoid, stores);
  return std::move(out_);
}

UOp Maker::Move(UOp x) {
  const ShapeView from = x.shape();
  const auto rank = static_cast<int64_t>(from.size());
  std::vector<int64_t> arg;
  switch (Below(6)) {
    case 0: {  // split or join
      Shape to(from.begin(), from.end());
      if (rank > 0 && Chance(2)) {
        const int64_t axis = Below(rank);
        for (int64_t d : {2, 3, 5}) {
          if (to[axis] % d != 0 || to[axis] == 0) continue;
          to[axis] /= d;
          to.insert(to.begin() + axis, d);
          break;
        }
      } else {
        to = {NumElements(from)};
      }
      return g_.Make(Op::kReshape, {x}, to);
    }
    case 1: {
      Shape with_one(from.begin(), from.end());
      const int64_t at = Below(rank + 1);
      with_one.insert(with_one.begin() + at, 1);
      const UOp r = g_.Make(Op::kReshape, {x}, with_one);
      with_one[at] = 1 + Below(5);
      if (NumElements(with_one) > kMaxElements) return {};
      return g_.Make(Op::kExpand, {r}, with_one);
    }
    case 2:
      for (int64_t i = 0; i < rank; ++i) arg.push_back(i);
      std::shuffle(arg.begin(), arg.end(), rng_);
      return g_.Make(Op::kPermute, {x}, arg);
    case 3:
      for (int64_t i = 0; i < rank; ++i) {
        if (Chance(2)) arg.push_back(i);
      }
      return g_.Make(Op::kFlip, {x}, arg);
    case 4:
      for (int64_t d : from) {
        const int64_t offset = Below(3);
        arg.push_back(offset);
        arg.push_back(offset + d + Below(3));
      }
      return g_.Make(Op::kPad, {x}, arg);
    default:
      for (int64_t d : from) {
        const int64_t begin = Below(d + 1), length = d > begin ? 1 + Below(d - begin) : 0;
        arg.push_back(begin);
        arg.push_back(length);
      }
      return g_.Make(Op::kShrink, {x}, arg);
  }
}

UOp Maker::Reduce() {
  const UOp x = PickNumber();
  if (!x.valid()) return {};
  std::vector<int64_t> arg{Below(3)};
  // Products of many elements overflow floats into inf and NaN at different points: keep them
  // short.
  if (arg[0] == 1 && IsFloat(x.dtype()) && NumElements(x.shape()) > 16) arg[0] = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(x.shape().size()); ++i) {
    if (Chance(2)) arg.push_back(i);
  }
  return Note(g_.Make(Op::kReduce, {x}, arg), {.exact = !IsFloat(x.dtype()) || arg[0] == 2});
}

UOp Maker::Gather() {
  const UOp x = Pick(), index = PickExact();
  if (!index.valid() || x.shape().empty() || !IsInt(index.dtype())) return {};
  if (NumElements(x.shape()) * NumElements(index.shape()) > kMaxElements) return {};
  return Note(g_.Make(Op::kGather, {x, index}), {.exact = Of(x).exact});
}

UOp Maker::Scatter() {
  const UOp x = PickExact();
  const UOp index = PickWhere([&](UOp u) { return Of(u).exact && IsInt(u.dtype()); });
  if (!x.valid() || !index.valid() || x.shape().empty()) return {};
  Shape dims(index.shape().begin(), index.shape().end());
  dims.insert(dims.end(), x.shape().begin() + 1, x.shape().end());
  if (NumElements(dims) > kMaxElements) return {};
  const UOp rows = NewSlot(x.dtype(), dims);
  const bool number = !IsStorage(x.dtype()) && !IsBool(x.dtype());
  return g_.Make(Op::kScatter, DType::kVoid, {x, index, rows}, {number ? Below(5) : 0});
}

UOp Maker::Cat() {
  const UOp x = Pick();
  if (x.shape().empty()) return {};
  const int64_t axis = Below(static_cast<int64_t>(x.shape().size()));
  std::vector<UOp> src{x};
  for (int64_t i = 1 + Below(3); i > 0; --i) {
    Shape dims(x.shape().begin(), x.shape().end());
    dims[axis] = Below(4);
    src.push_back(Chance(2) && NumElements(dims) > 0 ? NewSlot(x.dtype(), dims) : x);
  }
  std::shuffle(src.begin(), src.end(), rng_);
  const int64_t arg[] = {axis};
  return Note(g_.Make(Op::kCat, DType::kVoid, src, arg), {.exact = Of(x).exact});
}

UOp Maker::Select() {
  const UOp x = PickExact();
  if (!x.valid()) return {};
  UOp c = Like(x);
  if (IsStorage(x.dtype())) {
    c = g_.Make(Op::kCmpLt, {Cast(c, DType::kFloat32), Cast(x, DType::kFloat32)});
  } else {
    c = g_.Make(Op::kCmpLt, {c, x});
  }
  return g_.Make(Op::kWhere, {c, x, Like(x)});
}

UOp Maker::Unary() {
  constexpr Op kOps[] = {Op::kNeg, Op::kSqrt, Op::kRecip, Op::kTrunc, Op::kFloor};
  const UOp x = PickNumber();
  return x.valid() ? g_.Make(OneOf(kOps), {x}) : x;
}

UOp Maker::Binary() {
  constexpr Op kOps[] = {Op::kAdd,   Op::kAdd,   Op::kSub,      Op::kSub,      Op::kMul,
                         Op::kMul,   Op::kMax,   Op::kFloorDiv, Op::kFloorMod, Op::kCmpLt,
                         Op::kCmpEq, Op::kCmpNe, Op::kAnd,      Op::kOr,       Op::kXor,
                         Op::kShl,   Op::kShr,   Op::kFDiv,     Op::kCDiv,     Op::kCMod};
  const UOp x = PickNumber();
  if (!x.valid()) return x;
  const Op op = OneOf(kOps);
  if (!all_ && (op == Op::kCDiv || op == Op::kCMod)) return {};
  if (all_ && op == Op::kMul && Chance(2)) return g_.Make(Op::kMulAcc, {x, Like(x), Like(x)});
  return g_.Make(op, {x, Like(x)});
}

UOp Maker::Inexact() {
  constexpr Op kOps[] = {Op::kExp2, Op::kLog2, Op::kSin, Op::kPow};
  const UOp x = PickNumber();
  if (!x.valid() || !IsFloat(x.dtype())) return {};
  const Op op = OneOf(kOps);
  const UOp out = op == Op::kPow ? g_.Make(op, {x, Like(x)}) : g_.Make(op, {x});
  return Note(out, {.exact = false});
}

UOp Maker::Convert() {
  const UOp x = PickExact();
  return x.valid() ? Cast(x, AnyDType()) : x;
}

UOp Maker::Bitcast() {
  // The bits of a NaN that an op makes are not defined.
  const UOp x = PickWhere([&](UOp u) { return Of(u).raw || (Of(u).exact && !IsFloat(u.dtype())); });
  return x.valid() ? g_.Make(Op::kBitcast, AnyDType(), {x}) : x;
}

UOp Maker::Sharded() {
  const UOp x = PickNumber();
  if (!x.valid() || IsBool(x.dtype())) return {};
  const auto to = [&](UOp u, std::vector<int64_t> devices) {
    return g_.Make(Op::kCopy, {u}, devices);
  };
  UOp both = to(x, {0, 1});
  if (Chance(2)) both = g_.Make(Op::kMStack, {x, to(Like(x), {1})});
  const UOp c = g_.ConstWord(x.dtype(), Word(x.dtype()));
  if (Chance(2)) both = g_.Make(Op::kAdd, {both, c});
  bool exact = true;
  if (Chance(3)) {
    const int64_t kind[] = {Below(3)};
    exact = !IsNarrowFloat(x.dtype());
    both = g_.Make(Op::kAllReduce, {both}, kind);
  } else if (Chance(2) && !x.shape().empty()) {
    both = g_.Make(Op::kUnshard, {both}, std::vector<int64_t>{Below(x.shape().size())});
  }
  if (!both.valid()) return both;
  const UOp one = g_.Make(Op::kMSelect, DType::kVoid, {both}, {Below(2)});
  return Note(to(one, {0}), {.exact = exact});
}

// A few exact ops over ARGs that stand for `args`, from number `first` on; a TUPLE of as many
// values of the same types.
UOp Maker::Body(const std::vector<UOp>& args, int first) {
  std::vector<UOp> values;
  for (size_t i = 0; i < args.size(); ++i) {
    std::vector<int64_t> arg{static_cast<int64_t>(i) + first, 0};
    arg.insert(arg.end(), args[i].shape().begin(), args[i].shape().end());
    values.push_back(g_.Make(Op::kArg, args[i].dtype(), std::span<const UOp>{}, arg));
  }
  std::vector<UOp> src = values;
  for (int64_t steps = 1 + Below(4); steps > 0; --steps) {
    UOp& to = values[Below(values.size())];
    const UOp from = src[Below(src.size())];
    UOp next = to;
    if (IsStorage(to.dtype()) || IsBool(to.dtype()) || !to.valid() || !from.valid()) continue;
    if (from.dtype() == to.dtype() && std::ranges::equal(from.shape(), to.shape())) {
      constexpr Op kOps[] = {Op::kAdd, Op::kSub, Op::kMax};
      next = g_.Make(OneOf(kOps), {to, from});
    } else if (first == 1 && Chance(2)) {  // the iteration
      const UOp i = g_.Make(Op::kArg, DType::kInt64, {}, {0, 0});
      next = g_.Make(Op::kAdd, {to, g_.Make(Op::kCast, to.dtype(), {i})});
    } else {
      next = g_.Make(Op::kNeg, {to});
    }
    if (next.valid()) to = next;
  }
  return g_.Make(Op::kTuple, DType::kVoid, values);
}

UOp Maker::Call() {
  std::vector<UOp> src;
  for (int64_t n = 1 + Below(3); n > 0; --n) src.push_back(Chance(3) ? Input() : PickExact());
  if (std::ranges::any_of(src, [](UOp u) { return !u.valid(); })) return {};
  src.insert(src.begin(), Body(src, 0));
  const UOp call = g_.Make(Op::kCall, DType::kVoid, src);
  return g_.Make(Op::kGetTuple, DType::kVoid, {call}, {Below(src.size() - 1)});
}

UOp Maker::Loop() {
  std::vector<UOp> src;
  for (int64_t n = 1 + Below(2); n > 0; --n) src.push_back(PickExact());
  if (std::ranges::any_of(src, [](UOp u) { return !u.valid(); })) return {};
  const UOp body = Body(src, 1);
  UOp trips = g_.Index(Below(5) - 1);
  if (Chance(2)) trips = Chance(2) ? DeviceScalar() : Variable(0, 4, 1, Below(5));
  src.insert(src.begin(), {body, trips});
  if (!trips.valid() || trips.vmax() > 8) return {};
  const UOp loop = g_.Make(Op::kLoop, DType::kVoid, src);
  return g_.Make(Op::kGetTuple, DType::kVoid, {loop}, {Below(src.size() - 2)});
}

UOp Maker::Variable(int64_t min, int64_t max, int64_t multiple, int64_t value) {
  const auto id = static_cast<int64_t>(out_.variables.size());
  out_.variables.push_back({id, value});
  return g_.Make(Op::kVar, DType::kVoid, {}, {id, min, max, multiple});
}

UOp Maker::DeviceScalar() {
  const UOp x = PickWhere(
      [&](UOp u) { return Of(u).exact && IsInt(u.dtype()) && NumElements(u.shape()) == 1; });
  const UOp scalar = x.valid() ? g_.Make(Op::kReshape, {x}, Shape{}) : NewSlot(DType::kInt32, {});
  const int64_t multiple = 1 + Below(2);
  return g_.Make(Op::kVar, DType::kVoid, {scalar}, {0, 0, 3 * multiple, multiple});
}

// A part of a size that the run chooses, computed with, and brought back to a fixed size.
UOp Maker::Symbolic() {
  const UOp x = PickNumber();
  if (!x.valid() || x.shape().empty() || x.shape()[0] < 2) return {};
  const int64_t n = x.shape()[0];
  const UOp size = Variable(1, n, 1, 1 + Below(n));
  std::vector<int64_t> part{0, -2};
  for (const int64_t d : x.shape().subspan(1)) part.insert(part.end(), {0, d});
  UOp y = g_.Make(Op::kShrink, DType::kVoid, std::vector<UOp>{x, size}, part);
  if (IsInt(x.dtype()) && x.shape().size() == 1) {
    const UOp iota =
        g_.Make(Op::kIota, DType::kInt64, std::vector<UOp>{size}, std::vector<int64_t>{-1});
    y = g_.Make(Op::kXor, {y, Cast(iota, x.dtype())});
  } else {
    y = g_.Make(Op::kMax, {y, y});
  }
  if (!y.valid()) return y;
  if (Chance(2)) {
    const int64_t max[] = {static_cast<int64_t>(ReduceKind::kMax), 0};
    return IsBool(y.dtype()) ? UOp() : g_.Make(Op::kReduce, {y}, max);
  }
  std::vector<int64_t> whole{0, n};
  for (const int64_t d : x.shape().subspan(1)) whole.insert(whole.end(), {0, d});
  return g_.Make(Op::kPad, {y}, whole);
}

void Maker::MaybeUpdateInput(std::vector<UOp>* stores) {
  if (!Chance(2)) return;
  const UOp param = inputs_[Below(inputs_.size())];
  UOp target = param;
  for (int i = 0; i < 2 && !IsPacked(param.dtype()); ++i) {
    const UOp view = Move(target);
    if (view.valid() && !view.is(Op::kPad) && !view.is(Op::kExpand)) target = view;
    (void)g_.TakeStatus();
  }
  const UOp value = Like(target);
  if (!value.valid() || NumElements(target.shape()) == 0) return;
  const UOp store = g_.Make(Op::kStore, {target, value});
  if (!store.valid()) return;
  stores->push_back(store);
  if (!all_ || Chance(2)) return;
  const UOp after = g_.Make(Op::kAfter, {param, store});
  const UOp read = Chance(2) ? after : Move(after);
  (void)g_.TakeStatus();
  if (read.valid() && NumElements(read.shape()) <= kMaxElements) pool_.push_back(read);
}

}  // namespace

std::vector<VarValue> VariablesOf(UOp sink, std::span<const VarValue> variables) {
  std::set<int64_t> ids;
  for (const uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (u.is(Op::kVar) && u.num_src() == 0) ids.insert(u.arg(0));
  }
  std::vector<VarValue> out;
  for (const VarValue& v : variables) {
    if (ids.contains(v.id)) out.push_back(v);
  }
  return out;
}

RandomGraph MakeRandomGraph(std::mt19937_64& rng, int size, Graph* graph, Vocabulary vocabulary) {
  return Maker(rng, graph, vocabulary).Make(size);
}

}  // namespace telegrad::testing
