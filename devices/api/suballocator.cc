// Above 1 MiB: blocks of a multiple of 2 MiB, best fit first, coalesced when they come back, else
// cut from the untouched end. Up to 1 MiB: pieces of slabs of 2 MiB, in four sizes to an octave.
#include "devices/api/suballocator.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace telegrad {
namespace {

constexpr int64_t kLargestPiece = int64_t{1} << 20;

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

int64_t Suballocator::Charge(int64_t size) const {
  return RoundUp(std::max<int64_t>(size, 1), step_);
}

// In steps of 64: 64, 128, 192, 256, then 320, 384, 448, 512, 640, ...
int64_t Suballocator::PieceSize(int64_t size) const {
  const auto bytes = static_cast<uint64_t>(Charge(size));
  return RoundUp(static_cast<int64_t>(bytes),
                 std::max<int64_t>(step_, static_cast<int64_t>(std::bit_floor(bytes - 1) / 4)));
}

Suballocator::Span Suballocator::Take(int64_t size) {
  return size <= kLargestPiece ? TakePiece(PieceSize(size)) : TakeBlocks(RoundUp(size, kBlock));
}

void Suballocator::Return(int64_t offset, int64_t size) {
  if (size <= kLargestPiece) {
    ReturnPiece(offset);
  } else {
    ReturnBlocks(offset, RoundUp(size, kBlock));
  }
}

void Suballocator::LowerTop() {
  if (free_.empty()) return;
  const auto [last, length] = *free_.rbegin();
  if (last + length != top_) return;
  RemoveFree(last, length);
  top_ = last;
}

void Suballocator::AddFree(int64_t offset, int64_t bytes) {
  free_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

void Suballocator::RemoveFree(int64_t offset, int64_t bytes) {
  free_.erase(offset);
  by_size_.erase({bytes, offset});
}

Suballocator::Span Suballocator::TakeBlocks(int64_t bytes) {
  if (const auto fit = by_size_.lower_bound({bytes, 0}); fit != by_size_.end()) {
    const auto [found, offset] = *fit;
    RemoveFree(offset, found);
    if (found > bytes) AddFree(offset + bytes, found - bytes);
    return {offset, bytes};
  }
  // From the untouched end, together with what is free just before it.
  int64_t offset = top_;
  if (!free_.empty()) {
    const auto [last, length] = *free_.rbegin();
    if (last + length == top_) offset = last;
  }
  if (bytes > capacity_ - offset) return {};
  const int64_t dirty = top_ - offset;
  if (dirty > 0) RemoveFree(offset, dirty);
  top_ = offset + bytes;
  return {offset, dirty};
}

void Suballocator::ReturnBlocks(int64_t offset, int64_t bytes) {
  const auto after = free_.find(offset + bytes);
  if (after != free_.end()) {
    const auto [next, length] = *after;
    RemoveFree(next, length);
    bytes += length;
  }
  auto before = free_.lower_bound(offset);
  if (before != free_.begin() && std::prev(before)->first + std::prev(before)->second == offset) {
    const auto [previous, length] = *std::prev(before);
    RemoveFree(previous, length);
    offset = previous;
    bytes += length;
  }
  AddFree(offset, bytes);
}

Suballocator::Span Suballocator::TakePiece(int64_t piece) {
  std::set<int64_t>& candidates = with_space_[piece];
  if (candidates.empty()) {
    const Span block = TakeBlocks(kBlock);
    if (block.offset < 0) return {};
    const int64_t index = block.offset / kBlock;
    if (index >= static_cast<int64_t>(slabs_.size())) slabs_.resize(index + 1);
    slabs_[index] = Slab{.piece = piece, .dirty = block.dirty, .free = {}};
    candidates.insert(index);
  }
  const int64_t index = *candidates.begin();
  Slab& slab = slabs_[index];
  Span span{index * kBlock, piece};
  if (!slab.free.empty()) {
    span.offset += slab.free.back();
    slab.free.pop_back();
  } else {
    span.offset += slab.untouched;
    span.dirty = std::clamp<int64_t>(slab.dirty - slab.untouched, 0, piece);
    slab.untouched += piece;
  }
  ++slab.live;
  if (slab.free.empty() && slab.untouched + piece > kBlock) candidates.erase(index);
  return span;
}

void Suballocator::ReturnPiece(int64_t offset) {
  const int64_t index = offset / kBlock;
  Slab& slab = slabs_[index];
  std::set<int64_t>& candidates = with_space_[slab.piece];
  if (--slab.live == 0) {
    candidates.erase(index);
    slab = Slab{};
    ReturnBlocks(index * kBlock, kBlock);
    return;
  }
  slab.free.push_back(offset - index * kBlock);
  candidates.insert(index);
}

}  // namespace telegrad
