// Divides one range of bytes among allocations: which offsets are free, whatever memory is there.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace telegrad {

// Not thread-safe. Offsets are multiples of `step` up to 1 MiB and of 2 MiB above.
class Suballocator {
 public:
  static constexpr int64_t kBlock = int64_t{2} << 20;

  struct Span {
    int64_t offset = -1;
    int64_t dirty = 0;  // its first bytes, which were handed out before
  };

  // Offsets in [0, capacity), which is a multiple of kBlock; `step` is a power of two, up to 2^16.
  Suballocator(int64_t capacity, int64_t step) : capacity_(capacity), step_(step) {}

  // What an allocation of `size` >= 0 bytes counts: in steps.
  int64_t Charge(int64_t size) const;
  // `size` >= 0 bytes; offset -1 where no stretch is long enough.
  Span Take(int64_t size);
  // What Take returned, with the same size.
  void Return(int64_t offset, int64_t size);

  // No byte from here on was ever handed out.
  int64_t top() const { return top_; }
  // The free stretches of blocks below the top: offset to bytes, never adjacent.
  const std::map<int64_t, int64_t>& free() const { return free_; }
  // As if the stretch that is free just below the top had never been handed out.
  void LowerTop();

 private:
  // A block cut into pieces of one size.
  struct Slab {
    int64_t piece = 0;  // bytes; 0: not a slab
    int64_t live = 0;
    int64_t untouched = 0;  // offset in the slab from which no piece was handed out
    int64_t dirty = 0;      // of the slab itself
    std::vector<int64_t> free;
  };

  int64_t PieceSize(int64_t size) const;
  Span TakeBlocks(int64_t bytes);
  void ReturnBlocks(int64_t offset, int64_t bytes);
  void AddFree(int64_t offset, int64_t bytes);
  void RemoveFree(int64_t offset, int64_t bytes);
  Span TakePiece(int64_t piece);
  void ReturnPiece(int64_t offset);

  const int64_t capacity_;
  const int64_t step_;
  int64_t top_ = 0;
  std::map<int64_t, int64_t> free_;
  std::set<std::pair<int64_t, int64_t>> by_size_;    // (bytes, offset) of the same
  std::vector<Slab> slabs_;                          // by offset / kBlock
  std::map<int64_t, std::set<int64_t>> with_space_;  // piece size to slabs
};

}  // namespace telegrad
