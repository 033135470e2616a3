// A session: the buffers of one client and the operations it has pipelined. Operations take effect
// in order and none waits for more than it needs:
//
//   Alloc, Free  nothing
//   Write        until the runs and reads that use its buffer have ended, and one that is a
//                transfer until its bytes are there; one of memory that the host cannot address is
//                handed to the queue of its device
//   Copy         is handed to such a queue
//   Read         is answered once the run that writes its buffer has ended; what follows goes on
//   Run          is handed to the queue of its device at once; what follows goes on. Before a
//                graph's first run it is compiled on a thread for that, and what follows waits
//   Put, Import  on such a thread too; what follows waits
//
// Answers are given in the order of the operations. A failed operation is answered with its error
// and poisons what it would have written: later operations that read such a buffer fail with the
// same error until it has been written anew in full. Nothing else is affected.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/budget.h"
#include "engine/base/clock.h"
#include "server/admin/metrics.h"
#include "server/admin/tracer.h"
#include "server/pool/device_pool.h"
#include "server/pool/session_queues.h"
#include "server/pool/task_pool.h"
#include "server/session/buffer.h"
#include "server/session/limits.h"
#include "server/session/operation.h"
#include "server/session/tenant.h"
#include "server/session/transfers.h"

namespace telegrad {

// Objects that all sessions share; they outlive the sessions.
struct Environment {
  const DevicePool* devices;
  TaskPool* workers;    // for work of milliseconds: large allocations and copies
  TaskPool* compilers;  // for long work: verifying and compiling
  Metrics* metrics;
  SessionLimits limits;
  const Clock* clock = Clock::Steady();
  Tracer* tracer = nullptr;  // null: nothing is traced
};

class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // In the order of the operations. Called under the session's lock: must not call back.
  virtual void OnAnswer(Answer answer) = 0;
  // The state of the session has changed: see Congested and Idle. Called from any thread, without
  // locks.
  virtual void OnProgress() = 0;
  // The session will not use this sink again: another has replaced it, or the session has ended.
  // Called without locks; not called for a sink that its owner has detached.
  virtual void OnDetached(const absl::Status& why) = 0;
};

// How a session was opened.
struct SessionTerms {
  uint64_t id = 0;         // for the logs
  std::string token = {};  // see SessionRegistry
  bool resumable = false;
  int64_t lease_ns = 0, grace_ns = 0;  // of a resumable one
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  // `place` is the charge of its tenant's account of sessions, given back by Close; `memory` is
  // that of host_memory, given back by the destructor.
  Session(const Environment& env, std::shared_ptr<Tenant> tenant, SessionTerms terms,
          std::shared_ptr<AnswerSink> sink, Reservation place = {}, Reservation memory = {});
  ~Session();

  const SessionTerms& terms() const { return terms_; }
  const Tenant& tenant() const { return *tenant_; }

  // For the streams that carry its large writes and reads.
  Transfers& transfers() { return transfers_; }

  // Takes an operation from the stream of `from`, by one thread at a time; ignores it if that is
  // attached no more, or if the operation was taken before. RESOURCE_EXHAUSTED once the client
  // leaves too many answers unacknowledged; the caller then closes the session.
  absl::Status Submit(const AnswerSink& from, Operation operation);
  // The operation `id` of that stream: those from `first` to `last` that have not begun do not
  // begin, and a run that has ends at its next segment.
  void Cancel(const AnswerSink& from, uint64_t id, uint64_t first, uint64_t last);
  // True while no more of the stream should be read, because this session or its tenant has too
  // much under way. A session without operations under way is never congested: it does not wait for
  // other sessions, and the check is repeated whenever one of its own operations ends.
  bool Congested() const;
  // True when every operation submitted has been answered.
  bool Idle() const;
  // Drops what has not started, frees every buffer, detaches the sink. Runs in flight end at their
  // next segment.
  void Close(const absl::Status& why = absl::OkStatus());

  // Resumes the session with `sink`. Returns the sink that it replaces, which the caller notifies,
  // or null if that was detached. `sink` receives `opened`, an OpenResult that is completed here,
  // then every kept answer after `acknowledged`.
  std::shared_ptr<AnswerSink> Attach(std::shared_ptr<AnswerSink> sink, Answer opened,
                                     uint64_t acknowledged);
  // Detaches `sink`: it receives no more answers, and operations from it are ignored. Operations
  // taken before continue. False if it was not attached.
  bool Detach(const AnswerSink& sink);
  // The client has every answer up to this operation.
  void Acknowledge(uint64_t id);
  // Renews the lease, because a message of the client has arrived.
  void Renew();
  // The time at which the session is closed if no message arrives; INT64_MAX: never.
  int64_t EndsAt() const;
  // The last operation that was taken; 0: none.
  uint64_t last_operation() const;

 private:
  // The kind of thread that executes operations, which limits the work that may be done there.
  enum class Where { kReader, kDeviceThread, kWorker, kCompiler };
  enum class Step { kDone, kBlocked, kNeedsWorker, kNeedsCompiler };
  // The event that a blocked operation waits for: one of these.
  struct Block {
    TimelinePoint point;
    std::shared_ptr<HeldRead> held;
    // The point may belong to another session's submission, and may be reached on a thread that
    // holds a lock which draining takes.
    bool others = false;
  };
  struct Queued {
    Operation operation;
    int64_t staged = 0;
    std::optional<ExecutableCache::Result> compiled;  // for this run, before it was blocked
    bool waited = false;                              // this run, for what other sessions hold
    bool cancelled = false;
    bool begun = false;        // it was tried
    int64_t submitted_ns = 0;  // this run, to the engine, by the clock of the environment
    std::shared_ptr<Cancellation> cancellation;  // of this run
    int64_t deadline_ns = INT64_MAX;             // likewise
    int64_t arrived_ns = 0;                      // likewise, by the clock of the environment
    TakenTime device_time;                       // for it, as predicted
    std::optional<TimelinePoint> copied;  // this write's bytes are in its buffer, or this import's
    std::shared_ptr<Memory> model;        // are here, where the host can read them
    absl::Status transfer;                // whether its number is one
    std::shared_ptr<Upload> upload;       // of this write
    bool uploading = false;               // straight into its buffer
  };
  // An operation whose answer is not given yet.
  struct Slot {
    bool done = false;
    bool quiet = false;                          // only an error is worth an answer
    std::shared_ptr<Cancellation> cancellation;  // of a run that is under way
    Answer answer;
  };
  using SlotRef = std::shared_ptr<Slot>;

  void NameTransfer(Queued& queued, Transfers::Leftovers* leftovers);
  void Drain(Where where);
  void Unblock(Where where, uint64_t arming);
  void Arm(Step step, const Block& block, uint64_t arming);
  bool TakeLocked(const AnswerSink& from, uint64_t id);

  Step Execute(Queued& queued, Where where, Block* block);
  Step Do(uint64_t id, AllocOp& op, Where where);
  Step Do(uint64_t id, FreeOp& op);
  Step Do(uint64_t id, WriteOp& op, Queued& queued, Where where, Block* block);
  Step Do(uint64_t id, ReadOp& op, const Queued& queued, Where where, Block* block);
  bool MayWrite(Buffer& buffer, Block* block);
  Step DoUpload(uint64_t id, const WriteOp& op, Queued& queued, Buffer& buffer, Where where,
                Block* block);
  Step DoDownload(uint64_t id, const ReadOp& op, Buffer& buffer);
  Step Do(uint64_t id, CopyOp& op, Where where, Block* block);
  Step Do(uint64_t id, HasOp& op);
  Step Do(uint64_t id, PutOp& op, Where where);
  Step Do(uint64_t id, ImportOp& op, Queued& queued, Where where, Block* block);
  Step Do(uint64_t id, RunOp& op, Queued& queued, Where where, Block* block);
  Step Refuse(uint64_t id, Queued& queued, const absl::Status& error);

  // The parts of writes and reads of memory that the host cannot address: the device copies
  // between it and memory of the host.
  absl::StatusOr<TimelinePoint> WriteStaged(const Payload& payload, uint64_t offset,
                                            const Buffer& buffer);
  Step WriteBehind(uint64_t id, WriteOp& op, Buffer& buffer, Where where, Block* block);
  absl::StatusOr<TimelinePoint> CopyInto(Buffer& to, uint64_t to_offset, BufferView from,
                                         std::vector<TimelinePoint> waits, uint64_t bytes);
  void WrittenBehind(uint64_t id, Buffer& buffer, const TimelinePoint& point, uint64_t bytes);
  absl::StatusOr<TimelinePoint> CopyOut(const Buffer& buffer, uint64_t offset, uint64_t bytes,
                                        const std::shared_ptr<Memory>& to);
  Step ReadStaged(uint64_t id, const ReadOp& op, Buffer& buffer, Block* block);
  absl::StatusOr<std::shared_ptr<Memory>> Stage(const Buffer& buffer, uint64_t bytes);
  void Answered(const SlotRef& slot, ReadResult result, const absl::Status& status);

  // The parts of an import.
  class NewWeights;
  absl::StatusOr<Step> OpenModel(const ImportOp& op, Queued& queued, Where where, Block* block,
                                 std::string_view* file);
  absl::StatusOr<ImportResult> Import(ImportOp& op, std::string_view file, Budget* budget);
  absl::Status Fill(const Buffer& buffer, std::string_view content);

  // The parts of a run.
  absl::StatusOr<std::shared_ptr<const StoredGraph>> FindGraph(std::string_view hash);
  absl::Status Bind(const RunOp& op, const StoredGraph& graph);
  absl::Status BindPart(const RunOp& op, size_t slot, const StoredGraph& graph, BufferView view);
  absl::Status NameDevices(const StoredGraph& graph, std::span<const std::string> names);
  absl::Status PlaceSlot(size_t slot, const StoredGraph& graph, Device* device);
  absl::Status DefaultDevices(const StoredGraph& graph);
  absl::StatusOr<ExecutableCache::Result> Compile(const StoredGraph& graph,
                                                  std::span<const VarValue> variables);
  bool BusyDevice(Block* block) const;
  bool MayOverwrite(const StoredGraph& graph, Block* block);
  absl::StatusOr<std::shared_ptr<TracedRun>> NewTrace(const RunOp& op);
  void Started(uint64_t id, const RunOp& op, Queued& queued, const StoredGraph& graph,
               const TimelinePoint& point,
               int64_t submitted,  // when Submit was called, as SteadyNs has it
               std::shared_ptr<DeviceTime> taken, std::shared_ptr<TracedRun> traced);
  Step FailRun(uint64_t id, const StoredGraph& graph, const absl::Status& error);

  // Counts in the daemon's metrics and in the tenant's.
  void Count(Metric metric, int64_t n = 1) {
    env_.metrics->Add(metric, n);
    tenant_->metrics.Add(metric, n);
  }

  absl::StatusOr<Buffer*> FindBuffer(uint64_t handle);
  absl::Status CheckAlloc(const AllocOp& op) const;
  absl::StatusOr<std::unique_ptr<Buffer>> NewBuffer(const AllocOp& op);
  void Drop(uint64_t handle);  // which is there
  void Poisoned(uint64_t handle, const absl::Status& error);

  SlotRef NewSlot(uint64_t id, bool quiet = false,
                  std::shared_ptr<Cancellation> cancellation = nullptr);
  void Finish(const SlotRef& slot);
  Step Reply(uint64_t id, Answer answer);
  Step Fail(uint64_t id, absl::Status error);
  void EndedLocked(int64_t operations);
  void ReleaseStagedLocked(int64_t bytes);
  void EmitLocked();
  void KeepLocked(const Answer& answer);
  void ForgetLocked(uint64_t acknowledged);
  void RenewLocked();

  const Environment& env_;
  const std::shared_ptr<Tenant> tenant_;
  const SessionTerms terms_;
  const std::shared_ptr<SessionQueues> queues_;

  mutable std::mutex mutex_;
  std::shared_ptr<AnswerSink> sink_;
  std::deque<Queued> queue_;
  std::deque<SlotRef> slots_;
  // An answer of a resumable session that is not acknowledged, whether or not a sink has received
  // it.
  struct Kept {
    Answer answer;
    Reservation paid, always_paid;
  };
  std::deque<Kept> kept_;
  int64_t kept_bytes_ = 0;
  uint64_t last_operation_ = 0;
  int64_t ends_at_ = INT64_MAX;
  Reservation place_;
  const Reservation memory_;
  int64_t staged_ = 0;
  int64_t under_way_ = 0;  // operations taken and not answered; charged, as staged_ is
  bool draining_ = false;  // a thread executes operations
  bool blocked_ = false;   // the front of the queue waits
  uint64_t arming_ = 0;    // number of its current wait; events of earlier waits are ignored
  bool closed_ = false;
  uint64_t running_ = 0;  // the operation that the drainer is in; 0: none
  std::shared_ptr<Cancellation> running_cancellation_;  // if it is a run
  Budget* budget_ = nullptr;  // of the job that the drainer is in, to be cancelled by Close
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();  // of runs

  Transfers transfers_;

  // Owned by the drainer, without the lock.
  absl::flat_hash_map<uint64_t, std::unique_ptr<Buffer>> buffers_;
  int64_t bytes_ = 0;
  bool has_slot_ = false;                // the operation at hand is to be answered
  std::deque<TimelinePoint> runs_;       // in flight
  std::weak_ptr<HeldRead> staged_read_;  // the one that ReadStaged may have going
  struct StagedWrite {
    TimelinePoint copied;
    uint64_t bytes = 0;
  };
  std::deque<StagedWrite> staged_writes_;  // whose bytes are on their way to their device
  std::vector<Buffer*> bound_;             // of the run at hand, with what it binds and waits for
  std::vector<BufferView> views_;
  std::vector<TimelinePoint> waits_;
  std::vector<Device*> devices_;     // by the graph's number
  std::weak_ptr<TracedRun> traced_;  // until its answer is sent
};

}  // namespace telegrad
