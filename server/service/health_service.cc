// The daemon's services live and drain together, so each of them has the status of the whole. That
// changes once, from SERVING to NOT_SERVING; a watcher's stream ends with it, so that it holds up
// no shutdown.
#include "server/service/health_service.h"

#include <optional>

#include "engine/base/status.h"
#include "server/service/reflection_service.h"
#include "server/service/unary_call.h"

namespace telegrad {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// Anyone may watch, so there is a limit.
constexpr size_t kMaxWatchers = 1024;

}  // namespace

// Reads the request, writes the status, waits for its change or its caller's end. What is to be
// done is decided under the mutex and done without it, because gRPC may call back from within;
// nobody finishes while somebody writes.
class HealthService::Watcher final : public RawStream,
                                     public std::enable_shared_from_this<Watcher> {
 public:
  static RawStream* Start(HealthService* service) {
    const auto watcher = std::make_shared<Watcher>(service);
    watcher->self_ = watcher;
    watcher->StartRead(&watcher->message_);
    return watcher.get();  // it owns itself until OnDone, which gRPC calls after this has returned
  }
  explicit Watcher(HealthService* service) : service_(service) {}

  void OnReadDone(bool ok) override {
    HealthCheckRequest request;
    if (!ok || message_.Length() > kMaxUnaryBytes || !ParseMessage(message_, &request).ok()) {
      return End({grpc::StatusCode::INVALID_ARGUMENT, "not a HealthCheckRequest"});
    }
    known_ = request.service().empty() || IsService(request.service());
    if (!service_->Enter(shared_from_this())) {
      End({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watch the health of this server"});
    }
  }
  void OnSent(bool ok) override {
    {
      std::lock_guard lock(mutex_);
      writing_ = false;
      if (!ok) end_ = grpc::Status::CANCELLED;
    }
    Pump();
  }
  void OnGone() override { End(grpc::Status::CANCELLED); }
  void OnDone() override {
    service_->Leave(shared_from_this());
    self_.reset();
  }

  void Tell(bool serving) {
    {
      std::lock_guard lock(mutex_);
      if (last_) return;  // the end was told meanwhile
      status_ = !known_   ? HealthCheckResponse::SERVICE_UNKNOWN
                : serving ? HealthCheckResponse::SERVING
                          : HealthCheckResponse::NOT_SERVING;
      unsent_ = true;
      last_ = !serving;
    }
    Pump();
  }

 private:
  void End(const grpc::Status& status) {
    {
      std::lock_guard lock(mutex_);
      if (!end_) end_ = status;
    }
    Pump();
  }
  void Pump() {
    const std::shared_ptr<Watcher> keep = shared_from_this();
    std::unique_lock lock(mutex_);
    if (writing_ || finished_) return;
    if (!end_ && unsent_) {
      HealthCheckResponse response;
      response.set_status(status_);
      message_ = SerializeMessage(response);
      unsent_ = false;
      writing_ = true;
      lock.unlock();
      return StartWrite(&message_);
    }
    if (!end_ && last_) end_.emplace(grpc::StatusCode::UNAVAILABLE, "the server is shutting down");
    if (!end_) return;
    finished_ = true;
    const grpc::Status end = *end_;
    lock.unlock();
    Finish(end);
  }

  HealthService* const service_;
  std::shared_ptr<Watcher> self_;  // until OnDone
  grpc::ByteBuffer message_;       // read once, then written
  bool known_ = false;
  std::mutex mutex_;
  HealthCheckResponse::ServingStatus status_ = HealthCheckResponse::UNKNOWN;
  bool unsent_ = false, last_ = false, writing_ = false, finished_ = false;
  std::optional<grpc::Status> end_;
};

absl::Status HealthService::Check(const Caller&, const HealthCheckRequest& request,
                                  HealthCheckResponse* response) {
  if (!request.service().empty() && !IsService(request.service())) {
    return absl::NotFoundError("there is no such service here");
  }
  std::lock_guard lock(mutex_);
  response->set_status(serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
  return absl::OkStatus();
}

RawStream* HealthService::Watch(grpc::CallbackServerContext*, Caller) {
  return Watcher::Start(this);
}

bool HealthService::Enter(std::shared_ptr<Watcher> watcher) {
  bool serving;
  {
    std::lock_guard lock(mutex_);
    if (watchers_.size() >= kMaxWatchers) return false;
    watchers_.insert(watcher);
    serving = serving_;
  }
  watcher->Tell(serving);
  return true;
}

void HealthService::Leave(const std::shared_ptr<Watcher>& watcher) {
  std::lock_guard lock(mutex_);
  watchers_.erase(watcher);
}

void HealthService::StopServing() {
  std::set<std::shared_ptr<Watcher>> watchers;
  {
    std::lock_guard lock(mutex_);
    serving_ = false;
    watchers = watchers_;
  }
  for (const auto& watcher : watchers) watcher->Tell(false);
}

}  // namespace telegrad
