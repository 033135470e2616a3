// The data of value cases, see cases.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/host_tensor.h"

namespace telegrad::testing {

struct Variant {
  std::vector<HostTensor> in, out, weights, grads;
};
// By case name, in the order of their numbers.
using CaseData = std::map<std::string, std::vector<Variant>, std::less<>>;

absl::StatusOr<CaseData> ReadCaseData(std::string_view section);

}  // namespace telegrad::testing
