// What a graph becomes, before it runs: its launches with the reasons why each is a kernel of its
// own and the work it does, and where its temporaries lie. Nothing is compiled.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"
#include "engine/ir/program.h"
#include "engine/schedule/schedule.h"
#include "engine/types/target.h"
#include "engine/types/var_value.h"

namespace telegrad {

struct ExplainedKernel {
  std::string name;                          // by content, as a run's timeline shows it
  Shape loops;                               // sizes of the ranges over what is written
  Shape reduces;                             // of those that are reduced
  std::vector<BufferRef> buffers;            // what its arguments stand for
  std::vector<Program::Argument> arguments;  // one for each buffer
  std::vector<std::string> reasons;
  std::string moves;    // how its ranges are split and executed, see engine/lowering/moves/move.h
  std::string refused;  // why it is lowered with less that is parallel; empty where it is not
  double flops = 0;
  double bytes = 0;  // bytes of its arguments that it can touch, once each

  // Flops for each byte moved, at the least.
  double intensity() const { return bytes > 0 ? flops / bytes : 0; }
};

struct Explanation {
  std::vector<ExplainedKernel> kernels;  // in the order of their launches
  std::vector<Temporary> temporaries;
  int64_t different_kernels = 0;  // as many are compiled
  double flops = 0, bytes = 0;    // of all kernels
  int64_t arena_bytes = 0;        // what a run takes for temporaries
  int64_t peak_bytes = 0;         // of temporaries alive at a time: no plan takes less
  int64_t unshared_bytes = 0;     // what they would take without sharing memory
  int64_t slot_bytes = 0;         // of the slots that kernels use
};

// `sink` is the root of a verified tensor graph, `variables` as in ScheduleGraph.
// `lowered`, if given, is told how many of the kernels have been lowered so far, from 0 on.
absl::StatusOr<Explanation> ExplainGraph(
    UOp sink, std::span<const VarValue> variables, const Target& target, Budget* budget,
    const std::function<void(int64_t done, int64_t total)>& lowered = nullptr);

// What an argument stands for: the slot's name, or t0, t1, ... for a temporary.
std::string BufferName(const BufferRef& ref, std::span<const std::string> slot_names);

// Lines "kernel ...", one for each launch, then "temporary ...", then totals. slot_names[i] is what
// slot i is called.
std::string ToText(const Explanation& explanation, std::span<const std::string> slot_names);
// The same as one HTML page that needs nothing beside itself: the kernels with their predicted time
// on `threads` threads of a CPU, why each is one of its own, and the plan of the memory of
// temporaries.
std::string ToHtml(const Explanation& explanation, std::span<const std::string> slot_names,
                   std::string_view title, int threads);
// The same as one JSON object.
std::string ToJson(const Explanation& explanation, std::span<const std::string> slot_names);

}  // namespace telegrad
