// cp.async, whose bytes arrive at the wait and not before (PTX ISA, "cp.async").
#include <algorithm>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/workgroup.h"

namespace fakecuda {
namespace {

// slots: to, from, source bytes; `bytes`; the offset of `from` is in flags.
void CopyAsync(Warp& w, const Instruction& i, uint32_t lanes) {
  const auto from_offset = static_cast<int64_t>(static_cast<int32_t>(i.flags));
  w.CountShared(w.Slot(i.slot[0]), i.offset, lanes, i.bytes, /*store=*/true);
  uint32_t whole = 0;  // the lanes that do not only fill
  Each(lanes, [&](int l) { whole |= uint32_t{w.Slot(i.slot[2])[l] != 0} << l; });
  w.CountGlobal(w.Slot(i.slot[1]), from_offset, whole, i.bytes);
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const int l = std::countr_zero(rest);
    const uint64_t source_bytes = std::min<uint64_t>(w.Slot(i.slot[2])[l], i.bytes);
    const AsyncCopy copy = {.to = w.Slot(i.slot[0])[l] + static_cast<uint64_t>(i.offset),
                            .from = w.Slot(i.slot[1])[l] + static_cast<uint64_t>(from_offset),
                            .bytes = i.bytes,
                            .source_bytes = static_cast<uint32_t>(source_bytes),
                            .line = i.line};
    if (!w.BeginAsync(i, l, copy)) return;
  }
}

void Commit(Warp& w, const Instruction&, uint32_t lanes) {
  Each(lanes, [&](int l) { w.CommitAsync(l); });
}

// `target` groups may stay; `flags`: also what is not committed.
void WaitGroup(Warp& w, const Instruction& i, uint32_t lanes) {
  Each(lanes, [&](int l) { w.WaitAsync(i, l, i.target, i.flags != 0); });
}

bool DecodeCopy(Decoder& d) {
  Instruction& o = d.out();
  d.Expect(d.Take("async"), "only cp.async");
  if (d.Take("bulk")) return DecodeBulkCopy(d);
  if (d.Take("commit_group")) {
    d.ExpectOperands(0);
    o.execute = &Commit;
    return true;
  }
  if (d.Take("wait_all")) {
    d.ExpectOperands(0);
    o.flags = 1;
    o.execute = &WaitGroup;
    return true;
  }
  if (d.Take("wait_group")) {
    d.ExpectOperands(1);
    if (d.operands() == 1) {
      d.Expect(d.statement().operands[0].kind == Operand::Kind::kNumber, "a number of groups");
      o.target = static_cast<uint32_t>(d.statement().operands[0].bits);
    }
    o.execute = &WaitGroup;
    return true;
  }
  const int cache = d.TakeOne({"ca", "cg"});
  d.Expect(cache >= 0 && (d.Take("shared") || d.Take("shared::cta")) && d.Take("global"),
           "only from global to shared memory");
  d.TakeOne({"L2::64B", "L2::128B", "L2::256B"});
  d.Expect(d.operands() == 3 || d.operands() == 4, "expected three or four operands");
  if (d.operands() < 3) return true;
  const uint64_t bytes = d.statement().operands[2].bits;
  d.Expect(bytes == 16 || (cache == 0 && (bytes == 4 || bytes == 8)), "no such size");
  o.bytes = static_cast<uint8_t>(bytes);
  d.Address(1, Space::kGlobal, 1);
  o.flags = static_cast<uint32_t>(static_cast<int32_t>(o.offset));
  d.Expect(static_cast<int32_t>(o.flags) == o.offset, "an offset beyond 32 bits");
  d.Address(0, Space::kShared, 0);
  o.slot[2] = d.operands() == 4 ? d.Source(3, Type::kU32) : d.Constant(bytes);
  o.execute = &CopyAsync;
  return true;
}

}  // namespace

bool DecodeAsync(Decoder& d) { return d.mnemonic() == "cp" && DecodeCopy(d); }

}  // namespace fakecuda
