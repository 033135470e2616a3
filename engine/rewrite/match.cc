// Matching walks the tokens of the pattern and the node together with a stack of nodes still to
// match. An order of the operands of each commutative op is one bit of a mask; all masks are tried
// until one order matches, its condition holds and its replacement exists. Patterns are at most 16
// tokens long, so the recursion over a pattern in Build and Compute is bounded by the rule, not by
// a client.
#include "engine/rewrite/match.h"

#include <utility>

#include "engine/base/checked.h"
#include "engine/base/strings.h"
#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

// Where a match ended; filled only for Explain.
struct Miss {
  int token = -1;
  UOp at;
};

bool MatchConst(const Token& token, UOp u) {
  if (!u.is_const()) return false;
  const int64_t word = u.const_word();
  if (token.kind == Token::kFloat) return IsFloat(u.dtype()) && word == token.value;
  return word == ScalarFromInt(u.dtype(), token.value);
}

bool Bind(UOp u, UOp* name) {
  if (!name->valid()) *name = u;
  return *name == u;
}

bool MatchTokens(const Pat& pat, UOp root, uint32_t swaps, Match* m, Miss* miss) {
  std::array<UOp, 3 * Pat::kMaxTokens> stack;
  int depth = 0;
  stack[depth++] = root;
  m->root = root;
  for (int i = 0; i < pat.size(); ++i) {
    const Token& token = pat[i];
    const UOp u = stack[--depth];
    bool ok = false;
    switch (token.kind) {
      case Token::kVar:
        ok = Bind(u, &m->vars[token.index]);
        break;
      case Token::kConst:
        ok = u.is_const() && Bind(u, &m->consts[token.index]);
        break;
      case Token::kInt:
      case Token::kFloat:
        ok = MatchConst(token, u);
        break;
      case Token::kOp: {
        ok = u.op() == token.op;
        if (!ok) break;
        const bool commutes = Is(token.op, kCommutes);
        const bool swap = commutes && (swaps & 1);
        if (commutes) swaps >>= 1;
        for (int s = u.num_src() - 1; s >= 0; --s) stack[depth++] = u.src(swap ? 1 - s : s);
        break;
      }
      default:
        break;
    }
    if (!ok) {
      *miss = {i, u};
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

DType ElementType(UOp root) { return root.num_src() > 0 ? root.src(0).dtype() : root.dtype(); }

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

int CommutativeOps(const Pat& pat) {
  int n = 0;
  for (int i = 0; i < pat.size(); ++i) n += pat[i].kind == Token::kOp && Is(pat[i].op, kCommutes);
  return n;
}

}  // namespace

UOp Apply(const Rule& rule, UOp u, Rewriter& b) {
  if (!Has(rule.when.types, ElementType(u))) return {};
  const uint32_t orders = 1u << CommutativeOps(rule.lhs);
  Miss miss;
  for (uint32_t swaps = 0; swaps < orders; ++swaps) {
    Match m;
    if (!MatchTokens(rule.lhs, u, swaps, &m, &miss)) {
      if (miss.token == 0) return {};
      continue;
    }
    if (!Holds(rule.when, m)) continue;
    if (UOp out = Replace(rule, m, b); out.valid()) return out;
  }
  return {};
}

std::string Explain(const Rule& rule, UOp u, Rewriter& b) {
  std::string text = StrCat(Text(rule), " at node ", u.id(), " (", Name(u.op()), "): ");
  if (!Has(rule.when.types, ElementType(u))) {
    return StrCat(text, "the element type ", Name(ElementType(u)), " is not in the row's types");
  }
  const uint32_t orders = 1u << CommutativeOps(rule.lhs);
  Miss furthest;
  bool structure = false, condition = false;
  for (uint32_t swaps = 0; swaps < orders; ++swaps) {
    Match m;
    Miss miss;
    if (!MatchTokens(rule.lhs, u, swaps, &m, &miss)) {
      if (miss.token > furthest.token) furthest = miss;
      continue;
    }
    structure = true;
    if (!Holds(rule.when, m)) continue;
    condition = true;
    if (const UOp out = Replace(rule, m, b); out.valid()) {
      return StrCat(text, "matches, giving node ", out.id());
    }
  }
  if (condition) return StrCat(text, "matches, but there is no other node to replace it with");
  if (structure) return StrCat(text, "the condition does not hold");
  const Token& token = rule.lhs[furthest.token];
  Pat expected(token);
  return StrCat(text, "token ", furthest.token, " expects ",
                token.kind == Token::kOp ? std::string(Name(token.op)) : Text(expected),
                ", found node ", furthest.at.id(), " (", Name(furthest.at.op()), ")");
}

}  // namespace telegrad
