// The structured bindings name every member, so that a new one does not compile until it is here.
#include "engine/execution/compiled_kernel.h"

#include "engine/base/byte_codec.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"

namespace telegrad {

std::string Encode(const CompiledKernel& kernel) {
  ByteWriter out;
  const auto& [image, arguments, packings, iterations, flops, bytes, groups, bounds, moves] =
      kernel;
  // The hash is that of a tensor graph, which is no kernel.
  const auto& [name, binary, signature, hash] = image;
  out.Text(name);
  out.Text(binary);
  Write(signature, &out);
  out.Word(static_cast<uint64_t>(arguments.size()));
  for (const auto& [dtype, elements, read, written, weight, result] : arguments) {
    out.Word(static_cast<int32_t>(Info(dtype).wire));
    out.Word(elements);
    out.Word(static_cast<uint8_t>(read));
    out.Word(static_cast<uint8_t>(written));
    out.Word(static_cast<uint8_t>(weight));
    out.Word(static_cast<uint8_t>(result));
  }
  out.Word(static_cast<uint64_t>(packings.size()));
  for (const auto& [copy, source, packing] : packings) {
    out.Word(copy);
    out.Word(source);
    out.Text(Print(packing.root()));
  }
  out.Word(iterations);
  out.Word(flops);
  out.Word(bytes);
  out.Text(groups ? Print(groups->root()) : "");
  const auto& [proved, gated, data_dependent] = bounds;
  for (const int64_t n : {proved, gated, data_dependent}) out.Word(n);
  out.Text(moves);
  return out.Take();
}

std::optional<CompiledKernel> DecodeCompiledKernel(std::string_view text) {
  ByteReader in(text);
  CompiledKernel kernel;
  auto& [image, arguments, packings, iterations, flops, bytes, groups, bounds, moves] = kernel;
  auto& [name, binary, signature, hash] = image;
  name = in.Text();
  binary = in.Text();
  signature = ReadSignature(&in);
  arguments.resize(in.Count());
  for (auto& [dtype, elements, read, written, weight, result] : arguments) {
    const auto type = DTypeFromWire(in.Word<int32_t>());
    if (!type) in.Fail();
    dtype = type.value_or(DType::kVoid);
    elements = in.Word<int64_t>();
    read = in.Bool();
    written = in.Bool();
    weight = in.Bool();
    result = in.Bool();
  }
  packings.resize(in.Count());
  for (auto& [copy, source, packing] : packings) {
    copy = in.Word<int32_t>();
    source = in.Word<int32_t>();
    Graph graph;
    const auto root = Parse(in.Text(), &graph);
    const auto inside = [&](int32_t i) {
      return i >= 0 && static_cast<size_t>(i) < arguments.size();
    };
    if (!root.ok() || !Verify(*root, kKernelLevel).ok() || !inside(copy) || !inside(source)) {
      return std::nullopt;
    }
    packing = Freeze(*root);
  }
  iterations = in.Word<int64_t>();
  flops = in.Word<double>();
  bytes = in.Word<double>();
  if (const auto text = in.Text(); !text.empty()) {
    Graph graph;
    const auto root = Parse(text, &graph);
    if (!root.ok() || Print(*root) != text) return std::nullopt;
    groups = Freeze(*root);
  }
  auto& [proved, gated, data_dependent] = bounds;
  for (int64_t* n : {&proved, &gated, &data_dependent}) *n = in.Word<int64_t>();
  moves = in.Text();
  if (!in.Done()) return std::nullopt;
  return kernel;
}

}  // namespace telegrad
