// Commands whose buffers all lie on one GPU, as a graph of the driver: made once, launched as a
// whole, and updated only where addresses have changed. Its nodes are a chain, because commands
// run in order and do not say which bytes they read and write.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/stream/context.h"

namespace telegrad::stream {

// A launch as the library wants it: pointers to its parameters, which this must outlive.
class KernelCall {
 public:
  // `words`: for each of its arguments the address of a buffer or of a map's tensor, or a scalar's
  // bits; then, where that depends on the submission, how many workgroups in x there are.
  KernelCall(const Launch& launch, std::span<const Address> words);
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

  // Its tensor maps are encoded in `context`, which the thread has entered.
  absl::StatusOr<KernelLaunch> Node(Context& context);
  absl::Status Enqueue(Context& context, StreamHandle stream);

 private:
  const Launch& launch_;
  std::vector<Address> words_;  // and where the launch begins
  GridSize grid_;
  std::vector<EncodedTensorMap> maps_;
  std::vector<void*> pointers_;
};

// How many words a command has in a submission: of a copy to and from, of a launch see KernelCall.
size_t WordsOf(const Command& command);

class Graph {
 public:
  // Of `commands`, each of which does something; `addresses` are their words (WordsOf), one after
  // the other.
  static absl::StatusOr<std::unique_ptr<Graph>> Create(std::shared_ptr<Context> context,
                                                       std::span<const Command* const> commands,
                                                       std::span<const Address> addresses);
  ~Graph();

  // For the launches from now on; none may be in flight.
  absl::Status Update(std::span<const Address> addresses);
  absl::Status Launch(StreamHandle stream);

 private:
  Graph(std::shared_ptr<Context> context, std::span<const Command* const> commands,
        std::span<const Address> addresses)
      : context_(std::move(context)),
        commands_(commands.begin(), commands.end()),
        addresses_(addresses.begin(), addresses.end()) {}

  absl::Status Build();
  absl::Status AddNode(const Command& command, std::span<const Address> addresses);
  absl::Status UpdateNode(size_t index, std::span<const Address> addresses);

  const std::shared_ptr<Context> context_;
  const std::vector<const Command*> commands_;
  std::vector<Address> addresses_;
  GraphHandle graph_ = nullptr;
  ExecHandle exec_ = nullptr;
  std::vector<NodeHandle> nodes_;  // of the commands
};

}  // namespace telegrad::stream
