// For tests only: what the Trace Event Format asks of a timeline, checked event by event. The
// format: "Trace Event Format", Google,
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/json.h"

namespace telegrad::testing {

struct CompleteEvent {
  std::string category, name, process, thread;
  double begin = 0, end = 0;  // microseconds
  Struct args;
};

// The complete events, in the file's order. Expects that each event is complete or names a process
// or thread, that every process and thread that has events is named once, and that the events of a
// thread nest: two of them are apart or one lies in the other.
inline std::vector<CompleteEvent> ParseTimeline(const std::string& text) {
  // Times are written in steps of a nanosecond.
  constexpr double kStep = 0.001;
  const Struct file = ParseJson(text);
  std::map<double, std::string> processes;
  std::map<std::pair<double, double>, std::string> threads;
  std::vector<Struct> complete;
  for (const Value& value : At(file, "traceEvents").list_value().values()) {
    const Struct& event = value.struct_value();
    const double pid = Number(event, "pid"), tid = Number(event, "tid");
    if (String(event, "ph") == "M") {
      const std::string& name = String(At(event, "args").struct_value(), "name");
      if (String(event, "name") == "process_name") {
        EXPECT_TRUE(processes.emplace(pid, name).second) << event.ShortDebugString();
      } else {
        EXPECT_EQ(String(event, "name"), "thread_name");
        EXPECT_TRUE(threads.emplace(std::pair(pid, tid), name).second) << event.ShortDebugString();
      }
      continue;
    }
    EXPECT_EQ(String(event, "ph"), "X");
    complete.push_back(event);
  }
  std::vector<CompleteEvent> out;
  for (const Struct& event : complete) {
    const double pid = Number(event, "pid"), tid = Number(event, "tid");
    EXPECT_TRUE(processes.contains(pid) && threads.contains({pid, tid}))
        << event.ShortDebugString();
    const double begin = Number(event, "ts"), duration = Number(event, "dur");
    EXPECT_GE(begin, 0);
    EXPECT_GE(duration, 0);
    out.push_back({String(event, "cat"), String(event, "name"), processes[pid], threads[{pid, tid}],
                   begin, begin + duration, At(event, "args").struct_value()});
  }
  std::vector<const CompleteEvent*> sorted;
  for (const CompleteEvent& event : out) sorted.push_back(&event);
  std::ranges::stable_sort(sorted, [](const CompleteEvent* a, const CompleteEvent* b) {
    return std::pair(a->begin, -a->end) < std::pair(b->begin, -b->end);
  });
  std::map<std::string, std::vector<const CompleteEvent*>> around;
  for (const CompleteEvent* event : sorted) {
    std::vector<const CompleteEvent*>& stack = around[event->process + "/" + event->thread];
    while (!stack.empty() && stack.back()->end <= event->begin + kStep) stack.pop_back();
    if (!stack.empty()) {
      EXPECT_LE(event->end, stack.back()->end + kStep)
          << event->name << " crosses the end of " << stack.back()->name;
    }
    stack.push_back(event);
  }
  return out;
}

}  // namespace telegrad::testing
