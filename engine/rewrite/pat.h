// Patterns as values: up to 16 preorder tokens, written with ordinary operators so that a rule
// reads as the identity it states, and kept as data so that it can be printed, indexed, counted and
// tested.
//
//   x y z        any value; the same name twice is the same node
//   c0 c1 c2     a CONST
//   0, 1, -1     a CONST of that value in the element type at that place (-1: all bits of a bool or
//   unsigned) -0.0, 0.5    a CONST of exactly that float x / y, x % y floor division and modulo;
//   fdiv is the division of floats
//
// In a condition (see when() in rule.h) the same expressions are computed on the values of the
// matched constants; lo(x), hi(x) are the bounds of a value, fits(e) says that e lies within the
// rule's element type.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/ir/op.h"

namespace telegrad {

struct Token {
  enum Kind : uint8_t {
    kVar,    // x, y, z: index 0, 1, 2
    kConst,  // c0, c1, c2: index 0, 1, 2
    kInt,    // a literal integer
    kFloat,  // a literal float: value holds the bits of a double
    kOp,     // its operands follow
    kLo,     // lower bound of the variable `index`
    kHi,     // upper bound
    kFits,   // one operand follows
  };
  Kind kind = kVar;
  Op op = Op::kConst;
  uint8_t index = 0;
  int64_t value = 0;
};

// How many operands follow a token.
constexpr int Operands(const Token& token) {
  if (token.kind == Token::kFits) return 1;
  if (token.kind != Token::kOp) return 0;
  switch (token.op) {
#define OP(name, text, wire, min_src, ...) \
  case Op::name:                           \
    return min_src;
#include "engine/ir/ops.def"
#undef OP
  }
  return 0;
}

class Pat {
 public:
  static constexpr int kMaxTokens = 16;

  constexpr Pat() = default;
  constexpr Pat(int value)
      : Pat(Token{.kind = Token::kInt, .value = value}) {}  // NOLINT: reads well
  constexpr Pat(double value)                               // NOLINT
      : Pat(Token{.kind = Token::kFloat, .value = std::bit_cast<int64_t>(value)}) {}
  constexpr explicit Pat(const Token& token) { Append(token); }

  template <typename... Pats>
  static constexpr Pat Of(const Token& token, const Pats&... operands) {
    Pat out(token);
    (out.AppendAll(operands), ...);
    return out;
  }
  template <typename... Pats>
  static constexpr Pat Of(Op op, const Pats&... operands) {
    return Of(Token{.kind = Token::kOp, .op = op}, operands...);
  }

  constexpr bool empty() const { return size_ == 0; }
  constexpr int size() const { return size_; }
  constexpr const Token& operator[](int i) const { return tokens_[i]; }
  // The position after the subpattern that begins at `i`.
  constexpr int Skip(int i) const {
    for (int open = 1; open > 0; ++i) open += Operands(tokens_[i]) - 1;
    return i;
  }
  // That subpattern.
  constexpr Pat Sub(int i) const {
    Pat out;
    for (const int end = Skip(i); i < end; ++i) out.Append(tokens_[i]);
    return out;
  }

 private:
  constexpr void Append(const Token& token) {
    if (size_ == kMaxTokens) std::abort();  // in a constant expression: does not compile
    tokens_[size_++] = token;
  }
  constexpr void AppendAll(const Pat& other) {
    for (int i = 0; i < other.size_; ++i) Append(other.tokens_[i]);
  }

  std::array<Token, kMaxTokens> tokens_{};
  int size_ = 0;
};

constexpr Pat operator-(const Pat& a) { return Pat::Of(Op::kNeg, a); }
constexpr Pat operator+(const Pat& a, const Pat& b) { return Pat::Of(Op::kAdd, a, b); }
constexpr Pat operator-(const Pat& a, const Pat& b) { return Pat::Of(Op::kSub, a, b); }
constexpr Pat operator*(const Pat& a, const Pat& b) { return Pat::Of(Op::kMul, a, b); }
constexpr Pat operator/(const Pat& a, const Pat& b) { return Pat::Of(Op::kFloorDiv, a, b); }
constexpr Pat operator%(const Pat& a, const Pat& b) { return Pat::Of(Op::kFloorMod, a, b); }
constexpr Pat operator<(const Pat& a, const Pat& b) { return Pat::Of(Op::kCmpLt, a, b); }
constexpr Pat operator==(const Pat& a, const Pat& b) { return Pat::Of(Op::kCmpEq, a, b); }
constexpr Pat operator!=(const Pat& a, const Pat& b) { return Pat::Of(Op::kCmpNe, a, b); }
constexpr Pat operator&(const Pat& a, const Pat& b) { return Pat::Of(Op::kAnd, a, b); }
constexpr Pat operator|(const Pat& a, const Pat& b) { return Pat::Of(Op::kOr, a, b); }
constexpr Pat operator^(const Pat& a, const Pat& b) { return Pat::Of(Op::kXor, a, b); }
constexpr Pat operator<<(const Pat& a, const Pat& b) { return Pat::Of(Op::kShl, a, b); }
constexpr Pat operator>>(const Pat& a, const Pat& b) { return Pat::Of(Op::kShr, a, b); }
constexpr Pat operator<=(const Pat& a, const Pat& b) { return (b < a) == Pat(0); }
// For conditions.
constexpr Pat operator&&(const Pat& a, const Pat& b) { return a & b; }
constexpr Pat operator||(const Pat& a, const Pat& b) { return a | b; }

// The text of the pattern, as it is written: "(x + c0) + c1".
std::string Text(const Pat& pat);

// The names that rows are written with; a table says `using namespace pattern`.
namespace pattern {

inline constexpr Pat x(Token{.kind = Token::kVar, .index = 0});
inline constexpr Pat y(Token{.kind = Token::kVar, .index = 1});
inline constexpr Pat z(Token{.kind = Token::kVar, .index = 2});
inline constexpr Pat c0(Token{.kind = Token::kConst, .index = 0});
inline constexpr Pat c1(Token{.kind = Token::kConst, .index = 1});
inline constexpr Pat c2(Token{.kind = Token::kConst, .index = 2});

constexpr Pat max(const Pat& a, const Pat& b) { return Pat::Of(Op::kMax, a, b); }
constexpr Pat fdiv(const Pat& a, const Pat& b) { return Pat::Of(Op::kFDiv, a, b); }
constexpr Pat cast(const Pat& a) {
  return Pat::Of(Op::kCast, a);
}  // right: to the type of the place
constexpr Pat bitcast(const Pat& a) { return Pat::Of(Op::kBitcast, a); }
constexpr Pat recip(const Pat& a) { return Pat::Of(Op::kRecip, a); }
constexpr Pat exp2(const Pat& a) { return Pat::Of(Op::kExp2, a); }
constexpr Pat log2(const Pat& a) { return Pat::Of(Op::kLog2, a); }
constexpr Pat sin(const Pat& a) { return Pat::Of(Op::kSin, a); }
constexpr Pat pow(const Pat& a, const Pat& b) { return Pat::Of(Op::kPow, a, b); }
constexpr Pat threefry(const Pat& a, const Pat& b) { return Pat::Of(Op::kThreefry, a, b); }
constexpr Pat floor(const Pat& a) { return Pat::Of(Op::kFloor, a); }
constexpr Pat trunc(const Pat& a) { return Pat::Of(Op::kTrunc, a); }
constexpr Pat where(const Pat& a, const Pat& b, const Pat& c) {
  return Pat::Of(Op::kWhere, a, b, c);
}
constexpr Pat mulacc(const Pat& a, const Pat& b, const Pat& c) {
  return Pat::Of(Op::kMulAcc, a, b, c);
}

constexpr Pat lo(const Pat& v) { return Pat(Token{.kind = Token::kLo, .index = v[0].index}); }
constexpr Pat hi(const Pat& v) { return Pat(Token{.kind = Token::kHi, .index = v[0].index}); }
constexpr Pat fits(const Pat& e) { return Pat::Of(Token{.kind = Token::kFits}, e); }

}  // namespace pattern
}  // namespace telegrad
