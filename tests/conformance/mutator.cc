#include "tests/conformance/mutator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/checked.h"
#include "engine/lowering/gated_bounds.h"
#include "engine/lowering/ranges.h"

namespace telegrad::testing {
namespace {

bool IsIndexConst(UOp u) {
  return u.is_const() && (u.dtype() == DType::kInt64 || u.dtype() == DType::kInt32);
}

bool IsRegister(UOp memory) {
  return memory.is(Op::kBuffer) && memory.space() == AddressSpace::kRegister;
}

bool IsLocal(UOp memory) {
  return memory.is(Op::kBuffer) && memory.space() == AddressSpace::kLocal;
}

bool IsMove(Mutation kind) { return kind == kWaitMoved || kind == kBarrierMoved; }

// Of an iteration of a loop, the rest by the number of tiles.
bool IsPlaceInRing(UOp u) {
  if (!u.is(Op::kFloorMod) || !IsIndexConst(u.src(1))) return false;
  const LinearForm form = FormOf(u.src(0));
  if (form.terms.size() != 1) return false;
  const UOp range = WithoutCasts(u.graph()->at(form.terms.begin()->first));
  return range.is(Op::kRange) && IsType(range, AxisType::kReduce);
}

}  // namespace

std::optional<Program> Mutator::Mutate(Mutation kind) {
  victim_ = Victim(kind);
  if (!victim_.valid()) return std::nullopt;
  out_ = from_;
  graph_ = std::make_shared<Graph>();
  out_.order.clear();
  placed_.clear();
  copied_.assign(g_.size(), 0);
  done_.assign(g_.size(), false);
  fewer_ = Below(4) != 0;
  const std::vector<uint32_t> order = IsMove(kind) ? OrderWithMoved() : from_.order;
  for (uint32_t id : order) copied_[id] = Copy(kind, g_.at(id)).id();
  out_.graph = graph_;
  if (!graph_->status().ok()) return std::nullopt;
  return std::move(out_);
}

int64_t Mutator::Delta() {
  static constexpr int64_t kDeltas[] = {1, -1, 1, -1, 2, -2, 4, -4, 8, 15, -16, 1000};
  return kDeltas[Below(std::size(kDeltas))];
}

int64_t Mutator::HighBits() {
  const int64_t high = int64_t{1} << (29 + Below(4));
  return (Below(2) == 0 ? high : -high) - Below(4);
}

bool Mutator::Suits(Mutation kind, UOp u) const {
  switch (kind) {
    case kOffset:
    case kNarrow:
      return u.is(Op::kIndex);
    case kRangeEnd:
      return u.is(Op::kRange) && u.src(0).is_const();
    case kRunEnd:
      return u.is(Op::kRange) && !u.src(0).is_const();
    case kWidth:
      return u.is(Op::kIota);
    case kGate:
      return u.is(Op::kIndex) && u.num_src() == 3;
    case kConstant:
      return Is(u.op(), kAlu) && u.num_src() == 2 &&
             (IsIndexConst(u.src(0)) || IsIndexConst(u.src(1)));
    case kDropTerm:
    case kSwapTerms:
      return (u.is(Op::kStore) || u.is(Op::kCopyAsync)) && !IsRegister(Memory(u.src(0))) &&
             FormOf(u.src(0).src(1)).terms.size() >= (kind == kSwapTerms ? 2 : 1);
    case kWaitCount:
    case kWaitMoved:
      return u.is(Op::kWait);
    case kPlace:
    case kPlaces:
      return IsPlaceInRing(u);
    case kDepth:
      return IsPlaceInRing(u) && u.src(1).const_word() > 1;
    case kStride:
      return u.is(Op::kIndex) && IsLocal(Memory(u)) && !FormOf(u.src(1)).terms.empty();
    case kBarrier:
    case kBarrierMoved:
      return u.is(Op::kBarrier) && u.scope() != Scope::kThread;
    default:
      return u.is(Op::kParam) && from_.arguments[u.slot()].elements > 1;
  }
}

UOp Mutator::Victim(Mutation kind) {
  std::vector<UOp> all;
  for (uint32_t id : from_.order) {
    if (Suits(kind, g_.at(id))) all.push_back(g_.at(id));
  }
  return all.empty() ? UOp() : all[Below(static_cast<int64_t>(all.size()))];
}

std::vector<uint32_t> Mutator::OrderWithMoved() {
  std::vector<uint32_t> order = from_.order;
  const auto at = std::ranges::find(order, victim_.id()) - order.begin();
  order.erase(order.begin() + at);
  const int64_t far = Below(3) == 0 ? std::ssize(order) : 30;
  const int64_t least = std::max<int64_t>(at - far, 0),
                most = std::min(at + far, std::ssize(order));
  order.insert(order.begin() + least + Below(most - least + 1), victim_.id());
  return order;
}

UOp Mutator::Place(UOp u) {
  if (u.valid() && std::ranges::find(placed_, u.id()) == placed_.end()) {
    placed_.push_back(u.id());
    out_.order.push_back(u.id());
  }
  return u;
}

UOp Mutator::Copy(Mutation kind, UOp u) {
  // What stands elsewhere is no source; of its own ones, it has those that stand before it.
  std::vector<UOp> src;
  for (uint32_t s : u.src_ids()) {
    if (IsMove(kind) && (s == victim_.id() || (u == victim_ && !done_[s]))) continue;
    src.push_back(graph_->at(copied_[s]));
  }
  done_[u.id()] = true;
  if (u.is(Op::kAfter) && src.size() == 1) return src[0];
  std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
  // Every IOTA of one width is one node: widening it widens all of its vectors.
  const bool alike = kind == kDepth && IsPlaceInRing(u) && u.src(1) == victim_.src(1);
  if (u == victim_ || alike) Change(kind, u, &src, &arg);
  return Place(graph_->Make(u.op(), u.dtype(), src, arg));
}

void Mutator::Change(Mutation kind, UOp u, std::vector<UOp>* src, std::vector<int64_t>* arg) {
  switch (kind) {
    case kOffset:
      (*src)[1] = Do(Op::kAdd, (*src)[1], Delta());
      break;
    case kNarrow:
      (*src)[1] = Narrowed((*src)[1]);
      break;
    case kRangeEnd: {
      const int64_t end = u.src(0).const_word() + 1 + Below(3);
      (*src)[0] = Place(graph_->Const(u.dtype(), end));
      Iterate(u, end);
      break;
    }
    case kRunEnd:
      (*src)[0] = OtherEnd(u.src(0), (*src)[0]);
      Iterate(u, (*src)[0].vmax());
      break;
    case kWidth:
      (*arg)[0] = Below(2) == 0 ? 2 * u.arg()[0] : u.arg()[0] + 1;
      break;
    case kGate:
      Weaken(u.src(2), src);
      break;
    case kConstant: {
      const int at = IsIndexConst(u.src(1)) ? 1 : 0;
      const int64_t c = u.src(at).const_word();
      int64_t changed;  // wraps where it overflows
      CheckedAdd(c, Below(4) == 0 ? c : Below(8) == 0 ? HighBits() : Delta(), &changed);
      (*src)[at] = Place(graph_->Const(u.src(at).dtype(), changed));
      break;
    }
    case kDropTerm:
    case kSwapTerms: {
      const UOp address = (*src)[0];
      std::vector<UOp> with{address.src(0), OtherTerms(kind, u.src(0).src(1), address.src(1))};
      if (address.num_src() == 3) with.push_back(address.src(2));
      (*src)[0] = Place(graph_->Make(Op::kIndex, DType::kVoid, with));
      break;
    }
    case kWaitCount:
      (*arg)[0] += u.number() == 0 || Below(4) != 0 ? 1 : -1;
      break;
    case kPlace:
      (*src)[0] = Do(Op::kAdd, (*src)[0], Below(2) == 0 ? 1 : -1);
      break;
    case kPlaces: {
      const int64_t places = u.src(1).const_word();
      const int64_t others = places > 1 && Below(2) == 0 ? places - 1 : places + 1;
      (*src)[1] = Place(graph_->Const(u.src(1).dtype(), others));
      break;
    }
    case kDepth:
      (*src)[1] = Place(graph_->Const(u.src(1).dtype(), u.src(1).const_word() + (fewer_ ? -1 : 1)));
      break;
    case kStride: {
      const LinearForm form = FormOf(u.src(1));
      const auto term = std::next(form.terms.begin(), Below(std::ssize(form.terms)));
      const UOp atom = graph_->at(copied_[term->first]);
      const int64_t other = Below(2) == 0 ? -term->second / 2 : Below(2) == 0 ? 1 : -1;
      (*src)[1] = Place(graph_->Make(Op::kAdd, {(*src)[1], Do(Op::kMul, atom, other)}));
      break;
    }
    case kWaitMoved:
    case kBarrierMoved:
      break;
    case kBarrier:
      (*arg)[0] = static_cast<int64_t>(Scope::kThread);
      break;
    default: {
      int64_t& elements = out_.arguments[u.slot()].elements;
      elements -= 1 + Below(std::min<int64_t>(elements - 1, 8));
      (*arg)[2] = elements;
    }
  }
}

void Mutator::Iterate(UOp range, int64_t most) {
  const AxisType type = range.axis_type();
  if (type != AxisType::kThread && type != AxisType::kGroup) return;
  const int64_t others = out_.iterations / std::max<int64_t>(range.src(0).vmax(), 1);
  if (!CheckedMul(others, most, &out_.iterations)) out_.iterations = INT64_MAX;
}

UOp Mutator::OtherEnd(UOp end, UOp copy) {
  std::vector<UOp> numbers;
  for (uint32_t id : PostOrder(end)) {
    if (g_.at(id).is(Op::kLoad) && IsInt(g_.at(id).dtype())) numbers.push_back(g_.at(id));
  }
  if (numbers.empty() || Below(2) == 0) return Do(Op::kAdd, copy, 1 + Below(12));
  const UOp number = graph_->at(copied_[numbers[Below(std::ssize(numbers))].id()]);
  return number.dtype() == copy.dtype() ? number : Cast(copy.dtype(), number);
}

UOp Mutator::Do(Op op, UOp x, int64_t y) {
  return Place(graph_->Make(op, {x, Place(graph_->Const(x.dtype(), y))}));
}

UOp Mutator::Narrowed(UOp index) {
  switch (Below(4)) {
    case 0:
      return Cast(DType::kInt32, Do(Op::kAdd, Cast(DType::kInt64, index), HighBits()));
    case 1:
      return Do(Op::kAdd, Cast(DType::kInt32, index), HighBits());
    case 2: {
      const UOp product = Do(Op::kMul, Cast(DType::kInt32, index), HighBits() + 1 + Below(4));
      return Do(Op::kFloorDiv, product, 1 + Below(8));
    }
    default: {
      const UOp sum = Do(Op::kAdd, index, 120 + Below(30));
      return Do(Op::kAdd, Cast(DType::kInt32, Cast(DType::kInt8, sum)), -120);
    }
  }
}

UOp Mutator::OtherTerms(Mutation kind, UOp index, UOp copy) {
  const LinearForm form = FormOf(index);
  std::vector<std::pair<uint32_t, int64_t>> terms(form.terms.begin(), form.terms.end());
  std::ranges::shuffle(terms, random_);
  const auto add = [&](UOp x, uint32_t atom, int64_t times) {
    return Place(graph_->Make(Op::kAdd, {x, Do(Op::kMul, graph_->at(copied_[atom]), times)}));
  };
  if (kind == kDropTerm) return add(copy, terms[0].first, -terms[0].second);
  const int64_t more = terms[1].second - terms[0].second;
  return add(add(copy, terms[0].first, more), terms[1].first, -more);
}

void Mutator::Weaken(UOp gate, std::vector<UOp>* src) {
  if (!gate.is(Op::kAnd) || Below(3) == 0) {
    src->pop_back();
  } else {
    (*src)[2] = graph_->at(copied_[gate.src(static_cast<int>(Below(2))).id()]);
  }
}

}  // namespace telegrad::testing
