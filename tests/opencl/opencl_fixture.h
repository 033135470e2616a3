// The OpenCL device of the tests: the first that the loader shows, which is PoCL's where
// deploy/dependencies.sh has installed it. TELEGRAD_OPENCL names another loader, or a driver.
// Drivers keep their files in a folder that goes with the process (engine/opencl/library.cc).
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/opencl/opencl_device.h"
#include "gtest/gtest.h"

namespace telegrad {

inline std::string OpenClLibrary() {
  const char* named = std::getenv("TELEGRAD_OPENCL");
  return named != nullptr ? named : OpenClOptions{}.library;
}

// TELEGRAD_OPENCL_INEXACT: its results may be rounded otherwise, and only what it does is looked
// at.
inline bool OpenClIsInexact() { return std::getenv("TELEGRAD_OPENCL_INEXACT") != nullptr; }

// Adds 1 to the byte at p[o + begin + workgroup].
inline constexpr char kNextOpenCl[] =
    "// telegrad-parameters: buffer,begin\n"
    "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))\n"
    "void next(__global uchar* restrict p, ulong o, ulong begin) {\n"
    "  p[o + begin + get_group_id(0)] += 1;\n}\n";

// Why this machine has none; empty: it has.
inline const std::string& WhyNoOpenCl() {
  static const auto* const why = [] {
    std::vector<std::string> notes;
    const bool any =
        !OpenOpenCls({.library = OpenClLibrary(), .devices = 1, .inexact = OpenClIsInexact()},
                     &notes)
             .empty();
    return new std::string(any ? "" : notes.empty() ? "no OpenCL device" : notes[0]);
  }();
  return *why;
}

inline std::unique_ptr<Device> OpenOpenClDevice(OpenClOptions options = {}) {
  options.library = OpenClLibrary();
  options.inexact = OpenClIsInexact();
  options.devices = 1;
  auto devices = OpenOpenCls(options, nullptr);
  EXPECT_EQ(devices.size(), 1u);
  return devices.empty() ? nullptr : std::move(devices[0]);
}

#define SKIP_WITHOUT_OPENCL() \
  if (!::telegrad::WhyNoOpenCl().empty()) GTEST_SKIP() << ::telegrad::WhyNoOpenCl()

}  // namespace telegrad
