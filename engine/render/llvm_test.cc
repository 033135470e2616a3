// What the text must say; that it computes the right thing is tested where it can run.
#include "engine/render/llvm.h"

#include <functional>

#include "engine/base/strings.h"
#include "engine/render/llvm_kernel.h"
#include "engine/types/machine_costs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

using testing::HasSubstr;
using testing::Not;

const Target kWide{.arch = "x86-64",
                   .cpu = "sapphirerapids",
                   .features = "+avx512f,+fma",
                   .vector_bytes = 64,
                   .vector_registers = 32,
                   .converts = {}};

Program Make(const std::function<void(Graph&, std::vector<UOp>&)>& fill) {
  auto graph = std::make_shared<Graph>();
  std::vector<UOp> order;
  fill(*graph, order);
  EXPECT_EQ(graph->status(), absl::OkStatus());
  Program program{.name = "k", .graph = graph, .order = {}, .arguments = {}};
  for (UOp u : order) program.order.push_back(u.id());
  program.arguments = {{DType::kFloat32, 64, true, true}, {DType::kFloat32, 64, true, false}};
  return program;
}

Program Scale() {
  return Make([](Graph& g, std::vector<UOp>& order) {
    const UOp out = g.Param(0, DType::kFloat32, Shape{64}),
              in = g.Param(1, DType::kFloat32, Shape{64});
    const UOp i = g.Range(0, AxisType::kThread, g.Index(4));
    const UOp base = g.Make(Op::kMul, {i, g.Index(16)});
    const UOp iota = g.Make(Op::kIota, DType::kInt64, std::initializer_list<UOp>{}, {16});
    const UOp at = g.Make(Op::kAdd, {base, iota});
    const UOp from = g.Make(Op::kIndex, {in, at}), x = g.Make(Op::kLoad, {from});
    const UOp y = g.Make(Op::kMul, {x, g.ConstFloat(DType::kFloat32, 0.5)});
    const UOp to = g.Make(Op::kIndex, {out, at}), store = g.Make(Op::kStore, {to, y});
    order = {out, in, i, base, iota, at, from, x, y, to, store, g.Make(Op::kEnd, {i})};
  });
}

// in[0:16] as integers, of which `make` says what is converted.
Program Convert(const std::function<UOp(Graph&, UOp, std::vector<UOp>&)>& make) {
  return Make([&](Graph& g, std::vector<UOp>& order) {
    const UOp out = g.Param(0, DType::kFloat32, Shape{64}),
              in = g.Param(1, DType::kFloat32, Shape{64});
    const UOp iota = g.Make(Op::kIota, DType::kInt64, std::initializer_list<UOp>{}, {16});
    const UOp from = g.Make(Op::kIndex, {in, iota}), x = g.Make(Op::kLoad, {from});
    order = {out, in, iota, from, x};
    const UOp whole = g.Make(Op::kCast, DType::kInt32, {make(g, x, order)});
    const UOp y = g.Make(Op::kCast, DType::kFloat32, {whole});
    const UOp to = g.Make(Op::kIndex, {out, iota}), store = g.Make(Op::kStore, {to, y});
    order.insert(order.end(), {whole, y, to, store});
  });
}

// WHERE(x < limit, x, limit), and WHERE(x < limit, limit, x), which a NaN passes.
UOp Below(Graph& g, UOp x, double limit, std::vector<UOp>& order) {
  const UOp end = g.ConstFloat(DType::kFloat32, limit);
  order.push_back(g.Make(Op::kCmpLt, {x, end}));
  order.push_back(g.Make(Op::kWhere, {order.back(), x, end}));
  return order.back();
}
UOp Above(Graph& g, UOp x, double limit, std::vector<UOp>& order) {
  const UOp end = g.ConstFloat(DType::kFloat32, limit);
  order.push_back(g.Make(Op::kCmpLt, {x, end}));
  order.push_back(g.Make(Op::kWhere, {order.back(), end, x}));
  return order.back();
}

int Times(std::string_view text, std::string_view what) {
  int times = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++times;
  return times;
}

TEST(RenderLlvm, AConversionOfAVectorIsNeverTakenApart) {
  const auto any = [](Graph&, UOp x, std::vector<UOp>&) { return x; };
  const std::string guarded = *RenderLlvm(Convert(any), kWide);
  EXPECT_THAT(guarded, Not(HasSubstr(".sat.")));
  EXPECT_EQ(Times(guarded, "fptosi <16 x float>"), 1);
  EXPECT_EQ(Times(guarded, "select <16 x i1>"), 4);  // two clamps, what lies above, NaN
}

// A result that no kernel reads any more goes past the caches where it is a sixteenth of what
// others have to be: whoever reads those does so at once.
TEST(RenderLlvm, LargeResultsGoPastTheCaches) {
  const auto streams = [](int64_t elements, bool result, bool read, int64_t from) {
    Program program = Scale();
    program.arguments[0] = {
        .dtype = DType::kFloat32, .elements = elements, .read = read, .written = true};
    program.arguments[0].result = result;
    Target target = kWide;
    target.stream_bytes = from;
    return RenderLlvm(program, target)->find("!nontemporal") != std::string::npos;
  };
  constexpr int64_t kLarge = int64_t{64} << 20;
  const int64_t own = CostsOf(kWide).thread.result_bytes;
  EXPECT_TRUE(streams(kLarge / 4, false, false, kLarge));
  EXPECT_FALSE(streams(kLarge / 4 - 1, false, false, kLarge));
  EXPECT_TRUE(streams(own / 4, true, false, kLarge));
  EXPECT_FALSE(streams(own / 4 - 1, true, false, kLarge));
  EXPECT_FALSE(streams(own / 4, true, true, kLarge)) << "the kernel reads it itself";
  EXPECT_FALSE(streams(own / 4, true, false, 0)) << "the target has no such stores";
}

// LLVM's maximum is six instructions of vectors.
TEST(RenderLlvm, TheLargerOfTwoVectorsIsOneInstructionAndWhatANanNeeds) {
  const auto larger = [](bool constant, std::string features) {
    Target target = kWide;
    target.features = std::move(features);
    return *RenderLlvm(
        Make([&](Graph& g, std::vector<UOp>& order) {
          const UOp out = g.Param(0, DType::kFloat32, Shape{64}),
                    in = g.Param(1, DType::kFloat32, Shape{64});
          const UOp iota = g.Make(Op::kIota, DType::kInt64, std::initializer_list<UOp>{}, {16});
          const UOp from = g.Make(Op::kIndex, {in, iota});
          const UOp x = g.Make(Op::kLoad, {from}), y = g.Make(Op::kNeg, {x});
          const UOp other = constant ? g.ConstFloat(DType::kFloat32, 0) : y;
          const UOp most = g.Make(Op::kMax, {x, other});
          const UOp to = g.Make(Op::kIndex, {out, iota});
          order = {out, in, iota, from, x, y, most, to, g.Make(Op::kStore, {to, most})};
        }),
        target);
  };
  const auto range = HasSubstr("llvm.x86.avx512.mask.range.ps.512");
  EXPECT_THAT(larger(false, "+avx512dq,+avx512f"), range);
  EXPECT_THAT(larger(true, "+avx512dq,+avx512f"), Not(range));
  EXPECT_THAT(larger(false, "+avx512dqx,+avx512f"), Not(range));
}

// What is rounded by adding and subtracting a number without bits for fractions is one instruction,
// where it is near enough to 0 for that.
TEST(RenderLlvm, TheNearestIntegerIsOneInstruction) {
  const auto rounded = [](double high) {
    return *RenderLlvm(Convert([=](Graph& g, UOp x, std::vector<UOp>& order) {
                         UOp u = Below(g, Above(g, x, -100, order), high, order);
                         for (const double whole : {0x1.8p23, -0x1.8p23}) {
                           const UOp c = g.ConstFloat(DType::kFloat32, whole);
                           order.push_back(u = g.Make(Op::kAdd, {u, c}));
                         }
                         return u;
                       }),
                       kWide);
  };
  EXPECT_THAT(rounded(100), HasSubstr("@llvm.lrint.v16i32.v16f32"));
  EXPECT_THAT(rounded(100), Not(HasSubstr("fptosi")));
  EXPECT_THAT(rounded(0x1p23), Not(HasSubstr("lrint")));
}

// A limit from above is spelled NEG(MAX(NEG(x), c)), and c - MAX(NEG(x), d) is what simplification
// makes of its sum with a constant: one instruction each time, which rounding knows, too. What is
// computed from integers is no NaN.
TEST(RenderLlvm, ALimitFromAboveIsOneInstruction) {
  const auto limited = [](bool rounds, bool integers) {
    return *RenderLlvm(
        Convert([=](Graph& g, UOp x, std::vector<UOp>& order) {
          const auto make = [&](Op op, std::initializer_list<UOp> src) {
            for (const UOp s : src) {
              if (s.is_const()) order.push_back(s);
            }
            return order.emplace_back(g.Make(op, src));
          };
          const auto number = [&](double value) { return g.ConstFloat(DType::kFloat32, value); };
          if (integers) {
            const UOp byte = order.emplace_back(g.Make(Op::kCast, DType::kUInt8, {x}));
            x = order.emplace_back(g.Make(Op::kCast, DType::kFloat32, {byte}));
          }
          x = make(Op::kMax, {x, number(-100)});
          const UOp other = make(Op::kMax, {make(Op::kNeg, {x}), number(-100)});
          if (!rounds) return make(Op::kNeg, {other});
          return make(Op::kAdd, {make(Op::kSub, {number(0x1.8p23), other}), number(-0x1.8p23)});
        }),
        kWide);
  };
  for (const bool rounds : {false, true}) {
    EXPECT_EQ(Times(limited(rounds, false), "@llvm.minimum.v16f32(<16 x float>"), 1 + rounds + 1)
        << "a declaration, too";
    EXPECT_EQ(Times(limited(rounds, false), "lrint") > 0, rounds);
    EXPECT_EQ(Times(limited(rounds, false), "fcmp ord"), 1);
    EXPECT_EQ(Times(limited(rounds, true), "fcmp ord"), 0);
  }
}

// Whatever is below the limits, and however often it is used there.
TEST(RenderLlvm, LimitsCountBehindLongComputations) {
  const std::string text =
      *RenderLlvm(Convert([](Graph& g, UOp x, std::vector<UOp>& order) {
                    for (int i = 0; i < 40; ++i) {
                      x = order.emplace_back(g.Make(Op::kMulAcc, {x, x, order.back()}));
                    }
                    for (int i = 0; i < 2; ++i) {
                      const UOp limit = order.emplace_back(g.ConstFloat(DType::kFloat32, -100));
                      const UOp within = order.emplace_back(g.Make(Op::kMax, {x, limit}));
                      x = order.emplace_back(g.Make(Op::kNeg, {within}));
                    }
                    return x;
                  }),
                  kWide);
  EXPECT_EQ(Times(text, "fptosi <16 x float>"), 1);
  EXPECT_EQ(Times(text, "select <16 x i1>"), 1) << "of NaN alone";
}

TEST(RenderLlvm, AConversionOfWhatFitsHasNoGuards) {
  const auto clamped = [](double low, double high, bool nan_last) {
    return *RenderLlvm(Convert([=](Graph& g, UOp x, std::vector<UOp>& order) {
                         if (nan_last) return Above(g, Below(g, x, high, order), low, order);
                         return Below(g, Above(g, x, low, order), high, order);
                       }),
                       kWide);
  };
  // The selections are the graph's own, in either order: what is below the first limit is no NaN.
  EXPECT_EQ(Times(clamped(-150, 128, false), "select <16 x i1>"), 2);
  EXPECT_EQ(Times(clamped(-150, 128, true), "select <16 x i1>"), 2);
  EXPECT_EQ(Times(clamped(-0x1p31, 2147483520, false), "select <16 x i1>"), 2);
  // One more than fits, on either side.
  EXPECT_GT(Times(clamped(-150, 0x1p31, false), "select <16 x i1>"), 2);
  EXPECT_GT(Times(clamped(-2147483904.0, 0, false), "select <16 x i1>"), 2);
  // A NaN that gets past the last clamp.
  const auto above = [](Graph& g, UOp x, std::vector<UOp>& order) {
    return Above(g, Above(g, x, -5, order), -4, order);
  };
  EXPECT_GT(Times(*RenderLlvm(Convert(above), kWide), "select <16 x i1>"), 2);
}

// out[16 * i : 16 * i + 16] = in[i + 64 * (0 : 16)] for i in [first, first + count); `back`: the
// other way around. In place, `in` is `out`.
Program Columns(int64_t first, int64_t count, bool in_place = false, bool back = false) {
  Program program = Make([&](Graph& g, std::vector<UOp>& order) {
    const UOp out = g.Param(0, DType::kFloat32, Shape{4096}),
              in = g.Param(in_place ? 0 : 1, DType::kFloat32, Shape{4096});
    const UOp iota = g.Make(Op::kIota, DType::kInt64, std::initializer_list<UOp>{}, {16});
    const UOp rows = g.Make(Op::kMul, {iota, g.Index(64)});
    order = {out, iota, rows};
    if (!in_place) order.push_back(in);
    for (int64_t i = first; i < first + count; ++i) {
      const UOp column = g.Make(Op::kAdd, {g.Index(i), rows});
      const UOp row = g.Make(Op::kAdd, {g.Index(16 * i), iota});
      const UOp from = back ? row : column, to = back ? column : row;
      const UOp x = g.Make(Op::kLoad, {g.Make(Op::kIndex, {in, from})});
      const UOp put = g.Make(Op::kIndex, {out, to});
      order.insert(order.end(), {column, row, x.src(0), x, put, g.Make(Op::kStore, {put, x})});
    }
  });
  program.arguments = {{DType::kFloat32, 4096, in_place, true}, {DType::kFloat32, 4096, true}};
  return program;
}

TEST(RenderLlvm, ASquareOfMemoryIsLoadedRowByRow) {
  for (int64_t first : {0, 5}) {
    const std::string text = *RenderLlvm(Columns(first, 16), kWide);
    EXPECT_EQ(Times(text, "gather"), 0) << first;
    EXPECT_EQ(Times(text, "= load <16 x float>"), 16) << first;
    EXPECT_EQ(Times(text, "shufflevector"), 64) << first;
    EXPECT_THAT(text, HasSubstr(", i64 960\n")) << "the last row";
  }
  EXPECT_EQ(Times(*RenderLlvm(Columns(0, 17), kWide), "call <16 x float> @llvm.masked.gather"), 1)
      << "one more than a square";
  EXPECT_EQ(
      Times(*RenderLlvm(Columns(0, 16, true), kWide), "call <16 x float> @llvm.masked.gather"), 16)
      << "what is stored may be what the next one loads";
}

TEST(RenderLlvm, ASquareOfMemoryIsStoredRowByRow) {
  const std::string text = *RenderLlvm(Columns(3, 16, false, true), kWide);
  EXPECT_EQ(Times(text, "scatter"), 0);
  EXPECT_EQ(Times(text, "store <16 x float>"), 16);
  EXPECT_EQ(Times(text, "shufflevector"), 64);
  EXPECT_GT(Times(*RenderLlvm(Columns(0, 16, true, true), kWide), "scatter"), 15);
}

// Rows of 7 elements are masked, where registers are wide enough for that to cost nothing.
TEST(RenderLlvm, ShortRowsAreMasked) {
  const std::string loads = *RenderLlvm(Columns(0, 7), kWide);
  EXPECT_EQ(Times(loads, "= call <16 x float> @llvm.masked.load"), 16);
  EXPECT_EQ(Times(loads, "gather"), 0);
  EXPECT_THAT(loads, HasSubstr("i1 1, i1 0"));
  const std::string stores = *RenderLlvm(Columns(0, 7, false, true), kWide);
  EXPECT_EQ(Times(stores, "call void @llvm.masked.store"), 16);
  EXPECT_EQ(Times(stores, "scatter"), 0);
  EXPECT_EQ(Times(*RenderLlvm(Columns(0, 3), kWide), "call <16 x float> @llvm.masked.gather"), 3)
      << "too short";
}

// Steps of 0 made LLVM's passes run without end: one element for all lanes is one pointer.
TEST(RenderLlvm, LanesOfOneElementHaveOnePointer) {
  Program program = Make([&](Graph& g, std::vector<UOp>& order) {
    const UOp out = g.Param(0, DType::kFloat32, Shape{16}),
              in = g.Param(1, DType::kFloat32, Shape{16});
    const UOp iota = g.Make(Op::kIota, DType::kInt64, std::initializer_list<UOp>{}, {16});
    const UOp none = g.Make(Op::kMul, {iota, g.Index(0)});
    const UOp gate = g.Make(Op::kCmpLt, {iota, g.Index(5)});
    const UOp from = g.Make(Op::kIndex, {in, none, gate}), x = g.Make(Op::kLoad, {from});
    const UOp to = g.Make(Op::kIndex, {out, iota});
    order = {out, in, iota, none, gate, from, x, to, g.Make(Op::kStore, {to, x})};
  });
  program.arguments = {{DType::kFloat32, 16, false, true}, {DType::kFloat32, 16, true}};
  const std::string text = *RenderLlvm(program, kWide);
  EXPECT_EQ(Times(text, "call <16 x float> @llvm.masked.gather"), 1) << text;
  EXPECT_EQ(Times(text, "shufflevector <16 x ptr>"), 1) << text;
  EXPECT_THAT(text, Not(HasSubstr("<16 x i64> <i64 0, i64 0")));
}

TEST(RenderLlvm, OnlyProgramOpsHaveAPrinter) {
  for (const OpInfo& op : AllOps()) {
    EXPECT_TRUE(!LlvmKernel::Prints(op.op) || IsAt(op.op, kProgramLevel)) << op.name;
  }
}

TEST(RenderLlvm, ContiguousLanesAreOneVectorAccess) {
  const std::string text = *RenderLlvm(Scale(), kWide);
  EXPECT_THAT(text, HasSubstr("define void @k(ptr"));
  EXPECT_THAT(text, HasSubstr("load <16 x float>, ptr"));
  EXPECT_THAT(text, HasSubstr("store <16 x float>"));
  EXPECT_THAT(text, HasSubstr("fmul <16 x float> %"));
  EXPECT_THAT(text, Not(HasSubstr("gather")));
  EXPECT_THAT(text, HasSubstr("!noalias"));
  EXPECT_THAT(text, HasSubstr("\"prefer-vector-width\"=\"512\""));
  EXPECT_THAT(text, HasSubstr("\"tune-cpu\"=\"sapphirerapids\""));
  EXPECT_THAT(text, HasSubstr("\"target-features\"=\"+avx512f,+fma\""));
  // No freedom that the IR does not give.
  for (const char* flag : {"fast", "contract", "nnan", "ninf", "nsz", "arcp", "afn", "reassoc"}) {
    EXPECT_THAT(text, Not(HasSubstr(StrCat(" ", flag, " "))));
  }
  EXPECT_EQ(text, *RenderLlvm(Scale(), kWide));
  Target narrow = kWide;
  narrow.vector_bytes = 32;
  EXPECT_THAT(*RenderLlvm(Scale(), narrow), Not(HasSubstr("prefer-vector-width")));
}

std::string ErrorOf(const Program& program, const Target& target = kWide) {
  const auto text = RenderLlvm(program, target);
  EXPECT_FALSE(text.ok());
  return std::string(text.status().message());
}

TEST(RenderLlvm, BrokenProgramsAreErrorsThatNameTheKernel) {
  Program p = Scale();
  p.name = "not a name";
  EXPECT_THAT(ErrorOf(p), HasSubstr("not a name"));
  p = Scale();
  p.order.push_back(1'000'000);
  EXPECT_THAT(ErrorOf(p), HasSubstr("kernel k: node 1000000"));
  p = Scale();
  p.order.pop_back();
  EXPECT_THAT(ErrorOf(p), HasSubstr("not closed"));
  p = Scale();
  p.order.erase(p.order.begin() + 3);  // the product that the index needs
  EXPECT_THAT(ErrorOf(p), HasSubstr("before it is computed"));
  p = Scale();
  p.arguments.pop_back();
  EXPECT_THAT(ErrorOf(p), HasSubstr("is not argument 1"));
  p = Scale();
  p.arguments[1].dtype = DType::kInt32;
  EXPECT_THAT(ErrorOf(p), HasSubstr("is not argument 1"));
  p = Scale();
  p.order.push_back(p.order.back());
  EXPECT_THAT(ErrorOf(p), HasSubstr("does not close"));
  Target elsewhere = kWide;
  elsewhere.arch = "gfx942";
  EXPECT_EQ(RenderLlvm(Scale(), elsewhere).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(RenderLlvm, RejectsForms) {
  // Another level's op.
  EXPECT_THAT(ErrorOf(Make([](Graph& g, std::vector<UOp>& order) {
                const UOp x =
                    g.Make(Op::kIndex, {g.Param(0, DType::kFloat32, Shape{4}), g.Index(0)});
                const UOp load = g.Make(Op::kLoad, {x});
                order = {x, load, g.Make(Op::kExp2, {load})};
              })),
              HasSubstr("exp2"));
  // A parallel range that is not the outermost.
  EXPECT_THAT(ErrorOf(Make([](Graph& g, std::vector<UOp>& order) {
                const UOp i = g.Range(0, AxisType::kLoop, g.Index(2));
                const UOp j = g.Range(1, AxisType::kThread, g.Index(2));
                order = {i, j, g.Make(Op::kEnd, {j}), g.Make(Op::kEnd, {i})};
              })),
              HasSubstr("outermost"));
  // More private memory than a stack has room for.
  EXPECT_THAT(ErrorOf(Make([](Graph& g, std::vector<UOp>& order) {
                order = {g.Make(Op::kBuffer, DType::kFloat32, std::initializer_list<UOp>{},
                                {2, 0, kMaxPrivateBytes / 4 + 1})};
              })),
              HasSubstr("BUFFER"));
}

// Eight accumulators of a vector, whose other factors are used once each: LLVM would need as many
// registers again for a second iteration in the same one.
TEST(RenderLlvm, LoopsWhoseAccumulatorsFillTheRegistersAreNotUnrolled) {
  const auto render = [](int64_t rows, int registers) {
    const Program program = Make([&](Graph& g, std::vector<UOp>& order) {
      const UOp in = g.Param(1, DType::kFloat32, Shape{64});
      const UOp k = g.Range(1, AxisType::kReduce, g.Index(4));
      const UOp iota = g.Make(Op::kIota, DType::kInt64, std::initializer_list<UOp>{}, {8});
      const UOp from = g.Make(Op::kIndex, {in, iota}), x = g.Make(Op::kLoad, {from});
      order = {in, k, iota, from, x};
      for (int64_t row = 0; row < rows; ++row) {
        const UOp sum =
            g.Make(Op::kBuffer, DType::kFloat32, std::initializer_list<UOp>{}, {2, row, 8});
        const UOp at = g.Make(Op::kIndex, {sum, iota}), before = g.Make(Op::kLoad, {at});
        const UOp of = g.Make(Op::kIndex, {in, g.Index(row)}), factor = g.Make(Op::kLoad, {of});
        const UOp after = g.Make(Op::kMulAcc, {factor, x, before});
        for (UOp u : {sum, at, before, of, factor, after, g.Make(Op::kStore, {at, after})}) {
          order.push_back(u);
        }
      }
      order.push_back(g.Make(Op::kEnd, {k}));
    });
    Target target = kWide;
    target.vector_registers = registers;
    const auto text = RenderLlvm(program, target);
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  };
  constexpr std::string_view kWhole = "llvm.loop.unroll.disable";
  EXPECT_THAT(render(8, 16), HasSubstr(kWhole));
  EXPECT_THAT(render(7, 16), Not(HasSubstr(kWhole)));
  EXPECT_THAT(render(8, 32), Not(HasSubstr(kWhole)));
}

// c[i] = sum over k of copy[i * 16 + k]: while one i is computed, what the next reads is asked for.
TEST(RenderLlvm, PackedWeightsAreFetchedAhead) {
  Program program = Make([](Graph& g, std::vector<UOp>& order) {
    const UOp out = g.Param(0, DType::kFloat32, Shape{64}),
              in = g.Param(1, DType::kFloat32, Shape{64});
    const UOp i = g.Range(0, AxisType::kThread, g.Index(4));
    const UOp k = g.Range(1, AxisType::kReduce, g.Index(16));
    const UOp row = g.Make(Op::kMul, {i, g.Index(16)}), at = g.Make(Op::kAdd, {row, k});
    const UOp from = g.Make(Op::kIndex, {in, at}), x = g.Make(Op::kLoad, {from});
    const UOp to = g.Make(Op::kIndex, {out, i}), store = g.Make(Op::kStore, {to, x});
    order = {
        out, in, i, row, k, at, from, x, to, store, g.Make(Op::kEnd, {k}), g.Make(Op::kEnd, {i})};
  });
  EXPECT_THAT(*RenderLlvm(program, kWide), Not(HasSubstr("llvm.prefetch")));
  program.packings.push_back({.copy = 1, .source = 1, .kernel = {}});
  EXPECT_THAT(*RenderLlvm(program, kWide), HasSubstr("call void @llvm.prefetch.p0"));
}

// for tile (8) { for k (64) { x[k * 512 + tile * 4] } }: rows of 2 KB, of which a tile reads a
// line.
TEST(RenderLlvm, TheNextTileOfFarRowsIsFetchedAhead) {
  for (const bool gated : {false, true}) {
    Program program = Make([&](Graph& g, std::vector<UOp>& order) {
      const UOp out = g.Param(0, DType::kFloat32, Shape{8}),
                in = g.Param(1, DType::kFloat32, Shape{64 * 512});
      const UOp i = g.Range(0, AxisType::kThread, g.Index(8));
      const UOp k = g.Range(1, AxisType::kReduce, g.Index(64));
      const UOp row = g.Make(Op::kMul, {k, g.Index(512)}), tile = g.Make(Op::kMul, {i, g.Index(4)});
      const UOp at = g.Make(Op::kAdd, {row, tile}), gate = g.Make(Op::kCmpLt, {k, g.Index(60)});
      const UOp from = gated ? g.Make(Op::kIndex, {in, at, gate}) : g.Make(Op::kIndex, {in, at});
      const UOp x = g.Make(Op::kLoad, {from});
      const UOp to = g.Make(Op::kIndex, {out, i}), store = g.Make(Op::kStore, {to, x});
      order = {out, in, i, k, row, tile, at, gate, from, x, to, store};
      for (const UOp range : {k, i}) order.push_back(g.Make(Op::kEnd, {range}));
    });
    program.arguments[1].elements = 64 * 512;
    const bool fetched = RenderLlvm(program, kWide)->find("llvm.prefetch") != std::string::npos;
    EXPECT_EQ(fetched, !gated) << "behind a gate it would be one more branch";
  }
}

}  // namespace
}  // namespace telegrad
