// How a wave reaches memory: bounds, alignment, races, and which bytes have been written.
//
// An access of 4 bytes or more has to be aligned to 4 bytes, a smaller one and an atomic to its
// size: what the hardware does in the mode that the ROCm runtime selects, without the cases that
// are slow.
#include <algorithm>

#include "tests/fakes/amd/text.h"
#include "tests/fakes/amd/wave.h"
#include "tests/fakes/amd/workgroup.h"

namespace fakeamd {
namespace {

std::string DescribeAccess(Access access, uint32_t bytes, const char* where, uint64_t address) {
  const char* verb = access == Access::kRead    ? "read"
                     : access == Access::kWrite ? "write"
                                                : "atomic";
  return std::string(verb) + " of " + std::to_string(bytes) + " bytes of " + where + " memory at " +
         Hex(address);
}

bool Aligned(uint64_t address, uint32_t bytes, Access access) {
  return address % (access == Access::kAtomic ? bytes : std::min(bytes, 4u)) == 0;
}

}  // namespace

uint8_t* Wave::Global(const Instruction& i, uint32_t lane, uint64_t address, uint32_t bytes,
                      Access access) {
  LaunchState& state = group_->state();
  const int where = static_cast<int>(lane);
  // HSA has the hardware take other addresses of global memory as they are, and LLVM relies on it.
  if (access == Access::kAtomic && address % bytes != 0) {
    Fail(FaultCode::kMisaligned, i, where,
         "misaligned " + DescribeAccess(access, bytes, "global", address));
    return nullptr;
  }
  auto& places = state.places;
  const auto holds = [&](const LaunchState::Mapped& place) {
    return address - place.base < place.bytes && bytes <= place.bytes - (address - place.base);
  };
  if (last_region_ >= places.size() || !holds(places[last_region_])) {
    const auto after = std::upper_bound(
        places.begin(), places.end(), address,
        [](uint64_t a, const LaunchState::Mapped& place) { return a < place.base; });
    const auto at = after == places.begin() ? places.end() : after - 1;
    if (at == places.end() || !holds(*at)) {
      Fail(FaultCode::kIllegalAddress, i, where,
           DescribeAccess(access, bytes, "global", address) + " is outside of every allocation");
      return nullptr;
    }
    last_region_ = static_cast<size_t>(at - places.begin());
  }
  LaunchState::Mapped& place = places[last_region_];
  if (place.read_only) {
    if (access == Access::kRead) return place.host + (address - place.base);
    Fail(FaultCode::kIllegalAddress, i, where,
         DescribeAccess(access, bytes, "read-only", address) + " is not possible");
    return nullptr;
  }
  if (state.launch->check_races) {
    if (place.shadow == nullptr) place.shadow = std::make_unique<Shadow>(place.bytes);
    std::string conflict;
    bool repeated = false;
    if (!place.shadow->Record(address - place.base, bytes, access, group_->WhoIs(*this), &repeated,
                              &conflict)) {
      Fail(FaultCode::kRace, i, where,
           "race: " + DescribeAccess(access, bytes, "global", address) + ", " + conflict);
      return nullptr;
    }
    repeated_ = repeated;
  }
  return place.host + (address - place.base);
}

uint8_t* Wave::Local(const Instruction& i, uint32_t lane, uint64_t offset, uint32_t bytes,
                     Access access) {
  const int where = static_cast<int>(lane);
  if (!Aligned(offset, bytes, access)) {
    Fail(FaultCode::kMisaligned, i, where,
         "misaligned " + DescribeAccess(access, bytes, "local", offset));
    return nullptr;
  }
  const uint64_t size = group_->local_bytes();
  if (offset > size || bytes > size - offset) {
    Fail(FaultCode::kIllegalAddress, i, where,
         DescribeAccess(access, bytes, "local", offset) + " is outside of the workgroup's " +
             std::to_string(size) + " bytes");
    return nullptr;
  }
  if (signalled) {
    Fail(FaultCode::kRace, i, where, "local memory is used between the two halves of a barrier");
    return nullptr;
  }
  if (group_->state().launch->check_races) {
    std::string conflict;
    bool repeated = false;
    if (!group_->local_shadow().Record(offset, bytes, access, group_->WhoIs(*this), &repeated,
                                       &conflict)) {
      Fail(FaultCode::kRace, i, where,
           "race: " + DescribeAccess(access, bytes, "local", offset) + ", " + conflict);
      return nullptr;
    }
    repeated_ = repeated;
  }
  return group_->local(offset);
}

uint8_t* Wave::Scratch(const Instruction& i, uint32_t lane, uint64_t offset, uint32_t bytes) {
  if (!Aligned(offset, bytes, Access::kRead)) {
    Fail(FaultCode::kMisaligned, i, static_cast<int>(lane),
         "misaligned " + DescribeAccess(Access::kRead, bytes, "scratch", offset));
    return nullptr;
  }
  if (offset > scratch_bytes_ || bytes > scratch_bytes_ - offset) {
    Fail(FaultCode::kIllegalAddress, i, static_cast<int>(lane),
         "access to scratch memory at " + Hex(offset) + " is outside of the thread's " +
             std::to_string(scratch_bytes_) + " bytes");
    return nullptr;
  }
  return &scratch_[lane * scratch_bytes_ + offset];
}

}  // namespace fakeamd
