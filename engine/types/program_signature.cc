#include "engine/types/program_signature.h"

#include <algorithm>

namespace telegrad {
namespace {

// By ParameterKind.
constexpr std::string_view kParameterNames[] = {"buffer", "scalar32", "scalar64", "begin",
                                                "tensor_map"};

}  // namespace

int64_t ParametersBytes(std::span<const ParameterKind> parameters) {
  int64_t bytes = 0;
  for (const ParameterKind kind : parameters) {
    const int64_t alignment = ParameterAlignment(kind);
    bytes = (bytes + alignment - 1) / alignment * alignment + ParameterBytes(kind);
  }
  return bytes;
}

std::string ParametersText(std::span<const ParameterKind> parameters) {
  std::string out;
  for (const ParameterKind kind : parameters) {
    if (!out.empty()) out += ',';
    out += kParameterNames[static_cast<size_t>(kind)];
  }
  return out;
}

std::optional<std::vector<ParameterKind>> ParametersFromText(std::string_view text) {
  std::vector<ParameterKind> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const auto* const name = std::ranges::find(kParameterNames, text.substr(0, comma));
    if (name == std::end(kParameterNames)) return std::nullopt;
    out.push_back(static_cast<ParameterKind>(name - std::begin(kParameterNames)));
    if (comma + 1 == text.size()) return std::nullopt;  // nothing behind the comma
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

std::vector<ParameterKind> FunctionParameters(size_t count) {
  return std::vector<ParameterKind>(count, ParameterKind::kBuffer);
}

std::vector<ParameterKind> KernelParameters(size_t count) {
  std::vector<ParameterKind> out = FunctionParameters(count);
  out.push_back(ParameterKind::kBegin);
  return out;
}

void Write(const ProgramSignature& signature, ByteWriter* out) {
  const auto& [parameters, group, local_bytes] = signature;
  out->Text(ParametersText(parameters));
  for (const int64_t size : {group.x, group.y, group.z}) out->Word(size);
  out->Word(local_bytes);
}

ProgramSignature ReadSignature(ByteReader* in) {
  ProgramSignature out;
  auto parameters = ParametersFromText(in->Text());
  if (!parameters) in->Fail();
  if (parameters) out.parameters = *std::move(parameters);
  for (int64_t* size : {&out.group.x, &out.group.y, &out.group.z}) *size = in->Word<int64_t>();
  out.local_bytes = in->Word<int64_t>();
  return out;
}

}  // namespace telegrad
