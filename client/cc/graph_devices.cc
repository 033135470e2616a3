// Decodes the graph and returns the highest device number in it, plus one.
#include "client/cc/graph_devices.h"

#include <algorithm>

#include "engine/base/budget.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {

int64_t DeviceNumbersOf(std::string_view graph) {
  Budget budget;
  const auto decoded = GraphFromBytes(graph, &budget);
  if (!decoded.ok()) return 0;
  const UOp root = decoded->root();
  int64_t numbers = 0;
  for (const uint32_t id : PostOrder(root)) {
    for (const int64_t device : root.graph()->devices(id)) numbers = std::max(numbers, device + 1);
  }
  return numbers;
}

}  // namespace telegrad
