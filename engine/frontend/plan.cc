// Uniform numbers come from SplitMix64 (Steele, Lea, Flood 2014) used as a counter-based generator:
// element i hashes seed + (i + 1) * gamma. The top 24 bits make a fraction in [0, 1) that is exact
// in a float.
#include "engine/frontend/plan.h"

#include <cmath>

#include "engine/base/status.h"
#include "engine/frontend/host_random.h"
#include "engine/ir/scalar.h"

namespace telegrad {

std::string_view Name(SlotRole role) {
  switch (role) {
    case SlotRole::kInput:
      return "input";
    case SlotRole::kState:
      return "state";
    case SlotRole::kOutput:
      return "output";
  }
  return "?";
}

int Plan::Find(std::string_view name) const {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

absl::StatusOr<HostTensor> InitialValue(const Slot& slot) {
  if (slot.init.kind == Init::kNone) {
    return FailedPrecondition("slot '", slot.name, "' (", Name(slot.role),
                              ") has no initial value");
  }
  TG_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(slot.dtype, slot.shape));
  const int64_t bits = Info(slot.dtype).bits;
  HostTensor out{slot.dtype, slot.shape, std::string(size, '\0')};
  for (int64_t i = 0; i < NumElements(slot.shape); ++i) {
    double value = slot.init.low;
    if (slot.init.kind == Init::kUniform) {
      value += (slot.init.high - slot.init.low) * UnitFraction(slot.init.seed, i);
    }
    const int64_t raw = ScalarToMemory(slot.dtype, ScalarFromDouble(slot.dtype, value));
    if (IsPacked(slot.dtype)) {
      out.bytes[i * bits / 8] |= static_cast<char>((raw & ((1 << bits) - 1)) << (i * bits % 8));
    } else {
      std::memcpy(out.bytes.data() + i * bits / 8, &raw, bits / 8);
    }
  }
  return out;
}

}  // namespace telegrad
