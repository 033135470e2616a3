// The check is made once for each run, for all of its kernels together. After sorting by position,
// only neighbours can overlap. A position is an address where the host has one, because two
// memories may wrap the same bytes, and otherwise an offset into an allocation.
#include "engine/execution/bindings.h"

#include <algorithm>
#include <tuple>

#include "absl/container/inlined_vector.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

struct Part {
  const Memory* memory;  // null: begin and end are addresses
  int64_t begin, end;
  size_t slot;
};

using Parts = absl::InlinedVector<Part, 16>;

absl::Status CheckOverlap(std::span<const SlotUse> slots, Parts& parts) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::tie(a.memory, a.begin) < std::tie(b.memory, b.begin);
  });
  // The part so far that reaches furthest, and the written one that does.
  const Part* furthest = nullptr;
  const Part* written = nullptr;
  for (const Part& p : parts) {
    for (const Part* before : {slots[p.slot].written ? furthest : nullptr, written}) {
      if (before != nullptr && before->memory == p.memory && before->end > p.begin) {
        return InvalidArgument("run: the buffers of slots ", before->slot, " and ", p.slot,
                               " overlap, and slot ",
                               slots[before->slot].written ? before->slot : p.slot, " is written");
      }
    }
    const auto further = [&](const Part* best) {
      return best == nullptr || best->memory != p.memory || p.end > best->end;
    };
    if (further(furthest)) furthest = &p;
    if (slots[p.slot].written && further(written)) written = &p;
  }
  return absl::OkStatus();
}

}  // namespace

int64_t BindingAlignment(const Target& target) { return target.align; }

absl::Status CheckBindings(std::span<const SlotUse> slots, std::span<const BufferView> bindings,
                           int64_t alignment) {
  if (bindings.size() < slots.size()) {
    return InvalidArgument("run: ", bindings.size(), " buffers for ", slots.size(), " slots");
  }
  Parts parts;
  for (size_t i = 0; i < slots.size(); ++i) {
    const SlotUse& slot = slots[i];
    if (!slot.used || slot.bytes == 0) continue;
    const BufferView& view = bindings[i];
    if (view.memory == nullptr) return InvalidArgument("run: slot ", i, " has no buffer");
    if (view.length < slot.bytes) {
      return InvalidArgument("run: the buffer of slot ", i, " has ", view.length,
                             " bytes, expected ", slot.bytes, " for ", Name(slot.dtype), " ",
                             ToString(slot.shape));
    }
    // Sizes are powers of two.
    const int64_t align = std::max(BytesOf(slot.dtype, 1), alignment);
    if (view.offset % align != 0) {
      return InvalidArgument("run: the buffer of slot ", i, " starts at byte ", view.offset,
                             ", expected a multiple of ", align);
    }
    if (slot.written && !view.memory->writable()) {
      return InvalidArgument("run: the buffer of slot ", i,
                             " is read-only, and the graph writes that slot");
    }
    const void* host = view.memory->host();
    const int64_t begin = view.offset + reinterpret_cast<intptr_t>(host);
    parts.push_back({host != nullptr ? nullptr : view.memory.get(), begin, begin + slot.bytes, i});
  }
  return CheckOverlap(slots, parts);
}

std::vector<BufferView> BindAll(std::span<const SlotUse> slots,
                                std::span<const BufferView> bindings) {
  BufferView empty;
  for (size_t i = 0; i < slots.size() && empty.memory == nullptr; ++i) {
    if (bindings[i].memory != nullptr) empty = {bindings[i].memory, bindings[i].offset, 0};
  }
  std::vector<BufferView> bound;
  bound.reserve(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    bound.push_back(slots[i].used && slots[i].bytes > 0 ? bindings[i] : empty);
  }
  return bound;
}

}  // namespace telegrad
