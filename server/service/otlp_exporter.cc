// Spans have times of the steady clock; the offset to the time of day is read for each batch, so
// a clock that jumps moves only what is sent later.
#include "server/service/otlp_exporter.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "grpc/support/time.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "otlp/trace.pb.h"
#include "server/admin/limited_log.h"

namespace telegrad {
namespace {

constexpr int64_t kLookMs = 20;
constexpr char kExport[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

std::string BigEndian(uint64_t value) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (56 - 8 * i));
  return bytes;
}

template <typename Message>
void AddText(Message* message, const char* key, const std::string& value) {
  otlp::KeyValue* const attribute = message->add_attributes();
  attribute->set_key(key);
  attribute->mutable_value()->set_string_value(value);
}

void AddNumber(otlp::Span* span, const char* key, uint64_t value) {
  otlp::KeyValue* const attribute = span->add_attributes();
  attribute->set_key(key);
  attribute->mutable_value()->set_int_value(static_cast<int64_t>(value));
}

void ToOtlp(const TraceSpan& span, int64_t offset_ns, otlp::Span* out) {
  out->set_trace_id(BigEndian(span.of.high) + BigEndian(span.of.low));
  out->set_span_id(BigEndian(span.id));
  if (span.of.parent != 0) out->set_parent_span_id(BigEndian(span.of.parent));
  out->set_name(span.name);
  out->set_kind(span.whole ? otlp::Span::SPAN_KIND_SERVER : otlp::Span::SPAN_KIND_INTERNAL);
  out->set_start_time_unix_nano(static_cast<uint64_t>(span.begin_ns + offset_ns));
  out->set_end_time_unix_nano(
      static_cast<uint64_t>(std::max(span.begin_ns, span.end_ns) + offset_ns));
  AddText(out, "telegrad.tenant", span.tenant);
  AddNumber(out, "telegrad.session", span.session);
  AddNumber(out, "telegrad.operation", span.operation);
  if (!span.whole) return;
  AddNumber(out, "rpc.grpc.status_code", static_cast<uint64_t>(span.code));
  const bool ok = span.code == absl::StatusCode::kOk;
  out->mutable_status()->set_code(ok ? otlp::Status::STATUS_CODE_OK
                                     : otlp::Status::STATUS_CODE_ERROR);
  if (!ok) out->mutable_status()->set_message(absl::StatusCodeToString(span.code));
}

}  // namespace

OtlpExporter::OtlpExporter(Options options, Tracer* tracer, Metrics* metrics)
    : options_(std::move(options)),
      tracer_(*tracer),
      metrics_(*metrics),
      channel_(grpc::CreateChannel(options_.address, grpc::InsecureChannelCredentials())),
      queue_(options_.most_queued) {
  thread_ = std::thread([this] { Loop(); });
  tracer_.AddSink(this);
}

OtlpExporter::~OtlpExporter() {
  tracer_.RemoveSink(this);
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void OtlpExporter::Take(const TraceSpan& span) {
  {
    const MutexLock lock(mutex_);
    if (queue_.Add(span.tenant, span)) metrics_.Add(Metric::kSpansDropped);
    if (queue_.size() < options_.batch) return;
  }
  wake_.notify_one();
}

void OtlpExporter::Loop() {
  const auto interval = std::chrono::milliseconds(options_.interval_ms);
  ReleasableLock lock(mutex_);
  while (true) {
    const auto until = std::chrono::steady_clock::now() + interval;
    while (!stop_ && queue_.size() < options_.batch &&
           wake_.wait_until(lock, until) != std::cv_status::timeout) {
    }
    const bool last = stop_;
    while (!queue_.empty()) {
      std::deque<TraceSpan> batch;
      for (size_t n = std::min(options_.batch, queue_.size()); n > 0; --n) {
        batch.push_back(queue_.TakeOldest());
      }
      lock.unlock();
      const auto spans = static_cast<int64_t>(batch.size());
      const int64_t lost = Send(batch, options_.call_ms);
      metrics_.Add(Metric::kSpansExported, spans - lost);
      metrics_.Add(Metric::kSpansDropped, lost);
      lock.lock();
      if (lost < spans) continue;
      if (last) {  // it takes no more
        metrics_.Add(Metric::kSpansDropped, static_cast<int64_t>(queue_.size()));
        while (!queue_.empty()) queue_.TakeOldest();
      }
      break;  // a pause before the next call
    }
    if (last) return;
  }
}

// What a collector has answered; written by a thread of gRPC.
struct OtlpExporter::Answer {
  Mutex mutex;
  ConditionVariable came;
  std::optional<grpc::Status> status TG_GUARDED_BY(mutex);
};

int64_t OtlpExporter::Send(const std::deque<TraceSpan>& spans, int64_t deadline_ms) {
  const int64_t offset_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::system_clock::now().time_since_epoch())
                                .count() -
                            tracer_.clock().Ns();
  otlp::ExportTraceServiceRequest request;
  otlp::ResourceSpans* const resource = request.add_resource_spans();
  AddText(resource->mutable_resource(), "service.name", "telegradd");
  otlp::ScopeSpans* const scope = resource->add_scope_spans();
  scope->mutable_scope()->set_name("telegrad");
  for (const TraceSpan& span : spans) ToOtlp(span, offset_ns, scope->add_spans());

  grpc::ClientContext context;
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(deadline_ms, GPR_TIMESPAN)));
  otlp::ExportTraceServiceResponse response;
  Answer answer;
  grpc::TemplatedGenericStub<otlp::ExportTraceServiceRequest, otlp::ExportTraceServiceResponse>
      stub(channel_);
  stub.UnaryCall(&context, kExport, grpc::StubOptions(), &request, &response,
                 [&answer](const grpc::Status& got) {
                   const MutexLock lock(answer.mutex);
                   answer.status = got;
                   answer.came.notify_one();
                 });
  // Once the exporter is to end, the call has a fifth of its time: looked at every 20 ms, because
  // the end of the call and that of the exporter are under different locks.
  int64_t left_ms = deadline_ms / 5;
  ReleasableLock lock(answer.mutex);
  while (!answer.status) {
    if (answer.came.wait_for(lock, std::chrono::milliseconds(kLookMs)) != std::cv_status::timeout) {
      continue;
    }
    const MutexLock own(mutex_);
    if (!stop_ || (left_ms -= kLookMs) > 0) continue;
    context.TryCancel();
  }
  const grpc::Status status = *answer.status;
  const auto sent = static_cast<int64_t>(spans.size());
  const int64_t lost =
      status.ok() ? std::clamp<int64_t>(response.partial_success().rejected_spans(), 0, sent)
                  : sent;
  if (lost == 0) return 0;
  static LimitedLog log(LogLevel::kWarning, "spans_not_exported");
  log.Write({{"spans", lost},
             {"collector", options_.address},
             {"why", Clip(status.ok() ? response.partial_success().error_message()
                                      : status.error_message(),
                          kMaxLogged)}});
  return lost;
}

}  // namespace telegrad
