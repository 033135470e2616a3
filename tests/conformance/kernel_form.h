// Kernels that tests build node by node. Each is lowered for several made-up targets and
// interpreted, and compiled and run on the CPU; the expected values are computed by the tests, by
// plain loops.
#pragma once

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

using Floats = std::vector<float>;

inline float Input(int64_t slot, int64_t i) {
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

}  // namespace telegrad
