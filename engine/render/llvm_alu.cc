// A row per op at the end; the compiler checks that none of the program level is missing. Guards
// are selects around a safe operand (never a division by 0 whose result is dropped: LLVM may not
// execute that), and are left out where constants or bounds prove the plain instruction right.
#include "engine/render/llvm_alu.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/render/alu_facts.h"
#include "engine/render/float_range.h"

namespace telegrad {
namespace {

// --- words of the table ---

std::string Plain(const LlvmAlu& a, std::string_view on_ints, std::string_view on_floats) {
  return a.out.Let(IsFloat(a.from()) ? on_floats : on_ints, " ", a.type(), " ", a.x[0], ", ",
                   a.x[1]);
}

// ADD, SUB and MUL. Where integers of 32 bits are shown not to wrap, as those of indices are, LLVM
// may extend a sum by extending its operands, and find what addresses have in common.
std::string Arithmetic(const LlvmAlu& a, std::string_view op) {
  std::string on_ints(op);
  if (!a.vectors && a.node.dtype() == DType::kInt32 && IsExact(a.node)) {
    const Interval x = a.node.src(0).bounds(), y = a.node.src(1).bounds();
    const bool positive = x.lo >= 0 && y.lo >= 0 && (!a.node.is(Op::kSub) || x.lo >= y.hi);
    on_ints += positive ? " nuw nsw" : " nsw";
  }
  return Plain(a, on_ints, StrCat("f", op));
}

std::string Intrinsic(const LlvmAlu& a, std::string_view name) {
  const std::string full = StrCat("llvm.", name, ".", a.suffix());
  switch (a.x.size()) {
    case 1:
      return a.out.Call(full, a.type(), {{a.type(), a.x[0]}});
    case 2:
      return a.out.Call(full, a.type(), {{a.type(), a.x[0]}, {a.type(), a.x[1]}});
    default:
      return a.out.Call(full, a.type(),
                        {{a.type(), a.x[0]}, {a.type(), a.x[1]}, {a.type(), a.x[2]}});
  }
}

std::string Compare(const LlvmAlu& a, std::string_view on_signed, std::string_view on_unsigned,
                    std::string_view on_floats) {
  const bool is_float = IsFloat(a.from());
  return a.out.Let(is_float ? "fcmp " : "icmp ",
                   is_float ? on_floats : (IsSigned(a.from()) ? on_signed : on_unsigned), " ",
                   a.type(), " ", a.x[0], ", ", a.x[1]);
}

// `op x, y` on operands of the node's type.
std::string Do(const LlvmAlu& a, std::string_view op, std::string_view x, std::string_view y) {
  return a.out.Let(op, " ", a.type(), " ", x, ", ", y);
}

std::string Select(const LlvmAlu& a, std::string_view condition, std::string_view then,
                   std::string_view otherwise) {
  return a.out.Let("select ", LlvmType(DType::kBool, a.lanes), " ", condition, ", ", a.type(), " ",
                   then, ", ", a.type(), " ", otherwise);
}

std::string Either(const LlvmAlu& a, std::string_view op, std::string_view p, std::string_view q) {
  return a.out.Let(op, " ", LlvmType(DType::kBool, a.lanes), " ", p, ", ", q);
}

// --- division ---

std::string UnsignedDivision(const LlvmAlu& a, std::string_view op) {
  if (DivisorIsPositive(a.node)) return Do(a, op, a.x[0], a.x[1]);
  const std::string zero = Do(a, "icmp eq", a.x[1], a.Int(0));
  const std::string safe = Select(a, zero, a.Int(1), a.x[1]);
  return Select(a, zero, a.Int(0), Do(a, op, a.x[0], safe));
}

// Of what is not negative, by what is positive. With x below 2^n and a constant c of at most 2^m,
// x / c is x * (floor(2^(n + m) / c) + 1) / 2^(n + m) (Granlund and Montgomery, "Division by
// Invariant Integers using Multiplication", theorem 4.2): for n of at most 31 a product of 64 bits.
// Without this LLVM makes products of 128 bits of it, which take dozens of instructions where there
// are only those of 32, as on the targets without vectors. Of an i32 this is done where the product
// fits into 32 bits as well: LLVM knows less of the operand.
std::string PlainDivision(const LlvmAlu& a, bool remainder) {
  const UOp divisor = a.node.src(1);
  const int64_t most = a.node.src(0).vmax();
  const int bits = Info(a.from()).bits;
  const std::string plain = remainder ? "urem" : "udiv";
  const bool multiplies = !a.vectors && a.lanes == 1 && (bits == 64 || bits == 32) &&
                          divisor.is_const() && divisor.vmin() > 1 && divisor.vmax() <= most &&
                          most <= std::numeric_limits<int32_t>::max();
  if (!multiplies) return Do(a, plain, a.x[0], a.x[1]);
  const auto c = static_cast<uint64_t>(divisor.vmin());
  const int n = std::bit_width(static_cast<uint64_t>(most)), m = std::bit_width(c - 1);
  const uint64_t factor = (uint64_t{1} << (n + m)) / c + 1;
  const bool short_product = n + std::bit_width(factor) <= 32;
  if (bits == 32 && !short_product) return Do(a, plain, a.x[0], a.x[1]);
  const std::string type = short_product ? "i32" : "i64";
  const bool cut = short_product && bits == 64;
  const std::string x = cut ? a.out.Let("trunc i64 ", a.x[0], " to i32") : std::string(a.x[0]);
  const std::string product = a.out.Let("mul nuw ", type, " ", x, ", ", factor);
  std::string result = a.out.Let("lshr ", type, " ", product, ", ", n + m);
  if (remainder) {
    const std::string multiple = a.out.Let("mul nuw ", type, " ", result, ", ", c);
    result = a.out.Let("sub nuw ", type, " ", x, ", ", multiple);
  }
  return cut ? a.out.Let("zext i32 ", result, " to i64") : result;
}

struct Divisor {
  std::string zero, minus_one;  // conditions; empty where the divisor is known to be positive
  std::string safe;             // neither 0 nor -1 where it is not known
};

Divisor SafeDivisor(const LlvmAlu& a) {
  if (DivisorIsPositive(a.node)) return {"", "", a.x[1]};
  const std::string zero = Do(a, "icmp eq", a.x[1], a.Int(0));
  const std::string minus_one = Do(a, "icmp eq", a.x[1], a.Int(-1));
  return {zero, minus_one, Select(a, Either(a, "or", zero, minus_one), a.Int(1), a.x[1])};
}

struct FloorDivision {
  Divisor divisor;
  std::string remainder;  // of truncating division
  std::string adjust;     // truncation went the other way than floor
};

FloorDivision Divide(const LlvmAlu& a) {
  FloorDivision d{SafeDivisor(a), "", ""};
  d.remainder = Do(a, "srem", a.x[0], d.divisor.safe);
  const std::string inexact = Do(a, "icmp ne", d.remainder, a.Int(0));
  const std::string signs = Do(a, "xor", d.remainder, d.divisor.safe);
  d.adjust = Either(a, "and", inexact, Do(a, "icmp slt", signs, a.Int(0)));
  return d;
}

std::string FloorDiv(const LlvmAlu& a) {
  if (IsUnsigned(a.from())) return UnsignedDivision(a, "udiv");
  if (const int shift = Log2OfDivisor(a.node); shift >= 0)
    return Do(a, "ashr", a.x[0], a.Int(shift));
  if (DivisionIsNonNegative(a.node)) return PlainDivision(a, false);
  const FloorDivision d = Divide(a);
  const std::string truncated = Do(a, "sdiv", a.x[0], d.divisor.safe);
  const std::string floor = Select(a, d.adjust, Do(a, "sub", truncated, a.Int(1)), truncated);
  if (d.divisor.zero.empty()) return floor;
  const std::string negated = Do(a, "sub", a.Int(0), a.x[0]);
  return Select(a, d.divisor.zero, a.Int(0), Select(a, d.divisor.minus_one, negated, floor));
}

std::string FloorMod(const LlvmAlu& a) {
  if (IsUnsigned(a.from())) return UnsignedDivision(a, "urem");
  if (Log2OfDivisor(a.node) >= 0) return Do(a, "and", a.x[0], a.Int(a.node.src(1).vmin() - 1));
  if (DivisionIsNonNegative(a.node)) return PlainDivision(a, true);
  const FloorDivision d = Divide(a);
  // x mod -1 is 0, and so is the remainder by the safe divisor 1 that stands for 0 and -1.
  return Select(a, d.adjust, Do(a, "add", d.remainder, d.divisor.safe), d.remainder);
}

std::string CDiv(const LlvmAlu& a) {
  if (IsUnsigned(a.from())) return UnsignedDivision(a, "udiv");
  if (DivisionIsNonNegative(a.node)) return PlainDivision(a, false);
  const Divisor d = SafeDivisor(a);
  const std::string truncated = Do(a, "sdiv", a.x[0], d.safe);
  if (d.zero.empty()) return truncated;
  const std::string negated = Do(a, "sub", a.Int(0), a.x[0]);
  return Select(a, d.zero, a.Int(0), Select(a, d.minus_one, negated, truncated));
}

std::string CMod(const LlvmAlu& a) {
  if (IsUnsigned(a.from())) return UnsignedDivision(a, "urem");
  if (DivisionIsNonNegative(a.node)) return PlainDivision(a, true);
  return Do(a, "srem", a.x[0], SafeDivisor(a).safe);  // 0 for both divisors that 1 stands for
}

// --- shifts ---

std::string Shift(const LlvmAlu& a, std::string_view op) {
  if (ShiftIsInWidth(a.node)) return Do(a, op, a.x[0], a.x[1]);
  const int bits = Info(a.from()).bits;
  const std::string inside = Do(a, "icmp ult", a.x[1], a.Int(bits));  // negative is large
  if (op == "ashr") return Do(a, op, a.x[0], Select(a, inside, a.x[1], a.Int(bits - 1)));
  const std::string shifted = Do(a, op, a.x[0], Select(a, inside, a.x[1], a.Int(0)));
  return Select(a, inside, shifted, a.Int(0));
}

// --- conversions ---

std::string Convert(const LlvmAlu& a, std::string_view op, DType from, DType to,
                    std::string_view x) {
  return a.out.Let(op, " ", LlvmType(from, a.lanes), " ", x, " to ", LlvmType(to, a.lanes));
}

std::string NotZero(const LlvmAlu& a, DType from, std::string_view x) {
  return a.out.Let(IsLlvmFloat(from) ? "fcmp une " : "icmp ne ", LlvmType(from, a.lanes), " ", x,
                   ", zeroinitializer");
}

// The least integer of a type, the largest float that is below all that it has not, and the first
// integer beyond it.
struct IntegersAsFloats {
  double least, most, beyond;
};

IntegersAsFloats IntegersOf(DType floats, DType ints) {
  const int bits = Info(ints).bits - (IsSigned(ints) ? 1 : 0);
  const double beyond = std::ldexp(1.0, bits);
  const int mantissa = floats == DType::kFloat32 ? 24 : 53;
  return {IsSigned(ints) ? -beyond : 0.0, beyond - std::ldexp(1.0, std::max(0, bits - mantissa)),
          beyond};
}

// LLVM takes its saturating conversion of a vector apart, lane by lane. This is the same of whole
// vectors: the value is clamped to what converts; what lies above the largest float that does, and
// NaN, are put in afterwards. A clamp is one instruction, for a comparison with NaN is false.
std::string Saturated(const LlvmAlu& a, std::string_view op, DType from, DType to,
                      const std::string& x, bool may_be_nan) {
  const IntegersAsFloats ints = IntegersOf(from, to);
  const std::string type = LlvmType(from, a.lanes), result = LlvmType(to, a.lanes);
  const auto number = [&](double value) {
    return LlvmLiteral(from, std::bit_cast<int64_t>(value), a.lanes);
  };
  const auto compare = [&](std::string_view how, std::string_view p, std::string_view q) {
    return a.out.Let("fcmp ", how, " ", type, " ", p, ", ", q);
  };
  const auto select = [&](std::string_view type_of, std::string_view c, std::string_view p,
                          std::string_view q) {
    return a.out.Let("select ", LlvmType(DType::kBool, a.lanes), " ", c, ", ", type_of, " ", p,
                     ", ", type_of, " ", q);
  };
  const std::string least = number(ints.least), most = number(ints.most);
  const std::string raised = select(type, compare("ogt", x, least), x, least);
  const std::string clamped = select(type, compare("olt", raised, most), raised, most);
  std::string value = Convert(a, op, from, to, clamped);
  if (ints.most < ints.beyond - 1) {
    const int64_t largest = IsSigned(to)
                                ? std::numeric_limits<int64_t>::max() >> (64 - Info(to).bits)
                            : Info(to).bits == 64 ? -1
                                                  : (int64_t{1} << Info(to).bits) - 1;
    value = select(result, compare("oge", x, number(ints.beyond)),
                   LlvmLiteral(to, largest, a.lanes), value);
  }
  if (!may_be_nan || ints.least == 0) return value;  // a NaN is 0 already
  return select(result, compare("uno", x, x), "zeroinitializer", value);
}

// A NaN as 0.
std::string Number(const LlvmAlu& a, std::string_view type, std::string_view x) {
  const std::string ordered = a.out.Let("fcmp ord ", type, " ", x, ", ", x);
  return a.out.Let("select ", LlvmType(DType::kBool, a.lanes), " ", ordered, ", ", type, " ", x,
                   ", ", type, " zeroinitializer");
}

std::string Cast(const LlvmAlu& a, DType from, DType to, const std::string& x) {
  if (from == to) return x;
  if (IsBool(to)) return NotZero(a, from, x);
  const int from_bits = Info(from).bits, to_bits = Info(to).bits;
  if (IsFloat(from) && IsFloat(to)) {
    return Convert(a, from_bits < to_bits ? "fpext" : "fptrunc", from, to, x);
  }
  if (IsFloat(from)) {
    const IntegersAsFloats ints = IntegersOf(from, to);
    const FloatRange range = RangeOf(a.node.src(0));
    const std::string_view op = IsSigned(to) ? "fptosi" : "fptoui";
    if (range.lo > ints.least - 1 && range.hi < ints.beyond) {
      if (!range.nan) return Convert(a, op, from, to, x);
      return Convert(a, op, from, to, Number(a, LlvmType(from, a.lanes), x));
    }
    if (a.vectors && a.lanes > 1) return Saturated(a, op, from, to, x, range.nan);
    const std::string name = StrCat(IsSigned(to) ? "llvm.fptosi.sat." : "llvm.fptoui.sat.",
                                    LlvmSuffix(to, a.lanes), ".", LlvmSuffix(from, a.lanes));
    return a.out.Call(name, LlvmType(to, a.lanes), {{LlvmType(from, a.lanes), x}});
  }
  if (IsFloat(to)) return Convert(a, IsSigned(from) ? "sitofp" : "uitofp", from, to, x);
  if (IsBool(from) || from_bits < to_bits) {
    return Convert(a, IsSigned(from) ? "sext" : "zext", from, to, x);
  }
  return from_bits > to_bits ? Convert(a, "trunc", from, to, x) : x;
}

// Between a code of f16 or bf16 and f32, by the processor's conversion.
std::string Half(const LlvmAlu& a, bool extend, DType half_type, std::string_view x) {
  const std::string_view name = half_type == DType::kFloat16 ? "half" : "bfloat";
  const std::string half =
      a.lanes == 1 ? std::string(name) : StrCat("<", a.lanes, " x ", name, ">");
  const std::string single = LlvmType(DType::kFloat32, a.lanes);
  const std::string code = LlvmType(half_type, a.lanes);
  if (extend) {
    const std::string value = a.out.Let("bitcast ", code, " ", x, " to ", half);
    return a.out.Let("fpext ", half, " ", value, " to ", single);
  }
  const std::string value = a.out.Let("fptrunc ", single, " ", x, " to ", half);
  return a.out.Let("bitcast ", half, " ", value, " to ", code);
}

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// What goes by way of f32 here is exact there: see LlvmAluComputes.
std::string Cast(const LlvmAlu& a) {
  const DType from = a.from(), to = a.node.dtype();
  if (a.nearest.valid()) {
    const std::string x = RangeOf(a.nearest).nan ? Number(a, a.type(), a.x[0]) : a.x[0];
    return a.out.Call(StrCat("llvm.lrint.", LlvmSuffix(to, a.lanes), ".", a.suffix()), a.to(),
                      {{a.type(), x}});
  }
  constexpr DType kSingle = DType::kFloat32;
  if (from == to) return a.x[0];
  const std::string x = IsHalf(from) ? Half(a, /*extend=*/true, from, a.x[0]) : a.x[0];
  const DType held = IsHalf(from) ? kSingle : from;
  return IsHalf(to) ? Half(a, /*extend=*/false, to, Cast(a, held, kSingle, x))
                    : Cast(a, held, to, x);
}

std::string Bitcast(const LlvmAlu& a) {
  const DType from = a.from(), to = a.node.dtype();
  if (from == to) return a.x[0];
  if (IsBool(to)) return NotZero(a, from, a.x[0]);
  if (IsBool(from)) return Convert(a, "zext", from, to, a.x[0]);
  return IsLlvmFloat(from) == IsLlvmFloat(to) ? a.x[0] : Convert(a, "bitcast", from, to, a.x[0]);
}

// --- the rest ---

std::string Neg(const LlvmAlu& a) {
  if (IsFloat(a.from())) return a.out.Let("fneg ", a.type(), " ", a.x[0]);
  return Do(a, "sub", a.Int(0), a.x[0]);
}

std::string Recip(const LlvmAlu& a) {
  const std::string one = LlvmLiteral(a.from(), std::bit_cast<int64_t>(1.0), a.lanes);
  return Do(a, "fdiv", one, a.x[0]);
}

std::string Max(const LlvmAlu& a) {
  if (IsFloat(a.from())) return Intrinsic(a, "maximum");
  return Intrinsic(a, IsSigned(a.from()) ? "smax" : "umax");
}

std::string Where(const LlvmAlu& a) {
  return a.out.Let("select ", a.type(), " ", a.x[0], ", ", a.to(), " ", a.x[1], ", ", a.to(), " ",
                   a.x[2]);
}

std::string MulAcc(const LlvmAlu& a) {
  if (IsFloat(a.from())) return Intrinsic(a, "fma");
  return Do(a, "add", Do(a, "mul", a.x[0], a.x[1]), a.x[2]);
}

// Lane by lane: where it is an instruction, vectors have none.
std::string Exp2(const LlvmAlu& a) {
  if (a.lanes == 1) return a.out.Call(a.exp2, a.type(), {{a.type(), a.x[0]}});
  const std::string single = LlvmType(a.from(), 1);
  std::string result = "poison";
  for (int64_t i = 0; i < a.lanes; ++i) {
    const std::string x = a.out.Let("extractelement ", a.type(), " ", a.x[0], ", i64 ", i);
    const std::string power = a.out.Call(a.exp2, single, {{single, x}});
    result =
        a.out.Let("insertelement ", a.type(), " ", result, ", ", single, " ", power, ", i64 ", i);
  }
  return result;
}

// Intel's SDM, VPDPBUSD: the first factor's bytes are unsigned, the second's signed, and the sum
// wraps. Other numbers of lanes are computed byte by byte.
std::string Dot4(const LlvmAlu& a) {
  const int64_t bytes = a.lanes * ByteSize(DType::kInt32);
  if (bytes <= a.dot_bytes && (bytes == 16 || bytes == 32 || bytes == 64)) {
    return a.out.Call(StrCat("llvm.x86.avx512.vpdpbusd.", 8 * bytes), a.type(),
                      {{a.type(), a.x[2]}, {a.type(), a.x[0]}, {a.type(), a.x[1]}});
  }
  std::string sum = a.x[2];
  for (int low = 0; low < 32; low += 8) {
    const std::string x = Do(a, "lshr", Do(a, "shl", a.x[0], a.Int(24 - low)), a.Int(24));
    const std::string y = Do(a, "ashr", Do(a, "shl", a.x[1], a.Int(24 - low)), a.Int(24));
    sum = Do(a, "add", sum, Do(a, "mul", x, y));
  }
  return sum;
}

// --- the table ---

struct AluRow {
  Op op;
  LlvmAluPrinter print;
};

constexpr AluRow kAluRows[] = {
    {Op::kNeg, Neg},
    {Op::kExp2, Exp2},
    {Op::kSqrt, [](const LlvmAlu& a) { return Intrinsic(a, "sqrt"); }},
    {Op::kRecip, Recip},
    {Op::kTrunc, [](const LlvmAlu& a) { return Intrinsic(a, "trunc"); }},
    {Op::kFloor, [](const LlvmAlu& a) { return Intrinsic(a, "floor"); }},
    {Op::kCast, Cast},
    {Op::kBitcast, Bitcast},
    {Op::kAdd, [](const LlvmAlu& a) { return Arithmetic(a, "add"); }},
    {Op::kSub, [](const LlvmAlu& a) { return Arithmetic(a, "sub"); }},
    {Op::kMul, [](const LlvmAlu& a) { return Arithmetic(a, "mul"); }},
    {Op::kFDiv, [](const LlvmAlu& a) { return Plain(a, "", "fdiv"); }},
    {Op::kFloorDiv, FloorDiv},
    {Op::kFloorMod, FloorMod},
    {Op::kCDiv, CDiv},
    {Op::kCMod, CMod},
    {Op::kMax, Max},
    {Op::kCmpLt, [](const LlvmAlu& a) { return Compare(a, "slt", "ult", "olt"); }},
    {Op::kCmpEq, [](const LlvmAlu& a) { return Compare(a, "eq", "eq", "oeq"); }},
    {Op::kCmpNe, [](const LlvmAlu& a) { return Compare(a, "ne", "ne", "une"); }},
    {Op::kAnd, [](const LlvmAlu& a) { return Plain(a, "and", ""); }},
    {Op::kOr, [](const LlvmAlu& a) { return Plain(a, "or", ""); }},
    {Op::kXor, [](const LlvmAlu& a) { return Plain(a, "xor", ""); }},
    {Op::kShl, [](const LlvmAlu& a) { return Shift(a, "shl"); }},
    {Op::kShr, [](const LlvmAlu& a) { return Shift(a, IsSigned(a.from()) ? "ashr" : "lshr"); }},
    {Op::kWhere, Where},
    {Op::kMulAcc, MulAcc},
    {Op::kDot4, Dot4},
};

constexpr auto kPrinters = [] {
  std::array<LlvmAluPrinter, kNumOps> table{};
  for (const AluRow& row : kAluRows) table[static_cast<size_t>(row.op)] = row.print;
  return table;
}();

// Gone before a program is rendered: engine/rules/decompositions. They are of the program level
// because the interpreter runs programs that have them.
constexpr Op kDecomposed[] = {Op::kLog2, Op::kSin, Op::kPow, Op::kThreefry};

constexpr bool Has(Op op) {
  for (const AluRow& row : kAluRows) {
    if (row.op == op) return true;
  }
  return std::ranges::find(kDecomposed, op) != std::end(kDecomposed);
}

[[maybe_unused]] constexpr void EveryRowIsThere() {
  [[maybe_unused]] constexpr int T = kTensorLevel, K = kKernelLevel, P = kProgramLevel;
#define OP(name, text, wire, min_src, max_src, arg, traits, elements, type, shape, levels, doc) \
  static_assert(((traits) & kAlu) == 0 || ((levels) & P) == 0 || Has(Op::name),                 \
                "a row that prints " #name                                                      \
                " is missing in kAluRows; an op that a rule of "                                \
                "decompositions.cc expresses by others has no level P in ops.def");
#include "engine/ir/ops.def"
#undef OP
}

}  // namespace

bool LlvmAluComputes(UOp u, const Target& target) {
  const bool moves = u.is(Op::kBitcast) || u.is(Op::kWhere);
  if (moves || u.num_src() == 0) return true;
  if (u.is(Op::kExp2)) return target.exp2 && u.dtype() == DType::kFloat32;
  const auto plain = [](DType dtype) { return !IsNarrowFloat(dtype); };
  const DType from = u.src(0).dtype(), to = u.dtype();
  if (plain(from) && plain(to)) return true;
  if (!u.is(Op::kCast)) return false;
  const auto converts = [&](DType dtype) { return IsHalf(dtype) && target.converts.Has(dtype); };
  // Exactly to f32, or from what f32 holds exactly.
  if (converts(from)) return plain(to) || to == from || converts(to);
  const bool held = from == DType::kFloat32 || (!IsFloat(from) && Info(from).bits <= 16);
  return converts(to) && held;
}

LlvmAluPrinter LlvmAluPrinterOf(Op op) { return kPrinters[static_cast<size_t>(op)]; }

}  // namespace telegrad
