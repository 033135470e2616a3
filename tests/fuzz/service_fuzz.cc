// Every method of the daemon, in process and without a socket: whatever is sent, each call ends
// with a status, and when its session's time is over nothing is left of it, nor of any account.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "engine/base/hash.h"
#include "google/protobuf/stubs/logging.h"
#include "server/admin/log.h"
#include "server/flags.h"
#include "server/service/admin_service.h"
#include "server/service/compute_service.h"
#include "server/service/configuration.h"
#include "server/service/data_service.h"
#include "server/service/health_service.h"
#include "server/service/inference_service.h"
#include "server/service/reflection_service.h"
#include "server/service/router.h"
#include "server/service/session_service.h"
#include "server/service/unary_call.h"
#include "telegrad/v1/compute.pb.h"
#include "tests/fakes/copy_engine.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/service_input.h"
#include "tests/fuzz/service_peer.h"

namespace telegrad::fuzz {
namespace {

constexpr Method kMethods[] = {
#define METHOD(path, access, listeners, handler) {path, Access::access, listeners, handler},
#include "server/service/methods.def"
#undef METHOD
};

// Stands still within a call and is turned on behind it.
class HandClock final : public Clock {
 public:
  int64_t Ns() const override { return now_.load(); }
  void Advance(int64_t ns) { now_.fetch_add(ns); }

 private:
  std::atomic<int64_t> now_{1};
};

// Nobody reads the answers of the session that inputs know the token of.
class NoSink final : public AnswerSink {
  void OnAnswer(Answer) override {}
  void OnProgress() override {}
  void OnDetached(const absl::Status&) override {}
};

class Daemon {
 public:
  Daemon() {
    SetLogLevel(LogLevel::kOff);
    google::protobuf::SetLogHandler(nullptr);
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 64 << 20}));
    pool_ = *DevicePool::Create(std::move(devices));
    env_ = {pool_.get(), &workers_, &compilers_, &metrics_, {}, &clock_};
    env_.limits.max_lease_ms = kMinLeaseMs;
    tenant_ = std::make_shared<Tenant>("fuzz", std::make_shared<fakes::CopyEngine>(), &metrics_);
    registry_ = std::make_unique<SessionRegistry>(env_);
    sessions_ = std::make_unique<SessionService>(env_, *registry_, /*local_socket=*/"");
    compute_ = std::make_unique<ComputeService>(env_, *registry_, &watch_, int64_t{1} << 30);
    const Flags flags = *Flags::Parse(kDaemonFlags, {});
    authenticator_ = *Authenticator::Create({});
    reloader_ = std::make_unique<Reloader>(flags, Configuration{.flags = flags},
                                           authenticator_.get(), &tenants_);
    admin_ = std::make_unique<AdminService>(env_, *registry_, tenants_, *pool_, *reloader_, [] {});
    bulk_ = *BulkListener::Start({.addresses = {"127.0.0.1:0"}}, &metrics_);
    data_ = std::make_unique<DataService>(env_, *registry_, *compute_, bulk_.get());
    services_ = {admin_.get(), sessions_.get(), compute_.get(), data_.get(),
                 &health_,     &reflection_,    &inference_};
  }

  ~Daemon() {
    const auto count = [&](Metric metric) {
      return static_cast<long long>(metrics_.count(metric));
    };
    std::fprintf(stderr, "operations: %lld, failed: %lld, runs: %lld\n", count(Metric::kOperations),
                 count(Metric::kOperationErrors), count(Metric::kRuns));
  }

  void Call(const Method& method, const ServiceInput& input) {
    const std::shared_ptr<Session> session =
        *registry_->Create(tenant_, /*resumable=*/true, kMinLeaseMs, std::make_shared<NoSink>());
    std::vector<grpc::ByteBuffer> messages;
    for (const std::string& message : input.messages) {
      messages.push_back(Message(message, *session, (input.flags & ServiceInput::kSliced) != 0));
    }
    const bool endless = method.path == "/grpc.health.v1.Health/Watch" ||
                         std::any_of(input.messages.begin(), input.messages.end(), &NamesATransfer);
    ServicePeer peer(std::move(messages), endless || (input.flags & ServiceInput::kCancels) != 0);
    grpc::GenericServerContext context;
    Caller caller{.principal = {}, .tenant = tenant_, .peer = "fuzz"};
    caller.principal.subject = "fuzz";
    caller.principal.tenant = tenant_->name;
    caller.principal.admin = true;
    const grpc::Status status =
        peer.Run(method.handler.start(services_, &context, std::move(caller)));
    FUZZ_CHECK(status.ok() || !status.error_message().empty() ||
               status.error_code() == grpc::StatusCode::CANCELLED);
    FUZZ_CHECK(status.error_code() != grpc::StatusCode::INTERNAL);
    FUZZ_CHECK(status.error_code() != grpc::StatusCode::UNKNOWN);
    SetLogLevel(LogLevel::kOff);  // an administrator may have changed it
    clock_.Advance(int64_t{3600} * 1'000'000'000);
    registry_->CloseExpired();
  }

  // What ends on threads of its own is waited for; that it comes to an end is what is asked.
  void CheckNothingIsLeft() {
    for (const Metric metric :
         {Metric::kSessions, Metric::kBuffers, Metric::kBufferBytes, Metric::kStagedBytes}) {
      while (metrics_.count(metric) != 0) std::this_thread::yield();
    }
    for (int i = 0; i < kNumQuotas; ++i) {
      const Quota quota = static_cast<Quota>(i);
      if (quota == Quota::kGraphs || quota == Quota::kGraphBytes) continue;  // those are kept
      while (tenant_->accounts[quota].used() != 0) std::this_thread::yield();
    }
    while (pool_->devices()[0]->memory_used() != 0) std::this_thread::yield();
  }

 private:
  // A stream without an end of its own is left by its client: one that watches, and one that may
  // wait for bytes which come over another stream.
  static bool NamesATransfer(const std::string& message) {
    v1::ExecuteRequest request;
    return request.ParseFromString(message) &&
           (request.write().transfer() != 0 || request.read().transfer() != 0);
  }
  static void Replace(std::string* in, std::string_view mark, std::string_view by) {
    for (size_t at = in->find(mark); at != std::string::npos; at = in->find(mark, at + by.size())) {
      in->replace(at, mark.size(), by);
    }
  }
  grpc::ByteBuffer Message(std::string bytes, const Session& session, bool sliced) const {
    const auto text = [](const uint64_t& word) {
      return std::string_view(reinterpret_cast<const char*>(&word), sizeof(word));
    };
    Replace(&bytes, kTokenMark, session.terms().token);
    const uint64_t mark = kEpochMark, epoch = registry_->epoch();
    Replace(&bytes, text(mark), text(epoch));
    std::vector<grpc::Slice> slices;
    const size_t most = sliced ? 5 : std::max<size_t>(bytes.size(), 1);
    for (size_t at = 0; at < bytes.size(); at += most) {
      slices.emplace_back(bytes.data() + at, std::min(most, bytes.size() - at));
    }
    if (slices.empty()) slices.emplace_back();
    return grpc::ByteBuffer(slices.data(), slices.size());
  }

  HandClock clock_;
  Metrics metrics_;
  CallWatch watch_{std::chrono::seconds(1), [](const auto&) { return absl::OkStatus(); }, &clock_};
  std::unique_ptr<DevicePool> pool_;
  TaskPool workers_{1}, compilers_{1};
  Environment env_;
  std::shared_ptr<Tenant> tenant_;
  std::unique_ptr<SessionRegistry> registry_;
  std::unique_ptr<BulkListener> bulk_;
  std::unique_ptr<SessionService> sessions_;
  std::unique_ptr<ComputeService> compute_;
  std::unique_ptr<DataService> data_;
  TenantDirectory tenants_{
      {}, 1, [](const Accounts&) { return std::make_shared<fakes::CopyEngine>(); }, &metrics_};
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<Reloader> reloader_;
  std::unique_ptr<AdminService> admin_;
  InferenceService inference_{nullptr};
  HealthService health_;
  ReflectionService reflection_;
  Services services_;
};

}  // namespace

std::span<const std::string_view> ServicePaths() {
  static const auto* const paths = [] {
    auto* all = new std::vector<std::string_view>;
    for (const Method& method : kMethods) all->push_back(method.path);
    return all;
  }();
  return *paths;
}

}  // namespace telegrad::fuzz

FUZZ_TARGET(data) {
  using namespace telegrad::fuzz;
  static Count count("calls of a method");
  // OpenSSL 3.0 leaks the error state of the thread that is the first to use it, when that thread
  // ends. Here it is the main thread.
  [[maybe_unused]] static const telegrad::Digest first = telegrad::Sha256("");
  static Daemon daemon;
  count.Input();
  const ServiceInput input = ParseInput(data);
  for (const telegrad::Method& method : kMethods) {
    if (method.path != input.path) continue;
    daemon.Call(method, input);
    daemon.CheckNothingIsLeft();
    count.Passed();
  }
}
