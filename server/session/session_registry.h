// The sessions of the daemon, by their tokens, and when they end by themselves. A session belongs
// to the stream that opened it, unless it is resumable: then it outlives a broken stream by a grace
// period, and any stream of the same tenant that knows its token takes it up again. A resumable
// session whose client says nothing for as long as its lease ends, too.
//
// No session outlives the daemon, so a token is good only together with the epoch, which is another
// one after each start.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "server/session/session.h"

namespace telegrad {

// Thread-safe.
class SessionRegistry {
 public:
  explicit SessionRegistry(const Environment& env);
  // Closes every session.
  ~SessionRegistry();

  uint64_t epoch() const { return epoch_; }
  const SessionLimits& limits() const { return env_.limits; }

  // RESOURCE_EXHAUSTED over the limit of sessions. `lease_ms`: what the client wishes, 0 if it does
  // not care; a session that is not resumable has none.
  absl::StatusOr<std::shared_ptr<Session>> Create(std::shared_ptr<Tenant> tenant, bool resumable,
                                                  int64_t lease_ms,
                                                  std::shared_ptr<AnswerSink> sink);
  // ABORTED if the epoch is not this server's, NOT_FOUND if this tenant has no such session (any
  // more).
  absl::StatusOr<std::shared_ptr<Session>> Find(std::string_view token, uint64_t epoch,
                                                const Tenant& tenant) const;
  // Lets `sink` take up a resumable session; see Session::Attach. ABORTED also where there is none.
  absl::StatusOr<std::shared_ptr<Session>> Resume(std::string_view token, uint64_t epoch,
                                                  const Tenant& tenant,
                                                  std::shared_ptr<AnswerSink> sink, Answer opened,
                                                  uint64_t acknowledged);
  // Renews the lease of a session. As Find.
  absl::StatusOr<std::shared_ptr<Session>> KeepAlive(std::string_view token, uint64_t epoch,
                                                     const Tenant& tenant);

  // The stream of `sink` is gone, in order or not. If the session was still its own, a resumable
  // one that is to be kept is detached, and any other is closed.
  void Leave(const std::shared_ptr<Session>& session, const AnswerSink& sink, bool keep);
  void Close(const std::shared_ptr<Session>& session, const absl::Status& why);

  std::vector<std::shared_ptr<Session>> All() const;  // by id

  // What OpenResult says of a session.
  OpenResult Describe(const Session& session) const;

  // Closes the sessions whose time is over; when that of the next one is, as the clock has it.
  // INT64_MAX if no session ends by itself.
  int64_t CloseExpired();
  // Does so whenever it is time, until this object is gone.
  void StartTimer();

 private:
  absl::StatusOr<std::shared_ptr<Session>> FindLocked(std::string_view token, uint64_t epoch,
                                                      const Tenant& tenant) const;
  static void End(Session& session, const absl::Status& why);
  void WakeTimer();  // with the mutex held
  void Tick();

  const Environment& env_;
  const uint64_t epoch_;

  mutable std::mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Session>> by_token_;
  uint64_t last_id_ = 0;
  std::condition_variable wake_;
  bool sooner_ = false;  // a session may end before what the timer waits for
  bool stop_ = false;
  std::thread timer_;
};

}  // namespace telegrad
