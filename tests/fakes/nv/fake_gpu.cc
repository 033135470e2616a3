#include "tests/fakes/nv/fake_gpu.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"

namespace telegrad::fakes {
namespace {

constexpr uint32_t kCompute = 0xCBC0, kCopy = 0xC8B5;

uint32_t Bits(uint32_t word, int high, int low) {
  return (word >> low) & (high - low == 31 ? ~0u : (1u << (high - low + 1)) - 1);
}

uint64_t Pair(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }

std::string Wrong(const char* what, uint64_t found) {
  return absl::StrFormat("%s: %#x", what, found);
}

}  // namespace

std::byte* FakeGpu::At(uint64_t address, uint64_t bytes) {
  auto it = ranges.upper_bound(address);
  if (it == ranges.begin()) return nullptr;
  --it;
  const auto& [base, range] = *it;
  if (!range.memory || address - base > range.bytes || bytes > range.bytes - (address - base)) {
    return nullptr;
  }
  return range.memory->data + (address - base);
}

void FakeGpu::Run(FakeChannel& channel) {
  if (!channel.scheduled || !channel.bound || channel.dead) return;
  std::byte* const userd = channel.userd->data + channel.userd_offset;
  uint32_t get, put;
  std::memcpy(&get, userd + 0x88, 4);  // Nvc86fControl.GPGet
  std::memcpy(&put, userd + 0x8C, 4);  // Nvc86fControl.GPPut
  std::string error;
  if (put >= channel.entries) error = Wrong("GPPut beyond the ring", put);
  while (error.empty() && get != put) {
    const std::byte* slot = At(channel.ring + get * 8, 8);
    uint64_t entry = 0;
    if (slot) std::memcpy(&entry, slot, 8);
    error = slot ? Fetch(channel, entry) : Wrong("the ring is not mapped", channel.ring);
    get = (get + 1) % channel.entries;
    std::memcpy(userd + 0x88, &get, 4);
  }
  if (error.empty()) return;
  channel.dead = true;
  errors.push_back(error);
  const bool fault = error.find("not mapped") != std::string::npos;
  const uint32_t xid = fault ? 31 : 13;
  const uint16_t status = 0xFFFF;
  std::memcpy(channel.notifier->data + 8, &xid, 4);      // NvNotification.info32
  std::memcpy(channel.notifier->data + 14, &status, 2);  // NvNotification.status
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
  std::vector<uint32_t> push(words);
  std::memcpy(push.data(), at, words * 4);
  for (size_t i = 0; i < push.size();) {
    const uint32_t header = push[i++];
    if (Bits(header, 31, 29) != 1) return Wrong("a method header that is not INC_METHOD", header);
    const uint32_t count = Bits(header, 28, 16), subchannel = Bits(header, 15, 13);
    const uint32_t method = Bits(header, 11, 0) << 2;
    if (Bits(header, 12, 12) != 0 || count == 0) return Wrong("a method header", header);
    if (count > push.size() - i) return Wrong("a method runs over its pushbuffer", header);
    for (uint32_t k = 0; k < count; ++k) {
      std::string error = Method(channel, subchannel, method + 4 * k, push[i++]);
      if (!error.empty()) return error;
    }
  }
  return "";
}

std::string FakeGpu::Method(FakeChannel& channel, uint32_t subchannel, uint32_t method,
                            uint32_t value) {
  channel.registers[subchannel << 16 | method] = value;
  if (method == 0) {  // SET_OBJECT
    if (std::count(channel.engines.begin(), channel.engines.end(), value) == 0) {
      return Wrong("SET_OBJECT of a class that the channel has no object of", value);
    }
    if ((value == kCopy) != (subchannel == 4)) return Wrong("SET_OBJECT on subchannel", subchannel);
    channel.on[subchannel] = value;
    return "";
  }
  if (method < 0x100) return HostMethod(channel, subchannel, method, value);
  const auto engine = channel.on.find(subchannel);
  if (engine == channel.on.end()) return Wrong("a method on a subchannel without object", method);
  const auto pushed = [&](uint32_t at) { return channel.registers[subchannel << 16 | at]; };
  if (engine->second == kCopy) {
    switch (method) {
      case 0x240:
      case 0x244:
      case 0x248:  // SET_SEMAPHORE_A, _B, _PAYLOAD
      case 0x400:
      case 0x404:
      case 0x408:
      case 0x40C:  // OFFSET_IN, OFFSET_OUT
      case 0x418:  // LINE_LENGTH_IN
        return "";
      case 0x300:
        return LaunchCopy(channel, value);
      default:
        return Wrong("unknown method of the copy engine", method);
    }
  }
  switch (method) {
    case 0x2A0:
    case 0x7B0:
      return Bits(value, 31, 17) ? Wrong("a window's address", value) : "";
    case 0x2A4:
    case 0x7B4:
      return value ? Wrong("a window that is not aligned to 4 GiB", value) : "";
    case 0x1698:
      return value & ~0x1011u ? Wrong("INVALIDATE_SHADER_CACHES_NO_WFI", value) : "";
    case 0x2B4:
      return "";  // SEND_PCAS_A
    case 0x2C0:   // SEND_SIGNALING_PCAS2_B
      if (value != 9) return Wrong("PCAS_ACTION", value);
      if (pushed(0x2A0) == 0 || pushed(0x7B0) == 0 || pushed(0x2A0) == pushed(0x7B0)) {
        return "a kernel without windows for shared and local memory";
      }
      for (const auto& [base, range] : ranges) {
        for (const uint64_t window :
             {uint64_t{pushed(0x2A0)} << 32, uint64_t{pushed(0x7B0)} << 32}) {
          if (base < window + (uint64_t{1} << 32) && window < base + range.bytes) {
            return Wrong("a window covers memory", base);
          }
        }
      }
      return LaunchGrid(uint64_t{pushed(0x2B4)} << 8);
    default:
      return Wrong("unknown method of the compute engine", method);
  }
}

std::string FakeGpu::HostMethod(FakeChannel& channel, uint32_t subchannel, uint32_t method,
                                uint32_t value) {
  const auto pushed = [&](uint32_t at) { return channel.registers[subchannel << 16 | at]; };
  switch (method) {
    case 0x5C:
    case 0x60:
    case 0x64:
    case 0x68:
      return "";  // SEM_ADDR_LO, _HI, SEM_PAYLOAD_LO, _HI
    case 0x6C: {  // SEM_EXECUTE
      if (Bits(value, 2, 0) != 1) return Wrong("SEM_EXECUTE that is no release", value);
      if (Bits(value, 20, 20) != 0) return "a release that does not wait for the engines";
      if (Bits(value, 24, 24) != 1 || Bits(value, 25, 25) != 1 || value & ~0x03000001u) {
        return Wrong("SEM_EXECUTE", value);
      }
      if (Bits(pushed(0x60), 31, 25) != 0 || Bits(pushed(0x5C), 1, 0) != 0) return "SEM_ADDR";
      return Release(Pair(pushed(0x60), pushed(0x5C)), Pair(pushed(0x68), pushed(0x64)));
    }
    default:
      return Wrong("unknown method of the host", method);
  }
}

std::string FakeGpu::Release(uint64_t address, uint64_t value) {
  std::byte* at = address % 16 ? nullptr : At(address, 16);
  if (!at) return Wrong("semaphore not mapped or not aligned", address);
  ++time_;
  std::memcpy(at + 8, &time_, 8);
  std::memcpy(at, &value, 8);
  ++releases;
  return "";
}

std::string FakeGpu::LaunchCopy(FakeChannel& channel, uint32_t launch) {
  const auto pushed = [&](uint32_t at) { return channel.registers[4 << 16 | at]; };
  const uint32_t transfer = Bits(launch, 1, 0), semaphore = Bits(launch, 4, 3);
  if (launch & ~0x0000019Fu) return Wrong("LAUNCH_DMA", launch);
  if (transfer != 0) {
    if (transfer != 2) return Wrong("DATA_TRANSFER_TYPE", transfer);
    if (Bits(launch, 7, 7) != 1 || Bits(launch, 8, 8) != 1) return "a copy that is not linear";
    const uint64_t bytes = pushed(0x418);
    const std::byte* from = At(Pair(pushed(0x400), pushed(0x404)), bytes);
    std::byte* to = At(Pair(pushed(0x408), pushed(0x40C)), bytes);
    if (!from || !to)
      return Wrong("a copy's memory is not mapped", Pair(pushed(0x400), pushed(0x404)));
    std::memmove(to, from, bytes);
    if (corrupt_copies) *to ^= std::byte{1};
    ++copies;
  }
  if (semaphore != 0) {
    if (semaphore != 2 || Bits(launch, 2, 2) != 1)
      return Wrong("SEMAPHORE_TYPE without flush", launch);
    return Release(Pair(pushed(0x240), pushed(0x244)), pushed(0x248));
  }
  return "";
}

std::string FakeGpu::LaunchGrid(uint64_t address) {
  const std::byte* at = At(address, 384);
  if (!at) return Wrong("QMD not mapped", address);
  uint32_t words[96];
  std::memcpy(words, at, sizeof(words));
  const auto field = [&](int high, int low) { return Bits(words[low / 32], high % 32, low % 32); };

  struct Check {
    const char* name;
    int high, low;
    uint32_t expected;
  };
  const Check checks[] = {
      {"QMD_MAJOR_VERSION", 583, 580, 4},
      {"QMD_MINOR_VERSION", 579, 576, 0},
      {"QMD_TYPE", 25, 23, 2},
      {"API_VISIBLE_CALL_LIMIT", 568, 568, 1},
      {"SASS_VERSION", 543, 536, 0x90},
      {"INVALIDATE_INSTRUCTION_CACHE", 606, 606, 1},
      {"INVALIDATE_SHADER_CONSTANT_CACHE", 607, 607, 1},
      {"GRID_WIDTH", 1055, 1024, 1},
      {"GRID_HEIGHT", 1071, 1056, 1},
      {"GRID_DEPTH", 1103, 1088, 1},
      {"CTA_THREAD_DIMENSION0", 1167, 1152, 1},
      {"CTA_THREAD_DIMENSION1", 1183, 1168, 1},
      {"CTA_THREAD_DIMENSION2", 1199, 1184, 1},
      {"REGISTER_COUNT", 1208, 1200, kernel.registers},
      {"CONSTANT_BUFFER_VALID(0)", 416, 416, 1},
      {"CWD_MEMBAR_TYPE", 1137, 1136, 1},
      {"RELEASE_ENABLE(0)", 320, 320, 1},
      {"RELEASE_STRUCTURE_SIZE(0)", 322, 321, 0},
      {"RELEASE_PAYLOAD64B(0)", 332, 332, 1},
      {"RELEASE_ENABLE(1)", 336, 336, 0},
      {"RELEASE_ENABLE(2)", 352, 352, 0},
      {"DEPENDENT_QMD_ENABLE(0)", 368, 368, 0},
      {"DEPENDENT_QMD_ENABLE(1)", 373, 373, 0},
      {"RELEASE_REDUCTION_ENABLE(0)", 324, 324, 0},
      {"SHADER_LOCAL_MEMORY_LOW_SIZE", 535, 512, 0},
      {"SHADER_LOCAL_MEMORY_HIGH_SIZE", 567, 544, 0},
  };
  for (const Check& check : checks) {
    const uint32_t found = field(check.high, check.low);
    if (found != check.expected) {
      return absl::StrFormat("QMD %s is %d where %d is expected", check.name, found,
                             check.expected);
    }
  }
  const uint32_t shared = field(601, 584), least = field(613, 608), most = field(619, 614);
  const uint32_t target = field(625, 620);
  if (shared < 1024 || shared % 128) return Wrong("QMD SHARED_MEMORY_SIZE", shared);
  // A configuration is its KiB / 4 + 1; Hopper has up to 228 KiB.
  if (least > target || target > most || most > 58 || (target - 1) * 4096 < shared) {
    return absl::StrFormat("QMD SM_CONFIG_SHARED_MEM_SIZE %d, %d, %d", least, target, most);
  }
  const uint64_t program = Pair(field(1272, 1248), field(1247, 1216));
  const size_t code_bytes = kernel.code.size() * 4;
  // Instructions are fetched ahead: a page behind the code must be there.
  const std::byte* code = program % 128 ? nullptr : At(program, code_bytes + 4096);
  if (!code) return Wrong("program not mapped or not aligned", program);
  if (std::memcmp(code, kernel.code.data(), code_bytes) != 0) return "a program that is not known";

  const uint64_t constants = Pair(field(1586, 1568), field(1567, 1536)) << 6;
  const size_t constant_bytes = field(1599, 1587) << 4;
  const std::byte* bank = At(constants, constant_bytes);
  if (!bank) return Wrong("constant bank not mapped", constants);
  if (std::string error = kernel.run(*this, bank, constant_bytes); !error.empty()) return error;
  ++kernels;
  return Release(Pair(field(696, 672), field(671, 640)), Pair(field(767, 736), field(735, 704)));
}

}  // namespace telegrad::fakes
