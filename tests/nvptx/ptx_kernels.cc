// Binds the variables of hand-written programs to the values of their problems, and builds one
// kernel for each type with all elementwise ops on pairs of edge values and random bits.
#include "tests/nvptx/ptx_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "absl/container/flat_hash_set.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/ir/infer.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/render/render.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/algebra.h"
#include "engine/rules/decompositions.h"
#include "engine/rules/divmod.h"
#include "engine/rules/emulation.h"
#include "gtest/gtest.h"
#include "tests/programs/problems.h"

namespace telegrad::testing {
namespace {

constexpr int64_t kKiB = 1024;

std::vector<const RuleTable*> LateTables(const Target& target) {
  std::vector<const RuleTable*> tables = EmulationTables(target);
  tables.insert(tables.end(), {&DecompositionsFor(target), &kAlgebra, &kDivMod});
  return tables;
}

// Appends nodes to a program, elementwise ones as lowering leaves them.
class Lowerer {
 public:
  explicit Lowerer(const Target& target)
      : graph_(std::make_shared<Graph>()), rewriter_(graph_.get(), LateTables(target), &budget_) {}

  Graph& graph() { return *graph_; }

  UOp Put(UOp u) {
    EXPECT_TRUE(u.valid()) << graph_->status();
    if (!u.valid()) return u;
    for (uint32_t id : PostOrder(u)) {
      if (present_.insert(id).second) order_.push_back(id);
    }
    return u;
  }
  UOp Make(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg = {}) {
    return Put(Is(op, kAlu) ? rewriter_.Make(op, dtype, src) : graph_->Make(op, dtype, src, arg));
  }
  UOp Make(Op op, std::initializer_list<UOp> src) {
    return Make(op, DType::kVoid, std::span(src.begin(), src.size()));
  }

  Program Finish(Program program) {
    program.graph = graph_;
    program.order = order_;
    return program;
  }

 private:
  std::shared_ptr<Graph> graph_;
  Budget budget_;
  Rewriter rewriter_;
  std::vector<uint32_t> order_;
  absl::flat_hash_set<uint32_t> present_;
};

bool IsFunction(Op op) {
  return op == Op::kExp2 || op == Op::kLog2 || op == Op::kSin || op == Op::kPow;
}

Program BindAndLower(const Program& from, const Target& target,
                     std::span<const int64_t> variables) {
  Lowerer lowerer(target);
  NodeMap<uint32_t> made(*from.graph);
  std::vector<UOp> src;
  for (uint32_t id : from.order) {
    const UOp u = from.graph->at(id);
    src.clear();
    for (uint32_t s : u.src_ids()) src.push_back(lowerer.graph().at(made[from.graph->at(s)]));
    UOp copy;
    if (u.is(Op::kVar)) {
      copy = lowerer.graph().Index(variables[u.var_id()]);
    } else if (IsFunction(u.op())) {
      copy = lowerer.Make(u.op(), u.dtype(), src);
    } else {  // as it is: what simplification makes equal may be in two loops
      copy = lowerer.graph().Make(u.op(), u.dtype(), src, u.arg());
    }
    lowerer.Put(copy);
    if (!copy.valid()) break;
    made[u] = copy.id();
  }
  return lowerer.Finish(from);
}

// Words of the type at which something happens.
std::vector<int64_t> EdgeWords(DType dtype) {
  std::vector<int64_t> words;
  if (IsFloat(dtype)) {
    const double inf = std::numeric_limits<double>::infinity();
    const DTypeInfo& info = Info(dtype);
    // The least normal number, and the least one at all.
    const double normal = std::ldexp(1.0, 1 - info.bias);
    const double least = std::ldexp(normal, -info.mantissa_bits);
    for (double x : {0.0,
                     -0.0,
                     1.0,
                     -1.0,
                     0.5,
                     -2.5,
                     2.5,
                     1e-3,
                     300.7,
                     -129.9,
                     65504.0,
                     65520.0,
                     3e9,
                     -3e9,
                     1e19,
                     -1e19,
                     9223372036854775808.0,
                     inf,
                     -inf,
                     normal,
                     least,
                     3 * least,
                     -normal,
                     std::numeric_limits<double>::quiet_NaN()}) {
      words.push_back(ScalarFromDouble(dtype, x));
    }
    return words;
  }
  for (int64_t x :
       {int64_t{0},     int64_t{1},     int64_t{2},         int64_t{3},         int64_t{7},
        int64_t{8},     int64_t{15},    int64_t{31},        int64_t{32},        int64_t{63},
        int64_t{64},    int64_t{100},   int64_t{127},       int64_t{128},       int64_t{255},
        int64_t{32768}, int64_t{65521}, int64_t{INT32_MAX}, int64_t{INT32_MIN}, int64_t{-1},
        int64_t{-2},    int64_t{-7},    INT64_MAX,          INT64_MIN}) {
    words.push_back(ScalarFromInt(dtype, IsBool(dtype) ? x & 1 : x));
  }
  return words;
}

// All pairs of edge values in the first two columns, and random bits behind them.
std::vector<uint8_t> Column(DType dtype, int number, int64_t elements, std::mt19937_64& random) {
  const std::vector<int64_t> edges = EdgeWords(dtype);
  const auto count = static_cast<int64_t>(edges.size());
  const int64_t bytes = ByteSize(dtype);
  std::vector<uint8_t> column(elements * bytes);
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t pick[] = {i % count, i / count, (7 * i + 3) % count};
    int64_t raw = ScalarToMemory(dtype, edges[pick[number] % count]);
    if (i >= count * count) raw = static_cast<int64_t>(random());
    if (IsBool(dtype)) raw &= 1;
    std::memcpy(&column[i * bytes], &raw, bytes);
  }
  return column;
}

// The types that the op makes of its operands.
std::vector<DType> Results(const OpInfo& op, DType from) {
  if (op.op != Op::kCast && op.op != Op::kBitcast) return {DType::kVoid};
  std::vector<DType> results;
  for (const DTypeInfo& to : AllDTypes()) {
    if (to.dtype == DType::kVoid || IsPacked(to.dtype)) continue;
    const bool fits = to.bits == Info(from).bits && !IsBool(to.dtype) && !IsBool(from);
    if (op.op == Op::kCast || fits) results.push_back(to.dtype);
  }
  return results;
}

}  // namespace

Target Ampere() { return *NvidiaTarget(8, 0, 108, 163 * kKiB); }
Target Hopper() { return *NvidiaTarget(9, 0, 132, 227 * kKiB); }

PtxKernel ProgramKernel(std::string_view name, const Target& target) {
  const Problem problem = FindProblem(name);
  const auto program = ParseProgram(ReadData(StrCat(name, ".uop")));
  EXPECT_TRUE(program.ok()) << program.status();
  PtxKernel kernel{BindAndLower(*program, target, problem.variables), problem.arguments, {}};
  const bool approximates = std::ranges::any_of(kernel.program.order, [&](uint32_t id) {
    return kernel.program.graph->at(id).is(Op::kExp2);
  });
  if (approximates) kernel.tolerance = problem.tolerance;
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    kernel.names.push_back(StrCat("argument ", i));
  }
  return kernel;
}

std::vector<DType> ElementTypes() {
  std::vector<DType> types;
  for (const DTypeInfo& info : AllDTypes()) {
    if (info.dtype != DType::kVoid && !IsPacked(info.dtype)) types.push_back(info.dtype);
  }
  return types;
}

PtxKernel ElementwiseKernel(DType dtype, int64_t lanes, const Target& target, uint64_t seed) {
  constexpr int64_t kElements = 640, kThreads = 32;
  const int64_t groups = kElements / (kThreads * lanes);
  std::mt19937_64 random(seed);
  Lowerer b(target);
  Graph& g = b.graph();
  PtxKernel kernel;
  Program& program = kernel.program;
  program.name = StrCat("elementwise_", Name(dtype), "_", lanes);
  program.iterations = groups;
  const auto argument = [&](DType type, std::string name, bool written) {
    const auto slot = static_cast<int64_t>(program.arguments.size());
    program.arguments.push_back({type, kElements, !written, written});
    kernel.names.push_back(std::move(name));
    return b.Put(g.Param(slot, type, Shape{kElements}));
  };
  const UOp group = b.Put(g.Range(0, AxisType::kGroup, g.Index(groups)));
  const UOp thread = b.Put(g.Range(1, AxisType::kLocal, g.Index(kThreads)));
  const UOp number = g.Make(Op::kAdd, {g.Make(Op::kMul, {group, g.Index(kThreads)}), thread});
  UOp at = b.Put(g.Make(Op::kMul, {number, g.Index(lanes)}));
  if (lanes > 1) {
    const UOp iota = g.Make(Op::kIota, DType::kInt64, std::initializer_list<UOp>{}, {lanes});
    at = b.Put(g.Make(Op::kAdd, {at, iota}));
  }
  std::vector<UOp> x;
  for (int i = 0; i < 3; ++i) {
    const UOp in = argument(dtype, StrCat("source ", i), false);
    kernel.arguments.push_back(Column(dtype, i, kElements, random));
    x.push_back(b.Make(Op::kLoad, {b.Make(Op::kIndex, {in, at})}));
  }
  const UOp in = argument(DType::kBool, "condition", false);
  kernel.arguments.push_back(Column(DType::kBool, 2, kElements, random));
  const UOp condition = b.Make(Op::kLoad, {b.Make(Op::kIndex, {in, at})});
  for (const OpInfo& op : AllOps()) {
    if ((op.traits & kAlu) == 0 || !IsAt(op.op, kProgramLevel)) continue;
    std::vector<UOp> src(x.begin(), x.begin() + op.max_src);
    if (op.op == Op::kWhere) src = {condition, x[0], x[1]};
    if (!Allows(op.elements, src[0].dtype())) continue;
    for (DType to : Results(op, dtype)) {
      const UOp value = b.Make(op.op, to, src);
      const UOp out = argument(value.dtype(), StrCat(op.name, " to ", Name(value.dtype())), true);
      if (op.op == Op::kExp2 && target.exp2 && dtype != DType::kFloat64) {
        // The reference rounds the true value, below which codes may lie half as far apart.
        kernel.codes[kernel.arguments.size()] = dtype == DType::kFloat32 ? 4 : 1;
      }
      kernel.arguments.emplace_back(kElements * ByteSize(value.dtype()), uint8_t{0x4d});
      b.Make(Op::kStore, {b.Make(Op::kIndex, {out, at}), value});
    }
  }
  b.Make(Op::kEnd, {thread});
  b.Make(Op::kEnd, {group});
  program = b.Finish(program);
  return kernel;
}

namespace {

// Every NaN is as good as another.
bool IsNanCode(DType dtype, int64_t raw) {
  if (!IsFloat(dtype)) return false;
  const double x = ScalarAsDouble(dtype, ScalarFromMemory(dtype, raw));
  return x != x;
}

int64_t Element(DType dtype, const std::vector<uint8_t>& bytes, int64_t i) {
  int64_t raw = 0;
  std::memcpy(&raw, &bytes[i * ByteSize(dtype)], ByteSize(dtype));
  return raw;
}

}  // namespace

PtxKernel Exp2Kernel(const Target& target, uint64_t seed) {
  constexpr int64_t kThreads = 128, kLanes = 4, kGroups = 512;
  constexpr int64_t kElements = kThreads * kLanes * kGroups;
  std::mt19937_64 random(seed);
  std::vector<float> x;
  for (const int64_t word : EdgeWords(DType::kFloat32)) {
    x.push_back(static_cast<float>(ScalarAsDouble(DType::kFloat32, word)));
  }
  // Where results become subnormal, 0 and infinite, where a GPU changes its ways, and beside 0.
  for (const float at : {-126.F, -149.F, -150.F, -151.F, 127.F, 128.F, -125.F, -1.F, 1.F, 0x1p-24F,
                         -0x1p-24F, 0x1p-126F, -0x1p-126F, 1e30F, -1e30F}) {
    float below = at, above = at;
    for (int i = 0; i < 8; ++i) {
      x.insert(x.end(), {below, above});
      below = std::nextafter(below, -INFINITY);
      above = std::nextafter(above, INFINITY);
    }
  }
  constexpr int kEach = 400;  // of each sign and exponent
  for (uint32_t sign_and_exponent = 0; sign_and_exponent < 512; ++sign_and_exponent) {
    for (int i = 0; i < kEach; ++i) {
      const auto mantissa = static_cast<uint32_t>(random() & 0x7fffff);
      x.push_back(std::bit_cast<float>(sign_and_exponent << 23 | mantissa));
    }
  }
  std::uniform_real_distribution<float> nontrivial(-151, 129);
  while (static_cast<int64_t>(x.size()) < kElements) x.push_back(nontrivial(random));
  Lowerer b(target);
  Graph& g = b.graph();
  PtxKernel kernel{.program = {}, .arguments = {}, .names = {"x", "exp2(x)"}};
  kernel.program.name = "exponentials";
  kernel.program.iterations = kGroups;
  kernel.program.arguments = {{DType::kFloat32, kElements, true, false},
                              {DType::kFloat32, kElements, false, true}};
  kernel.arguments.resize(2, std::vector<uint8_t>(kElements * sizeof(float)));
  std::memcpy(kernel.arguments[0].data(), x.data(), kernel.arguments[0].size());
  const UOp in = b.Put(g.Param(0, DType::kFloat32, Shape{kElements}));
  const UOp out = b.Put(g.Param(1, DType::kFloat32, Shape{kElements}));
  const UOp group = b.Put(g.Range(0, AxisType::kGroup, g.Index(kGroups)));
  const UOp thread = b.Put(g.Range(1, AxisType::kLocal, g.Index(kThreads)));
  const UOp number = g.Make(Op::kAdd, {g.Make(Op::kMul, {group, g.Index(kThreads)}), thread});
  const UOp iota = g.Make(Op::kIota, DType::kInt64, std::initializer_list<UOp>{}, {kLanes});
  const UOp first = g.Make(Op::kMul, {number, g.Index(kLanes)});
  const UOp at = b.Put(g.Make(Op::kAdd, {first, iota}));
  const UOp load = b.Make(Op::kLoad, {b.Make(Op::kIndex, {in, at})});
  b.Make(Op::kStore, {b.Make(Op::kIndex, {out, at}), b.Make(Op::kExp2, {load})});
  b.Make(Op::kEnd, {thread});
  b.Make(Op::kEnd, {group});
  kernel.program = b.Finish(kernel.program);
  return kernel;
}

std::string Exp2Difference(const PtxKernel& kernel, const std::vector<std::vector<uint8_t>>& got) {
  constexpr int kDigits = std::numeric_limits<float>::digits;
  constexpr int kLeast = std::numeric_limits<float>::min_exponent;
  constexpr double kMost = std::numeric_limits<float>::max();
  for (size_t i = 0; i < got[1].size() / sizeof(float); ++i) {
    float x = 0, y = 0;
    std::memcpy(&x, &kernel.arguments[0][i * sizeof x], sizeof x);
    std::memcpy(&y, &got[1][i * sizeof y], sizeof y);
    const long double want = exp2l(x);
    int exponent = 0;
    frexpl(want, &exponent);
    const long double ulp = ldexpl(1, std::max(exponent, kLeast) - kDigits);
    // Of what is finite infinity is 2 ulp beyond the largest, at most.
    const long double result = std::isinf(y) && std::isfinite(x) ? kMost + ulp : y;
    const bool right = std::isnan(x)   ? std::isnan(y)
                       : std::isinf(x) ? y == (x > 0 ? INFINITY : 0)
                       : x == 0        ? y == 1
                       : want > kMost  ? result >= kMost - ulp
                                       : fabsl(result - want) <= 2 * ulp && !std::signbit(y);
    if (!right) return StrCat("exp2 of ", x, " is ", y, ", not ", static_cast<double>(want));
  }
  return "";
}

std::string Difference(const PtxKernel& kernel, const std::vector<std::vector<uint8_t>>& got,
                       const std::vector<std::vector<uint8_t>>& want) {
  for (size_t a = 0; a < got.size(); ++a) {
    const Program::Argument& argument = kernel.program.arguments[a];
    for (int64_t i = 0; i < argument.elements; ++i) {
      const int64_t x = Element(argument.dtype, got[a], i);
      const int64_t y = Element(argument.dtype, want[a], i);
      if (x == y || (IsNanCode(argument.dtype, x) && IsNanCode(argument.dtype, y))) continue;
      const auto codes = kernel.codes.find(a);
      if (codes != kernel.codes.end() && std::abs(x - y) <= codes->second) continue;
      if (kernel.tolerance > 0 && argument.dtype == DType::kFloat32) {
        const double got_value =
            ScalarAsDouble(DType::kFloat32, ScalarFromMemory(argument.dtype, x));
        const double value = ScalarAsDouble(DType::kFloat32, ScalarFromMemory(argument.dtype, y));
        if (std::abs(got_value - value) <= kernel.tolerance * (1 + std::abs(value))) continue;
      }
      std::string sources;
      for (size_t s = 0; s < got.size(); ++s) {
        const Program::Argument& source = kernel.program.arguments[s];
        if (source.written || i >= source.elements) continue;
        StrAppend(&sources, " ", absl::Hex(Element(source.dtype, want[s], i)));
      }
      return StrCat(kernel.names[a], ", element ", i, ": got ", absl::Hex(x), ", expected ",
                    absl::Hex(y), "; there the sources are", sources);
    }
  }
  return "";
}

absl::StatusOr<ProgramImage> CompileKernel(const Program& program, const Target& target) {
  TG_ASSIGN_OR_RETURN(const std::string text, Render(program, target));
  return Compile(text, program.name, target);
}

}  // namespace telegrad::testing
