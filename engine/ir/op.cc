#include "engine/ir/op.h"

#include <array>

#include "engine/types/limits.h"

namespace telegrad {
namespace {

constexpr uint8_t T = kTensorLevel, K = kKernelLevel, P = kProgramLevel;

constexpr std::string_view kReduceNames[] = {"add", "mul", "max"};
constexpr std::string_view kScatterNames[] = {"set", "add", "mul", "min", "max"};
constexpr std::string_view kAxisNames[] = {"loop",   "thread", "reduce", "upcast", "unroll",
                                           "vector", "group",  "local",  "warp"};
constexpr std::string_view kSpaceNames[] = {"global", "local", "register"};
constexpr std::string_view kScopeNames[] = {"thread", "warp", "warpgroup", "workgroup", "cluster"};

constexpr auto kMmas = std::to_array<MmaInfo>({
#define MMA(name, text, unit, scope, threads, copies, m, n, k, a, b, c, async, by_rows) \
  {MmaKind::name, text,     MatrixUnit::unit, Scope::scope, threads, copies, m, n, k,   \
   DType::a,      DType::b, DType::c,         async,        by_rows},
#define FRAGMENT(...)
#include "engine/ir/mma.def"
#undef FRAGMENT
#undef MMA
});
constexpr std::string_view kMmaNames[] = {
#define MMA(name, text, ...) text,
#define FRAGMENT(...)
#include "engine/ir/mma.def"
#undef FRAGMENT
#undef MMA
};

// Far from where sums of a few such numbers overflow.
constexpr int64_t kMaxNumber = int64_t{1} << 48;
constexpr int64_t kMaxDevice = 255;

constexpr ArgField kSlot{"slot", ArgField::kInt, 0, kMaxParams - 1};
constexpr ArgField kDims{"dims", ArgField::kDims};
constexpr ArgField kReduceField{.name = "kind", .type = ArgField::kEnum, .names = kReduceNames};
constexpr ArgField kAxesField{"axes", ArgField::kList, INT64_MIN, INT64_MAX};

constexpr ArgField kScalarFields[] = {{"value", ArgField::kScalar}};
constexpr ArgField kParamFields[] = {kSlot, {"device", ArgField::kDevice, 0, kMaxDevice}, kDims};
constexpr ArgField kDimsFields[] = {kDims};
constexpr ArgField kAxesFields[] = {kAxesField};
constexpr ArgField kPairsFields[] = {{"pairs", ArgField::kList, INT64_MIN, INT64_MAX}};
constexpr ArgField kReduceFields[] = {kReduceField, kAxesField};
constexpr ArgField kRangeFields[] = {
    {"id", ArgField::kInt, INT64_MIN, INT64_MAX},
    {.name = "type", .type = ArgField::kEnum, .names = kAxisNames}};
constexpr ArgField kBufferFields[] = {
    {.name = "space", .type = ArgField::kEnum, .names = kSpaceNames},
    {"slot", ArgField::kInt, INT64_MIN, INT64_MAX},
    kDims};
constexpr ArgField kVarFields[] = {{"id", ArgField::kInt, 0, kMaxParams - 1},
                                   {"min", ArgField::kInt, -kMaxNumber, kMaxNumber},
                                   {"max", ArgField::kInt, -kMaxNumber, kMaxNumber},
                                   {"multiple", ArgField::kInt, 1, kMaxNumber}};
constexpr ArgField kNumberFields[] = {{"n", ArgField::kInt, 0, kMaxNumber}};
constexpr ArgField kKindFields[] = {kReduceField};
constexpr ArgField kScatterFields[] = {
    {.name = "kind", .type = ArgField::kEnum, .names = kScatterNames}};
constexpr ArgField kDevicesFields[] = {{"devices", ArgField::kList, 0, kMaxDevice}};
constexpr ArgField kScopeFields[] = {
    {.name = "scope", .type = ArgField::kEnum, .names = kScopeNames}};
constexpr ArgField kRoleFields[] = {{"first", ArgField::kInt, 0, 1024},
                                    {"count", ArgField::kInt, 1, 1024}};
constexpr ArgField kMBarrierFields[] = {kSlot, {"arrivals", ArgField::kInt, 1, 1 << 20}, kDims};
constexpr ArgField kBoxFields[] = {{"rows", ArgField::kInt, 1, 1 << 20},
                                   {"columns", ArgField::kInt, 1, 1 << 20},
                                   {"to_stride", ArgField::kInt, 0, kMaxNumber},
                                   {"from_stride", ArgField::kInt, 0, kMaxNumber}};
constexpr ArgField kMmaFields[] = {{.name = "kind", .type = ArgField::kEnum, .names = kMmaNames},
                                   {"a_stride", ArgField::kInt, 0, 1 << 20},
                                   {"b_stride", ArgField::kInt, 0, 1 << 20}};

constexpr ArgField kMatricesFields[] = {{"count", ArgField::kInt, 1, 4},
                                        {"transposed", ArgField::kInt, 0, 1}};

template <typename E, size_t N>
std::string_view NameOf(const std::string_view (&names)[N], E value) {
  const auto i = static_cast<size_t>(value);
  return i < N ? names[i] : "?";
}

}  // namespace

constexpr OpInfo internal::kOpTable[kNumOps] = {
#define OP(name, text, wire, min_src, max_src, arg, traits, elements, type, shape, levels, doc) \
  {Op::name,       text,                                                                        \
   wire,           min_src,                                                                     \
   max_src,        ArgKind::arg,                                                                \
   traits,         Elements::elements,                                                          \
   TypeRule::type, ShapeRule::shape,                                                            \
   levels,         doc},
#include "engine/ir/ops.def"
#undef OP
};

namespace {

// By wire number: the op, or kNumOps.
constexpr auto kByWire = [] {
  std::array<uint8_t, 256> out{};
  out.fill(kNumOps);
  for (const OpInfo& row : internal::kOpTable) out[row.wire] = static_cast<uint8_t>(row.op);
  return out;
}();

}  // namespace

std::span<const OpInfo> AllOps() { return internal::kOpTable; }

std::optional<Op> OpFromName(std::string_view name) {
  for (const OpInfo& row : internal::kOpTable) {
    if (row.name == name) return row.op;
  }
  return std::nullopt;
}

std::optional<Op> OpFromWire(int wire) {
  if (wire < 0 || wire >= static_cast<int>(kByWire.size()) || kByWire[wire] == kNumOps) {
    return std::nullopt;
  }
  return static_cast<Op>(kByWire[wire]);
}

std::span<const ArgField> ArgFields(ArgKind kind) {
  switch (kind) {
    case ArgKind::kNone:
      return {};
    case ArgKind::kScalar:
      return kScalarFields;
    case ArgKind::kParam:
      return kParamFields;
    case ArgKind::kDims:
      return kDimsFields;
    case ArgKind::kAxes:
      return kAxesFields;
    case ArgKind::kPairs:
      return kPairsFields;
    case ArgKind::kReduce:
      return kReduceFields;
    case ArgKind::kRange:
      return kRangeFields;
    case ArgKind::kBuffer:
      return kBufferFields;
    case ArgKind::kVar:
      return kVarFields;
    case ArgKind::kNumber:
      return kNumberFields;
    case ArgKind::kKind:
      return kKindFields;
    case ArgKind::kScatter:
      return kScatterFields;
    case ArgKind::kDevices:
      return kDevicesFields;
    case ArgKind::kScope:
      return kScopeFields;
    case ArgKind::kRole:
      return kRoleFields;
    case ArgKind::kMBarrier:
      return kMBarrierFields;
    case ArgKind::kBox:
      return kBoxFields;
    case ArgKind::kMma:
      return kMmaFields;
    case ArgKind::kMatrices:
      return kMatricesFields;
  }
  return {};
}

std::span<const MmaInfo> AllMmas() { return kMmas; }

std::string_view Name(ReduceKind kind) { return NameOf(kReduceNames, kind); }
std::string_view Name(ScatterKind kind) { return NameOf(kScatterNames, kind); }
std::string_view Name(AxisType type) { return NameOf(kAxisNames, type); }
std::string_view Name(AddressSpace space) { return NameOf(kSpaceNames, space); }
std::string_view Name(Scope scope) { return NameOf(kScopeNames, scope); }

}  // namespace telegrad
