// Every elementwise op of the tensor level in every element type it has, on edge values, against
// the reference interpreter's definitions: as a scalar and as a vector, on a target with the host's
// instructions and on one that has to emulate more. Bit for bit, but any NaN is any NaN, and what
// ops.def gives a bound in ulp may be that far from the reference.
#include <algorithm>
#include <bit>
#include <random>

#include "engine/ir/infer.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/lower.h"
#include "engine/reference/lane.h"
#include "tests/kernels/kernel_fixture.h"

namespace telegrad {
namespace {

using reference::FindLaneFn;
using reference::Lane;

constexpr int64_t kLanes = 8;

bool Admits(Op op, DType dtype) { return !IsStorage(dtype) && Allows(Info(op).elements, dtype); }

uint64_t Mask(DType dtype) {
  const int bits = Info(dtype).bits;
  return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}

// Zeros, ones, the ends of the range, what lies around powers of two, and random bits.
std::vector<Lane> EdgeValues(DType dtype, std::mt19937_64& random) {
  std::vector<Lane> out;
  const auto number = [&](double v) {
    out.push_back(static_cast<Lane>(ScalarToMemory(dtype, ScalarFromDouble(dtype, v))) &
                  Mask(dtype));
  };
  if (IsBool(dtype)) return {0, 1, 1, 0, 0, 0, 1, 1};
  const double inf = std::numeric_limits<double>::infinity();
  for (double v : {0.0, 1.0, 2.0, 3.0, 7.0, 8.0, 31.0, 32.0, 64.0, 100.0, 255.0, 65535.0, inf}) {
    number(v);
    number(-v);
  }
  const int bits = Info(dtype).bits;
  if (IsFloat(dtype)) {
    for (double v : {0.5, 1.5, 2.5, 1e-3, 448.0, 464.0, 1e5, 3e9, 1e19, 1e300, 1e-300, 1e-44}) {
      number(v);
      number(-v);
    }
    number(std::numeric_limits<double>::quiet_NaN());
    for (Lane code : {1, 2, 3}) {  // the smallest and the largest magnitudes of both signs
      out.push_back(code);
      out.push_back(Mask(dtype) - code + 1);
      out.push_back(Mask(dtype) / 2 - code + 1);
      out.push_back(Mask(dtype) / 2 + 1 + code);
    }
  } else {
    for (int i = 1; i <= 3; ++i) {
      out.push_back(Mask(dtype) / 2 + 2 - i);  // around the largest and least signed value
      out.push_back((~uint64_t{0} << (bits * i / 4)) & Mask(dtype));
    }
  }
  while (out.size() % kLanes != 0 || out.size() < 64) {
    out.push_back(random() >> (random() % 64) & Mask(dtype));
  }
  return out;
}

bool SameLane(DType dtype, Lane a, Lane b) {
  if (a == b || !IsFloat(dtype)) return a == b;
  const auto value = [&](Lane lane) {
    return std::bit_cast<double>(ScalarFromMemory(dtype, static_cast<int64_t>(lane)));
  };
  return std::isnan(value(a)) && std::isnan(value(b));
}

// How many values of the type lie between two of them.
uint64_t Distance(DType dtype, Lane a, Lane b) {
  const auto place = [&](Lane lane) {
    const auto sign = Mask(dtype) / 2 + 1;
    const auto magnitude = static_cast<int64_t>(lane & (sign - 1));
    return (lane & sign) != 0 ? -magnitude : magnitude;
  };
  const auto x = static_cast<uint64_t>(place(a)), y = static_cast<uint64_t>(place(b));
  return static_cast<int64_t>(x - y) < 0 ? y - x : x - y;
}

// By ops.def. The reference is within one ulp itself.
uint64_t AllowedUlp(Op op, DType dtype) {
  const bool wide = !IsNarrowFloat(dtype);
  if (op == Op::kPow) return wide ? 5 : 1;
  return op == Op::kExp2 || op == Op::kLog2 || op == Op::kSin ? (wide ? 3 : 1) : 0;
}

struct Case {
  Op op;
  DType to;
};

std::shared_ptr<Memory> UploadLanes(DType dtype, const std::vector<Lane>& lanes) {
  std::vector<uint8_t> bytes(lanes.size() * ByteSize(dtype));
  for (size_t i = 0; i < lanes.size(); ++i) {
    reference::WriteLane(dtype, lanes[i], bytes.data() + i * ByteSize(dtype));
  }
  return Upload(bytes);
}

// Runs all `cases` in one kernel on the columns `x` (the first three columns are the sources, as
// far as an op has some) and compares with the reference.
void Check(const std::vector<Case>& cases, DType from, const std::vector<std::vector<Lane>>& x) {
  const auto n = static_cast<int64_t>(x[0].size());
  ASSERT_EQ(n % kLanes, 0);
  for (const auto& [name, target] : TestTargets()) {
    if (name == "avx2") continue;  // between the two others
    for (bool vector : {false, true}) {
      ProgramBuilder b("dtypes");
      std::vector<UOp> out, in;
      for (const Case& c : cases) out.push_back(b.Argument(c.to, n));
      for (size_t k = 0; k < x.size(); ++k) in.push_back(b.Argument(from, n));
      const int64_t step = vector ? kLanes : 1;
      const UOp i = b.Open(AxisType::kLoop, n / step);
      UOp at = i;
      if (vector) at = b.Do(Op::kAdd, {b.Do(Op::kMul, {i, b.Index(step)}), b.Iota(step)});
      std::vector<UOp> values;
      for (UOp argument : in) values.push_back(b.Load(argument, at));
      for (size_t k = 0; k < cases.size(); ++k) {
        const auto& [op, to] = cases[k];
        const int sources = Info(op).min_src;
        const UOp y = sources == 1   ? b.Lowered(target, op, to, {values[0]})
                      : sources == 2 ? b.Lowered(target, op, to, {values[0], values[1]})
                                     : b.Lowered(target, op, to, {values[0], values[1], values[2]});
        ASSERT_TRUE(y.valid());
        b.Store(out[k], at, y);
      }
      b.Close(i);
      std::vector<std::shared_ptr<Memory>> memories;
      for (const Case& c : cases) memories.push_back(UploadLanes(c.to, std::vector<Lane>(n, 1)));
      for (const auto& column : x) memories.push_back(UploadLanes(from, column));
      ASSERT_EQ(RunOnce(b.Build(), memories, target), absl::OkStatus());
      for (size_t k = 0; k < cases.size(); ++k) {
        const auto& [op, to] = cases[k];
        const auto* bytes = static_cast<const uint8_t*>(memories[k]->host());
        const reference::LaneFn f = FindLaneFn(op, from, to);
        ASSERT_NE(f, nullptr) << Name(op) << " on " << Name(from);
        for (int64_t j = 0; j < n; ++j) {
          const Lane got = reference::ReadLane(to, bytes + j * ByteSize(to));
          const auto source = [&](size_t i) { return i < x.size() ? x[i][j] : 0; };
          const Lane want = f(source(0), source(1), source(2));
          if (SameLane(to, got, want)) continue;
          ASSERT_TRUE(IsFloat(to) && Distance(to, got, want) <= AllowedUlp(op, to))
              << Name(op) << " of " << Name(from) << " to " << Name(to)
              << (vector ? " vector" : " scalar") << " on " << name << ": got " << std::hex << got
              << ", expected " << want << " of " << source(0) << ", " << source(1) << ", "
              << source(2);
        }
      }
    }
  }
}

class DTypes : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(seed_)); }
  const uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
};

TEST_P(DTypes, Ops) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  const DType dtype = GetParam();
  if (IsStorage(dtype)) return;
  std::vector<Case> unary, others;
  for (const OpInfo& info : AllOps()) {
    const bool separate = info.op == Op::kCast || info.op == Op::kBitcast || info.op == Op::kWhere;
    if (!Is(info.op, kAlu) || !IsAt(info.op, kTensorLevel) || separate) continue;
    if (!Admits(info.op, dtype)) continue;
    const DType to = info.type_rule == TypeRule::kCompare ? DType::kBool : dtype;
    (info.min_src == 1 ? unary : others).push_back({info.op, to});
  }
  const std::vector<Lane> edges = EdgeValues(dtype, random_);
  if (!unary.empty()) Check(unary, dtype, {edges});
  std::vector<Lane> x, y, z;
  for (Lane a : edges) {
    for (Lane b : edges) {
      x.push_back(a);
      y.push_back(b);
      z.push_back(edges[random_() % edges.size()]);
    }
  }
  Check(others, dtype, {x, y, z});
}

TEST_P(DTypes, Casts) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  const DType from = GetParam();
  std::vector<Case> cases;
  for (const DTypeInfo& to : AllDTypes().subspan(1)) {
    if (IsPacked(to.dtype)) continue;
    cases.push_back({Op::kCast, to.dtype});
    const bool to_bool = IsBool(to.dtype) && !IsBool(from);  // is no bitcast
    if (to.bits == Info(from).bits && !to_bool) cases.push_back({Op::kBitcast, to.dtype});
  }
  // Of types of at most 16 bits all values, of others also those around the codes of narrow floats
  // and the midpoints between them.
  std::vector<Lane> x = EdgeValues(from, random_);
  if (Info(from).bits <= 16 && !IsBool(from)) {
    x.clear();
    for (Lane code = 0; code <= Mask(from); ++code) x.push_back(code);
  } else if (!IsBool(from)) {
    for (DType narrow : {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3, DType::kFloat8E5M2,
                         DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2Fnuz, DType::kFloat8E8M0}) {
      for (int i = 0; i < 200; ++i) {
        const auto code = static_cast<int64_t>(random_() & Mask(narrow));
        const double a = std::bit_cast<double>(ScalarFromMemory(narrow, code));
        const double c = std::bit_cast<double>(ScalarFromMemory(narrow, code ^ 1));
        for (double v : {a, (a + c) / 2}) {
          const Lane lane =
              static_cast<Lane>(ScalarToMemory(from, ScalarFromDouble(from, v))) & Mask(from);
          for (int step : {-1, 0, 1}) x.push_back((lane + static_cast<Lane>(step)) & Mask(from));
        }
      }
    }
    while (x.size() % kLanes != 0) x.push_back(0);
  }
  Check(cases, from, {x});
}

// Selection keeps the bits, of a NaN, too.
TEST(NarrowFloats, WhereKeepsTheBits) {
  constexpr int64_t kSize = 256;
  const DType types[] = {DType::kFloat16,    DType::kBFloat16,       DType::kFloat8E4M3,
                         DType::kFloat8E5M2, DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2Fnuz,
                         DType::kFloat8E8M0};
  for (int64_t step : {int64_t{1}, kLanes}) {
    for (DType dtype : types) {
      std::vector<Lane> condition, x, y;
      for (int64_t k = 0; k < kSize; ++k) {
        condition.push_back(k % 3 == 0);
        x.push_back(static_cast<Lane>(k * 257) & Mask(dtype));
        y.push_back(static_cast<Lane>(~k * 257) & Mask(dtype));
      }
      ProgramBuilder b("where");
      const UOp out = b.Argument(dtype, kSize), c = b.Argument(DType::kBool, kSize),
                p = b.Argument(dtype, kSize), q = b.Argument(dtype, kSize);
      const UOp i = b.Open(AxisType::kLoop, kSize / step);
      UOp at = i;
      if (step > 1) at = b.Do(Op::kAdd, {b.Do(Op::kMul, {i, b.Index(step)}), b.Iota(step)});
      b.Store(out, at, b.Do(Op::kWhere, {b.Load(c, at), b.Load(p, at), b.Load(q, at)}));
      b.Close(i);
      const auto result = UploadLanes(dtype, std::vector<Lane>(kSize, 0));
      ASSERT_EQ(RunOnce(b.Build(),
                        {result, UploadLanes(DType::kBool, condition), UploadLanes(dtype, x),
                         UploadLanes(dtype, y)},
                        HostTarget(1)),
                absl::OkStatus());
      const auto* bytes = static_cast<const uint8_t*>(result->host());
      for (int64_t k = 0; k < kSize; ++k) {
        ASSERT_EQ(reference::ReadLane(dtype, bytes + k * ByteSize(dtype)),
                  condition[k] != 0 ? x[k] : y[k])
            << Name(dtype) << " " << k;
      }
    }
  }
}

// Ones, so many that the type's own sum would stop growing: a REDUCE folds in f32.
TEST(NarrowFloats, ReduceFoldsInF32) {
  const std::pair<DType, int64_t> cases[] = {
      {DType::kFloat16, 4096},       {DType::kBFloat16, 1024},   {DType::kFloat8E4M3, 128},
      {DType::kFloat8E4M3Fnuz, 128}, {DType::kFloat8E5M2, 1024}, {DType::kFloat8E5M2Fnuz, 1024}};
  for (const auto& [dtype, n] : cases) {
    Graph graph;
    const UOp range = graph.Range(0, AxisType::kReduce, graph.Index(n));
    const UOp in = graph.Param(1, dtype, Shape{n}), out = graph.Param(0, dtype, Shape{1});
    const UOp value = graph.Make(Op::kLoad, {graph.Make(Op::kIndex, {in, range})});
    const UOp sum = graph.Make(Op::kReduce, DType::kVoid, {value, range},
                               {static_cast<int64_t>(ReduceKind::kAdd)});
    const UOp to = graph.Make(Op::kIndex, {out, graph.Index(0)});
    const UOp sink = graph.Make(Op::kSink, {graph.Make(Op::kStore, {to, sum})});
    ASSERT_TRUE(sink.valid()) << graph.status();
    const auto code = [dtype = dtype](double v) {
      return static_cast<Lane>(ScalarToMemory(dtype, ScalarFromDouble(dtype, v)));
    };
    for (const auto& [name, target] : TestTargets()) {
      Budget budget;
      const auto program = Lower(Freeze(sink), target, "sum", &budget);
      ASSERT_TRUE(program.ok()) << program.status();
      const auto result = UploadLanes(dtype, {0});
      const auto ones = UploadLanes(dtype, std::vector<Lane>(n, code(1)));
      ASSERT_EQ(RunOnce(*program, {result, ones}, target), absl::OkStatus());
      EXPECT_EQ(reference::ReadLane(dtype, static_cast<const uint8_t*>(result->host())),
                code(static_cast<double>(n)))
          << Name(dtype) << " on " << name;
    }
  }
}

std::vector<DType> NotPacked() {
  std::vector<DType> out;
  for (const DTypeInfo& info : AllDTypes().subspan(1)) {
    if (!IsPacked(info.dtype)) out.push_back(info.dtype);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, DTypes, testing::ValuesIn(NotPacked()),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace telegrad
