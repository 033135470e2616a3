// The engines behind the host: copies and fills, and kernels by their queue meta data.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "tests/fakes/nv/bits.h"
#include "tests/fakes/nv/fake_gpu.h"

namespace telegrad::fakes {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{1} << 32;
constexpr uint64_t kTpcs = 72;  // that the architecture may have, with a stack for each of them

}  // namespace

std::string FakeGpu::LaunchCopy(FakeChannel& channel, uint32_t launch) {
  const auto pushed = [&](uint32_t at) { return channel.registers[4 << 16 | at]; };
  const uint32_t transfer = Bits(launch, 1, 0), semaphore = Bits(launch, 4, 3);
  if (launch & ~0x0800059Fu) return Wrong("LAUNCH_DMA", launch);
  if (transfer != 0) {
    if (transfer != 2) return Wrong("DATA_TRANSFER_TYPE", transfer);
    if (Bits(launch, 7, 7) != 1 || Bits(launch, 8, 8) != 1) return "a copy that is not linear";
    if (semaphore != 0) return "a transfer with a semaphore";
    const bool remap = Bits(launch, 10, 10) == 1;
    const uint32_t components = remap ? pushed(0x708) : 0, constant = pushed(0x700);
    // DST_X from the constant, one component of one byte or of four.
    if (remap && components != 4 && components != (4u | 3u << 16)) {
      return Wrong("SET_REMAP_COMPONENTS", components);
    }
    const uint64_t from = Pair(pushed(0x400), pushed(0x404));
    const uint64_t to = Pair(pushed(0x408), pushed(0x40C)), bytes = pushed(0x418);
    if (bytes == 0) return "a copy of nothing";
    // Not pipelined: it begins when those before it have ended.
    std::string error = Finish(channel.copies);
    if (!error.empty()) return error;
    channel.copies.push_back([this, &channel, to, from, bytes, components, constant] {
      return Transfer(channel, to, from, bytes, components, constant);
    });
  }
  if (semaphore != 0) {
    if (semaphore != 2 || Bits(launch, 2, 2) != 1) {
      return Wrong("SEMAPHORE_TYPE without flush", launch);
    }
    std::string error = Finish(channel.copies);
    if (!error.empty()) return error;
    Flush(channel);
    const uint32_t high = Bits(launch, 27, 27) == 1 ? pushed(0x24C) : 0;
    return Release(Pair(pushed(0x240), pushed(0x244)), Pair(high, pushed(0x248)));
  }
  return "";
}

std::string FakeGpu::Transfer(FakeChannel& channel, uint64_t to, uint64_t from, uint64_t bytes,
                              uint32_t components, uint32_t constant) {
  const bool constants = components != 0;
  const uint64_t size = Bits(components, 17, 16) + 1;
  uint64_t offset = 0;
  const uint64_t length = constants ? bytes * size : bytes;
  const Range* const target = RangeAt(to, length, &offset);
  const std::byte* const source = constants ? nullptr : At(from, length);
  if (target == nullptr || (!constants && source == nullptr)) {
    return Wrong("a copy's memory is not mapped", target == nullptr ? to : from);
  }
  if (Fault()) return "a copy that the test had fail";
  std::vector<std::byte> moved(length);
  if (constants) {
    if (to % size != 0) return Wrong("a fill that is not aligned", to);
    for (uint64_t i = 0; i < length; ++i) {
      moved[i] = static_cast<std::byte>(constant >> 8 * (i % size));
    }
    ++fills;
  } else {
    std::memcpy(moved.data(), source, length);
    // What this channel wrote to the host's memory before is on its way there, and read from there.
    for (const FakeChannel::Pending& pending : channel.pending) {
      const std::byte* const at = pending.memory->data + pending.offset;
      for (size_t i = 0; i < pending.bytes.size(); ++i) {
        if (at + i >= source && at + i < source + length) moved[at + i - source] = pending.bytes[i];
      }
    }
    if (corrupt_copies) moved[0] ^= std::byte{1};
    ++copies;
  }
  if (target->memory->is_host) {
    channel.pending.push_back({target->memory, offset, std::move(moved)});
    return "";
  }
  target->memory->Refresh(offset, length, doorbells_);
  std::memcpy(target->memory->data + offset, moved.data(), length);
  return "";
}

std::string FakeGpu::ComputeMethod(FakeChannel& channel, uint32_t subchannel, uint32_t method,
                                   uint32_t value) {
  const auto pushed = [&](uint32_t at) { return channel.registers[subchannel << 16 | at]; };
  switch (method) {
    case 0x2A0:
    case 0x7B0:
      return Bits(value, 31, 17) ? Wrong("a window's address", value) : "";
    case 0x2A4:
    case 0x7B4:
      return value ? Wrong("a window that is not aligned to 4 GiB", value) : "";
    case 0x790:
    case 0x794:  // SET_SHADER_LOCAL_MEMORY_A, _B
    case 0x2E4:
    case 0x2E8:  // SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, _B
      return channel.kernels.empty() ? "" : "local memory that is changed under a kernel";
    case 0x2EC:
      return value == 0xFF ? "" : Wrong("SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C", value);
    case 0x1698:
      return value & ~0x1011u ? Wrong("INVALIDATE_SHADER_CACHES_NO_WFI", value) : "";
    case 0x2B4:
      return "";  // SEND_PCAS_A
    case 0x2C0:   // SEND_SIGNALING_PCAS2_B
      if (value != 9) return Wrong("PCAS_ACTION", value);
      if (std::string error = CheckWindows(channel); !error.empty()) return error;
      return LaunchGrid(channel, uint64_t{pushed(0x2B4)} << 8);
    default:
      return Wrong("unknown method of the compute engine", method);
  }
}

std::string FakeGpu::CheckWindows(const FakeChannel& channel) const {
  const auto pushed = [&](uint32_t at) {
    const auto it = channel.registers.find(1 << 16 | at);
    return it == channel.registers.end() ? 0 : it->second;
  };
  if (pushed(0x2A0) == 0 || pushed(0x7B0) == 0 || pushed(0x2A0) == pushed(0x7B0)) {
    return "a kernel without windows for shared and local memory";
  }
  for (const auto& [base, range] : ranges) {
    for (const uint64_t window : {uint64_t{pushed(0x2A0)} << 32, uint64_t{pushed(0x7B0)} << 32}) {
      if (base < window + kWindowBytes && window < base + range.bytes) {
        return Wrong("a window covers memory", base);
      }
    }
  }
  return "";
}

// Queue meta data of version 4.0, by the bits of clcbc0qmd.h.
class QmdRun {
 public:
  QmdRun(FakeGpu& gpu, FakeChannel& channel, const std::byte* at) : gpu_(gpu), channel_(channel) {
    std::memcpy(words_, at, sizeof(words_));
  }

  std::string Check() const {
    struct Row {
      const char* name;
      int high, low;
      uint32_t expected;
    };
    constexpr Row kRows[] = {
        {"QMD_MAJOR_VERSION", 583, 580, 4},
        {"QMD_MINOR_VERSION", 579, 576, 0},
        {"QMD_TYPE", 25, 23, 2},
        {"API_VISIBLE_CALL_LIMIT", 568, 568, 1},
        {"SASS_VERSION", 543, 536, 0x90},
        {"INVALIDATE_SHADER_DATA_CACHE", 605, 605, 1},
        {"INVALIDATE_INSTRUCTION_CACHE", 606, 606, 1},
        {"INVALIDATE_SHADER_CONSTANT_CACHE", 607, 607, 1},
        {"CONSTANT_BUFFER_VALID(0)", 416, 416, 1},
        {"CONSTANT_BUFFER_INVALIDATE(0)", 419, 419, 1},
        {"CWD_MEMBAR_TYPE", 1137, 1136, 1},
        {"RELEASE_ENABLE(1)", 336, 336, 0},
        {"RELEASE_ENABLE(2)", 352, 352, 0},
        {"DEPENDENT_QMD_ENABLE(0)", 368, 368, 0},
        {"DEPENDENT_QMD_ENABLE(1)", 373, 373, 0},
        {"RELEASE_REDUCTION_ENABLE(0)", 324, 324, 0},
        {"SHADER_LOCAL_MEMORY_LOW_SIZE", 535, 512, 0},
    };
    for (const Row& row : kRows) {
      const uint32_t found = Field(row.high, row.low);
      if (found != row.expected) {
        return absl::StrFormat("QMD %s is %d where %d is expected", row.name, found, row.expected);
      }
    }
    const uint32_t groups = Field(1055, 1024), threads = Field(1167, 1152);
    if (groups == 0 || groups > INT32_MAX || threads == 0 || threads > 1024) {
      return absl::StrFormat("QMD with a grid of %d workgroups of %d threads", groups, threads);
    }
    const uint32_t barriers = Field(1215, 1211);
    if (barriers < 1 || barriers > 16) return Wrong("QMD BARRIER_COUNT", barriers);
    const uint32_t shared = Field(601, 584), least = Field(613, 608), most = Field(619, 614);
    const uint32_t target = Field(625, 620);
    if (shared < 1024 || shared % 128) return Wrong("QMD SHARED_MEMORY_SIZE", shared);
    // A configuration is its KiB / 4 + 1; Hopper has up to 228 KiB.
    if (least > target || target > most || most > 58 || (target - 1) * 4096 < shared) {
      return absl::StrFormat("QMD SM_CONFIG_SHARED_MEM_SIZE %d, %d, %d", least, target, most);
    }
    if (Field(320, 320) == 1 && (Field(322, 321) != 0 || Field(332, 332) != 1)) {
      return "QMD with a release that is not of four words and 64 bits";
    }
    return CheckStacks();
  }

  // When the engine runs it: code and constants are read then.
  std::string Run() {
    if (gpu_.Fault()) return "a kernel that the test had fail";
    const uint64_t program = Pair(Field(1272, 1248), Field(1247, 1216));
    const uint64_t constants = Pair(Field(1586, 1568), Field(1567, 1536)) << 6;
    const size_t constant_bytes = Field(1599, 1587) << 4;
    const std::byte* bank = gpu_.At(constants, constant_bytes);
    if (!bank) return Wrong("constant bank not mapped", constants);
    std::string error = RunCode(program, bank, constant_bytes);
    if (!error.empty()) return error;
    ++gpu_.kernels;
    if (Field(320, 320) == 0) return "";
    gpu_.Flush(channel_);
    return gpu_.Release(Pair(Field(696, 672), Field(671, 640)),
                        Pair(Field(767, 736), Field(735, 704)));
  }

 private:
  uint32_t Field(int high, int low) const { return Bits(words_[low / 32], high % 32, low % 32); }

  std::string CheckStacks() const {
    const uint64_t stack = Field(567, 544);
    if (stack == 0) return "";
    const auto pushed = [&](uint32_t at) { return channel_.registers[1 << 16 | at]; };
    const uint64_t part = Pair(pushed(0x2E4), pushed(0x2E8));
    // 64 warps of 32 threads on each of the two processors of a TPC.
    if (stack % 16 != 0 || part < stack * 32 * 64 * 2 || part % 32768 != 0) {
      return absl::StrFormat("QMD with %d bytes of local memory for each thread and %d of a TPC",
                             stack, part);
    }
    const uint64_t address = Pair(pushed(0x790), pushed(0x794));
    return gpu_.At(address, part * kTpcs) ? "" : Wrong("local memory not mapped", address);
  }

  std::string RunCode(uint64_t program, const std::byte* bank, size_t bank_bytes) {
    // Instructions are fetched ahead: a page behind the code must be there.
    constexpr size_t kAhead = 4096;
    const std::byte* code = program % 128 ? nullptr : gpu_.At(program, kAhead);
    if (!code) return Wrong("program not mapped or not aligned", program);
    const FakeKernel& known = gpu_.kernel;
    const size_t known_bytes = known.code.size() * 4;
    if (known_bytes > 0 && std::memcmp(code, known.code.data(), known_bytes) == 0) {
      if (Field(1208, 1200) != known.registers) {
        return absl::StrFormat("QMD REGISTER_COUNT is %d where %d is expected", Field(1208, 1200),
                               known.registers);
      }
      return known.run(gpu_, bank, bank_bytes);
    }
    PtxCodeHead head;
    std::memcpy(&head, code, sizeof(head));
    if (head.magic != PtxCodeHead::kMagic) return "a program that is not known";
    code = gpu_.At(program, head.bytes + kAhead);
    if (!code) return Wrong("program not mapped to its end", program);
    if (Field(1208, 1200) != head.registers) {
      return absl::StrFormat("QMD REGISTER_COUNT is %d where %d is expected", Field(1208, 1200),
                             head.registers);
    }
    PtxTwins::Grid grid;
    grid.code = code;
    const auto size = [](uint64_t x, uint64_t y, uint64_t z) {
      return std::array{static_cast<uint32_t>(x), static_cast<uint32_t>(y),
                        static_cast<uint32_t>(z)};
    };
    grid.shape.grid = size(Field(1055, 1024), Field(1071, 1056), Field(1103, 1088));
    grid.shape.block = size(Field(1167, 1152), Field(1183, 1168), Field(1199, 1184));
    grid.shared_bytes = Field(601, 584) - 1024;
    grid.stack_bytes = Field(567, 544);
    grid.bank0 = bank;
    grid.bank0_bytes = bank_bytes;
    if (head.global_bytes > 0) {
      if (Field(432, 432) != 1 || Field(435, 435) != 1) return "QMD without constant bank 4";
      const uint64_t address = Pair(Field(1842, 1824), Field(1823, 1792)) << 6;
      const std::byte* bank4 = Field(1855, 1843) == 0 ? nullptr : gpu_.At(address, 8);
      if (!bank4) return Wrong("constant bank 4 not mapped", address);
      std::memcpy(&grid.globals, bank4, 8);
      if (!gpu_.At(grid.globals, head.global_bytes)) {
        return Wrong("variables not mapped", grid.globals);
      }
    }
    // The sizes that kernels read: threads, workgroups.
    for (const auto& [at, value] : {std::pair{0, grid.shape.block[0]},
                                    {4, grid.shape.block[1]},
                                    {8, grid.shape.block[2]},
                                    {12, grid.shape.grid[0]},
                                    {16, grid.shape.grid[1]},
                                    {20, grid.shape.grid[2]}}) {
      uint32_t found;
      std::memcpy(&found, bank + at, 4);
      if (found != value) return absl::StrFormat("c[0][%#x] is %d, expected %d", at, found, value);
    }
    return gpu_.twins_.Run(grid, gpu_.View());
  }

  FakeGpu& gpu_;
  FakeChannel& channel_;
  uint32_t words_[96];
};

std::string FakeGpu::LaunchGrid(FakeChannel& channel, uint64_t address) {
  const std::byte* at = At(address, 384);
  if (!at) return Wrong("QMD not mapped", address);
  const auto run = std::make_shared<QmdRun>(*this, channel, at);
  if (std::string error = run->Check(); !error.empty()) return error;
  channel.kernels.push_back([run] { return run->Run(); });
  return "";
}

}  // namespace telegrad::fakes
