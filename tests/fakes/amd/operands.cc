// How an instruction reads the lanes of its sources and writes those of its results: parts of
// registers, moves between lanes, signs, clamps.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/fakes/amd/half.h"
#include "tests/fakes/amd/row.h"
#include "tests/fakes/amd/wave.h"
#include "tests/fakes/amd/workgroup.h"

namespace fakeamd {
namespace {

bool IsSixteen(Type type) {
  return type == Type::kB16 || type == Type::kI16 || type == Type::kF16 || type == Type::kBF16;
}

// The lane that lane l reads, or -1 for none (ISA documents, "DPP").
int SourceLane(const LaneMove& move, int l, int lanes) {
  using Kind = LaneMove::Kind;
  const int row = l & ~15;
  const int at = l & 15;
  const int n = move.value[0];
  switch (move.kind) {
    case Kind::kNone:
      return l;
    case Kind::kQuad:
      return (l & ~3) + move.value[static_cast<size_t>(l & 3)];
    case Kind::kEight:
      return (l & ~7) + move.value[static_cast<size_t>(l & 7)];
    case Kind::kRowShl:
      return at + n < 16 ? l + n : -1;
    case Kind::kRowShr:
      return at >= n ? l - n : -1;
    case Kind::kRowRor:
      return row + ((at - n) & 15);
    case Kind::kRowMirror:
      return row + 15 - at;
    case Kind::kRowHalfMirror:
      return (l & ~7) + 7 - (l & 7);
    case Kind::kWaveShl:
      return l + 1 < lanes ? l + 1 : -1;
    case Kind::kWaveShr:
      return l - 1;
    case Kind::kWaveRol:
      return (l + 1) % lanes;
    case Kind::kWaveRor:
      return (l + lanes - 1) % lanes;
    case Kind::kRowBcast15:
      return l > 15 ? row - 1 : -1;
    case Kind::kRowBcast31:
      return l > 31 ? (l & ~31) - 1 : -1;
    case Kind::kRowShare:
    case Kind::kRowNewBcast:
      return row + n;
    case Kind::kRowXmask:
      return row + (at ^ n);
  }
  return -1;
}

uint32_t Part(uint32_t word, uint8_t select, bool sign) {
  if (select == 6) return word;
  const bool byte = select < 4;
  const int shift = byte ? 8 * select : 16 * (select - 4);
  const uint32_t part = word >> shift;
  if (byte) return sign ? static_cast<uint32_t>(static_cast<int8_t>(part)) : part & 0xff;
  return sign ? static_cast<uint32_t>(static_cast<int16_t>(part)) : part & 0xffff;
}

std::string NameOf(const Operand& o) {
  std::string name = "s";
  uint32_t number = o.reg;
  if (o.kind == Operand::Kind::kVector) {
    name = o.reg >= kAccumulators ? "a" : "v";
    number %= kAccumulators;
  }
  name += std::to_string(number);
  return name;
}

float Clamped(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }  // NaN gives 0

}  // namespace

// Moves `count` words of each lane; lanes without a source get 0 or are not written.
bool Wave::Move(const Instruction& i, uint32_t* words, uint32_t count, uint64_t* undefined) {
  Lanes old[2];
  std::memcpy(old, words, sizeof(uint32_t) * kMaxLanes * count);
  const uint64_t were = *undefined;
  *undefined = 0;
  for (uint32_t l = 0; l < lanes_; ++l) {
    const uint64_t bit = uint64_t{1} << l;
    if ((i.move.row_mask >> (l / 16) & 1) == 0 || (i.move.bank_mask >> (l % 16 / 4) & 1) == 0) {
      writes_ &= ~bit;
    }
    int from = SourceLane(i.move, static_cast<int>(l), static_cast<int>(lanes_));
    if (from >= 0 && !i.move.fetch_inactive && (exec_ >> from & 1) == 0) from = -1;
    if (from < 0 && !i.move.bound_zero) writes_ &= ~bit;
    for (uint32_t w = 0; w < count; ++w) {
      words[w * kMaxLanes + l] = from < 0 ? 0 : old[w][from];
    }
    if (from >= 0 && (were >> from & 1) != 0) *undefined |= bit;
  }
  return true;
}

LaneView Wave::Fetch(const Instruction& i, int k, Type type, uint32_t* low, uint32_t* high) {
  const Operand& o = i.source[static_cast<size_t>(k)];
  const uint32_t words = TypeWords(type);
  LaneView view{low, high};
  if (type == Type::kMask) {
    const uint64_t mask = FetchMask(i, k);
    for (uint32_t l = 0; l < lanes_; ++l) low[l] = mask >> l & 1;
    return view;
  }
  uint64_t undefined = 0;
  // Of a pair of floats the instruction may use one only.
  const bool pair = type == Type::kPairF32;
  const bool uses_low = !pair || (i.op_sel >> k & 1) == 0 || (i.op_sel_hi >> k & 1) == 0;
  const bool uses_high = words > 1 && (!pair || ((i.op_sel | i.op_sel_hi) >> k & 1) != 0);
  // LLVM sums 32 bits by these instructions, too, with an upper word that nothing wrote.
  const bool passes = words > 1 && k + 1 == i.sources && (i.row->value & kPassesHigh) != 0;
  if (o.kind == Operand::Kind::kVector) {
    view.low = Vector(o.reg);
    view.high = words > 1 ? Vector(o.reg + 1u) : nullptr;
    if (passes) passed_high_ = undefined_[o.reg + 1u] & writes_;
    undefined =
        (uses_low ? undefined_[o.reg] : 0) | (uses_high && !passes ? undefined_[o.reg + 1u] : 0);
  } else {
    uint64_t missing = 0;
    const uint64_t value = ScalarBits(o, &missing);
    if (!uses_low) missing >>= 32;
    if (passes && missing >> 32 != 0) passed_high_ = writes_;
    if (!uses_high || passes) missing &= 0xffffffff;
    if (missing != 0) undefined = ~uint64_t{0};
    std::fill_n(low, lanes_, static_cast<uint32_t>(value));
    if (words > 1) std::fill_n(high, lanes_, static_cast<uint32_t>(value >> 32));
  }
  const bool moves = k == 0 && i.move.kind != LaneMove::Kind::kNone;
  const bool sixteen = IsSixteen(type);
  const bool upper = o.high || (sixteen && (i.op_sel >> k & 1) != 0);
  if (moves || upper || o.negate || o.absolute || o.select != 6) {
    if (view.low != low) std::copy_n(view.low, lanes_, low);
    if (words > 1 && view.high != high) std::copy_n(view.high, lanes_, high);
    view = {low, high};
    if (moves) {
      Lanes both[2];
      std::copy_n(low, lanes_, both[0]);
      if (words > 1) std::copy_n(high, lanes_, both[1]);
      Move(i, both[0], words, &undefined);
      std::copy_n(both[0], lanes_, low);
      if (words > 1) std::copy_n(both[1], lanes_, high);
    }
    if (o.select != 6) {
      for (uint32_t l = 0; l < lanes_; ++l) low[l] = Part(low[l], o.select, o.extend);
    }
    if (upper) {
      for (uint32_t l = 0; l < lanes_; ++l) low[l] >>= 16;
    }
    uint32_t* top = words > 1 ? high : low;
    const uint32_t sign = sixteen ? 0x8000u : 0x80000000u;
    if (o.absolute) {
      for (uint32_t l = 0; l < lanes_; ++l) top[l] &= ~sign;
    }
    if (o.negate) {
      for (uint32_t l = 0; l < lanes_; ++l) top[l] ^= sign;
    }
  }
  undefined &= writes_;
  if (undefined != 0) {
    if ((i.row->value & kPassesUndefined) != 0) {
      passed_ |= undefined;
    } else {
      Fail(FaultCode::kIllegalInstruction, i, std::countr_zero(undefined),
           "reads " + NameOf(o) + ", which has no defined value");
    }
  }
  return view;
}

uint64_t Wave::FetchMask(const Instruction& i, int k) {
  uint64_t undefined = 0;
  const uint64_t mask = ScalarBits(i.source[static_cast<size_t>(k)], &undefined);
  if ((undefined & exec_) != 0) {
    Fail(FaultCode::kIllegalInstruction, i, std::countr_zero(undefined & exec_),
         "reads a mask that has no defined value for it");
  }
  return mask & ~undefined;
}

void Wave::PutMask(const Instruction& i, int k, uint64_t mask) {
  PutScalar(i.result[static_cast<size_t>(k)], mask & writes_, passed_high_);
}

void Wave::Put(const Instruction& i, int k, Type type, uint32_t* low, uint32_t* high) {
  const Operand& o = i.result[static_cast<size_t>(k)];
  if (i.scale != 0 || (i.clamp && (i.row->value & kSaturates) == 0)) {
    const double factor = i.scale == 0 ? 1 : i.scale == 1 ? 2 : i.scale == 2 ? 4 : 0.5;
    for (uint32_t l = 0; l < lanes_; ++l) {
      if (type == Type::kF32 || type == Type::kMix) {
        float x = std::bit_cast<float>(low[l]) * static_cast<float>(factor);
        if (i.clamp) x = Clamped(x);
        low[l] = std::bit_cast<uint32_t>(x);
      } else if (type == Type::kF16) {
        float x = ToFloat(Half{static_cast<uint16_t>(low[l])}) * static_cast<float>(factor);
        if (i.clamp) x = Clamped(x);
        low[l] = ToHalf(x).bits;
      } else if (type == Type::kF64) {
        double x = std::bit_cast<double>(low[l] | uint64_t{high[l]} << 32) * factor;
        if (i.clamp) x = x > 0 ? (x < 1 ? x : 1.0) : 0.0;
        low[l] = static_cast<uint32_t>(std::bit_cast<uint64_t>(x));
        high[l] = static_cast<uint32_t>(std::bit_cast<uint64_t>(x) >> 32);
      } else {
        return Fail(FaultCode::kIllegalInstruction, i, -1,
                    "has an output modifier that is unknown");
      }
    }
  }
  uint32_t* to = Vector(o.reg);
  if (IsSixteen(type)) {
    const bool upper = o.high || (i.op_sel & 8) != 0;
    const bool keeps = upper || target().keeps_high;
    for (uint32_t l = 0; l < lanes_; ++l) {
      const uint32_t half = low[l] & 0xffff;
      low[l] = upper ? half << 16 | (to[l] & 0xffff) : half | (keeps ? to[l] & 0xffff0000 : 0);
    }
  }
  if (i.result_select != 6) {
    const bool byte = i.result_select < 4;
    const int shift = byte ? 8 * i.result_select : 16 * (i.result_select - 4);
    const uint32_t part = byte ? 0xff : 0xffff;
    for (uint32_t l = 0; l < lanes_; ++l) {
      uint32_t value = (low[l] & part) << shift;
      const bool negative = (low[l] & (byte ? 0x80u : 0x8000u)) != 0;
      if (i.result_unused == 1 && negative) value |= ~((part << shift) | ((1u << shift) - 1));
      if (i.result_unused == 2) value |= to[l] & ~(part << shift);
      low[l] = value;
    }
  }
  const uint64_t mask = writes_;
  const auto write = [&](uint32_t reg, const uint32_t* from, uint64_t passed) {
    uint32_t* lane = Vector(reg);
    if (mask == all()) {
      std::copy_n(from, lanes_, lane);
    } else {
      for (uint32_t l = 0; l < lanes_; ++l) {
        if ((mask >> l & 1) != 0) lane[l] = from[l];
      }
    }
    undefined_[reg] = (undefined_[reg] & ~mask) | (passed & mask);
  };
  write(o.reg, low, passed_);
  if (TypeWords(type) > 1) write(o.reg + 1u, high, passed_ | passed_high_);
}

}  // namespace fakeamd
