// The clocks of warps, and the check of each access against the last write and the last reads of
// its cells.
#include "tests/fakes/cuda/ptx/shadow.h"

#include <algorithm>

namespace fakecuda {
namespace {

constexpr uint8_t kSeveral = 0xff;  // instead of a lane: more than one of them

// Whether `who` comes after an access of its own workgroup.
bool After(const Accessor& who, uint32_t clock, int warp, uint8_t lane) {
  if (warp == who.warp) return lane == who.lane || clock < who.clocks->synced;
  return clock <= who.clocks->seen[static_cast<size_t>(warp)];
}

bool Race(const char* what, int warp, uint8_t lane, bool elsewhere, std::string* conflict) {
  *conflict = what;
  if (elsewhere) {
    *conflict += " another workgroup";
  } else if (warp == kCopier) {
    *conflict += " a bulk copy";
  } else {
    *conflict += " warp " + std::to_string(warp);
    *conflict += lane == kSeveral ? ", several lanes" : ", lane " + std::to_string(lane);
  }
  return false;
}

}  // namespace

std::array<uint32_t, kClocks> Clocks::Publish(int warp) {
  std::array<uint32_t, kClocks> result = seen;
  result[static_cast<size_t>(warp)] = own++;
  return result;
}

void Clocks::Learn(const std::array<uint32_t, kClocks>& other) {
  for (size_t i = 0; i < seen.size(); ++i) seen[i] = std::max(seen[i], other[i]);
}

void Shadow::Resize() {
  const uint64_t cells = (bytes_ >> shift_) + 1;
  pages_.resize((cells + kPageCells - 1) / kPageCells);
}

// Every cell becomes two.
void Shadow::Refine() {
  std::vector<std::unique_ptr<Page>> old = std::move(pages_);
  --shift_;
  pages_.clear();
  Resize();
  for (uint64_t p = 0; p < old.size(); ++p) {
    if (old[p] == nullptr) continue;
    for (uint64_t i = 0; i < kPageCells; ++i) {
      const uint64_t cell = 2 * (p * kPageCells + i);
      if (cell / kPageCells >= pages_.size()) break;
      const int32_t readers = (*old[p])[i].readers;
      At(cell) = (*old[p])[i];
      if ((cell + 1) / kPageCells >= pages_.size()) break;
      At(cell + 1) = (*old[p])[i];
      if (readers >= 0 && static_cast<size_t>(readers) < sets_.size()) {  // else of an old group
        At(cell + 1).readers = static_cast<int32_t>(sets_.size());
        sets_.push_back(sets_[static_cast<size_t>(readers)]);
      }
    }
  }
}

Shadow::Cell& Shadow::At(uint64_t cell) {
  auto& page = pages_[cell / kPageCells];
  if (page == nullptr) page = std::make_unique<Page>();
  return (*page)[cell % kPageCells];
}

bool Shadow::Access(uint64_t offset, uint32_t bytes, AccessKind kind, const Accessor& who,
                    std::string* conflict) {
  if (sets_of_ != who.clocks->block_begin) {
    sets_of_ = who.clocks->block_begin;
    sets_.clear();
  }
  while (((offset | bytes) & ((uint64_t{1} << shift_) - 1)) != 0) Refine();
  for (uint64_t cell = offset >> shift_; cell < (offset + bytes) >> shift_; ++cell) {
    const bool ok = kind == AccessKind::kRead
                        ? Read(At(cell), who, conflict)
                        : Write(At(cell), kind == AccessKind::kAtomic, who, conflict);
    if (!ok) return false;
  }
  return true;
}

bool Shadow::AfterWrites(const Cell& cell, bool atomic, const Accessor& who,
                         std::string* conflict) {
  const uint32_t begin = who.clocks->block_begin;
  if (cell.write_clock != 0) {
    const bool elsewhere = cell.write_clock < begin;
    if (elsewhere || !After(who, cell.write_clock, cell.write_warp, cell.write_lane)) {
      return Race("was written by", cell.write_warp, cell.write_lane, elsewhere, conflict);
    }
  }
  if (cell.atomic_clock != 0 && atomic) {
    const bool elsewhere = cell.atomic_clock < begin;
    if (elsewhere || !After(who, cell.atomic_clock, cell.atomic_warp, cell.atomic_lane)) {
      return Race("was changed by", cell.atomic_warp, cell.atomic_lane, elsewhere, conflict);
    }
  }
  return true;
}

bool Shadow::Read(Cell& cell, const Accessor& who, std::string* conflict) {
  const Clocks& now = *who.clocks;
  if (!AfterWrites(cell, true, who, conflict)) return false;
  const auto warp = static_cast<uint8_t>(who.warp);
  const auto lane = static_cast<uint8_t>(who.lane);
  if (cell.read_clock < now.block_begin) {
    cell.read_elsewhere |= cell.read_clock != 0;
    cell.readers = -1;
  } else if (cell.readers >= 0) {
    Readers& set = sets_[static_cast<size_t>(cell.readers)];
    const bool other = set.clock[warp] >= now.synced && set.lane[warp] != lane;
    set.lane[warp] = other ? kSeveral : lane;
    set.clock[warp] = now.own;
    cell.read_clock = now.own;
    return true;
  } else if (!After(who, cell.read_clock, cell.read_warp, cell.read_lane)) {
    if (cell.read_warp == warp) {
      cell.read_clock = now.own;
      cell.read_lane = kSeveral;
      return true;
    }
    Readers set;
    set.clock[cell.read_warp] = cell.read_clock;
    set.lane[cell.read_warp] = cell.read_lane;
    set.clock[warp] = now.own;
    set.lane[warp] = lane;
    cell.readers = static_cast<int32_t>(sets_.size());
    sets_.push_back(set);
  }
  cell.read_clock = now.own;
  cell.read_warp = warp;
  cell.read_lane = lane;
  return true;
}

bool Shadow::Write(Cell& cell, bool atomic, const Accessor& who, std::string* conflict) {
  const Clocks& now = *who.clocks;
  if (!AfterWrites(cell, !atomic, who, conflict)) return false;
  const bool stale = cell.read_clock != 0 && cell.read_clock < now.block_begin;
  if (cell.read_elsewhere || stale) return Race("was read by", 0, 0, true, conflict);
  if (cell.readers >= 0) {
    const Readers& set = sets_[static_cast<size_t>(cell.readers)];
    for (size_t w = 0; w < kClocks; ++w) {
      if (set.clock[w] != 0 && !After(who, set.clock[w], static_cast<int>(w), set.lane[w])) {
        return Race("was read by", static_cast<int>(w), set.lane[w], false, conflict);
      }
    }
  } else if (cell.read_clock != 0 && !After(who, cell.read_clock, cell.read_warp, cell.read_lane)) {
    return Race("was read by", cell.read_warp, cell.read_lane, false, conflict);
  }
  if (atomic) {
    cell.atomic_clock = now.own;
    cell.atomic_warp = static_cast<uint8_t>(who.warp);
    cell.atomic_lane = static_cast<uint8_t>(who.lane);
    return true;
  }
  cell = {};
  cell.write_clock = now.own;
  cell.write_warp = static_cast<uint8_t>(who.warp);
  cell.write_lane = static_cast<uint8_t>(who.lane);
  return true;
}

}  // namespace fakecuda
