// The scalar types of PTX (PTX ISA, "Fundamental Types") and the packed ones of its half-precision
// instructions, with the rule that says which registers an instruction of a type takes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fakecuda {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBF16,
  kF16x2,
  kBF16x2,
  kF32,
  kF64,
};

struct TypeInfo {
  std::string_view name;
  int bits;
  char kind;  // p predicate, b bits, u unsigned, s signed, f float
};

inline constexpr std::array<TypeInfo, 20> kTypes = {{
    {"", 0, '-'},      {"pred", 1, 'p'},   {"b8", 8, 'b'},      {"b16", 16, 'b'}, {"b32", 32, 'b'},
    {"b64", 64, 'b'},  {"u8", 8, 'u'},     {"u16", 16, 'u'},    {"u32", 32, 'u'}, {"u64", 64, 'u'},
    {"s8", 8, 's'},    {"s16", 16, 's'},   {"s32", 32, 's'},    {"s64", 64, 's'}, {"f16", 16, 'f'},
    {"bf16", 16, 'f'}, {"f16x2", 32, 'f'}, {"bf16x2", 32, 'f'}, {"f32", 32, 'f'}, {"f64", 64, 'f'},
}};

constexpr const TypeInfo& Info(Type t) { return kTypes[static_cast<size_t>(t)]; }
constexpr int Bits(Type t) { return Info(t).bits; }
constexpr int Bytes(Type t) { return Info(t).bits / 8; }
constexpr bool IsFloat(Type t) { return Info(t).kind == 'f'; }
constexpr bool IsSigned(Type t) { return Info(t).kind == 's'; }
constexpr bool IsInteger(Type t) { return Info(t).kind == 's' || Info(t).kind == 'u'; }

constexpr std::optional<Type> TypeNamed(std::string_view name) {
  for (size_t i = 1; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<Type>(i);
  }
  return std::nullopt;
}

// PTX ISA, "Operand Type Checking": sizes agree; bits agree with everything, integers with integers
// of either sign, a float with itself. Half-precision values live in registers of bits.
constexpr bool Agree(Type instruction, Type reg) {
  if (Bits(instruction) != Bits(reg)) return false;
  if (Info(instruction).kind == 'b' || Info(reg).kind == 'b') return true;
  if (IsInteger(instruction) && IsInteger(reg)) return true;
  return instruction == reg;
}

}  // namespace fakecuda
