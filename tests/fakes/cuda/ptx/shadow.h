// Shadow memory: who read and wrote each piece of memory last, and whether a barrier lies between.
//
// A warp's clock counts what it published to others (barriers, arrivals). A warp also knows up to
// which clock it has seen the work of every other warp of its workgroup. Two accesses of different
// threads, one of them a write, are a race unless the later one knows of the earlier. Clocks grow
// from workgroup to workgroup of a launch, so that an access before `block_begin` is one of another
// workgroup: nothing orders those. Cells begin with 4 bytes and get finer when smaller accesses
// come.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fakecuda {

inline constexpr int kMaxWarps = 32;
// What copies in bulk, in the place of a warp: each copy is a lane of its own.
inline constexpr int kCopier = kMaxWarps;
inline constexpr int kClocks = kMaxWarps + 1;

// What a warp knows of its workgroup.
struct Clocks {
  uint32_t block_begin = 1;  // first clock of this workgroup
  uint32_t own = 1;          // of accesses now
  uint32_t synced = 1;       // accesses of the warp before it are ordered among its lanes
  std::array<uint32_t, kClocks> seen = {};  // of every other warp, inclusive

  // What this warp did until now becomes visible to who takes the result.
  std::array<uint32_t, kClocks> Publish(int warp);
  void Learn(const std::array<uint32_t, kClocks>& other);
};

enum class AccessKind : uint8_t { kRead, kWrite, kAtomic };

struct Accessor {
  const Clocks* clocks = nullptr;
  int warp = 0;
  int lane = 0;
};

class Shadow {
 public:
  explicit Shadow(uint64_t bytes) : bytes_(bytes) { Resize(); }

  // Records the access; false for a race, then `conflict` says with whom.
  bool Access(uint64_t offset, uint32_t bytes, AccessKind kind, const Accessor& who,
              std::string* conflict);

 private:
  struct Cell {
    uint32_t write_clock = 0;   // of the last plain write; 0: none
    uint32_t atomic_clock = 0;  // of the last atomic access since
    uint32_t read_clock = 0;
    int32_t readers = -1;  // into sets_, of this workgroup, where several warps read
    uint8_t write_warp = 0;
    uint8_t write_lane = 0;
    uint8_t atomic_warp = 0;
    uint8_t atomic_lane = 0;
    uint8_t read_warp = 0;
    uint8_t read_lane = 0;
    bool read_elsewhere = false;  // also by an earlier workgroup
  };
  struct Readers {
    std::array<uint32_t, kClocks> clock = {};
    std::array<uint8_t, kClocks> lane = {};
  };
  static constexpr uint64_t kPageCells = 1024;
  using Page = std::array<Cell, kPageCells>;

  void Resize();
  void Refine();
  Cell& At(uint64_t cell);
  bool Read(Cell& cell, const Accessor& who, std::string* conflict);
  bool Write(Cell& cell, bool atomic, const Accessor& who, std::string* conflict);
  // Whether `who` comes after the cell's writes, of which atomic ones may be left out.
  static bool AfterWrites(const Cell& cell, bool atomic, const Accessor& who,
                          std::string* conflict);

  uint64_t bytes_;
  int shift_ = 2;
  uint32_t sets_of_ = 0;  // the workgroup that sets_ belongs to
  std::vector<std::unique_ptr<Page>> pages_;
  std::vector<Readers> sets_;
};

}  // namespace fakecuda
