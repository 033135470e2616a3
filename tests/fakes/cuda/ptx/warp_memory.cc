// How a warp reaches memory: the windows of the generic address space, bounds, alignment, races,
// bytes of shared memory that nobody has written or that a cp.async still owns.
#include <algorithm>
#include <cstring>

#include "tests/fakes/cuda/ptx/banks.h"
#include "tests/fakes/cuda/ptx/workgroup.h"

namespace fakecuda {
namespace {

std::string Hex(uint64_t x) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (; x != 0 || text.empty(); x >>= 4) text.insert(text.begin(), kDigits[x & 15]);
  return "0x" + text;
}

const char* Verb(AccessKind kind) {
  return kind == AccessKind::kRead ? "read" : kind == AccessKind::kWrite ? "write" : "atomic";
}

std::string Describe(AccessKind kind, uint32_t bytes, const char* where, uint64_t address) {
  return std::string(Verb(kind)) + " of " + std::to_string(bytes) + " bytes of " + where +
         " memory at " + Hex(address);
}

}  // namespace

uint8_t* Warp::Access(const Instruction& i, int lane, Space space, uint64_t address, uint32_t bytes,
                      AccessKind kind) {
  if (address % bytes != 0) {
    Fail(FaultCode::kMisalignedAddress, i, lane,
         "misaligned " + Describe(kind, bytes, "", address));
    return nullptr;
  }
  if (space == Space::kGeneric) {
    if (address - kSharedWindow < kWindowBytes) {
      return Shared(i, lane, address - kSharedWindow, bytes, kind, Self(lane));
    }
    if (address - kLocalWindow < kWindowBytes) {
      space = Space::kLocal;
      address -= kLocalWindow;
    } else if (address - kParamWindow < kWindowBytes) {
      space = Space::kParam;
      address -= kParamWindow;
    }
  }
  switch (space) {
    case Space::kShared:
      return Shared(i, lane, address, bytes, kind, Self(lane));
    case Space::kLocal:
      if (address <= kernel_.local_bytes && bytes <= kernel_.local_bytes - address) {
        return Local(lane) + address;
      }
      Fail(FaultCode::kIllegalAddress, i, lane,
           Describe(kind, bytes, "local", address) + " is outside of it");
      return nullptr;
    case Space::kParam:
      // The parameters of the kernel; read only.
      if (kind == AccessKind::kRead && address <= kernel_.parameter_bytes &&
          bytes <= kernel_.parameter_bytes - address) {
        return const_cast<uint8_t*>(group_->launch().parameters) + address;
      }
      Fail(FaultCode::kIllegalAddress, i, lane,
           Describe(kind, bytes, "parameter", address) + " is not possible");
      return nullptr;
    default:
      return Global(i, lane, address, bytes, kind, Self(lane));
  }
}

uint8_t* Warp::Global(const Instruction& i, int lane, uint64_t address, uint32_t bytes,
                      AccessKind kind, const Accessor& who) {
  Launch& launch = group_->launch();
  const MemoryView& view = *launch.memory;
  size_t at = last_region_;
  if (at >= view.size() || address - view[at].base >= view[at].bytes ||
      bytes > view[at].bytes - (address - view[at].base)) {
    const int found = FindRegion(view, address, bytes);
    if (found < 0) {
      Fail(FaultCode::kIllegalAddress, i, lane,
           Describe(kind, bytes, "global", address) + " is outside of every allocation");
      return nullptr;
    }
    at = static_cast<size_t>(found);
    last_region_ = at;
  }
  const Region& region = view[at];
  if (launch.shadows[at] == nullptr) {
    launch.shadows[at] = std::make_unique<Shadow>(region.bytes);
  }
  std::string conflict;
  if (!launch.shadows[at]->Access(address - region.base, bytes, kind, who, &conflict)) {
    Fail(FaultCode::kLaunchFailed, i, lane,
         "race: " + Describe(kind, bytes, "global", address) + ", which " + conflict);
    return nullptr;
  }
  return region.host + (address - region.base);
}

uint8_t* Warp::Shared(const Instruction& i, int lane, uint64_t address, uint32_t bytes,
                      AccessKind kind, const Accessor& who) {
  const uint64_t size = group_->shared_bytes();
  if (address < kSharedBegin || address - kSharedBegin > size ||
      bytes > size - (address - kSharedBegin)) {
    Fail(FaultCode::kIllegalAddress, i, lane,
         Describe(kind, bytes, "shared", address) + " is outside of the workgroup's " +
             std::to_string(size) + " bytes from " + Hex(kSharedBegin));
    return nullptr;
  }
  const uint64_t offset = address - kSharedBegin;
  uint8_t* state = group_->state(offset);
  for (uint32_t b = 0; b < bytes; ++b) {
    const char* wrong = nullptr;
    if (state[b] == Workgroup::kPending) wrong = " that a cp.async in flight writes";
    if (state[b] == Workgroup::kBarrierByte) wrong = " that hold an mbarrier";
    if (state[b] == Workgroup::kUnwritten && kind != AccessKind::kWrite) {
      wrong = " that nobody has written";
    }
    if (wrong != nullptr) {
      Fail(FaultCode::kLaunchFailed, i, lane, Describe(kind, bytes, "shared", address) + wrong);
      return nullptr;
    }
  }
  std::string conflict;
  if (!group_->shared_shadow().Access(offset, bytes, kind, who, &conflict)) {
    Fail(FaultCode::kLaunchFailed, i, lane,
         "race: " + Describe(kind, bytes, "shared", address) + ", which " + conflict);
    return nullptr;
  }
  if (kind != AccessKind::kRead) {
    std::memset(state, Workgroup::kWritten, bytes);
    std::memset(group_->writer(offset), who.warp, bytes);
  }
  return group_->shared(offset);
}

// A lane of kCopier for each copy, so that none is taken for the one before.
Accessor Warp::CopierOf(const Clocks& clocks) {
  constexpr uint32_t kCopierLanes = 128;
  return {.clocks = &clocks, .warp = kCopier, .lane = static_cast<int>(clocks.own % kCopierLanes)};
}

const uint8_t* Warp::ReadByCopier(const Instruction& i, int lane, uint64_t address, uint32_t bytes,
                                  const Clocks& copier) {
  return Global(i, lane, address, bytes, AccessKind::kRead, CopierOf(copier));
}

bool Warp::WriteByCopier(const Instruction& i, int lane, uint64_t address, uint32_t bytes,
                         const Clocks& copier) {
  if (Shared(i, lane, address, bytes, AccessKind::kWrite, CopierOf(copier)) == nullptr) {
    return false;
  }
  std::memset(group_->state(address - kSharedBegin), Workgroup::kPending, bytes);
  return true;
}

uint8_t* Warp::WriteGlobalByCopier(const Instruction& i, int lane, uint64_t address, uint32_t bytes,
                                   const Clocks& copier) {
  return Global(i, lane, address, bytes, AccessKind::kWrite, CopierOf(copier));
}

bool Warp::ReadSharedByCopier(const Instruction& i, int lane, uint64_t address, uint32_t bytes,
                              const Clocks& copier) {
  if (Shared(i, lane, address, bytes, AccessKind::kRead, CopierOf(copier)) == nullptr) return false;
  const uint8_t* const state = group_->state(address - kSharedBegin);
  if (std::all_of(state, state + bytes, [](uint8_t s) { return s == Workgroup::kVisible; })) {
    return true;
  }
  Fail(FaultCode::kLaunchFailed, i, lane,
       "shared memory that no fence has made visible to bulk copies");
  return false;
}

void Warp::CountShared(const uint64_t* addresses, int64_t offset, uint32_t lanes, uint32_t bytes,
                       bool store) {
  LaunchCounts& counts = group_->launch().counts;
  (store ? counts.store_conflicts : counts.load_conflicts) +=
      BankConflicts(addresses, offset, lanes, bytes);
}

void Warp::CountGlobal(const uint64_t* addresses, int64_t offset, uint32_t lanes, uint32_t bytes) {
  LaunchCounts& counts = group_->launch().counts;
  counts.global_bytes += uint64_t{bytes} * static_cast<uint64_t>(std::popcount(lanes));
  counts.global_sectors += Sectors(addresses, offset, lanes, bytes);
}

bool Warp::BeginAsync(const Instruction& i, int lane, const AsyncCopy& copy) {
  if (Access(i, lane, Space::kShared, copy.to, copy.bytes, AccessKind::kWrite) == nullptr) {
    return false;
  }
  if (copy.source_bytes > 0) {
    if (copy.from % copy.bytes != 0) {
      Fail(FaultCode::kMisalignedAddress, i, lane,
           "misaligned " + Describe(AccessKind::kRead, copy.bytes, "global", copy.from));
      return false;
    }
    if (Global(i, lane, copy.from, copy.source_bytes, AccessKind::kRead, Self(lane)) == nullptr)
      return false;
  }
  std::memset(group_->state(copy.to - kSharedBegin), Workgroup::kPending, copy.bytes);
  open_[static_cast<size_t>(lane)].push_back(copy);
  return true;
}

void Warp::CommitAsync(int lane) {
  auto& open = open_[static_cast<size_t>(lane)];
  committed_[static_cast<size_t>(lane)].push_back(std::move(open));
  open.clear();
}

void Warp::WaitAsync(const Instruction& i, int lane, size_t pending, bool all) {
  auto& groups = committed_[static_cast<size_t>(lane)];
  const size_t complete = groups.size() - std::min(pending, groups.size());
  for (size_t g = 0; g < complete; ++g) {
    for (const AsyncCopy& copy : groups[g]) Complete(i, lane, copy);
  }
  groups.erase(groups.begin(), groups.begin() + static_cast<int64_t>(complete));
  if (!all) return;
  for (const AsyncCopy& copy : open_[static_cast<size_t>(lane)]) Complete(i, lane, copy);
  open_[static_cast<size_t>(lane)].clear();
}

// The copy may have read its source at any time until now, and is written now.
void Warp::Complete(const Instruction& i, int lane, const AsyncCopy& copy) {
  if (failed()) return;
  std::array<uint8_t, 16> bytes = {};
  if (copy.source_bytes > 0) {
    const uint8_t* from =
        Global(i, lane, copy.from, copy.source_bytes, AccessKind::kRead, Self(lane));
    if (from == nullptr) return;
    std::memcpy(bytes.data(), from, copy.source_bytes);
  }
  std::memset(group_->state(copy.to - kSharedBegin), Workgroup::kUnwritten, copy.bytes);
  uint8_t* to = Shared(i, lane, copy.to, copy.bytes, AccessKind::kWrite, Self(lane));
  if (to != nullptr) std::memcpy(to, bytes.data(), copy.bytes);
}

}  // namespace fakecuda
