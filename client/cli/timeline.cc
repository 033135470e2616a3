// Writes complete events with times in microseconds since the first phase; the server's events
// are moved to the middle of the phase in which they were asked for.
#include "client/cli/timeline.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/strings.h"

namespace telegrad::cli {
namespace {

enum Process { kClient = 1, kServer = 2 };
constexpr int kFirstThread = 1;  // of a process: its phases; the server's queues come after it

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string Microseconds(int64_t ns) { return Format("%.3f", static_cast<double>(ns) * 1e-3); }

// Names a process, or with a thread that.
std::string NameEvent(Process process, int thread, std::string_view name) {
  return StrCat("{\"ph\":\"M\",\"name\":\"", thread == 0 ? "process_name" : "thread_name",
                "\",\"pid\":", static_cast<int>(process), ",\"tid\":", thread,
                ",\"args\":{\"name\":", JsonQuote(name), "}}");
}

std::string CompleteEvent(Process process, int thread, std::string_view category,
                          std::string_view name, int64_t begin_ns, int64_t duration_ns,
                          std::string_view args) {
  return StrCat("{\"ph\":\"X\",\"cat\":\"", category, "\",\"name\":", JsonQuote(name),
                ",\"pid\":", static_cast<int>(process), ",\"tid\":", thread,
                ",\"ts\":", Microseconds(begin_ns), ",\"dur\":", Microseconds(duration_ns),
                ",\"args\":{", args, "}}");
}

std::string Arguments(const RunEvent& event) {
  std::string out = StrCat("\"bytes\":", Format("%.0f", event.bytes));
  if (event.copy) return out;
  const std::string reasons = absl::StrJoin(
      event.reasons, ",", [](std::string* to, const std::string& r) { *to += JsonQuote(r); });
  StrAppend(&out, ",\"flops\":", Format("%.0f", event.flops), ",\"reasons\":[", reasons, "]");
  if (event.duration_ns > 0) {
    const auto ns = static_cast<double>(event.duration_ns);
    StrAppend(&out, ",\"Gflop/s\":", Format("%.3f", event.flops / ns),
              ",\"GB/s\":", Format("%.3f", event.bytes / ns));
  }
  return out;
}

}  // namespace

int64_t Timeline::Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Timeline::Begin(std::string_view phase, int64_t now) {
  End(now);
  phases_.push_back({std::string(phase), now, now});
  open_ = true;
}

void Timeline::End(int64_t now) {
  if (open_) phases_.back().end_ns = now;
  open_ = false;
}

void Timeline::AddRun(const RunInfo& run, int64_t now) {
  if (run.trace == nullptr || !open_) return;
  const int64_t begin = phases_.back().begin_ns, took = run.compile_ns + run.trace->end_ns;
  const int64_t one_way = std::max<int64_t>(now - begin - took, 0) / 2;
  const int64_t submitted = begin + one_way + run.compile_ns;
  if (run.compile_ns > 0) served_.push_back({"compile", begin + one_way, submitted});
  served_.push_back({"run", submitted, submitted + run.trace->end_ns});
  for (RunEvent event : run.trace->events) {
    event.begin_ns += submitted;
    events_.push_back(std::move(event));
  }
  dropped_ += run.trace->dropped;
}

std::string Timeline::ToJson() const {
  const int64_t zero = phases_.empty() ? 0 : phases_.front().begin_ns;
  std::vector<std::string> out = {
      NameEvent(kClient, 0, "telegrad"), NameEvent(kClient, kFirstThread, "client"),
      NameEvent(kServer, 0, "telegradd"), NameEvent(kServer, kFirstThread, "session")};
  for (const auto& [process, spans] : {std::pair(kClient, &phases_), {kServer, &served_}}) {
    for (const Span& span : *spans) {
      out.push_back(CompleteEvent(process, kFirstThread, "phase", span.name, span.begin_ns - zero,
                                  span.end_ns - span.begin_ns, ""));
    }
  }
  std::vector<std::string> queues;
  for (const RunEvent& event : events_) {
    auto queue = std::ranges::find(queues, event.queue);
    if (queue == queues.end()) {
      queue = queues.insert(queues.end(), event.queue);
      const int thread = kFirstThread + static_cast<int>(queues.size());
      out.push_back(NameEvent(kServer, thread, event.queue));
    }
    const int thread = kFirstThread + 1 + static_cast<int>(queue - queues.begin());
    out.push_back(CompleteEvent(kServer, thread, event.copy ? "copy" : "launch", event.name,
                                event.begin_ns - zero, event.duration_ns, Arguments(event)));
  }
  return StrCat("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped_events\":", dropped_,
                "},\"traceEvents\":[\n", absl::StrJoin(out, ",\n"), "\n]}\n");
}

}  // namespace telegrad::cli
