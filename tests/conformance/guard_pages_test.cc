// Compiled kernels between guard pages. Every argument has exactly its size and lies once at the
// end of a mapping and once at the beginning of one, with an inaccessible page behind or before it;
// so a kernel that leaves a buffer by a byte crashes the test, whose last line then names the case.
// What the kernels compute is compared with the interpreter.
//
// TELEGRAD_SEED and TELEGRAD_CASES choose the random graphs, as in differential_test.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>

#include "devices/cpu/cpu_device.h"
#include "engine/base/files.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/frontend/nn/models.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/lowering/lower.h"
#include "engine/reference/program_eval.h"
#include "engine/render/llvm.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/random_graph.h"
#include "tests/fakes/guarded_memory.h"

namespace telegrad {
namespace {

using testing::GuardAt;
using testing::GuardedMemory;
using Buffers = std::vector<std::vector<uint8_t>>;

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoll(text, nullptr, 10) : otherwise;
}

double Element(DType dtype, const std::vector<uint8_t>& bytes, int64_t i) {
  int64_t raw = 0;
  std::memcpy(&raw, bytes.data() + i * ByteSize(dtype), static_cast<size_t>(ByteSize(dtype)));
  return ScalarAsDouble(dtype, ScalarFromMemory(dtype, raw));
}

// Integers exactly, floats up to a few roundings.
bool Equal(DType dtype, const std::vector<uint8_t>& want, const std::vector<uint8_t>& got) {
  if (!IsFloat(dtype)) return want == got;
  for (int64_t i = 0; i < static_cast<int64_t>(want.size()) / ByteSize(dtype); ++i) {
    const double x = Element(dtype, want, i), y = Element(dtype, got, i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!(std::abs(x - y) <= 1e-5 * std::max({std::abs(x), std::abs(y), 1.0}))) return false;
  }
  return true;
}

TEST(GuardedMemoryDeathTest, AByteOutsideIsAFault) {
  const std::vector<uint8_t> bytes(100, 7);
  const auto end = GuardedMemory::Make(bytes, GuardAt::kEnd);
  const auto begin = GuardedMemory::Make(bytes, GuardAt::kBegin);
  ASSERT_TRUE(end != nullptr && begin != nullptr);
  EXPECT_EQ(end->Bytes(), bytes);
  volatile uint8_t* const first = static_cast<uint8_t*>(begin->host());
  volatile uint8_t* const last = static_cast<uint8_t*>(end->host()) + 99;
  EXPECT_DEATH(first[-1] = 1, "");
  EXPECT_DEATH(last[1] = 1, "");
}

class GuardPages : public ::testing::Test {
 protected:
  void SetUp() override {
    CpuOptions options;
    options.threads = 2;
    options.memory_limit = int64_t{1} << 28;
    options.target = HostTarget(2);
    auto opened = OpenCpu(options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    device_ = *std::move(opened);
  }

  // Small numbers: as indices, some are inside and some are not.
  Buffers RandomArguments(const Program& program) {
    Buffers out;
    for (const Program::Argument& a : program.arguments) {
      std::vector<uint8_t> bytes(static_cast<size_t>(a.elements * ByteSize(a.dtype)));
      for (int64_t i = 0; i < a.elements; ++i) {
        const auto n = static_cast<int64_t>(random_() % 24);
        const int64_t word = IsFloat(a.dtype)
                                 ? ScalarFromDouble(a.dtype, static_cast<double>(n - 12) / 8)
                                 : ScalarFromInt(a.dtype, n - 6);
        const int64_t raw = ScalarToMemory(a.dtype, word);
        std::memcpy(bytes.data() + i * ByteSize(a.dtype), &raw,
                    static_cast<size_t>(ByteSize(a.dtype)));
      }
      out.push_back(std::move(bytes));
    }
    return out;
  }

  absl::StatusOr<Buffers> RunGuarded(const Program& program, std::shared_ptr<LoadedProgram> loaded,
                                     const Buffers& arguments, GuardAt at) {
    Command command;
    command.launch.program = std::move(loaded);
    command.launch.grid.x = program.iterations;
    command.launch.flops = 1e9;  // worth splitting over both threads
    std::vector<std::shared_ptr<GuardedMemory>> memory;
    std::vector<BufferView> bindings;
    for (const std::vector<uint8_t>& bytes : arguments) {
      memory.push_back(GuardedMemory::Make(bytes, at));
      if (memory.back() == nullptr) return ResourceExhausted("no memory to guard");
      command.launch.arguments.push_back({static_cast<int32_t>(bindings.size()), 0});
      bindings.push_back({memory.back(), 0, memory.back()->size()});
    }
    TG_ASSIGN_OR_RETURN(auto commands, device_->Encode({command}));
    TG_ASSIGN_OR_RETURN(const TimelinePoint point,
                        device_->queue().Submit(std::move(commands), std::move(bindings), {}));
    TG_RETURN_IF_ERROR(point.Wait());
    Buffers out;
    for (const auto& m : memory) out.push_back(m->Bytes());
    return out;
  }

  void RunKernel(const FrozenGraph& kernel) {
    Budget budget;
    const Target& target = device_->target();
    const auto program = Lower(kernel, target, "kernel", &budget);
    ASSERT_TRUE(program.ok()) << program.status();
    const auto source = RenderLlvm(*program, target);
    ASSERT_TRUE(source.ok()) << source.status();
    const auto image = Compile(*source, program->name, target);
    ASSERT_TRUE(image.ok()) << image.status();
    const auto loaded = device_->Load(*image);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const Buffers before = RandomArguments(*program);
    Buffers want = before;
    const std::vector<std::span<uint8_t>> spans(want.begin(), want.end());
    const absl::Status judged = reference::Run(*program, spans, 0, program->iterations);
    ASSERT_TRUE(judged.ok()) << judged;
    for (const GuardAt at : {GuardAt::kEnd, GuardAt::kBegin}) {
      const auto got = RunGuarded(*program, *loaded, before, at);
      ASSERT_TRUE(got.ok()) << got.status();
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_TRUE(Equal(program->arguments[i].dtype, want[i], (*got)[i]))
            << "argument " << i << " of\n"
            << Print(*program);
      }
    }
    ++kernels_;
  }

  void RunGraph(UOp sink, std::span<const VarValue> variables = {}) {
    Budget budget;
    const auto schedule = ScheduleGraph(sink, variables, &budget);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    for (const ScheduledKernel& kernel : schedule->kernels) {
      RunKernel(kernel.graph);
      if (HasFatalFailure()) return;
    }
  }

  std::mt19937_64 random_{1};
  std::unique_ptr<Device> device_;
  int kernels_ = 0;
};

TEST_F(GuardPages, RandomGraphs) {
  const int64_t first = FromEnvironment("TELEGRAD_SEED", 1);
  const int64_t cases = FromEnvironment("TELEGRAD_CASES", 60);
  std::cout << "seeds:";
  for (int64_t seed = first; seed < first + cases; ++seed) {
    std::cout << ' ' << seed << std::flush;
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    random_.seed(static_cast<uint64_t>(seed));
    Graph graph;
    const auto vocabulary = seed % 2 == 0 ? testing::Vocabulary::kPlain : testing::Vocabulary::kAll;
    const testing::RandomGraph random =
        testing::MakeRandomGraph(random_, 6 + static_cast<int>(seed % 30), &graph, vocabulary);
    if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) continue;
    RunGraph(random.sink, testing::VariablesOf(random.sink, random.variables));
    if (HasFatalFailure()) return;
  }
  std::cout << "\n" << kernels_ << " kernels\n";
  EXPECT_GE(kernels_, cases / 2);
}

TEST_F(GuardPages, GoldenGraphs) {
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden")) {
    if (entry.path().extension() != ".uop") continue;
    SCOPED_TRACE(entry.path().string());
    std::cout << entry.path().filename().string() << std::endl;
    const auto file = ReadFile(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status();
    Graph graph;
    const auto root = Parse(std::string_view(*file).substr(0, file->find("--- ")), &graph);
    ASSERT_TRUE(root.ok()) << root.status();
    RunGraph(*root);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(kernels_, 8);
}

TEST_F(GuardPages, ATrainingStep) {
  const auto plan = DigitsCnn{}.TrainStep(2);
  ASSERT_TRUE(plan.ok()) << plan.status();
  RunGraph(plan->graph.root());
}

}  // namespace
}  // namespace telegrad
