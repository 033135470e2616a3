// Untrusted files: tensor files of every format, whose first bytes say which, ONNX models, and
// two parts of files that mutation seldom reaches, a PyTorch file's pickle and a deflated
// stream. The first byte selects the kind.
#include "engine/frontend/io/byte_sink.h"
#include "engine/frontend/io/inflate.h"
#include "engine/frontend/io/plan_file.h"
#include "engine/frontend/io/safetensors.h"
#include "engine/frontend/io/tensor_file.h"
#include "engine/frontend/io/zip.h"
#include "engine/frontend/onnx/import.h"
#include "engine/wire/graph_codec.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;

// What is read of a plan fits together.
void FuzzPlan(const TensorFile& file) {
  Budget budget;
  const auto plan = ReadPlan(file, &budget);
  if (!plan.ok()) return;
  for (const Slot& slot : plan->slots) {
    FUZZ_CHECK(slot.dtype != DType::kVoid && plan->Find(slot.name) >= 0);
    if (slot.role != SlotRole::kState) continue;
    const TensorEntry* const content = file.Find(slot.name);
    FUZZ_CHECK(content != nullptr && content->bytes == *CheckedByteSize(slot.dtype, slot.shape));
  }
}

void FuzzTensorFile(std::string_view bytes) {
  const auto file = ReadTensorFile(MemorySource(std::string(bytes)));
  if (!file.ok()) return;
  if (HoldsPlan(**file)) FuzzPlan(**file);
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

void FuzzPickle(std::string_view pickle) {
  const std::string floats(32, '\1');
  StringSink sink;
  ZipWriter zip(&sink);
  FUZZ_CHECK(zip.Add("a/data.pkl", {pickle}).ok() && zip.Add("a/data/0", {floats}).ok());
  FUZZ_CHECK(zip.Finish().ok());
  FuzzTensorFile(sink.bytes());
}

void FuzzDeflated(std::string_view stream) {
  const auto source = MemorySource(std::string(stream));
  Inflater inflater(source.get(), 0, source->size());
  std::byte out[1000];
  for (int64_t n = 0; n < kMaxBytes; n += sizeof(out)) {
    if (!inflater.Read(out).ok()) return;
  }
  (void)inflater.ExpectEnd(0);
}

// What an import makes is what a server admits, and every weight has its content.
void FuzzOnnx(std::string_view file) {
  Budget budget;
  ImportOptions options;
  options.dims["N"] = 2;
  for (const ImportOptions& given : {ImportOptions(), options}) {
    const auto onnx = ImportOnnx(file, given, &budget);
    if (!onnx.ok()) continue;
    int64_t weights = 0;
    for (const Slot& slot : onnx->plan.slots) weights += slot.role == SlotRole::kState;
    FUZZ_CHECK(weights == static_cast<int64_t>(onnx->weights.size()));
    for (const OnnxWeight& weight : onnx->weights) {
      const Slot& slot = onnx->plan.slots[weight.slot];
      FUZZ_CHECK(slot.role == SlotRole::kState);
      FUZZ_CHECK(static_cast<int64_t>(weight.bytes.size()) ==
                 *CheckedByteSize(slot.dtype, slot.shape));
    }
    v1::Graph graph;
    ToProto(onnx->plan.graph.root(), &graph);
    FUZZ_CHECK(FromProto(graph, &budget).ok());
  }
  FUZZ_CHECK(budget.bytes_held() == 0);
}

}  // namespace
}  // namespace telegrad

FUZZ_TARGET(data) {
  if (data.empty()) return;
  const std::string_view file(reinterpret_cast<const char*>(data.data()) + 1, data.size() - 1);
  switch (data[0] % 8) {
    case 2:
      return telegrad::FuzzOnnx(file);
    case 3:
      return telegrad::FuzzPickle(file);
    case 4:
      return telegrad::FuzzDeflated(file);
    default:
      return telegrad::FuzzTensorFile(file);
  }
}
