// Spans reach a collector of OpenTelemetry, which is a real gRPC server of this test. If it
// refuses, hangs or is away, only spans are lost, and they are counted.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "otlp/trace.pb.h"
#include "server/service/otlp_exporter.h"
#include "tests/server/collector.h"

namespace telegrad {
namespace {

class OtlpTest : public ::testing::Test {
 protected:
  void Export(const std::string& address) {
    exporter_ = std::make_unique<OtlpExporter>(
        OtlpExporter::Options{
            .address = address, .most_queued = 64, .batch = 16, .interval_ms = 10, .call_ms = 300},
        &tracer_, &metrics_);
  }
  void Operation(const TraceContext& context, const absl::Status& status,
                 const std::string& tenant = "alice") {
    OperationTrace trace(&tracer_, context, "run", tenant, 7, 9);
    trace.Add("queue", trace.begin_ns(), trace.Now());
    trace.Note(status);
    trace.End();
  }
  int64_t exported() const { return metrics_.count(Metric::kSpansExported); }
  int64_t dropped() const { return metrics_.count(Metric::kSpansDropped); }

  Metrics metrics_;
  Tracer tracer_{16, 1};
  std::unique_ptr<OtlpExporter> exporter_;
};

TEST_F(OtlpTest, SpansArriveWithTheirTraceTimesAndErrors) {
  Collector collector;
  Export(collector.address());
  const auto before = std::chrono::system_clock::now().time_since_epoch();
  const auto context = *ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  Operation(context, absl::NotFoundError("no such graph"));
  const std::vector<otlp::Span> spans = collector.Await(2);
  const auto after = std::chrono::system_clock::now().time_since_epoch();
  ASSERT_EQ(spans.size(), 2u);
  const otlp::Span& part = spans[0];
  const otlp::Span& whole = spans[1];
  EXPECT_EQ(whole.name(), "run");
  EXPECT_EQ(part.name(), "queue");
  const std::string trace = "\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36";
  const std::string parent("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8);
  EXPECT_EQ(whole.trace_id(), trace);
  EXPECT_EQ(part.trace_id(), trace);
  EXPECT_EQ(whole.parent_span_id(), parent);
  EXPECT_EQ(part.parent_span_id(), whole.span_id());
  EXPECT_EQ(whole.span_id().size(), 8u);
  EXPECT_EQ(whole.status().code(), otlp::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(whole.status().message(), "NOT_FOUND");
  EXPECT_EQ(part.status().code(), otlp::Status::STATUS_CODE_UNSET);
  const auto ns = [](auto time) {
    return static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
  };
  constexpr uint64_t kSecond = 1'000'000'000;  // the clocks may be adjusted meanwhile
  for (const otlp::Span& span : spans) {
    EXPECT_GE(span.start_time_unix_nano() + kSecond, ns(before));
    EXPECT_LE(span.end_time_unix_nano(), ns(after) + kSecond);
    EXPECT_LE(span.start_time_unix_nano(), span.end_time_unix_nano());
  }
  std::map<std::string, std::string> attributes;
  for (const auto& attribute : whole.attributes()) {
    attributes[attribute.key()] = attribute.value().has_string_value()
                                      ? attribute.value().string_value()
                                      : std::to_string(attribute.value().int_value());
  }
  EXPECT_EQ(attributes["telegrad.tenant"], "alice");
  EXPECT_EQ(attributes["telegrad.session"], "7");
  EXPECT_EQ(attributes["rpc.grpc.status_code"], "5");
  exporter_ = nullptr;
  EXPECT_EQ(exported(), 2);
  EXPECT_EQ(dropped(), 0);
}

TEST_F(OtlpTest, ARefusingCollectorCostsItsSpans) {
  Collector collector(Collector::Mode::kRefuse);
  Export(collector.address());
  for (int i = 0; i < 20; ++i) Operation(*tracer_.Begin({}), absl::OkStatus());
  exporter_ = nullptr;
  EXPECT_EQ(exported(), 0);
  EXPECT_EQ(dropped(), 40);
}

TEST_F(OtlpTest, PartOfABatchMayBeRejected) {
  Collector collector(Collector::Mode::kRejectOne);
  Export(collector.address());
  Operation(*tracer_.Begin({}), absl::OkStatus());
  collector.Await(2);
  exporter_ = nullptr;
  EXPECT_EQ(exported() + dropped(), 2);
  EXPECT_GE(dropped(), 1);
}

// More spans than the queue has room for; none of the calls that make them waits.
TEST_F(OtlpTest, AHangingCollectorHoldsABoundedQueue) {
  Collector collector(Collector::Mode::kHang);
  Export(collector.address());
  collector.AwaitCall([&] { Operation(*tracer_.Begin({}), absl::OkStatus()); });
  constexpr int kOperations = 1000;
  for (int i = 1; i < kOperations; ++i) Operation(*tracer_.Begin({}), absl::OkStatus());
  EXPECT_GE(dropped(), 2 * kOperations - 64 - 2 * 16 - 2);
  exporter_ = nullptr;  // ends the call
  EXPECT_EQ(exported(), 0);
  EXPECT_EQ(dropped(), 2 * kOperations);
}

// While a call hangs, one tenant makes more spans than the queue has room for: those of another one
// stay in it.
TEST_F(OtlpTest, ATenantDisplacesItsOwnSpans) {
  Collector collector(Collector::Mode::kHangOnce);
  Export(collector.address());
  collector.AwaitCall([&] { Operation(*tracer_.Begin({}), absl::OkStatus(), "loud"); });
  for (int i = 0; i < 1000; ++i) Operation(*tracer_.Begin({}), absl::OkStatus(), "loud");
  for (int i = 0; i < 3; ++i) Operation(*tracer_.Begin({}), absl::OkStatus(), "quiet");
  for (int i = 0; i < 1000; ++i) Operation(*tracer_.Begin({}), absl::OkStatus(), "loud");
  constexpr int64_t kSpans = 2 * (1 + 1000 + 3 + 1000);
  while (exported() + dropped() < kSpans) std::this_thread::yield();
  int of_quiet = 0;
  for (const otlp::Span& span : collector.Await(0)) {
    for (const auto& attribute : span.attributes()) {
      of_quiet += attribute.value().string_value() == "quiet" ? 1 : 0;
    }
  }
  EXPECT_EQ(of_quiet, 6);
}

TEST_F(OtlpTest, ACollectorThatComesLaterGetsWhatIsNew) {
  std::string address;
  {
    address = Collector().address();
  }
  Export(address);
  Operation(*tracer_.Begin({}), absl::OkStatus());
  while (dropped() < 2) std::this_thread::yield();
  Collector collector(Collector::Mode::kTake, address);
  while (exported() == 0) {
    Operation(*tracer_.Begin({}), absl::OkStatus());
    std::this_thread::yield();  // a queue that is full only drops
  }
  EXPECT_FALSE(collector.Await(1).empty());
}

}  // namespace
}  // namespace telegrad
