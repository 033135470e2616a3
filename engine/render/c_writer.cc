#include "engine/render/c_writer.h"

#include <algorithm>
#include <array>

#include "engine/ir/scalar.h"
#include "engine/types/target.h"

namespace telegrad {
namespace {

constexpr CDialect kDialects[] = {
#define C_DIALECT(name, arch, preamble, kernel, global, local, group, thread, barrier) \
  {arch, preamble, kernel, global, local, group, thread, barrier},
#include "engine/render/c_dialects.def"
#undef C_DIALECT
};

std::string_view IntegerName(int bits) {
  return bits == 8 ? "char" : bits == 16 ? "short" : bits == 32 ? "int" : "long";
}

std::string WithLanes(std::string_view element, int64_t lanes) {
  return lanes == 1 ? std::string(element) : StrCat(element, lanes);
}

}  // namespace

const CDialect* FindCDialect(std::string_view arch) {
  const auto row = std::ranges::find(kDialects, arch, &CDialect::arch);
  return row == std::end(kDialects) ? nullptr : &*row;
}

bool IsCWidth(int64_t lanes) {
  constexpr std::array<int64_t, 6> kWidths = {1, 2, 3, 4, 8, 16};
  return std::ranges::find(kWidths, lanes) != kWidths.end();
}

std::string CType(DType dtype, int64_t lanes) {
  if (dtype == DType::kFloat32) return WithLanes("float", lanes);
  if (dtype == DType::kFloat64) return WithLanes("double", lanes);
  return WithLanes(StrCat("u", IntegerName(Info(dtype).bits)), lanes);
}

std::string CSignedType(DType dtype, int64_t lanes) {
  return WithLanes(IntegerName(Info(dtype).bits), lanes);
}

std::string CLiteral(DType dtype, int64_t word, int64_t lanes) {
  const int bits = Info(dtype).bits;
  auto raw = static_cast<uint64_t>(IsBool(dtype) ? word : ScalarToMemory(dtype, word));
  if (bits < 64) raw &= (uint64_t{1} << bits) - 1;
  std::string text = StrCat(raw, bits == 64 ? "ul" : "u");
  if (IsCFloat(dtype)) text = StrCat("as_", CType(dtype, 1), "(", text, ")");
  if (bits < 32 || lanes > 1) text = StrCat("((", CType(dtype, lanes), ")(", text, "))");
  return text;
}

std::string CLane(std::string_view value, int64_t lane, int64_t lanes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return lanes == 1 ? std::string(value)
                    : StrCat(value, ".s", kDigits.substr(static_cast<size_t>(lane), 1));
}

std::string CSigned(DType dtype, int64_t lanes, std::string_view x) {
  return StrCat("as_", CSignedType(dtype, lanes), "(", x, ")");
}

// An operation on scalars narrower than int has a result of type int.
std::string CUnsigned(DType dtype, int64_t lanes, std::string_view x) {
  const std::string type = CType(dtype, lanes);
  return lanes == 1 ? StrCat("(", type, ")(", x, ")") : StrCat("as_", type, "(", x, ")");
}

// A comparison of vectors has 0 or all bits in each lane, in integers of the operands' width.
std::string CWriter::Test(int64_t lanes, std::string_view comparison) {
  if (lanes == 1) return Let(DType::kBool, 1, "(uchar)(", comparison, ")");
  return Let(DType::kBool, lanes, "as_uchar", lanes, "(convert_char", lanes, "(", comparison,
             ")) & (uchar", lanes, ")(1)");
}

std::string CWriter::Select(DType dtype, int64_t lanes, std::string_view condition,
                            std::string_view then, std::string_view otherwise) {
  if (lanes == 1) return Let(dtype, 1, condition, " ? ", then, " : ", otherwise);
  return Let(dtype, lanes, "select(", otherwise, ", ", then, ", -convert_",
             CSignedType(dtype, lanes), "(", CSigned(DType::kBool, lanes, condition), "))");
}

}  // namespace telegrad
