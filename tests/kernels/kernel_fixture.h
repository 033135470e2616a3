// Writes programs by hand and runs them on the CPU device.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "engine/compile/compiler.h"
#include "engine/ir/program.h"
#include "engine/render/llvm.h"
#include "gtest/gtest.h"

namespace telegrad {

// A program under construction: each call appends to the order.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(std::string name = "kernel") { program_.name = std::move(name); }

  Graph& graph() { return *graph_; }
  UOp Put(UOp u) {
    EXPECT_TRUE(u.valid()) << graph_->status();
    if (u.valid()) program_.order.push_back(u.id());
    return u;
  }
  UOp Do(Op op, std::initializer_list<UOp> src) { return Put(graph_->Make(op, src)); }
  UOp Do(Op op, DType dtype, std::initializer_list<UOp> src, std::initializer_list<int64_t> arg) {
    return Put(graph_->Make(op, dtype, src, arg));
  }
  UOp Cast(UOp x, DType dtype) { return Do(Op::kCast, dtype, {x}, {}); }
  UOp Bitcast(UOp x, DType dtype) { return Do(Op::kBitcast, dtype, {x}, {}); }
  UOp Index(int64_t value) { return graph_->Index(value); }
  UOp Iota(int64_t lanes, DType dtype = DType::kInt64) { return Do(Op::kIota, dtype, {}, {lanes}); }
  // `op` as lowering leaves it for `target`; counts the nodes that it took.
  UOp Lowered(const Target& target, Op op, DType dtype, std::span<const UOp> src,
              int* nodes = nullptr);
  UOp Lowered(const Target& target, Op op, DType dtype, std::initializer_list<UOp> src,
              int* nodes = nullptr) {
    return Lowered(target, op, dtype, std::span(src.begin(), src.size()), nodes);
  }
  // The next argument.
  UOp Argument(DType dtype, int64_t elements) {
    const auto slot = static_cast<int64_t>(program_.arguments.size());
    program_.arguments.push_back({dtype, elements, true, true});
    return Put(graph_->Param(slot, dtype, Shape{elements}));
  }
  UOp Register(DType dtype, int64_t elements, AddressSpace space = AddressSpace::kRegister) {
    return Do(Op::kBuffer, dtype, {}, {static_cast<int64_t>(space), next_buffer_++, elements});
  }
  UOp Open(AxisType type, UOp end) {
    const UOp range = Put(graph_->Range(next_range_++, type, end));
    if (type == AxisType::kThread) program_.iterations = range.vmax() + 1;
    return range;
  }
  UOp Open(AxisType type, int64_t end) { return Open(type, Index(end)); }
  UOp Close(UOp range) { return Do(Op::kEnd, {range}); }
  UOp Load(UOp buffer, UOp index) { return Do(Op::kLoad, {Do(Op::kIndex, {buffer, index})}); }
  UOp Load(UOp buffer, UOp index, UOp gate) {
    return Do(Op::kLoad, {Do(Op::kIndex, {buffer, index, gate})});
  }
  UOp Store(UOp buffer, UOp index, UOp value) {
    return Do(Op::kStore, {Do(Op::kIndex, {buffer, index}), value});
  }
  UOp Store(UOp buffer, UOp index, UOp value, UOp gate) {
    return Do(Op::kStore, {Do(Op::kIndex, {buffer, index, gate}), value});
  }

  Program Build() {
    program_.graph = graph_;
    return program_;
  }

 private:
  Program program_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  int64_t next_range_ = 0, next_buffer_ = 0;
};

// One device for the tests of a program.
Device& TestDevice();

// The host's target, and lesser ones that it can run too: "host", "avx2" and "baseline".
std::vector<std::pair<std::string, Target>> TestTargets();

absl::StatusOr<std::shared_ptr<LoadedProgram>> CompileAndLoad(const Program& program,
                                                              const Target& target);

template <typename T>
std::shared_ptr<Memory> Upload(const std::vector<T>& data) {
  auto memory = TestDevice().Alloc(data.size() * sizeof(T));
  EXPECT_TRUE(memory.ok()) << memory.status();
  std::memcpy((*memory)->host(), data.data(), data.size() * sizeof(T));
  return *memory;
}

template <typename T>
std::vector<T> Download(const Memory& memory) {
  std::vector<T> data(memory.size() / sizeof(T));
  std::memcpy(data.data(), memory.host(), data.size() * sizeof(T));
  return data;
}

// Compiles for `target` and runs once, with the memories as the arguments.
absl::Status RunOnce(const Program& program, const std::vector<std::shared_ptr<Memory>>& memories,
                     const Target& target);

}  // namespace telegrad
