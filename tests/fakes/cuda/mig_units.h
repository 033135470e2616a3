// Which of the fakes' GPUs are in MIG mode, and how their instances are called: for the fake driver
// and the fake management library, which know the same machine.
//
// FAKE_CUDA_MIG is a hexadecimal number with a digit for each GPU, the last one for that of bus 1:
// 0: it is not in MIG mode; 8: it is and has no instance; 1 to 6: so many instances.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace fakecuda {

inline int MigDigit(int64_t mig, int gpu) { return static_cast<int>(mig >> (4 * gpu) & 15); }
inline bool InMigMode(int64_t mig, int gpu) { return MigDigit(mig, gpu) != 0; }
inline int Instances(int64_t mig, int gpu) { return MigDigit(mig, gpu) & 7; }

inline constexpr int kWhole = -1;  // in place of an instance
inline constexpr int kInstanceParts =
    4;  // of its GPU's memory and multiprocessors, an instance has one

// 16 bytes, as cuDeviceGetUuid_v2 gives them.
inline std::string UuidBytes(int gpu, int instance) {
  char text[32];
  if (instance == kWhole) {
    std::snprintf(text, sizeof(text), "fake-cuda-gpu-%02d", gpu % 100);
  } else {
    std::snprintf(text, sizeof(text), "fake-cuda-mig-%d%d", gpu % 10, instance);
  }
  return text;
}

// As nvidia-smi -L and CUDA_VISIBLE_DEVICES have them.
inline std::string UuidName(int gpu, int instance) {
  const std::string bytes = UuidBytes(gpu, instance);
  std::string out = instance == kWhole ? "GPU" : "MIG";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) out += "-";
    char digits[4];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(bytes[i]));
    out += digits;
  }
  return out;
}

}  // namespace fakecuda
