// A session: the buffers of one client and the operations it has pipelined. Operations take effect
// in order and none waits for more than it needs:
//
//   Alloc, Free  nothing
//   Write        until the runs and reads that use its buffer have ended, and one that is a
//                transfer until its bytes are there
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

// What all sessions share; outlives them.
struct Environment {
  const DevicePool* devices;
  TaskPool* workers;    // for what takes milliseconds: large allocations and copies
  TaskPool* compilers;  // for what may take long: verifying and compiling
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
  // The session has moved on: see Congested and Idle. Called from any thread, without locks.
  virtual void OnProgress() = 0;
  // The session has nothing more to do with this sink: another has taken its place, or the session
  // is over. Without locks; not for one that was detached on its owner's wish.
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
  // `place` is what its tenant's account of sessions was charged for it, given back by Close;
  // `memory` that of host_memory, given back when it is gone.
  Session(const Environment& env, std::shared_ptr<Tenant> tenant, SessionTerms terms,
          std::shared_ptr<AnswerSink> sink, Reservation place = {}, Reservation memory = {});
  ~Session();

  const SessionTerms& terms() const { return terms_; }
  const Tenant& tenant() const { return *tenant_; }

  // For the streams that carry its large writes and reads.
  Transfers& transfers() { return transfers_; }

  // Takes an operation from the stream of `from`, by one thread at a time; ignores it if that is
  // attached no more, or if the operation was taken before. RESOURCE_EXHAUSTED once the client
  // leaves too many answers unacknowledged: what is left is to close the session.
  absl::Status Submit(const AnswerSink& from, Operation operation);
  // The operation `id` of that stream: those from `first` to `last` that have not begun do not
  // begin, and a run that has ends at its next segment.
  void Cancel(const AnswerSink& from, uint64_t id, uint64_t first, uint64_t last);
  // True while the client should not be read further: because of what this session has under way,
  // or its tenant. One that has nothing under way may always go on, so that none waits for others
  // and each is looked at again when something of its own has ended.
  bool Congested() const;
  // True when every operation submitted has been answered.
  bool Idle() const;
  // Drops what has not started, frees every buffer, detaches the sink. Runs in flight end at their
  // next segment.
  void Close(const absl::Status& why = absl::OkStatus());

  // Resuming: `sink` takes the place of the one before, which is returned to be told so, and null
  // if it was detached. It is given `opened`, an OpenResult that is completed here, then every kept
  // answer but those up to `acknowledged`.
  std::shared_ptr<AnswerSink> Attach(std::shared_ptr<AnswerSink> sink, Answer opened,
                                     uint64_t acknowledged);
  // From now on nothing is given to `sink` and nothing taken of it; what was taken goes on. False
  // if it was not attached.
  bool Detach(const AnswerSink& sink);
  // The client has every answer up to this operation.
  void Acknowledge(uint64_t id);
  // Something was heard of the client.
  void Renew();
  // When the session is to be closed if nothing more is heard; INT64_MAX: never.
  int64_t EndsAt() const;
  // The last operation that was taken; 0: none.
  uint64_t last_operation() const;

 private:
  // Where the session's operations are being executed, which decides how much may be done there.
  enum class Where { kReader, kDeviceThread, kWorker, kCompiler };
  enum class Step { kDone, kBlocked, kNeedsWorker, kNeedsCompiler };
  // What a blocked operation waits for: one of them.
  struct Block {
    TimelinePoint point;
    std::shared_ptr<HeldRead> held;
    // The point may be of somebody else's submission: whoever makes it may reach it while he holds
    // what a drain takes.
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
  Step Do(uint64_t id, HasOp& op);
  Step Do(uint64_t id, PutOp& op, Where where);
  Step Do(uint64_t id, ImportOp& op, Queued& queued, Where where, Block* block);
  Step Do(uint64_t id, RunOp& op, Queued& queued, Where where, Block* block);
  Step Refuse(uint64_t id, Queued& queued, const absl::Status& error);

  // The parts of writes and reads of memory that the host cannot address: the device copies
  // between it and memory of the host.
  absl::StatusOr<TimelinePoint> WriteStaged(const Payload& payload, uint64_t offset,
                                            const Buffer& buffer);
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

  // In the daemon's metrics and in the tenant's.
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
  // An answer of a resumable session, given to a sink or not, that is not acknowledged.
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
  bool draining_ = false;  // somebody executes operations
  bool blocked_ = false;   // the front of the queue waits
  uint64_t arming_ = 0;  // of what it waits for; what wakes it up for an earlier one comes too late
  bool closed_ = false;
  uint64_t running_ = 0;  // the operation that the drainer is in; 0: none
  std::shared_ptr<Cancellation> running_cancellation_;  // if it is a run
  Budget* budget_ = nullptr;  // of the job that the drainer is in, to be cancelled by Close
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();  // of runs

  Transfers transfers_;

  // Owned by whoever drains, without the lock.
  absl::flat_hash_map<uint64_t, std::unique_ptr<Buffer>> buffers_;
  int64_t bytes_ = 0;
  bool has_slot_ = false;                // the operation at hand is to be answered
  std::deque<TimelinePoint> runs_;       // in flight
  std::weak_ptr<HeldRead> staged_read_;  // the one that ReadStaged may have going
  std::vector<Buffer*> bound_;           // of the run at hand, with what it binds and waits for
  std::vector<BufferView> views_;
  std::vector<TimelinePoint> waits_;
  std::vector<Device*> devices_;     // by the graph's number
  std::weak_ptr<TracedRun> traced_;  // until its answer is sent
};

}  // namespace telegrad
