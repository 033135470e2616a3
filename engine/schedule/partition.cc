// After the stages are chosen, the parts are written down: for each, what of its inputs comes from
// where, then its graph, then its place among the steps.
#include "engine/schedule/partition.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "engine/base/checked.h"
#include "engine/ir/text.h"
#include "engine/rules/fold.h"
#include "engine/schedule/partition_stages.h"
#include "engine/schedule/shard.h"
#include "engine/schedule/size_words.h"

namespace telegrad {
namespace {

constexpr int64_t kTableBytes = 128;     // of a node, in the tables of PartStages and here
constexpr uint32_t kMostSizeNodes = 64;  // of a size that each run computes

class Partitioner {
 public:
  Partitioner(const FrozenGraph& legal, Budget* budget)
      : g_(*legal.graph), budget_(budget), held_(budget), stages_(legal.root()), buffer_(g_, -1) {}

  absl::StatusOr<Partition> Run() {
    const Budget::Doing doing(budget_, "partitioning");
    TG_RETURN_IF_ERROR(held_.Grow(g_.size() * kTableBytes));
    TG_RETURN_IF_ERROR(stages_.Assign(budget_));
    FindParts();
    for (auto& [at, part] : parts_) TG_RETURN_IF_ERROR(Build(&part));
    TG_RETURN_IF_ERROR(AddSteps());
    return std::move(out_);
  }

 private:
  // A part in the making.
  struct Part {
    int64_t device = 0, stage = 0;
    std::vector<uint32_t> stores;  // of the client
    std::vector<uint32_t> made;    // what goes into buffers
    std::vector<uint32_t> copies;  // that it reads
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    uint32_t root = 0;
    std::vector<PartMemory> slots;
    absl::flat_hash_map<std::pair<PartMemory::Kind, int32_t>, int32_t> slot_of;
    int32_t step = 0;
  };
  using PartKey = std::pair<int64_t, int64_t>;  // stage, device

  Part& At(int64_t device, int64_t stage) {
    Part& part = parts_[{stage, device}];
    part.device = device;
    part.stage = stage;
    return part;
  }

  // --- what goes over ---

  bool IsSlot(uint32_t id) const { return g_.op(id) == Op::kParam || g_.op(id) == Op::kAfter; }

  // The stage that puts a node into its buffer, if it has one.
  int64_t MadeAt(uint32_t id) const {
    return IsSlot(id) ? stages_.OverwrittenAt(id) : stages_.HomeOf(id);
  }

  void NeedBuffer(uint32_t id) {
    if (buffer_[id] >= 0) return;
    buffer_[id] = static_cast<int32_t>(out_.buffers.size());
    const int64_t bytes = BytesOf(g_.dtype(id), NumElements(g_.shape(id)));
    out_.buffers.push_back({stages_.DeviceOf(id), bytes});
    if (g_.op(id) != Op::kCopy) At(stages_.DeviceOf(id), MadeAt(id)).made.push_back(id);
  }

  // Whether a part of that stage finds `base` in a buffer.
  bool FromBuffer(uint32_t base, int64_t stage) const {
    if (g_.op(base) == Op::kCopy) return true;
    const int64_t made = MadeAt(base);
    return made != kNoStage && made < stage;
  }

  void FindParts() {
    for (const uint32_t id : stages_.order()) {
      if (g_.op(id) == Op::kCopy) {
        NeedBuffer(id);
        const uint32_t node = stages_.SentBy(id).node;
        if (!IsSlot(node) || !stages_.StaysBetweenParts(node)) NeedBuffer(node);
        if (Is(g_.op(node), kMovement)) NeedSources(node);
        continue;
      }
      if (g_.op(id) == Op::kStore) {
        At(stages_.DeviceOf(id), stages_.HomeOf(id)).stores.push_back(id);
      }
      if (stages_.IsWork(id)) NeedSources(id);
    }
    for (auto& [at, part] : parts_) std::ranges::sort(part.made);
  }

  // What the work, or the view that is sent as such, finds in buffers.
  void NeedSources(uint32_t id) {
    const int64_t stage = stages_.HomeOf(id);
    for (const uint32_t s : g_.src(id).subspan(g_.op(id) == Op::kStore ? 1 : 0)) {
      const uint32_t base = stages_.BaseOf(s);
      if (stages_.DeviceOf(base) >= 0 && FromBuffer(base, stage)) NeedBuffer(base);
    }
  }

  // --- the graph of a part ---

  absl::Status Build(Part* part) {
    const std::vector<uint32_t> nodes = Reach(*part);
    TG_RETURN_IF_ERROR(budget_->SpendNodes(static_cast<int64_t>(nodes.size())));
    TG_RETURN_IF_ERROR(budget_->CheckTime());
    Graph& to = *part->graph;
    absl::flat_hash_map<uint32_t, UOp> made;
    std::vector<UOp> roots;
    for (const uint32_t id : nodes) {
      const UOp value = Copied(part, id, made);
      TG_RETURN_IF_ERROR(to.status());
      made.emplace(id, value);
      if (g_.op(id) == Op::kStore) roots.push_back(value);
    }
    for (const uint32_t id : part->made) {
      roots.push_back(to.Make(Op::kStore, {Buffer(part, id, made), made.at(id)}));
    }
    part->root = to.Make(Op::kSink, DType::kVoid, roots).id();
    TG_RETURN_IF_ERROR(to.status());
    return held_.Grow(to.bytes());
  }

  // The nodes that the part needs, sources first; nothing behind what comes from elsewhere.
  std::vector<uint32_t> Reach(const Part& part) const {
    std::vector<uint32_t> nodes, stack(part.stores.begin(), part.stores.end());
    stack.insert(stack.end(), part.made.begin(), part.made.end());
    absl::flat_hash_map<uint32_t, bool> seen;
    while (!stack.empty()) {
      const uint32_t id = stack.back();
      stack.pop_back();
      if (!seen.try_emplace(id, true).second) continue;
      nodes.push_back(id);
      for (const uint32_t s : Sources(part, id)) stack.push_back(s);
      AddSizes(part, id, &stack);
    }
    std::ranges::sort(nodes);  // ids ascend from sources to users
    return nodes;
  }

  bool IsBuffer(const Part& part, uint32_t id) const {
    return stages_.BaseOf(id) == id && stages_.DeviceOf(id) >= 0 && FromBuffer(id, part.stage);
  }

  // Adds what computes the sizes of the run that a node needs beside its sources: those of a value
  // that is in a buffer, or goes into one, and those of the view that a STORE writes.
  void AddSizes(const Part& part, uint32_t id, std::vector<uint32_t>* out) const {
    if (IsBuffer(part, id) || std::ranges::binary_search(part.made, id)) {
      for (const uint32_t dim : g_.symbolic_dims(id)) {
        if (dim != kStaticDim) out->push_back(dim);
      }
    }
    if (g_.op(id) != Op::kStore) return;
    for (uint32_t view = g_.src(id)[0]; Is(g_.op(view), kMovement); view = g_.src(view)[0]) {
      const std::span<const uint32_t> sizes = g_.src(view).subspan(1);
      out->insert(out->end(), sizes.begin(), sizes.end());
    }
  }

  // The sources of a node that belong to the part with it.
  std::vector<uint32_t> Sources(const Part& part, uint32_t id) const {
    const std::span<const uint32_t> src = g_.src(id);
    if (g_.op(id) == Op::kStore && stages_.HomeOf(id) == part.stage) {
      std::vector<uint32_t> sources = StoresBefore(part, stages_.BaseOf(src[0]));
      sources.push_back(src[1]);
      return sources;
    }
    if (stages_.BaseOf(id) != id || stages_.DeviceOf(id) < 0) return {src.begin(), src.end()};
    if (FromBuffer(id, part.stage) || g_.op(id) == Op::kParam) return {};
    if (g_.op(id) == Op::kAfter) return StoresBefore(part, id);
    return {src.begin(), src.end()};
  }

  // The STOREs of the part that `memory`, a PARAM or AFTER, is behind.
  std::vector<uint32_t> StoresBefore(const Part& part, uint32_t memory) const {
    std::vector<uint32_t> stores;
    if (g_.op(memory) != Op::kAfter) return stores;
    for (const uint32_t store : g_.src(memory).subspan(1)) {
      if (stages_.HomeOf(store) == part.stage) stores.push_back(store);
    }
    return stores;
  }

  using Made = absl::flat_hash_map<uint32_t, UOp>;

  UOp Copied(Part* part, uint32_t id, const Made& made) {
    Graph& to = *part->graph;
    const UOp u = g_.at(id);
    std::vector<UOp> src;
    for (const uint32_t s : Sources(*part, id)) src.push_back(made.at(s));
    if (u.is(Op::kCopy)) part->copies.push_back(id);
    if (IsBuffer(*part, id)) return Buffer(part, id, made);
    if (u.is(Op::kStore)) {
      const UOp value = src.back();
      src.pop_back();
      return to.Make(Op::kStore, {Target(part, u.src(0), src, made), value});
    }
    if (IsSlot(id)) return Behind(part, id, src);
    return to.Make(u.op(), u.dtype(), src, u.arg());
  }

  // The slot of a PARAM or AFTER, after `stores`.
  UOp Behind(Part* part, uint32_t memory, std::vector<UOp> stores) {
    const UOp node = g_.at(memory), param = node.is(Op::kAfter) ? node.src(0) : node;
    const auto number = static_cast<int32_t>(param.slot());
    const UOp slot = Slot(part, {PartMemory::Kind::kSlot, number}, param.id());
    if (stores.empty()) return slot;
    stores.insert(stores.begin(), slot);
    return part->graph->Make(Op::kAfter, DType::kVoid, stores);
  }

  // The view that a STORE writes: of the slot, whatever a reader would find elsewhere by now.
  UOp Target(Part* part, UOp view, std::vector<UOp> stores, const Made& made) {
    std::vector<UOp> views;
    for (; Is(view.op(), kMovement); view = view.src(0)) views.push_back(view);
    UOp out = Behind(part, view.id(), std::move(stores));
    for (; !views.empty(); views.pop_back()) {
      std::vector<UOp> sources{out};
      for (const uint32_t size : views.back().src_ids().subspan(1))
        sources.push_back(made.at(size));
      out = part->graph->Make(views.back().op(), DType::kVoid, sources, views.back().arg());
    }
    return out;
  }

  // The value of a node as the part finds it in its buffer, or puts it there.
  UOp Buffer(Part* part, uint32_t id, const Made& made) {
    const UOp memory = Slot(part, {PartMemory::Kind::kBuffer, buffer_[id]}, id);
    const std::span<const uint32_t> dims = g_.symbolic_dims(id);
    if (dims.empty()) return memory;
    SizeWords words(memory);
    std::vector<int64_t> pairs;
    for (size_t i = 0; i < dims.size(); ++i) {
      const UOp size = dims[i] == kStaticDim ? UOp() : made.at(dims[i]);
      pairs.insert(pairs.end(), {0, words.Of(g_.shape(id)[i], size)});
    }
    return part->graph->Make(Op::kShrink, DType::kVoid, words.sources(), pairs);
  }

  // The part's PARAM for a memory with the elements of `like`.
  UOp Slot(Part* part, PartMemory memory, uint32_t like) {
    const auto next = static_cast<int32_t>(part->slots.size());
    const auto [it, added] = part->slot_of.try_emplace({memory.kind, memory.index}, next);
    if (added) part->slots.push_back(memory);
    return part->graph->Param(it->second, g_.dtype(like), g_.shape(like));
  }

  // --- the steps ---

  absl::Status AddSteps() {
    // Transfers first: those that are ready for a stage come before its parts.
    std::vector<std::pair<int64_t, uint32_t>> copies;
    for (const uint32_t id : stages_.order()) {
      if (g_.op(id) == Op::kCopy) copies.emplace_back(stages_.ReadyAt(id), id);
    }
    std::ranges::sort(copies);
    auto next = copies.begin();
    for (auto& [at, part] : parts_) {
      for (; next != copies.end() && next->first <= at.first; ++next) {
        TG_RETURN_IF_ERROR(AddTransfer(next->second));
      }
      TG_RETURN_IF_ERROR(AddPart(&part));
    }
    return absl::OkStatus();
  }

  int32_t StepOfPart(int64_t device, int64_t stage) const {
    return parts_.at({stage, device}).step;
  }

  absl::Status AddTransfer(uint32_t copy) {
    const PartStages::Sent& sent = stages_.SentBy(copy);
    PartitionStep step;
    step.kind = PartitionStep::Kind::kTransfer;
    step.stage = stages_.ReadyAt(copy);
    step.device = stages_.DeviceOf(sent.node);
    step.to_device = stages_.DeviceOf(copy);
    step.to = buffer_[copy];
    step.bytes = out_.buffers[step.to].bytes;
    step.from_offset = BytesOf(g_.dtype(copy), sent.offset);
    TG_RETURN_IF_ERROR(SetRows(g_.at(copy), &step));
    const auto index = static_cast<int32_t>(out_.steps.size());
    if (IsSlot(sent.node) && stages_.StaysBetweenParts(sent.node)) {
      const UOp node = g_.at(sent.node), param = node.is(Op::kAfter) ? node.src(0) : node;
      step.from = {PartMemory::Kind::kSlot, static_cast<int32_t>(param.slot())};
      if (const int64_t written = stages_.WrittenAt(sent.node); written != kNoStage) {
        step.waits.push_back(StepOfPart(step.device, written));
      }
      if (const int64_t stage = stages_.OverwrittenAt(sent.node); stage != kNoStage) {
        read_before_[{stage, step.device}].push_back(index);
      }
    } else {
      step.from = {PartMemory::Kind::kBuffer, buffer_[sent.node]};
      step.waits.push_back(g_.op(sent.node) == Op::kCopy
                               ? transfer_.at(sent.node)
                               : StepOfPart(step.device, MadeAt(sent.node)));
    }
    transfer_.emplace(copy, index);
    out_.steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  // Of a value of which the run has the first rows. What takes long to compute is not worth it.
  absl::Status SetRows(UOp value, PartitionStep* step) {
    if (!value.symbolic() || !IsPrefix(value) || NumElements(value.shape()) == 0) {
      return absl::OkStatus();
    }
    size_t outermost = 0;
    while (!value.dim(static_cast<int>(outermost)).valid()) ++outermost;
    const UOp size = value.dim(static_cast<int>(outermost));
    const auto [rows, added] = rows_.try_emplace(size.id());
    if (added) {
      TG_RETURN_IF_ERROR(budget_->SpendSteps(g_.size()));
      rows->second = Freeze(size);
      TG_RETURN_IF_ERROR(held_.Grow(rows->second.graph->bytes()));
    }
    if (rows->second.graph->size() > kMostSizeNodes) return absl::OkStatus();
    step->rows = rows->second;
    step->row_bytes = BytesOf(value.dtype(), NumElements(value.shape()) / value.shape()[outermost]);
    return absl::OkStatus();
  }

  absl::Status AddPart(Part* part) {
    PartitionStep step;
    step.stage = part->stage;
    step.device = part->device;
    if (const auto before = last_part_.find(part->device); before != last_part_.end()) {
      step.waits.push_back(before->second);
    }
    for (const uint32_t copy : part->copies) step.waits.push_back(transfer_.at(copy));
    const auto readers = read_before_.find({part->stage, part->device});
    if (readers != read_before_.end()) {
      step.waits.insert(step.waits.end(), readers->second.begin(), readers->second.end());
    }
    std::ranges::sort(step.waits);
    const auto repeated = std::ranges::unique(step.waits);
    step.waits.erase(repeated.begin(), repeated.end());
    part->step = static_cast<int32_t>(out_.steps.size());
    last_part_[part->device] = part->step;
    step.graph = {std::move(part->graph), part->root};
    step.slots = std::move(part->slots);
    out_.steps.push_back(std::move(step));
    return budget_->SpendSteps(static_cast<int64_t>(out_.steps.back().waits.size()) + 1);
  }

  const Graph& g_;
  Budget* budget_;
  Budget::Held held_;  // the parts' graphs
  PartStages stages_;
  NodeMap<int32_t> buffer_;  // by node
  std::map<PartKey, Part> parts_;
  absl::flat_hash_map<uint32_t, int32_t> transfer_;      // step, by COPY
  absl::flat_hash_map<uint32_t, FrozenGraph> rows_;      // by size
  std::map<PartKey, std::vector<int32_t>> read_before_;  // transfers that the part overwrites
  absl::flat_hash_map<int64_t, int32_t> last_part_;      // step, by device
  Partition out_;
};

}  // namespace

absl::StatusOr<Partition> PartitionGraph(UOp sink, std::span<const VarValue> variables,
                                         const Placement& placement, Budget* budget) {
  TG_ASSIGN_OR_RETURN(const FrozenGraph sharded, ShardGraph(sink, budget));
  Budget::Held held(budget);
  TG_RETURN_IF_ERROR(held.Grow(sharded.graph->bytes()));
  TG_ASSIGN_OR_RETURN(const FrozenGraph legal,
                      Legalize(sharded.root(), variables, budget, &placement));
  TG_RETURN_IF_ERROR(held.Grow(legal.graph->bytes()));
  return Partitioner(legal, budget).Run();
}

absl::StatusOr<Partition> PartitionForAll(UOp sink, const Placement& placement, Budget* budget) {
  TG_ASSIGN_OR_RETURN(const FrozenGraph sharded, ShardGraph(sink, budget));
  Budget::Held held(budget);
  TG_RETURN_IF_ERROR(held.Grow(sharded.graph->bytes()));
  TG_ASSIGN_OR_RETURN(const FrozenGraph legal, LegalizeForAll(sharded.root(), placement, budget));
  TG_RETURN_IF_ERROR(held.Grow(legal.graph->bytes()));
  return Partitioner(legal, budget).Run();
}

int64_t BytesNeeded(const PartitionStep& transfer, std::span<const VarValue> values) {
  if (!transfer.rows) return transfer.bytes;
  const Graph& g = *transfer.rows->graph;
  NodeMap<int64_t> words(g);
  std::vector<DType> types;
  std::vector<int64_t> sources;
  for (const uint32_t id : PostOrder(transfer.rows->root())) {
    const UOp u = g.at(id);
    if (u.is_const()) {
      words[id] = u.const_word();
      continue;
    }
    if (u.is(Op::kVar)) {
      const auto it = std::ranges::lower_bound(values, u.var_id(), {}, &VarValue::id);
      if (it == values.end() || it->id != u.var_id()) return transfer.bytes;
      words[id] = it->value;
      continue;
    }
    types.clear();
    sources.clear();
    for (const uint32_t s : u.src_ids()) {
      types.push_back(g.dtype(s));
      sources.push_back(words[s]);
    }
    const std::optional<int64_t> word = Fold(u.op(), u.dtype(), types, sources);
    if (!word) return transfer.bytes;
    words[id] = *word;
  }
  const int64_t most = transfer.bytes / transfer.row_bytes;
  return std::clamp<int64_t>(words[transfer.rows->root()], 0, most) * transfer.row_bytes;
}

int Partition::num_parts() const {
  return static_cast<int>(std::ranges::count_if(
      steps, [](const PartitionStep& s) { return s.kind == PartitionStep::Kind::kPart; }));
}

std::vector<int64_t> Partition::BytesSent(int64_t devices) const {
  std::vector<int64_t> sent(devices, 0);
  for (const PartitionStep& step : steps) {
    int64_t& sum = sent[step.device];
    if (step.kind == PartitionStep::Kind::kTransfer && !CheckedAdd(sum, step.bytes, &sum)) {
      sum = INT64_MAX;
    }
  }
  return sent;
}

std::string Print(const Partition& partition) {
  const auto name = [](PartMemory memory) {
    return StrCat(memory.kind == PartMemory::Kind::kSlot ? "slot" : "buffer", memory.index);
  };
  const auto waits = [](const PartitionStep& step) {
    std::string text;
    for (const int32_t w : step.waits) StrAppend(&text, text.empty() ? " after " : ", ", w);
    return text;
  };
  std::string out;
  for (size_t i = 0; i < partition.buffers.size(); ++i) {
    const PartBuffer& buffer = partition.buffers[i];
    StrAppend(&out, "buffer", i, ": ", buffer.bytes, " bytes on device ", buffer.device, "\n");
  }
  for (size_t i = 0; i < partition.steps.size(); ++i) {
    const PartitionStep& step = partition.steps[i];
    if (step.kind == PartitionStep::Kind::kTransfer) {
      StrAppend(&out, "step ", i, ": ", step.rows ? "up to " : "", step.bytes, " bytes of ",
                name(step.from), " from ", step.from_offset, " on device ", step.device,
                " to buffer", step.to, " on device ", step.to_device, waits(step), "\n");
      continue;
    }
    StrAppend(&out, "step ", i, ": part of stage ", step.stage, " on device ", step.device,
              waits(step), ", slots");
    for (const PartMemory memory : step.slots) StrAppend(&out, " ", name(memory));
    StrAppend(&out, "\n", Print(step.graph.root()));
  }
  return out;
}

}  // namespace telegrad
