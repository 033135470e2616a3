// Kernels of every form that lowering accepts: several stores, reductions beside and before each
// other, nests that read what earlier ones wrote. Each is lowered for several made-up targets and
// interpreted, and compiled and run on the CPU; the expected values are computed here, by plain
// loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "devices/cpu/cpu_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/reference/program_eval.h"
#include "engine/render/llvm.h"

namespace telegrad {
namespace {

using Floats = std::vector<float>;

float Input(int64_t slot, int64_t i) {
  return static_cast<float>((i * 37 + slot * 11) % 97) / 16 - 3;
}

class KernelForm : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {
 protected:
  KernelForm() : rows_(GetParam().first), columns_(GetParam().second) {}

  // Building.
  UOp Loop(int64_t size, AxisType type = AxisType::kLoop) {
    return g_.Range(next_range_++, type, g_.Index(size));
  }
  UOp Folded(int64_t size) { return Loop(size, AxisType::kReduce); }
  UOp Param(int64_t slot, int64_t elements) {
    sizes_.resize(std::max<size_t>(sizes_.size(), slot + 1));
    sizes_[slot] = elements;
    return g_.Param(slot, DType::kFloat32, Shape{elements});
  }
  UOp Matrix(int64_t slot) { return Param(slot, rows_ * columns_); }
  UOp At(UOp r, UOp c) { return Add(g_.Make(Op::kMul, {r, g_.Index(columns_)}), c); }
  UOp Address(UOp buffer, UOp index) { return g_.Make(Op::kIndex, {buffer, index}); }
  UOp Load(UOp buffer, UOp index) { return g_.Make(Op::kLoad, {Address(buffer, index)}); }
  UOp Store(UOp buffer, UOp index, UOp value) {
    return g_.Make(Op::kStore, {Address(buffer, index), value});
  }
  UOp Reduce(ReduceKind kind, UOp value, std::vector<UOp> ranges) {
    ranges.insert(ranges.begin(), value);
    return g_.Make(Op::kReduce, DType::kVoid, ranges,
                   std::vector<int64_t>{static_cast<int64_t>(kind)});
  }
  UOp Sum(UOp value, UOp range) { return Reduce(ReduceKind::kAdd, value, {range}); }
  UOp End(UOp nest, std::vector<UOp> ranges) {
    ranges.insert(ranges.begin(), nest);
    return g_.Make(Op::kEnd, DType::kVoid, ranges);
  }
  UOp Add(UOp x, UOp y) { return g_.Make(Op::kAdd, {x, y}); }
  UOp Sub(UOp x, UOp y) { return g_.Make(Op::kSub, {x, y}); }
  UOp Mul(UOp x, UOp y) { return g_.Make(Op::kMul, {x, y}); }
  UOp Exp2(UOp x) { return g_.Make(Op::kExp2, {x}); }
  UOp Recip(UOp x) { return g_.Make(Op::kRecip, {x}); }
  UOp Float(double x) { return g_.ConstFloat(DType::kFloat32, x); }

  float X(int64_t slot, int64_t r, int64_t c) const { return Input(slot, r * columns_ + c); }

  // Running.
  static Target MadeUp(int vector_bytes) {
    Target target;
    target.vector_bytes = vector_bytes;
    target.vector_registers = vector_bytes == 64 ? 32 : 16;
    target.threads = 2;
    target.cache_bytes = 128 << 10;
    return target;
  }

  absl::StatusOr<Program> Lowered(UOp sink, const Target& target) {
    Budget budget;
    PassOptions options;
    options.verify = [](const Piece& piece) { return Verify(piece); };
    TG_RETURN_IF_ERROR(g_.status());
    TG_RETURN_IF_ERROR(Verify(sink, kKernelLevel));
    TG_ASSIGN_OR_RETURN(Program program,
                        Lower(Freeze(sink), target, "kernel", &budget, nullptr, options));
    TG_RETURN_IF_ERROR(Verify(program));
    return program;
  }

  std::vector<Floats> Arguments() const {
    std::vector<Floats> out;
    for (size_t slot = 0; slot < sizes_.size(); ++slot) {
      Floats& values = out.emplace_back();
      for (int64_t i = 0; i < sizes_[slot]; ++i) {
        values.push_back(Input(static_cast<int64_t>(slot), i));
      }
    }
    return out;
  }

  static void Interpret(const Program& program, std::vector<Floats>* arguments) {
    std::vector<std::span<uint8_t>> buffers;
    for (Floats& values : *arguments) {
      buffers.emplace_back(reinterpret_cast<uint8_t*>(values.data()), values.size() * 4);
    }
    // In two slices, the second one first: no slice may rely on another.
    const int64_t half = program.iterations / 2;
    for (auto [begin, end] : {std::pair(half, program.iterations), std::pair(int64_t{0}, half)}) {
      if (begin == end) continue;
      const absl::Status status = reference::Run(program, buffers, begin, end);
      ASSERT_TRUE(status.ok()) << status << "\n" << Print(program);
    }
  }

  static void RunOnCpu(Device& device, const Program& program, std::vector<Floats>* arguments) {
    const auto source = RenderLlvm(program, device.target());
    ASSERT_TRUE(source.ok()) << source.status();
    const auto image = Compile(*source, program.name, device.target());
    ASSERT_TRUE(image.ok()) << image.status();
    const auto loaded = device.Load(*image);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    Command command;
    command.launch.program = *loaded;
    command.launch.grid.x = program.iterations;
    command.launch.flops = 1e9;  // worth splitting
    std::vector<BufferView> bindings;
    for (const Floats& values : *arguments) {
      auto memory = device.Alloc(static_cast<int64_t>(values.size() * 4));
      ASSERT_TRUE(memory.ok());
      std::memcpy((*memory)->host(), values.data(), values.size() * 4);
      command.launch.arguments.push_back({static_cast<int32_t>(bindings.size()), 0});
      bindings.push_back({*memory, 0, static_cast<int64_t>(values.size() * 4)});
    }
    auto commands = device.Encode({command});
    ASSERT_TRUE(commands.ok()) << commands.status();
    const auto point = device.queue().Submit(*commands, bindings, {});
    ASSERT_TRUE(point.ok() && point->Wait().ok());
    for (size_t i = 0; i < arguments->size(); ++i) {
      Floats& values = (*arguments)[i];
      std::memcpy(values.data(), bindings[i].memory->host(), values.size() * 4);
    }
  }

  using Want = std::function<double(int64_t i)>;  // by element of a slot

  void Compare(const std::vector<Floats>& got, const std::vector<Want>& want,
               const Program& program) {
    for (size_t slot = 0; slot < want.size(); ++slot) {
      for (int64_t i = 0; i < sizes_[slot]; ++i) {
        const double x = want[slot](i), y = got[slot][i];
        ASSERT_LE(std::abs(x - y), 2e-5 * std::max({1.0, std::abs(x)}))
            << "slot " << slot << ", element " << i << ": " << x << " expected, got " << y << "\n"
            << Print(program);
      }
    }
  }

  // `want` for the slots 0, 1, ... that the kernel writes.
  void Expect(const std::vector<UOp>& roots, const std::vector<Want>& want) {
    const UOp sink = g_.Make(Op::kSink, DType::kVoid, roots);
    ASSERT_TRUE(sink.valid()) << g_.status();
    for (int bytes : {4, 16, 64}) {
      SCOPED_TRACE(bytes);
      const auto program = Lowered(sink, MadeUp(bytes));
      ASSERT_TRUE(program.ok()) << program.status();
      std::vector<Floats> arguments = Arguments();
      Interpret(*program, &arguments);
      Compare(arguments, want, *program);
      if (HasFatalFailure()) return;
    }
    CpuOptions options;
    options.threads = 2;
    options.target = HostTarget(2);
    const auto device = OpenCpu(options);
    ASSERT_TRUE(device.ok());
    const auto program = Lowered(sink, options.target);
    ASSERT_TRUE(program.ok()) << program.status();
    std::vector<Floats> arguments = Arguments();
    RunOnCpu(**device, *program, &arguments);
    Compare(arguments, want, *program);
  }

  double RowMax(int64_t slot, int64_t r) const {
    double max = -1e30;
    for (int64_t c = 0; c < columns_; ++c) max = std::max<double>(max, X(slot, r, c));
    return max;
  }
  double OverColumns(const std::function<double(int64_t)>& value) const {
    double sum = 0;
    for (int64_t c = 0; c < columns_; ++c) sum += value(c);
    return sum;
  }
  double SoftmaxAt(int64_t i) const {
    const int64_t r = i / columns_;
    const double max = RowMax(1, r);
    const double sum = OverColumns([&](int64_t c) { return std::exp2(X(1, r, c) - max); });
    return std::exp2(X(1, r, i % columns_) - max) / sum;
  }

  const int64_t rows_, columns_;
  Graph g_;
  int64_t next_range_ = 0;
  std::vector<int64_t> sizes_;  // of the parameters
};

TEST_P(KernelForm, SeveralStores) {
  const UOp r = Loop(rows_), c = Loop(columns_), at = At(r, c);
  const UOp o0 = Matrix(0), o1 = Matrix(1), a = Load(Matrix(2), at), b = Load(Matrix(3), at);
  const UOp sum = Add(a, b);
  Expect({End(Store(o0, at, Add(sum, Float(2))), {r, c}), End(Store(o1, at, Mul(sum, a)), {r, c})},
         {[](int64_t i) { return Input(2, i) + Input(3, i) + 2.0; },
          [](int64_t i) { return (double{Input(2, i)} + Input(3, i)) * Input(2, i); }});
}

TEST_P(KernelForm, SoftmaxOfRows) {
  const UOp r = Loop(rows_), c = Loop(columns_), c1 = Folded(columns_), c2 = Folded(columns_);
  const UOp out = Matrix(0), x = Matrix(1);
  const UOp max = Reduce(ReduceKind::kMax, Load(x, At(r, c1)), {c1});
  const UOp sum = Sum(Exp2(Sub(Load(x, At(r, c2)), max)), c2);
  const UOp value = Mul(Exp2(Sub(Load(x, At(r, c)), max)), Recip(sum));
  Expect({End(Store(out, At(r, c), value), {r, c})}, {[&](int64_t i) { return SoftmaxAt(i); }});
}

TEST_P(KernelForm, OneRangeForEverythingOfARow) {
  const UOp r = Loop(rows_), c = Folded(columns_);
  const UOp out = Matrix(0), x = Load(Matrix(1), At(r, c));
  const UOp max = Reduce(ReduceKind::kMax, x, {c});
  const UOp sum = Sum(Exp2(Sub(x, max)), c);
  Expect({End(Store(out, At(r, c), Mul(Exp2(Sub(x, max)), Recip(sum))), {r, c})},
         {[&](int64_t i) { return SoftmaxAt(i); }});
}

TEST_P(KernelForm, SoftmaxOfColumns) {
  const UOp r = Loop(rows_), c = Loop(columns_), r1 = Folded(rows_), r2 = Folded(rows_);
  const UOp out = Matrix(0), x = Matrix(1);
  const UOp max = Reduce(ReduceKind::kMax, Load(x, At(r1, c)), {r1});
  const UOp sum = Sum(Exp2(Sub(Load(x, At(r2, c)), max)), r2);
  const UOp value = Mul(Exp2(Sub(Load(x, At(r, c)), max)), Recip(sum));
  Expect({End(Store(out, At(r, c), value), {r, c})}, {[&](int64_t i) {
           const int64_t column = i % columns_;
           double max_of = -1e30, sum_of = 0;
           for (int64_t row = 0; row < rows_; ++row) {
             max_of = std::max<double>(max_of, X(1, row, column));
           }
           for (int64_t row = 0; row < rows_; ++row) {
             sum_of += std::exp2(X(1, row, column) - max_of);
           }
           return std::exp2(Input(1, i) - max_of) / sum_of;
         }});
}

// Layer norm, which also stores the mean and the variance of each row: one nest in the others'
// outermost loop.
TEST_P(KernelForm, LayerNormWithItsMoments) {
  const UOp r = Loop(rows_), c = Loop(columns_), c1 = Folded(columns_), c2 = Folded(columns_);
  const UOp out = Matrix(0), means = Param(1, rows_), variances = Param(2, rows_), x = Matrix(3);
  const UOp n = Float(1.0 / static_cast<double>(columns_));
  const UOp mean = Mul(Sum(Load(x, At(r, c1)), c1), n);
  const UOp centered = Sub(Load(x, At(r, c2)), mean);
  const UOp variance = Mul(Sum(Mul(centered, centered), c2), n);
  const UOp scale = Recip(g_.Make(Op::kSqrt, {Add(variance, Float(0.5))}));
  const UOp value = Mul(Sub(Load(x, At(r, c)), mean), scale);
  const auto mean_of = [&](int64_t row) {
    return OverColumns([&](int64_t k) { return X(3, row, k); }) / static_cast<double>(columns_);
  };
  const auto variance_of = [&](int64_t row) {
    const double m = mean_of(row);
    return OverColumns([&](int64_t k) { return (X(3, row, k) - m) * (X(3, row, k) - m); }) /
           static_cast<double>(columns_);
  };
  Expect({End(Store(means, r, mean), {r}), End(End(Store(out, At(r, c), value), {c}), {r}),
          End(Store(variances, r, variance), {r})},
         {[&](int64_t i) {
            const int64_t row = i / columns_;
            return (Input(3, i) - mean_of(row)) / std::sqrt(variance_of(row) + 0.5);
          },
          mean_of, variance_of});
}

// Two sums in one loop, as they share their range, and a third one that needs the first.
TEST_P(KernelForm, SumsOverOneRange) {
  const UOp r = Loop(rows_), c = Folded(columns_);
  const UOp out = Param(0, rows_), x = Load(Matrix(1), At(r, c)), y = Load(Matrix(2), At(r, c));
  const UOp first = Sum(x, c), second = Sum(Mul(x, y), c), third = Sum(Mul(y, first), c);
  Expect({End(Store(out, r, Add(Mul(first, second), third)), {r})}, {[&](int64_t row) {
           const double f = OverColumns([&](int64_t k) { return X(1, row, k); });
           const double s = OverColumns([&](int64_t k) { return X(1, row, k) * X(2, row, k); });
           return f * s + OverColumns([&](int64_t k) { return X(2, row, k) * f; });
         }});
}

// The sum of two matrix products with different inner sizes.
TEST_P(KernelForm, TwoProductsSideBySide) {
  const int64_t k1 = 12, k2 = 5;
  const UOp r = Loop(rows_), c = Loop(columns_), i = Folded(k1), j = Folded(k2);
  const UOp out = Matrix(0), a = Param(1, rows_ * k1), b = Param(2, k1 * columns_);
  const UOp p = Param(3, rows_ * k2), q = Param(4, k2 * columns_);
  const UOp first = Sum(Mul(Load(a, Add(Mul(r, g_.Index(k1)), i)), Load(b, At(i, c))), i);
  const UOp second = Sum(Mul(Load(p, Add(Mul(r, g_.Index(k2)), j)), Load(q, At(j, c))), j);
  const UOp value = g_.Make(Op::kMax, {Add(first, second), Float(0)});
  Expect({End(Store(out, At(r, c), value), {r, c})}, {[&](int64_t at) {
           const int64_t row = at / columns_, column = at % columns_;
           double sum = 0;
           for (int64_t k = 0; k < k1; ++k) {
             sum += Input(1, row * k1 + k) * Input(2, k * columns_ + column);
           }
           for (int64_t k = 0; k < k2; ++k) {
             sum += Input(3, row * k2 + k) * Input(4, k * columns_ + column);
           }
           return std::max(sum, 0.0);
         }});
}

// log2(sum of exp2(x - max)) + max - x[label], with a label that is data.
TEST_P(KernelForm, CrossEntropy) {
  const UOp r = Loop(rows_), c1 = Folded(columns_), c2 = Folded(columns_);
  const UOp out = Param(0, rows_), x = Matrix(1);
  const UOp label = g_.Make(Op::kCast, DType::kInt64, {Load(Param(2, rows_), r)});
  const UOp max = Reduce(ReduceKind::kMax, Load(x, At(r, c1)), {c1});
  const UOp sum = Sum(Exp2(Sub(Load(x, At(r, c2)), max)), c2);
  const UOp loss = Sub(Add(g_.Make(Op::kLog2, {sum}), max), Load(x, At(r, label)));
  Expect({End(Store(out, r, loss), {r})}, {[&](int64_t row) {
           const double m = RowMax(1, row);
           const double s = OverColumns([&](int64_t c) { return std::exp2(X(1, row, c) - m); });
           const int64_t at = row * columns_ + static_cast<int64_t>(Input(2, row));
           // Outside of the buffer it reads 0.
           const bool inside = at >= 0 && at < rows_ * columns_;
           return std::log2(s) + m - (inside ? Input(1, at) : 0);
         }});
}

// The exponentials of a row are stored once, and their sum and the result read from there.
TEST_P(KernelForm, StagedInAnArgument) {
  const UOp r = Loop(rows_), c = Loop(columns_), inner = Loop(columns_), c1 = Folded(columns_),
            c2 = Folded(columns_);
  const UOp out = Matrix(0), stage = Matrix(1), x = Matrix(2);
  const UOp max = Reduce(ReduceKind::kMax, Load(x, At(r, c1)), {c1});
  const UOp fill = End(Store(stage, At(r, inner), Exp2(Sub(Load(x, At(r, inner)), max))), {inner});
  const UOp staged = g_.Make(Op::kAfter, {stage, fill});
  const UOp sum = Sum(Load(staged, At(r, c2)), c2);
  const UOp value = Mul(Load(staged, At(r, c)), Recip(sum));
  const auto exponential = [&](int64_t i) {
    return std::exp2(Input(2, i) - RowMax(2, i / columns_));
  };
  Expect({End(Store(out, At(r, c), value), {r, c})},
         {[&](int64_t i) {
            const int64_t row = i / columns_;
            return exponential(i) /
                   OverColumns([&](int64_t k) { return exponential(row * columns_ + k); });
          },
          exponential});
}

// A fold of what does not depend on its range, next to one that does.
TEST_P(KernelForm, SumsOfTheSame) {
  const UOp r = Loop(rows_), c = Folded(columns_), c1 = Folded(columns_);
  const UOp out = Param(0, rows_), x = Load(Param(1, rows_), r);
  const UOp value = Add(Sum(x, c), Sum(Mul(x, Load(Matrix(2), At(r, c1))), c1));
  Expect({End(Store(out, r, value), {r})}, {[&](int64_t row) {
           const double one = Input(1, row);
           return one * static_cast<double>(columns_) +
                  OverColumns([&](int64_t k) { return one * X(2, row, k); });
         }});
}

// A sum over sums, each of which depends on the outer one's range; all are peeled.
TEST_P(KernelForm, SumsInsideOfSums) {
  const UOp r = Loop(rows_), c = Folded(columns_), c1 = Folded(columns_);
  const UOp out = Param(0, rows_), x = Matrix(1), y = Param(2, columns_ * columns_);
  const UOp inner = Sum(Mul(Load(y, At(c, c1)), Load(x, At(r, c1))), c1);
  const UOp value = Sum(Mul(inner, Load(x, At(r, c))), c);
  Expect({End(Store(out, r, value), {r})}, {[&](int64_t row) {
           return OverColumns([&](int64_t j) {
             return X(1, row, j) *
                    OverColumns([&](int64_t k) { return double{X(2, j, k)} * X(1, row, k); });
           });
         }});
}

// So many ranges that there is no room to split them all.
TEST_P(KernelForm, ManyFolds) {
  constexpr int kFolds = 50;
  const UOp r = Loop(rows_), out = Param(0, rows_), x = Matrix(1);
  UOp total = Float(0);
  for (int i = 0; i < kFolds; ++i) {
    const UOp c = Folded(columns_);
    total = Add(total, Sum(Mul(Load(x, At(r, c)), Float(1 + i % 3)), c));
  }
  Expect({End(Store(out, r, total), {r})}, {[&](int64_t row) {
           double factors = 0;
           for (int i = 0; i < kFolds; ++i) factors += 1 + i % 3;
           return factors * OverColumns([&](int64_t k) { return X(1, row, k); });
         }});
}

// Nothing but the whole: sums over all rows, of which the columns are the lanes.
TEST_P(KernelForm, ColumnSumsAndProducts) {
  const UOp c = Loop(columns_), r1 = Folded(rows_), r2 = Folded(rows_);
  const UOp sums = Param(0, columns_), most = Param(1, columns_), x = Matrix(2);
  Expect({End(Store(sums, c, Sum(Load(x, At(r1, c)), r1)), {c}),
          End(Store(most, c, Reduce(ReduceKind::kMax, Load(x, At(r2, c)), {r2})), {c})},
         {[&](int64_t column) {
            double sum = 0;
            for (int64_t r = 0; r < rows_; ++r) sum += X(2, r, column);
            return sum;
          },
          [&](int64_t column) {
            double max = -1e30;
            for (int64_t r = 0; r < rows_; ++r) max = std::max<double>(max, X(2, r, column));
            return max;
          }});
}

// Lanes that are two to five elements apart, of which some lie in front of the buffer.
TEST_P(KernelForm, StepsOverTheInput) {
  for (int64_t step : {2, 3, 4, 5}) {
    const UOp r = Loop(rows_), c = Loop(columns_), k = Folded(3);
    const UOp out = Matrix(0), x = Param(1, rows_ * columns_ * step);
    const UOp column = Add(Add(g_.Make(Op::kMul, {c, g_.Index(step)}), k), g_.Index(-1));
    const UOp inside =
        g_.Make(Op::kAnd, {g_.Make(Op::kCmpLt, {g_.Index(-1), column}),
                           g_.Make(Op::kCmpLt, {column, g_.Index(columns_ * step)})});
    const UOp at = Add(g_.Make(Op::kMul, {r, g_.Index(columns_ * step)}), column);
    const UOp value = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {x, at, inside})});
    Expect({End(Store(out, At(r, c), Sum(value, k)), {r, c})}, {[&](int64_t i) {
             const int64_t row = i / columns_, first = i % columns_ * step - 1;
             double sum = 0;
             for (int64_t j = first; j < first + 3; ++j) {
               if (j >= 0 && j < columns_ * step) sum += Input(1, row * columns_ * step + j);
             }
             return sum;
           }});
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, KernelForm,
                         ::testing::Values(std::pair(8, 64), std::pair(5, 7), std::pair(3, 100),
                                           std::pair(1, 37), std::pair(48, 1), std::pair(6, 131)),
                         [](const auto& info) {
                           return StrCat(info.param.first, "x", info.param.second);
                         });

// Many channels of images whose rows are short: rows_ is the height, columns_ the width.
class Images : public KernelForm {
 protected:
  static constexpr int64_t kChannels = 128, kInputs = 5, kMinShared = 7;

  // By MULACCs that a target with vectors of 64 bytes executes, for each that is needed.
  void ExpectFewLanes(UOp root, double products, double most) {
    const auto program = Lowered(g_.Make(Op::kSink, {root}), MadeUp(64));
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_LE(program->flops, 2 * products * most) << Print(*program);
    EXPECT_GE(program->iterations, kMinShared) << "there is enough for threads to share";
  }
};

// A window of 3 x 3 with zeros around the image.
TEST_P(Images, Convolution) {
  const int64_t pixels = rows_ * columns_;
  const UOp o = Loop(kChannels), y = Loop(rows_), x = Loop(columns_);
  const UOp c = Folded(kInputs), ky = Folded(3), kx = Folded(3);
  const UOp out = Param(0, kChannels * pixels), in = Param(1, kInputs * pixels);
  const UOp weights = Param(2, kChannels * kInputs * 9);
  const UOp row = Add(Add(y, ky), g_.Index(-1)), column = Add(Add(x, kx), g_.Index(-1));
  const auto within = [&](UOp at, int64_t size) {
    return g_.Make(Op::kAnd, {g_.Make(Op::kCmpLt, {g_.Index(-1), at}),
                              g_.Make(Op::kCmpLt, {at, g_.Index(size)})});
  };
  const auto flat = [&](UOp i, int64_t size, UOp j) {
    return Add(g_.Make(Op::kMul, {i, g_.Index(size)}), j);
  };
  const UOp gate = g_.Make(Op::kAnd, {within(row, rows_), within(column, columns_)});
  const UOp at = flat(flat(c, rows_, row), columns_, column);
  const UOp value = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {in, at, gate})});
  const UOp weight = Load(weights, flat(flat(flat(o, kInputs, c), 3, ky), 3, kx));
  const UOp sum = Reduce(ReduceKind::kAdd, Mul(value, weight), {c, ky, kx});
  const UOp root = End(Store(out, flat(flat(o, rows_, y), columns_, x), sum), {o, y, x});
  Expect({root}, {[&](int64_t i) {
           const int64_t channel = i / pixels, r = i % pixels / columns_, s = i % columns_;
           double total = 0;
           for (int64_t k = 0; k < kInputs * 9; ++k) {
             const int64_t v = r + k % 9 / 3 - 1, u = s + k % 3 - 1;
             if (v < 0 || v >= rows_ || u < 0 || u >= columns_) continue;
             total += double{Input(1, k / 9 * pixels + v * columns_ + u)} *
                      Input(2, channel * kInputs * 9 + k);
           }
           return total;
         }});
  if (HasFatalFailure()) return;
  ExpectFewLanes(root, static_cast<double>(kChannels * pixels * kInputs * 9), 1.03);
}

// A product of matrices, of which the last vector of a row is narrow.
TEST_P(Images, Product) {
  const int64_t pixels = rows_ * columns_, inner = 40;
  const UOp o = Loop(kChannels), p = Loop(pixels), k = Folded(inner);
  const UOp out = Param(0, kChannels * pixels), x = Param(1, inner * pixels);
  const UOp weights = Param(2, kChannels * inner);
  const UOp value = Load(x, Add(g_.Make(Op::kMul, {k, g_.Index(pixels)}), p));
  const UOp weight = Load(weights, Add(g_.Make(Op::kMul, {o, g_.Index(inner)}), k));
  const UOp to = Add(g_.Make(Op::kMul, {o, g_.Index(pixels)}), p);
  const UOp root = End(Store(out, to, Sum(Mul(value, weight), k)), {o, p});
  Expect({root}, {[&](int64_t i) {
           double sum = 0;
           for (int64_t j = 0; j < inner; ++j) {
             sum += double{Input(1, j * pixels + i % pixels)} * Input(2, i / pixels * inner + j);
           }
           return sum;
         }});
}

INSTANTIATE_TEST_SUITE_P(Sizes, Images, ::testing::Values(std::pair(7, 7), std::pair(14, 14)),
                         [](const auto& info) {
                           return StrCat(info.param.first, "x", info.param.second);
                         });

class LargeKernel : public KernelForm {};

// A matrix product whose panels are worth a packed copy, also where they come with gates and steps.
TEST_P(LargeKernel, ProductThroughPackedPanels) {
  for (int64_t step : {1, 2}) {
    const int64_t inner = 300;
    const UOp r = Loop(rows_), c = Loop(columns_), k = Folded(inner);
    const UOp out = Matrix(0), a = Param(1, rows_ * inner);
    const UOp b = Param(2, inner * columns_ * step);
    const UOp column = g_.Make(Op::kMul, {c, g_.Index(step)});
    const UOp at = Add(g_.Make(Op::kMul, {k, g_.Index(columns_ * step)}), column);
    const UOp gate = g_.Make(Op::kCmpLt, {g_.Index(2), column});
    const UOp value = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {b, at, gate})});
    const UOp x = Load(a, Add(g_.Make(Op::kMul, {r, g_.Index(inner)}), k));
    Expect({End(Store(out, At(r, c), Sum(Mul(x, value), k)), {r, c})}, {[&](int64_t i) {
             const int64_t row = i / columns_, at_column = i % columns_ * step;
             double sum = 0;
             for (int64_t j = 0; j < inner && at_column > 2; ++j) {
               sum += double{Input(1, row * inner + j)} * Input(2, j * columns_ * step + at_column);
             }
             return sum;
           }});
    if (HasFatalFailure()) return;
    const auto program = Lowered(
        g_.Make(Op::kSink, {End(Store(out, At(r, c), Sum(Mul(x, value), k)), {r, c})}), MadeUp(64));
    ASSERT_TRUE(program.ok());
    EXPECT_TRUE(std::ranges::any_of(program->order,
                                    [&](uint32_t id) {
                                      const UOp u = program->graph->at(id);
                                      return u.is(Op::kBuffer) && u.arg(2) > 1024;
                                    }))
        << "no packed copy\n"
        << Print(*program);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LargeKernel, ::testing::Values(std::pair(98, 300)),
                         [](const auto&) { return "98x300"; });

}  // namespace
}  // namespace telegrad
