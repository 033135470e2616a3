// How a model is served: what the configuration file in its folder says, and what can be known
// without one from the model itself. Free of the file's format.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ir/graph.h"
#include "engine/types/dtype.h"
#include "server/serving/model_format.h"
#include "server/serving/ragged.h"

namespace telegrad {

// An input or output. A dimension of -1 is chosen by each request.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kVoid;
  Shape shape;              // where the model batches, the first dimension is the batch's
  bool strings = false;     // of datatype BYTES, which has no type of a graph
  std::string labels = {};  // the file with a label for each class, in the model's folder
  std::vector<std::string> names = {};  // of its dimensions, as the model has them; "" for none
  bool ragged = false;                  // of an input: see ragged.h
  // As the model has it, where requests have another shape; see reshape.h.
  std::optional<Shape> inner = std::nullopt;

  const Shape& model_shape() const { return inner ? *inner : shape; }
  // A shape that a request has as the model has it, and the other way.
  Shape InModel(const Shape& of_request) const;
  Shape InRequests(const Shape& of_model) const;
};

// Of the protocol; empty where it is not known yet.
std::string_view DatatypeOf(const TensorSpec& spec);

// What becomes of requests that wait in a model's queue.
struct QueuePolicy {
  bool delay = false;         // one whose time is over goes behind all others; else it is refused
  int64_t timeout_us = 0;     // that a request may wait; 0: any time
  bool may_override = false;  // a request may say another time
  int64_t most = 0;           // requests that may wait; 0: as many as the server allows
};

struct DynamicBatching {
  std::vector<int64_t> preferred;  // ascending
  int64_t delay_us = 0;            // that the oldest request may wait for others
  uint64_t levels = 0;             // of priority, from 1, the highest; 0: there is one
  uint64_t default_level = 0;
  QueuePolicy policy = {};
  std::map<uint64_t, QueuePolicy> policies = {};  // of levels that have their own

  const QueuePolicy& PolicyOf(uint64_t level) const {
    const auto it = policies.find(level);
    return it == policies.end() ? policy : it->second;
  }
};

struct VersionPolicy {
  enum class Kind : uint8_t { kLatest, kAll, kSpecific };
  Kind kind = Kind::kLatest;
  int64_t latest = 1;
  std::vector<int64_t> versions = {};
  // Of those that there are, ascending, the ones to be served.
  std::vector<int64_t> Choose(const std::vector<int64_t>& available) const;
};

// An input by which a model is told about the sequence of each row.
struct SequenceControl {
  enum class Kind : uint8_t { kStart, kEnd, kReady, kId };
  Kind kind = Kind::kStart;
  TensorSpec spec;
  double if_false = 0, if_true = 1;  // of all but kId
};

// What a model keeps between the requests of a sequence: what it gives as `out` comes back as `in`.
struct SequenceState {
  TensorSpec in, out;
};

struct SequenceBatching {
  bool oldest = false;          // the strategy's name; else direct
  int64_t idle_us = 1'000'000;  // after which a sequence without requests ends
  int64_t candidates = 0;       // sequences that take turns; 0: as many as there is room in batches
  int64_t delay_us = 0;         // that a request may wait for those of other sequences
  std::vector<SequenceControl> controls = {};
  std::vector<SequenceState> states = {};
};

// How many batches of one tenant run at a time on each of some devices.
struct InstanceGroup {
  enum class Kind : uint8_t { kAuto, kGpu, kCpu, kModel };
  Kind kind = Kind::kAuto;
  int64_t count = 1;
  std::vector<int64_t> gpus = {};         // by their number among the daemon's; none: all
  std::vector<std::string> devices = {};  // by name; before all else
};

// Inputs for which the model is compiled when it is loaded.
struct WarmupSample {
  int64_t rows = 0;
  std::map<std::string, Shape> dims;  // by input, without the batch's
};

// A step of an ensemble: a model, and which of the ensemble's tensors its own are.
struct EnsembleStep {
  std::string model;
  int64_t version = -1;                        // the newest that is to be served
  std::map<std::string, std::string> inputs;   // by the model's names
  std::map<std::string, std::string> outputs;  // likewise
};

struct ModelConfig {
  std::string name;
  std::string file = {};  // in the folder of a version; empty: see ModelFileIn
  std::optional<ModelFormat> format = std::nullopt;  // none: as the file is
  int64_t max_batch = 0;                             // 0: requests are run as they are, one by one
  std::optional<DynamicBatching> batching = std::nullopt;
  std::optional<SequenceBatching> sequences = std::nullopt;
  std::vector<InstanceGroup> groups = {};  // none: one on each device that models run on
  VersionPolicy versions = {};
  std::vector<TensorSpec> inputs = {}, outputs = {};  // none: as the model has them
  std::vector<EnsembleStep> steps = {};               // of an ensemble, which has no file
  std::vector<WarmupSample> warmups = {};
  std::map<std::string, std::string> parameters = {};  // for clients that ask; of no effect here
  std::vector<RaggedSize> ragged = {};                 // sizes that differ within a batch
  bool cached = false;                                 // answers are kept, see response_cache.h
  bool batch_said = false;                             // whether the file says max_batch
  // Whether a form of the model is for given values of inputs, such as strings, which are read when
  // a model is imported. Then requests are run one by one.
  bool by_value = false;

  const ModelFormatInfo& format_info() const { return Info(format.value_or(ModelFormat::kOnnx)); }
};

// Reads the text of a configuration file.
using ParseModelConfig = std::function<absl::StatusOr<ModelConfig>(std::string_view text)>;

// Gives `config` what it leaves out and checks what it says against `file`, the model's bytes.
// Where it does not say whether the model batches, that is so if the first dimension of every input
// and output has one name and that name is a batch's.
absl::Status CompleteConfig(std::string_view file, ModelConfig* config);

// The same where inputs and outputs are known, in the model's order.
absl::Status JoinSpecs(const std::vector<TensorSpec>& inputs,
                       const std::vector<TensorSpec>& outputs, ModelConfig* config);

// The batch sizes that a model is compiled for, ascending: powers of two, those preferred, and the
// largest. A smaller batch is padded to the next one.
std::vector<int64_t> BatchSizes(const ModelConfig& config);

// The largest batch of a model whose batching is inferred.
inline constexpr int64_t kInferredMaxBatch = 32;

}  // namespace telegrad
