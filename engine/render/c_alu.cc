// A row per op at the end; the compiler checks that none of the program level is missing. Guards
// are choices around a safe operand, and are left out where bounds prove the plain operation right.
#include "engine/render/c_alu.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "engine/ir/scalar.h"
#include "engine/render/alu_facts.h"

namespace telegrad {
namespace {

// --- words of the table ---

// `x op y` on the operands' type. Scalars narrower than int are computed in uint, which cannot
// overflow, and cut.
std::string CInfix(const CAlu& a, std::string_view op, std::string_view x, std::string_view y) {
  const DType dtype = a.from();
  if (a.lanes == 1 && Info(dtype).bits < 32) {
    return a.out.Let(dtype, 1, "(", CType(dtype, 1), ")((uint)", x, " ", op, " (uint)", y, ")");
  }
  return a.out.Let(dtype, a.lanes, x, " ", op, " ", y);
}
std::string CInfix(const CAlu& a, std::string_view op) { return CInfix(a, op, a.x[0], a.x[1]); }

// The same on signed operands.
std::string CSignedInfix(const CAlu& a, std::string_view op, std::string_view x,
                         std::string_view y) {
  const DType dtype = a.from();
  return a.out.Let(
      dtype, a.lanes,
      CUnsigned(dtype, a.lanes,
                StrCat(CSigned(dtype, a.lanes, x), " ", op, " ", CSigned(dtype, a.lanes, y))));
}

std::string CCall(const CAlu& a, std::string_view function) {
  std::string arguments;
  for (const std::string& x : a.x) StrAppend(&arguments, arguments.empty() ? "" : ", ", x);
  return a.out.Let(a.to(), a.lanes, function, "(", arguments, ")");
}

std::string CCompare(const CAlu& a, std::string_view op) {
  const bool is_signed = IsSigned(a.from());
  const auto side = [&](int i) {
    return is_signed ? CSigned(a.from(), a.lanes, a.x[i]) : std::string(a.x[i]);
  };
  return a.out.Test(a.lanes, StrCat(side(0), " ", op, " ", side(1)));
}

std::string CIs(const CAlu& a, std::string_view x, int64_t value) {
  return a.out.Test(a.lanes, StrCat(x, " == ", a.Int(value)));
}
std::string CChoose(const CAlu& a, std::string_view condition, std::string_view then,
                    std::string_view otherwise) {
  return a.out.Select(a.from(), a.lanes, condition, then, otherwise);
}
std::string CBoth(const CAlu& a, std::string_view p, std::string_view op, std::string_view q) {
  return a.out.Let(DType::kBool, a.lanes, p, " ", op, " ", q);
}

// --- division ---

std::string CUnsignedDivision(const CAlu& a, std::string_view op) {
  if (DivisorIsPositive(a.node)) return CInfix(a, op);
  const std::string zero = CIs(a, a.x[1], 0);
  const std::string safe = CChoose(a, zero, a.Int(1), a.x[1]);
  return CChoose(a, zero, a.Int(0), CInfix(a, op, a.x[0], safe));
}

struct CDivisor {
  std::string zero, minus_one;  // conditions; empty where the divisor is known to be positive
  std::string safe;             // neither 0 nor -1 where it is not known
};

CDivisor CSafeDivisor(const CAlu& a) {
  if (DivisorIsPositive(a.node)) return {"", "", a.x[1]};
  const std::string zero = CIs(a, a.x[1], 0), minus_one = CIs(a, a.x[1], -1);
  return {zero, minus_one, CChoose(a, CBoth(a, zero, "|", minus_one), a.Int(1), a.x[1])};
}

std::string CNegated(const CAlu& a, std::string_view x) { return CInfix(a, "-", a.Int(0), x); }

// What a divisor of 0 or -1 makes of a quotient by the safe one.
std::string CQuotient(const CAlu& a, const CDivisor& d, const std::string& quotient) {
  if (d.zero.empty()) return quotient;
  const std::string wrapped = CChoose(a, d.minus_one, CNegated(a, a.x[0]), quotient);
  return CChoose(a, d.zero, a.Int(0), wrapped);
}

struct CFloorDivision {
  CDivisor divisor;
  std::string remainder;  // of truncating division
  std::string adjust;     // truncation went the other way than floor
};

CFloorDivision CDivide(const CAlu& a) {
  CFloorDivision d{CSafeDivisor(a), "", ""};
  d.remainder = CSignedInfix(a, "%", a.x[0], d.divisor.safe);
  const std::string inexact = a.out.Test(a.lanes, StrCat(d.remainder, " != ", a.Int(0)));
  const std::string signs = CInfix(a, "^", d.remainder, d.divisor.safe);
  const std::string zero = CSigned(a.from(), a.lanes, a.Int(0));
  const std::string differ =
      a.out.Test(a.lanes, StrCat(CSigned(a.from(), a.lanes, signs), " < ", zero));
  d.adjust = CBoth(a, inexact, "&", differ);
  return d;
}

std::string CFloorDiv(const CAlu& a) {
  if (IsUnsigned(a.from())) return CUnsignedDivision(a, "/");
  if (const int shift = Log2OfDivisor(a.node); shift >= 0) {
    return CSignedInfix(a, ">>", a.x[0], a.Int(shift));
  }
  if (DivisionIsNonNegative(a.node)) return CInfix(a, "/");
  const CFloorDivision d = CDivide(a);
  const std::string truncated = CSignedInfix(a, "/", a.x[0], d.divisor.safe);
  const std::string less = CInfix(a, "-", truncated, a.Int(1));
  return CQuotient(a, d.divisor, CChoose(a, d.adjust, less, truncated));
}

std::string CFloorMod(const CAlu& a) {
  if (IsUnsigned(a.from())) return CUnsignedDivision(a, "%");
  if (Log2OfDivisor(a.node) >= 0) {
    return CInfix(a, "&", a.x[0], a.Int(a.node.src(1).vmin() - 1));
  }
  if (DivisionIsNonNegative(a.node)) return CInfix(a, "%");
  const CFloorDivision d = CDivide(a);
  // x mod -1 is 0, and so is the remainder by the safe divisor 1 that stands for 0 and -1.
  return CChoose(a, d.adjust, CInfix(a, "+", d.remainder, d.divisor.safe), d.remainder);
}

std::string CTruncatedDiv(const CAlu& a) {
  if (IsUnsigned(a.from())) return CUnsignedDivision(a, "/");
  if (DivisionIsNonNegative(a.node)) return CInfix(a, "/");
  const CDivisor d = CSafeDivisor(a);
  return CQuotient(a, d, CSignedInfix(a, "/", a.x[0], d.safe));
}

std::string CTruncatedMod(const CAlu& a) {
  if (IsUnsigned(a.from())) return CUnsignedDivision(a, "%");
  if (DivisionIsNonNegative(a.node)) return CInfix(a, "%");
  return CSignedInfix(a, "%", a.x[0], CSafeDivisor(a).safe);  // 0 for both that 1 stands for
}

// --- shifts ---

std::string CShift(const CAlu& a, std::string_view op) {
  const bool keeps_sign = op == ">>" && IsSigned(a.from());
  const auto shift = [&](std::string_view amount) {
    return keeps_sign ? CSignedInfix(a, op, a.x[0], amount) : CInfix(a, op, a.x[0], amount);
  };
  if (ShiftIsInWidth(a.node)) return shift(a.x[1]);
  const int bits = Info(a.from()).bits;
  const std::string inside = a.out.Test(a.lanes, StrCat(a.x[1], " < ", a.Int(bits)));
  if (keeps_sign) return shift(CChoose(a, inside, a.x[1], a.Int(bits - 1)));
  return CChoose(a, inside, shift(CChoose(a, inside, a.x[1], a.Int(0))), a.Int(0));
}

// --- conversions ---

std::string CNotZero(const CAlu& a) {
  return a.out.Test(a.lanes, StrCat(a.x[0], " != ", CLiteral(a.from(), 0, a.lanes)));
}

// `x` of any type converted to `type`, a type of as many lanes.
std::string CConverted(const CAlu& a, const std::string& type, std::string_view x) {
  return a.lanes == 1 ? StrCat("(", type, ")(", x, ")") : StrCat("convert_", type, "(", x, ")");
}

// Saturates; NaN gives 0. The bounds are powers of two, which every float holds.
std::string CFloatToInt(const CAlu& a) {
  const DType from = a.from(), to = a.to();
  const int bits = Info(to).bits - (IsSigned(to) ? 1 : 0);
  const auto number = [&](double value) {
    return CLiteral(from, ScalarFromDouble(from, value), a.lanes);
  };
  const auto result = [&](int64_t value) { return CLiteral(to, value, a.lanes); };
  const double above = std::ldexp(1.0, bits), least = IsSigned(to) ? -above : 0;
  const std::string low = a.out.Test(a.lanes, StrCat(a.x[0], " < ", number(least)));
  const std::string high = a.out.Test(a.lanes, StrCat(a.x[0], " >= ", number(above)));
  const std::string nan = a.out.Test(a.lanes, StrCat(a.x[0], " != ", a.x[0]));
  const std::string outside = CBoth(a, CBoth(a, low, "|", high), "|", nan);
  const std::string safe = a.out.Select(from, a.lanes, outside, number(0), a.x[0]);
  const std::string type = IsSigned(to) ? CSignedType(to, a.lanes) : CType(to, a.lanes);
  const std::string inside =
      a.out.Let(to, a.lanes, CUnsigned(to, a.lanes, CConverted(a, type, safe)));
  const uint64_t ones = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const std::string cut =
      a.out.Select(to, a.lanes, high, result(static_cast<int64_t>(ones)), inside);
  if (!IsSigned(to)) return cut;
  return a.out.Select(to, a.lanes, low, result(static_cast<int64_t>(~ones)), cut);
}

std::string CCast(const CAlu& a) {
  const DType from = a.from(), to = a.to();
  if (from == to) return a.x[0];
  if (IsBool(to)) return CNotZero(a);
  if (IsFloat(from)) {
    if (!IsFloat(to)) return CFloatToInt(a);
    return a.out.Let(to, a.lanes, CConverted(a, CType(to, a.lanes), a.x[0]));
  }
  const std::string x = IsSigned(from) ? CSigned(from, a.lanes, a.x[0]) : a.x[0];
  if (IsFloat(to)) return a.out.Let(to, a.lanes, CConverted(a, CType(to, a.lanes), x));
  if (Info(from).bits < Info(to).bits && IsSigned(from)) {
    return a.out.Let(to, a.lanes,
                     CUnsigned(to, a.lanes, CConverted(a, CSignedType(to, a.lanes), x)));
  }
  return a.out.Let(to, a.lanes, CConverted(a, CType(to, a.lanes), a.x[0]));
}

std::string CBitcast(const CAlu& a) {
  const DType from = a.from(), to = a.to();
  if (IsBool(to) && !IsBool(from)) return CNotZero(a);
  if (CType(from, 1) == CType(to, 1)) return a.x[0];
  return a.out.Let(to, a.lanes, "as_", CType(to, a.lanes), "(", a.x[0], ")");
}

// --- the rest ---

std::string CNeg(const CAlu& a) {
  if (IsFloat(a.from())) return a.out.Let(a.from(), a.lanes, "-", a.x[0]);
  return CNegated(a, a.x[0]);
}

std::string CRecip(const CAlu& a) {
  return a.out.Let(a.from(), a.lanes, CLiteral(a.from(), std::bit_cast<int64_t>(1.0), a.lanes),
                   " / ", a.x[0]);
}

// NaN if either is; of two zeros the positive one, whose sign bit is 0.
std::string CMax(const CAlu& a) {
  const DType dtype = a.from();
  if (!IsFloat(dtype)) {
    if (!IsSigned(dtype)) return CCall(a, "max");
    return a.out.Let(dtype, a.lanes,
                     CUnsigned(dtype, a.lanes,
                               StrCat("max(", CSigned(dtype, a.lanes, a.x[0]), ", ",
                                      CSigned(dtype, a.lanes, a.x[1]), ")")));
  }
  const std::string bits =
      CType(dtype == DType::kFloat32 ? DType::kUInt32 : DType::kUInt64, a.lanes);
  const std::string equal = a.out.Test(a.lanes, StrCat(a.x[0], " == ", a.x[1]));
  const std::string zero = a.out.Let(dtype, a.lanes, "as_", CType(dtype, a.lanes), "(as_", bits,
                                     "(", a.x[0], ") & as_", bits, "(", a.x[1], "))");
  const std::string first =
      a.out.Test(a.lanes, StrCat("(", a.x[0], " > ", a.x[1], ") | (", a.x[0], " != ", a.x[0], ")"));
  return CChoose(a, first, a.x[0], CChoose(a, equal, zero, a.x[1]));
}

std::string CWhere(const CAlu& a) { return a.out.Select(a.to(), a.lanes, a.x[0], a.x[1], a.x[2]); }

std::string CMulAcc(const CAlu& a) {
  if (IsFloat(a.from())) return CCall(a, "fma");
  return CInfix(a, "+", CInfix(a, "*"), a.x[2]);
}

std::string CDot4(const CAlu& a) {
  std::string sum = a.x[2];
  for (int low = 0; low < 32; low += 8) {
    const auto top = [&](int i) { return CInfix(a, "<<", a.x[i], a.Int(24 - low)); };
    const std::string x = CInfix(a, ">>", top(0), a.Int(24));
    const std::string y = CSignedInfix(a, ">>", top(1), a.Int(24));
    sum = CInfix(a, "+", sum, CInfix(a, "*", x, y));
  }
  return sum;
}

// --- the table ---

struct CAluRow {
  Op op;
  CAluPrinter print;
};

constexpr CAluRow kCAluRows[] = {
    {Op::kNeg, CNeg},
    {Op::kSqrt, [](const CAlu& a) { return CCall(a, "sqrt"); }},
    {Op::kRecip, CRecip},
    {Op::kTrunc, [](const CAlu& a) { return CCall(a, "trunc"); }},
    {Op::kFloor, [](const CAlu& a) { return CCall(a, "floor"); }},
    {Op::kCast, CCast},
    {Op::kBitcast, CBitcast},
    {Op::kAdd, [](const CAlu& a) { return CInfix(a, "+"); }},
    {Op::kSub, [](const CAlu& a) { return CInfix(a, "-"); }},
    {Op::kMul, [](const CAlu& a) { return CInfix(a, "*"); }},
    {Op::kFDiv, [](const CAlu& a) { return CInfix(a, "/"); }},
    {Op::kFloorDiv, CFloorDiv},
    {Op::kFloorMod, CFloorMod},
    {Op::kCDiv, CTruncatedDiv},
    {Op::kCMod, CTruncatedMod},
    {Op::kMax, CMax},
    {Op::kCmpLt, [](const CAlu& a) { return CCompare(a, "<"); }},
    {Op::kCmpEq, [](const CAlu& a) { return CCompare(a, "=="); }},
    {Op::kCmpNe, [](const CAlu& a) { return CCompare(a, "!="); }},
    {Op::kAnd, [](const CAlu& a) { return CInfix(a, "&"); }},
    {Op::kOr, [](const CAlu& a) { return CInfix(a, "|"); }},
    {Op::kXor, [](const CAlu& a) { return CInfix(a, "^"); }},
    {Op::kShl, [](const CAlu& a) { return CShift(a, "<<"); }},
    {Op::kShr, [](const CAlu& a) { return CShift(a, ">>"); }},
    {Op::kWhere, CWhere},
    {Op::kMulAcc, CMulAcc},
    {Op::kDot4, CDot4},
};

constexpr auto kCAluPrinters = [] {
  std::array<CAluPrinter, kNumOps> table{};
  for (const CAluRow& row : kCAluRows) table[static_cast<size_t>(row.op)] = row.print;
  return table;
}();

// Gone before a program is rendered: engine/rules/decompositions. They are of the program level
// because the interpreter runs programs that have them.
constexpr Op kCDecomposed[] = {Op::kExp2, Op::kLog2, Op::kSin, Op::kPow, Op::kThreefry};

constexpr bool HasCAlu(Op op) {
  for (const CAluRow& row : kCAluRows) {
    if (row.op == op) return true;
  }
  return std::ranges::find(kCDecomposed, op) != std::end(kCDecomposed);
}

[[maybe_unused]] constexpr void EveryCAluRowIsThere() {
  [[maybe_unused]] constexpr int T = kTensorLevel, K = kKernelLevel, P = kProgramLevel;
#define OP(name, text, wire, min_src, max_src, arg, traits, elements, type, shape, levels, doc) \
  static_assert(((traits) & kAlu) == 0 || ((levels) & P) == 0 || HasCAlu(Op::name),             \
                "a row that prints " #name                                                      \
                " is missing in kCAluRows; an op that a rule of "                               \
                "decompositions.cc expresses by others has no level P in ops.def");
#include "engine/ir/ops.def"
#undef OP
}

}  // namespace

bool CAluComputes(UOp u, const Target& target) {
  if (u.is(Op::kBitcast) || u.is(Op::kWhere) || u.num_src() == 0) return true;
  return target.computes.Has(u.src(0).dtype()) &&
         (target.computes.Has(u.dtype()) || IsBool(u.dtype()));
}

CAluPrinter CAluPrinterOf(Op op) { return kCAluPrinters[static_cast<size_t>(op)]; }

}  // namespace telegrad
