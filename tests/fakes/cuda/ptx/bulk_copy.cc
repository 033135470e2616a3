// cp.async.bulk.tensor from global to shared memory (PTX ISA, "cp.async.bulk.tensor", "Tensors"): a
// box of a tiled tensor map, with fill outside of the tensor, whose bytes complete at an mbarrier.
#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/phase_barrier.h"
#include "tests/fakes/cuda/ptx/tensor_map.h"

namespace fakecuda {
namespace {

constexpr size_t kCoordinates = 3;  // the first slot of them
constexpr uint64_t kBoxAlign = 128;
constexpr uint64_t kMapAlign = 64;

// Where the copy of one lane comes from and goes to.
class BoxCopy {
 public:
  BoxCopy(Warp& w, const Instruction& i, int lane) : w_(w), i_(i), lane_(lane) {}

  // False after a fault.
  bool Begin() {
    return ReadMap() && CheckMap() && FindEnds() && Rows() &&
           (w_.group().phase_barriers()[barrier_].copies.push_back(std::move(copy_)), true);
  }

 private:
  bool Fail(FaultCode code, const std::string& what) {
    w_.Fail(code, i_, lane_, what);
    return false;
  }

  bool ReadMap() {
    const uint64_t address = w_.Slot(i_.slot[2])[lane_];
    if (address % kMapAlign != 0) {
      return Fail(FaultCode::kMisalignedAddress, "a tensor map at no multiple of 64");
    }
    TensorMapBytes bytes;
    for (uint64_t at = 0; at < bytes.size(); at += kMapAlign) {
      const uint8_t* part =
          w_.Access(i_, lane_, Space::kGeneric, address + at, kMapAlign, AccessKind::kRead);
      if (part == nullptr) return false;
      std::memcpy(bytes.data() + at, part, kMapAlign);
    }
    const std::optional<TensorMap> map = DecodeTensorMap(bytes);
    if (!map) {
      return Fail(FaultCode::kIllegalInstruction, "a tensor map that the driver did not encode");
    }
    map_ = *map;
    return true;
  }

  bool CheckMap() {
    if (map_.rank != i_.count) {
      return Fail(FaultCode::kIllegalInstruction, "a tensor map of rank " +
                                                      std::to_string(map_.rank) + ", expected " +
                                                      std::to_string(i_.count));
    }
    if (map_.interleave != 0) {
      return Fail(FaultCode::kIllegalInstruction, "the fake copies no interleaved tensors");
    }
    if (map_.span != 0 && map_.boxes[0] * map_.element_bytes != map_.span) {
      return Fail(FaultCode::kIllegalInstruction,
                  "the fake swizzles only rows that are as long as the swizzle's span");
    }
    return true;
  }

  bool FindEnds() {
    const uint64_t to = w_.Slot(i_.slot[0])[lane_] + static_cast<uint64_t>(i_.offset);
    const uint64_t barrier =
        w_.Slot(i_.slot[1])[lane_] +
        static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(i_.flags)));
    if (!FindBarrier(w_, i_, lane_, barrier, AccessKind::kAtomic, &barrier_)) return false;
    if (!w_.group().phase_barriers()[barrier_].fenced) {
      return Fail(FaultCode::kLaunchFailed,
                  "an mbarrier that no fence has made visible to bulk copies");
    }
    if (to % kBoxAlign != 0) {
      return Fail(FaultCode::kMisalignedAddress, "a box at no multiple of 128");
    }
    uint64_t whole = map_.element_bytes;
    for (uint32_t d = 0; d < map_.rank; ++d) whole *= map_.Elements(d);
    const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(whole, UINT32_MAX));
    // What the issuing warp knows, the copy comes after; other copies only where the warp has
    // waited for them.
    clocks_.block_begin = w_.clocks().block_begin;
    clocks_.seen = w_.clocks().Publish(w_.index());
    clocks_.own = w_.group().NextCopierClock();
    clocks_.synced = clocks_.seen[kCopier] + 1;
    if (!w_.WriteByCopier(i_, lane_, to, bytes, clocks_)) return false;
    copy_ = {.to = to - kSharedBegin,
             .fill = Fill(bytes),
             .rows = {},
             .span = map_.span,
             .clock = clocks_.own,
             .line = i_.line};
    return true;
  }

  // Zeros, or some NaN: all bits but the sign.
  std::vector<uint8_t> Fill(uint32_t bytes) const {
    std::vector<uint8_t> out(bytes, map_.fills_nan ? 0xff : 0);
    for (size_t last = map_.element_bytes - 1; map_.fills_nan && last < out.size();
         last += map_.element_bytes) {
      out[last] = 0x7f;
    }
    return out;
  }

  int64_t Coordinate(uint32_t d) const {
    return static_cast<int32_t>(w_.Slot(i_.slot[kCoordinates + d])[lane_]);
  }

  // The parts of the box's rows that are in the tensor.
  bool Rows() {
    const int64_t begin = Coordinate(0);
    const int64_t first = std::max<int64_t>(begin, 0);
    const int64_t end =
        std::min<int64_t>(begin + map_.boxes[0], static_cast<int64_t>(map_.sizes[0]));
    uint32_t rows = 1;
    for (uint32_t d = 1; d < map_.rank; ++d) rows *= map_.Elements(d);
    for (uint32_t row = 0; row < rows && first < end; ++row) {
      uint64_t address = map_.address + static_cast<uint64_t>(first) * map_.element_bytes;
      bool inside = true;
      uint32_t rest = row;
      for (uint32_t d = 1; d < map_.rank; ++d) {
        const int64_t at = Coordinate(d) + int64_t{rest % map_.Elements(d)} * map_.steps[d];
        rest /= map_.Elements(d);
        inside &= at >= 0 && static_cast<uint64_t>(at) < map_.sizes[d];
        address += static_cast<uint64_t>(at) * map_.strides[d];
      }
      if (!inside) continue;
      const auto bytes = static_cast<uint32_t>(end - first) * map_.element_bytes;
      const uint8_t* from = w_.ReadByCopier(i_, lane_, address, bytes, clocks_);
      if (from == nullptr) return false;
      const auto skipped = static_cast<uint32_t>(first - begin);
      copy_.rows.push_back({.at = (row * map_.boxes[0] + skipped) * map_.element_bytes,
                            .from = from,
                            .bytes = bytes});
    }
    return true;
  }

  Warp& w_;
  const Instruction& i_;
  const int lane_;
  TensorMap map_;
  uint64_t barrier_ = 0;  // offset in shared memory
  Clocks clocks_;
  BulkCopy copy_;
};

// slots: to, barrier, map, coordinates; the offset of the barrier is in flags.
void CopyBox(Warp& w, const Instruction& i, uint32_t lanes) {
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    if (!BoxCopy(w, i, std::countr_zero(rest)).Begin()) return;
  }
}

}  // namespace

// cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [to],
// [map, {x, y}], [barrier]
bool DecodeBulkCopy(Decoder& d) {
  Instruction& o = d.out();
  d.Expect(d.Take("tensor"), "only cp.async.bulk.tensor");
  const int dimensions = 1 + d.TakeOne({"1d", "2d", "3d", "4d", "5d"});
  d.Expect(dimensions > 0, "the number of dimensions is missing");
  d.Expect(d.Take("shared::cluster") && d.Take("global"), "only from global to shared memory");
  d.Take("tile");
  d.Expect(d.Take("mbarrier::complete_tx::bytes"), "only copies that complete at an mbarrier");
  d.ExpectOperands(3);
  if (d.operands() != 3) return true;
  const std::vector<Operand>& coordinates = d.statement().operands[1].elements;
  d.Expect(coordinates.size() == static_cast<size_t>(dimensions),
           "as many coordinates as dimensions");
  if (dimensions == 0 || coordinates.size() != static_cast<size_t>(dimensions)) return true;
  o.count = static_cast<uint8_t>(dimensions);
  for (size_t k = 0; k < coordinates.size(); ++k) {
    o.slot[kCoordinates + k] = d.SourceOf(coordinates[k], Type::kS32);
  }
  d.Address(1, Space::kGeneric, 2);
  d.Expect(o.offset == 0, "a tensor map with an offset");
  d.Address(2, Space::kShared, 1);
  o.flags = static_cast<uint32_t>(static_cast<int32_t>(o.offset));
  d.Expect(static_cast<int32_t>(o.flags) == o.offset, "an offset beyond 32 bits");
  d.Address(0, Space::kShared, 0);
  o.execute = &CopyBox;
  return true;
}

}  // namespace fakecuda
