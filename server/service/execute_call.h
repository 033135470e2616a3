// One Execute stream: it opens or resumes a session, passes messages to it as operations, and
// sends its answers. It reads the next message when the session has the operations of the last one
// and has room; it writes one message at a time. To a client that takes gathered answers it sends
// those of a burst of events together. Where a client waits for each answer before it goes on, the
// next read begins behind the answer, if that comes soon.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/burst.h"
#include "engine/base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "server/data/payload.h"
#include "server/service/late_reads.h"
#include "server/service/open_calls.h"
#include "server/service/router.h"
#include "server/session/session_registry.h"
#include "telegrad/v1/compute.pb.h"

namespace telegrad {

class ExecuteCall final : public RawStream,
                          public AnswerSink,
                          public Burst::Part,
                          public LateReads::Reader,
                          public std::enable_shared_from_this<ExecuteCall> {
 public:
  // Owns itself until OnOver. `traceparent`: the stream's, or empty.
  static std::shared_ptr<ExecuteCall> Create(SessionRegistry& registry, Caller caller,
                                             std::string_view traceparent, Tracer* tracer,
                                             TaskPool* workers);
  // Begins to read, unless `refused`, which the stream then ends with.
  void Start(OpenCalls<ExecuteCall>::CallSlot slot, const absl::Status& refused);

  // Takes no further operations; ends the stream once those it has are answered.
  void Drain();

  void OnReceived(bool ok) override;
  void OnSent(bool ok) override;
  void OnGone() override;
  void OnOver() override;
  // The session is kept, if it is resumable and its tenant may come back.
  void End(absl::Status why) override {
    const bool keep = !absl::IsPermissionDenied(why);
    Abort(std::move(why), keep);
  }

  void OnAnswer(Answer answer) override;
  void OnProgress() override;
  void OnDetached(const absl::Status& why) override;
  void EndOfBurst() override { Pump(); }
  bool IsLate(int64_t until_ns) const override { return late_until_ns_ == until_ns; }
  void ReadNow(int64_t until_ns) override;

 private:
  ExecuteCall(SessionRegistry& registry, Caller caller, Tracer* tracer, TaskPool* workers)
      : registry_(registry), caller_(std::move(caller)), tracer_(tracer), workers_(*workers) {}

  absl::Status Accept();          // the message in incoming_
  absl::Status AcceptGathered();  // what came with it, as far as there are room and time
  void AcceptLater();             // the rest, on a worker, whose start is one of starting_
  void Accepted(absl::Status status, int started);
  absl::Status Take(std::unique_ptr<Payload> payload, int64_t head_bytes);  // request_
  absl::Status Open(const v1::Open& open);
  std::shared_ptr<OperationTrace> TraceOf(const v1::ExecuteRequest& request);
  // Ends the stream now. What the session has is dropped, unless it is to be kept and resumable.
  void Abort(absl::Status status, bool keep);
  // Starts whatever can be started: the next read, the next write, the end. PumpSoon: at the end of
  // a burst of events.
  void Pump();
  void PumpSoon();
  void Sent();  // what was being written
  bool HasRoomLocked() const TG_REQUIRES(mutex_);
  void CountWaitLocked(bool waited) TG_REQUIRES(mutex_);
  bool PutsOffReadLocked(bool waits) TG_REQUIRES(mutex_);
  std::vector<Answer> NextMessage() TG_REQUIRES(mutex_);

  SessionRegistry& registry_;
  const Caller caller_;
  Tracer* const tracer_;  // null: nothing is traced
  TaskPool& workers_;
  std::optional<TraceContext> stream_trace_;  // that the stream came with
  std::shared_ptr<ExecuteCall> self_;         // until OnOver
  OpenCalls<ExecuteCall>::CallSlot slot_;     // none if it is refused

  // Of the reader, which is one at a time.
  grpc::ByteBuffer incoming_;
  v1::ExecuteRequest request_;
  uint64_t last_op_ = 0;
  google::protobuf::RepeatedPtrField<std::string> gathered_;  // with the message at hand
  int next_gathered_ = 0;                                     // the first that is not accepted yet

  Mutex mutex_;
  std::shared_ptr<Session> session_;  // set once, by the reader
  std::deque<Answer> answers_ TG_GUARDED_BY(mutex_);
  uint64_t sent_ TG_GUARDED_BY(mutex_) = 0;         // bytes of the read at the front of answers_
  int64_t answer_bytes_ TG_GUARDED_BY(mutex_) = 0;  // that answers_ hold copies of
  grpc::ByteBuffer outgoing_;                       // of who set writing_
  int held_ TG_GUARDED_BY(mutex_) =
      0;  // messages that the transport may hold back for the next one
  int starting_ TG_GUARDED_BY(mutex_) = 0;
  bool reading_ TG_GUARDED_BY(mutex_) = false;
  int waits_ TG_GUARDED_BY(mutex_) = 0;  // see CountWaitLocked
  bool under_way_ TG_GUARDED_BY(mutex_) =
      false;                                // something was, when the message before was taken
  std::atomic<int64_t> late_until_ns_ = 0;  // the next read is put off; 0: it is not
  bool accepting_ TG_GUARDED_BY(mutex_) = false;  // a message is on its way to the session
  bool more_ TG_GUARDED_BY(mutex_) = false;       // some of gathered_ are to be accepted
  bool gathers_ TG_GUARDED_BY(mutex_) = false;    // the client takes gathered answers
  bool writing_ TG_GUARDED_BY(mutex_) = false;
  bool begun_ TG_GUARDED_BY(mutex_) = false;        // to write
  bool gone_ TG_GUARDED_BY(mutex_) = false;         // the client is, by a cut
  bool input_ended_ TG_GUARDED_BY(mutex_) = false;  // no operation will follow
  bool finished_ TG_GUARDED_BY(mutex_) = false;
  bool aborted_ TG_GUARDED_BY(mutex_) = false;
  absl::Status end_ TG_GUARDED_BY(mutex_);  // what the stream ends with
};

}  // namespace telegrad
