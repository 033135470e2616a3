// What the lanes of a warp exchange through registers: shfl, vote, activemask, match, redux (PTX
// ISA, "shfl.sync", "vote.sync", "activemask", "redux.sync"). Reading a lane that does not take
// part has no defined result, so it is a fault.
#include <algorithm>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/warp.h"

namespace fakecuda {
namespace {

enum Mode : int { kUp, kDown, kBfly, kIdx };

// slots: members, d, p, a, b, c; `count` the mode. The lanes are all members.
void Shfl(Warp& w, const Instruction& i, uint32_t lanes) {
  std::array<uint64_t, kLanes> a;
  std::copy_n(w.Slot(i.slot[3]), kLanes, a.begin());
  uint64_t* d = w.Slot(i.slot[1]);
  uint64_t* p = w.Slot(i.slot[2]);
  std::array<uint64_t, kLanes> results = {};
  std::array<uint64_t, kLanes> predicates = {};
  Each(lanes, [&](int l) {
    const int b = static_cast<int>(w.Slot(i.slot[4])[l] & 31);
    const auto c = static_cast<uint32_t>(w.Slot(i.slot[5])[l]);
    const int clamp = static_cast<int>(c & 31);
    const int segment = static_cast<int>(c >> 8 & 31);
    const int highest = (l & segment) | (clamp & ~segment);
    const int lowest = l & segment;
    int from = l;
    bool inside = false;
    switch (i.count) {
      case kUp:
        from = l - b;
        inside = from >= highest;
        break;
      case kDown:
        from = l + b;
        inside = from <= highest;
        break;
      case kBfly:
        from = l ^ b;
        inside = from <= highest;
        break;
      default:
        from = lowest | (b & ~segment);
        inside = from <= highest;
        break;
    }
    if (!inside) from = l;
    if ((lanes >> from & 1) == 0) {
      w.Fail(FaultCode::kLaunchFailed, i, l,
             "shfl reads lane " + std::to_string(from) + ", which does not take part");
      return;
    }
    results[static_cast<size_t>(l)] = a[static_cast<size_t>(from)];
    predicates[static_cast<size_t>(l)] = inside ? 1 : 0;
  });
  Each(lanes, [&](int l) {
    d[l] = results[static_cast<size_t>(l)];
    p[l] = predicates[static_cast<size_t>(l)];
  });
}

enum VoteMode : int { kAll, kAny, kUni, kBallot };

// slots: members, d, a; `flags`: the predicate is negated.
void Vote(Warp& w, const Instruction& i, uint32_t lanes) {
  uint32_t ballot = 0;
  Each(lanes, [&](int l) {
    const bool set = (w.Slot(i.slot[2])[l] & 1) != i.flags;
    ballot |= set ? uint32_t{1} << l : 0;
  });
  uint64_t result = ballot;
  if (i.count == kAll) result = ballot == lanes ? 1 : 0;
  if (i.count == kAny) result = ballot != 0 ? 1 : 0;
  if (i.count == kUni) result = ballot == lanes || ballot == 0 ? 1 : 0;
  Each(lanes, [&](int l) { w.Slot(i.slot[1])[l] = result; });
}

void ActiveMask(Warp& w, const Instruction& i, uint32_t lanes) {
  Each(lanes, [&](int l) { w.Slot(i.slot[0])[l] = lanes; });
}

enum ReduxMode : int { kAdd, kMin, kMax, kAnd, kOr, kXor };

// slots: members, d, a; `flags`: signed.
void Redux(Warp& w, const Instruction& i, uint32_t lanes) {
  const uint64_t* a = w.Slot(i.slot[2]);
  uint32_t result = static_cast<uint32_t>(a[std::countr_zero(lanes)]);
  for (uint32_t rest = lanes & (lanes - 1); rest != 0; rest &= rest - 1) {
    const auto x = static_cast<uint32_t>(a[std::countr_zero(rest)]);
    const bool less =
        i.flags != 0 ? static_cast<int32_t>(x) < static_cast<int32_t>(result) : x < result;
    switch (i.count) {
      case kAdd:
        result += x;
        break;
      case kMin:
        result = less ? x : result;
        break;
      case kMax:
        result = less ? result : x;
        break;
      case kAnd:
        result &= x;
        break;
      case kOr:
        result |= x;
        break;
      default:
        result ^= x;
        break;
    }
  }
  Each(lanes, [&](int l) { w.Slot(i.slot[1])[l] = result; });
}

bool DecodeShfl(Decoder& d) {
  Instruction& o = d.out();
  d.Expect(d.Take("sync"), "only .sync");
  const int mode = d.TakeOne({"up", "down", "bfly", "idx"});
  d.Expect(mode >= 0 && d.Take("b32"), "no such shuffle");
  d.ExpectOperands(5);
  if (d.operands() != 5) return true;
  Operand first = d.statement().operands[0];
  o.slot[2] = d.Trash();
  if (first.second >= 0) {
    Operand p;
    p.kind = Operand::Kind::kRegister;
    p.reg = first.second;
    o.slot[2] = d.DestinationOf(p, Type::kPred);
    first.second = -1;
  }
  o.slot[1] = d.DestinationOf(first, Type::kB32, false);
  o.slot[3] = d.Source(1, Type::kB32);
  o.slot[4] = d.Source(2, Type::kB32);
  o.slot[5] = d.Source(3, Type::kB32);
  o.slot[0] = d.Source(4, Type::kB32);
  o.count = static_cast<uint8_t>(mode);
  o.flow = Flow::kCollective;
  o.execute = &Shfl;
  return true;
}

bool DecodeVote(Decoder& d) {
  Instruction& o = d.out();
  d.Expect(d.Take("sync"), "only .sync");
  const int mode = d.TakeOne({"all", "any", "uni", "ballot"});
  const Type type = d.TakeType();
  d.Expect(mode >= 0 && type == (mode == kBallot ? Type::kB32 : Type::kPred), "no such vote");
  d.ExpectOperands(3);
  if (d.operands() != 3) return true;
  o.slot[1] = d.Destination(0, type);
  Operand a = d.statement().operands[1];
  o.flags = a.negated ? 1 : 0;
  a.negated = false;
  o.slot[2] = d.SourceOf(a, Type::kPred);
  o.slot[0] = d.Source(2, Type::kB32);
  o.count = static_cast<uint8_t>(mode);
  o.flow = Flow::kCollective;
  o.execute = &Vote;
  return true;
}

}  // namespace

bool DecodeShuffle(Decoder& d) {
  Instruction& o = d.out();
  if (d.mnemonic() == "shfl") return DecodeShfl(d);
  if (d.mnemonic() == "vote") return DecodeVote(d);
  if (d.mnemonic() == "activemask") {
    d.Expect(d.Take("b32"), "a type is missing");
    d.ExpectOperands(1);
    o.slot[0] = d.Destination(0, Type::kB32);
    o.execute = &ActiveMask;
    return true;
  }
  if (d.mnemonic() == "redux") {
    d.Expect(d.Take("sync"), "only .sync");
    const int mode = d.TakeOne({"add", "min", "max", "and", "or", "xor"});
    const Type type = d.TakeType();
    d.Expect(mode >= 0 && Bits(type) == 32 && !IsFloat(type), "no such reduction");
    d.ExpectOperands(3);
    o.slot = {d.Source(2, Type::kB32), d.Destination(0, type), d.Source(1, type)};
    o.count = static_cast<uint8_t>(mode);
    o.flags = IsSigned(type) ? 1 : 0;
    o.flow = Flow::kCollective;
    o.execute = &Redux;
    return true;
  }
  return false;
}

}  // namespace fakecuda
