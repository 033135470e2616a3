// A cell of memory has the time and the wave of its last write and of the reads since. An access
// is checked against them and then recorded.
#include "tests/fakes/amd/shadow.h"

namespace fakeamd {
namespace {

bool Conflict(const char* what, bool elsewhere, uint8_t wave, std::string* conflict) {
  *conflict = std::string("which ") + what +
              (elsewhere ? " another workgroup" : " wave " + std::to_string(wave));
  return false;
}

}  // namespace

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
      if ((cell + 1) / kPageCells >= pages_.size()) break;
      At(cell) = (*old[p])[i];
      At(cell + 1) = (*old[p])[i];
    }
  }
}

Shadow::Cell& Shadow::At(uint64_t cell) {
  auto& page = pages_[cell / kPageCells];
  if (page == nullptr) page = std::make_unique<Page>();
  return (*page)[cell % kPageCells];
}

bool Shadow::Check(Cell& cell, Access access, const Accessor& who, bool* repeated,
                   std::string* conflict) {
  if (cell.write_time != 0 && !(access == Access::kAtomic && cell.atomic)) {
    const bool elsewhere = cell.write_time < who.group_begin;
    if (elsewhere || (cell.write_time == who.now && cell.write_wave != who.wave)) {
      return Conflict("was written by", elsewhere, cell.write_wave, conflict);
    }
  }
  if (access == Access::kRead) {
    if (cell.read_time != who.now) {
      cell.read_elsewhere |= cell.read_time != 0 && cell.read_time < who.group_begin;
      cell.read_by_several = false;
      cell.read_time = who.now;
      cell.read_wave = who.wave;
    } else if (cell.read_wave != who.wave) {
      cell.read_by_several = true;
    }
    return true;
  }
  if (cell.read_time != 0) {
    const bool elsewhere = cell.read_elsewhere || cell.read_time < who.group_begin;
    if (elsewhere ||
        (cell.read_time == who.now && (cell.read_by_several || cell.read_wave != who.wave))) {
      return Conflict("was read by", elsewhere, cell.read_wave, conflict);
    }
  }
  *repeated |= access == Access::kWrite && cell.write_time == who.now &&
               cell.write_wave == who.wave && cell.write_serial == who.serial && !cell.atomic;
  cell.write_time = who.now;
  cell.write_wave = who.wave;
  cell.write_serial = who.serial;
  cell.atomic = access == Access::kAtomic;
  return true;
}

bool Shadow::Record(uint64_t offset, uint32_t bytes, Access access, const Accessor& who,
                    bool* repeated, std::string* conflict) {
  while (((offset | bytes) & ((uint64_t{1} << shift_) - 1)) != 0) Refine();
  for (uint64_t cell = offset >> shift_; cell < (offset + bytes) >> shift_; ++cell) {
    if (!Check(At(cell), access, who, repeated, conflict)) return false;
  }
  return true;
}

}  // namespace fakeamd
