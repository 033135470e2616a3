// Matching walks the tokens of the pattern and the node together with a stack of nodes still to
// match. An order of the operands of each commutative op is one bit of a mask; all masks are tried
// until one order matches, its condition holds and its replacement exists. Patterns are at most 16
// tokens long, so the recursion over a pattern in Build and Compute is bounded by the rule, not by
// a client.
#include "engine/rewrite/match.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "engine/base/checked.h"
#include "engine/base/strings.h"
#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

// In a pattern with more commutative ops, the later ones match only in the written order.
constexpr int kMaxCommutative = 6;

// Where a match ended.
struct Miss {
  int token = -1;
  int commutative = 0;  // commutative ops before it
  UOp at;
};

// The nodes that the names stand for, or kUnbound.
constexpr uint32_t kUnbound = 0xffffffff;
struct Names {
  uint32_t vars[3] = {kUnbound, kUnbound, kUnbound};
  uint32_t consts[3] = {kUnbound, kUnbound, kUnbound};
};

Match ToMatch(UOp root, const Names& names) {
  const auto node = [&](uint32_t id) { return id == kUnbound ? UOp() : UOp(root.graph(), id); };
  return {root,
          {node(names.vars[0]), node(names.vars[1]), node(names.vars[2])},
          {node(names.consts[0]), node(names.consts[1]), node(names.consts[2])}};
}

bool MatchConst(const Token& token, UOp u) {
  if (!u.is_const()) return false;
  const int64_t word = u.const_word();
  if (token.kind == Token::kFloat) return IsFloat(u.dtype()) && word == token.value;
  return word == ScalarFromInt(u.dtype(), token.value);
}

bool Bind(uint32_t id, uint32_t* name) {
  if (*name == kUnbound) *name = id;
  return *name == id;
}

// Is(op, kCommutes), where it is asked for every token.
constexpr bool Commutes(Op op) {
  constexpr bool kTable[] = {
#define OP(name, text, wire, min_src, max_src, arg, traits, ...) ((traits) & kCommutes) != 0,
#include "engine/ir/ops.def"
#undef OP
  };
  return kTable[static_cast<size_t>(op)];
}

bool Swapped(uint32_t swaps, int i) { return i < kMaxCommutative && (swaps >> i & 1) != 0; }

// Bit i of `swaps` says that the i-th commutative op of the pattern is met with its operands
// swapped.
bool MatchTokens(const Pat& pat, UOp root, uint32_t swaps, Names* names, Miss* miss) {
  const Graph& graph = *root.graph();
  uint32_t stack[3 * Pat::kMaxTokens];
  int depth = 0, commutative = 0;
  stack[depth++] = root.id();
  for (int i = 0; i < pat.size(); ++i) {
    const Token& token = pat[i];
    const uint32_t id = stack[--depth];
    bool ok = false;
    switch (token.kind) {
      case Token::kVar:
        ok = Bind(id, &names->vars[token.index]);
        break;
      case Token::kConst:
        ok = graph.op(id) == Op::kConst && Bind(id, &names->consts[token.index]);
        break;
      case Token::kInt:
      case Token::kFloat:
        ok = MatchConst(token, graph.at(id));
        break;
      case Token::kOp: {
        ok = graph.op(id) == token.op;
        if (!ok) break;
        const std::span<const uint32_t> src = graph.src(id);
        const bool swap = Commutes(token.op) && Swapped(swaps, commutative++);
        for (size_t s = src.size(); s-- > 0;) stack[depth++] = src[swap ? 1 - s : s];
        break;
      }
      default:
        break;
    }
    if (!ok) {
      *miss = {i, commutative, graph.at(id)};
      return false;
    }
  }
  return true;
}

// --- conditions and constants ---

enum class Overflow { kWraps, kFails };

// Floor division; neither b = 0 nor INT64_MIN / -1.
int64_t Quotient(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
int64_t Remainder(int64_t a, int64_t b) {
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

bool Arithmetic(Op op, int64_t a, int64_t b, Overflow overflow, int64_t* out) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const bool wraps = overflow == Overflow::kWraps;
  switch (op) {
    case Op::kAdd:
      *out = static_cast<int64_t>(ua + ub);
      return wraps || CheckedAdd(a, b, out);
    case Op::kSub:
      *out = static_cast<int64_t>(ua - ub);
      return wraps || CheckedSub(a, b, out);
    case Op::kMul:
      *out = static_cast<int64_t>(ua * ub);
      return wraps || CheckedMul(a, b, out);
    case Op::kFloorDiv:
    case Op::kFloorMod:
      if (b == 0 || (a == INT64_MIN && b == -1)) return false;
      *out = op == Op::kFloorDiv ? Quotient(a, b) : Remainder(a, b);
      return true;
    case Op::kMax:
      *out = a < b ? b : a;
      return true;
    case Op::kCmpLt:
      *out = a < b;
      return true;
    case Op::kCmpEq:
      *out = a == b;
      return true;
    case Op::kCmpNe:
      *out = a != b;
      return true;
    case Op::kAnd:
      *out = a & b;
      return true;
    case Op::kOr:
      *out = a | b;
      return true;
    case Op::kXor:
      *out = a ^ b;
      return true;
    case Op::kShl:
      if (b < 0 || b > 62) return false;
      *out = static_cast<int64_t>(ua << b);
      return wraps || *out >> b == a;
    default:
      return false;
  }
}

// Computes the subpattern at `i` in int64. False where it has no value.
bool Compute(const Pat& pat, int i, const Match& m, Overflow overflow, int64_t* out) {
  const Token& token = pat[i];
  switch (token.kind) {
    case Token::kVar:
      return false;
    case Token::kConst:
      *out = m.consts[token.index].const_word();
      return true;
    case Token::kInt:
      *out = token.value;
      return true;
    case Token::kFloat:
      return false;
    case Token::kLo:
      *out = m.vars[token.index].vmin();
      return true;
    case Token::kHi:
      *out = m.vars[token.index].vmax();
      return true;
    case Token::kFits: {
      // A u64 has words above INT64_MAX; nothing is said about those.
      const DType dtype = ElementType(m.root);
      int64_t value;
      if (dtype == DType::kUInt64 || !Compute(pat, i + 1, m, overflow, &value)) return false;
      *out = ScalarFromInt(dtype, value) == value;
      return true;
    }
    case Token::kOp: {
      int64_t a = 0, b;
      if (token.op == Op::kNeg) {
        return Compute(pat, i + 1, m, overflow, &b) && Arithmetic(Op::kSub, 0, b, overflow, out);
      }
      return Operands(token) == 2 && Compute(pat, i + 1, m, overflow, &a) &&
             Compute(pat, pat.Skip(i + 1), m, overflow, &b) &&
             Arithmetic(token.op, a, b, overflow, out);
    }
  }
  return false;
}

bool Holds(const When& when, const Match& m) {
  if (when.condition.empty()) return true;
  int64_t value;
  return Compute(when.condition, 0, m, Overflow::kFails, &value) && value != 0;
}

// --- replacements ---

bool OnlyConstants(const Pat& pat, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    if (pat[i].kind == Token::kVar || pat[i].kind == Token::kFloat) return false;
  }
  return true;
}

// The element type that the named values in [begin, end) have.
DType TypeIn(const Pat& pat, int begin, int end, const Match& m, DType otherwise) {
  for (int i = begin; i < end; ++i) {
    if (pat[i].kind == Token::kVar) return m.vars[pat[i].index].dtype();
    if (pat[i].kind == Token::kConst) return m.consts[pat[i].index].dtype();
  }
  return otherwise;
}

UOp Build(const Pat& pat, int i, DType dtype, const Match& m, Rewriter& b) {
  const Token& token = pat[i];
  switch (token.kind) {
    case Token::kVar:
      return m.vars[token.index];
    case Token::kConst:
      return m.consts[token.index];
    case Token::kInt:
      return b.graph()->Const(dtype, token.value);
    case Token::kFloat:
      return b.graph()->ConstFloat(dtype, std::bit_cast<double>(token.value));
    case Token::kOp:
      break;
    default: {
      int64_t value;
      if (!Compute(pat, i, m, Overflow::kWraps, &value)) return {};
      return b.graph()->Const(dtype, value);
    }
  }
  const int end = pat.Skip(i);
  if (!IsFloat(dtype) && OnlyConstants(pat, i, end)) {
    int64_t value;
    if (!Compute(pat, i, m, Overflow::kWraps, &value)) return {};
    return b.graph()->Const(dtype, value);
  }
  std::array<UOp, 3> src;
  int n = 0;
  for (int at = i + 1; at < end; at = pat.Skip(at), ++n) {
    DType of = dtype;
    if (Info(token.op).type_rule == TypeRule::kCompare) of = TypeIn(pat, i, end, m, dtype);
    if (token.op == Op::kWhere && n == 0) of = DType::kBool;
    src[n] = Build(pat, at, of, m, b);
    if (!src[n].valid()) return {};
  }
  return b.Make(token.op, dtype, std::span<const UOp>(src.data(), n));
}

UOp Replace(const Rule& rule, const Match& m, Rewriter& b) {
  UOp out = rule.fn != nullptr ? rule.fn(b, m) : Build(rule.rhs, 0, m.root.dtype(), m, b);
  if (!out.valid() || out == m.root || out.dtype() != m.root.dtype()) return {};
  return b.WithShapeOf(out, m.root);
}

// The orders that agree with `order` in its lowest `bits` bits.
uint64_t SamePrefix(uint32_t order, int bits) {
  static constexpr uint64_t kEvery[] = {~0ull,
                                        0x5555555555555555,
                                        0x1111111111111111,
                                        0x0101010101010101,
                                        0x0001000100010001,
                                        0x0000000100000001,
                                        1};
  bits = std::min(bits, kMaxCommutative);
  return kEvery[bits] << (order & ((1u << bits) - 1));
}

}  // namespace

uint32_t CountOrders(const Pat& lhs) {
  int n = 0;
  for (int i = 0; i < lhs.size(); ++i) n += lhs[i].kind == Token::kOp && Commutes(lhs[i].op);
  return 1u << std::min(n, kMaxCommutative);
}

UOp ApplyOrders(const Rule& rule, uint32_t orders, UOp u, Rewriter& b) {
  if (rule.lhs.size() == 1 && rule.lhs[0].kind == Token::kVar) {  // rows for every node
    const Match m{u, {u, {}, {}}, {}};
    return Holds(rule.when, m) ? Replace(rule, m, b) : UOp();
  }
  // A match that ends before the next commutative op ends there whatever that one's order is.
  uint64_t left = SamePrefix(0, 0) >> (64 - orders);
  while (left != 0) {
    const auto swaps = static_cast<uint32_t>(std::countr_zero(left));
    Names names;
    Miss miss;
    if (!MatchTokens(rule.lhs, u, swaps, &names, &miss)) {
      left &= ~SamePrefix(swaps, miss.commutative);
      continue;
    }
    left &= left - 1;
    const Match m = ToMatch(u, names);
    if (!Holds(rule.when, m)) continue;
    if (UOp out = Replace(rule, m, b); out.valid()) return out;
  }
  return {};
}

UOp Apply(const Rule& rule, UOp u, Rewriter& b) {
  if (!Has(rule.when.types, ElementType(u))) return {};
  return ApplyOrders(rule, CountOrders(rule.lhs), u, b);
}

namespace {

std::string NodeText(UOp u) {
  std::string text = StrCat("%", u.id(), " (", Name(u.op()));
  if (u.is_const() && !IsFloat(u.dtype())) StrAppend(&text, " ", u.const_word());
  return text + ")";
}

// What stood where the subpattern at miss.token was expected. `m` is as the match left it.
std::string ExplainMiss(const Pat& lhs, const Miss& miss, const Match& m) {
  const Token& token = lhs[miss.token];
  const std::string found = StrCat(", found ", NodeText(miss.at));
  const std::string expected = StrCat("expected ", Text(lhs.Sub(miss.token)));
  if (token.kind == Token::kVar)
    return StrCat(expected, " = ", NodeText(m.vars[token.index]), found);
  if (token.kind == Token::kConst && miss.at.is_const()) {
    return StrCat(expected, " = ", NodeText(m.consts[token.index]), found);
  }
  return StrCat(expected, found);
}

// The first of the conjuncts of the condition at `i` that is false, with the values in it.
std::string ExplainCondition(const Pat& condition, int i, const Match& m) {
  int64_t value;
  while (condition[i].kind == Token::kOp && condition[i].op == Op::kAnd) {
    const bool first = Compute(condition, i + 1, m, Overflow::kFails, &value) && value != 0;
    i = first ? condition.Skip(i + 1) : i + 1;
  }
  const bool computed = Compute(condition, i, m, Overflow::kFails, &value);
  std::string text = StrCat(Text(condition.Sub(i)), computed ? " is false" : " overflows");
  std::vector<std::string> said;
  for (int end = condition.Skip(i); i < end; ++i) {
    const Token::Kind kind = condition[i].kind;
    if (kind != Token::kConst && kind != Token::kLo && kind != Token::kHi) continue;
    const std::string name = Text(condition.Sub(i));
    if (std::ranges::find(said, name) != said.end()) continue;
    if (!Compute(condition, i, m, Overflow::kFails, &value)) continue;
    StrAppend(&text, said.empty() ? ": " : ", ", name, " = ", value);
    said.push_back(name);
  }
  return text;
}

}  // namespace

std::string Explain(const Rule& rule, UOp u, Rewriter& b) {
  if (!Has(rule.when.types, ElementType(u))) {
    return StrCat("the element type ", Name(ElementType(u)), " is not one of the row's");
  }
  Miss furthest;
  std::string miss_text, condition_text;
  bool matched = false;
  for (uint32_t swaps = 0; swaps < CountOrders(rule.lhs); ++swaps) {
    Names names;
    Miss miss;
    const bool met = MatchTokens(rule.lhs, u, swaps, &names, &miss);
    const Match m = ToMatch(u, names);
    if (!met) {
      if (miss.token <= furthest.token) continue;
      furthest = miss;
      miss_text = ExplainMiss(rule.lhs, miss, m);
      continue;
    }
    if (!Holds(rule.when, m)) {
      if (condition_text.empty()) condition_text = ExplainCondition(rule.when.condition, 0, m);
      continue;
    }
    matched = true;
    if (const UOp out = Replace(rule, m, b); out.valid()) {
      return StrCat("matches, giving ", NodeText(out));
    }
  }
  if (matched) {
    return rule.fn != nullptr
               ? "the pattern matches, but the row's function found nothing to do"
               : "the pattern matches, but the replacement is the node itself or has "
                 "no value";
  }
  return condition_text.empty() ? miss_text : condition_text;
}

}  // namespace telegrad
