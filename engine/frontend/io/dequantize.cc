// Each function below is one block format of ggml-common.h, and says where in a block its fields
// lie. All of them work on [blocks, bytes of a block] and give [blocks, elements of a block].
// Elements of a byte are taken by BitFields: a new axis whose index says by how much to shift, so
// that the order of elements in a file is a matter of reshapes and permutes.
#include "engine/frontend/io/dequantize.h"

#include <bit>
#include <cstring>

#include "engine/base/status.h"

namespace telegrad {
namespace {

Tensor Shift(Op op, const Tensor& x, const Tensor& by) {
  return x.builder()->Make(op, DType::kVoid, {x, by});
}
Tensor ShiftLeft(const Tensor& x, int by) { return Shift(Op::kShl, x, x.Like(by)); }
Tensor ShiftRight(const Tensor& x, int by) { return Shift(Op::kShr, x, x.Like(by)); }
Tensor Mask(const Tensor& x, int mask) { return x.And(x.Like(mask)); }
Tensor Bitcast(const Tensor& x, DType dtype) {
  return x.valid() ? x.builder()->Make(Op::kBitcast, dtype, {x}) : x;
}
Tensor F32(const Tensor& x) { return x.Cast(DType::kFloat32); }

// The fields of `bits` bits that bytes [..., m] consist of: [..., 8 / bits, m], the lowest first.
// The shift is by the new axis's index, `bits` times: an index costs nothing where it is used,
// while a multiple of it is a value, which the scheduler may store and load again for every
// element.
Tensor BitFields(const Tensor& bytes, int bits) {
  if (!bytes.valid()) return bytes;
  const int64_t fields = 8 / bits;
  Shape shape(bytes.shape().begin(), bytes.shape().end());
  shape.insert(shape.end() - 1, fields);
  Shape column(shape.size(), 1);
  column[column.size() - 2] = fields;
  const Tensor by = bytes.builder()->Iota(DType::kUInt8, fields).Reshape(column).Expand(shape);
  Tensor x = bytes.Unsqueeze(-2).Expand(shape);
  for (int i = 0; i < bits; ++i) x = Shift(Op::kShr, x, by);
  return Mask(x, (1 << bits) - 1);
}

// The bytes of blocks, and what the formats share.
class Blocks {
 public:
  Blocks(const Tensor& bytes, int64_t count, int64_t size)
      : count_(count), bytes_(bytes.Reshape({count, size})) {}

  // [blocks, count]
  Tensor U8(int64_t at, int64_t count) const { return bytes_.Slice(1, at, at + count); }
  // The same as [blocks, rows, count / rows].
  Tensor U8(int64_t at, int64_t count, int64_t rows) const {
    return Rows(U8(at, count), rows, count / rows);
  }
  Tensor I8(int64_t at, int64_t count) const { return Bitcast(U8(at, count), DType::kInt8); }
  // An f16 number of each block: f32 [blocks, 1, 1].
  Tensor Half(int64_t at) const { return Rows(F32(Bitcast(U8(at, 2), DType::kFloat16)), 1, 1); }

  Tensor Rows(const Tensor& x, int64_t rows, int64_t columns) const {
    return x.Reshape({count_, rows, columns});
  }
  // Of x [blocks, a, b]: all elements by b first, [blocks, rows, the rest].
  Tensor Turned(const Tensor& x, int64_t rows) const {
    return x.Permute({0, 2, 1}).Reshape({count_, rows, -1});
  }
  int64_t count() const { return count_; }

 private:
  const int64_t count_;
  const Tensor bytes_;
};

// 16 signed bytes by their index: two words of eight, of which one is shifted.
Tensor Lookup(const int8_t (&table)[16], const Tensor& index) {
  if (!index.valid()) return index;
  Builder* const builder = index.builder();
  const auto word = [&](int half) {
    int64_t value = 0;
    std::memcpy(&value, table + 8 * half, 8);
    return Tensor(builder, builder->graph().Const(DType::kUInt64, value));
  };
  const Tensor wide = index.Cast(DType::kUInt64);
  const Tensor half = index.Lt(index.Like(8)).Where(word(0), word(1));
  const Tensor byte = Shift(Op::kShr, half, ShiftLeft(Mask(wide, 7), 3));
  return F32(Bitcast(byte.Cast(DType::kUInt8), DType::kInt8));
}

constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
// Twice the values of f4e2m1.
constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Blocks of 32. Elements 0 to 15 are the low halves of 16 bytes, 16 to 31 the high ones.
Tensor Nibbles(const Blocks& b, int64_t at) { return b.Rows(BitFields(b.U8(at, 16), 4), 1, 32); }
// Of elements 0 to 31, a bit each in four bytes.
Tensor FifthBits(const Blocks& b, int64_t at) {
  return ShiftLeft(b.Turned(BitFields(b.U8(at, 4), 1), 1), 4);
}

// d, 16 bytes
Tensor Q4_0(const Blocks& b) { return (F32(Nibbles(b, 2)) - 8) * b.Half(0); }
// d, m, 16 bytes
Tensor Q4_1(const Blocks& b) { return F32(Nibbles(b, 4)) * b.Half(0) + b.Half(2); }
// d, 4 bytes of fifth bits, 16 bytes
Tensor Q5_0(const Blocks& b) { return (F32(Nibbles(b, 6).Or(FifthBits(b, 2))) - 16) * b.Half(0); }
// d, m, 4 bytes of fifth bits, 16 bytes
Tensor Q5_1(const Blocks& b) {
  return F32(Nibbles(b, 8).Or(FifthBits(b, 4))) * b.Half(0) + b.Half(2);
}
// d, 32 signed bytes
Tensor Q8_0(const Blocks& b) { return F32(b.Rows(b.I8(2, 32), 1, 32)) * b.Half(0); }
// d, 16 bytes
Tensor IQ4_NL(const Blocks& b) { return b.Half(0) * Lookup(kIq4Values, Nibbles(b, 2)); }

// e, 16 bytes; the scale is 2^(e - 128), for e below 2 a subnormal.
Tensor MXFP4(const Blocks& b) {
  const Tensor e = b.U8(0, 1, 1).Cast(DType::kUInt32);
  if (!e.valid()) return e;
  const Tensor subnormal = Shift(Op::kShl, e.Like(0x00200000).Expand({b.count(), 1, 1}), e);
  const Tensor bits = e.Lt(e.Like(2)).Where(subnormal, ShiftLeft(e - 1, 23));
  return Lookup(kMxfp4Values, Nibbles(b, 1)) * Bitcast(bits, DType::kFloat32);
}

// Blocks of 256. Two bits of each element: 32 bytes hold four runs of 32, the first in the lowest
// bits.
Tensor Pairs(const Blocks& b, int64_t at) { return BitFields(b.U8(at, 64, 2), 2); }
// Four bits of each element: 32 bytes hold two runs of 32.
Tensor Runs(const Blocks& b, int64_t at) { return b.Rows(BitFields(b.U8(at, 128, 4), 4), 8, 32); }

// 16 bytes of scales (low half) and minimums (high half) of runs of 16, 64 bytes, d, dmin
Tensor Q2_K(const Blocks& b) {
  const Tensor scales = b.U8(0, 16, 16);
  const Tensor scale = b.Half(80) * F32(Mask(scales, 15));
  const Tensor least = b.Half(82) * F32(ShiftRight(scales, 4));
  return scale * F32(b.Rows(Pairs(b, 16), 16, 16)) - least;
}

// 32 bytes of third bits, 64 bytes, 12 bytes of scales of runs of 16, d. A scale has its low half
// in one of the first 8 bytes and its high two bits in one of the others.
Tensor Q3_K(const Blocks& b) {
  const Tensor low = b.Rows(BitFields(b.U8(96, 8), 4), 16, 1);
  const Tensor high = b.Rows(BitFields(b.U8(104, 4), 2), 16, 1);
  const Tensor scale = b.Half(108) * (F32(low.Or(ShiftLeft(high, 4))) - 32);
  const Tensor third = ShiftLeft(b.Rows(BitFields(b.U8(0, 32), 1), 16, 16), 2);
  return scale * (F32(b.Rows(Pairs(b, 32), 16, 16).Or(third)) - 4);
}

// What Q4_K and Q5_K have in common: 12 bytes of 8 scales and 8 minimums of runs of 32. Of the
// first four each, 6 bits in a byte of their own; of the others, 4 bits in a byte that they share
// and 2 bits above those of the first.
struct ScaleAndLeast {
  Tensor scale, least;  // [blocks, 8, 1]
};
ScaleAndLeast ScalesK(const Blocks& b, int64_t at) {
  const Shape both = {b.count(), 2, 4};
  const Tensor s = b.U8(at, 4, 1), m = b.U8(at + 4, 4, 1), shared = b.U8(at + 8, 4, 1);
  if (!s.valid()) return {};
  const Tensor first = s.builder()->Iota(DType::kUInt8, 2).Reshape({1, 2, 1});
  const Tensor is_first = first.Eq(first.Like(0)).Expand(both);
  const auto join = [&](const Tensor& own, const Tensor& low) {
    const Tensor others = low.Or(ShiftLeft(ShiftRight(own, 6), 4));
    return F32(b.Rows(is_first.Where(Mask(own, 63).Expand(both), others.Expand(both)), 8, 1));
  };
  return {join(s, Mask(shared, 15)), join(m, ShiftRight(shared, 4))};
}

// d, dmin, 12 bytes of scales, 128 bytes
Tensor Q4_K(const Blocks& b) {
  const auto [scale, least] = ScalesK(b, 4);
  return b.Half(0) * scale * F32(Runs(b, 16)) - b.Half(2) * least;
}

// d, dmin, 12 bytes of scales, 32 bytes of fifth bits, 128 bytes
Tensor Q5_K(const Blocks& b) {
  const auto [scale, least] = ScalesK(b, 4);
  const Tensor fifth = ShiftLeft(BitFields(b.U8(16, 32), 1), 4);
  return b.Half(0) * scale * F32(Runs(b, 48).Or(fifth)) - b.Half(2) * least;
}

// 128 bytes of low halves, of which 64 hold two runs of 64; 64 bytes of pairs; 16 signed scales of
// runs of 16; d
Tensor Q6_K(const Blocks& b) {
  const Tensor low = b.Rows(BitFields(b.U8(0, 128, 2), 4), 16, 16);
  const Tensor high = ShiftLeft(b.Rows(Pairs(b, 128), 16, 16), 4);
  const Tensor scale = b.Half(208) * F32(b.Rows(b.I8(192, 16), 16, 1));
  return scale * (F32(low.Or(high)) - 32);
}

// d (f32), 256 signed bytes, sums of 16 of them that nobody needs here
Tensor Q8_K(const Blocks& b) {
  const Tensor d = b.Rows(Bitcast(b.U8(0, 4), DType::kFloat32), 1, 1);
  return d * F32(b.Rows(b.I8(4, 256), 1, 256));
}

// d, 2 bytes of pairs and 4 bytes of low halves of 8 scales, 128 bytes, of which 16 hold 32
// elements
Tensor IQ4_XS(const Blocks& b) {
  const Tensor high = b.Turned(BitFields(b.U8(2, 2), 2), 8),
               low = b.Turned(BitFields(b.U8(4, 4), 4), 8);
  const Tensor scale = b.Half(0) * (F32(low.Or(ShiftLeft(high, 4))) - 32);
  return scale * Lookup(kIq4Values, b.Rows(BitFields(b.U8(8, 128, 8), 4), 8, 32));
}

using BlockFormat = Tensor (*)(const Blocks& b);

BlockFormat FormatOf(GgufType type) {
  switch (type) {
    case GgufType::kQ4_0:
      return &Q4_0;
    case GgufType::kQ4_1:
      return &Q4_1;
    case GgufType::kQ5_0:
      return &Q5_0;
    case GgufType::kQ5_1:
      return &Q5_1;
    case GgufType::kQ8_0:
      return &Q8_0;
    case GgufType::kQ2_K:
      return &Q2_K;
    case GgufType::kQ3_K:
      return &Q3_K;
    case GgufType::kQ4_K:
      return &Q4_K;
    case GgufType::kQ5_K:
      return &Q5_K;
    case GgufType::kQ6_K:
      return &Q6_K;
    case GgufType::kQ8_K:
      return &Q8_K;
    case GgufType::kIQ4_NL:
      return &IQ4_NL;
    case GgufType::kIQ4_XS:
      return &IQ4_XS;
    case GgufType::kMXFP4:
      return &MXFP4;
    default:
      return nullptr;  // plain
  }
}

}  // namespace

Tensor Dequantize(GgufType type, const Tensor& bytes, const Shape& shape) {
  if (!bytes.valid()) return bytes;
  const GgufTypeInfo& info = Info(type);
  const BlockFormat format = FormatOf(type);
  Builder* const builder = bytes.builder();
  if (format == nullptr) {
    return builder->Fail(InvalidArgument("dequantize: ", info.name, " is not a quantized type"));
  }
  const absl::StatusOr<int64_t> elements = CheckedByteSize(DType::kUInt8, shape);
  if (!elements.ok()) return builder->Fail(elements.status());
  const int64_t blocks = *elements / info.elements;
  if (bytes.dtype() != DType::kUInt8 || bytes.rank() != 1 || *elements % info.elements != 0 ||
      bytes.dim(0) != blocks * info.bytes) {
    return builder->Fail(InvalidArgument("dequantize: ", Name(bytes.dtype()), " ",
                                         ToString(bytes.shape()), " as ", info.name, " ",
                                         ToString(shape), ", expected u8 [", blocks * info.bytes,
                                         "] for whole blocks of ", info.elements));
  }
  return format(Blocks(bytes, blocks, info.bytes)).Reshape(shape);
}

Tensor StateFromFile(Builder* builder, const TensorEntry& entry) {
  if (!entry.quantized) return builder->State(entry.dtype, entry.shape, entry.name, Init{});
  const Tensor bytes = builder->State(DType::kUInt8, {entry.bytes}, entry.name, Init{});
  return Dequantize(*entry.quantized, bytes, entry.shape);
}

}  // namespace telegrad
