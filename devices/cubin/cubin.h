// A cubin: the ELF file that ptxas makes of PTX for one kind of GPU. Reads what a launch needs and
// places the code with its data in memory. Every offset and size of the file is checked.
//
// The sections and attributes are as ptxas 12.8 writes them for sm_90a: .text.NAME, .nv.info and
// .nv.info.NAME, .nv.constant0.NAME, .nv.constant4 (addresses of variables), .nv.global.init,
// .nv.global, .nv.shared.NAME, .rela.*.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace telegrad {

// A kernel's facts, with its sections as offsets into the image.
struct CubinKernel {
  std::string name;
  uint64_t code = 0;  // offset into the image
  uint32_t registers = 0, barriers = 0;
  uint32_t stack_bytes = 0;   // of a thread
  uint32_t shared_bytes = 0;  // of a workgroup, with the system's part, without what a launch adds
  std::vector<uint32_t> parameters;                  // bytes of each
  uint32_t parameter_base = 0, parameter_bytes = 0;  // of all, in constant bank 0
  uint32_t required_threads = 0, most_threads = 0;   // 0: not said
  uint64_t constants4 = 0, constants4_bytes = 0;     // offset of bank 4 in the image; 0 bytes: none
};

class Cubin {
 public:
  // INVALID_ARGUMENT says what is wrong with the file, or which entry point it lacks.
  static absl::StatusOr<Cubin> Read(std::string_view elf, std::string_view entry);

  // Only the bytes of each of its parameters, for a driver that loads the file itself.
  static absl::StatusOr<std::vector<uint32_t>> ParametersOf(std::string_view elf,
                                                            std::string_view entry);

  // Bytes of the GPU's memory that a driver takes to load the file: its code, constants and
  // variables.
  static absl::StatusOr<int64_t> LoadedBytes(std::string_view elf);

  static bool IsCubin(std::string_view bytes);
  // Whether the code is for GPUs of that kind: 90 of "sm_90a".
  bool IsFor(uint32_t arch) const;

  const CubinKernel& kernel() const { return kernel_; }
  // Bytes of the image, which begins at a multiple of kAlignment.
  size_t bytes() const { return image_.size(); }
  static constexpr size_t kAlignment = 256;

  // The image as it is to lie at `address`: all relocations done.
  std::vector<std::byte> Place(uint64_t address) const;

 private:
  struct Relocation {
    enum class Kind : uint8_t { kWord64, kLow32, kHigh32 } kind;
    uint64_t at;      // into the image
    uint64_t target;  // into the image, with the addend
  };
  friend class CubinReader;

  CubinKernel kernel_;
  uint32_t flags_ = 0;  // the file's
  std::vector<std::byte> image_;
  std::vector<Relocation> relocations_;
};

}  // namespace telegrad
