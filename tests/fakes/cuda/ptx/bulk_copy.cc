// cp.async.bulk.tensor between global and shared memory (PTX ISA, "cp.async.bulk.tensor",
// "Tensors"): boxes of a tiled tensor map. From global memory, with fill outside of the tensor,
// they complete at an mbarrier; to it, in groups of the thread.
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

// The box that one lane copies, in either direction.
class Box {
 public:
  Box(Warp& w, const Instruction& i, int lane) : w_(w), i_(i), lane_(lane) {}

  // False after a fault, as all here.
  bool Load() {
    BulkCopy copy;
    uint64_t barrier = 0;
    if (!ReadMap() || !CheckMap() || !FindBarrierFor(&barrier) || !FindShared()) return false;
    const Clocks clocks = Next();
    if (!w_.WriteByCopier(i_, lane_, shared_, bytes_, clocks)) return false;
    const bool ok = EachRow([&](uint32_t at, uint64_t address, uint32_t bytes) {
      const uint8_t* from = w_.ReadByCopier(i_, lane_, address, bytes, clocks);
      copy.rows.push_back({.at = at, .from = from, .bytes = bytes});
      return from != nullptr;
    });
    if (!ok) return false;
    copy.to = shared_ - kSharedBegin;
    copy.fill = Fill();
    copy.span = map_.span;
    copy.clock = clocks.own;
    copy.line = i_.line;
    w_.group().phase_barriers()[barrier].copies.push_back(std::move(copy));
    return true;
  }

  bool Store() {
    BulkStore store;
    if (!ReadMap() || !CheckMap() || !FindShared()) return false;
    // What is read may be written again before what is written may be read.
    const Clocks reading = Next(), writing = Next();
    if (!w_.ReadSharedByCopier(i_, lane_, shared_, bytes_, reading)) return false;
    const bool ok = EachRow([&](uint32_t at, uint64_t address, uint32_t bytes) {
      uint8_t* to = w_.WriteGlobalByCopier(i_, lane_, address, bytes, writing);
      store.rows.push_back({.at = at, .to = to, .bytes = bytes});
      return to != nullptr;
    });
    if (!ok) return false;
    store.from = shared_ - kSharedBegin;
    store.bytes = bytes_;
    store.span = map_.span;
    store.read_clock = reading.own;
    store.write_clock = writing.own;
    store.line = i_.line;
    w_.stores().Begin(lane_, std::move(store));
    return true;
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

  bool FindBarrierFor(uint64_t* barrier) {
    const auto offset = static_cast<int64_t>(static_cast<int32_t>(i_.flags));
    const uint64_t address = w_.Slot(i_.slot[1])[lane_] + static_cast<uint64_t>(offset);
    if (!FindBarrier(w_, i_, lane_, address, AccessKind::kAtomic, barrier)) return false;
    if (w_.group().phase_barriers()[*barrier].fenced) return true;
    return Fail(FaultCode::kLaunchFailed,
                "an mbarrier that no fence has made visible to bulk copies");
  }

  bool FindShared() {
    shared_ = w_.Slot(i_.slot[0])[lane_] + static_cast<uint64_t>(i_.offset);
    if (shared_ % kBoxAlign != 0) {
      return Fail(FaultCode::kMisalignedAddress, "a box at no multiple of 128");
    }
    uint64_t bytes = map_.element_bytes;
    for (uint32_t d = 0; d < map_.rank; ++d) bytes *= map_.Elements(d);
    bytes_ = static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX));
    return true;
  }

  // Of accesses of the copy: they come after what the issuing warp has seen, and after other copies
  // only where that has waited for them.
  Clocks Next() {
    Clocks clocks;
    clocks.block_begin = w_.clocks().block_begin;
    clocks.seen = w_.clocks().Publish(w_.index());
    clocks.own = w_.group().NextCopierClock();
    clocks.synced = clocks.seen[kCopier] + 1;
    return clocks;
  }

  // Zeros, or some NaN: all bits but the sign.
  std::vector<uint8_t> Fill() const {
    std::vector<uint8_t> out(bytes_, map_.fills_nan ? 0xff : 0);
    for (size_t last = map_.element_bytes - 1; map_.fills_nan && last < out.size();
         last += map_.element_bytes) {
      out[last] = 0x7f;
    }
    return out;
  }

  int64_t Coordinate(uint32_t d) const {
    return static_cast<int32_t>(w_.Slot(i_.slot[kCoordinates + d])[lane_]);
  }

  // Calls visit(byte of the box, address, bytes) for the parts of its rows that are in the tensor,
  // until it returns false.
  template <typename Visit>
  bool EachRow(Visit visit) const {
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
      const auto skipped = static_cast<uint32_t>(first - begin);
      const uint32_t at = (row * map_.boxes[0] + skipped) * map_.element_bytes;
      if (!visit(at, address, static_cast<uint32_t>(end - first) * map_.element_bytes)) {
        return false;
      }
    }
    return true;
  }

  Warp& w_;
  const Instruction& i_;
  const int lane_;
  TensorMap map_;
  uint64_t shared_ = 0;  // address of the box
  uint32_t bytes_ = 0;   // of it
};

// slots: box, barrier, map, coordinates; the offset of the barrier is in flags.
void LoadBox(Warp& w, const Instruction& i, uint32_t lanes) {
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    if (!Box(w, i, std::countr_zero(rest)).Load()) return;
  }
}

void StoreBox(Warp& w, const Instruction& i, uint32_t lanes) {
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    if (!Box(w, i, std::countr_zero(rest)).Store()) return;
  }
}

void CommitStores(Warp& w, const Instruction&, uint32_t lanes) {
  Each(lanes, [&](int l) { w.stores().Commit(l); });
}

// `target` groups may stay; `flags`: it is enough that they have been read.
void WaitForStores(Warp& w, const Instruction& i, uint32_t lanes) {
  Each(lanes, [&](int l) { w.stores().Wait(w, l, i.target, i.flags != 0); });
}

// cp.async.bulk.commit_group; cp.async.bulk.wait_group{.read} n.
bool DecodeGroups(Decoder& d) {
  Instruction& o = d.out();
  if (d.Take("commit_group")) {
    d.ExpectOperands(0);
    o.execute = &CommitStores;
    return true;
  }
  if (!d.Take("wait_group")) return false;
  o.flags = d.Take("read") ? 1 : 0;
  d.ExpectOperands(1);
  if (d.operands() == 1) {
    d.Expect(d.statement().operands[0].kind == Operand::Kind::kNumber, "a number of groups");
    o.target = static_cast<uint32_t>(d.statement().operands[0].bits);
  }
  o.execute = &WaitForStores;
  return true;
}

}  // namespace

// cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [to],
// [map, {x, y}], [barrier] and cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group
// [map, {x, y}], [from]
bool DecodeBulkCopy(Decoder& d) {
  Instruction& o = d.out();
  if (DecodeGroups(d)) return true;
  d.Expect(d.Take("tensor"), "only cp.async.bulk.tensor");
  const int dimensions = 1 + d.TakeOne({"1d", "2d", "3d", "4d", "5d"});
  d.Expect(dimensions > 0, "the number of dimensions is missing");
  const bool stores = d.Take("bulk_group");
  d.Expect(d.Take("global") && d.Take(stores ? "shared::cta" : "shared::cluster"),
           "only between global and shared memory");
  d.Take("tile");
  d.Expect(stores || d.Take("mbarrier::complete_tx::bytes"),
           "only copies that complete at an mbarrier or in a group");
  d.ExpectOperands(stores ? 2 : 3);
  if (d.operands() != (stores ? 2 : 3)) return true;
  const size_t map = stores ? 0 : 1;
  const std::vector<Operand>& coordinates = d.statement().operands[map].elements;
  d.Expect(coordinates.size() == static_cast<size_t>(dimensions),
           "as many coordinates as dimensions");
  if (dimensions == 0 || coordinates.size() != static_cast<size_t>(dimensions)) return true;
  o.count = static_cast<uint8_t>(dimensions);
  for (size_t k = 0; k < coordinates.size(); ++k) {
    o.slot[kCoordinates + k] = d.SourceOf(coordinates[k], Type::kS32);
  }
  d.Address(map, Space::kGeneric, 2);
  d.Expect(o.offset == 0, "a tensor map with an offset");
  if (!stores) {
    d.Address(2, Space::kShared, 1);
    o.flags = static_cast<uint32_t>(static_cast<int32_t>(o.offset));
    d.Expect(static_cast<int32_t>(o.flags) == o.offset, "an offset beyond 32 bits");
  }
  d.Address(stores ? 1 : 0, Space::kShared, 0);
  o.execute = stores ? &StoreBox : &LoadBox;
  return true;
}

}  // namespace fakecuda
