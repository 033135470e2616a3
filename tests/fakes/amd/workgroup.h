// A workgroup while it runs, and what the workgroups of a launch share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/amd/amd_machine.h"
#include "tests/fakes/amd/code.h"
#include "tests/fakes/amd/shadow.h"
#include "tests/fakes/amd/wave.h"

namespace fakeamd {

// Device addresses of what the machine itself places: the object's segments and the arguments. The
// windows of the generic address space for local memory and scratch are the upper 16 bits of an
// address.
inline constexpr uint64_t kObjectBase = uint64_t{0x7e} << 40;
inline constexpr uint64_t kKernargBase = uint64_t{0x7d} << 40;
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 48;
inline constexpr uint64_t kPrivateWindow = uint64_t{2} << 48;

struct LaunchState {
  const Launch* launch = nullptr;
  const Code* code = nullptr;
  const KernelCode* kernel = nullptr;
  struct Mapped {
    uint64_t base = 0;
    uint64_t bytes = 0;
    uint8_t* host = nullptr;
    bool read_only = false;
    std::unique_ptr<Shadow> shadow = nullptr;  // made at the first access
  };
  std::vector<Mapped> places;  // sorted
  Fault fault;
  uint64_t budget = 0;
  uint32_t time = 0;  // of the shadows
  uint32_t serial = 0;
  Counts counts;
};

class Workgroup {
 public:
  explicit Workgroup(LaunchState* state);

  void Run(const std::array<uint32_t, 3>& id);

  LaunchState& state() { return *state_; }
  const std::array<uint32_t, 3>& id() const { return id_; }
  Accessor WhoIs(const Wave& wave) const;

  uint64_t local_bytes() const { return local_.size(); }
  uint8_t* local(uint64_t offset) { return &local_[offset]; }
  // Whether each byte has been written.
  uint8_t* local_state(uint64_t offset) { return &local_state_[offset]; }
  Shadow& local_shadow() { return *local_shadow_; }

 private:
  bool ReleaseBarrier();

  LaunchState* state_;
  std::array<uint32_t, 3> id_ = {};
  uint32_t begin_ = 1;
  std::vector<std::unique_ptr<Wave>> waves_;
  std::vector<uint8_t> local_;
  std::vector<uint8_t> local_state_;
  std::unique_ptr<Shadow> local_shadow_;
};

}  // namespace fakeamd
