// Atomic operations of vectors on global, generic and local memory: lanes one after another, each
// as a whole.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/fakes/amd/float_value.h"
#include "tests/fakes/amd/memory_row.h"

namespace fakeamd {
namespace {

enum class Op : uint32_t {
  kAdd,
  kSub,
  kMinSigned,
  kMaxSigned,
  kMinUnsigned,
  kMaxUnsigned,
  kAnd,
  kOr,
  kXor,
  kSwap,
  kCompare,
  kIncrement,
  kDecrement,
  kAddFloat,
  kMinFloat,
  kMaxFloat,
  kAddPairF16,
  kAddPairBF16,
};
// Row::value: the bytes, the space, the operation from bit 20 on, and these.
constexpr uint32_t kOpShift = 20;
constexpr uint32_t kReturns = 1 << 16;       // by its name (local memory)
constexpr uint32_t kCompareFirst = 1 << 17;  // the value to compare stands before the new one

Op OpOf(const Row& row) { return static_cast<Op>(row.value >> kOpShift); }

template <class U, class S, class F>
U Result(Op op, U old, U data, U compare) {
  const auto number = [](F x) { return std::bit_cast<U>(x); };
  const F a = std::bit_cast<F>(old);
  const F b = std::bit_cast<F>(data);
  switch (op) {
    case Op::kAdd:
      return old + data;
    case Op::kSub:
      return old - data;
    case Op::kMinSigned:
      return static_cast<U>(std::min(static_cast<S>(old), static_cast<S>(data)));
    case Op::kMaxSigned:
      return static_cast<U>(std::max(static_cast<S>(old), static_cast<S>(data)));
    case Op::kMinUnsigned:
      return std::min(old, data);
    case Op::kMaxUnsigned:
      return std::max(old, data);
    case Op::kAnd:
      return old & data;
    case Op::kOr:
      return old | data;
    case Op::kXor:
      return old ^ data;
    case Op::kSwap:
      return data;
    case Op::kCompare:
      return old == compare ? data : old;
    case Op::kIncrement:
      return old >= data ? 0 : old + 1;
    case Op::kDecrement:
      return old == 0 || old > data ? data : old - 1;
    case Op::kAddFloat:
      return number(a + b);
    case Op::kMinFloat:
      return number(Smaller(a, b));
    case Op::kMaxFloat:
      return number(Larger(a, b));
    case Op::kAddPairF16:
    case Op::kAddPairBF16: {
      U sum = 0;
      for (int h = 0; h < 2; ++h) {
        const auto x = static_cast<uint16_t>(old >> (16 * h));
        const auto y = static_cast<uint16_t>(data >> (16 * h));
        const uint16_t bits = op == Op::kAddPairF16
                                  ? ToHalf(ToFloat(Half{x}) + ToFloat(Half{y})).bits
                                  : ToBrain(double{ToFloat(Brain{x})} + ToFloat(Brain{y})).bits;
        sum |= static_cast<U>(bits) << (16 * h);
      }
      return sum;
    }
  }
  return old;
}

void Atomic(Wave& w, const Instruction& i) {
  const Row& row = *i.row;
  const Space space = MemorySpace(row);
  const uint32_t bytes = MemoryBytes(row);
  const Op op = OpOf(row);
  const bool wide = bytes == 8;
  const Operand& data = i.source[2];
  for (uint64_t rest = w.exec(); rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint8_t* state = nullptr;
    uint8_t* at = LaneAddress(w, i, space, {0, 1}, lane, bytes, Access::kAtomic, &state);
    if (at == nullptr) return;
    const auto read = [&](uint32_t reg) {
      uint64_t value = w.Vector(reg)[lane];
      uint64_t undefined = w.undefined(reg);
      if (wide) {
        value |= uint64_t{w.Vector(reg + 1)[lane]} << 32;
        undefined |= w.undefined(reg + 1);
      }
      if ((undefined >> lane & 1) != 0) {
        w.Fail(FaultCode::kIllegalInstruction, i, static_cast<int>(lane),
               "reads v" + std::to_string(reg) + ", which has no defined value");
      }
      return value;
    };
    uint64_t value = read(data.reg);
    uint64_t compare = 0;
    if (op == Op::kCompare) {
      compare = space == Space::kLocal ? read(i.source[3].reg) : read(data.reg + bytes / 4);
      if ((row.value & kCompareFirst) != 0) std::swap(value, compare);
    }
    for (uint32_t b = 0; state != nullptr && b < bytes; ++b) {
      if (state[b] == 0) {
        w.Fail(FaultCode::kIllegalInstruction, i, static_cast<int>(lane),
               "changes memory that nothing has written");
      }
    }
    if (w.failed()) return;
    uint64_t old = 0;
    std::memcpy(&old, at, bytes);
    const uint64_t result = wide ? Result<uint64_t, int64_t, double>(op, old, value, compare)
                                 : Result<uint32_t, int32_t, float>(op, static_cast<uint32_t>(old),
                                                                    static_cast<uint32_t>(value),
                                                                    static_cast<uint32_t>(compare));
    std::memcpy(at, &result, bytes);
    if (i.returns) {
      for (uint32_t word = 0; word < bytes / 4; ++word) {
        const uint32_t to = i.result[0].reg + word;
        w.Vector(to)[lane] = static_cast<uint32_t>(old >> (32 * word));
        w.undefined(to) &= ~(uint64_t{1} << lane);
      }
    }
  }
  CountAccess(w, i, space, true, i.returns ? i.result[0].reg : uint16_t{0},
              i.returns ? static_cast<uint8_t>(bytes / 4) : uint8_t{0});
}

bool Returns(const Text& text) {
  const auto it = text.modifiers.find("th");
  return text.Has("glc") || text.Has("sc0") ||
         (it != text.modifiers.end() && it->second.find("ATOMIC_RETURN") != std::string::npos);
}

bool DecodeGlobalAtomic(Decoder& d, const Row& row) {
  const Space space = MemorySpace(row);
  const uint32_t words = MemoryBytes(row) / 4;
  const bool flat = space == Space::kFlat;
  d.out().returns = Returns(d.text());
  const size_t at = d.out().returns ? 1 : 0;
  if (!d.Expect(at + (flat ? 2 : 3))) return false;
  if (d.out().returns && !d.ReadResult(0, Type::kNone, words)) return false;
  const bool off = !flat && d.text().operands[at + 2] == "off";
  if (!d.ReadSource(at, Type::kNone, flat || off ? 2 : 1)) return false;
  if (flat) {
    ++d.out().sources;
  } else if (!d.ReadSource(at + 2, Type::kNone, off ? 1 : 2)) {
    return false;
  }
  if (!d.ReadSource(at + 1, Type::kNone, OpOf(row) == Op::kCompare ? 2 * words : words))
    return false;
  SetCounter(d, space, d.out().returns);
  return d.OnlyModifiers("offset glc slc dlc sc0 sc1 nt th scope") &&
         d.ReadOffset("offset", &d.out().offset);
}

bool DecodeLocalAtomic(Decoder& d, const Row& row) {
  const uint32_t words = MemoryBytes(row) / 4;
  d.out().returns = (row.value & kReturns) != 0;
  const size_t at = d.out().returns ? 1 : 0;
  const bool compares = OpOf(row) == Op::kCompare;
  SetCounter(d, Space::kLocal, d.out().returns);
  if (!d.Expect(at + (compares ? 3 : 2))) return false;
  if (d.out().returns && !d.ReadResult(0, Type::kNone, words)) return false;
  if (!d.ReadSource(at, Type::kB32)) return false;
  ++d.out().sources;  // there is no scalar address
  return d.ReadSource(at + 1, Type::kNone, words) &&
         (!compares || d.ReadSource(at + 2, Type::kNone, words)) && d.OnlyModifiers("offset") &&
         d.ReadOffset("offset", &d.out().offset);
}

// Names of global memory before gfx11 (64 bits: with _x2) and since then (with the type), and of
// local memory (always with the type).
struct AtomicForm {
  Op op;
  const char* old_name;
  const char* name;
  const char* type32;
  const char* type64;
};
constexpr AtomicForm kAtomics[] = {
    {Op::kAdd, "add", "add", "_u32", "_u64"},
    {Op::kSub, "sub", "sub", "_u32", "_u64"},
    {Op::kMinSigned, "smin", "min", "_i32", "_i64"},
    {Op::kMaxSigned, "smax", "max", "_i32", "_i64"},
    {Op::kMinUnsigned, "umin", "min", "_u32", "_u64"},
    {Op::kMaxUnsigned, "umax", "max", "_u32", "_u64"},
    {Op::kAnd, "and", "and", "_b32", "_b64"},
    {Op::kOr, "or", "or", "_b32", "_b64"},
    {Op::kXor, "xor", "xor", "_b32", "_b64"},
    {Op::kSwap, "swap", "swap", "_b32", "_b64"},
    {Op::kCompare, "cmpswap", "cmpswap", "_b32", "_b64"},
    {Op::kIncrement, "inc", "inc", "_u32", "_u64"},
    {Op::kDecrement, "dec", "dec", "_u32", "_u64"},
    {Op::kAddFloat, nullptr, "add", "_f32", "_f64"},
    {Op::kMinFloat, nullptr, "min", "_f32", "_f64"},
    {Op::kMaxFloat, nullptr, "max", "_f32", "_f64"},
    {Op::kMinFloat, nullptr, "min_num", "_f32", "_f64"},
    {Op::kMaxFloat, nullptr, "max_num", "_f32", "_f64"},
    {Op::kAddPairF16, nullptr, "pk_add", "_f16", nullptr},
    {Op::kAddPairBF16, nullptr, "pk_add", "_bf16", nullptr},
};

void AddGlobal(const AtomicForm& form, const std::string& prefix, Space space, RowList* list) {
  const uint32_t value = static_cast<uint32_t>(form.op) << kOpShift | SpaceBits(space);
  const std::string name = prefix + "atomic_" + form.name;
  const std::string old = form.old_name == nullptr ? "" : "|" + prefix + "atomic_" + form.old_name;
  list->Add(name + form.type32 + old, Atomic, DecodeGlobalAtomic, value | 4);
  if (form.type64 == nullptr) return;
  list->Add(name + form.type64 + (old.empty() ? "" : old + "_x2"), Atomic, DecodeGlobalAtomic,
            value | 8);
}

void AddLocal(const AtomicForm& form, RowList* list) {
  for (const bool returns : {false, true}) {
    const std::string middle = returns ? "_rtn" : "";
    for (const char* type : {form.type32, form.type64}) {
      if (type == nullptr) continue;
      const uint32_t value = static_cast<uint32_t>(form.op) << kOpShift | SpaceBits(Space::kLocal) |
                             (type == form.type32 ? 4u : 8u) | (returns ? kReturns : 0);
      if (form.op == Op::kSwap) {
        if (!returns) continue;
        list->Add(std::string("ds_wrxchg_rtn") + type + "|ds_storexchg_rtn" + type, Atomic,
                  DecodeLocalAtomic, value);
      } else if (form.op == Op::kCompare) {
        list->Add("ds_cmpst" + middle + type, Atomic, DecodeLocalAtomic, value | kCompareFirst);
        list->Add("ds_cmpstore" + middle + type, Atomic, DecodeLocalAtomic, value);
      } else {
        list->Add(std::string("ds_") + form.name + middle + type, Atomic, DecodeLocalAtomic, value);
      }
    }
  }
}

RowList MakeAtomicRows() {
  RowList list;
  for (const AtomicForm& form : kAtomics) {
    AddGlobal(form, "global_", Space::kGlobal, &list);
    AddGlobal(form, "flat_", Space::kFlat, &list);
    AddLocal(form, &list);
  }
  return list;
}

}  // namespace

std::span<const Row> AtomicRows() {
  static const RowList list = MakeAtomicRows();
  return list.rows();
}

}  // namespace fakeamd
