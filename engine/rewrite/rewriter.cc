// Dispatch: for every op there is a bitset of the rows that may match at such a root, and for each
// of the first three sources one of the rows that admit such a source; a row of a commutative root
// may admit them swapped. What these leave of the rows is all that is looked at, in priority order.
//
// A node is entered in the memo as itself before its rules run. So a rule whose replacement leads
// back to the node finds it final, and no chain of rules can run forever. Replacements are built
// with Make, which simplifies them in turn: the nesting is as deep as the rules' chains, and past
// kMaxDepth a node is left as it is, which is correct, only not simpler.
#include "engine/rewrite/rewriter.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "engine/rewrite/match.h"
#include "engine/rewrite/observer.h"
#include "engine/rewrite/rule.h"

namespace telegrad {
namespace {

constexpr uint32_t kNone = 0xffffffff;
constexpr int kMaxDepth = 200;

using Clock = std::chrono::steady_clock;

// The only op that `token` matches; nullopt if it matches any.
std::optional<Op> OnlyOp(const Token& token) {
  switch (token.kind) {
    case Token::kVar:
      return std::nullopt;
    case Token::kOp:
      return token.op;
    default:
      return Op::kConst;
  }
}

// Of two values whose dims have the same upper bounds.
bool SameDims(UOp u, UOp old) {
  if (!u.symbolic() && !old.symbolic()) return true;
  for (int axis = 0; axis < static_cast<int>(u.shape().size()); ++axis) {
    if (u.dim(axis) != old.dim(axis)) return false;
  }
  return true;
}

}  // namespace

void Rewriter::Column::Reset(size_t n) {
  words = n;
  bits.assign(kNumOps * words, 0);
  any.assign(words, 0);
}

void Rewriter::Column::Admit(size_t row, std::optional<Op> op) {
  uint64_t* rows = op ? bits.data() + static_cast<size_t>(*op) * words : any.data();
  rows[row / 64] |= uint64_t{1} << (row % 64);
}

void Rewriter::Column::SpreadAny(bool only_alu) {
  for (int o = 0; o < kNumOps; ++o) {
    if (only_alu && !Is(static_cast<Op>(o), kAlu)) continue;
    for (size_t w = 0; w < words; ++w) bits[o * words + w] |= any[w];
  }
}

Rewriter::Rewriter(Graph* graph, std::span<const RuleTable* const> tables, Budget* budget,
                   Shapes shapes)
    : graph_(graph), budget_(budget), shapes_(shapes), memo_(*graph, kNone) {
  for (const RuleTable* table : tables) {
    for (const Rule& rule : table->rules()) rows_.push_back({&rule, table, CountOrders(rule.lhs)});
  }
  words_ = (rows_.size() + 63) / 64;
  for (Column* column :
       {&root_, &straight_[0], &straight_[1], &straight_[2], &swapped_[0], &swapped_[1]}) {
    column->Reset(words_);
  }
  type_.resize(AllDTypes().size() * words_);
  for (size_t r = 0; r < rows_.size(); ++r) {
    const Rule& rule = *rows_[r].rule;
    const Token& top = rule.lhs[0];
    root_.Admit(r, OnlyOp(top));
    const int operands = Operands(top);
    for (int at = 1, s = 0; s < operands; at = rule.lhs.Skip(at), ++s) {
      const std::optional<Op> op = OnlyOp(rule.lhs[at]);
      straight_[s].Admit(r, op);
      if (Is(top.op, kCommutes)) swapped_[1 - s].Admit(r, op);
    }
    for (int s = operands; s < 3; ++s) straight_[s].Admit(r, std::nullopt);
    for (const DTypeInfo& info : AllDTypes()) {
      if (!Has(rule.when.types, info.dtype)) continue;
      type_[static_cast<size_t>(info.dtype) * words_ + r / 64] |= uint64_t{1} << (r % 64);
    }
  }
  root_.SpreadAny(/*only_alu=*/true);
  for (Column& column : straight_) column.SpreadAny();
  for (Column& column : swapped_) column.SpreadAny();
}

bool Rewriter::Spend() {
  if (failed_) return false;
  if (absl::Status status = budget_->SpendRewrites(); !status.ok()) {
    graph_->Fail(std::move(status));
    failed_ = true;
  }
  return !failed_;
}

UOp Rewriter::Make(Op op, DType dtype, std::span<const UOp> src, std::span<const int64_t> arg) {
  if (!Spend()) return {};
  const UOp u = graph_->Make(op, dtype, src, arg);
  return u.valid() ? Simplify(u) : u;
}

UOp Rewriter::Step(UOp u) {
  const std::span<const uint32_t> src = graph_->src(u.id());
  const size_t n = std::min<size_t>(src.size(), 3);
  const uint64_t* root = root_.Of(u.op());
  const uint64_t* type = type_.data() + static_cast<size_t>(ElementType(u)) * words_;
  const uint64_t *straight[3], *swapped[2];
  for (size_t s = 0; s < n; ++s) straight[s] = straight_[s].Of(graph_->op(src[s]));
  for (size_t s = 0; n == 2 && s < 2; ++s) swapped[s] = swapped_[s].Of(graph_->op(src[s]));
  for (size_t w = 0; w < words_; ++w) {
    uint64_t candidates = root[w] & type[w];
    if (candidates == 0) continue;
    uint64_t admitted = ~uint64_t{0};
    for (size_t s = 0; s < n; ++s) admitted &= straight[s][w];
    if (n == 2) admitted |= swapped[0][w] & swapped[1][w];
    for (candidates &= admitted; candidates != 0; candidates &= candidates - 1) {
      const Row& row = rows_[w * 64 + std::countr_zero(candidates)];
      const UOp out =
          observer_ == nullptr ? ApplyOrders(*row.rule, row.orders, u, *this) : Try(row, u);
      if (failed_) return {};
      if (out.valid()) return Spend() ? out : UOp();
    }
  }
  return {};
}

UOp Rewriter::Try(const Row& row, UOp u) {
  RuleTry report{row.table, row.rule, u, {}};
  if (--until_timed_ > 0) {
    report.after = ApplyOrders(*row.rule, row.orders, u, *this);
  } else {
    until_timed_ = kTriesPerSample;
    std::chrono::nanoseconds nested{0};
    std::chrono::nanoseconds* const outer = std::exchange(nested_, &nested);
    const auto begin = Clock::now();
    report.after = ApplyOrders(*row.rule, row.orders, u, *this);
    report.nanoseconds = (Clock::now() - begin - nested).count();
    nested_ = outer;
  }
  observer_->OnTry(report);
  return report.after;
}

UOp Rewriter::Simplify(UOp u) {
  if (memo_.at(u.id()) != kNone) return graph_->at(memo_.at(u.id()));
  if (depth_ >= kMaxDepth) return u;
  if (nested_ == nullptr) return SimplifyNew(u);
  // What happens in here is not the time of the try that asked for it.
  std::chrono::nanoseconds* const nested = std::exchange(nested_, nullptr);
  const auto begin = Clock::now();
  const UOp out = SimplifyNew(u);
  *nested += Clock::now() - begin;
  nested_ = nested;
  return out;
}

UOp Rewriter::SimplifyNew(UOp u) {
  ++depth_;
  memo_[u] = u.id();
  UOp now = u;
  std::vector<uint32_t> seen;  // the nodes between `u` and the last
  for (UOp next = Step(u); next.valid(); next = Step(now)) {
    now = next;
    if (const uint32_t known = memo_.at(now.id()); known != kNone) {
      now = graph_->at(known);
      break;
    }
    memo_[now] = now.id();
    seen.push_back(now.id());
  }
  memo_[u] = now.id();
  for (uint32_t id : seen) memo_[id] = now.id();
  --depth_;
  return failed_ ? UOp() : now;
}

UOp Rewriter::WithShapeOf(UOp u, UOp old) {
  if (std::ranges::equal(u.shape(), old.shape()) && SameDims(u, old)) return u;
  if (!u.shape().empty()) return {};
  if (shapes_ == Shapes::kBroadcast) return u;
  std::vector<int64_t> dims(old.shape().begin(), old.shape().end());  // may move as nodes are made
  const UOp one = graph_->Make(Op::kReshape, {u}, std::vector<int64_t>(dims.size(), 1));
  std::vector<UOp> src{one};
  for (size_t axis = 0; old.symbolic() && axis < dims.size(); ++axis) {
    const UOp dim = old.dim(static_cast<int>(axis));
    if (!dim.valid()) continue;
    dims[axis] = -static_cast<int64_t>(src.size()) - 1;
    src.push_back(dim);
  }
  return graph_->Make(Op::kExpand, DType::kVoid, src, dims);
}

UOp Rewriter::Rewrite(UOp root) {
  if (!root.valid() || failed_) return {};
  NodeMap<uint32_t> now(*graph_, kNone);
  std::vector<UOp> src;
  std::vector<int64_t> arg;
  const auto expand = [&](UOp u, UOp old) {
    const Shapes saved = std::exchange(shapes_, Shapes::kExact);
    const UOp out = WithShapeOf(u, old);
    shapes_ = saved;
    return out;
  };
  for (uint32_t id : PostOrder(root)) {
    const UOp old = graph_->at(id);
    const Op op = old.op();
    src.clear();
    for (int i = 0; i < old.num_src(); ++i) {
      // Only elementwise consumers, and STORE for its value, take a scalar in place of a shaped
      // value.
      UOp s = graph_->at(now[old.src(i).id()]);
      if (!Is(op, kAlu) && !(op == Op::kStore && i == 1)) s = expand(s, old.src(i));
      src.push_back(s);
    }
    arg.assign(old.arg().begin(), old.arg().end());
    const UOp made = Make(op, old.dtype(), src, arg);
    if (!made.valid()) return {};
    now[id] = made.id();
  }
  return expand(graph_->at(now[root.id()]), root);
}

}  // namespace telegrad
