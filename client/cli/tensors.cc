// telegrad tensors FILE: what a tensor file holds, from its header alone, without a server.
#include <cstdio>

#include "absl/strings/escaping.h"
#include "client/cli/command.h"
#include "engine/base/status.h"
#include "engine/frontend/io/tensor_file.h"

namespace telegrad::cli {
namespace {

std::string Line(const TensorEntry& e) {
  std::string out = StrCat(absl::Utf8SafeCEscape(e.name), "  ",
                           e.quantized ? Info(*e.quantized).name : Name(e.dtype), " ",
                           telegrad::ToString(e.shape), "  ", e.bytes, " bytes at ", e.offset);
  if (e.deflated) StrAppend(&out, ", ", e.stored, " of them compressed");
  if (!e.strides.empty()) StrAppend(&out, ", strides ", telegrad::ToString(e.strides));
  return out;
}

}  // namespace

absl::Status Tensors(const Flags& flags) {
  if (flags.positional().size() != 1) return InvalidArgument("expected one tensor file");
  TG_ASSIGN_OR_RETURN(const auto file, OpenTensorFile(flags.positional()[0]));
  int64_t bytes = 0;
  for (const TensorEntry& entry : file->tensors()) bytes += entry.bytes;
  std::printf("%s: %s, %zu tensors of %lld bytes, %zu metadata\n", file->name().c_str(),
              file->format().c_str(), file->tensors().size(), static_cast<long long>(bytes),
              file->metadata().size());
  if (flags.GetBool("metadata")) {
    for (const auto& [key, value] : file->metadata()) {
      std::printf("%s = %s\n", absl::Utf8SafeCEscape(key).c_str(), ToString(value).c_str());
    }
  }
  for (const TensorEntry& entry : file->tensors()) std::printf("%s\n", Line(entry).c_str());
  return absl::OkStatus();
}

}  // namespace telegrad::cli
