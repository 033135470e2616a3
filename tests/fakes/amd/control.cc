// Branches, ends, barriers, waits, and hints that have no meaning here.
#include <cstdlib>

#include "tests/fakes/amd/decoder.h"
#include "tests/fakes/amd/row.h"
#include "tests/fakes/amd/wave.h"
#include "tests/fakes/amd/workgroup.h"

namespace fakeamd {
namespace {

enum Condition : uint32_t { kAlways, kScc0, kScc1, kVccZero, kVccNotZero, kExecZero, kExecNotZero };

bool DecodeBranch(Decoder& d, const Row&) {
  const auto words =
      d.text().operands.size() == 1 ? ParseInteger(d.text().operands[0]) : std::nullopt;
  if (!words) return d.Fail("has no target");
  // In words from the next instruction; the loader makes an index of it.
  d.out().target = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(*words)));
  return true;
}

void Branch(Wave& w, const Instruction& i) {
  Operand vcc;
  vcc.kind = Operand::Kind::kScalar;
  vcc.reg = kVcc;
  vcc.words = static_cast<uint8_t>(w.lanes() / 32);
  bool taken = true;
  switch (i.row->value) {
    case kScc0:
      taken = !w.Scc(i);
      break;
    case kScc1:
      taken = w.Scc(i);
      break;
    case kVccZero:
      taken = w.Scalar(i, vcc) == 0;
      break;
    case kVccNotZero:
      taken = w.Scalar(i, vcc) != 0;
      break;
    case kExecZero:
      taken = w.exec() == 0;
      break;
    case kExecNotZero:
      taken = w.exec() != 0;
      break;
    default:
      break;
  }
  if (taken) w.Jump(i.target);
}

constexpr Row BranchRow(std::string_view names, Condition condition) {
  return {.names = names, .execute = Branch, .decode = DecodeBranch, .value = condition};
}

bool DecodeAnything(Decoder&, const Row&) { return true; }
void Ignore(Wave&, const Instruction&) {}
void EndProgram(Wave& w, const Instruction&) { w.End(); }

// A store to local memory that is under way may become visible after the barrier.
bool MayMeet(Wave& w, const Instruction& i) {
  if (!w.counters().local_stores()) return true;
  w.Fail(FaultCode::kRace, i, -1,
         "a store to local memory is under way at the barrier: no wait covers it");
  return false;
}

void Barrier(Wave& w, const Instruction& i) {
  if (MayMeet(w, i)) w.WaitAtBarrier();
}

// -1 is the barrier of the workgroup.
bool DecodeBarrier(Decoder& d, const Row&) {
  const auto which =
      d.text().operands.size() == 1 ? ParseInteger(d.text().operands[0]) : std::nullopt;
  if (!which || static_cast<int16_t>(*which) != -1)
    return d.Fail("names a barrier that is not supported");
  return true;
}
void SignalBarrier(Wave& w, const Instruction& i) {
  if (w.signalled) w.Fail(FaultCode::kLaunchFailed, i, -1, "signals a barrier twice");
  w.signalled = MayMeet(w, i);
}
void WaitBarrier(Wave& w, const Instruction& i) {
  if (!w.signalled)
    return w.Fail(FaultCode::kLaunchFailed, i, -1, "waits for a barrier without a signal");
  w.signalled = false;
  w.WaitAtBarrier();
}

// s_waitcnt vmcnt(0) lgkmcnt(1): a nibble for each counter is not enough, so 8 bits each; 255 waits
// for none.
constexpr uint32_t kNone = 255;
uint32_t CountOf(const std::string& rest, const std::string& name) {
  const size_t at = rest.find(name + "(");
  if (at == std::string::npos) return kNone;
  return static_cast<uint32_t>(std::atoi(rest.c_str() + at + name.size() + 1)) & 255;
}

bool DecodeWait(Decoder& d, const Row&) {
  if (ParseInteger(d.text().rest).has_value()) {
    return d.Fail("is a wait that is not understood");
  }
  // "lgkmcnt" ends in "mcnt", so vmcnt is looked for with what stands before it.
  const std::string rest = " " + d.text().rest;
  d.out().offset = static_cast<int32_t>(CountOf(rest, " vmcnt"));
  d.out().offset1 = static_cast<int32_t>(CountOf(rest, "lgkmcnt"));
  return true;
}
void WaitCounts(Wave& w, const Instruction& i) {
  if (i.offset != static_cast<int32_t>(kNone)) {
    w.counters().Wait(Counter::kLoad, static_cast<uint32_t>(i.offset));
  }
  if (i.offset1 != static_cast<int32_t>(kNone)) {
    w.counters().Wait(Counter::kLocal, static_cast<uint32_t>(i.offset1));
  }
}

// A wait that names one counter, or two in one constant: bits 0 to 5 are of local memory then,
// those from 8 on of the other.
constexpr uint32_t kBoth = 16;
bool DecodeCounter(Decoder& d, const Row&) {
  const auto& operands = d.text().operands;
  if (operands.empty() || (operands.size() == 2 && operands[0] != "null"))
    return d.Fail("has no count");
  const auto count = ParseInteger(operands.back());
  if (!count) return d.Fail("has no count");
  d.out().offset = static_cast<int32_t>(*count & 0xffff);
  return true;
}
void WaitCounter(Wave& w, const Instruction& i) {
  const auto count = static_cast<uint32_t>(i.offset);
  if ((i.row->value & kBoth) != 0) {
    w.counters().Wait(Counter::kLocal, count & 63);
    w.counters().Wait(static_cast<Counter>(i.row->value & 15), count >> 8 & 63);
  } else {
    w.counters().Wait(static_cast<Counter>(i.row->value), count);
  }
}
constexpr Row CounterRow(std::string_view names, Counter counter, uint32_t flags = 0) {
  return {.names = names,
          .execute = WaitCounter,
          .decode = DecodeCounter,
          .value = static_cast<uint32_t>(counter) | flags};
}

// The address behind the instruction.
bool DecodeAddress(Decoder& d, const Row&) { return d.Expect(1) && d.ReadResult(0, Type::kB64); }
void ProgramCounter(Wave& w, const Instruction& i) {
  w.PutScalar(i.result[0], kObjectBase + i.address + 4);
}

constexpr Row kControlRows[] = {
    {.names = "s_endpgm", .execute = EndProgram, .decode = DecodeAnything},
    BranchRow("s_branch", kAlways),
    BranchRow("s_cbranch_scc0", kScc0),
    BranchRow("s_cbranch_scc1", kScc1),
    BranchRow("s_cbranch_vccz", kVccZero),
    BranchRow("s_cbranch_vccnz", kVccNotZero),
    BranchRow("s_cbranch_execz", kExecZero),
    BranchRow("s_cbranch_execnz", kExecNotZero),
    {.names = "s_barrier", .execute = Barrier, .decode = DecodeAnything},
    {.names = "s_barrier_signal", .execute = SignalBarrier, .decode = DecodeBarrier},
    {.names = "s_barrier_wait", .execute = WaitBarrier, .decode = DecodeBarrier},
    {.names = "s_waitcnt", .execute = WaitCounts, .decode = DecodeWait},
    CounterRow("s_waitcnt_vscnt", Counter::kStore),
    CounterRow("s_waitcnt_vmcnt", Counter::kLoad),
    CounterRow("s_waitcnt_lgkmcnt", Counter::kLocal),
    CounterRow("s_wait_loadcnt", Counter::kLoad),
    CounterRow("s_wait_storecnt", Counter::kStore),
    CounterRow("s_wait_dscnt", Counter::kLocal),
    CounterRow("s_wait_kmcnt", Counter::kScalar),
    CounterRow("s_wait_loadcnt_dscnt", Counter::kLoad, kBoth),
    CounterRow("s_wait_storecnt_dscnt", Counter::kStore, kBoth),
    {.names = "s_getpc_b64", .execute = ProgramCounter, .decode = DecodeAddress},
    {.names =
         "s_nop|s_code_end|s_delay_alu|s_clause|s_sethalt|s_setprio|s_sleep|s_sendmsg|"
         "s_inst_prefetch|s_set_inst_prefetch_distance|s_waitcnt_depctr|s_wait_alu|s_wait_idle|s_"
         "ttracedata|"
         "s_wait_samplecnt|s_wait_bvhcnt|s_wait_expcnt|s_waitcnt_expcnt|s_icache_inv|s_dcache_wb|"
         "buffer_wbl2|buffer_inv|buffer_wbinvl1_vol|buffer_wbinvl1|buffer_invl2|buffer_gl0_inv|"
         "buffer_gl1_inv|"
         "global_inv|global_wb|global_wbinv|s_dcache_inv|s_prefetch_inst|s_prefetch_inst_pc_rel|"
         "s_prefetch_data",
     .execute = Ignore,
     .decode = DecodeAnything},
};

}  // namespace

std::span<const Row> ControlRows() { return kControlRows; }

}  // namespace fakeamd
