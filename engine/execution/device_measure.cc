// The least of several runs counts: what else the machine does only ever makes a run longer. The
// buffers hold small numbers, the same for every program: sums neither overflow nor meet
// subnormals, and integers are zero, so that what is read at computed places is read at the first.
// Numbers that end loops are beyond their bounds, which programs clamp: all iterations run.
#include "engine/execution/device_measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/execution/prediction.h"
#include "engine/ir/scalar.h"
#include "engine/render/render.h"

namespace telegrad {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kMostLaunches = 64;                        // in a submission
constexpr absl::Duration kMostTime = absl::Seconds(60);  // of one

double SecondsSince(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// Where the host cannot write, the memory stays zero.
void FillWithNumbers(DType dtype, int64_t elements, Memory* memory) {
  if (memory->host() == nullptr || !IsFloat(dtype) || IsPacked(dtype)) return;
  constexpr int kValues = 251;  // prime: no row of a matrix begins like the one before
  uint8_t values[kValues][8];
  const auto size = static_cast<size_t>(ByteSize(dtype));
  for (int i = 0; i < kValues; ++i) {
    const int64_t raw = ScalarToMemory(dtype, ScalarFromDouble(dtype, (i - 125) * 0x1p-10));
    std::memcpy(values[i], &raw, size);
  }
  auto* const bytes = static_cast<uint8_t*>(memory->host());
  for (int64_t i = 0; i < elements; ++i) {
    std::memcpy(bytes + static_cast<size_t>(i) * size, values[i % kValues], size);
  }
}

// The arguments that the ends of loops are computed from.
std::vector<bool> GiveEnds(const Program& program) {
  std::vector<bool> out(program.arguments.size(), false);
  for (const uint32_t id : program.order) {
    const UOp range = program.graph->at(id);
    if (!range.is(Op::kRange) || range.src(0).is_const()) continue;
    for (const uint32_t part : PostOrder(range.src(0))) {
      const UOp u = program.graph->at(part);
      if (!u.is(Op::kLoad) || u.dtype() != DType::kInt64) continue;
      const UOp memory = u.src(0).src(0);
      if (memory.is(Op::kParam)) out[static_cast<size_t>(memory.slot())] = true;
    }
  }
  return out;
}

constexpr int64_t kBeyondBounds = int64_t{1} << 62;

}  // namespace

DeviceMeasure::DeviceMeasure(Device& device, std::shared_ptr<KernelCompiler> compiler,
                             MeasureOptions options)
    : device_(device), compiler_(std::move(compiler)), options_(std::move(options)) {
  if (!options_.alloc) {
    options_.alloc = [&device](int64_t bytes) { return device.Alloc(bytes); };
  }
  if (!options_.run) {
    options_.run = [&device](std::shared_ptr<const std::vector<RunSlice>> slices,
                             const std::vector<BufferView>& bindings) -> absl::StatusOr<double> {
      const auto begin = SteadyClock::now();
      SlicedWork work;
      work.slices = std::move(slices);
      work.bindings = bindings;
      TG_ASSIGN_OR_RETURN(const TimelinePoint point,
                          WaitingQueues().Submit(device, QueueKind::kCompute, std::move(work)));
      TG_RETURN_IF_ERROR(point.Wait(kMostTime));
      return SecondsSince(begin);
    };
  }
}

absl::StatusOr<std::vector<BufferView>> DeviceMeasure::Bind(const Program& program,
                                                            Launch* launch) {
  std::vector<BufferView> bindings;
  int64_t total = 0;
  const std::vector<bool> gives = GiveEnds(program);
  for (size_t i = 0; i < program.arguments.size(); ++i) {
    const Program::Argument& a = program.arguments[i];
    const int64_t bytes = BytesOf(a.dtype, a.elements);
    total += bytes;
    if (total > options_.memory_bytes) {
      return ResourceExhausted("measuring needs ", total, " bytes of scratch buffers, at most ",
                               options_.memory_bytes);
    }
    if (scratch_.size() <= i) scratch_.emplace_back();
    if (scratch_[i] == nullptr || scratch_[i]->size() < bytes) {
      scratch_[i] = nullptr;
      TG_ASSIGN_OR_RETURN(scratch_[i], options_.alloc(std::max<int64_t>(bytes, 64)));
      FillWithNumbers(a.dtype, a.elements, scratch_[i].get());
    }
    launch->arguments.push_back({static_cast<int32_t>(i), 0});
    bindings.push_back({scratch_[i], 0, bytes});
    if (!gives[i]) continue;
    auto* const numbers = static_cast<int64_t*>(scratch_[i]->host());
    if (numbers == nullptr) {
      return Unimplemented("measuring: the host cannot write the numbers that end loops");
    }
    std::fill_n(numbers, a.elements, kBeyondBounds);
  }
  return bindings;
}

absl::StatusOr<double> DeviceMeasure::Run(const Launch& launch, int launches,
                                          const std::vector<BufferView>& bindings, Budget* budget) {
  const Rates rates = device_.rates();
  const double predicted = PredictedSeconds(launch.flops, launch.bytes, rates);
  if (predicted > options_.longest_seconds) {
    return ResourceExhausted("a run of ", launch.name, " is predicted to take ", predicted,
                             " s; programs of at most ", options_.longest_seconds,
                             " s are measured");
  }
  const int segments = SegmentsOf(predicted, launch.grid.x, rates.iterations);
  std::vector<PredictedCommand> commands;
  for (int i = 0; i < launches; ++i) AddLaunch(launch, predicted, segments, &commands);
  TG_ASSIGN_OR_RETURN(auto slices, EncodeSlices(device_, std::move(commands)));
  TG_ASSIGN_OR_RETURN(const double seconds, options_.run(std::move(slices), bindings));
  seconds_used_ += seconds;
  TG_RETURN_IF_ERROR(budget->CheckTime());
  return seconds;
}

absl::StatusOr<double> DeviceMeasure::Seconds(const Program& program, double at_most,
                                              Budget* budget) {
  TG_ASSIGN_OR_RETURN(const std::string source, Render(program, device_.target()));
  TG_RETURN_IF_ERROR(budget->SpendCode(static_cast<int64_t>(source.size())));
  TG_ASSIGN_OR_RETURN(const ProgramImage image,
                      compiler_->Compile(source, program.name, device_.target(), budget));
  TG_ASSIGN_OR_RETURN(auto loaded, device_.Load(image));
  Launch launch = Launch::Of(std::move(loaded));
  launch.grid.x = program.iterations;
  launch.flops = program.flops;
  launch.bytes = program.bytes;
  launch.name = program.name;
  TG_ASSIGN_OR_RETURN(const std::vector<BufferView> bindings, Bind(program, &launch));
  // The first run touches the memory and the code.
  TG_ASSIGN_OR_RETURN(double least, Run(launch, 1, bindings, budget));
  const int launches = static_cast<int>(std::clamp(options_.batch_seconds / std::max(least, 1e-9),
                                                   1.0, static_cast<double>(kMostLaunches)));
  const auto begin = SteadyClock::now();
  for (int i = 0; i < options_.most_runs; ++i) {
    TG_ASSIGN_OR_RETURN(const double seconds, Run(launch, launches, bindings, budget));
    least = i == 0 ? seconds / launches : std::min(least, seconds / launches);
    if (i + 1 >= options_.least_runs &&
        (least > at_most || SecondsSince(begin) > options_.seconds)) {
      break;
    }
  }
  return least;
}

}  // namespace telegrad
