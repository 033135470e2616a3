// The daemon's services live and drain together; those that compute need the devices, too. A status
// may change many times until the daemon drains; then a watcher's stream ends, so that it holds up
// no shutdown.
#include "server/service/health_service.h"

#include <optional>

#include "engine/base/status.h"
#include "server/service/convert.h"
#include "server/service/reflection_service.h"
#include "server/service/unary_call.h"

namespace telegrad {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// Anyone may watch, so there is a limit: one more takes the place of the one that has watched for
// longest, which may come again.
constexpr size_t kMaxWatchers = 1024;

// What takes no work while a device is lost: the whole, as it is known by "", and the service that
// computes.
bool NeedsDevices(std::string_view service) {
  return service.empty() || service == "telegrad.v1.Compute";
}

}  // namespace

// Reads the request, writes the status, waits for its change or its caller's end. What is to be
// done is decided under the mutex and done without it, so that no thread of the transport waits for
// it; nobody finishes while somebody writes.
class HealthService::Watcher final : public RawStream,
                                     public std::enable_shared_from_this<Watcher> {
 public:
  static RawStream* Start(HealthService* service) {
    const auto watcher = std::make_shared<Watcher>(service);
    watcher->self_ = watcher;
    watcher->StartRead(&watcher->message_);
    return watcher.get();  // it owns itself until OnOver, which gRPC calls after this has returned
  }
  explicit Watcher(HealthService* service) : service_(service) {}

  void OnReceived(bool ok) override {
    HealthCheckRequest request;
    if (!ok || message_.Length() > kMaxUnaryBytes || !ParseMessage(message_, &request).ok()) {
      return End(absl::InvalidArgumentError("not a HealthCheckRequest"));
    }
    known_ = request.service().empty() || IsService(request.service());
    needs_devices_ = NeedsDevices(request.service());
    service_->Enter(shared_from_this());
  }
  void OnSent(bool ok) override {
    {
      const MutexLock lock(mutex_);
      writing_ = false;
      if (!ok) end_ = absl::CancelledError("the client has disconnected");
    }
    Pump();
  }
  void OnGone() override { End(absl::CancelledError("the client has disconnected")); }
  void OnOver() override {
    service_->Leave(shared_from_this());
    self_.reset();
  }

  void Tell(State state) {
    {
      const MutexLock lock(mutex_);
      if (last_) return;  // the end was told meanwhile
      const auto status = !known_                        ? HealthCheckResponse::SERVICE_UNKNOWN
                          : state.Serves(needs_devices_) ? HealthCheckResponse::SERVING
                                                         : HealthCheckResponse::NOT_SERVING;
      last_ = state.draining;
      if (status == status_ && !last_) return;
      status_ = status;
      unsent_ = true;
    }
    Pump();
  }
  void End(absl::Status status) override {
    {
      const MutexLock lock(mutex_);
      if (!end_) end_ = std::move(status);
    }
    Pump();
  }

 private:
  void Pump() {
    const std::shared_ptr<Watcher> keep = shared_from_this();
    ReleasableLock lock(mutex_);
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
    if (!end_ && last_) end_ = absl::UnavailableError("the server is shutting down");
    if (!end_) return;
    finished_ = true;
    const grpc::Status end = ToGrpc(*end_);
    lock.unlock();
    Finish(end);
  }

  HealthService* const service_;
  std::shared_ptr<Watcher> self_;  // until OnOver
  grpc::ByteBuffer message_;       // read once, then written
  bool known_ = false, needs_devices_ = false;
  Mutex mutex_;
  HealthCheckResponse::ServingStatus status_ TG_GUARDED_BY(mutex_) = HealthCheckResponse::UNKNOWN;
  bool unsent_ TG_GUARDED_BY(mutex_) = false;
  bool last_ TG_GUARDED_BY(mutex_) = false;
  bool writing_ TG_GUARDED_BY(mutex_) = false;
  bool finished_ TG_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ TG_GUARDED_BY(mutex_);
};

absl::Status HealthService::Check(const Caller&, const HealthCheckRequest& request,
                                  HealthCheckResponse* response) {
  if (!request.service().empty() && !IsService(request.service())) {
    return absl::NotFoundError("this server has no such service");
  }
  const MutexLock lock(mutex_);
  response->set_status(state_.Serves(NeedsDevices(request.service()))
                           ? HealthCheckResponse::SERVING
                           : HealthCheckResponse::NOT_SERVING);
  return absl::OkStatus();
}

RawStream* HealthService::Watch(grpc::ServerContextBase*, Caller) { return Watcher::Start(this); }

void HealthService::Enter(const std::shared_ptr<Watcher>& watcher) {
  std::shared_ptr<Watcher> oldest;
  State state;
  {
    const MutexLock lock(mutex_);
    if (watchers_.size() >= kMaxWatchers) {
      oldest = watchers_.front();
      watchers_.pop_front();
    }
    watchers_.push_back(watcher);
    state = state_;
  }
  watcher->Tell(state);
  if (oldest == nullptr) return;
  oldest->End(absl::ResourceExhaustedError(
      "a newer watcher of the health of this server has taken the place of this one"));
}

void HealthService::Leave(const std::shared_ptr<Watcher>& watcher) {
  const MutexLock lock(mutex_);
  watchers_.remove(watcher);
}

void HealthService::Change(const std::function<void(State*)>& change) {
  std::list<std::shared_ptr<Watcher>> watchers;
  State state;
  {
    const MutexLock lock(mutex_);
    change(&state_);
    state = state_;
    watchers = watchers_;
  }
  for (const auto& watcher : watchers) watcher->Tell(state);
}

void HealthService::SetDevicesHealthy(bool healthy) {
  {
    const MutexLock lock(mutex_);
    if (state_.devices_healthy == healthy) return;
  }
  Change([healthy](State* state) { state->devices_healthy = healthy; });
}

void HealthService::StopServing() {
  Change([](State* state) { state->draining = true; });
}

}  // namespace telegrad
