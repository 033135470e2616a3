// Files from strangers: tensor files of every format, whose first bytes say which, and ONNX models.
// The first byte chooses.
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/state/byte_sink.h"
#include "engine/frontend/state/safetensors.h"
#include "engine/frontend/state/tensor_file.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;

void FuzzTensorFile(std::string_view bytes) {
  const auto file = ReadTensorFile(MemorySource(std::string(bytes)));
  if (!file.ok()) return;
  std::map<std::string, HostTensor> tensors;
  int64_t left = kMaxBytes;
  for (const TensorEntry& entry : (*file)->tensors()) {
    absl::StatusOr<HostTensor> value = (*file)->Load(entry, left);
    if (!value.ok()) continue;
    FUZZ_CHECK(static_cast<int64_t>(value->bytes.size()) ==
               *CheckedByteSize(value->dtype, value->shape));
    left -= entry.bytes;
    if (!Info(value->dtype).safetensors.empty()) tensors.emplace(entry.name, *std::move(value));
  }
  tensors.erase("__metadata__");
  StringSink sink;
  FUZZ_CHECK(WriteSafetensors(tensors, {}, &sink).ok());
  const auto again = ReadTensorFile(MemorySource(sink.bytes()));
  FUZZ_CHECK(again.ok() && *(*again)->LoadAll(kMaxBytes) == tensors);
}

}  // namespace
}  // namespace telegrad

FUZZ_TARGET(data) {
  if (data.empty()) return;
  const std::string_view file(reinterpret_cast<const char*>(data.data()) + 1, data.size() - 1);
  if (data[0] % 3 == 2) {
    (void)telegrad::ImportOnnx(file).status();
  } else {
    telegrad::FuzzTensorFile(file);
  }
}
