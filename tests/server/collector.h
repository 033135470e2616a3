// A collector of OpenTelemetry's trace service: a gRPC server that keeps the spans it is sent, or
// refuses them, or never answers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "otlp/trace.pb.h"

namespace telegrad {

class Collector final : public grpc::CallbackGenericService {
 public:
  enum class Mode { kTake, kRefuse, kRejectOne, kHang, kHangOnce };

  explicit Collector(Mode mode = Mode::kTake, const std::string& address = "127.0.0.1:0")
      : mode_(mode) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~Collector() {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // Once so many spans have arrived.
  std::vector<otlp::Span> Await(size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return spans_.size() >= n; });
    return spans_;
  }
  // Does it, and waits for the call that it causes.
  void AwaitCall(const std::function<void()>& cause) {
    std::unique_lock lock(mutex_);
    const int before = calls_;
    lock.unlock();
    cause();
    lock.lock();
    changed_.wait(lock, [&] { return calls_ > before; });
  }

 private:
  class Call final : public grpc::ServerGenericBidiReactor {
   public:
    Call(Collector* collector, const std::string& method) : collector_(*collector) {
      if (method != "/opentelemetry.proto.collector.trace.v1.TraceService/Export") {
        Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, method));
      } else {
        StartRead(&message_);
      }
    }
    void OnReadDone(bool ok) override {
      if (!ok) return EndIfCancelled();
      grpc::Slice whole;
      EXPECT_TRUE(message_.DumpToSingleSlice(&whole).ok());
      otlp::ExportTraceServiceRequest request;
      EXPECT_TRUE(request.ParseFromArray(whole.begin(), static_cast<int>(whole.size())));
      const Mode mode = collector_.Take(request);
      if (mode == Mode::kHang) return EndIfCancelled();
      if (mode == Mode::kRefuse) {
        return Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no room"));
      }
      otlp::ExportTraceServiceResponse response;
      if (mode == Mode::kRejectOne) response.mutable_partial_success()->set_rejected_spans(1);
      const grpc::Slice slice(response.SerializeAsString());
      message_ = grpc::ByteBuffer(&slice, 1);
      StartWriteAndFinish(&message_, {}, grpc::Status::OK);
    }
    void OnCancel() override { EndIfCancelled(); }
    void OnDone() override { delete this; }

   private:
    // The second of the two: nothing more is read or written, and the call is cancelled.
    void EndIfCancelled() {
      if (one_.exchange(true)) Finish(grpc::Status::CANCELLED);
    }

    Collector& collector_;
    grpc::ByteBuffer message_;
    std::atomic<bool> one_{false};
  };

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Call(this, context->method());
  }
  Mode Take(const otlp::ExportTraceServiceRequest& request) {
    const std::lock_guard lock(mutex_);
    ++calls_;
    for (const auto& resource : request.resource_spans()) {
      for (const auto& scope : resource.scope_spans()) {
        spans_.insert(spans_.end(), scope.spans().begin(), scope.spans().end());
      }
    }
    changed_.notify_all();
    if (mode_ == Mode::kHangOnce) return calls_ == 1 ? Mode::kHang : Mode::kTake;
    return mode_;
  }

  const Mode mode_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<otlp::Span> spans_;
  int calls_ = 0;
};

}  // namespace telegrad
