// Tensor graphs through the whole engine onto the OpenCL device.
#pragma once

#include "tests/devices/device_graph_runner.h"
#include "tests/opencl/opencl_fixture.h"

namespace telegrad {

class GraphRunner : public DeviceGraphRunner {
 public:
  GraphRunner()
      : DeviceGraphRunner(OpenOpenClDevice(),
                          {CompileInProcess({.opencl_library = OpenClLibrary()}), nullptr, {}}) {}
};

}  // namespace telegrad
