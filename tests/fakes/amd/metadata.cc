// Reads the MessagePack document of the metadata: the target, and for each kernel its arguments,
// sizes and numbers of registers.
#include "tests/fakes/amd/metadata.h"

#include <llvm/BinaryFormat/MsgPackDocument.h>

namespace fakeamd {
namespace {

namespace msgpack = llvm::msgpack;

uint32_t NumberOf(msgpack::MapDocNode& map, const char* key) {
  const auto it = map.find(key);
  if (it == map.end()) return 0;
  msgpack::DocNode& node = it->second;
  switch (node.getKind()) {
    case msgpack::Type::UInt:
      return static_cast<uint32_t>(node.getUInt());
    case msgpack::Type::Int:
      return static_cast<uint32_t>(node.getInt());
    case msgpack::Type::Boolean:
      return node.getBool() ? 1 : 0;
    default:
      return 0;
  }
}

std::string StringOf(msgpack::MapDocNode& map, const char* key) {
  const auto it = map.find(key);
  return it == map.end() || !it->second.isString() ? "" : it->second.getString().str();
}

// The elements of an array that are maps; false if it is something else.
template <class F>
bool ForEachMap(msgpack::MapDocNode& map, const char* key, F f) {
  const auto it = map.find(key);
  if (it == map.end()) return true;
  if (!it->second.isArray()) return false;
  for (msgpack::DocNode& element : it->second.getArray()) {
    if (!element.isMap()) return false;
    f(element.getMap());
  }
  return true;
}

bool ReadKernel(msgpack::MapDocNode& map, Kernel* kernel) {
  kernel->name = StringOf(map, ".name");
  kernel->kernarg_bytes = NumberOf(map, ".kernarg_segment_size");
  kernel->group_bytes = NumberOf(map, ".group_segment_fixed_size");
  kernel->private_bytes = NumberOf(map, ".private_segment_fixed_size");
  kernel->wavefront = NumberOf(map, ".wavefront_size");
  kernel->max_threads = NumberOf(map, ".max_flat_workgroup_size");
  kernel->vgprs = NumberOf(map, ".vgpr_count");
  kernel->agprs = NumberOf(map, ".agpr_count");
  kernel->sgprs = NumberOf(map, ".sgpr_count");
  kernel->vgpr_spills = NumberOf(map, ".vgpr_spill_count");
  kernel->sgpr_spills = NumberOf(map, ".sgpr_spill_count");
  kernel->dynamic_stack = NumberOf(map, ".uses_dynamic_stack") != 0;
  const auto required = map.find(".reqd_workgroup_size");
  if (required != map.end()) {
    if (!required->second.isArray()) return false;
    auto& sizes = required->second.getArray();
    for (size_t k = 0; k < kernel->required.size() && k < sizes.size(); ++k) {
      if (sizes[k].getKind() != msgpack::Type::UInt) return false;
      kernel->required[k] = static_cast<uint32_t>(sizes[k].getUInt());
    }
  }
  return ForEachMap(map, ".args", [&](msgpack::MapDocNode& argument) {
    kernel->arguments.push_back({.offset = NumberOf(argument, ".offset"),
                                 .bytes = NumberOf(argument, ".size"),
                                 .kind = StringOf(argument, ".value_kind")});
  });
}

}  // namespace

Metadata ReadMetadata(const std::string& bytes) {
  Metadata metadata;
  msgpack::Document document;
  if (bytes.empty() || !document.readFromBlob(bytes, false) || !document.getRoot().isMap()) {
    metadata.error = "has no metadata that can be read";
    return metadata;
  }
  auto& root = document.getRoot().getMap();
  metadata.target = StringOf(root, "amdhsa.target");
  bool good = !metadata.target.empty();
  good &= ForEachMap(root, "amdhsa.kernels", [&](msgpack::MapDocNode& map) {
    Kernel kernel;
    good &= ReadKernel(map, &kernel);
    metadata.kernels.push_back(std::move(kernel));
    metadata.symbols.push_back(StringOf(map, ".symbol"));
  });
  if (!good) metadata.error = "has metadata of another form than that of ABI version 5";
  return metadata;
}

}  // namespace fakeamd
