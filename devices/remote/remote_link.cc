// How a tenant's session on another server is opened, used for buffers and graphs, and lost. What
// it does with submissions is in remote_queue.cc, remote_send.cc and remote_answers.cc.
#include "devices/remote/remote_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "client/cc/graph_devices.h"
#include "devices/remote/remote_items.h"
#include "engine/base/burst.h"
#include "engine/base/device_lost.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// A graph of more bytes is asked for before it is sent.
constexpr size_t kAskBytes = 16 << 10;
// To send a graph over connections that break.
constexpr int kAttempts = 4;

absl::Status With(std::string_view name, const absl::Status& status) {
  return absl::Status(status.code(), StrCat(name, ": ", ToStd(status.message())));
}

// What the future comes to, or DEADLINE_EXCEEDED: a server may live and yet not answer.
template <typename T>
absl::StatusOr<T> GetWithin(const Future<T>& future, absl::Duration limit) {
  const auto told = std::make_shared<Timeline>();
  future.Then([told](const absl::StatusOr<T>&) { told->Signal(1); });
  if (!told->Wait(1, limit).ok()) {
    return absl::DeadlineExceededError(
        StrCat("the server has not answered within ", absl::FormatDuration(limit)));
  }
  return future.Get();
}

bool CanBe(double cost) { return std::isfinite(cost) && cost >= 0; }

bool CanBe(const PutInfo& put) {
  return CanBe(put.flops) && CanBe(put.bytes) && CanBe(put.seconds) && CanBe(put.launch_seconds) &&
         put.temporary_bytes >= 0;
}

}  // namespace

thread_local RemoteLink* RemoteLinkHolder::holds = nullptr;

RemoteLink::RemoteLink(std::shared_ptr<RemoteServer> server, std::string tenant)
    : server_(std::move(server)), tenant_(std::move(tenant)) {}

// Perhaps on a thread of the session's own, where it cannot be closed.
RemoteLink::~RemoteLink() { server_->Gone(far_ == nullptr ? nullptr : std::move(far_->session)); }

absl::Status RemoteLink::Reachable() const {
  const absl::Status away = server_->Reachable();
  if (!IsDeviceLost(away)) return away;
  return DeviceLostError(StrCat(ToStd(away.message()), " (generation ", generation(), ")"));
}

absl::Status RemoteLink::NoConnection(const absl::Status& why) const {
  if (!absl::IsUnauthenticated(why)) return With(name(), why);
  return absl::UnavailableError(StrCat(name(), ": the server at ", server_->options().address,
                                       " refuses this front: ", ToStd(why.message()),
                                       kItsOwnCredentials));
}

absl::Status RemoteLink::Open() {
  {
    const MutexLock lock(mutex_);
    if (far_ != nullptr) return absl::OkStatus();
  }
  Burst::Flush();  // before it waits for a connection, or for who makes one
  const MutexLock opening(opening_);
  {
    const MutexLock lock(mutex_);
    if (closed_) return absl::UnavailableError(StrCat(name(), " was closed"));
    if (far_ != nullptr) return absl::OkStatus();
  }
  TG_RETURN_IF_ERROR(Reachable());
  auto connection = server_->Connect(tenant_);
  if (!connection.ok()) return NoConnection(connection.status());
  const ServerInfo& info = (*connection)->server();
  if (!info.binds_parts) {
    return FailedPrecondition(name(), ": the server at ", (*connection)->address(),
                              " is too old for a front: its runs bind no parts of buffers");
  }
  auto session = (*connection)->OpenSession({.resumable = true});
  if (!session.ok()) return With(name(), session.status());
  server_->Opened(tenant_, **connection);
  auto far = std::make_unique<Far>();
  far->connection = *connection;
  far->session = *std::move(session);
  far->copies = info.copies;
  const MutexLock lock(mutex_);
  far->generation = ++generation_;
  far_ = std::move(far);
  heard_ = SteadyNs();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Memory>> RemoteLink::Alloc(
    const std::string& device, int64_t size, std::shared_ptr<std::atomic<int64_t>> used) {
  absl::Status open;
  std::shared_ptr<Memory> memory;
  for (int attempt = 0; memory == nullptr && attempt < 2; ++attempt) {
    TG_RETURN_IF_ERROR(Open());
    Enter([&]() TG_REQUIRES(mutex_) {
      if (far_ == nullptr) return;  // lost meanwhile
      if (absl::Status over = far_->session->Over(); !over.ok()) return LoseLocked(over);
      const uint64_t handle = far_->next_handle++;
      far_->held[used] += size;
      memory =
          std::make_shared<RemoteMemory>(shared_from_this(), used, size, handle, far_->generation);
      Send([handle, size, device](RemoteSession* session) {
        if (session != nullptr) session->Alloc(handle, size, device);
      });
    });
  }
  if (memory != nullptr) return memory;
  const MutexLock lock(mutex_);
  return LostLocked();
}

// What was there when the session was lost is counted no more. Nothing is ended here, for memory is
// dropped under locks of all kinds, which what follows an end may take: should sending the handles
// show that the session is over, who enters next, or the server's thread, tells that.
void RemoteLink::Free(uint64_t handle, uint64_t generation,
                      const std::shared_ptr<std::atomic<int64_t>>& used, int64_t size) {
  const auto free = [&]() TG_REQUIRES(mutex_) {
    if (far_ == nullptr || far_->generation != generation) return;
    freed_.push_back(handle);
    far_->held[used] -= size;
    used->fetch_sub(size);
  };
  if (RemoteLinkHolder::holds == this) {
    mutex_.AssertHeld();
    return free();
  }
  const MutexLock lock(mutex_);
  RemoteLink* const before = std::exchange(RemoteLinkHolder::holds, this);
  free();
  Flush();
  RemoteLinkHolder::holds = before;
}

// In the session at hand, behind what was sent before. `ask` returns a future.
template <typename Info, typename Ask>
absl::StatusOr<Info> RemoteLink::AskInOrder(Ask ask) {
  TG_RETURN_IF_ERROR(Open());
  const Future<Info> told;
  Enter([&]() TG_REQUIRES(mutex_) {
    Send([told, ask](RemoteSession* session) {
      if (session == nullptr) return told.Set(absl::UnavailableError("the session was lost"));
      ask(*session).Then([told](const absl::StatusOr<Info>& info) { told.Set(info); });
    });
  });
  return GetWithin(told, server_->options().wait_limit);
}

// What is compiled in a session of its own does not hold up what runs.
template <typename Info, typename Ask>
absl::StatusOr<Info> RemoteLink::AskApart(Ask ask) {
  absl::StatusOr<Info> info = absl::InternalError("");
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    TG_RETURN_IF_ERROR(Reachable());
    auto connection = server_->Connect(tenant_);
    if (!connection.ok()) return NoConnection(connection.status());
    auto session = (*connection)->OpenSession();
    if (!session.ok()) return With(name(), session.status());
    info = GetWithin(ask(**session), server_->options().wait_limit);
    const absl::Status over = (*session)->Over();
    bool again = absl::IsUnavailable(info.status()) && !over.ok();
    if (absl::IsResourceExhausted(over)) {  // the tenant may have no more sessions there
      info = AskInOrder<Info>(ask);
      again = absl::IsUnavailable(info.status()) && lost();
    }
    if (!again) break;
  }
  if (info.ok()) return info;
  return absl::Status(info.status().code(), StrCat(name(), ": ", Reason(info.status())));
}

absl::StatusOr<std::shared_ptr<LoadedProgram>> RemoteLink::Load(const std::string& device,
                                                                const ProgramImage& image) {
  // A graph of no number or one is where its buffers are; of several, all are the one device.
  const int64_t numbers = DeviceNumbersOf(image.binary);
  const std::vector<std::string> devices(static_cast<size_t>(std::max<int64_t>(numbers, 1)),
                                         device);
  Digest hash;
  HasInfo known;
  if (image.binary.size() >= kAskBytes && Digest::FromBytes(image.hash, &hash)) {
    known = AskFor(hash, devices, {}).value_or(HasInfo());
  }
  absl::StatusOr<PutInfo> put = known.cost ? known.cost->greatest : PutInfo();
  put->hash = hash;
  if (!known.has) {
    put = AskApart<PutInfo>([graph = image.binary, devices](RemoteSession& session) {
      return session.PutTold(graph, devices);
    });
  }
  TG_RETURN_IF_ERROR(put.status());
  if (!image.hash.empty() && put->hash.view() != image.hash) {
    return Internal(name(), ": the server says that the graph's hash is ", put->hash.Hex(),
                    ", which it is not; it is faulty, or not what it says to be");
  }
  TG_ASSIGN_OR_RETURN(const GraphCost cost, CostOf(*put));
  TG_RETURN_IF_ERROR(Open());
  const MutexLock lock(mutex_);
  return std::make_shared<RemoteProgram>(shared_from_this(), device, image.binary, put->hash,
                                         numbers > 1 ? devices : std::vector<std::string>(), cost,
                                         generation_);
}

absl::StatusOr<GraphCost> RemoteLink::CostOf(const PutInfo& info) const {
  if (!CanBe(info)) {
    return Internal(name(), ": the server says that a run takes ", info.seconds, " s, ", info.flops,
                    " operations, ", info.bytes, " bytes and ", info.temporary_bytes,
                    " bytes of temporaries, which cannot be");
  }
  return GraphCost{info.flops, info.bytes, info.seconds, info.launch_seconds, info.temporary_bytes};
}

absl::StatusOr<HasInfo> RemoteLink::AskFor(const Digest& hash,
                                           const std::vector<std::string>& devices,
                                           std::span<const VarValue> values) {
  return AskApart<HasInfo>(
      [hash, devices, of = std::vector<VarValue>(values.begin(), values.end())](
          RemoteSession& session) { return session.HasTold(hash, devices, of); });
}

absl::StatusOr<std::optional<FormCost<GraphCost>>> RemoteLink::Predict(
    const RemoteProgram& program, std::span<const VarValue> values) {
  std::vector<std::string> devices = program.devices();
  if (devices.empty()) devices.push_back(program.device());
  TG_ASSIGN_OR_RETURN(HasInfo info, AskFor(program.hash(), devices, values));
  if (!info.has) {  // dropped there since
    const auto put = AskApart<PutInfo>(
        // It may be sent after the wait for it has ended, and the program with it.
        [graph = program.graph()](RemoteSession& session) { return session.PutTold(graph, {}); });
    TG_RETURN_IF_ERROR(put.status());
    TG_ASSIGN_OR_RETURN(info, AskFor(program.hash(), devices, values));
  }
  if (!info.cost) return std::nullopt;
  FormCost<GraphCost> out{.bounds = std::move(info.cost->bounds),
                          .greatest = {},
                          .least_share = info.cost->least_share};
  TG_ASSIGN_OR_RETURN(out.greatest, CostOf(info.cost->greatest));
  const bool can_be =
      CanBe(out.least_share) && out.least_share <= 1 && out.bounds.size() == values.size() &&
      std::ranges::all_of(out.bounds,
                          [](const VarBounds& b) { return b.min <= b.max && b.multiple >= 1; });
  if (!can_be) {
    return Internal(name(),
                    ": the server says for which values of variables a run takes that "
                    "long, and says what cannot be");
  }
  return out;
}

void RemoteLink::Flush() {
  while (far_ != nullptr && !outbox_.empty() && far_->session->HasRoom(kOperationsOfPost)) {
    const Post post = std::move(outbox_.front());
    outbox_.pop_front();
    progressed_ = SteadyNs();
    post(far_->session.get());
  }
  if (freed_.empty() || far_ == nullptr) return freed_.clear();
  Send([handles = std::exchange(freed_, {})](RemoteSession* session) {
    if (session != nullptr) session->Free(handles);
  });
}

absl::Status RemoteLink::LostLocked() const {
  return lost_.ok() ? absl::UnavailableError(StrCat(name(), " has no session yet")) : lost_;
}

absl::Status RemoteLink::LostLocked(uint64_t generation) const {
  if (far_ == nullptr && absl::IsPermissionDenied(lost_)) return lost_;
  return DeviceLostError(StrCat("memory of ", name(), " is of generation ", generation,
                                ", which was lost: ", ToStd(lost_.message())));
}

absl::Status RemoteLink::HealthOf(uint64_t generation) const {
  const MutexLock lock(mutex_);
  const bool there = far_ != nullptr && far_->generation == generation;
  return there ? absl::OkStatus() : LostLocked(generation);
}

absl::Status RemoteLink::Recover() {
  {
    const MutexLock lock(mutex_);
    if (generation_ == 0) return absl::OkStatus();  // it had none
  }
  return Open();
}

void RemoteLink::LoseLocked(const absl::Status& why) {
  if (far_ == nullptr) return;
  const bool withdrawn = absl::IsPermissionDenied(why);
  lost_ = withdrawn
              ? absl::PermissionDeniedError(StrCat(name(), ": ", ToStd(why.message()),
                                                   "; what was there (generation ", generation_,
                                                   ") is lost"))
              : DeviceLostError(StrCat(name(), " is lost (generation ", generation_,
                                       "), and with it what was there: ", ToStd(why.message()),
                                       absl::IsUnauthenticated(why) ? kItsOwnCredentials : "",
                                       "; operations under way may or may not have run, and "
                                       "buffers must be allocated again "
                                       "once the device is back"));
  server_->Bury(std::move(far_->session));
  DropLocked();
}

void RemoteLink::DropLocked() {
  for (const auto& [used, bytes] : far_->held) used->fetch_sub(bytes);
  const uint64_t generation = far_->generation;
  far_.reset();
  freed_.clear();
  for (const Post& post : std::exchange(outbox_, {})) post(nullptr);
  for (const auto& queue : queues_) {
    for (const ItemRef& item : queue->open()) CancelCopies(*item, lost_);
    // What waits for a point of another device ends, too.
    for (const ItemRef& item : queue->unsent) {
      const bool loses = std::ranges::any_of(item->bindings, [&](const BufferView& view) {
        return IsOwn(view) && AsRemote(view)->generation() == generation;
      });
      if (loses) Fail(*item, lost_);
    }
  }
}

absl::Status RemoteLink::WithSession(uint64_t generation,
                                     const std::function<void(RemoteSession&)>& use) {
  const MutexLock lock(mutex_);
  if (far_ == nullptr || far_->generation != generation) return LostLocked();
  use(*far_->session);
  return absl::OkStatus();
}

void RemoteLink::PostTo(uint64_t generation, const Future<Done>& told,
                        std::function<void(RemoteSession&)> post) {
  Enter([&]() TG_REQUIRES(mutex_) {
    Post both = [this, told, post = std::move(post)](RemoteSession* session) TG_REQUIRES(mutex_) {
      session != nullptr ? post(*session) : told.Set(LostLocked());
    };
    far_ != nullptr && far_->generation == generation ? Send(std::move(both)) : both(nullptr);
  });
}

void RemoteLink::LoseSession(uint64_t generation, const absl::Status& why) {
  Enter([&]() TG_REQUIRES(mutex_) {
    if (far_ != nullptr && far_->generation == generation) LoseLocked(why);
  });
}

absl::Status RemoteLink::LostSession(uint64_t generation) {
  absl::Status lost;
  Enter([&]() TG_REQUIRES(mutex_) {
    if (far_ != nullptr && far_->generation == generation) {
      if (const absl::Status over = far_->session->Over(); !over.ok()) LoseLocked(over);
    }
    if (far_ == nullptr || far_->generation != generation) lost = LostLocked();
  });
  return lost;
}

void RemoteLink::Later(std::function<void()> what) {
  RemoteLink* const holds = RemoteLinkHolder::holds;
  if (holds == nullptr) return what();
  holds->mutex_.AssertHeld();
  holds->later_.push_back(std::move(what));
}

// Closed here and not buried: what waits ends with it, and no memory is written any more.
void RemoteLink::Lose(const absl::Status& why) {
  std::unique_ptr<RemoteSession> session;
  Enter([&]() TG_REQUIRES(mutex_) {
    if (far_ == nullptr) return;
    lost_ =
        DeviceLostError(StrCat(ToStd(why.message()), "; its buffers (of generation ", generation_,
                               ") are lost, operations under way may or may not have run, and "
                               "buffers must be allocated again once the device is back"));
    session = std::move(far_->session);
    DropLocked();
  });
  session.reset();
  Enter([] {});
}

void RemoteLink::Close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  Lose(absl::UnavailableError(StrCat(name(), " was closed")));
}

void RemoteLink::Drain(absl::Duration limit) {
  ReleasableLock lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(limit);
  while (items_ > 0 && idle_.wait_until(lock, until) != std::cv_status::timeout) {
  }
}

}  // namespace telegrad
