// Reads a section's compressed safetensors file. The name of a tensor, CASE/VARIANT/KIND and a
// number, says which input, output, weight or gradient of which case it is.
#include "tests/frontend/case_data.h"

#include <zlib.h>

#include <charconv>

#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/frontend/io/tensor_file.h"

namespace telegrad::testing {
namespace {

absl::StatusOr<std::string> ReadGzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return NotFound("cannot open ", path);
  std::string out;
  char part[1 << 16];
  int n;
  while ((n = gzread(file, part, sizeof(part))) > 0) out.append(part, static_cast<size_t>(n));
  gzclose(file);
  if (n < 0) return InvalidArgument(path, " is damaged");
  return out;
}

}  // namespace

absl::StatusOr<CaseData> ReadCaseData(std::string_view section) {
  const std::string path = StrCat("tests/data/frontend/", section, ".safetensors.gz");
  TG_ASSIGN_OR_RETURN(std::string bytes, ReadGzip(path));
  TG_ASSIGN_OR_RETURN(const auto file, ReadTensorFile(MemorySource(std::move(bytes), path)));
  TG_ASSIGN_OR_RETURN(auto tensors, file->LoadAll());
  CaseData data;
  for (auto& [key, tensor] : tensors) {
    // case/variant/<kind><number>
    const size_t last = key.rfind('/'), first = key.rfind('/', last - 1);
    const size_t digit = key.find_first_of("0123456789", last);
    size_t variant = 0, number = 0;
    if (first == std::string::npos || digit == std::string::npos) {
      return InvalidArgument(path, ": ", key, " is no case/variant/kind");
    }
    std::from_chars(key.data() + first + 1, key.data() + last, variant);
    std::from_chars(key.data() + digit, key.data() + key.size(), number);
    std::vector<Variant>& variants = data[key.substr(0, first)];
    if (variants.size() <= variant) variants.resize(variant + 1);
    const std::string_view kind = std::string_view(key).substr(last + 1, digit - last - 1);
    Variant& v = variants[variant];
    std::vector<HostTensor>& list = kind == "in"    ? v.in
                                    : kind == "out" ? v.out
                                    : kind == "w"   ? v.weights
                                                    : v.grads;
    if (list.size() <= number) list.resize(number + 1);
    list[number] = std::move(tensor);
  }
  return data;
}

}  // namespace telegrad::testing
