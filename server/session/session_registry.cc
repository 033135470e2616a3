// A message or a KeepAlive only postpones the end of its session. So the timer sleeps until the
// earliest end that it has read, then reads the ends again. It is woken only for an end that may be
// earlier: that of a new session, or of one whose stream broke.
#include "server/session/session_registry.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "engine/base/random_bytes.h"
#include "engine/base/status.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

constexpr size_t kTokenBytes = 16;
constexpr int64_t kNsPerMs = 1'000'000;
// Memory of the daemon that an idle session takes, with its stream.
constexpr int64_t kSessionBytes = 48 << 10;

uint64_t RandomEpoch() {
  const std::string bytes = RandomBytes(sizeof(uint64_t));
  uint64_t epoch;
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(&epoch));
  return std::max<uint64_t>(epoch, 1);
}

}  // namespace

SessionRegistry::SessionRegistry(const Environment& env, AccessLog* access_log)
    : env_(env), access_log_(access_log), epoch_(RandomEpoch()) {}

SessionRegistry::~SessionRegistry() {
  decltype(by_token_) sessions;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    sessions.swap(by_token_);
  }
  wake_.notify_all();
  if (timer_.joinable()) timer_.join();
  for (auto& [token, session] : sessions) {
    End(*session, absl::UnavailableError("the server is shutting down"));
  }
}

absl::StatusOr<std::shared_ptr<Session>> SessionRegistry::Create(std::shared_ptr<Tenant> tenant,
                                                                 bool resumable, int64_t lease_ms,
                                                                 std::shared_ptr<AnswerSink> sink) {
  const SessionLimits& limits = env_.limits;
  SessionTerms terms{.token = RandomBytes(kTokenBytes), .resumable = resumable};
  if (resumable) {
    const int64_t wanted = lease_ms > 0 ? lease_ms : limits.lease_ms;
    terms.lease_ns = std::clamp(wanted, kMinLeaseMs, limits.max_lease_ms) * kNsPerMs;
    terms.grace_ns = limits.grace_ms * kNsPerMs;
  }
  const MutexLock lock(mutex_);
  if (static_cast<int64_t>(by_token_.size()) >= limits.sessions) {
    return ResourceExhausted("this server has ", by_token_.size(),
                             " sessions, of which it may have ", limits.sessions,
                             "; raise it with --max-sessions");
  }
  TG_ASSIGN_OR_RETURN(Reservation place,
                      Reservation::Take(tenant->accounts.shared(Quota::kSessions), 1));
  TG_ASSIGN_OR_RETURN(
      Reservation memory,
      Reservation::Take(tenant->accounts.shared(Quota::kHostMemory), kSessionBytes));
  terms.id = ++last_id_;
  auto session = std::make_shared<Session>(env_, std::move(tenant), std::move(terms),
                                           std::move(sink), std::move(place), std::move(memory));
  by_token_[session->terms().token] = session;
  if (resumable) WakeTimer();
  return session;
}

void SessionRegistry::WakeTimer() {
  sooner_ = true;
  wake_.notify_all();
}

// Another tenant's session is none.
absl::StatusOr<std::shared_ptr<Session>> SessionRegistry::FindLocked(std::string_view token,
                                                                     uint64_t epoch,
                                                                     const Tenant& tenant) const {
  if (epoch != epoch_) {
    return absl::AbortedError(
        "the session is lost, because the server has restarted; open a new one");
  }
  const auto it = by_token_.find(ToAbsl(token));
  if (it == by_token_.end() || it->second->tenant().name != tenant.name) {
    return NotFound(
        "no session with this token: the session was closed, its lease or grace period has ended, "
        "or it belongs to another tenant");
  }
  return it->second;
}

absl::StatusOr<std::shared_ptr<Session>> SessionRegistry::Find(std::string_view token,
                                                               uint64_t epoch,
                                                               const Tenant& tenant) const {
  const MutexLock lock(mutex_);
  return FindLocked(token, epoch, tenant);
}

absl::StatusOr<std::shared_ptr<Session>> SessionRegistry::KeepAlive(std::string_view token,
                                                                    uint64_t epoch,
                                                                    const Tenant& tenant) {
  const MutexLock lock(mutex_);
  TG_ASSIGN_OR_RETURN(auto session, FindLocked(token, epoch, tenant));
  session->Renew();
  return session;
}

absl::StatusOr<std::shared_ptr<Session>> SessionRegistry::Resume(
    std::string_view token, uint64_t epoch, const Tenant& tenant, std::shared_ptr<AnswerSink> sink,
    uint64_t id, uint64_t acknowledged) {
  std::shared_ptr<AnswerSink> before;
  std::shared_ptr<Session> session;
  {
    const MutexLock lock(mutex_);
    auto found = FindLocked(token, epoch, tenant);
    if (absl::IsNotFound(found.status())) return absl::AbortedError(found.status().message());
    TG_RETURN_IF_ERROR(found.status());
    session = *std::move(found);
    if (!session->terms().resumable) {
      return FailedPrecondition("session ", session->terms().id, " was not opened as resumable");
    }
    before = session->Attach(std::move(sink), id, Describe(*session), acknowledged);
  }
  if (before != nullptr) {
    before->OnDetached(absl::AbortedError("another stream has resumed the session"));
  }
  return session;
}

void SessionRegistry::Leave(const std::shared_ptr<Session>& session, const AnswerSink& sink,
                            bool keep) {
  if (!session->Detach(sink)) return;
  if (!keep || !session->terms().resumable) return Close(session, absl::OkStatus());
  Log(LogLevel::kInfo, "session_detached", {{"session", session->terms().id}});
  const MutexLock lock(mutex_);
  WakeTimer();
}

void SessionRegistry::Close(const std::shared_ptr<Session>& session, const absl::Status& why) {
  {
    const MutexLock lock(mutex_);
    if (by_token_.erase(session->terms().token) == 0) return;
  }
  End(*session, why);
}

void SessionRegistry::End(Session& session, const absl::Status& why) const {
  Log(LogLevel::kInfo, "session_closed",
      {{"session", session.terms().id}, {"status", why.ToString()}});
  session.Close(why);
  if (access_log_ == nullptr) return;
  const Metrics& counted = session.counted();
  access_log_->Write(session.tenant().name, "session",
                     {{"session", session.terms().id},
                      {"tenant", session.tenant().name},
                      {"ms", (env_.clock->Ns() - session.opened_ns()) / kNsPerMs},
                      {"status", absl::StatusCodeToString(why.code())},
                      {"operations", counted.count(Metric::kOperations)},
                      {"errors", counted.count(Metric::kOperationErrors)},
                      {"runs", counted.count(Metric::kRuns)},
                      {"device_us", counted.count(Metric::kRunNs) / 1000},
                      {"written", counted.count(Metric::kBytesWritten)},
                      {"read", counted.count(Metric::kBytesRead)}});
}

std::vector<std::shared_ptr<Session>> SessionRegistry::All() const {
  std::vector<std::shared_ptr<Session>> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [token, session] : by_token_) all.push_back(session);
  }
  std::ranges::sort(all, {}, [](const auto& session) { return session->terms().id; });
  return all;
}

OpenResult SessionRegistry::Describe(const Session& session) const {
  const SessionTerms& terms = session.terms();
  return {.session = terms.id,
          .token = terms.token,
          .epoch = epoch_,
          .lease_ms = terms.lease_ns / kNsPerMs,
          .grace_ms = terms.grace_ns / kNsPerMs};
}

FindLocalSession FinderIn(
    SessionRegistry* registry,
    std::function<absl::StatusOr<std::shared_ptr<Tenant>>(const std::string&)> find_tenant) {
  return [registry, find_tenant = std::move(find_tenant)](
             const std::string& name, const std::string& token,
             uint64_t epoch) -> absl::StatusOr<FoundSession> {
    TG_ASSIGN_OR_RETURN(const auto tenant, find_tenant(name));
    TG_ASSIGN_OR_RETURN(auto session, registry->Find(token, epoch, *tenant));
    return FoundSession{std::move(session), tenant->accounts.shared(Quota::kSharedFiles)};
  };
}

int64_t SessionRegistry::CloseExpired() {
  std::vector<std::shared_ptr<Session>> expired;
  int64_t next = INT64_MAX;
  {
    // Nobody resumes or renews one meanwhile.
    const MutexLock lock(mutex_);
    const int64_t now = env_.clock->Ns();
    for (auto it = by_token_.begin(); it != by_token_.end();) {
      const auto current = it++;
      if (const int64_t end = current->second->EndsAt(); end > now) {
        next = std::min(next, end);
      } else {
        expired.push_back(std::move(current->second));
        by_token_.erase(current);
      }
    }
  }
  for (const auto& session : expired) {
    End(*session, absl::AbortedError("the session has ended, because its client sent nothing "
                                     "before its lease or grace period ended"));
  }
  return next;
}

void SessionRegistry::StartTimer() {
  timer_ = std::thread([this] { Tick(); });
}

void SessionRegistry::Tick() {
  ReleasableLock lock(mutex_);
  while (!stop_) {
    sooner_ = false;
    lock.unlock();
    const int64_t next = CloseExpired();
    lock.lock();
    // Woken without a reason, it looks again.
    if (stop_ || sooner_) continue;
    if (next == INT64_MAX) {
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, std::chrono::nanoseconds(next - env_.clock->Ns()));
    }
  }
}

}  // namespace telegrad
