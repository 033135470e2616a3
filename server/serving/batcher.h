// The requests of one tenant for one version of a model: a queue, from which batches are taken and
// run. A batch never mixes tenants, so that each pays for its own and waits in its own lane of the
// device's queue.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "engine/base/mutex.h"
#include "server/pool/session_queues.h"
#include "server/serving/form_cache.h"
#include "server/serving/infer.h"
#include "server/serving/sequences.h"
#include "server/serving/statistics.h"

namespace telegrad {

class ServedModel;

// The shapes of a batch's inputs, of those without the batch's dimension.
inline InputShapes WithBatch(InputShapes tails, int64_t rows) {
  for (Shape& shape : tails) shape.insert(shape.begin(), rows);
  return tails;
}

// A request that has been checked.
struct Waiting {
  InferRequest request;
  InferDone done;
  std::vector<size_t> inputs;   // by the model's inputs: which of the request's
  std::vector<size_t> outputs;  // by the request's outputs: which of the model's
  InputShapes tails;            // shapes of the inputs without the batch's dimension
  std::vector<int64_t> sizes;   // by the model's ragged sizes; the tails have -1 there
  int64_t rows = 0;             // of the batch; 0 where the model does not batch
  uint64_t level = 0;           // of priority
  int64_t arrived_ns = 0;
  int64_t expires_ns = INT64_MAX;                // in the queue
  std::shared_ptr<Sequence> sequence = nullptr;  // null where the model has none
};

// Memory that the runs of a form bind.
struct BufferSet {
  std::vector<BufferView> views;  // by slot
  // By input and by output, in memory of the host: the device's where the host can address it, else
  // null until a batch needs it.
  std::vector<std::shared_ptr<Memory>> inputs, outputs;
  std::vector<std::shared_ptr<Memory>> controls, states_in;  // of sequences, likewise
  std::vector<std::shared_ptr<Memory>> shapes;               // likewise
  bool reusable = true;  // nothing that is under way on the device uses them any more
};

struct Batch {
  std::shared_ptr<ServedModel> model;
  std::vector<Waiting> requests;
  // By request, where the model has sequences, and whether it is the last one.
  std::vector<std::pair<std::shared_ptr<Sequence>, bool>> sequences;
  size_t place = 0;         // of the model's instances, the one that runs it
  int64_t expected_ns = 0;  // see FormMaker
  std::shared_ptr<const Form> form;
  std::shared_ptr<BufferSet> buffers;
  int64_t rows = 0;
  bool among_many = false;  // its size was chosen while more requests than one waited
  BatchTimes times;
  std::shared_ptr<DeviceTime> taken = std::make_shared<DeviceTime>();
  TakenTime device_time = {};
  int attempts = 0;
  int moves = 0;               // to other places
  std::vector<int64_t> sizes;  // by the model's ragged sizes, with padding
  bool exact = false;          // these are only as large as they have to be
};

// Thread-safe. Whoever calls keeps the model meanwhile.
class Batcher : public std::enable_shared_from_this<Batcher> {
 public:
  Batcher(ServedModel* model, std::shared_ptr<Tenant> tenant);
  ~Batcher();

  void Add(const std::shared_ptr<ServedModel>& model, Waiting request);
  // Gives back what is kept for later requests; true if there is nothing under way.
  bool Trim();

 private:
  using BatchPtr = std::shared_ptr<Batch>;
  using Refused = std::vector<std::pair<Waiting, absl::Status>>;
  // Requests of one level; those whose time is over and that are only delayed are in the last.
  static constexpr uint64_t kDelayed = UINT64_MAX;

  // A form that is worth making for later batches.
  struct Wanted {
    size_t place = 0;
    int64_t rows = 0;
    InputShapes shapes;
  };

  void Dispatch(const std::shared_ptr<ServedModel>& model);
  void DispatchNow(const std::shared_ptr<ServedModel>& model);
  bool IsFullLocked(uint64_t level, int64_t most) const TG_REQUIRES(mutex_);
  void DropLocked(int64_t now, Refused* refused, int64_t* wake_ns) TG_REQUIRES(mutex_);
  BatchPtr TakeLocked(size_t place, int64_t now, int64_t* wake_ns) TG_REQUIRES(mutex_);
  BatchPtr TakeFirstLocked(size_t count) TG_REQUIRES(mutex_);
  BatchPtr TakeSequencesLocked(size_t place, int64_t now, int64_t* wake_ns) TG_REQUIRES(mutex_);
  // Those of the model's instances that have room, the one that would end first before the others.
  absl::InlinedVector<size_t, 2> PlacesLocked(int64_t now) const TG_REQUIRES(mutex_);
  BatchPtr NextLocked(int64_t now, int64_t* wake_ns) TG_REQUIRES(mutex_);
  bool IsTooEarlyLocked(size_t place, int64_t rows) const TG_REQUIRES(mutex_);
  size_t BestCountLocked(size_t place, size_t count, const InputShapes& tails, int64_t now)
      TG_REQUIRES(mutex_);
  void Occupy(Batch* batch, size_t place, int64_t now) const;
  void Release(const Batch& batch) const;
  void Learn(const Batch& batch) const;
  bool MoveAway(const BatchPtr& batch, const absl::Status& status);
  absl::Status EnqueueLocked(Waiting* request) TG_REQUIRES(mutex_);

  void Start(const BatchPtr& batch);
  void Run(const BatchPtr& batch);
  absl::StatusOr<std::shared_ptr<BufferSet>> TakeBuffers(const std::shared_ptr<const Form>& form);
  absl::StatusOr<std::unique_ptr<BufferSet>> NewBuffers(const Form& form);
  absl::Status Stage(const Batch& batch) const;
  void KeepBuffers(std::shared_ptr<const Form> form, std::unique_ptr<BufferSet> buffers);
  InputShapes TailsOf(Batch* batch) const;
  void Gather(const Batch& batch) const;
  bool GatherRagged(const Batch& batch, size_t input) const;
  absl::Status Cut(const Batch& batch, const Waiting& waiting, size_t output,
                   InferOutput* out) const;
  absl::Status CutTo(Shape box, DType dtype, InferOutput* out) const;
  absl::Status CutToRun(const Batch& batch, const Form::Io& io, InferOutput* out) const;
  absl::Status MakeStates(const Batch& batch);
  void GatherControls(const Batch& batch) const;
  absl::Status CopyStatesIn(const Batch& batch, std::vector<TimelinePoint>* waits);
  absl::Status CopyStatesOut(const Batch& batch, const TimelinePoint& run, TimelinePoint* last);
  void KeepStates(const Batch& batch) const;
  absl::StatusOr<TimelinePoint> Submit(const BatchPtr& batch);
  absl::StatusOr<std::vector<TimelinePoint>> CopyIn(const Batch& batch);
  absl::Status CopyInput(const Batch& batch, size_t input, std::vector<TimelinePoint>* waits);
  absl::Status CopyOutput(const Batch& batch, size_t output, const TimelinePoint& run,
                          TimelinePoint* last);
  static bool FromHost(const Batch& batch, size_t input);
  static bool ToHost(const Batch& batch, size_t output);
  static const DevicePart* PartFor(const Batch& batch, const Waiting& waiting, size_t wanted);
  absl::StatusOr<TimelinePoint> CopyOut(const Batch& batch, const TimelinePoint& run);
  void Ended(const BatchPtr& batch, const absl::Status& status);
  absl::StatusOr<InferResult> Scatter(const Batch& batch, const Waiting& request,
                                      int64_t first_row) const;
  void Over(const BatchPtr& batch, const absl::Status& status);
  void Refuse(ServedModel& model, Waiting& request, const absl::Status& status) const;

  ServedModel& model_;
  const std::shared_ptr<Tenant> tenant_;
  SessionQueues queues_;
  const std::vector<int64_t> most_running_;  // by the model's instances

  Mutex mutex_;
  std::map<uint64_t, std::deque<Waiting>> levels_ TG_GUARDED_BY(mutex_);
  int64_t waiting_ TG_GUARDED_BY(mutex_) = 0;
  std::vector<int64_t> running_ TG_GUARDED_BY(mutex_);              // by the model's instances
  std::unique_ptr<SequenceTable> sequences_ TG_GUARDED_BY(mutex_);  // null: the model has none
  int64_t wake_ns_ TG_GUARDED_BY(mutex_) = INT64_MAX;               // the alarm that is set
  std::vector<Wanted> wanted_ TG_GUARDED_BY(mutex_);
  std::vector<std::pair<std::shared_ptr<const Form>, std::unique_ptr<BufferSet>>> kept_
      TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
