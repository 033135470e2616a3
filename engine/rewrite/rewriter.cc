// Dispatch: for every op there is a bitset of the rows that may match at such a root, and for each
// of the first three sources one of the rows that admit such a source. Their intersection is all
// that is looked at, in priority order.
//
// A node is entered in the memo as itself before its rules run. So a rule whose replacement leads
// back to the node finds it final, and no chain of rules can run forever. Replacements are built
// with Make, which simplifies them in turn: the nesting is as deep as the rules' chains, and past
// kMaxDepth a node is left as it is, which is correct, only not simpler.
#include "engine/rewrite/rewriter.h"

#include <algorithm>
#include <bit>

#include "engine/base/strings.h"
#include "engine/rewrite/match.h"
#include "engine/rewrite/rule.h"

namespace telegrad {
namespace {

constexpr uint32_t kNone = 0xffffffff;
constexpr int kMaxDepth = 200;

// Calls set(op) for every op that the token admits.
template <typename F>
void ForEachAdmitted(const Token& token, F set) {
  if (token.kind == Token::kOp) return set(token.op);
  if (token.kind != Token::kVar) return set(Op::kConst);
  for (int op = 0; op < kNumOps; ++op) set(static_cast<Op>(op));
}

}  // namespace

Rewriter::Rewriter(Graph* graph, std::span<const RuleTable* const> tables, Budget* budget,
                   Shapes shapes)
    : graph_(graph), budget_(budget), shapes_(shapes), memo_(*graph, kNone) {
  for (const RuleTable* table : tables) {
    for (const Rule& rule : table->rules()) rows_.push_back({&rule, table, 0});
  }
  words_ = static_cast<int>((rows_.size() + 63) / 64);
  root_.resize(kNumOps * words_);
  for (auto& child : child_) child.resize(kNumOps * words_);
  for (size_t r = 0; r < rows_.size(); ++r) {
    const Pat& lhs = rows_[r].rule->lhs;
    const auto admit = [&](const Token& token, std::vector<uint64_t>& bits) {
      ForEachAdmitted(token, [&](Op op) {
        bits[static_cast<size_t>(op) * words_ + r / 64] |= uint64_t{1} << (r % 64);
      });
    };
    admit(lhs[0], root_);
    const int operands = lhs[0].kind == Token::kOp ? Operands(lhs[0]) : 0;
    const bool commutes = lhs[0].kind == Token::kOp && Is(lhs[0].op, kCommutes);
    for (int at = 1, i = 0; i < operands; at = lhs.Skip(at), ++i) {
      for (int s = 0; s < std::min(operands, 3); ++s) {
        if (i == s || commutes) admit(lhs[at], child_[s]);
      }
    }
    for (int s = operands; s < 3; ++s) admit(Token{}, child_[s]);
  }
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
  const int n = std::min(u.num_src(), 3);
  const size_t at = static_cast<size_t>(u.op()) * words_;
  size_t source_at[3];
  for (int s = 0; s < n; ++s) source_at[s] = static_cast<size_t>(u.src(s).op()) * words_;
  for (int w = 0; w < words_; ++w) {
    uint64_t candidates = root_[at + w];
    for (int s = 0; s < n; ++s) candidates &= child_[s][source_at[s] + w];
    for (; candidates != 0; candidates &= candidates - 1) {
      Row& row = rows_[w * 64 + std::countr_zero(candidates)];
      const UOp out = Apply(*row.rule, u, *this);
      if (failed_) return {};
      if (out.valid()) {
        ++row.hits;
        return Spend() ? out : UOp();
      }
    }
  }
  return {};
}

UOp Rewriter::Simplify(UOp u) {
  if (memo_.at(u.id()) != kNone) return graph_->at(memo_.at(u.id()));
  if (depth_ >= kMaxDepth) return u;
  ++depth_;
  std::vector<uint32_t> seen{u.id()};
  memo_[u] = u.id();
  UOp now = u;
  while (true) {
    const UOp next = Step(now);
    if (!next.valid()) break;
    now = next;
    if (memo_.at(now.id()) != kNone) {
      now = graph_->at(memo_.at(now.id()));
      break;
    }
    memo_[now] = now.id();
    seen.push_back(now.id());
  }
  for (uint32_t id : seen) memo_[id] = now.id();
  --depth_;
  return failed_ ? UOp() : now;
}

UOp Rewriter::WithShapeOf(UOp u, UOp old) {
  const ShapeView shape = old.shape();
  if (std::ranges::equal(u.shape(), shape)) return u;
  if (!u.shape().empty()) return {};
  if (shapes_ == Shapes::kBroadcast) return u;
  const std::vector<int64_t> dims(shape.begin(),
                                  shape.end());  // `shape` may move as nodes are made
  const std::vector<int64_t> ones(dims.size(), 1);
  return graph_->Make(Op::kExpand, {graph_->Make(Op::kReshape, {u}, ones)}, dims);
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

int64_t Rewriter::Hits(const Rule& rule) const {
  for (const Row& row : rows_) {
    if (row.rule == &rule) return row.hits;
  }
  return 0;
}

std::string Rewriter::HitReport() const {
  std::vector<const Row*> hit;
  for (const Row& row : rows_) {
    if (row.hits > 0) hit.push_back(&row);
  }
  std::ranges::stable_sort(hit, std::greater<>(), &Row::hits);
  std::string text;
  for (const Row* row : hit) {
    StrAppend(&text, row->table->name(), ":", row->rule->line, " ", row->hits, " ",
              Text(*row->rule), "\n");
  }
  return text;
}

}  // namespace telegrad
