// Reading checks only what a proto can express and a Graph cannot (numbers, indices); Graph::Make
// and the verifier check everything else, so that no rule is written twice.
#include "engine/wire/graph_codec.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/ir/scalar.h"
#include "engine/ir/verify.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

bool IsReal(Op op, DType dtype) { return op == Op::kConst && IsFloat(dtype); }

// Reads the nodes of one proto into a graph of its own.
class Reader {
 public:
  Reader(const v1::Graph& in, Budget* budget) : in_(in), budget_(budget), held_(budget) {
    ids_.reserve(in.nodes_size());
    numbers_.reserve(in.nodes_size());
    graph_->Reserve(static_cast<uint32_t>(in.nodes_size()));
  }

  absl::Status ReadNode(int index) {
    const v1::Node& node = in_.nodes(index);
    index_ = index;
    const std::optional<Op> op = OpFromWire(static_cast<int>(node.op()));
    if (!op) return InvalidArgument("node ", index, ": unknown op ", node.op());
    info_ = &Info(*op);
    if (!IsAt(*op, kTensorLevel)) return Bad("is not an op of the tensor level");
    TG_ASSIGN_OR_RETURN(const DType dtype, ReadDType(node));
    TG_RETURN_IF_ERROR(ReadSources(node));
    const bool real = IsReal(*op, dtype);
    if (real ? !node.arg().empty() : node.real() != 0) {
      return Bad("has ", real ? "argument words" : "a real value", ", expected ",
                 real ? "a real value: it is a const of a float type" : "argument words");
    }
    arg_.assign(node.arg().begin(), node.arg().end());
    if (real) arg_.push_back(std::bit_cast<int64_t>(node.real()));
    const UOp u = graph_->Make(*op, dtype, src_, arg_);
    if (!u.valid()) {
      // The graph's message starts with "add: ".
      std::string_view message = ToStd(graph_->status().message());
      if (message.starts_with(info_->name)) message.remove_prefix(info_->name.size());
      if (message.starts_with(": ")) message.remove_prefix(2);
      return Bad(message);
    }
    // Errors name equal nodes by the number of the first.
    if (u.id() == numbers_.size()) numbers_.push_back(static_cast<uint32_t>(index));
    ids_.push_back(u.id());
    return absl::OkStatus();
  }

  absl::StatusOr<FrozenGraph> Finish() {
    const UOp root = graph_->at(ids_[in_.root()]);
    TG_RETURN_IF_ERROR(CheckMemory());
    TG_RETURN_IF_ERROR(Verify(root, kTensorLevel, numbers_, budget_));
    // What ToProto writes is in canonical order already, and all of it is needed.
    const std::vector<uint32_t> order = PostOrder(root);
    if (order.size() == graph_->size() && std::ranges::is_sorted(order)) {
      return FrozenGraph{std::move(graph_), root.id()};
    }
    TG_RETURN_IF_ERROR(held_.Grow(graph_->bytes()));
    return Freeze(root);
  }

  // What the graph read so far takes.
  absl::Status CheckMemory() {
    constexpr int64_t kBytesPerNode = 2 * sizeof(uint32_t);  // of this reader
    TG_RETURN_IF_ERROR(budget_->CheckTime());
    return held_.GrowTo(graph_->bytes() + kBytesPerNode * in_.nodes_size());
  }

 private:
  template <typename... Args>
  absl::Status Bad(const Args&... args) const {
    return InvalidArgument("node ", index_, " (", info_->name, "): ", args...);
  }

  absl::StatusOr<DType> ReadDType(const v1::Node& node) const {
    if (info_->type_rule != TypeRule::kGiven) {
      if (node.dtype() == 0) return DType::kVoid;
      return Bad("has dtype ", node.dtype(), ", expected 0: it follows from the sources");
    }
    const std::optional<DType> dtype = DTypeFromWire(static_cast<int>(node.dtype()));
    if (!dtype) return Bad("unknown dtype ", node.dtype());
    return *dtype;
  }

  absl::Status ReadSources(const v1::Node& node) {
    src_.clear();
    if (node.src_size() > kMaxSources) {
      return ResourceExhausted("node ", index_, " (", info_->name, "): has ", node.src_size(),
                               " sources, the limit is ", kMaxSources);
    }
    for (int i = 0; i < node.src_size(); ++i) {
      if (node.src(i) >= static_cast<uint32_t>(index_)) {
        return Bad("source ", i, " is node ", node.src(i), ", expected an earlier one");
      }
      src_.push_back(graph_->at(ids_[node.src(i)]));
    }
    return absl::OkStatus();
  }

  const v1::Graph& in_;
  Budget* budget_;
  Budget::Held held_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  std::vector<uint32_t> ids_;      // by index in the proto
  std::vector<uint32_t> numbers_;  // by id: the index of the first node that became it
  // The node being read.
  int index_ = 0;
  const OpInfo* info_ = nullptr;
  std::vector<UOp> src_;
  std::vector<int64_t> arg_;
};

}  // namespace

void ToProto(UOp root, v1::Graph* out) {
  const Graph& graph = *root.graph();
  const std::vector<uint32_t> order = PostOrder(root);
  std::vector<uint32_t> position(graph.size());
  out->Clear();
  out->set_form(kGraphForm);
  out->set_root(static_cast<uint32_t>(order.size() - 1));
  out->mutable_nodes()->Reserve(static_cast<int>(order.size()));
  uint32_t next = 0;
  for (uint32_t id : order) {
    position[id] = next++;
    const UOp u = graph.at(id);
    const OpInfo& info = Info(u.op());
    v1::Node* node = out->add_nodes();
    node->set_op(static_cast<uint32_t>(info.wire));
    if (info.type_rule == TypeRule::kGiven) {
      node->set_dtype(static_cast<uint32_t>(Info(u.dtype()).wire));
    }
    const std::span<const uint32_t> src = u.src_ids();
    node->mutable_src()->Reserve(static_cast<int>(src.size()));
    for (uint32_t s : src) node->mutable_src()->AddAlreadyReserved(position[s]);
    if (IsReal(u.op(), u.dtype())) {
      node->set_real(ScalarAsDouble(u.dtype(), u.const_word()));
    } else {
      node->mutable_arg()->Assign(u.arg().begin(), u.arg().end());
    }
  }
}

absl::StatusOr<FrozenGraph> FromProto(const v1::Graph& in, Budget* budget) {
  const Budget::Doing doing(budget, "reading the graph");
  if (in.form() != kGraphForm) {
    return InvalidArgument("the graph has form ", in.form(), ", expected ", kGraphForm);
  }
  if (in.nodes_size() > kMaxNodes) {
    return ResourceExhausted("the graph has ", in.nodes_size(), " nodes, the limit is ", kMaxNodes);
  }
  if (static_cast<int64_t>(in.ByteSizeLong()) > kMaxGraphBytes) {
    return ResourceExhausted("the graph has ", in.ByteSizeLong(), " bytes, the limit is ",
                             kMaxGraphBytes);
  }
  if (in.root() >= static_cast<uint32_t>(in.nodes_size())) {
    return InvalidArgument("the root is node ", in.root(), " of ", in.nodes_size(), " nodes");
  }
  TG_RETURN_IF_ERROR(budget->SpendNodes(in.nodes_size()));
  Reader reader(in, budget);
  constexpr int kNodesPerCheck = 4096;
  for (int i = 0; i < in.nodes_size(); ++i) {
    if (i % kNodesPerCheck == 0) TG_RETURN_IF_ERROR(reader.CheckMemory());
    TG_RETURN_IF_ERROR(reader.ReadNode(i));
  }
  return reader.Finish();
}

}  // namespace telegrad
