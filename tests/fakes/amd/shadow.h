// Who read and wrote each piece of memory last, and whether a barrier lies between: a race is two
// accesses of different waves, one of them a write and not both atomic, without a barrier of the
// workgroup between, or of different workgroups at all.
//
// Time is a count of barriers, which grows from workgroup to workgroup of a launch, so that an
// access before the first time of this workgroup is one of another. Cells begin with 4 bytes and
// get finer when smaller accesses come. Lanes of one wave run in step and do not race, but two of
// them may not store different values at one place in one instruction.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fakeamd {

enum class Access : uint8_t { kRead, kWrite, kAtomic };

struct Accessor {
  uint32_t group_begin = 1;  // the first time of this workgroup
  uint32_t now = 1;
  uint8_t wave = 0;
  uint32_t serial = 0;  // of the instruction within its launch
};

class Shadow {
 public:
  explicit Shadow(uint64_t bytes) : bytes_(bytes) { Resize(); }

  // Records the access; false for a race, then `conflict` says with whom. `repeated` is set for a
  // write to what the same instruction has written.
  bool Record(uint64_t offset, uint32_t bytes, Access access, const Accessor& who, bool* repeated,
              std::string* conflict);

 private:
  struct Cell {
    uint32_t write_time = 0;  // 0: never
    uint32_t read_time = 0;
    uint32_t write_serial = 0;
    uint8_t write_wave = 0;
    uint8_t read_wave = 0;
    bool atomic = false;           // the last write
    bool read_by_several = false;  // waves, at read_time
    bool read_elsewhere = false;   // by an earlier workgroup
  };
  static constexpr uint64_t kPageCells = 1024;
  using Page = std::array<Cell, kPageCells>;

  void Resize() { pages_.resize(((bytes_ >> shift_) + kPageCells) / kPageCells); }
  void Refine();
  Cell& At(uint64_t cell);
  static bool Check(Cell& cell, Access access, const Accessor& who, bool* repeated,
                    std::string* conflict);

  uint64_t bytes_;
  uint32_t shift_ = 2;
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace fakeamd
