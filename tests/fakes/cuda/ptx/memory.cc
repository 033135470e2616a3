// ld and st (PTX ISA, "ld", "ld.global.nc", "st"), of scalars and vectors. A register wider than
// what is loaded gets it extended as the type's sign says. Cache and eviction hints change nothing.
#include <cstring>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/warp.h"

namespace fakecuda {
namespace {

uint64_t ReadElement(const uint8_t* from, int bytes) {
  uint64_t value = 0;
  std::memcpy(&value, from, static_cast<size_t>(bytes));
  return value;
}

// Of an access whose text names the memory.
void Count(Warp& w, const Instruction& i, uint32_t lanes, uint32_t bytes, bool store) {
  const uint64_t* address = w.Slot(i.slot[0]);
  if (i.space == Space::kShared) w.CountShared(address, i.offset, lanes, bytes, store);
  if (i.space == Space::kGlobal) w.CountGlobal(address, i.offset, lanes, bytes);
}

// slot[0] is the address, slots 1... the registers.
void Load(Warp& w, const Instruction& i, uint32_t lanes) {
  const uint64_t* address = w.Slot(i.slot[0]);
  const auto total = static_cast<uint32_t>(i.bytes * i.count);
  Count(w, i, lanes, total, /*store=*/false);
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const int l = std::countr_zero(rest);
    const uint8_t* from = w.Access(i, l, i.space, address[l] + static_cast<uint64_t>(i.offset),
                                   total, AccessKind::kRead);
    if (from == nullptr) return;
    for (size_t k = 0; k < i.count; ++k) {
      uint64_t value = ReadElement(from + k * i.bytes, i.bytes);
      if (i.signed_from != 0 && (value >> (i.signed_from - 1) & 1) != 0) {
        value |= ~uint64_t{0} << i.signed_from;
        if (i.width < 64) value &= (uint64_t{1} << i.width) - 1;
      }
      w.Slot(i.slot[k + 1])[l] = value;
    }
  }
}

void Store(Warp& w, const Instruction& i, uint32_t lanes) {
  const uint64_t* address = w.Slot(i.slot[0]);
  const auto total = static_cast<uint32_t>(i.bytes * i.count);
  Count(w, i, lanes, total, /*store=*/true);
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const int l = std::countr_zero(rest);
    uint8_t* to = w.Access(i, l, i.space, address[l] + static_cast<uint64_t>(i.offset), total,
                           AccessKind::kWrite);
    if (to == nullptr) return;
    for (size_t k = 0; k < i.count; ++k) {
      const uint64_t value = w.Slot(i.slot[k + 1])[l];
      std::memcpy(to + k * i.bytes, &value, i.bytes);
    }
  }
}

void TakeHints(Decoder& d) {
  d.TakeOne({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  d.TakeOne({"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
             "L1::no_allocate"});
  d.TakeOne({"L2::64B", "L2::128B", "L2::256B"});
}

}  // namespace

bool DecodeMemory(Decoder& d) {
  const bool load = d.mnemonic() == "ld";
  if (!load && d.mnemonic() != "st") return false;
  Instruction& o = d.out();
  if (d.TakeOne({"relaxed", "acquire", "release"}) >= 0) {
    d.Expect(d.TakeOne({"cta", "cluster", "gpu", "sys"}) >= 0, "a scope is missing");
  } else {
    d.TakeOne({"volatile", "weak"});
  }
  o.space = d.TakeSpace();
  if (d.Take("nc")) d.Expect(load && o.space == Space::kGlobal, ".nc is for ld.global");
  TakeHints(d);
  const int vector = d.TakeOne({"v2", "v4"});
  const Type type = d.TakeType();
  o.count = vector < 0 ? 1 : vector == 0 ? 2 : 4;
  o.bytes = static_cast<uint8_t>(Bytes(type));
  d.Expect(type != Type::kPred && o.bytes > 0, "predicates do not lie in memory");
  d.Expect(o.bytes * o.count <= 16, "a vector of more than 16 bytes");
  d.Expect(load || (o.space != Space::kParam && o.space != Space::kConst),
           "memory that cannot be written");
  d.ExpectOperands(2);
  if (d.operands() != 2) return true;
  d.Address(load ? 1 : 0, o.space, 0);
  const Operand& data = d.statement().operands[load ? 0 : 1];
  std::vector<Operand> elements = data.elements;
  if (data.kind != Operand::Kind::kVector) elements = {data};
  d.Expect((data.kind == Operand::Kind::kVector) == (vector >= 0) && elements.size() == o.count,
           "as many registers as the vector has elements");
  if (elements.size() != o.count) return true;
  o.signed_from = IsSigned(type) ? static_cast<uint8_t>(Bits(type)) : 0;
  for (size_t k = 0; k < o.count; ++k) {
    o.slot[k + 1] =
        load ? d.DestinationOf(elements[k], type, true) : d.SourceOf(elements[k], type, true);
    o.width = static_cast<uint8_t>(std::max(int{o.width}, d.RegisterBits(elements[k])));
  }
  o.execute = load ? &Load : &Store;
  return true;
}

}  // namespace fakecuda
