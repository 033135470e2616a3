// Runs one workgroup after another, until the last one has ended or one has a fault.
#include "tests/fakes/cuda/ptx/launch.h"

#include "tests/fakes/cuda/ptx/workgroup.h"

namespace fakecuda {

Fault Run(Launch& launch) {
  launch.shadows.clear();
  launch.shadows.resize(launch.memory->size());
  Workgroup workgroup(&launch);
  for (uint32_t z = 0; z < launch.shape.grid[2]; ++z) {
    for (uint32_t y = 0; y < launch.shape.grid[1]; ++y) {
      for (uint32_t x = 0; x < launch.shape.grid[0]; ++x) {
        workgroup.Run({x, y, z});
        if (launch.fault.code != FaultCode::kNone) return launch.fault;
      }
    }
  }
  return {};
}

}  // namespace fakecuda
