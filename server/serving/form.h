// A form of a model: its program for inputs of certain shapes, compiled, with its weights in
// place.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/execution/executable.h"
#include "server/serving/batch_size.h"
#include "server/serving/ending.h"
#include "server/serving/form_source.h"
#include "server/serving/model_config.h"
#include "server/serving/response_cache.h"
#include "server/serving/weight_store.h"
#include "server/tenant/environment.h"
#include "server/tenant/tenant.h"

namespace telegrad {

struct Form {
  struct Io {
    int slot = -1;
    DType dtype = DType::kVoid;
    Shape shape;
    int64_t bytes = 0;  // in its slot
    // Of an output of strings, which no slot has: its elements as the protocol has them.
    std::shared_ptr<const std::string> strings = nullptr;
    // Of an output whose shape each run decides: which of `shapes` holds it; `shape` then bounds
    // it.
    int run_shape = -1;
  };
  std::shared_ptr<const Executable> executable;
  std::vector<Io> inputs, outputs;                  // in the order of the configuration
  std::vector<Io> controls, states_in, states_out;  // of sequences, likewise
  std::vector<Io> shapes;                           // of outputs, see run_shape
  std::vector<Io> hidden;                           // outputs that the model does not name
  std::vector<BufferView> weights;                  // by slot; empty where it is none
  std::vector<bool> guards;  // by input: whether this form is for its values alone
  Device* device = nullptr;  // on which it runs
  uint64_t generation = 1;   // of the device, in which its weights are
  int64_t rows = 0;          // of the batch; 0 where the model does not batch
  int64_t weight_bytes = 0;
  int64_t io_bytes = 0;  // of inputs and outputs
  // Of the device's for a run.
  const std::shared_ptr<LearnedTime> time = std::make_shared<LearnedTime>(
      LearnedTime::Terms{.skipped = 2, .first = 3, .span_ns = 10'000'000'000});
};

// The room that is made for a form which needs more memory than is left.
struct FormRoom {
  // Set where none is left, and a model that nobody uses was unloaded for this one. Once its memory
  // is free, the form may be asked for again.
  std::shared_ptr<Ending> freed = nullptr;
};

// Makes forms of any model for one device. What it points to outlives it.
struct FormMaker {
  const Environment* env;
  Device* device;  // as the owner has it
  Tenant* owner;   // of weights, executables and their temporaries
  WeightStore* weights;
  ResponseCache* responses;  // null where none are kept
  ReadModel read;
  // Unloads a model for the one of that name; null if there is none to unload. What is returned
  // ends when nobody holds its memory any more, or has held it for too long. May be null.
  using MakeRoom = std::function<std::shared_ptr<Ending>(const std::string& name)>;
  MakeRoom make_room = nullptr;
  Device* pooled = nullptr;  // the device as the daemon has it
  // How long the batches of all models that are on their way there are expected to run.
  std::shared_ptr<std::atomic<int64_t>> expected_ns = nullptr;

  // A form for inputs of these shapes, in the order of the configuration, and where `values` are
  // given, of these. `payer` pays for the time that it takes. RESOURCE_EXHAUSTED where it does
  // not fit; then see `room`, which is null for a form that unloads no model. Long: for a thread
  // that compiles.
  absl::StatusOr<std::shared_ptr<const Form>> Make(FormSource& source, const ModelConfig& config,
                                                   const std::vector<Shape>& shapes, int64_t rows,
                                                   const InputValues& values, Tenant& payer,
                                                   FormRoom* room) const;

 private:
  absl::Status CheckRoom(const ModelConfig& config, int64_t weights, int64_t temporaries) const;
};

}  // namespace telegrad
