// The address space, and the host: rings, pushbuffers, semaphores.
#include "tests/fakes/nv/fake_gpu.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "tests/fakes/nv/bits.h"

namespace telegrad::fakes {
namespace {

constexpr uint32_t kCopy = 0xC8B5;

}  // namespace

const FakeGpu::Range* FakeGpu::RangeAt(uint64_t address, uint64_t bytes, uint64_t* offset) const {
  auto it = ranges.upper_bound(address);
  if (it == ranges.begin()) return nullptr;
  --it;
  const auto& [base, range] = *it;
  *offset = address - base;
  if (!range.memory || *offset > range.bytes || bytes > range.bytes - *offset) return nullptr;
  return &range;
}

std::byte* FakeGpu::At(uint64_t address, uint64_t bytes) {
  uint64_t offset = 0;
  const Range* range = RangeAt(address, bytes, &offset);
  if (range == nullptr) return nullptr;
  range->memory->Refresh(offset, bytes, doorbells_);
  return range->memory->data + offset;
}

fakecuda::MemoryView FakeGpu::View() const {
  fakecuda::MemoryView view;
  for (const auto& [base, range] : ranges) {
    if (!range.memory) continue;
    view.push_back({.base = base,
                    .bytes = range.bytes,
                    .host = reinterpret_cast<uint8_t*>(range.memory->data),
                    .keep = nullptr});
  }
  return view;
}

std::string FakeGpu::Finish(std::vector<FakeChannel::Effect>& work) {
  std::shuffle(work.begin(), work.end(), random_);
  std::string error;
  while (error.empty() && !work.empty()) {
    const FakeChannel::Effect one = std::move(work.back());
    work.pop_back();
    error = one();
  }
  return error;
}

void FakeGpu::Flush(FakeChannel& channel) {
  for (const FakeChannel::Pending& pending : channel.pending) {
    std::memcpy(pending.memory->data + pending.offset, pending.bytes.data(), pending.bytes.size());
  }
  channel.pending.clear();
}

// Whether the ring is at its end. What the channel had begun then ends some time by itself.
bool FakeGpu::Idle(FakeChannel& channel) {
  if (channel.left > 0 || channel.at < channel.push.size()) return false;
  std::byte* const userd = channel.userd->data + channel.userd_offset;
  channel.userd->Refresh(channel.userd_offset, 512, doorbells_);
  uint32_t get, put;
  std::memcpy(&get, userd + 0x88, 4);  // Nvc86fControl.GPGet
  std::memcpy(&put, userd + 0x8C, 4);  // Nvc86fControl.GPPut
  return get == put;
}

bool FakeGpu::Step(FakeChannel& channel, size_t words) {
  // Without a doorbell the GPU does not look at the ring at all.
  if (!channel.scheduled || !channel.bound || channel.dead || !channel.rung) return false;
  // Now and then a channel stands still behind what it released: what the host then makes of it
  // must leave alone all that the channel has not passed.
  if (channel.rest > 0) return --channel.rest, true;
  std::byte* const userd = channel.userd->data + channel.userd_offset;
  std::string error;
  bool did = false;
  for (size_t i = 0; error.empty() && i < words; ++i) {
    if (Idle(channel)) {
      did |= !channel.kernels.empty() || !channel.copies.empty();
      error = Finish(channel.kernels);
      if (error.empty()) error = Finish(channel.copies);
      break;
    }
    if (channel.left == 0 && channel.at == channel.push.size()) {
      uint32_t get, put;
      std::memcpy(&get, userd + 0x88, 4);
      std::memcpy(&put, userd + 0x8C, 4);
      if (put >= channel.entries) {
        error = Wrong("GPPut beyond the ring", put);
        break;
      }
      most_in_ring = std::max<size_t>(most_in_ring, (put - get) % channel.entries);
      const std::byte* slot = At(channel.ring + uint64_t{get} * 8, 8);
      uint64_t entry = 0;
      if (slot) std::memcpy(&entry, slot, 8);
      error = slot ? Fetch(channel, entry) : Wrong("the ring is not mapped", channel.ring);
      get = (get + 1) % channel.entries;
      std::memcpy(userd + 0x88, &get, 4);
      did = true;
      continue;
    }
    bool stops = false;
    const int before = releases;
    error = Advance(channel, &stops);
    if (stops) break;
    did = true;
    if (releases > before && random_() % 8 == 0) {
      channel.rest = random_() % 64;
      break;
    }
  }
  if (error.empty()) return did;
  errors.push_back(error);
  const bool fault = error.find("not mapped") != std::string::npos;
  const uint32_t xid = fault ? 31 : 13;
  const uint16_t status = 0xFFFF;
  std::memcpy(channel.notifier->data + 8, &xid, 4);  // NvNotification.info32
  // NvNotification.status, which tells of the rest.
  __atomic_store_n(reinterpret_cast<uint16_t*>(channel.notifier->data + 14), status,
                   __ATOMIC_RELEASE);
  channel.dead = true;
  if (on_fault) on_fault(channel);
  return true;
}

std::string FakeGpu::Fetch(FakeChannel& channel, uint64_t entry) {
  const uint32_t low = static_cast<uint32_t>(entry), high = static_cast<uint32_t>(entry >> 32);
  const uint32_t words = Bits(high, 30, 10);
  if (Bits(low, 1, 0) != 0) return Wrong("GP_ENTRY0 with a condition", low);
  if (words == 0) return Wrong("a control entry", entry);
  if (Bits(high, 31, 31) != 0 || Bits(high, 8, 8) != 0) return Wrong("GP_ENTRY1 flags", high);
  const uint64_t address = Pair(Bits(high, 7, 0), low);
  const std::byte* at = At(address, uint64_t{words} * 4);
  if (!at) return Wrong("pushbuffer not mapped", address);
  channel.push.resize(words);
  std::memcpy(channel.push.data(), at, uint64_t{words} * 4);
  channel.at = 0;
  return "";
}

// One word of the entry: a header, or a value for a method.
std::string FakeGpu::Advance(FakeChannel& channel, bool* stops) {
  const uint32_t word = channel.push[channel.at];
  if (channel.left > 0) {
    std::string error = Method(channel, channel.subchannel, channel.method, word, stops);
    if (*stops) return "";
    ++channel.at;
    channel.method += 4;
    --channel.left;
    return error;
  }
  if (Bits(word, 31, 29) != 1) return Wrong("a method header that is not INC_METHOD", word);
  const uint32_t count = Bits(word, 28, 16);
  if (Bits(word, 12, 12) != 0 || count == 0) return Wrong("a method header", word);
  ++channel.at;
  if (count > channel.push.size() - channel.at) {
    return Wrong("a method runs over its pushbuffer", word);
  }
  channel.left = count;
  channel.subchannel = Bits(word, 15, 13);
  channel.method = Bits(word, 11, 0) << 2;
  return "";
}

std::string FakeGpu::Method(FakeChannel& channel, uint32_t subchannel, uint32_t method,
                            uint32_t value, bool* stops) {
  channel.registers[subchannel << 16 | method] = value;
  if (method == 0) {  // SET_OBJECT
    if (std::count(channel.engines.begin(), channel.engines.end(), value) == 0) {
      return Wrong("SET_OBJECT of a class that the channel has no object of", value);
    }
    if ((value == kCopy) != (subchannel == 4)) return Wrong("SET_OBJECT on subchannel", subchannel);
    channel.on[subchannel] = value;
    return "";
  }
  if (method < 0x100) return HostMethod(channel, subchannel, method, value, stops);
  const auto engine = channel.on.find(subchannel);
  if (engine == channel.on.end()) return Wrong("a method on a subchannel without object", method);
  if (engine->second != kCopy) return ComputeMethod(channel, subchannel, method, value);
  switch (method) {
    case 0x240:
    case 0x244:
    case 0x248:
    case 0x24C:  // SET_SEMAPHORE_A, _B, _PAYLOAD, _PAYLOAD_UPPER
    case 0x400:
    case 0x404:
    case 0x408:
    case 0x40C:  // OFFSET_IN, OFFSET_OUT
    case 0x418:  // LINE_LENGTH_IN
    case 0x700:  // SET_REMAP_CONST_A
    case 0x708:  // SET_REMAP_COMPONENTS
      return "";
    case 0x300:
      return LaunchCopy(channel, value);
    default:
      return Wrong("unknown method of the copy engine", method);
  }
}

std::string FakeGpu::HostMethod(FakeChannel& channel, uint32_t subchannel, uint32_t method,
                                uint32_t value, bool* stops) {
  const auto pushed = [&](uint32_t at) { return channel.registers[subchannel << 16 | at]; };
  switch (method) {
    case 0x5C:
    case 0x60:
    case 0x64:
    case 0x68:
      return "";  // SEM_ADDR_LO, _HI, SEM_PAYLOAD_LO, _HI
    case 0x6C: {  // SEM_EXECUTE
      if (Bits(pushed(0x60), 31, 25) != 0 || Bits(pushed(0x5C), 1, 0) != 0) return "SEM_ADDR";
      const uint64_t address = Pair(pushed(0x60), pushed(0x5C));
      const uint64_t payload = Pair(pushed(0x68), pushed(0x64));
      if (Bits(value, 24, 24) != 1) return Wrong("SEM_EXECUTE of 32 bits", value);
      if (Bits(value, 2, 0) == 2) {  // ACQ_STRICT_GEQ; others of the group must go on meanwhile
        if (value != (2u | 1u << 12 | 1u << 24)) return Wrong("SEM_EXECUTE", value);
        std::byte* at = address % 8 ? nullptr : At(address, 8);
        if (!at) return Wrong("semaphore not mapped or not aligned", address);
        *stops = __atomic_load_n(reinterpret_cast<uint64_t*>(at), __ATOMIC_ACQUIRE) < payload;
        ++(*stops ? blocked : acquires);
        return "";
      }
      if (Bits(value, 2, 0) != 1) return Wrong("SEM_EXECUTE that is no release", value);
      if (Bits(value, 20, 20) != 1) return "a release that does not wait for the engines";
      if (Bits(value, 25, 25) != 1 || value & ~0x03100001u) return Wrong("SEM_EXECUTE", value);
      std::string error = Finish(channel.kernels);
      if (error.empty()) error = Finish(channel.copies);
      if (!error.empty()) return error;
      Flush(channel);
      return Release(address, payload);
    }
    default:
      return Wrong("unknown method of the host", method);
  }
}

std::string FakeGpu::Release(uint64_t address, uint64_t value) {
  std::byte* at = address % 16 ? nullptr : At(address, 16);
  if (!at) return Wrong("semaphore not mapped or not aligned", address);
  time_ += 1000;
  __atomic_store_n(reinterpret_cast<uint64_t*>(at + 8), time_, __ATOMIC_RELAXED);
  __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
  ++releases;
  return "";
}

}  // namespace telegrad::fakes
