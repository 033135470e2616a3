// Matrix instructions: D = A * B + C, of which each lane of a wave holds some elements. MFMA
// (gfx90a, gfx942) has waves of 64, WMMA (gfx11, gfx12) of 32. Where elements lie: AMD's matrix
// instruction calculator and the ISA documents, "Matrix Arithmetic Instructions" and "WMMA".
//
// Products are exact; the sum over k is one rounding after another, in the order of k. The
// documents leave the order open, so only a bound of the error may be relied on.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "tests/fakes/amd/float_value.h"
#include "tests/fakes/amd/memory_row.h"
#include "tests/fakes/amd/workgroup.h"

namespace fakeamd {
namespace {

enum class Element : uint8_t { kF16, kBF16, kF32, kF64, kI8 };
// How the elements of A and B along k, and those of D, are spread over the wave.
enum class Spread : uint8_t { kMfma, kMfma64, kWmma11, kWmma12 };

struct Shape {
  const char* names;
  uint32_t m, n, k;
  Element input;
  Element sum;  // kF32, kF64, kF16, kBF16; kI8 stands for sums in i32
  Spread spread;
};

constexpr Shape kShapes[] = {
    {"v_mfma_f32_16x16x16_f16|v_mfma_f32_16x16x16f16", 16, 16, 16, Element::kF16, Element::kF32,
     Spread::kMfma},
    {"v_mfma_f32_32x32x8_f16|v_mfma_f32_32x32x8f16", 32, 32, 8, Element::kF16, Element::kF32,
     Spread::kMfma},
    {"v_mfma_f32_16x16x16_bf16|v_mfma_f32_16x16x16bf16_1k", 16, 16, 16, Element::kBF16,
     Element::kF32, Spread::kMfma},
    {"v_mfma_f32_32x32x8_bf16|v_mfma_f32_32x32x8bf16_1k", 32, 32, 8, Element::kBF16, Element::kF32,
     Spread::kMfma},
    {"v_mfma_f32_16x16x4_f32|v_mfma_f32_16x16x4f32", 16, 16, 4, Element::kF32, Element::kF32,
     Spread::kMfma},
    {"v_mfma_f32_32x32x2_f32|v_mfma_f32_32x32x2f32", 32, 32, 2, Element::kF32, Element::kF32,
     Spread::kMfma},
    {"v_mfma_f64_16x16x4_f64|v_mfma_f64_16x16x4f64", 16, 16, 4, Element::kF64, Element::kF64,
     Spread::kMfma64},
    {"v_mfma_i32_16x16x32_i8", 16, 16, 32, Element::kI8, Element::kI8, Spread::kMfma},
    {"v_mfma_i32_32x32x16_i8", 32, 32, 16, Element::kI8, Element::kI8, Spread::kMfma},
    {"v_mfma_i32_16x16x16i8", 16, 16, 16, Element::kI8, Element::kI8, Spread::kMfma},
    {"v_mfma_i32_32x32x8i8", 32, 32, 8, Element::kI8, Element::kI8, Spread::kMfma},
    {"v_wmma_f32_16x16x16_f16", 16, 16, 16, Element::kF16, Element::kF32, Spread::kWmma11},
    {"v_wmma_f32_16x16x16_bf16", 16, 16, 16, Element::kBF16, Element::kF32, Spread::kWmma11},
    {"v_wmma_f16_16x16x16_f16", 16, 16, 16, Element::kF16, Element::kF16, Spread::kWmma11},
    {"v_wmma_bf16_16x16x16_bf16", 16, 16, 16, Element::kBF16, Element::kBF16, Spread::kWmma11},
};

constexpr uint32_t BytesOf(Element element) {
  constexpr uint32_t kBytes[] = {2, 2, 4, 8, 1};
  return kBytes[static_cast<size_t>(element)];
}
constexpr uint32_t SumBytes(Element sum) { return sum == Element::kI8 ? 4 : BytesOf(sum); }

// gfx12 holds each element once; the row of gfx11 serves both.
Spread SpreadOf(const Shape& shape, const Target& target) {
  return shape.spread == Spread::kWmma11 && target.major >= 12 ? Spread::kWmma12 : shape.spread;
}

// Elements of A or B that a lane holds.
uint32_t Held(const Shape& shape, Spread spread) {
  return spread == Spread::kWmma11 ? shape.k
                                   : shape.k * shape.m / (spread == Spread::kWmma12 ? 32 : 64);
}
// Elements of D that a lane holds. On gfx11, one of 16 bits takes a register of its own.
uint32_t HeldSums(const Shape& shape, Spread spread) {
  return shape.m * shape.n / (spread == Spread::kMfma || spread == Spread::kMfma64 ? 64 : 32);
}
uint32_t SumWords(const Shape& shape, Spread spread) {
  const uint32_t bytes =
      spread == Spread::kWmma11 ? std::max(SumBytes(shape.sum), 4u) : SumBytes(shape.sum);
  return HeldSums(shape, spread) * bytes / 4;
}

bool DecodeMatrix(Decoder& d, const Row& row) {
  const Shape& shape = kShapes[row.value];
  const Spread spread = SpreadOf(shape, d.target());
  const uint32_t wave = spread == Spread::kWmma11 || spread == Spread::kWmma12 ? 32 : 64;
  if (d.lanes() != wave) return d.Fail("is not supported for this size of waves");
  const uint32_t words = Held(shape, spread) * BytesOf(shape.input) / 4;
  const uint32_t sums = SumWords(shape, spread);
  return d.Expect(4) && d.ReadResult(0, Type::kNone, sums) && d.ReadSource(1, Type::kNone, words) &&
         d.ReadSource(2, Type::kNone, words) && d.ReadSource(3, Type::kNone, sums) &&
         d.OnlyModifiers("");
}

double ElementAt(Wave& w, uint32_t reg, Element element, uint32_t lane, uint32_t index) {
  const uint32_t bytes = BytesOf(element);
  const uint32_t word = w.Vector(reg + index * bytes / 4)[lane];
  switch (element) {
    case Element::kF16:
      return ToFloat(Half{static_cast<uint16_t>(word >> (16 * (index & 1)))});
    case Element::kBF16:
      return ToFloat(Brain{static_cast<uint16_t>(word >> (16 * (index & 1)))});
    case Element::kF32:
      return std::bit_cast<float>(word);
    case Element::kF64:
      return std::bit_cast<double>(word | uint64_t{w.Vector(reg + 2 * index + 1)[lane]} << 32);
    case Element::kI8:
      return static_cast<int8_t>(word >> (8 * (index & 3)));
  }
  return 0;
}

// The row of D (its column is lane % n) that element `index` of a lane is.
uint32_t RowOfSum(const Shape& shape, Spread spread, uint32_t lane, uint32_t index) {
  switch (spread) {
    case Spread::kMfma:
      return 4 * (64 / shape.n) * (index / 4) + 4 * (lane / shape.n) + index % 4;
    case Spread::kMfma64:
      return 4 * index + lane / shape.n;
    case Spread::kWmma11:
      return 2 * index + lane / 16;
    case Spread::kWmma12:
      return 8 * (lane / 16) + index;
  }
  return 0;
}

double Accumulate(const Shape& shape, const double* a, const double* b, double sum) {
  for (uint32_t k = 0; k < shape.k; ++k) {
    if (shape.sum == Element::kF64) {
      sum = std::fma(a[k], b[k], sum);
    } else if (shape.sum == Element::kI8) {
      sum += a[k] * b[k];
    } else {
      sum = static_cast<float>(FmaToOdd(a[k], b[k], sum));
    }
  }
  return sum;
}

bool Defined(Wave& w, const Instruction& i, const Operand& operand) {
  if (operand.kind != Operand::Kind::kVector) return true;
  for (uint32_t r = operand.reg; r < uint32_t{operand.reg} + operand.words; ++r) {
    if ((w.undefined(r) & w.all()) == 0) continue;
    w.Fail(FaultCode::kIllegalInstruction, i, std::countr_zero(w.undefined(r)),
           "reads a matrix of which register " + std::to_string(r) + " has no defined value");
    return false;
  }
  return true;
}

// Rows of A (or columns of B) as arrays along k. On gfx11 both halves of a wave have to hold the
// same.
bool Gather(Wave& w, const Instruction& i, const Shape& shape, Spread spread, uint32_t reg,
            std::vector<double>* out) {
  out->assign(size_t{shape.m} * shape.k, 0);
  const uint32_t held = Held(shape, spread);
  for (uint32_t lane = 0; lane < w.lanes(); ++lane) {
    const uint32_t line = lane % shape.m;
    for (uint32_t e = 0; e < held; ++e) {
      const double value = ElementAt(w, reg, shape.input, lane, e);
      const uint32_t k = spread == Spread::kWmma11 ? e : held * (lane / shape.m) + e;
      double& to = (*out)[size_t{line} * shape.k + k];
      if (spread == Spread::kWmma11 && lane >= 16 &&
          std::bit_cast<uint64_t>(to) != std::bit_cast<uint64_t>(value)) {
        w.Fail(FaultCode::kIllegalInstruction, i, static_cast<int>(lane),
               "the halves of the wave hold different elements of A or B");
        return false;
      }
      to = value;
    }
  }
  return true;
}

double SumAt(Wave& w, const Instruction& i, const Shape& shape, Spread spread, uint32_t lane,
             uint32_t e) {
  const Operand& c = i.source[2];
  if (c.kind == Operand::Kind::kConstant) {
    if (shape.sum == Element::kI8) return static_cast<int32_t>(c.constant);
    if (shape.sum == Element::kF64) return std::bit_cast<double>(c.constant);
    return std::bit_cast<float>(static_cast<uint32_t>(c.constant));
  }
  if (shape.sum == Element::kI8) return static_cast<int32_t>(w.Vector(c.reg + e)[lane]);
  // A half in a register of its own is the lower one.
  if (spread == Spread::kWmma11 && SumBytes(shape.sum) == 2) {
    return ElementAt(w, c.reg + e, shape.sum, lane, 0);
  }
  return ElementAt(w, c.reg, shape.sum, lane, e);
}

void PutSum(Wave& w, const Operand& to, const Shape& shape, Spread spread, uint32_t lane,
            uint32_t e, double value) {
  const auto put16 = [&](uint16_t bits) {
    const bool alone = spread == Spread::kWmma11;
    uint32_t& word = w.Vector(to.reg + (alone ? e : e / 2))[lane];
    const bool upper = !alone && e % 2 == 1;
    word = upper ? (word & 0xffff) | uint32_t{bits} << 16 : (word & 0xffff0000) | bits;
  };
  switch (shape.sum) {
    case Element::kI8:
      w.Vector(to.reg + e)[lane] = static_cast<uint32_t>(static_cast<int64_t>(value));
      break;
    case Element::kF32:
      w.Vector(to.reg + e)[lane] = std::bit_cast<uint32_t>(static_cast<float>(value));
      break;
    case Element::kF64: {
      const auto bits = std::bit_cast<uint64_t>(value);
      w.Vector(to.reg + 2 * e)[lane] = static_cast<uint32_t>(bits);
      w.Vector(to.reg + 2 * e + 1)[lane] = static_cast<uint32_t>(bits >> 32);
      break;
    }
    case Element::kF16:
      put16(ToHalf(value).bits);
      break;
    case Element::kBF16:
      put16(ToBrain(value).bits);
      break;
  }
}

void Multiply(Wave& w, const Instruction& i) {
  const Shape& shape = kShapes[i.row->value];
  const Spread spread = SpreadOf(shape, w.target());
  ++w.group().state().counts.matrix_instructions;
  if (w.exec() != w.all()) {
    return w.Fail(FaultCode::kIllegalInstruction, i, -1,
                  "runs while some lanes of the wave are inactive");
  }
  for (uint32_t k = 0; k < 3; ++k) {
    if (!Defined(w, i, i.source[k])) return;
  }
  thread_local std::vector<double> a, b, sums;
  if (!Gather(w, i, shape, spread, i.source[0].reg, &a)) return;
  if (!Gather(w, i, shape, spread, i.source[1].reg, &b)) return;
  const uint32_t held = HeldSums(shape, spread);
  sums.resize(size_t{held} * w.lanes());
  for (uint32_t lane = 0; lane < w.lanes(); ++lane) {
    for (uint32_t e = 0; e < held; ++e) {
      const double* left = &a[size_t{RowOfSum(shape, spread, lane, e)} * shape.k];
      const double* right = &b[size_t{lane % shape.n} * shape.k];
      sums[size_t{lane} * held + e] =
          Accumulate(shape, left, right, SumAt(w, i, shape, spread, lane, e));
    }
  }
  const Operand& to = i.result[0];
  for (uint32_t lane = 0; lane < w.lanes(); ++lane) {
    for (uint32_t e = 0; e < held; ++e)
      PutSum(w, to, shape, spread, lane, e, sums[size_t{lane} * held + e]);
  }
  for (uint32_t r = to.reg; r < uint32_t{to.reg} + to.words; ++r) w.undefined(r) = ~w.all();
}

RowList MakeMatrixRows() {
  RowList list;
  for (uint32_t s = 0; s < std::size(kShapes); ++s)
    list.Add(kShapes[s].names, Multiply, DecodeMatrix, s);
  return list;
}

}  // namespace

std::span<const Row> MatrixRows() {
  static const RowList list = MakeMatrixRows();
  return list.rows();
}

}  // namespace fakeamd
