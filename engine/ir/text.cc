// Printing. A label is a position in the printed order; a side table maps node ids to labels.
#include "engine/ir/text.h"

#include <charconv>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

constexpr uint32_t kNoLabel = 0xffffffff;

template <typename Float>
void AppendFloat(std::string* out, Float value) {
  if (std::isnan(value)) {
    *out += "nan";
  } else if (std::isinf(value)) {
    *out += value < 0 ? "-inf" : "inf";
  } else {
    char digits[64];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
    out->append(digits, end);
  }
}

void AppendScalar(std::string* out, DType dtype, int64_t word) {
  if (dtype == DType::kFloat32) {
    AppendFloat(out, static_cast<float>(ScalarAsDouble(dtype, word)));
  } else if (IsFloat(dtype)) {
    AppendFloat(out, ScalarAsDouble(dtype, word));
  } else if (IsBool(dtype)) {
    *out += word != 0 ? "true" : "false";
  } else if (IsUnsigned(dtype)) {
    StrAppend(out, static_cast<uint64_t>(word));
  } else {
    StrAppend(out, word);
  }
}

void AppendArg(std::string* out, UOp u) {
  size_t at = 0;
  for (const ArgField& field : ArgFields(Info(u.op()).arg)) {
    const auto rest = u.arg().subspan(at);
    switch (field.type) {
      case ArgField::kScalar:
        *out += ' ';
        AppendScalar(out, u.dtype(), rest[0]);
        break;
      case ArgField::kInt:
        StrAppend(out, " ", field.name, "=", rest[0]);
        break;
      case ArgField::kDevice:
        if (rest[0] != 0) StrAppend(out, " ", field.name, "=", rest[0]);
        break;
      case ArgField::kEnum:
        StrAppend(out, " ", field.name, "=", field.names[static_cast<size_t>(rest[0])]);
        break;
      case ArgField::kList:
        StrAppend(out, " ", field.name, "=", ToString(rest));
        break;
      case ArgField::kDims:  // the shape says them, but for what a symbolic one is
        if (u.symbolic()) StrAppend(out, " ", field.name, "=", ToString(rest));
        break;
    }
    ++at;
  }
}

// `labels(id)` is what a source is called.
template <typename Labels>
void AppendNode(std::string* out, UOp u, uint32_t label, Labels labels) {
  StrAppend(out, "%", label, " = ", Name(u.op()));
  if (u.dtype() != DType::kVoid) StrAppend(out, " ", Name(u.dtype()));
  if (!u.shape().empty()) StrAppend(out, " ", ToString(u.shape()));
  for (uint32_t src : u.src_ids()) {
    // Only an order that the verifier rejects names a source before it appears.
    const uint32_t l = labels(src);
    StrAppend(out, l == kNoLabel ? " %?" : " %", l == kNoLabel ? src : l);
  }
  AppendArg(out, u);
}

// One line for each node of `order`.
void AppendNodes(std::string* out, const Graph& graph, std::span<const uint32_t> order) {
  NodeMap<uint32_t> labels(graph, kNoLabel);
  uint32_t next = 0;
  for (uint32_t id : order) {
    const uint32_t label = next++;
    AppendNode(out, graph.at(id), label, [&](uint32_t src) { return labels[src]; });
    *out += '\n';
    labels[id] = label;
  }
}

}  // namespace

std::string Print(UOp root) {
  if (!root.valid()) return "(no graph)\n";
  std::string out;
  AppendNodes(&out, *root.graph(), PostOrder(root));
  return out;
}

std::string PrintNode(UOp u) {
  std::string out;
  AppendNode(&out, u, u.id(), [](uint32_t src) { return src; });
  return out;
}

std::string Print(const Program& program) {
  std::string out = StrCat("program ", program.name, " iterations=", program.iterations, " flops=");
  AppendFloat(&out, program.flops);
  out += " bytes=";
  AppendFloat(&out, program.bytes);
  if (program.warp != 1) StrAppend(&out, " warp=", program.warp);
  out += " arguments=[";
  for (size_t i = 0; i < program.arguments.size(); ++i) {
    const Program::Argument& a = program.arguments[i];
    StrAppend(&out, i == 0 ? "" : ", ", Name(a.dtype), " ", a.elements, a.read ? " read" : "",
              a.written ? " write" : "");
  }
  out += "]\n";
  if (program.graph != nullptr) AppendNodes(&out, *program.graph, program.order);
  return out;
}

}  // namespace telegrad
