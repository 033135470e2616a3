// A pool of values grows by one op at a time; a table says which ops there are and how often each
// is tried. What the op table forbids is skipped.
#include "tests/conformance/random_graph.h"

#include <algorithm>
#include <set>

#include "tests/conformance/random_graph_maker.h"

namespace telegrad::testing {

const GraphMaker::Row GraphMaker::kRows[] = {
    {&GraphMaker::Input, 4, true},         {&GraphMaker::Constant, 2, true},
    {&GraphMaker::Iota, 2, true},          {&GraphMaker::Movement, 12, true},
    {&GraphMaker::Reduce, 4, true},        {&GraphMaker::Gather, 4, true},
    {&GraphMaker::Convert, 4, true},       {&GraphMaker::Keep, 1, true},
    {&GraphMaker::Select, 3, true},        {&GraphMaker::Unary, 3, true},
    {&GraphMaker::Binary, 9, true},        {&GraphMaker::Cat, 3, false},
    {&GraphMaker::Scatter, 3, false},      {&GraphMaker::Inexact, 6, false},
    {&GraphMaker::Bitcast, 3, false},      {&GraphMaker::Threefry, 1, false},
    {&GraphMaker::Sharded, 2, false},      {&GraphMaker::Call, 2, false},
    {&GraphMaker::Loop, 2, false},         {&GraphMaker::Symbolic, 2, false},
    {&GraphMaker::DeviceScalar, 1, false},
};

RandomGraph GraphMaker::Make(int size) {
  for (int i = 0; i < 3; ++i) pool_.push_back(Input());
  int total = 0;
  for (const Row& row : kRows) total += all_ || row.plain ? row.weight : 0;
  for (int tries = 0; static_cast<int>(pool_.size()) < size && tries < 20 * size; ++tries) {
    int64_t at = Below(total);
    const Row* row = kRows;
    for (;; ++row) {
      if (!all_ && !row->plain) continue;
      at -= row->weight;
      if (at < 0) break;
    }
    const UOp u = (this->*row->make)();
    if (u.valid() && NumElements(u.shape()) <= 2 * kMaxElements) pool_.push_back(u);
    (void)g_.TakeStatus();
  }
  std::vector<UOp> stores;
  MaybeUpdateInput(&stores);
  const int outputs = 1 + static_cast<int>(Below(3));
  for (int i = 0; i < outputs; ++i) {
    const auto n = static_cast<int64_t>(pool_.size());
    const UOp value = pool_[n - 1 - Below(std::min<int64_t>(n, 6))];
    const UOp target = NewSlot(value.dtype(), value.shape(), {.exact = Of(value).exact});
    stores.push_back(g_.Make(Op::kStore, {target, value}));
  }
  out_.sink = g_.Make(Op::kSink, DType::kVoid, stores);
  return std::move(out_);
}

void GraphMaker::MaybeUpdateInput(std::vector<UOp>* stores) {
  if (!Chance(2)) return;
  const UOp param = inputs_[Below(inputs_.size())];
  UOp target = param;
  for (int i = 0; i < 2 && !IsPacked(param.dtype()); ++i) {
    const UOp view = Move(target);
    if (view.valid() && !view.is(Op::kPad) && !view.is(Op::kExpand)) target = view;
    (void)g_.TakeStatus();
  }
  const UOp value = Like(target);
  if (!value.valid() || NumElements(target.shape()) == 0) return;
  const UOp store = g_.Make(Op::kStore, {target, value});
  if (!store.valid()) return;
  stores->push_back(store);
  if (!all_ || Chance(2)) return;
  const UOp after = g_.Make(Op::kAfter, {param, store});
  const UOp read = Chance(2) ? after : Move(after);
  (void)g_.TakeStatus();
  if (read.valid() && NumElements(read.shape()) <= kMaxElements) pool_.push_back(read);
}

std::vector<VarValue> VariablesOf(UOp sink, std::span<const VarValue> variables) {
  std::set<int64_t> ids;
  for (const uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (u.is(Op::kVar) && u.num_src() == 0) ids.insert(u.var_id());
  }
  std::vector<VarValue> out;
  for (const VarValue& v : variables) {
    if (ids.contains(v.id)) out.push_back(v);
  }
  return out;
}

RandomGraph MakeRandomGraph(std::mt19937_64& rng, int size, Graph* graph, Vocabulary vocabulary) {
  return GraphMaker(rng, graph, vocabulary).Make(size);
}

}  // namespace telegrad::testing
