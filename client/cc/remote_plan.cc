// Buffers of state are allocated and filled when a plan first names them. The graph is sent
// before the weights, so that the server compiles while they travel.
#include "client/cc/remote_plan.h"

#include <algorithm>
#include <span>

#include "engine/base/status.h"

namespace telegrad {
namespace {

std::span<const std::byte> Bytes(std::string_view s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// Servers allocate no empty buffers; a slot without elements is bound to a byte that is never read.
int64_t BufferBytes(int64_t bytes) { return std::max<int64_t>(bytes, 1); }

absl::Status CheckFits(const Slot& slot, DType dtype, const Shape& shape) {
  if (dtype == slot.dtype && shape == slot.shape) return absl::OkStatus();
  return InvalidArgument("the value given for ", slot.name, " is ", Name(dtype), " ",
                         ToString(shape), ", expected ", Name(slot.dtype), " ",
                         ToString(slot.shape));
}

}  // namespace

absl::StatusOr<uint64_t> RemoteState::Buffer(const Slot& slot) {
  if (const auto it = entries_.find(slot.name); it != entries_.end()) {
    if (it->second.dtype != slot.dtype || it->second.shape != slot.shape) {
      return InvalidArgument("state ", slot.name, " is ", Name(it->second.dtype), " ",
                             ToString(it->second.shape), ", another plan expects ",
                             Name(slot.dtype), " ", ToString(slot.shape));
    }
    return it->second.handle;
  }
  TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(slot.dtype, slot.shape));
  const uint64_t handle = session_->NewHandle();
  session_->Alloc(handle, BufferBytes(bytes));
  TG_RETURN_IF_ERROR(Fill(slot, handle));
  entries_.emplace(slot.name, Entry{handle, slot.dtype, slot.shape});
  return handle;
}

int64_t RemoteState::BytesToFill(const Plan& plan) const {
  int64_t bytes = 0;
  for (const Slot& slot : plan.slots) {
    if (slot.role != SlotRole::kState || entries_.contains(slot.name)) continue;
    bytes += CheckedByteSize(slot.dtype, slot.shape).value_or(0);
  }
  return bytes;
}

absl::Status RemoteState::Fill(const Slot& slot, uint64_t handle) {
  auto value = std::make_shared<HostTensor>();
  if (const auto it = preset_.find(slot.name); it != preset_.end()) {
    TG_RETURN_IF_ERROR(CheckFits(slot, it->second.dtype, it->second.shape));
    *value = std::move(it->second);
    preset_.erase(it);
  } else if (const auto view = views_.find(slot.name); view != views_.end()) {
    TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(slot.dtype, slot.shape));
    if (static_cast<int64_t>(view->second.size()) != bytes) {
      return InvalidArgument("the value given for ", slot.name, " has ", view->second.size(),
                             " bytes, expected ", bytes);
    }
    session_->Write(handle, 0, Bytes(view->second), owner_);
    return absl::OkStatus();
  } else if (const TensorEntry* entry = file_ ? file_->Find(slot.name) : nullptr) {
    const bool blocks = entry->quantized.has_value();
    TG_RETURN_IF_ERROR(CheckFits(slot, blocks ? DType::kUInt8 : entry->dtype,
                                 blocks ? Shape{entry->bytes} : entry->shape));
    session_->Write(handle, 0, file_->Open(*entry));
    return absl::OkStatus();
  } else {
    TG_ASSIGN_OR_RETURN(*value, InitialValue(slot));
  }
  const std::span<const std::byte> content = Bytes(value->bytes);
  session_->Write(handle, 0, content, std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, HostTensor>> RemoteState::Download() const {
  std::map<std::string, HostTensor> out;
  std::vector<Future<Done>> reads;
  for (const auto& [name, entry] : entries_) {
    HostTensor& tensor = out[name];
    tensor.dtype = entry.dtype;
    tensor.shape = entry.shape;
    tensor.bytes.resize(BytesOf(entry.dtype, NumElements(entry.shape)));
    reads.push_back(session_->Read(
        entry.handle, 0,
        std::as_writable_bytes(std::span(tensor.bytes.data(), tensor.bytes.size()))));
  }
  absl::Status status = absl::OkStatus();
  for (Future<Done>& read : reads) {  // all of them: they write into `out`
    if (const auto& done = read.Get(); !done.ok() && status.ok()) status = done.status();
  }
  TG_RETURN_IF_ERROR(status);
  return out;
}

absl::StatusOr<std::unique_ptr<RemotePlan>> RemotePlan::Create(RemoteSession* session,
                                                               RemoteState* state, const Plan& plan,
                                                               bool compile) {
  std::unique_ptr<RemotePlan> out(new RemotePlan(session, plan.variables));
  out->slots_ = plan.slots;
  const Future<Digest> put = session->Put(plan.graph.root(), compile);
  for (const Slot& slot : plan.slots) {
    if (slot.role == SlotRole::kState) {
      TG_ASSIGN_OR_RETURN(const uint64_t handle, state->Buffer(slot));
      out->handles_.push_back(handle);
      continue;
    }
    TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(slot.dtype, slot.shape));
    out->handles_.push_back(out->NewBuffer(bytes));
    if (slot.content != nullptr) {
      session->WriteCopy(out->handles_.back(), 0, Bytes(slot.content->bytes));
    }
  }
  const absl::StatusOr<Digest>& hash = put.Get();
  if (!hash.ok()) return hash.status();
  out->hash_ = *hash;
  return out;
}

std::unique_ptr<RemotePlan> RemotePlan::Create(RemoteSession* session, const RemoteModel& model) {
  std::unique_ptr<RemotePlan> out(new RemotePlan(session, {}));
  for (const auto& [slot, names, weight] : model.slots) {
    const int64_t bytes = BytesOf(slot.dtype, NumElements(slot.shape));
    out->slots_.push_back(slot);
    out->handles_.push_back(slot.role == SlotRole::kState ? weight : out->NewBuffer(bytes));
  }
  out->hash_ = model.hash;
  return out;
}

uint64_t RemotePlan::NewBuffer(int64_t bytes) {
  const uint64_t handle = session_->NewHandle();
  session_->Alloc(handle, BufferBytes(bytes));
  return handle;
}

absl::StatusOr<size_t> RemotePlan::Find(std::string_view name) const {
  const auto it = std::ranges::find(slots_, name, &Slot::name);
  if (it == slots_.end()) return InvalidArgument("the plan has no slot named ", name);
  return it - slots_.begin();
}

absl::Status RemotePlan::Set(std::string_view input, const HostTensor& value) {
  TG_ASSIGN_OR_RETURN(const size_t i, Find(input));
  const Slot& slot = slots_[i];
  if (value.dtype != slot.dtype || value.shape != slot.shape) {
    return InvalidArgument("input ", input, " is ", Name(value.dtype), " ", ToString(value.shape),
                           ", expected ", Name(slot.dtype), " ", ToString(slot.shape));
  }
  session_->WriteCopy(handles_[i], 0, Bytes(value.bytes));
  return absl::OkStatus();
}

absl::Status RemotePlan::SetVariable(std::string_view name, int64_t value) {
  const auto it = std::ranges::find(variables_, name, &PlanVariable::name);
  if (it == variables_.end()) return InvalidArgument("the plan has no variable named ", name);
  if (value < it->min || value > it->max || value % it->multiple != 0) {
    return InvalidArgument("variable ", name, " is ", value, ", expected a multiple of ",
                           it->multiple, " within [", it->min, ", ", it->max, "]");
  }
  const auto known = std::ranges::find(values_, it->id, &VarValue::id);
  if (known != values_.end())
    known->value = value;
  else
    values_.push_back({it->id, value});
  return absl::OkStatus();
}

absl::StatusOr<Future<Done>> RemotePlan::ReadAsync(std::string_view slot, HostTensor* into) {
  TG_ASSIGN_OR_RETURN(const size_t i, Find(slot));
  into->dtype = slots_[i].dtype;
  into->shape = slots_[i].shape;
  into->bytes.resize(BytesOf(into->dtype, NumElements(into->shape)));
  return session_->Read(handles_[i], 0,
                        std::as_writable_bytes(std::span(into->bytes.data(), into->bytes.size())));
}

absl::StatusOr<HostTensor> RemotePlan::Read(std::string_view slot) {
  HostTensor out;
  TG_ASSIGN_OR_RETURN(const Future<Done> read, ReadAsync(slot, &out));
  if (const auto& done = read.Get(); !done.ok()) return done.status();
  return out;
}

absl::StatusOr<std::map<std::string, HostTensor>> Evaluate(
    RemoteSession* session, RemoteState* state, const Plan& plan,
    const std::map<std::string, HostTensor>& inputs,
    const std::map<std::string, int64_t>& variables) {
  TG_ASSIGN_OR_RETURN(const auto remote, RemotePlan::Create(session, state, plan));
  for (const Slot& slot : plan.slots) {
    if (slot.role != SlotRole::kInput) continue;
    const auto it = inputs.find(slot.name);
    if (it == inputs.end()) return InvalidArgument("there is no value for input ", slot.name);
    TG_RETURN_IF_ERROR(remote->Set(slot.name, it->second));
  }
  for (const auto& [name, value] : variables) TG_RETURN_IF_ERROR(remote->SetVariable(name, value));
  remote->Run();
  std::map<std::string, HostTensor> out;
  std::vector<Future<Done>> reads;
  absl::Status status = absl::OkStatus();
  for (const Slot& slot : plan.slots) {
    if (slot.role != SlotRole::kOutput) continue;
    absl::StatusOr<Future<Done>> read = remote->ReadAsync(slot.name, &out[slot.name]);
    if (read.ok())
      reads.push_back(*std::move(read));
    else if (status.ok())
      status = read.status();
  }
  for (const Future<Done>& read : reads) {  // all of them: they write into `out`
    if (const auto& done = read.Get(); !done.ok() && status.ok()) status = done.status();
  }
  TG_RETURN_IF_ERROR(status);
  return out;
}

}  // namespace telegrad
