#include "engine/reference/program_shadow.h"

#include <algorithm>

#include "engine/base/status.h"

namespace telegrad::reference::internal {
namespace {

constexpr int64_t kMaxCells = int64_t{1} << 23;

}  // namespace

absl::Status Shadow::Start(const Code& code) {
  int64_t total = 0;
  memories_.resize(code.memories.size());
  for (size_t m = 0; m < code.memories.size(); ++m) {
    const Memory& memory = code.memories[m];
    if (memory.kind == Memory::Kind::kRegister || memory.kind == Memory::Kind::kPhases) continue;
    const int64_t per_byte = IsPacked(memory.dtype) ? 8 / Info(memory.dtype).bits : 1;
    const int64_t cells = (memory.elements + per_byte - 1) / per_byte;
    total += cells;
    if (total > kMaxCells) {
      return ResourceExhausted("program ", code.program->name, " has more than ", kMaxCells,
                               " elements of memory to watch for races");
    }
    memories_[m] = {per_byte, std::vector<Cell>(static_cast<size_t>(cells))};
  }
  return absl::OkStatus();
}

void Shadow::StartGroup(const Code& code, uint32_t group) {
  group_ = group;
  operations_.clear();
  readers_.clear();
  for (size_t m = 0; m < memories_.size(); ++m) {
    std::vector<Cell>& cells = memories_[m].cells;
    if (code.memories[m].kind == Memory::Kind::kLocal) {
      std::ranges::fill(cells, Cell{});
    } else {
      for (Cell& cell : cells) cell.readers = 0;
    }
  }
}

uint32_t Shadow::AddOperation(size_t parts) {
  operations_.emplace_back(parts);
  return static_cast<uint32_t>(operations_.size() - 1);
}

bool Shadow::Ordered(const Access& earlier, const Access& me, const VectorClock& clock) const {
  if (!earlier.is_operation()) return clock[earlier.agent] >= earlier.clock;
  if (earlier.agent == me.agent) return true;
  return std::ranges::all_of(operations_[earlier.operation()], [&](const Completion& c) {
    return c.agent != Access::kNone && clock[c.agent] >= c.clock;
  });
}

Conflict Shadow::Describe(const Access& with, bool write) const {
  Conflict conflict{.with = with, .write = write};
  if (with.is_operation()) {
    conflict.under_way =
        std::ranges::any_of(operations_[with.operation()],
                            [](const Completion& c) { return c.agent == Access::kNone; });
  }
  return conflict;
}

std::optional<Conflict> Shadow::ConflictWithWrite(const Cell& cell, const Access& me,
                                                  const VectorClock& clock) const {
  if (!cell.write.exists()) return std::nullopt;
  if (cell.write_group != group_) {
    return Conflict{.with = cell.write, .write = true, .group = cell.write_group};
  }
  if (Ordered(cell.write, me, clock)) return std::nullopt;
  return Describe(cell.write, true);
}

void Shadow::LeavePast(Cell* cell) const {
  if (cell->read_group == group_ || !cell->read.exists()) return;
  cell->past_group = cell->read_group;
  cell->past_position = cell->read.position;
  cell->read = {};
}

std::optional<Conflict> Shadow::Read(uint32_t memory, int64_t element, Access me,
                                     const VectorClock& clock) {
  Cell& cell = At(memory, element);
  if (const auto conflict = ConflictWithWrite(cell, me, clock)) return conflict;
  LeavePast(&cell);
  cell.read_group = group_;
  if (cell.readers != 0) {
    std::vector<Access>& list = readers_[cell.readers - 1];
    std::erase_if(list, [&](const Access& r) { return Ordered(r, me, clock); });
    list.push_back(me);
    cell.read = me;
  } else if (cell.read.exists() && !Ordered(cell.read, me, clock)) {
    readers_.push_back({cell.read, me});
    cell.readers = static_cast<uint32_t>(readers_.size());
  } else {
    cell.read = me;
  }
  return std::nullopt;
}

std::optional<Conflict> Shadow::Write(uint32_t memory, int64_t element, Access me,
                                      const VectorClock& clock) {
  Cell& cell = At(memory, element);
  if (const auto conflict = ConflictWithWrite(cell, me, clock)) return conflict;
  LeavePast(&cell);
  if (cell.past_group != Access::kNone && cell.past_group != group_) {
    return Conflict{.with = {.agent = 0, .position = cell.past_position}, .group = cell.past_group};
  }
  if (cell.readers != 0) {
    std::vector<Access>& list = readers_[cell.readers - 1];
    for (const Access& r : list) {
      if (!Ordered(r, me, clock)) return Describe(r, false);
    }
    list.clear();
  } else if (cell.read.exists() && !Ordered(cell.read, me, clock)) {
    return Describe(cell.read, false);
  }
  cell.read = {};
  cell.write = me;
  cell.write_group = group_;
  return std::nullopt;
}

}  // namespace telegrad::reference::internal
