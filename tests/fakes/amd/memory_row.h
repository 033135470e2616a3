// What rows of memory instructions have in common: their numbers in Row::value, and how accesses
// are counted.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/fakes/amd/decoder.h"
#include "tests/fakes/amd/row.h"
#include "tests/fakes/amd/wave.h"

namespace fakeamd {

enum class Space : uint8_t { kGlobal, kFlat, kScratch, kBuffer, kLocal };

// Row::value: bits 0 to 7 the bytes, then these.
enum MemoryFlag : uint32_t {
  kSigned = 1 << 8,
  kHalfOnly = 1 << 9,  // the other half of the register stays
  kUpperHalf = 1 << 10,
  kSpaceShift = 12,
};

constexpr uint32_t MemoryBytes(const Row& row) { return row.value & 0xff; }
constexpr Space MemorySpace(const Row& row) {
  return static_cast<Space>(row.value >> kSpaceShift & 7);
}
constexpr uint32_t SpaceBits(Space space) { return static_cast<uint32_t>(space) << kSpaceShift; }
constexpr uint32_t Words(uint32_t bytes) { return (bytes + 3) / 4; }

// Rows with names that are put together when the table is made.
class RowList {
 public:
  void Add(std::string names, Execute execute, Decode decode, uint32_t value) {
    names_.push_back(std::move(names));
    rows_.push_back({.names = names_.back(), .execute = execute, .decode = decode, .value = value});
  }
  std::span<const Row> rows() const { return rows_; }

 private:
  std::deque<std::string> names_;
  std::vector<Row> rows_;
};

// Which counters an access to a space adds to, for the instruction's own record of it.
void SetCounter(Decoder& d, Space space, bool loads);
// Adds the access; registers from `first` on are written when it is complete.
void CountAccess(Wave& w, const Instruction& i, Space space, bool store, uint16_t first,
                 uint8_t words);

// The addresses of a vector access: operand `at` of the sources, then a scalar one behind it.
struct AddressForm {
  size_t vector = 0;
  size_t scalar = 0;
};
// Where a lane's access goes, whichever space that is; null after a fault. `state` is set to the
// written marks of its bytes, where the space has them.
uint8_t* LaneAddress(Wave& w, const Instruction& i, Space space, const AddressForm& form,
                     uint32_t lane, uint32_t bytes, Access access, uint8_t** state);

}  // namespace fakeamd
