// ResNet-50 (He et al. 2015; the stride of a stage on its 3x3 convolution), forward, with batch
// normalization folded into a scale and a shift for each channel.
#pragma once

#include "absl/status/statusor.h"
#include "engine/frontend/plan.h"

namespace telegrad::testing {

// Input "images" [batch, 3, 224, 224] f32, output "logits" [batch, 1000].
absl::StatusOr<Plan> ResNet50(int64_t batch);

}  // namespace telegrad::testing
