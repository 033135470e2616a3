// Loads the module, finds the kernel in it, and has the module unloaded when the last reference is
// dropped.
#include "devices/stream/program.h"

#include <utility>

#include "devices/api/check_tensor_map.h"
#include "engine/base/checked.h"
#include "engine/base/status.h"

namespace telegrad::stream {

absl::Status CheckGroup(const GridSize& group, int64_t most) {
  int64_t threads = 0;
  if (group.x >= 1 && group.y >= 1 && group.z >= 1 && CheckedMul(group.x, group.y, &threads) &&
      CheckedMul(threads, group.z, &threads) && threads <= most) {
    return absl::OkStatus();
  }
  return InvalidArgument(group.x, " x ", group.y, " x ", group.z, " threads in a workgroup",
                         "; the GPU runs 1 to ", most, " threads in one of this program");
}

absl::StatusOr<std::shared_ptr<StreamProgram>> StreamProgram::Load(
    std::shared_ptr<Context> context, const ProgramImage& image, int64_t local_limit,
    std::shared_ptr<const void> code, std::shared_ptr<Unloads> unloads) {
  TG_RETURN_IF_ERROR(context->health());
  TG_RETURN_IF_ERROR(context->Enter());
  if (image.signature.Takes(ParameterKind::kTensorMap)) {
    const absl::Status takes = context->driver().TakesTensorMaps(*context);
    if (absl::IsUnimplemented(takes)) {
      return RefuseTensorMaps(image, context->name(), ToStd(takes.message()));
    }
    TG_RETURN_IF_ERROR(takes);
  }
  ModuleHandle module = nullptr;
  std::string log;
  if (const absl::Status status =
          context->Check(context->driver().LoadModule(image, &module, &log));
      !status.ok()) {
    return absl::Status(status.code(), StrCat(ToStd(status.message()), " for the program ",
                                              image.name, log.empty() ? "" : ": ", log));
  }
  std::shared_ptr<StreamProgram> out(new StreamProgram(
      image.signature, std::move(context), {module, std::move(code)}, std::move(unloads)));
  absl::StatusOr<Entry> entry =
      out->context_->driver().Resolve(*out->context_, image, local_limit, module);
  if (!entry.ok()) {
    return absl::Status(entry.status().code(),
                        StrCat("the program ", image.name, ": ", ToStd(entry.status().message())));
  }
  out->entry_ = *entry;
  return out;
}

StreamProgram::~StreamProgram() {
  if (!unloads_->Put(module_)) Unload(*context_, module_);
}

}  // namespace telegrad::stream
