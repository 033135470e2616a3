#include "engine/wire/graph_bytes.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <vector>

#include "engine/base/status.h"
#include "engine/types/limits.h"
#include "engine/wire/graph_codec.h"

namespace telegrad {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Clients of later versions may send some.
constexpr int64_t kMaxUnknownFields = 1024;

// An empty message takes many times its serialized bytes in memory, and so does an unknown field:
// both are counted before parsing. Malformed input is left to the parser.
absl::Status CheckParts(std::string_view bytes, int64_t max_nodes) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  int64_t nodes = 0, unknown = 0;
  std::vector<CodedInputStream::Limit> around;  // of the node that is being read
  while (true) {
    const uint32_t tag = in.ReadTag();
    if (tag == 0 && around.empty()) return absl::OkStatus();
    if (tag == 0) {
      if (!in.ConsumedEntireMessage()) return absl::OkStatus();
      in.PopLimit(around.back());
      around.pop_back();
      continue;
    }
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    const bool in_node = !around.empty();
    if (!in_node && field == v1::Graph::kNodesFieldNumber) {
      if (++nodes > max_nodes) {
        return ResourceExhausted("a graph of more than ", max_nodes,
                                 " nodes, the limit of its job");
      }
      uint32_t size = 0;
      if (!in.ReadVarint32(&size)) return absl::OkStatus();
      around.push_back(in.PushLimit(static_cast<int>(std::min<uint32_t>(size, INT32_MAX))));
      continue;
    }
    const google::protobuf::Descriptor* const of =
        in_node ? v1::Node::descriptor() : v1::Graph::descriptor();
    if (of->FindFieldByNumber(field) == nullptr && ++unknown > kMaxUnknownFields) {
      return InvalidArgument("a graph with more than ", kMaxUnknownFields,
                             " fields that graph.proto does not define; the last is field ", field);
    }
    if (!WireFormatLite::SkipField(&in, tag)) return absl::OkStatus();
  }
}

}  // namespace

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
  TG_RETURN_IF_ERROR(CheckParts(bytes, budget->limits().nodes));
  const Budget::Doing doing(budget, "reading the graph");
  Budget::Held held(budget);  // by the message; a number of one byte takes eight in it
  TG_RETURN_IF_ERROR(held.Grow(8 * static_cast<int64_t>(bytes.size())));
  v1::Graph proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return InvalidArgument("the ", bytes.size(),
                           " bytes of a graph are not a serialized graph.proto");
  }
  return FromProto(proto, budget);
}

}  // namespace telegrad
