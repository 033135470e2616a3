// Files from strangers: npy, safetensors, ONNX. The first byte chooses the reader.
#include "engine/frontend/npy.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/safetensors.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(data) {
  using namespace telegrad;
  if (data.empty()) return;
  const std::string_view file(reinterpret_cast<const char*>(data.data()) + 1, data.size() - 1);
  switch (data[0] % 3) {
    case 0: {
      const auto tensor = ParseNpy(file);
      if (!tensor.ok()) return;
      const auto again = ParseNpy(FormatNpy(*tensor));
      FUZZ_CHECK(again.ok() && *again == *tensor);
      return;
    }
    case 1: {
      const auto content = ParseSafetensors(file);
      if (content.ok()) FUZZ_CHECK(FormatSafetensors(*content).ok());
      return;
    }
    default:
      (void)ImportOnnx(file).status();
  }
}
