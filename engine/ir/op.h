// The op vocabulary, expanded from ops.def.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace telegrad {

enum class Op : uint8_t {
#define OP(name, ...) name,
#include "engine/ir/ops.def"
#undef OP
};

inline constexpr int kNumOps = 0
#define OP(...) +1
#include "engine/ir/ops.def"
#undef OP
    ;

// What the argument words (int64) of a node mean.
enum class ArgKind : uint8_t {
  kNone,    // no words
  kScalar,  // one word: a ScalarBits of the node's dtype
  kParam,   // slot, then the dims
  kDims,    // dims
  kAxes,    // axis numbers
  kPairs,   // two words for each axis
  kReduce,  // ReduceKind, then the axes
  kRange,   // id, AxisType
  kBuffer,  // AddressSpace, slot, number of elements
};

enum OpTrait : uint32_t {
  kAlu = 1,         // elementwise computation
  kCommutes = 2,    // f(x, y) = f(y, x)
  kAssociates = 4,  // exactly on integers, up to rounding on floats
  kMovement = 8,    // a view of one source
  kEffect = 16,     // has no value
};

// Which element types the typed sources (for kGiven without sources, the node) may have.
enum class Elements : uint8_t { kAny, kArith, kFloatOnly, kIntOnly, kBoolOnly, kLogic };

enum class TypeRule : uint8_t {
  kGiven,    // the caller names it
  kSame,     // the dtype that all sources share
  kFirst,    // that of source 0
  kCompare,  // sources share one; the result is bool
  kSelect,   // source 0 is bool; sources 1 and 2 share the result's
  kVoid,
};

enum class ShapeRule : uint8_t {
  kScalarShape,
  kNoShape,      // an effect; reported as []
  kArgShape,     // dims of the argument (after the slot for kParam)
  kBufferShape,  // [elements]
  kElementwise,
  kFirstShape,
  kReshapeTo,
  kExpandTo,
  kPermuteBy,
  kSameAxes,
  kPadBy,
  kShrinkTo,
  kReduceAxes,
  kGatherRows,
  kIndexShape,  // that of the index, source 1
};

enum Level : uint8_t { kTensorLevel = 1, kKernelLevel = 2, kProgramLevel = 4 };

enum class ReduceKind : int64_t { kAdd = 0, kMul = 1, kMax = 2 };

// How the iterations of a range are executed.
enum class AxisType : int64_t {
  kLoop = 0,    // independent iterations, run in order
  kThread = 1,  // independent; the launch's [begin, end) slices it. At most one, and the outermost
  kReduce = 2,  // folded by a REDUCE
  kUpcast = 3,  // independent; replicated into registers before the program is linear
  kUnroll = 4,  // folded; replicated
  kVector = 5,  // becomes the lanes of vector values
};

enum class AddressSpace : int64_t { kGlobal = 0, kLocal = 1, kRegister = 2 };

struct OpInfo {
  Op op;
  std::string_view name;
  int wire;
  int min_src;
  int max_src;  // -1: any number
  ArgKind arg;
  uint32_t traits;
  Elements elements;
  TypeRule type_rule;
  ShapeRule shape_rule;
  uint8_t levels;
  std::string_view doc;
};

std::span<const OpInfo> AllOps();  // indexed by Op
const OpInfo& Info(Op op);
inline std::string_view Name(Op op) { return Info(op).name; }
inline bool Is(Op op, OpTrait trait) { return (Info(op).traits & trait) != 0; }
inline bool IsAt(Op op, Level level) { return (Info(op).levels & level) != 0; }

std::optional<Op> OpFromName(std::string_view name);
std::optional<Op> OpFromWire(int wire);

std::string_view Name(ReduceKind kind);  // "add", "mul", "max"
std::string_view Name(AxisType type);
std::string_view Name(AddressSpace space);

}  // namespace telegrad
