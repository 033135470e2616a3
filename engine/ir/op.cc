#include "engine/ir/op.h"

#include <array>

namespace telegrad {
namespace {

constexpr uint8_t T = kTensorLevel, K = kKernelLevel, P = kProgramLevel;

constexpr auto kTable = std::to_array<OpInfo>({
#define OP(name, text, wire, min_src, max_src, arg, traits, elements, type, shape, levels, doc) \
  {Op::name,       text,                                                                        \
   wire,           min_src,                                                                     \
   max_src,        ArgKind::arg,                                                                \
   traits,         Elements::elements,                                                          \
   TypeRule::type, ShapeRule::shape,                                                            \
   levels,         doc},
#include "engine/ir/ops.def"
#undef OP
});

constexpr std::string_view kReduceNames[] = {"add", "mul", "max"};
constexpr std::string_view kAxisNames[] = {"loop",   "thread", "reduce",
                                           "upcast", "unroll", "vector"};
constexpr std::string_view kSpaceNames[] = {"global", "local", "register"};

template <typename E, size_t N>
std::string_view NameOf(const std::string_view (&names)[N], E value) {
  const auto i = static_cast<size_t>(value);
  return i < N ? names[i] : "?";
}

}  // namespace

std::span<const OpInfo> AllOps() { return kTable; }
const OpInfo& Info(Op op) { return kTable[static_cast<size_t>(op)]; }

std::optional<Op> OpFromName(std::string_view name) {
  for (const OpInfo& row : kTable) {
    if (row.name == name) return row.op;
  }
  return std::nullopt;
}

std::optional<Op> OpFromWire(int wire) {
  for (const OpInfo& row : kTable) {
    if (row.wire == wire) return row.op;
  }
  return std::nullopt;
}

std::string_view Name(ReduceKind kind) { return NameOf(kReduceNames, kind); }
std::string_view Name(AxisType type) { return NameOf(kAxisNames, type); }
std::string_view Name(AddressSpace space) { return NameOf(kSpaceNames, space); }

}  // namespace telegrad
