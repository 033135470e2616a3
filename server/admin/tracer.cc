// Parses and writes traceparent headers, decides which operations are traced, keeps the last
// spans in a ring, and passes spans on to sinks.
#include "server/admin/tracer.h"

#include <charconv>
#include <cstdio>
#include <map>
#include <random>

#include "engine/base/json.h"
#include "engine/base/strings.h"

namespace telegrad {
namespace {

// Lower-case hexadecimal digits and nothing else.
bool ParseHex(std::string_view text, uint64_t* out) {
  for (const char c : text) {
    if ((c < '0' || c > '9') && (c < 'a' || c > 'f')) return false;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out, 16);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string HexDigits(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  constexpr size_t kLength = 55;  // of version 00; later ones may have more behind a '-'
  TraceContext out;
  uint64_t version = 0, flags = 0;
  if (text.size() < kLength || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
      !ParseHex(text.substr(0, 2), &version) || !ParseHex(text.substr(3, 16), &out.high) ||
      !ParseHex(text.substr(19, 16), &out.low) || !ParseHex(text.substr(36, 16), &out.parent) ||
      !ParseHex(text.substr(53, 2), &flags)) {
    return std::nullopt;
  }
  const bool longer = text.size() > kLength;
  if (version == 0xff || (longer && (version == 0 || text[kLength] != '-'))) return std::nullopt;
  if ((out.high == 0 && out.low == 0) || out.parent == 0) return std::nullopt;
  out.sampled = (flags & 1) != 0;
  return out;
}

Tracer::Tracer(int64_t most, int64_t one_in, const Clock* clock)
    : one_in_(one_in), clock_(*clock), spans_(static_cast<size_t>(most)) {
  std::random_device random;
  ids_ = (uint64_t{random()} << 32) | random();
}

// A bijection of the count (the finalizer of MurmurHash3), so that no two are equal.
uint64_t Tracer::NewId() {
  uint64_t id = ids_.fetch_add(1, std::memory_order_relaxed);
  id = (id ^ (id >> 33)) * 0xff51afd7ed558ccd;
  id = (id ^ (id >> 33)) * 0xc4ceb9fe1a85ec53;
  id ^= id >> 33;
  return id == 0 ? NewId() : id;
}

std::optional<TraceContext> Tracer::Begin(const std::optional<TraceContext>& caller) {
  if (caller) return caller->sampled ? caller : std::nullopt;
  if (one_in_ == 0 || seen_.fetch_add(1, std::memory_order_relaxed) % one_in_ != 0) {
    return std::nullopt;
  }
  return TraceContext{.high = NewId(), .low = NewId(), .parent = 0, .sampled = true};
}

void Tracer::Add(TraceSpan span) {
  const MutexLock lock(mutex_);
  for (SpanSink* const sink : sinks_) sink->Take(span);
  const std::string tenant = span.tenant;
  dropped_ += spans_.Add(tenant, std::move(span)) ? 1 : 0;
}

void Tracer::AddSink(SpanSink* sink) {
  const MutexLock lock(mutex_);
  sinks_.push_back(sink);
}

void Tracer::RemoveSink(SpanSink* sink) {
  const MutexLock lock(mutex_);
  std::erase(sinks_, sink);
}

std::string Tracer::ChromeJson() const {
  const MutexLock lock(mutex_);
  std::string out =
      R"({"traceEvents":[{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"telegradd"}})";
  // Operations of one trace may overlap: so each has a row of its own.
  std::map<std::pair<uint64_t, uint64_t>, int> rows;  // by session and operation
  int64_t first = INT64_MAX;
  spans_.ForEach([&](const TraceSpan& span) { first = std::min(first, span.begin_ns); });
  char times[96];
  spans_.ForEach([&](const TraceSpan& span) {
    const auto [row, fresh] =
        rows.emplace(std::pair(span.session, span.operation), static_cast<int>(rows.size()) + 1);
    if (fresh) {
      StrAppend(&out, R"(,{"ph":"M","pid":1,"tid":)", row->second,
                R"(,"name":"thread_name","args":{"name":)",
                JsonQuote(StrCat("session ", span.session, " operation ", span.operation)), "}}");
    }
    std::snprintf(times, sizeof(times), R"("ts":%.3f,"dur":%.3f)",
                  static_cast<double>(span.begin_ns - first) * 1e-3,
                  static_cast<double>(std::max<int64_t>(span.end_ns - span.begin_ns, 0)) * 1e-3);
    StrAppend(&out, R"(,{"ph":"X","cat":"span","pid":1,"tid":)", row->second, ",", times,
              R"(,"name":)", JsonQuote(span.name), R"(,"args":{"trace":")", HexDigits(span.of.high),
              HexDigits(span.of.low), R"(","span":")", HexDigits(span.id), R"(","parent":")",
              HexDigits(span.of.parent), R"(","tenant":)", JsonQuote(span.tenant), "}}");
  });
  StrAppend(&out, R"(],"otherData":{"dropped_spans":)", dropped_, "}}\n");
  return out;
}

OperationTrace::OperationTrace(Tracer* tracer, const TraceContext& caller, std::string name,
                               std::string tenant, uint64_t session, uint64_t operation)
    : tracer_(*tracer),
      own_{.of = caller,
           .id = tracer->NewId(),
           .name = std::move(name),
           .begin_ns = tracer->clock().Ns(),
           .end_ns = 0,
           .tenant = std::move(tenant),
           .session = session,
           .operation = operation} {}

void OperationTrace::Add(std::string_view name, int64_t begin_ns, int64_t end_ns) {
  TraceSpan child = own_;
  child.of.parent = own_.id;
  child.id = tracer_.NewId();
  child.name = name;
  child.begin_ns = begin_ns;
  child.end_ns = end_ns;
  tracer_.Add(std::move(child));
}

void OperationTrace::End() {
  if (ended_.exchange(true)) return;
  own_.end_ns = Now();
  own_.whole = true;
  own_.code = code_.load();
  tracer_.Add(own_);
}

}  // namespace telegrad
