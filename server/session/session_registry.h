// The sessions of the daemon by their tokens, and their expiry. A session belongs to the stream
// that opened it. A resumable one outlives a broken stream by a grace period, in which any stream
// of the same tenant that has its token can resume it. A resumable session also ends when its
// client sends nothing for the duration of its lease.
//
// No session outlives the daemon, so a token is valid only together with the epoch, which changes
// with each start.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/admin/access_log.h"
#include "server/data/local_data.h"
#include "server/session/session.h"

namespace telegrad {

// Thread-safe.
class SessionRegistry {
 public:
  // `access_log` has a line for each session that has ended; null: there is none.
  explicit SessionRegistry(const Environment& env, AccessLog* access_log = nullptr);
  // Closes every session.
  ~SessionRegistry();

  uint64_t epoch() const { return epoch_; }
  const SessionLimits& limits() const { return env_.limits; }

  // RESOURCE_EXHAUSTED over the limit of sessions. `lease_ms`: the lease that the client requests,
  // 0 for the default; a session that is not resumable has none.
  absl::StatusOr<std::shared_ptr<Session>> Create(std::shared_ptr<Tenant> tenant, bool resumable,
                                                  int64_t lease_ms,
                                                  std::shared_ptr<AnswerSink> sink);
  // ABORTED if the epoch is not this server's, NOT_FOUND if this tenant has no such session (any
  // more).
  absl::StatusOr<std::shared_ptr<Session>> Find(std::string_view token, uint64_t epoch,
                                                const Tenant& tenant) const;
  // Attaches `sink` to a resumable session; the answer of operation `id` says so, see
  // Session::Attach. ABORTED also where there is none.
  absl::StatusOr<std::shared_ptr<Session>> Resume(std::string_view token, uint64_t epoch,
                                                  const Tenant& tenant,
                                                  std::shared_ptr<AnswerSink> sink, uint64_t id,
                                                  uint64_t acknowledged);
  // Renews the lease of a session. As Find.
  absl::StatusOr<std::shared_ptr<Session>> KeepAlive(std::string_view token, uint64_t epoch,
                                                     const Tenant& tenant);

  // The stream of `sink` has ended, with or without an error. If the session is still attached to
  // it, a resumable session that is to be kept is detached, and any other is closed.
  void Leave(const std::shared_ptr<Session>& session, const AnswerSink& sink, bool keep);
  void Close(const std::shared_ptr<Session>& session, const absl::Status& why);

  std::vector<std::shared_ptr<Session>> All() const;  // by id

  // The OpenResult of a session.
  OpenResult Describe(const Session& session) const;

  // Closes the expired sessions and returns the time at which the next one expires, by the clock;
  // INT64_MAX if none does.
  int64_t CloseExpired();
  // Does so whenever a session expires, until this object is destroyed.
  void StartTimer();

 private:
  absl::StatusOr<std::shared_ptr<Session>> FindLocked(std::string_view token, uint64_t epoch,
                                                      const Tenant& tenant) const
      TG_REQUIRES(mutex_);
  void End(Session& session, const absl::Status& why) const;
  void WakeTimer() TG_REQUIRES(mutex_);
  void Tick();

  const Environment& env_;
  AccessLog* const access_log_;
  const uint64_t epoch_;

  mutable Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Session>> by_token_ TG_GUARDED_BY(mutex_);
  uint64_t last_id_ TG_GUARDED_BY(mutex_) = 0;
  ConditionVariable wake_;
  bool sooner_ TG_GUARDED_BY(mutex_) =
      false;  // a session may end before the time that the timer waits for
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  std::thread timer_;
};

// Finds the session that a client on this machine names, for LocalDataHandlers. The registry
// outlives the result.
FindLocalSession FinderIn(
    SessionRegistry* registry,
    std::function<absl::StatusOr<std::shared_ptr<Tenant>>(const std::string&)> find_tenant);

}  // namespace telegrad
