// The text of patterns and rules: infix operators where C has them, calls elsewhere.
#include "engine/rewrite/pat.h"

#include <string_view>
#include <vector>

#include "engine/base/strings.h"
#include "engine/rewrite/rule.h"

namespace telegrad {
namespace {

std::string_view Infix(Op op) {
  switch (op) {
    case Op::kAdd:
      return " + ";
    case Op::kSub:
      return " - ";
    case Op::kMul:
      return " * ";
    case Op::kFloorDiv:
      return " / ";
    case Op::kFloorMod:
      return " % ";
    case Op::kCmpLt:
      return " < ";
    case Op::kCmpEq:
      return " == ";
    case Op::kCmpNe:
      return " != ";
    case Op::kAnd:
      return " & ";
    case Op::kOr:
      return " | ";
    case Op::kXor:
      return " ^ ";
    case Op::kShl:
      return " << ";
    case Op::kShr:
      return " >> ";
    default:
      return "";
  }
}

std::string Leaf(const Token& token) {
  static constexpr std::string_view kVars[] = {"x", "y", "z"};
  static constexpr std::string_view kConsts[] = {"c0", "c1", "c2"};
  switch (token.kind) {
    case Token::kVar:
      return std::string(kVars[token.index]);
    case Token::kConst:
      return std::string(kConsts[token.index]);
    case Token::kInt:
      return absl::StrCat(token.value);
    case Token::kFloat: {
      std::string text = absl::StrCat(std::bit_cast<double>(token.value));
      if (text.find_first_of(".en") == std::string::npos) text += ".0";
      return text;
    }
    case Token::kLo:
      return StrCat("lo(", kVars[token.index], ")");
    case Token::kHi:
      return StrCat("hi(", kVars[token.index], ")");
    default:
      return "";
  }
}

std::string Combine(const Token& token, std::vector<std::string> operands, bool outermost) {
  if (token.kind == Token::kFits) return StrCat("fits(", operands[0], ")");
  const std::string_view infix = Infix(token.op);
  if (!infix.empty()) {
    std::string text = StrCat(operands[0], infix, operands[1]);
    return outermost ? text : StrCat("(", text, ")");
  }
  if (token.op == Op::kNeg) return StrCat("-", operands[0]);
  std::string text = StrCat(Name(token.op), "(");
  for (size_t i = 0; i < operands.size(); ++i) StrAppend(&text, i > 0 ? ", " : "", operands[i]);
  return text + ")";
}

}  // namespace

std::string Text(const Pat& pat) {
  // Preorder, read from its end: operands are on the stack before their operator.
  std::vector<std::string> stack;
  for (int i = pat.size() - 1; i >= 0; --i) {
    const int n = Operands(pat[i]);
    if (n == 0) {
      stack.push_back(Leaf(pat[i]));
      continue;
    }
    std::vector<std::string> operands(stack.rbegin(), stack.rbegin() + n);
    stack.resize(stack.size() - n);
    stack.push_back(Combine(pat[i], std::move(operands), i == 0));
  }
  return stack.empty() ? "" : stack.back();
}

std::string Text(const Rule& rule) {
  std::string text =
      StrCat(Text(rule.lhs), " -> ", rule.fn != nullptr ? "computed" : Text(rule.rhs));
  if (rule.when.types != kAnyType) {
    std::string types;
    const auto add = [&](Types t, std::string_view name) {
      if (rule.when.types & t) StrAppend(&types, types.empty() ? "" : "|", name);
    };
    add(kBools, "bool");
    add(kSigned, "signed");
    add(kUnsigned, "unsigned");
    add(kFloats, "float");
    StrAppend(&text, " on ", types);
  }
  if (!rule.when.condition.empty()) StrAppend(&text, " if ", Text(rule.when.condition));
  return text;
}

}  // namespace telegrad
