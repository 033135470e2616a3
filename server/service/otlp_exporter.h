// Sends spans to a collector of OpenTelemetry over gRPC (OTLP). They wait in a bounded queue. If
// the collector is away, hangs or refuses, only spans are lost, and they are counted: those of
// calls that failed, and those for which the queue has no room, which are of the tenant that has
// the most in it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "server/admin/fair_backlog.h"
#include "server/admin/metrics.h"
#include "server/admin/tracer.h"

namespace telegrad {

class OtlpExporter final : public SpanSink {
 public:
  struct Options {
    std::string address;         // HOST:PORT or unix:PATH
    size_t most_queued = 8192;   // spans
    size_t batch = 512;          // in one call
    int64_t interval_ms = 1000;  // after which fewer are sent, too
    int64_t call_ms = 5000;      // the deadline of one call
  };

  // Both outlive it.
  OtlpExporter(Options options, Tracer* tracer, Metrics* metrics);
  // Sends what is queued; a call has a fifth of its time from then on.
  ~OtlpExporter() override;
  OtlpExporter(const OtlpExporter&) = delete;
  OtlpExporter& operator=(const OtlpExporter&) = delete;

  void Take(const TraceSpan& span) override;

 private:
  struct Answer;
  void Loop();
  // How many the collector has not taken.
  int64_t Send(const std::deque<TraceSpan>& spans, int64_t deadline_ms);

  const Options options_;
  Tracer& tracer_;
  Metrics& metrics_;
  const std::shared_ptr<grpc::Channel> channel_;
  Mutex mutex_;
  ConditionVariable wake_;
  FairBacklog<TraceSpan> queue_ TG_GUARDED_BY(mutex_);
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace telegrad
