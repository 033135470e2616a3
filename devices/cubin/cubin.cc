// Everything that is loaded goes into one image: code first, with the bytes behind it that the GPU
// fetches ahead, then data. A relocation is the address of a symbol's place in the image.
#include "devices/cubin/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/status.h"
#include "engine/base/strings.h"

namespace telegrad {
namespace {

constexpr uint16_t kMachineCuda = 190;  // EM_CUDA
// Attributes of .nv.info, as `cuobjdump -elf` names them (EIATTR_*), and their form.
constexpr uint8_t kSized = 4;  // EIFMT_SVAL: a size, and so many bytes
enum Attribute : uint8_t {
  kMaxThreads = 0x05,
  kParamBank = 0x0A,
  kRequiredThreads = 0x10,
  kParameter = 0x17,
  kMinStack = 0x12,
  kRegisterCount = 0x2F,
};
// R_CUDA_64, R_CUDA_ABS32_LO_32, R_CUDA_ABS32_HI_32: of a word of data, and of the second word of
// an instruction.
constexpr uint32_t kRelocate64 = 0x02, kRelocateLow = 0x38, kRelocateHigh = 0x39;
constexpr int kBarrierShift = 20;  // in a code section's flags
constexpr uint32_t kBarrierMask = 0x7F;
constexpr size_t kFetchedAhead = 4096;
constexpr size_t kMostBytes = size_t{256} << 20;

template <typename T>
T Get(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace

class CubinReader {
 public:
  CubinReader(std::string_view elf, std::string_view entry, Cubin* out)
      : elf_(elf), entry_(entry), out_(*out) {}

  absl::Status Read() {
    TG_RETURN_IF_ERROR(ReadSections());
    TG_RETURN_IF_ERROR(Load());
    TG_RETURN_IF_ERROR(ReadFacts());
    for (const auto& section : sections_) {
      if (section.header.sh_type == SHT_RELA) TG_RETURN_IF_ERROR(ReadRelocations(section.header));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> LoadedBytes() {
    TG_RETURN_IF_ERROR(ReadSections());
    uint64_t bytes = 0;
    for (const Section& section : sections_) {
      if (!IsLoaded(section)) continue;
      if (section.header.sh_size > kMostBytes - bytes) return Bad("it is too large");
      bytes += section.header.sh_size;
    }
    return static_cast<int64_t>(bytes);
  }
  absl::StatusOr<std::vector<uint32_t>> Parameters() {
    TG_RETURN_IF_ERROR(ReadSections());
    TG_RETURN_IF_ERROR(ReadFacts());
    return std::move(out_.kernel_.parameters);
  }

 private:
  struct Section {
    Elf64_Shdr header;
    std::string_view name, bytes;
    std::optional<uint64_t> placed = {};  // into the image
  };

  template <typename... Args>
  static absl::Status Bad(const Args&... args) {
    return InvalidArgument("not a cubin that can be loaded: ", args...);
  }

  absl::StatusOr<std::string_view> Part(uint64_t at, uint64_t bytes) const {
    if (at > elf_.size() || bytes > elf_.size() - at) return Bad("it is cut off");
    return elf_.substr(at, bytes);
  }

  absl::Status ReadSections() {
    if (!Cubin::IsCubin(elf_)) return Bad("no ELF file of a GPU");
    const auto header = Get<Elf64_Ehdr>(elf_, 0);
    if (header.e_shentsize != sizeof(Elf64_Shdr)) return Bad("its table of sections");
    TG_ASSIGN_OR_RETURN(const std::string_view table,
                        Part(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)));
    for (size_t i = 0; i < header.e_shnum; ++i) {
      Section& section = sections_.emplace_back();
      section.header = Get<Elf64_Shdr>(table, i * sizeof(Elf64_Shdr));
      if (section.header.sh_type == SHT_NOBITS || section.header.sh_type == SHT_NULL) continue;
      TG_ASSIGN_OR_RETURN(section.bytes, Part(section.header.sh_offset, section.header.sh_size));
    }
    if (header.e_shstrndx >= sections_.size()) return Bad("its sections have no names");
    const std::string_view names = sections_[header.e_shstrndx].bytes;
    for (Section& section : sections_) {
      if (section.header.sh_name >= names.size()) return Bad("a section without a name");
      const std::string_view rest = names.substr(section.header.sh_name);
      section.name = rest.substr(0, rest.find('\0'));
    }
    return absl::OkStatus();
  }

  // Memory of workgroups is there only while they run.
  static bool IsLoaded(const Section& section) {
    return (section.header.sh_flags & SHF_ALLOC) != 0 && !section.name.starts_with(".nv.shared");
  }

  Section* Find(std::string_view name) {
    const auto it = std::ranges::find(sections_, name, &Section::name);
    return it == sections_.end() ? nullptr : &*it;
  }

  absl::Status Place(Section* section) {
    auto& image = out_.image_;
    // The GPU takes a constant bank at a multiple of 64 bytes.
    const bool bank = section->name.starts_with(".nv.constant");
    const size_t alignment = std::max<size_t>(section->header.sh_addralign, bank ? 64 : 16);
    if ((alignment & (alignment - 1)) != 0 || alignment > Cubin::kAlignment ||
        section->header.sh_size > kMostBytes - image.size()) {
      return Bad("section ", section->name, " of ", section->header.sh_size, " bytes");
    }
    image.resize((image.size() + alignment - 1) & ~(alignment - 1));
    section->placed = image.size();
    image.resize(image.size() + section->header.sh_size);
    if (!section->bytes.empty()) {
      std::memcpy(image.data() + *section->placed, section->bytes.data(), section->bytes.size());
    }
    return absl::OkStatus();
  }

  absl::Status Load() {
    Section* const code = Find(StrCat(".text.", entry_));
    if (code == nullptr || code->bytes.empty()) return Bad("it has no entry point ", entry_);
    // All code comes first, so that what is fetched ahead of it is one stretch.
    for (const bool is_code : {true, false}) {
      for (Section& section : sections_) {
        // A launch brings its own bank 0, with its parameters.
        if (!IsLoaded(section) || section.name.starts_with(".nv.constant0")) continue;
        if (section.name.starts_with(".text.") == is_code) TG_RETURN_IF_ERROR(Place(&section));
      }
      if (is_code) out_.image_.resize(out_.image_.size() + kFetchedAhead);
    }
    out_.image_.resize((out_.image_.size() + 63) & ~size_t{63});  // for a bank's last 16 bytes
    CubinKernel& kernel = out_.kernel_;
    kernel.name = entry_;
    kernel.code = *code->placed;
    kernel.barriers = code->header.sh_flags >> kBarrierShift & kBarrierMask;
    kernel.shared_bytes = 1024;  // the system's part
    if (const Section* shared = Find(StrCat(".nv.shared.", entry_)); shared != nullptr) {
      if (shared->header.sh_size > UINT32_MAX / 2) return Bad("section ", shared->name);
      kernel.shared_bytes = std::max<uint32_t>(1024, shared->header.sh_size);
    }
    if (const Section* bank = Find(".nv.constant4"); bank != nullptr && bank->placed.has_value()) {
      kernel.constants4 = *bank->placed;
      kernel.constants4_bytes = bank->header.sh_size;
    }
    for (const Section& section : sections_) {
      constexpr std::string_view kBank = ".nv.constant";
      if (!section.name.starts_with(kBank) || section.name == ".nv.constant4") continue;
      if (section.name != StrCat(".nv.constant0.", entry_) && section.name[kBank.size()] != '0') {
        return Unimplemented("a kernel with constants in ", section.name);
      }
    }
    return absl::OkStatus();
  }

  // The symbol's number, of a section's attributes for all kernels.
  std::optional<uint32_t> EntrySymbol() {
    const Section* const table = Find(".symtab");
    if (table == nullptr || table->header.sh_link >= sections_.size()) return std::nullopt;
    const std::string_view names = sections_[table->header.sh_link].bytes;
    for (size_t i = 0; (i + 1) * sizeof(Elf64_Sym) <= table->bytes.size(); ++i) {
      const auto symbol = Get<Elf64_Sym>(table->bytes, i * sizeof(Elf64_Sym));
      if (symbol.st_name >= names.size() || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      const std::string_view rest = names.substr(symbol.st_name);
      if (rest.substr(0, rest.find('\0')) == entry_) return static_cast<uint32_t>(i);
    }
    return std::nullopt;
  }

  template <typename Visit>
  absl::Status EachAttribute(std::string_view info, Visit visit) {
    for (size_t i = 0; i < info.size();) {
      if (info.size() - i < 4) return Bad("an attribute is cut off");
      const auto form = Get<uint8_t>(info, i), attribute = Get<uint8_t>(info, i + 1);
      const size_t bytes = form == kSized ? Get<uint16_t>(info, i + 2) : 0;
      i += 4;
      if (bytes > info.size() - i) return Bad("an attribute is cut off");
      if (form == kSized) TG_RETURN_IF_ERROR(visit(attribute, info.substr(i, bytes)));
      i += bytes;
    }
    return absl::OkStatus();
  }

  absl::Status ReadFacts() {
    out_.flags_ = Get<Elf64_Ehdr>(elf_, 0).e_flags;
    CubinKernel& kernel = out_.kernel_;
    const auto symbol = EntrySymbol();
    const Section* const all = Find(".nv.info");
    const Section* const own = Find(StrCat(".nv.info.", entry_));
    if (!symbol || all == nullptr || own == nullptr) return Bad("nothing is said of ", entry_);
    TG_RETURN_IF_ERROR(EachAttribute(all->bytes, [&](uint8_t attribute, std::string_view data) {
      if (data.size() != 8 || Get<uint32_t>(data, 0) != *symbol) return absl::OkStatus();
      const auto value = Get<uint32_t>(data, 4);
      if (attribute == kRegisterCount) kernel.registers = value;
      if (attribute == kMinStack) kernel.stack_bytes = value;
      return absl::OkStatus();
    }));
    std::map<uint32_t, std::pair<uint32_t, uint32_t>> offsets;  // and bytes, by number
    TG_RETURN_IF_ERROR(EachAttribute(own->bytes, [&](uint8_t attribute, std::string_view data) {
      const bool threads = attribute == kRequiredThreads || attribute == kMaxThreads;
      if (threads && data.size() == 12) {
        const uint64_t count = uint64_t{Get<uint32_t>(data, 0)} * Get<uint32_t>(data, 4);
        if (count > 1024 || count * Get<uint32_t>(data, 8) > 1024) return Bad("its threads");
        (attribute == kMaxThreads ? kernel.most_threads : kernel.required_threads) =
            static_cast<uint32_t>(count) * Get<uint32_t>(data, 8);
      }
      if (attribute == kParameter) {
        if (data.size() != 12) return Bad("a parameter");
        constexpr int kSizeShift = 18;  // bytes of the parameter
        const uint32_t number = Get<uint16_t>(data, 4), offset = Get<uint16_t>(data, 6);
        const uint32_t bytes = Get<uint32_t>(data, 8) >> kSizeShift;
        if (bytes != 4 && bytes != 8) return Bad("parameter ", number, " has ", bytes, " bytes");
        if (!offsets.emplace(number, std::pair(offset, bytes)).second) {
          return Bad("parameter ", number, " is there twice");
        }
      }
      if (attribute == kParamBank) {
        if (data.size() != 8) return Bad("its parameters");
        kernel.parameter_base = Get<uint16_t>(data, 4);
        kernel.parameter_bytes = Get<uint16_t>(data, 6);
      }
      return absl::OkStatus();
    }));
    if (kernel.registers == 0 || kernel.registers > 255) return Bad("its registers");
    uint32_t end = 0;
    for (const auto& [number, place] : offsets) {  // in their order
      const auto& [offset, bytes] = place;
      end = (end + bytes - 1) / bytes * bytes;
      if (number != kernel.parameters.size() || offset != end) {
        return Bad("parameter ", number, " is at byte ", offset, ", expected ", end);
      }
      end += bytes;
      kernel.parameters.push_back(bytes);
    }
    // Behind the words of the driver, of which there are more since Hopper.
    const uint32_t least = out_.IsFor(90) ? 0x210 : 0x160;
    if (kernel.parameter_bytes != end || kernel.parameter_base < least) {
      return Bad("its parameters are ", kernel.parameter_bytes, " bytes at ", kernel.parameter_base,
                 ", expected ", end);
    }
    return absl::OkStatus();
  }

  absl::Status ReadRelocations(const Elf64_Shdr& header) {
    if (header.sh_info >= sections_.size() || header.sh_link >= sections_.size()) {
      return Bad("relocations of no section");
    }
    const Section& target = sections_[header.sh_info];
    if (!target.placed) return absl::OkStatus();  // of what is not loaded, such as debug frames
    const std::string_view symbols = sections_[header.sh_link].bytes;
    TG_ASSIGN_OR_RETURN(const std::string_view table, Part(header.sh_offset, header.sh_size));
    for (size_t i = 0; (i + 1) * sizeof(Elf64_Rela) <= table.size(); ++i) {
      const auto rela = Get<Elf64_Rela>(table, i * sizeof(Elf64_Rela));
      const uint64_t number = ELF64_R_SYM(rela.r_info);
      if ((number + 1) * sizeof(Elf64_Sym) > symbols.size()) return Bad("a relocation's symbol");
      const auto symbol = Get<Elf64_Sym>(symbols, number * sizeof(Elf64_Sym));
      if (symbol.st_shndx >= sections_.size() || !sections_[symbol.st_shndx].placed) {
        return Bad("a relocation to what is not loaded");
      }
      const Section& to = sections_[symbol.st_shndx];
      Cubin::Relocation out{};
      uint64_t at = rela.r_offset;
      switch (ELF64_R_TYPE(rela.r_info)) {
        case kRelocate64:
          out.kind = Cubin::Relocation::Kind::kWord64;
          break;
        case kRelocateLow:
          out.kind = Cubin::Relocation::Kind::kLow32;
          at += 4;
          break;
        case kRelocateHigh:
          out.kind = Cubin::Relocation::Kind::kHigh32;
          at += 4;
          break;
        default:
          return Unimplemented("a cubin with relocations of type ", ELF64_R_TYPE(rela.r_info));
      }
      const uint64_t bytes = out.kind == Cubin::Relocation::Kind::kWord64 ? 8 : 4;
      const uint64_t value = symbol.st_value + static_cast<uint64_t>(rela.r_addend);
      if (at > target.header.sh_size || bytes > target.header.sh_size - at ||
          value > to.header.sh_size) {
        return Bad("a relocation outside of its section");
      }
      out.at = *target.placed + at;
      out.target = *to.placed + value;
      out_.relocations_.push_back(out);
    }
    return absl::OkStatus();
  }

  const std::string_view elf_;
  const std::string entry_;
  Cubin& out_;
  std::vector<Section> sections_;
};

// In the lowest byte, and in the next for newer formats.
bool Cubin::IsFor(uint32_t arch) const {
  return (flags_ & 0xFF) == arch || (flags_ >> 8 & 0xFF) == arch;
}

bool Cubin::IsCubin(std::string_view bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr) || !bytes.starts_with(ELFMAG)) return false;
  const auto header = Get<Elf64_Ehdr>(bytes, 0);
  return header.e_machine == kMachineCuda && header.e_ident[EI_CLASS] == ELFCLASS64;
}

absl::StatusOr<std::vector<uint32_t>> Cubin::ParametersOf(std::string_view elf,
                                                          std::string_view entry) {
  Cubin facts;
  return CubinReader(elf, entry, &facts).Parameters();
}

absl::StatusOr<int64_t> Cubin::LoadedBytes(std::string_view elf) {
  Cubin facts;
  return CubinReader(elf, "", &facts).LoadedBytes();
}

absl::StatusOr<Cubin> Cubin::Read(std::string_view elf, std::string_view entry) {
  Cubin out;
  TG_RETURN_IF_ERROR(CubinReader(elf, entry, &out).Read());
  return out;
}

std::vector<std::byte> Cubin::Place(uint64_t address) const {
  std::vector<std::byte> out = image_;
  for (const Relocation& relocation : relocations_) {
    const uint64_t value = address + relocation.target;
    const uint32_t low = static_cast<uint32_t>(value), high = static_cast<uint32_t>(value >> 32);
    std::byte* const at = out.data() + relocation.at;
    switch (relocation.kind) {
      case Relocation::Kind::kWord64:
        std::memcpy(at, &value, sizeof(value));
        break;
      case Relocation::Kind::kLow32:
        std::memcpy(at, &low, sizeof(low));
        break;
      case Relocation::Kind::kHigh32:
        std::memcpy(at, &high, sizeof(high));
        break;
    }
  }
  return out;
}

}  // namespace telegrad
