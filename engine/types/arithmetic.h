// Kinds of arithmetic, as far as processors have different rates for them: one table,
// arithmetic.def.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/types/dtype.h"

namespace telegrad {

enum class Arithmetic : uint8_t {
#define ARITHMETIC(name, ...) name,
#include "engine/types/arithmetic.def"
#undef ARITHMETIC
};

enum class ArithmeticUnit : uint8_t { kVector, kMatrix };

struct ArithmeticInfo {
  Arithmetic arithmetic;
  std::string_view text;
  ArithmeticUnit unit;
  DType dtype;  // of its inputs
};

// All rows, indexed by the enumerator.
inline constexpr std::array kArithmetics = {
#define ARITHMETIC(name, text, unit, dtype) \
  ArithmeticInfo{Arithmetic::name, text, ArithmeticUnit::unit, DType::dtype},
#include "engine/types/arithmetic.def"
#undef ARITHMETIC
};

inline constexpr std::string_view Name(Arithmetic kind) {
  return kArithmetics[static_cast<size_t>(kind)].text;
}

// In which elements of the type are added and multiplied. A bool counts as i8, and a float of 8
// bits as f32, in which its arithmetic is done. nullopt for types without arithmetic.
std::optional<Arithmetic> VectorArithmetic(DType dtype);
// Of matrix instructions with such inputs; nullopt where there are none.
std::optional<Arithmetic> MatrixArithmetic(DType inputs);

// Operations by their kind, in a second or in another unit that its owner names. A multiply-add is
// two. 0: unknown.
class ArithmeticRates {
 public:
  constexpr ArithmeticRates() = default;
  constexpr ArithmeticRates(std::initializer_list<std::pair<Arithmetic, double>> rates) {
    for (const auto& [kind, rate] : rates) (*this)[kind] = rate;
  }
  constexpr double operator[](Arithmetic kind) const { return rates_[static_cast<size_t>(kind)]; }
  constexpr double& operator[](Arithmetic kind) { return rates_[static_cast<size_t>(kind)]; }

  // Of so many processors, or so many cycles a second.
  friend constexpr ArithmeticRates operator*(ArithmeticRates rates, double times) {
    for (double& rate : rates.rates_) rate *= times;
    return rates;
  }
  friend constexpr bool operator==(const ArithmeticRates&, const ArithmeticRates&) = default;

 private:
  std::array<double, kArithmetics.size()> rates_{};
};

// The most that a multiprocessor of an NVIDIA GPU of that compute capability does in a cycle (CUDA
// C++ Programming Guide, "Throughput of Native Arithmetic Instructions"; of matrix instructions on
// dense matrices: NVIDIA A100 and H100 whitepapers).
ArithmeticRates NvidiaOperationsPerCycle(int major, int minor);

}  // namespace telegrad
