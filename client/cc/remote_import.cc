// A short file is sent in the operation itself. A longer one is written into a buffer: in this way
// the server handles messages of other sessions in between, and imports the file without another
// copy. The buffer is freed after the import.
#include "client/cc/remote_import.h"

#include <utility>

#include "client/cc/execute_stream.h"
#include "client/cc/model_value.h"
#include "client/cc/remote_session.h"
#include "engine/base/status.h"
#include "engine/types/limits.h"
#include "telegrad/v1/compute.pb.h"

namespace telegrad {
namespace {

constexpr size_t kMaxInlineBytes = 8 * kChunkBytes;

v1::ExecuteRequest ImportRequest(const RemoteImportOptions& options, const std::string& device,
                                 uint64_t first_handle) {
  v1::ExecuteRequest request;
  v1::Import& import = *request.mutable_import();
  import.set_format(options.format);
  import.set_first_handle(first_handle);
  import.set_device(options.device.empty() ? device : options.device);
  import.set_compile(options.compile);
  for (const auto& [name, shape] : options.model.input_shapes) {
    (*import.mutable_input_shapes())[name].mutable_dims()->Add(shape.begin(), shape.end());
  }
  import.mutable_dims()->insert(options.model.dims.begin(), options.model.dims.end());
  for (const auto& [name, value] : options.model.values) {
    if (value != nullptr) ToProto(*value, &(*import.mutable_values())[name]);
  }
  return request;
}

SlotRole ToRole(v1::ImportedSlot::Role role) {
  switch (role) {
    case v1::ImportedSlot::OUTPUT:
      return SlotRole::kOutput;
    case v1::ImportedSlot::WEIGHT:
      return SlotRole::kState;
    default:
      return SlotRole::kInput;
  }
}

}  // namespace

absl::StatusOr<RemoteModel> ToRemoteModel(const v1::ImportResult& result) {
  RemoteModel out;
  if (!Digest::FromBytes(result.hash(), &out.hash)) return Internal("a hash of unexpected length");
  for (const v1::ImportedSlot& slot : result.slots()) {
    const auto dtype = DTypeFromWire(static_cast<int>(slot.dtype()));
    if (!dtype) return Internal("slot ", slot.name(), ": unknown dtype ", slot.dtype());
    RemoteModel::Value value{.slot = {.name = slot.name(),
                                      .dtype = *dtype,
                                      .shape = {slot.dims().begin(), slot.dims().end()},
                                      .role = ToRole(slot.role()),
                                      .init = {}},
                             .names = {slot.model_names().begin(), slot.model_names().end()},
                             .handle = slot.handle()};
    TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(*dtype, value.slot.shape));
    if (static_cast<uint64_t>(bytes) != slot.bytes()) {
      return Internal("slot ", slot.name(), " has ", slot.bytes(), " bytes, expected ", bytes);
    }
    out.slots.push_back(std::move(value));
  }
  for (const v1::ModelValue& value : result.inputs()) {
    TG_ASSIGN_OR_RETURN(out.inputs.emplace_back(), ToOnnxValue(value, out.slots.size()));
  }
  for (const v1::ModelValue& value : result.outputs()) {
    TG_ASSIGN_OR_RETURN(out.outputs.emplace_back(), ToOnnxValue(value, out.slots.size()));
  }
  out.guards.assign(result.guards().begin(), result.guards().end());
  return out;
}

Future<RemoteModel> RemoteSession::Import(std::span<const std::byte> file,
                                          const RemoteImportOptions& options,
                                          std::shared_ptr<const void> keep) {
  if (file.size() > kMaxInlineBytes) {
    const uint64_t handle = NewHandle();
    Alloc(handle, static_cast<int64_t>(file.size()));
    Write(handle, 0, file, std::move(keep));
    Future<RemoteModel> model = Import(handle, static_cast<int64_t>(file.size()), options);
    Free(handle);
    return model;
  }
  Future<RemoteModel> model;
  stream_->Send(
      "import",
      ImportRequest(options, connection_->options().device, stream_->NewHandles(kMaxParams)), model,
      {file, std::move(keep)});
  return model;
}

Future<RemoteModel> RemoteSession::Import(uint64_t handle, int64_t bytes,
                                          const RemoteImportOptions& options) {
  v1::ExecuteRequest request =
      ImportRequest(options, connection_->options().device, stream_->NewHandles(kMaxParams));
  request.mutable_import()->set_handle(handle);
  request.mutable_import()->set_bytes(static_cast<uint64_t>(bytes));
  Future<RemoteModel> model;
  stream_->Send("import", std::move(request), model);
  return model;
}

}  // namespace telegrad
