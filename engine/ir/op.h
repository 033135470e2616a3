// The op vocabulary, expanded from ops.def.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/types/dtype.h"
#include "engine/types/matrix_unit.h"

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

// What the argument words (int64) of a node mean. ArgFields(kind) names and bounds them; dims come
// last and are the node's shape where they are not symbolic.
enum class ArgKind : uint8_t {
  kNone,      // no words
  kScalar,    // one word: a scalar of the node's dtype, see scalar.h
  kParam,     // slot, device, dims
  kDims,      // dims
  kAxes,      // axis numbers
  kPairs,     // offset and size for each axis
  kReduce,    // ReduceKind, axes
  kRange,     // id, AxisType
  kBuffer,    // AddressSpace, slot, number of elements
  kVar,       // id, min, max, multiple
  kNumber,    // one number >= 0
  kKind,      // ReduceKind
  kScatter,   // ScatterKind
  kDevices,   // device numbers
  kScope,     // Scope
  kRole,      // first warp, number of warps
  kMBarrier,  // slot, arrivals, number of barriers
  kBox,       // rows, columns, row strides of destination and source, all in elements
  kMma,       // MmaKind, row strides of a and b in elements
  kMatrices,  // how many, whether transposed
};

enum OpTrait : uint32_t {
  kAlu = 1,          // computes element by element
  kCommutes = 2,     // f(x, y) = f(y, x)
  kAssociates = 4,   // exactly on integers, up to rounding on floats
  kMovement = 8,     // a view of one source
  kEffect = 16,      // has no value
  kSymbolic = 32,    // a dims or pairs word w < 0 means source number -w-1, a scalar i64
  kTupleValue = 64,  // has several values, which GETTUPLE names
  kAsync = 128,      // starts what only a WAIT or a phase completes
};

// Which element types the first typed source (for kGiven without sources, the node) may have.
enum class Elements : uint8_t {
  kAny,
  kCompute,  // all but the storage types
  kArith,    // kCompute without bool
  kFloatOnly,
  kIntOnly,
  kBoolOnly,
  kLogic,  // integers and bool
  kU64Only,
  kI32Only,
};

enum class TypeRule : uint8_t {
  kGiven,      // the caller names it
  kSame,       // the dtype that all sources share
  kFirst,      // that of source 0
  kThird,      // that of source 2
  kCompare,    // sources share one; the result is bool
  kSelect,     // source 0 is bool; sources 1 and 2 share the result's
  kIndexType,  // i64
  kTupleType,  // that of the tuple's element
  kVoid,
};

enum class ShapeRule : uint8_t {
  kScalarShape,
  kNoShape,      // an effect; reported as []
  kArgShape,     // dims of the argument
  kBufferShape,  // [elements]
  kElementwise,
  kFirstShape,
  kSameShape,  // that of source 0, which all sources share
  kReshapeTo,
  kExpandTo,
  kPermuteBy,
  kSameAxes,
  kPadTo,
  kShrinkTo,
  kCatAxis,
  kBitcastShape,
  kReduceAxes,
  kGatherRows,
  kScatterRows,
  kTupleShape,
  kUnshardAxis,
  kIndexShape,   // that of the index, source 1
  kMmaShape,     // that of source 2; the fragments have the row's sizes
  kMatrixShape,  // two elements of each matrix
};

enum Level : uint8_t { kTensorLevel = 1, kKernelLevel = 2, kProgramLevel = 4 };

enum class ReduceKind : int64_t { kAdd = 0, kMul = 1, kMax = 2 };
enum class ScatterKind : int64_t { kSet = 0, kAdd = 1, kMul = 2, kMin = 3, kMax = 4 };

// How the iterations of a range are executed.
enum class AxisType : int64_t {
  kLoop = 0,    // independent iterations, run in order
  kThread = 1,  // independent; the launch's [begin, end) slices it. A program has at most one,
                // which is the outermost; kernels that have several get one of them all (lowering)
  kReduce = 2,  // reduced by a REDUCE; closed by an END: iterations that must run in order
  kUpcast = 3,  // independent; replicated into registers before the program is linear. Where it
                // is reduced, each replica has its own accumulator
  kUnroll = 4,  // reduced; replicated
  kVector = 5,  // becomes the lanes of vector values
  kGroup = 6,   // one workgroup each; outermost, at most three
  kLocal = 7,   // one thread of a workgroup each; inside the groups, at most three
  kWarp = 8,    // one lane of a warp each; innermost of the local ranges, of the warp's size
};

enum class AddressSpace : int64_t { kGlobal = 0, kLocal = 1, kRegister = 2 };

// As a word of an argument.
inline constexpr int64_t ToWord(ReduceKind kind) { return static_cast<int64_t>(kind); }
inline constexpr int64_t ToWord(ScatterKind kind) { return static_cast<int64_t>(kind); }
inline constexpr int64_t ToWord(AddressSpace space) { return static_cast<int64_t>(space); }

// The threads that do something together.
enum class Scope : int64_t { kThread = 0, kWarp = 1, kWarpgroup = 2, kWorkgroup = 3, kCluster = 4 };

// The matrix instructions of mma.def.
enum class MmaKind : int64_t {
#define MMA(name, ...) name,
#define FRAGMENT(...)
#include "engine/ir/mma.def"
#undef FRAGMENT
#undef MMA
};

struct MmaInfo {
  MmaKind kind;
  std::string_view name;
  MatrixUnit unit;  // whose instruction it is
  Scope scope;
  int threads;  // of the scope
  int copies;   // threads that hold an element of a or b
  int m, n, k;
  DType a, b, c;
  bool async;    // a and b in local memory, c in registers; MMA_ASYNC
  bool by_rows;  // whether LOAD_MATRIX loads a and b
  // Elements of the three fragments that one thread holds.
  int a_size() const { return m * k * copies / threads; }
  int b_size() const { return k * n * copies / threads; }
  int c_size() const { return m * n / threads; }
};
std::span<const MmaInfo> AllMmas();  // indexed by MmaKind

// A matrix of LOAD_MATRIX has so many rows of as many elements of 16 bits.
inline constexpr int64_t kMatrixRows = 8, kMatrixRowBytes = 2 * kMatrixRows;
// Bytes: at multiples of it a BUFFER in local memory begins.
inline constexpr int64_t kBufferAlign = 16;

// One word of an argument, or the list that its last words are.
struct ArgField {
  enum Type : uint8_t { kInt, kEnum, kDevice, kList, kDims, kScalar };
  std::string_view name;
  Type type = kInt;
  int64_t min = 0, max = 0;                      // of kInt and of the words of kList, inclusive
  std::span<const std::string_view> names = {};  // of kEnum, from 0
};
std::span<const ArgField> ArgFields(ArgKind kind);

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
namespace internal {
extern const OpInfo kOpTable[kNumOps];
}
inline const OpInfo& Info(Op op) { return internal::kOpTable[static_cast<size_t>(op)]; }
inline std::string_view Name(Op op) { return Info(op).name; }
inline bool Is(Op op, OpTrait trait) { return (Info(op).traits & trait) != 0; }
inline bool IsAt(Op op, Level level) { return (Info(op).levels & level) != 0; }

std::optional<Op> OpFromName(std::string_view name);
std::optional<Op> OpFromWire(int wire);

std::string_view Name(ReduceKind kind);  // "add", "mul", "max"
std::string_view Name(ScatterKind kind);
std::string_view Name(AxisType type);
std::string_view Name(AddressSpace space);
std::string_view Name(Scope scope);

}  // namespace telegrad
