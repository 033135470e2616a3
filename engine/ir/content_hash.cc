// The bytes carry no version: a change to the form, or to a wire number, is a change of the wire
// contract.
#include "engine/ir/content_hash.h"

#include <cstddef>

namespace telegrad {
namespace {

template <typename Unsigned>
void Append(std::string* out, Unsigned value) {
  char bytes[sizeof(Unsigned)];
  for (size_t i = 0; i < sizeof(Unsigned); ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  out->append(bytes, sizeof(Unsigned));
}

}  // namespace

std::string CanonicalBytes(UOp root) {
  const Graph& graph = *root.graph();
  const std::vector<uint32_t> order = PostOrder(root);
  NodeMap<uint32_t> position(graph);
  std::string out;
  out.reserve(order.size() * 32);
  Append(&out, static_cast<uint32_t>(order.size()));
  uint32_t next = 0;
  for (uint32_t id : order) {
    position[id] = next++;
    const std::span<const uint32_t> src = graph.src(id);
    const std::span<const int64_t> arg = graph.arg(id);
    Append(&out, static_cast<uint32_t>(Info(graph.op(id)).wire));
    Append(&out, static_cast<uint32_t>(Info(graph.dtype(id)).wire));
    Append(&out, static_cast<uint32_t>(src.size()));
    for (uint32_t s : src) Append(&out, position[s]);
    Append(&out, static_cast<uint32_t>(arg.size()));
    for (int64_t word : arg) Append(&out, static_cast<uint64_t>(word));
  }
  return out;
}

Digest ContentHash(UOp root) { return Sha256(CanonicalBytes(root)); }

}  // namespace telegrad
