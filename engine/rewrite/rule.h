// A rule is a row of a constexpr table: pattern, replacement, condition. Write rule(...), one per
// line, so that a row keeps its own line number.
//
//   rule(x * 1, x),
//   rule(x * 0, 0, when(kInts)),
//   rule(x % c0, x, when(kSigned, 0 <= lo(x) && hi(x) < c0)),
//   rule(cast(x), [](Rewriter& b, const Match& m) -> UOp { ... }),
//
// A replacement has the value, the element type and (see Shapes in rewriter.h) the shape of what it
// replaces. A rule that gives back the same node has not matched. A pattern that is a bare name is
// met at every elementwise op.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "engine/ir/graph.h"
#include "engine/rewrite/pat.h"

namespace telegrad {

class Rewriter;

// What a pattern's names stand for.
struct Match {
  UOp root;
  std::array<UOp, 3> vars;
  std::array<UOp, 3> consts;

  UOp x() const { return vars[0]; }
  UOp y() const { return vars[1]; }
  UOp z() const { return vars[2]; }
  UOp c0() const { return consts[0]; }
  UOp c1() const { return consts[1]; }
  int64_t k0() const { return consts[0].const_word(); }
  int64_t k1() const { return consts[1].const_word(); }
};

// Computes a replacement, or returns an invalid UOp for "no".
using RewriteFn = UOp (*)(Rewriter&, const Match&);

// Element types, a set of DTypeKind: those that source 0 of the matched node may have.
enum Types : uint8_t {
  kBools = 1 << static_cast<int>(DTypeKind::kBoolean),
  kSigned = 1 << static_cast<int>(DTypeKind::kSigned),
  kUnsigned = 1 << static_cast<int>(DTypeKind::kUnsigned),
  kFloats = 1 << static_cast<int>(DTypeKind::kFloat),
  kInts = kSigned | kUnsigned,
  kBits = kInts | kBools,
  kAnyType = 0xff,
};
constexpr Types operator|(Types a, Types b) { return static_cast<Types>(+a | +b); }
inline bool Has(Types types, DType dtype) {
  return (types >> static_cast<int>(Info(dtype).kind)) & 1;
}

// The condition of a row. It is computed in int64 on the words of the matched constants; where that
// overflows, the rule does not match.
struct When {
  Types types = kAnyType;
  Pat condition;
};
constexpr When when(const Pat& condition) { return {kAnyType, condition}; }
constexpr When when(Types types) { return {types, Pat()}; }
constexpr When when(Types types, const Pat& condition) { return {types, condition}; }

struct Rule {
  Pat lhs;
  Pat rhs;  // empty where there is a function
  RewriteFn fn = nullptr;
  When when;
  int line = 0;
};

constexpr Rule rule(const Pat& lhs, const Pat& rhs, const When& when = {},
                    int line = __builtin_LINE()) {
  return {lhs, rhs, nullptr, when, line};
}
template <typename F>
  requires(std::is_class_v<F> && std::is_convertible_v<F, RewriteFn>)
constexpr Rule rule(const Pat& lhs, F fn, const When& when = {}, int line = __builtin_LINE()) {
  return {lhs, Pat(), fn, when, line};
}
template <typename F>
  requires(std::is_same_v<F, UOp(Rewriter&, const Match&)>)
constexpr Rule rule(const Pat& lhs, F* fn, const When& when = {}, int line = __builtin_LINE()) {
  return {lhs, Pat(), fn, when, line};
}

class RuleTable {
 public:
  constexpr RuleTable(std::string_view name, std::span<const Rule> rules,
                      const char* file = __builtin_FILE())
      : name_(name), rules_(rules), file_(FromRoot(file)) {}
  constexpr std::string_view name() const { return name_; }
  constexpr std::span<const Rule> rules() const { return rules_; }
  // Where the table is written, from the repository's root.
  constexpr std::string_view file() const { return file_; }

 private:
  static constexpr std::string_view FromRoot(std::string_view file) {
    const size_t at = file.rfind("engine/");
    return at == std::string_view::npos ? file : file.substr(at);
  }

  std::string_view name_;
  std::span<const Rule> rules_;
  std::string_view file_;
};

// The row as text: "x * 0 -> 0 if int".
std::string Text(const Rule& rule);

}  // namespace telegrad
