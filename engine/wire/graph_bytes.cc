#include "engine/wire/graph_bytes.h"

#include "engine/base/status.h"
#include "engine/types/limits.h"
#include "engine/wire/graph_codec.h"

namespace telegrad {

std::string GraphBytes(UOp root) {
  v1::Graph proto;
  ToProto(root, &proto);
  return proto.SerializeAsString();
}

absl::StatusOr<FrozenGraph> GraphFromBytes(std::string_view bytes, Budget* budget) {
  if (static_cast<int64_t>(bytes.size()) > kMaxGraphBytes) {
    return ResourceExhausted("a graph of ", bytes.size(), " bytes is over the limit of ",
                             kMaxGraphBytes);
  }
  v1::Graph proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return InvalidArgument("the ", bytes.size(), " bytes of a graph are no graph.proto");
  }
  return FromProto(proto, budget);
}

}  // namespace telegrad
