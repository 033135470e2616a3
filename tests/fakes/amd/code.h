// A kernel decoded once, ready to run: instructions with operands in a form that is the same for
// all encodings and targets.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fakes/amd/amd_machine.h"

namespace fakeamd {

class Wave;
struct Instruction;
struct Row;

// The types that instructions compute with, as their names say them.
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;

inline constexpr uint32_t kMaxLanes = 64;

// Vector registers: v0 to v255, then a0 to a255, then those that hold a result until the other half
// of a dual instruction has read its operands.
inline constexpr uint32_t kAccumulators = 256;
inline constexpr uint32_t kStaged = 512;
inline constexpr uint32_t kVectors = 514;

// Scalar registers by their numbers in the ISA documents as far as these are the same everywhere.
enum ScalarRegister : uint16_t {
  kScalarLimit = 106,
  kVcc = 106,
  kTrap = 108,  // ttmp0 to ttmp15
  kM0 = 124,
  kExec = 126,
  kFlatScratch = 128,
  kSharedBase = 130,
  kSharedLimit = 132,
  kPrivateBase = 134,
  kPrivateLimit = 136,
  kNull = 138,  // reads as zero, and so do the registers behind it
  kScc = 154,
  kScalars = 156,
};

// What a value is, for the operands of arithmetic.
enum class Type : uint8_t {
  kNone,
  kB16,
  kI16,
  kF16,
  kBF16,
  kB32,
  kI32,
  kF32,
  kB64,
  kI64,
  kF64,
  kMask,     // a bit for each lane, in a scalar register or a pair
  kPair16,   // two 16-bit integers
  kPairF16,  // two halves
  kPairF32,  // two floats in two registers
  kMix,      // a float, or one of two halves in a register
};

constexpr uint32_t TypeWords(Type type) {
  return type == Type::kB64 || type == Type::kI64 || type == Type::kF64 || type == Type::kPairF32
             ? 2
             : 1;
}

struct Operand {
  enum class Kind : uint8_t { kNone, kVector, kScalar, kConstant, kOff };
  Kind kind = Kind::kNone;
  bool negate = false;
  bool absolute = false;
  bool extend = false;  // sign of a part (SDWA)
  bool high = false;    // upper half of the register
  uint8_t words = 0;
  uint8_t select = 6;  // part of a register (SDWA): bytes 0 to 3, words 4 and 5, 6 all of it
  uint16_t reg = 0;
  uint64_t constant = 0;
};

// Moves a source operand between lanes (DPP) before the instruction reads it.
struct LaneMove {
  enum class Kind : uint8_t {
    kNone,
    kQuad,
    kRowShl,
    kRowShr,
    kRowRor,
    kRowMirror,
    kRowHalfMirror,
    kWaveShl,
    kWaveShr,
    kWaveRol,
    kWaveRor,
    kRowBcast15,
    kRowBcast31,
    kRowShare,
    kRowXmask,
    kRowNewBcast,
    kEight,  // dpp8
  };
  Kind kind = Kind::kNone;
  bool bound_zero = false;      // lanes outside give 0 instead of leaving the result as it was
  bool fetch_inactive = false;  // also from lanes that are switched off
  uint8_t row_mask = 15;
  uint8_t bank_mask = 15;
  std::array<uint8_t, 8> value = {};
};

using Execute = void (*)(Wave& wave, const Instruction& instruction);

struct RegisterRange {
  uint16_t first = 0;
  uint8_t words = 0;
  bool scalar = false;
  bool written = false;
};

struct Instruction {
  Execute execute = nullptr;
  const Row* row = nullptr;
  uint64_t address = 0;  // within the object
  std::array<Operand, 2> result = {};
  std::array<Operand, 5> source = {};
  uint8_t results = 0;
  uint8_t sources = 0;
  uint8_t op_sel = 0;  // bit k: of source k the upper half; bit 3: of the result
  uint8_t op_sel_hi = 7;
  uint8_t negate_low = 0;
  uint8_t negate_high = 0;
  bool clamp = false;
  bool returns = false;  // an atomic that gives the old value
  uint8_t scale = 0;     // of the result: 1 times 2, 2 times 4, 3 half
  uint8_t result_select = 6;
  uint8_t result_unused = 0;  // 0 zero, 1 sign, 2 as it was
  LaneMove move;
  int32_t offset = 0;
  int32_t offset1 = 0;
  // Of a load: what counts it. Its results may wait for others that return in order with it.
  bool loads = false;
  uint8_t counter = 0;
  uint8_t event = 0;
  uint32_t target = 0;  // of a branch: index of an instruction; else what the family puts there
  std::vector<RegisterRange> touched;
  std::string text;
};

// A register descriptor of a kernel and what the loader needs of it (LLVM, AMDGPU usage, "Kernel
// Descriptor").
struct Descriptor {
  uint32_t group_bytes = 0;
  uint32_t private_bytes = 0;
  uint32_t kernarg_bytes = 0;
  uint64_t entry = 0;  // virtual address
  uint32_t rsrc1 = 0;
  uint32_t rsrc2 = 0;
  uint32_t rsrc3 = 0;
  uint16_t properties = 0;
  uint16_t preload = 0;
};

struct KernelCode {
  Descriptor descriptor;
  uint32_t lanes = 64;
  uint32_t vectors = 256;       // vector registers that the descriptor allocates
  uint32_t accumulators = 256;  // of them and of those, behind kAccumulators
  std::vector<Instruction> instructions;
  uint64_t end = 0;  // virtual address behind the last
};

// What differs between targets beyond names.
struct Target {
  std::string processor;
  int major = 9;
  bool unified = false;  // vector registers and accumulators share one file (gfx90a, gfx942)
  bool architected_scratch = false;
  bool keeps_high = false;  // a 16-bit result leaves the upper half of its register
};

struct Segment {
  uint64_t address = 0;  // virtual
  std::vector<uint8_t> bytes;
};

struct Code {
  Target target;
  std::vector<Segment> segments;
  std::vector<KernelCode> kernels;  // in the order of CodeObject::kernels
};

}  // namespace fakeamd
