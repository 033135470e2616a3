// Plans on a server. State (weights, optimizer moments) lives in buffers of a session, by name, and
// is shared by all plans that name it; inputs and outputs are each plan's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cc/remote_import.h"
#include "client/cc/remote_session.h"
#include "engine/base/hash.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "engine/frontend/tensor/plan.h"

namespace telegrad {

class RemoteState {
 public:
  explicit RemoteState(RemoteSession* session) : session_(session) {}

  // The buffer of a state slot. The first call for a name allocates it and fills it: with the value
  // that Preset has for the name, or else the file, or else the slot's initial value.
  // INVALID_ARGUMENT if dtype or shape do not match.
  absl::StatusOr<uint64_t> Buffer(const Slot& slot);

  // The bytes with which the first use of the plan fills those of its state slots that have no
  // buffer yet.
  int64_t BytesToFill(const Plan& plan) const;

  // Values for slots that have no buffer yet; each is moved into the slot that uses it.
  void Preset(std::map<std::string, HostTensor> values) { preset_ = std::move(values); }
  // The same of bytes that lie in `owner`: they are sent from there, without a copy.
  void Preset(std::map<std::string, std::string_view> values, std::shared_ptr<const void> owner) {
    views_ = std::move(values);
    owner_ = std::move(owner);
  }
  // The same from a file, whose tensors are sent from there as they are read. A quantized one is
  // for a slot of u8 [bytes].
  void Preset(std::shared_ptr<const TensorFile> file) { file_ = std::move(file); }

  // Everything, downloaded.
  absl::StatusOr<std::map<std::string, HostTensor>> Download() const;

 private:
  struct Entry {
    uint64_t handle;
    DType dtype;
    Shape shape;
  };
  absl::Status Fill(const Slot& slot, uint64_t handle);

  RemoteSession* session_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, HostTensor> preset_;
  std::map<std::string, std::string_view> views_;
  std::shared_ptr<const void> owner_;  // of views_
  std::shared_ptr<const TensorFile> file_;
};

class RemotePlan {
 public:
  // Puts the graph, allocates its buffers and sends the inputs that the plan brings along; waits
  // for the server's answer. `compile`: schedule and compile it now.
  static absl::StatusOr<std::unique_ptr<RemotePlan>> Create(RemoteSession* session,
                                                            RemoteState* state, const Plan& plan,
                                                            bool compile = false);

  // Of a model that the server has imported: allocates the buffers of its inputs and outputs.
  static std::unique_ptr<RemotePlan> Create(RemoteSession* session, const RemoteModel& model);

  // Sends the content of an input slot. INVALID_ARGUMENT if name, dtype or shape do not match.
  absl::Status Set(std::string_view input, const HostTensor& value);
  // Sets a variable of the plan for the runs from now on. INVALID_ARGUMENT if the name or the value
  // does not match; a run without a value for each is refused by the server.
  absl::Status SetVariable(std::string_view name, int64_t value);
  // Enqueues a run; errors show at the next answer.
  void Run() { session_->RunQuiet(hash_, handles_, values_); }
  Future<RunInfo> RunTimed() { return session_->Run(hash_, handles_, values_); }
  Future<RunInfo> RunTraced() { return session_->RunTraced(hash_, handles_, values_); }

  // Reads an output (or state) slot; the tensor is filled when the future is ready.
  absl::StatusOr<Future<Done>> ReadAsync(std::string_view slot, HostTensor* into);
  absl::StatusOr<HostTensor> Read(std::string_view slot);

  const std::vector<Slot>& slots() const { return slots_; }

 private:
  RemotePlan(RemoteSession* session, std::vector<PlanVariable> variables)
      : session_(session), variables_(std::move(variables)) {}
  uint64_t NewBuffer(int64_t bytes);
  absl::StatusOr<size_t> Find(std::string_view name) const;

  RemoteSession* session_;
  std::vector<Slot> slots_;
  std::vector<PlanVariable> variables_;
  std::vector<VarValue> values_;
  std::vector<uint64_t> handles_;  // by slot
  Digest hash_;
};

// Runs a plan once and reads its outputs, by name; for graphs that are not run again.
// INVALID_ARGUMENT names an input that `inputs` lacks.
absl::StatusOr<std::map<std::string, HostTensor>> Evaluate(
    RemoteSession* session, RemoteState* state, const Plan& plan,
    const std::map<std::string, HostTensor>& inputs = {},
    const std::map<std::string, int64_t>& variables = {});

}  // namespace telegrad
