// A text generated token by token by a decoder with caches that grow, compared with the same
// network written as loops over doubles.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "engine/frontend/tensor/host_tensor.h"
#include "tests/conformance/run_lowered.h"
#include "tests/models/decoder_judge.h"

namespace telegrad::testing {

// Runs a step in place.
using RunStep = std::function<absl::Status(UOp sink, std::span<const VarValue>, Slots*)>;

inline Slots FirstSlots(const Plan& plan) {
  Slots slots;
  for (const Slot& slot : plan.slots) {
    if (slot.role == SlotRole::kState) {
      const std::string bytes = InitialValue(slot)->bytes;
      slots.emplace_back(bytes.begin(), bytes.end());
    } else {
      slots.emplace_back(static_cast<size_t>(BytesOf(slot.dtype, NumElements(slot.shape))));
    }
  }
  return slots;
}

// `after` is called behind each step, with how many there were.
inline void DecodeText(const DecoderShape& shape, int tokens, const RunStep& run,
                       const std::function<void(int)>& after) {
  const auto plan = DecodeStep(shape);
  ASSERT_TRUE(plan.ok()) << plan.status();
  Slots slots = FirstSlots(*plan);
  const auto slot = [&](std::string_view name) -> std::vector<uint8_t>& {
    const auto it = std::ranges::find(plan->slots, name, &Slot::name);
    return slots[static_cast<size_t>(it - plan->slots.begin())];
  };
  DecoderJudge judge(shape, *plan);
  for (int position = 0; position < tokens; ++position) {
    const int32_t token = position * 7 % static_cast<int32_t>(shape.tokens);
    std::memcpy(slot("token").data(), &token, sizeof token);
    const std::vector<VarValue> values{{plan->variables[0].id, position}};
    ASSERT_EQ(run(plan->graph.root(), values, &slots), absl::OkStatus()) << position;
    const std::vector<double> want = judge.Step(token);
    for (size_t i = 0; i < want.size(); ++i) {
      float got;
      std::memcpy(&got, slot("logits").data() + i * sizeof got, sizeof got);
      ASSERT_NEAR(got, want[i], 1e-4) << "position " << position << ", token " << i;
    }
    after(position + 1);
  }
}

}  // namespace telegrad::testing
