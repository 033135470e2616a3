// Uniform numbers come from SplitMix64 (Steele, Lea, Flood 2014) used as a counter-based generator:
// element i hashes seed + (i + 1) * gamma. The top 24 bits make a fraction in [0, 1) that is exact
// in a float. A normal number is made of two of them.
#include "engine/frontend/tensor/plan.h"

#include <cmath>
#include <numbers>

#include "engine/base/status.h"
#include "engine/frontend/tensor/host_random.h"
#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

double Element(const Init& init, int64_t i) {
  switch (init.kind) {
    case Init::kUniform:
      return init.low + (init.high - init.low) * UnitFraction(init.seed, i);
    case Init::kNormal: {  // Box and Muller 1958
      const double radius = std::sqrt(-2 * std::log(1 - UnitFraction(init.seed, 2 * i)));
      const double angle = 2 * std::numbers::pi * UnitFraction(init.seed, 2 * i + 1);
      return init.low + init.high * radius * std::cos(angle);
    }
    case Init::kConstant:
    case Init::kNone:
      break;
  }
  return init.low;
}

}  // namespace

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
  if (slot.content != nullptr) return *slot.content;
  if (slot.init.kind == Init::kNone) {
    return FailedPrecondition("slot '", slot.name, "' (", Name(slot.role),
                              ") has no initial value");
  }
  TG_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(slot.dtype, slot.shape));
  const int64_t bits = Info(slot.dtype).bits;
  HostTensor out{slot.dtype, slot.shape, std::string(size, '\0')};
  for (int64_t i = 0; i < NumElements(slot.shape); ++i) {
    const double value = Element(slot.init, i);
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
