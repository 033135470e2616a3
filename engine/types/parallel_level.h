// At which levels a target runs iterations at once.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace telegrad {

enum class ParallelLevel : uint8_t {
  kWorkers,  // threads of a processor, of which each runs a part of a launch
  kGroups,   // workgroups, of which a processor runs some at a time
  kThreads,  // threads of a workgroup, which share local memory and wait for each other
  kWarps,    // such threads that execute together and exchange values
  kLanes,    // elements of a thread's vector registers
};
inline constexpr int kParallelLevels = 5;

class ParallelLevels {
 public:
  constexpr ParallelLevels() = default;
  constexpr ParallelLevels(std::initializer_list<ParallelLevel> levels) {
    for (const ParallelLevel level : levels) bits_ |= Bit(level);
  }
  constexpr bool Has(ParallelLevel level) const { return (bits_ & Bit(level)) != 0; }
  constexpr bool HasAll(ParallelLevels levels) const { return (levels.bits_ & ~bits_) == 0; }
  constexpr uint32_t bits() const { return bits_; }  // a different number for every set
  static constexpr ParallelLevels FromBits(uint32_t bits) {
    ParallelLevels levels;
    levels.bits_ = bits;
    return levels;
  }
  friend constexpr bool operator==(const ParallelLevels&, const ParallelLevels&) = default;

 private:
  static constexpr uint32_t Bit(ParallelLevel level) {
    return uint32_t{1} << static_cast<int>(level);
  }
  uint32_t bits_ = 0;
};

}  // namespace telegrad
