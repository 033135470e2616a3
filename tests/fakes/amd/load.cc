// Loading of a code object: its file, metadata and descriptors (LLVM's "User Guide for AMDGPU
// Backend", "Kernel Descriptor"), and the decoding of every instruction of every kernel.
#include <llvm/BinaryFormat/ELF.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tests/fakes/amd/amd_machine.h"
#include "tests/fakes/amd/decoder.h"
#include "tests/fakes/amd/disassemble.h"
#include "tests/fakes/amd/metadata.h"
#include "tests/fakes/amd/object_file.h"

namespace fakeamd {
namespace {

struct ProcessorFacts {
  std::string_view name;
  uint32_t flag;  // EF_AMDGPU_MACH
  Target target;
};

const ProcessorFacts* FactsOf(std::string_view processor) {
  static const ProcessorFacts kFacts[] = {
      {"gfx90a",
       llvm::ELF::EF_AMDGPU_MACH_AMDGCN_GFX90A,
       {.processor = "gfx90a", .major = 9, .unified = true}},
      {"gfx942",
       llvm::ELF::EF_AMDGPU_MACH_AMDGCN_GFX942,
       {.processor = "gfx942", .major = 9, .unified = true, .architected_scratch = true}},
      {"gfx1100",
       llvm::ELF::EF_AMDGPU_MACH_AMDGCN_GFX1100,
       {.processor = "gfx1100", .major = 11, .architected_scratch = true, .keeps_high = true}},
      {"gfx1201",
       llvm::ELF::EF_AMDGPU_MACH_AMDGCN_GFX1201,
       {.processor = "gfx1201", .major = 12, .architected_scratch = true, .keeps_high = true}},
  };
  for (const ProcessorFacts& facts : kFacts) {
    if (facts.name == processor) return &facts;
  }
  return nullptr;
}

class Loader {
 public:
  Loader(ObjectFile object, const ProcessorFacts& facts, CodeObject* out)
      : object_(std::move(object)), facts_(facts), out_(*out), code_(std::make_shared<Code>()) {
    code_->target = facts.target;
  }

  bool Load() {
    if (!object_.error.empty()) return Fail(object_.error);
    Metadata metadata = ReadMetadata(object_.metadata);
    if (!metadata.error.empty()) return Fail(metadata.error);
    if (metadata.target.find(facts_.name) == std::string::npos) {
      return Fail("has metadata for " + metadata.target);
    }
    for (size_t k = 0; k < metadata.kernels.size(); ++k) {
      KernelCode code;
      if (!ReadDescriptor(metadata.kernels[k], metadata.symbols[k], &code) ||
          !DecodeKernel(metadata.kernels[k], &code)) {
        return false;
      }
      code_->kernels.push_back(std::move(code));
    }
    code_->segments = std::move(object_.segments);
    out_.target = std::move(metadata.target);
    out_.kernels = std::move(metadata.kernels);
    out_.code = code_;
    return true;
  }

 private:
  bool Fail(const std::string& what) {
    out_.error = what;
    return false;
  }

  bool ReadDescriptor(const Kernel& kernel, const std::string& symbol, KernelCode* code) {
    const auto it = object_.symbols.find(symbol);
    if (it == object_.symbols.end()) return Fail("has no descriptor " + symbol);
    const uint8_t* bytes = object_.At(it->second.address, 64);
    if (bytes == nullptr || it->second.address % 64 != 0) {
      return Fail("the descriptor " + symbol + " is not 64 bytes of a segment, aligned to 64");
    }
    const auto read = [&](size_t offset, size_t size) {
      uint64_t value = 0;
      std::memcpy(&value, bytes + offset, size);
      return value;
    };
    Descriptor& d = code->descriptor;
    d.group_bytes = static_cast<uint32_t>(read(0, 4));
    d.private_bytes = static_cast<uint32_t>(read(4, 4));
    d.kernarg_bytes = static_cast<uint32_t>(read(8, 4));
    d.entry = it->second.address + read(16, 8);
    d.rsrc3 = static_cast<uint32_t>(read(44, 4));
    d.rsrc1 = static_cast<uint32_t>(read(48, 4));
    d.rsrc2 = static_cast<uint32_t>(read(52, 4));
    d.properties = static_cast<uint16_t>(read(56, 2));
    d.preload = static_cast<uint16_t>(read(58, 2));
    if (read(12, 4) != 0 || read(24, 8) != 0 || read(32, 8) != 0 || read(40, 4) != 0 ||
        read(60, 4) != 0) {
      return Fail("the descriptor " + symbol + " has reserved bits that are not 0");
    }
    code->lanes = facts_.target.major >= 10 && (d.properties >> 10 & 1) != 0 ? 32 : 64;
    if (code->lanes != kernel.wavefront) return Fail(kernel.name + " has two sizes of waves");
    if (d.group_bytes != kernel.group_bytes || d.private_bytes != kernel.private_bytes) {
      return Fail("the descriptor " + symbol + " and the metadata have different sizes of memory");
    }
    constexpr uint32_t kScratchLimit = 1 << 20;
    if (d.private_bytes > kScratchLimit)
      return Fail(kernel.name + " has more than 1 MiB of scratch a thread");
    if ((d.rsrc1 >> 16 & 15) != 15) return Fail(kernel.name + " does not keep denormals");
    if ((d.rsrc1 >> 12 & 15) != 0) return Fail(kernel.name + " does not round to nearest");
    if (d.preload != 0)
      return Fail(kernel.name + " has arguments in registers, which is not supported");
    if (kernel.dynamic_stack) return Fail(kernel.name + " has a stack of unknown size");
    const uint32_t granule = facts_.target.unified || code->lanes == 32 ? 8 : 4;
    const uint32_t allocated = ((d.rsrc1 & 63) + 1) * granule;
    if (facts_.target.unified) {
      // Ordinary registers first, then accumulators.
      code->vectors = std::min(((d.rsrc3 & 63) + 1) * 4, allocated);
      code->accumulators = allocated - code->vectors;
    } else {
      code->vectors = std::min(allocated, kAccumulators);
      code->accumulators = 0;
    }
    return true;
  }

  bool DecodeKernel(const Kernel& kernel, KernelCode* code) {
    const auto it = object_.symbols.find(kernel.name);
    const uint8_t* bytes =
        it == object_.symbols.end() ? nullptr : object_.At(it->second.address, it->second.bytes);
    if (bytes == nullptr || it->second.address != code->descriptor.entry || it->second.bytes == 0) {
      return Fail(kernel.name + " has no code at the entry that its descriptor names");
    }
    const std::string processor(facts_.name);
    std::string error;
    const std::vector<Line> lines =
        Disassemble(processor, code->lanes, {bytes, it->second.bytes}, it->second.address, &error);
    if (!error.empty()) return Fail(kernel.name + ": " + error);
    std::map<uint64_t, uint32_t> index;
    for (const Line& line : lines) {
      index[line.address] = static_cast<uint32_t>(code->instructions.size());
      std::vector<Instruction> decoded;
      error = DecodeText(facts_.target, code->lanes, line.text, &decoded);
      for (Instruction& instruction : decoded) {
        instruction.address = line.address;
        instruction.text =
            line.text.substr(std::min(line.text.find_first_not_of(" \t"), line.text.size()));
        if (error.empty()) error = CheckRegisters(*code, instruction);
        code->instructions.push_back(std::move(instruction));
      }
      if (!error.empty()) {
        return Fail(kernel.name + " at " + Hex(line.address) + " \"" + line.text + "\": " + error);
      }
    }
    return SetTargets(kernel, index, code);
  }

  static std::string CheckRegisters(const KernelCode& code, const Instruction& instruction) {
    for (const RegisterRange& range : instruction.touched) {
      if (range.scalar) continue;
      const uint32_t end = uint32_t{range.first} + range.words;
      const bool accumulator = range.first >= kAccumulators;
      if (range.first >= kStaged) continue;
      if (accumulator ? end - kAccumulators > code.accumulators : end > code.vectors) {
        return "uses vector registers beyond those that the descriptor allocates";
      }
    }
    return "";
  }

  // Branches name their target in words behind themselves.
  bool SetTargets(const Kernel& kernel, const std::map<uint64_t, uint32_t>& index,
                  KernelCode* code) {
    for (Instruction& instruction : code->instructions) {
      if (!instruction.row->names.starts_with("s_branch") &&
          !instruction.row->names.starts_with("s_cbranch")) {
        continue;
      }
      const int64_t words = static_cast<int32_t>(instruction.target);
      const auto it = index.find(instruction.address + 4 + static_cast<uint64_t>(words * 4));
      if (it == index.end()) return Fail(kernel.name + " has a branch to no instruction");
      instruction.target = it->second;
    }
    return true;
  }

  ObjectFile object_;
  const ProcessorFacts& facts_;
  CodeObject& out_;
  std::shared_ptr<Code> code_;
};

}  // namespace

CodeObject LoadCodeObject(std::span<const uint8_t> elf, std::string_view processor) {
  CodeObject object;
  const ProcessorFacts* facts = FactsOf(processor);
  if (facts == nullptr) {
    object.error = "there is no interpreter for " + std::string(processor);
    return object;
  }
  Loader(ReadObjectFile(elf, facts->flag), *facts, &object).Load();
  return object;
}

}  // namespace fakeamd
