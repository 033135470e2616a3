// Matrices that the 32 lanes of a warp hold together: mma.sync m16n8k16 with f32 sums and ldmatrix
// (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" and "ldmatrix").
//
// The products of an element are exact and summed in double, then with c, and rounded to f32 once:
// the device's order and inner width are not specified.
#include <cstring>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/float_format.h"
#include "tests/fakes/cuda/ptx/warp.h"

namespace fakecuda {
namespace {

constexpr int kM = 16;
constexpr int kN = 8;
constexpr int kK = 16;

double HalfOf(uint64_t reg, int half, const FloatFormat& format) {
  return DecodeFloat(format, reg >> (16 * half) & 0xffff);
}

// slots: d 0-3, a 4-7, b 8-9, c 10-13; `flags`: bf16.
void Mma(Warp& w, const Instruction& i, uint32_t) {
  const FloatFormat format = i.flags != 0 ? kBF16Format : kF16Format;
  double a[kM][kK];
  double b[kK][kN];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int group = lane / 4;
    const int pair = lane % 4;
    for (int r = 0; r < 4; ++r) {
      const int row = group + (r % 2 == 1 ? 8 : 0);
      const int column = 2 * pair + (r >= 2 ? 8 : 0);
      const uint64_t reg = w.Slot(i.slot[static_cast<size_t>(4 + r)])[lane];
      for (int h = 0; h < 2; ++h) a[row][column + h] = HalfOf(reg, h, format);
    }
    for (int r = 0; r < 2; ++r) {
      const uint64_t reg = w.Slot(i.slot[static_cast<size_t>(8 + r)])[lane];
      for (int h = 0; h < 2; ++h) b[2 * pair + h + 8 * r][group] = HalfOf(reg, h, format);
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int e = 0; e < 4; ++e) {
      const int row = lane / 4 + (e >= 2 ? 8 : 0);
      const int column = 2 * (lane % 4) + e % 2;
      double sum = 0;
      for (int k = 0; k < kK; ++k) sum += a[row][k] * b[k][column];
      sum += Get<float>(w.Slot(i.slot[static_cast<size_t>(10 + e)])[lane]);
      w.Slot(i.slot[static_cast<size_t>(e)])[lane] =
          EncodeDouble(kF32Format, sum, 0, Round::kNearest);
    }
  }
}

// Lanes 8 m to 8 m + 7 give the addresses of the rows of matrix m. slots: address, registers.
void LoadMatrix(Warp& w, const Instruction& i, uint32_t) {
  const bool transposed = i.flags != 0;
  const auto lanes = static_cast<uint32_t>((uint64_t{1} << (8 * i.count)) - 1);
  if (i.space == Space::kShared) w.CountShared(w.Slot(i.slot[0]), i.offset, lanes, 16, false);
  for (int m = 0; m < i.count; ++m) {
    uint16_t matrix[8][8];
    for (int row = 0; row < 8; ++row) {
      const int lane = 8 * m + row;
      const uint64_t address = w.Slot(i.slot[0])[lane] + static_cast<uint64_t>(i.offset);
      const uint8_t* from = w.Access(i, lane, i.space, address, 16, AccessKind::kRead);
      if (from == nullptr) return;
      std::memcpy(matrix[row], from, 16);
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      const int x = lane / 4;
      const int y = 2 * (lane % 4);
      const uint32_t low = transposed ? matrix[y][x] : matrix[x][y];
      const uint32_t high = transposed ? matrix[y + 1][x] : matrix[x][y + 1];
      w.Slot(i.slot[static_cast<size_t>(1 + m)])[lane] = high << 16 | low;
    }
  }
}

void Registers(Decoder& d, size_t operand, size_t count, Type type, bool write, size_t first) {
  const Operand& o = d.statement().operands[operand];
  d.Expect(o.kind == Operand::Kind::kVector && o.elements.size() == count,
           "operand " + std::to_string(operand) + " has " + std::to_string(count) + " registers");
  if (o.elements.size() != count) return;
  for (size_t k = 0; k < count; ++k) {
    d.out().slot[first + k] =
        write ? d.DestinationOf(o.elements[k], type) : d.SourceOf(o.elements[k], type);
  }
}

bool DecodeMma(Decoder& d) {
  Instruction& o = d.out();
  const bool shape =
      d.Take("sync") && d.Take("aligned") && d.Take("m16n8k16") && d.Take("row") && d.Take("col");
  d.Expect(shape, "only .sync.aligned.m16n8k16.row.col");
  const Type result = d.TakeType();
  const Type a = d.TakeType();
  const Type b = d.TakeType();
  const Type c = d.TakeType();
  d.Expect(
      result == Type::kF32 && c == Type::kF32 && a == b && (a == Type::kF16 || a == Type::kBF16),
      "no such matrix types");
  d.ExpectOperands(4);
  if (d.operands() != 4) return true;
  Registers(d, 0, 4, Type::kF32, true, 0);
  Registers(d, 1, 4, Type::kB32, false, 4);
  Registers(d, 2, 2, Type::kB32, false, 8);
  Registers(d, 3, 4, Type::kF32, false, 10);
  o.flags = a == Type::kBF16 ? 1 : 0;
  o.flow = Flow::kCollective;
  o.whole_warp = true;
  o.execute = &Mma;
  return true;
}

}  // namespace

bool DecodeMatrix(Decoder& d) {
  if (d.mnemonic() == "mma") return DecodeMma(d);
  if (d.mnemonic() != "ldmatrix") return false;
  Instruction& o = d.out();
  d.Expect(d.Take("sync") && d.Take("aligned") && d.Take("m8n8"), "only .sync.aligned.m8n8");
  const int count = d.TakeOne({"x1", "x2", "x4"});
  o.flags = d.Take("trans") ? 1 : 0;
  o.space = d.TakeSpace();
  d.Expect(count >= 0 && d.Take("b16"), "no such matrix load");
  d.Expect(o.space == Space::kShared || o.space == Space::kGeneric, "only shared memory");
  d.ExpectOperands(2);
  if (d.operands() != 2 || count < 0) return true;
  o.count = static_cast<uint8_t>(1 << count);
  Registers(d, 0, o.count, Type::kB32, true, 1);
  d.Address(1, o.space, 0);
  o.flow = Flow::kCollective;
  o.whole_warp = true;
  o.execute = &LoadMatrix;
  return true;
}

}  // namespace fakecuda
