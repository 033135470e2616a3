// The link of one tenant to another server: a resumable session there, on which the operations of
// all queues and devices of the tenant are sent in one order. The session executes them as if one
// after the other, so no operation has to wait for an earlier one. A submission waits here only for
// points of other devices, and for bytes that a read is still writing into host memory from which
// the submission sends. An answer ends a submission. A submission whose wait has failed fails with
// that error, though its commands may have run; its results count as failed.
//
// When the session has ended, because the server was restarted or could not be reached for longer
// than it keeps sessions, everything under way fails with UNAVAILABLE, and so does all later work
// that uses memory of that session. The next allocation opens a new session.
//
// One lock guards all of it. Under the lock, operations are sent only while the session has room,
// because the threads that make room need the lock, too. Points are signalled and references
// dropped without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cc/lent_memory.h"
#include "client/cc/remote_session.h"
#include "devices/api/device.h"
#include "devices/remote/remote_memory.h"
#include "devices/remote/remote_server.h"
#include "engine/base/burst.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe.
class RemoteLink final : public Burst::Part, public std::enable_shared_from_this<RemoteLink> {
 public:
  RemoteLink(std::shared_ptr<RemoteServer> server, std::string tenant);
  ~RemoteLink();

  const std::string& name() const { return server_->options().name; }
  const std::string& tenant() const { return tenant_; }
  // Of the session at hand; null: there is none.
  std::shared_ptr<Connection> connection() const {
    const MutexLock lock(mutex_);
    return far_ == nullptr ? nullptr : far_->connection;
  }
  absl::Duration grace() const { return server_->options().grace; }
  const std::shared_ptr<RemotePeers>& peers() const { return server_->options().peers; }
  // Whether buffers travel directly between the two servers, of one tenant.
  bool Exchanges(const RemoteLink& other) const {
    return this != &other && tenant_ == other.tenant_ && server_->Exchanges(*other.server_);
  }

  // May wait for a connection to the server, the first time. `device` is the server's name for it.
  absl::StatusOr<std::shared_ptr<Memory>> Alloc(const std::string& device, int64_t size,
                                                std::shared_ptr<std::atomic<int64_t>> used);
  void Free(uint64_t handle, uint64_t generation, const std::shared_ptr<std::atomic<int64_t>>& used,
            int64_t size);
  // Of memory of that generation; see Memory::Health.
  absl::Status HealthOf(uint64_t generation) const;
  // Opens a session again where one was lost.
  absl::Status Recover();
  // Waits until the server has verified the graph and, where it has no variables, compiled it.
  absl::StatusOr<std::shared_ptr<LoadedProgram>> Load(const std::string& device,
                                                      const ProgramImage& image);

  // See PredictsValues.
  absl::StatusOr<std::optional<FormCost<GraphCost>>> Predict(const RemoteProgram& program,
                                                             std::span<const VarValue> values);

  struct QueueState;
  std::shared_ptr<QueueState> NewQueue(std::string name);
  // What waits for a point of another device fails with CANCELLED, all else goes on.
  void CloseQueue(const std::shared_ptr<QueueState>& queue);
  absl::StatusOr<TimelinePoint> Submit(const std::shared_ptr<QueueState>& queue, QueueWork work,
                                       std::span<const TimelinePoint> waits);
  TimelinePoint Last(const QueueState& queue) const;
  // The number of the session at hand, or of the last one; 1 before the first, too.
  uint64_t generation() const {
    const MutexLock lock(mutex_);
    return generation_ == 0 ? 1 : generation_;
  }
  // The number of the session whose memory has its contents: the next one's, once one is lost.
  uint64_t memory_generation() const {
    const MutexLock lock(mutex_);
    return far_ == nullptr ? generation_ + 1 : generation_;
  }

  // Whether the server copies between its buffers, as far as it has said; else their bytes come
  // here and go back.
  bool copies_there() const {
    const MutexLock lock(mutex_);
    return far_ == nullptr || far_->copies;
  }

  bool connected() const {
    const MutexLock lock(mutex_);
    return far_ != nullptr;
  }
  // Whether it had a session and has none.
  bool lost() const {
    const MutexLock lock(mutex_);
    return far_ == nullptr && generation_ > 0;
  }

  // For copies between servers. `use` is called with the lock, and must not wait. UNAVAILABLE if
  // the session of that generation is over.
  absl::Status WithSession(uint64_t generation, const std::function<void(RemoteSession&)>& use);
  // Sends operations behind all before, in that session; else `told` has the error.
  void PostTo(uint64_t generation, const Future<Done>& told,
              std::function<void(RemoteSession&)> post);
  // The session of that generation is over, unless it is already.
  void LoseSession(uint64_t generation, const absl::Status& why);
  // UNAVAILABLE if the session of that generation is over. Not with the lock.
  absl::Status LostSession(uint64_t generation);
  // Runs it when this thread has the lock of no link.
  static void Later(std::function<void()> what);

  // Of the server's threads:
  // Ends what time has ended; true while something is under way.
  bool Tick();
  // Waits until nothing is under way, at most so long.
  void Drain(absl::Duration limit);
  // Whether it has a session of which something was heard since then, in SteadyNs.
  bool ProgressedSince(int64_t ns) const {
    const MutexLock lock(mutex_);
    return far_ != nullptr && heard_ > ns;
  }
  // The session is over, with what is under way.
  void Lose(const absl::Status& why);
  void Close();

 private:
  struct Item;
  using ItemRef = std::shared_ptr<Item>;
  // A session on the server.
  struct Far {
    std::shared_ptr<Connection> connection;
    std::unique_ptr<RemoteSession> session;
    bool copies = false;  // see copies_there
    uint64_t generation = 0;
    uint64_t next_handle = 1;
    // Bytes that are allocated there, by the count that they are in.
    std::map<std::shared_ptr<std::atomic<int64_t>>, int64_t> held;
  };
  // The end of one command.
  struct Ended {
    ItemRef item;
    size_t command = 0;
    absl::Status status;
    RunInfo info = {};
  };
  // Bytes of the host that a read is bringing.
  struct HostRead {
    const char* begin = nullptr;
    const char* end = nullptr;
    const Item* item = nullptr;
    size_t command = 0;
    std::shared_ptr<LentMemory> lent;  // null: it is not taken back
    Future<Done> told;
  };
  // Sends operations, or, if the session is null, ends what waits for them.
  using Post = std::function<void(RemoteSession*)>;
  enum class Step { kBlocked, kSent };

  absl::Status Open();
  absl::StatusOr<GraphCost> CostOf(const PutInfo& info) const;
  absl::StatusOr<HasInfo> AskFor(const Digest& hash, const std::vector<std::string>& devices,
                                 std::span<const VarValue> values);
  // Asks it in a session of its own, or, where the tenant has no other, in that of its operations.
  template <typename Info, typename Ask>
  absl::StatusOr<Info> AskApart(Ask ask);
  template <typename Info, typename Ask>
  absl::StatusOr<Info> AskInOrder(Ask ask);
  absl::Status Reachable() const;
  absl::Status NoConnection(const absl::Status& why) const;
  absl::Status CheckBindings(const CommandBuffer* commands,
                             std::span<const BufferView> bindings) const;
  bool IsOwn(const BufferView& view) const;
  template <typename Do>
  void Enter(Do what);
  void Settle();
  void OnEnded(Ended ended);
  void EndOfBurst() override;

  // The lock is that of its queues and items, too.
  template <typename Operations>
  void Send(Operations post) TG_REQUIRES(mutex_);
  void Flush() TG_REQUIRES(mutex_);
  void LoseLocked(const absl::Status& why) TG_REQUIRES(mutex_);
  void DropLocked() TG_REQUIRES(mutex_);
  absl::Status LostLocked() const TG_REQUIRES(mutex_);
  absl::Status LostLocked(uint64_t generation) const TG_REQUIRES(mutex_);
  void AdvanceAll() TG_REQUIRES(mutex_);
  void ForgetQueues();
  const Item* AliveAt(const TimelinePoint& point) const TG_REQUIRES(mutex_);
  Step Begin(QueueState& queue, const ItemRef& item) TG_REQUIRES(mutex_);
  Step Await(QueueState& queue, const ItemRef& item) TG_REQUIRES(mutex_);
  Step Go(const ItemRef& item) TG_REQUIRES(mutex_);
  bool MustWaitForRead(const BufferView& host, int64_t offset, int64_t length) const
      TG_REQUIRES(mutex_);
  static void Describe(Item& item, size_t i);
  void PostLaunch(const ItemRef& item, size_t i) TG_REQUIRES(mutex_);
  Step CopyByWayOfHost(const ItemRef& item, size_t i) TG_REQUIRES(mutex_);
  Step CopyBetweenServers(const ItemRef& item, size_t i) TG_REQUIRES(mutex_);
  void CancelCopies(const Item& item, const absl::Status& why) TG_REQUIRES(mutex_);
  void PostCopy(const ItemRef& item, size_t i, const BufferView& to, const BufferView& from)
      TG_REQUIRES(mutex_);
  void Take(Ended ended) TG_REQUIRES(mutex_);
  bool Finish(QueueState& queue) TG_REQUIRES(mutex_);
  void TakeBackMemory(Item& item) TG_REQUIRES(mutex_);
  bool CanAbandon(const Item& item) const TG_REQUIRES(mutex_);
  void ForgetAbandoned(const ItemRef& item) TG_REQUIRES(mutex_);
  static void Fail(Item& item, absl::Status status);
  void TellTrace(Item& item, const std::string& queue);  // without the lock

  const std::shared_ptr<RemoteServer> server_;
  const std::string tenant_;
  Mutex opening_;  // held by who connects

  mutable Mutex mutex_;
  ConditionVariable idle_;
  std::unique_ptr<Far> far_ TG_GUARDED_BY(mutex_);  // null: none is open
  uint64_t generation_ TG_GUARDED_BY(mutex_) = 0;   // of the last one
  absl::Status lost_ TG_GUARDED_BY(mutex_);         // why the last one is over
  bool closed_ TG_GUARDED_BY(mutex_) = false;
  std::deque<Post> outbox_ TG_GUARDED_BY(mutex_);  // behind what the session has room for
  // Those that are not closed, or have something alive, as far as somebody has looked.
  std::vector<std::shared_ptr<QueueState>> queues_ TG_GUARDED_BY(mutex_);
  absl::flat_hash_map<const Timeline*, QueueState*> timelines_ TG_GUARDED_BY(mutex_);  // of those
  std::vector<Ended> ended_ TG_GUARDED_BY(mutex_);     // that are yet to be taken
  std::vector<Ended> taking_ TG_GUARDED_BY(mutex_);    // of who takes them
  std::vector<uint64_t> freed_ TG_GUARDED_BY(mutex_);  // handles of the session at hand, likewise
  std::vector<HostRead> host_reads_ TG_GUARDED_BY(mutex_);
  std::vector<TimelinePoint> arm_ TG_GUARDED_BY(mutex_);  // of other devices, that are to call back
  std::vector<std::function<void()>> later_ TG_GUARDED_BY(mutex_);  // to be run without the lock
  // Whose points are to be signalled, in this order.
  std::vector<ItemRef> finished_ TG_GUARDED_BY(mutex_);
  std::vector<ItemRef> settled_;  // of who set settling_
  bool settling_ TG_GUARDED_BY(mutex_) = false;
  // That have ended here and not there, with the memory that they use.
  std::vector<ItemRef> abandoned_ TG_GUARDED_BY(mutex_);
  const Item* traced_ TG_GUARDED_BY(mutex_) = nullptr;  // that has the session's one traced run
  int64_t items_ TG_GUARDED_BY(mutex_) = 0;             // under way
  // SteadyNs, when the server last answered or took something.
  int64_t progressed_ TG_GUARDED_BY(mutex_) = 0;
  int64_t heard_ TG_GUARDED_BY(mutex_) = 0;  // the last answer, or that the session was opened
};

}  // namespace telegrad
