// Encoded commands for the queues of a GPU: divided into batches, which are given to the GPU one
// by one and between which a run can be cancelled, with graphs of the batches for later runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/command_list.h"
#include "devices/stream/context.h"
#include "devices/stream/graph.h"
#include "engine/base/mutex.h"

namespace telegrad::stream {

class StreamCommandBuffer : public CommandList {
 public:
  // `rates` are the device's, to predict what commands take. INVALID_ARGUMENT names the command
  // that is malformed, or whose program is another device's or takes other buffers.
  static absl::StatusOr<std::shared_ptr<const StreamCommandBuffer>> Encode(
      std::vector<Command> commands, std::shared_ptr<Context> context, const Rates& rates);

  const Context& context() const { return *context_; }

  // As CommandList, and whether the GPU reaches them: its own memory, for copies also that of other
  // GPUs and of the host.
  absl::Status Check(std::span<const BufferView> bindings) const;

  struct Batch {
    size_t begin = 0, end = 0;                // its commands
    size_t arguments = 0, arguments_end = 0;  // theirs
    std::vector<const Command*> working;      // those that do something
  };
  std::span<const Batch> batches() const { return batches_; }
  // Whether it is worth a graph and can be one, if all bindings are the GPU's own memory.
  bool graphable() const { return graphable_; }

  // The words of the working commands, one after the other (WordsOf): where a buffer or a map's
  // tensor is, the bits of a scalar, or workgroups. Null for the host's buffers.
  std::vector<Address> Words(std::span<const BufferView> bindings,
                             std::span<const uint64_t> scalars) const;

  // Graphs of all batches for some words.
  struct Instance {
    std::vector<std::unique_ptr<Graph>> graphs;  // null for a batch that does nothing
    std::vector<Address> addresses;
    int flights = 0;  // submissions that have it
  };
  // An instance for these addresses, to be given back when the submission has ended: one that has
  // them, in flight or not, one that is free and is told them, or, if it `may_build`, which takes
  // the driver a while, a new one. Null if there is none, or all that there may be are in flight
  // with others. A queue's own: two queues share none.
  absl::StatusOr<Instance*> Take(size_t queue, std::span<const Address> addresses,
                                 bool may_build) const;
  void Return(Instance* instance) const;

 private:
  absl::Status Prepare(const Rates& rates);

  std::shared_ptr<Context> context_;
  std::vector<Batch> batches_;
  std::vector<bool> launched_;            // bindings that launches use
  std::vector<const CopyBytes*> copies_;  // those that do something
  bool graphable_ = false;

  mutable Mutex mutex_;
  // By the number of the queue.
  mutable std::vector<std::vector<std::unique_ptr<Instance>>> instances_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad::stream
