// Branches, ends and barriers (PTX ISA, "Control Flow Instructions" and "bar"). Fences order
// nothing here but mbarriers and shared memory before bulk copies: lanes already see memory in one
// order, and the shadow memory accepts only barriers.
#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/workgroup.h"

namespace fakecuda {
namespace {

void Nothing(Warp&, const Instruction&, uint32_t) {}

// PTX ISA, "membar / fence": what a thread has initialized becomes visible to asynchronous copies;
// `flags`: and what it has written.
void FenceForCopies(Warp& w, const Instruction& i, uint32_t) {
  for (auto& [offset, barrier] : w.group().phase_barriers()) {
    barrier.fenced |= barrier.made_by == w.index();
  }
  if (i.flags != 0) w.group().FenceForCopies(w.index());
}

void Trap(Warp& w, const Instruction& i, uint32_t lanes) {
  w.Fail(FaultCode::kLaunchFailed, i, std::countr_zero(lanes), "trap");
}

void SyncWarp(Warp& w, const Instruction&, uint32_t) {
  Clocks& clocks = w.clocks();
  clocks.synced = ++clocks.own;
}

void DecodeBranch(Decoder& d) {
  Instruction& o = d.out();
  d.Take("uni");
  d.ExpectOperands(1);
  o.flow = Flow::kBranch;
  if (d.operands() == 1) o.target = d.Label(d.statement().operands[0].name);
}

void DecodeBranchTable(Decoder& d) {
  Instruction& o = d.out();
  d.Expect(d.Take("idx"), "only brx.idx");
  d.ExpectOperands(2);
  o.flow = Flow::kBranchTable;
  o.slot[0] = d.Source(0, Type::kU32);
  if (d.operands() == 2) o.target = d.BranchTable(d.statement().operands[1].name);
}

// bar.sync a{, b} and barrier{.cta}.sync{.aligned} a{, b}; bar.warp.sync mask.
bool DecodeBarrier(Decoder& d) {
  Instruction& o = d.out();
  if (d.Take("warp")) {
    d.Expect(d.Take("sync"), "only bar.warp.sync");
    d.ExpectOperands(1);
    o.flow = Flow::kCollective;
    o.slot[0] = d.Source(0, Type::kB32);
    o.execute = &SyncWarp;
    return true;
  }
  d.Take("cta");
  d.Expect(d.Take("sync"), "only .sync");
  d.Take("aligned");
  d.Expect(d.operands() == 1 || d.operands() == 2, "expected one or two operands");
  o.flow = Flow::kBarrier;
  o.slot[0] = d.Source(0, Type::kU32);
  o.count = d.operands() == 2 ? 1 : 0;
  if (o.count != 0) o.slot[1] = d.Source(1, Type::kU32);
  return true;
}

}  // namespace

bool DecodeControl(Decoder& d) {
  const std::string& m = d.mnemonic();
  Instruction& o = d.out();
  if (m == "bra") {
    DecodeBranch(d);
  } else if (m == "brx") {
    DecodeBranchTable(d);
  } else if (m == "ret" || m == "exit") {
    d.Take("uni");
    d.ExpectOperands(0);
    o.flow = Flow::kExit;
  } else if (m == "trap") {
    d.ExpectOperands(0);
    o.execute = &Trap;
  } else if (m == "bar" || m == "barrier") {
    DecodeBarrier(d);
  } else if (m == "membar" || m == "fence") {
    const bool after_init = d.Take("mbarrier_init");
    if (after_init) d.Expect(d.Take("release"), "only .release");
    const bool proxy = d.TakeOne({"sc", "acq_rel", "proxy"}) == 2;
    d.TakeOne({"cta", "gpu", "gl", "sys", "cluster", "async", "async::generic"});
    d.TakeOne({"shared::cta", "global"});
    d.ExpectOperands(0);
    o.flags = proxy ? 1 : 0;
    o.execute = after_init || proxy ? &FenceForCopies : &Nothing;
  } else {
    return false;
  }
  return true;
}

}  // namespace fakecuda
