// What covers an op is not claimed but tried: an evaluator or renderer covers it if it takes the
// op's example (op_examples.h).
#include "engine/tools/ops_doc.h"

#include <map>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/ir/op.h"
#include "engine/render/llvm.h"
#include "engine/tools/evaluate.h"
#include "engine/tools/op_examples.h"
#include "engine/types/dtype.h"

namespace telegrad {
namespace {

constexpr TinygradRow kTinygrad[] = {
#define TINYGRAD(name, ops, note) {name, ops, note},
#include "engine/ir/tinygrad.def"
#undef TINYGRAD
};

std::string_view Words(Elements elements) {
  switch (elements) {
    case Elements::kAny:
      return "any";
    case Elements::kCompute:
      return "no storage type";
    case Elements::kArith:
      return "integer, float";
    case Elements::kFloatOnly:
      return "float";
    case Elements::kIntOnly:
      return "integer";
    case Elements::kBoolOnly:
      return "bool";
    case Elements::kLogic:
      return "integer, bool";
    case Elements::kU64Only:
      return "u64";
    case Elements::kI32Only:
      return "i32";
  }
  return "";
}

std::string_view Words(TypeRule rule) {
  switch (rule) {
    case TypeRule::kGiven:
      return "as said";
    case TypeRule::kSame:
      return "that of all sources";
    case TypeRule::kFirst:
      return "that of source 0";
    case TypeRule::kThird:
      return "that of source 2";
    case TypeRule::kCompare:
      return "bool; sources share one";
    case TypeRule::kSelect:
      return "that of sources 1 and 2";
    case TypeRule::kIndexType:
      return "i64";
    case TypeRule::kTupleType:
      return "that of the element";
    case TypeRule::kVoid:
      return "none";
  }
  return "";
}

std::string_view Words(ShapeRule rule) {
  switch (rule) {
    case ShapeRule::kScalarShape:
      return "scalar";
    case ShapeRule::kNoShape:
      return "none";
    case ShapeRule::kArgShape:
    case ShapeRule::kReshapeTo:
    case ShapeRule::kExpandTo:
      return "the dims";
    case ShapeRule::kBufferShape:
      return "[dims]";
    case ShapeRule::kElementwise:
      return "elementwise";
    case ShapeRule::kFirstShape:
    case ShapeRule::kSameAxes:
      return "that of source 0";
    case ShapeRule::kSameShape:
      return "that of all sources";
    case ShapeRule::kPermuteBy:
      return "permuted";
    case ShapeRule::kPadTo:
    case ShapeRule::kShrinkTo:
      return "the sizes";
    case ShapeRule::kCatAxis:
      return "the axis summed";
    case ShapeRule::kBitcastShape:
      return "elementwise, but for the last axis";
    case ShapeRule::kReduceAxes:
      return "1 on the axes";
    case ShapeRule::kGatherRows:
      return "the index's, then a row's";
    case ShapeRule::kScatterRows:
      return "that of source 0";
    case ShapeRule::kTupleShape:
      return "that of the element";
    case ShapeRule::kUnshardAxis:
      return "the axis times the instances";
    case ShapeRule::kIndexShape:
      return "that of source 1";
    case ShapeRule::kMmaShape:
      return "the fragment's";
    case ShapeRule::kMatrixShape:
      return "twice the count";
  }
  return "";
}

std::string Sources(const OpInfo& info) {
  if (info.max_src == info.min_src) return StrCat(info.min_src);
  if (info.max_src < 0) return StrCat(info.min_src, " or more");
  return StrCat(info.min_src, " to ", info.max_src);
}

std::string Argument(ArgKind kind) {
  std::vector<std::string> fields;
  for (const ArgField& field : ArgFields(kind)) {
    std::string text(field.name);
    if (field.type == ArgField::kEnum) {
      std::vector<std::string> names(field.names.begin(), field.names.end());
      StrAppend(&text, ": ", absl::StrJoin(names, " "));
    }
    fields.push_back(std::move(text));
  }
  return absl::StrJoin(fields, "; ");
}

std::string Levels(uint8_t levels) {
  std::string text;
  for (const auto& [level, letter] : {std::pair(kTensorLevel, "T"), std::pair(kKernelLevel, "K"),
                                      std::pair(kProgramLevel, "P")}) {
    if ((levels & level) != 0) text += letter;
  }
  return text;
}

std::string Cell(std::string_view text) {
  return absl::StrReplaceAll(ToAbsl(text), {{"|", "\\|"}});
}

// "T P L" by op: the tensor evaluator, the program evaluator, the LLVM renderer.
absl::StatusOr<std::map<Op, std::string>> Coverage() {
  TG_ASSIGN_OR_RETURN(const std::vector<OpExample> examples, AllOpExamples());
  Target target;
  target.arch = "x86-64";
  std::map<Op, std::string> covered;
  for (const OpExample& example : examples) {
    if (const absl::Status status = Verify(example.piece); !status.ok()) {
      return Internal("the example of ", Name(example.op), " on the ", LevelNames(example.level),
                      " level: ", status.message());
    }
    Budget budget;
    std::string& letters = covered[example.op];
    if (EvaluatePieces({example.piece}, 1, &budget).ok()) letters += Levels(example.level);
    if (example.piece.program != nullptr && RenderLlvm(*example.piece.program, target).ok()) {
      letters += "L";
    }
  }
  return covered;
}

std::string DTypeTable() {
  std::string text =
      "| type | wire | bits | kind | exponent, mantissa, bias | NumPy | ONNX | safetensors |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const DTypeInfo& info : AllDTypes()) {
    if (info.dtype == DType::kVoid) continue;
    static constexpr std::string_view kKinds[] = {"", "bool", "signed", "unsigned", "float"};
    std::string layout;
    if (IsFloat(info.dtype)) {
      layout = StrCat(info.exponent_bits, ", ", info.mantissa_bits, ", ", info.bias);
    }
    StrAppend(&text, "| `", info.text, "` | ", info.wire, " | ", info.bits, " | ",
              kKinds[static_cast<size_t>(info.kind)], IsStorage(info.dtype) ? ", storage" : "",
              " | ", layout, " | ", Cell(info.numpy), " | ", info.onnx, " | ", info.safetensors,
              " |\n");
  }
  return text;
}

absl::StatusOr<std::string> OpTable() {
  TG_ASSIGN_OR_RETURN(const auto covered, Coverage());
  std::string text =
      "| op | wire | levels | covered | sources | argument | first source | type | shape | meaning "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const OpInfo& info : AllOps()) {
    const auto it = covered.find(info.op);
    StrAppend(&text, "| `", info.name, "` | ", info.wire, " | ", Levels(info.levels), " | ",
              it == covered.end() ? "" : it->second, " | ", Sources(info), " | ",
              Argument(info.arg), " | ", Words(info.elements), " | ", Words(info.type_rule), " | ",
              Words(info.shape_rule), " | ", Cell(info.doc), " |\n");
  }
  return text;
}

absl::StatusOr<std::string> TinygradTable() {
  std::string text = "| tinygrad | Telegrad | how |\n|---|---|---|\n";
  for (const TinygradRow& row : kTinygrad) {
    std::string ours;
    for (absl::string_view name : absl::StrSplit(ToAbsl(row.ops), ' ', absl::SkipEmpty())) {
      if (!OpFromName(ToStd(name))) {
        return Internal("tinygrad.def: ", row.name, ": there is no op \"", ToStd(name), "\"");
      }
      StrAppend(&ours, ours.empty() ? "`" : ", `", ToStd(name), "`");
    }
    StrAppend(&text, "| `", row.name, "` | ", ours.empty() ? "none" : ours, " | ", Cell(row.note),
              " |\n");
  }
  return text;
}

}  // namespace

std::span<const TinygradRow> AllTinygradRows() { return kTinygrad; }

absl::StatusOr<std::string> OpsDocument() {
  TG_ASSIGN_OR_RETURN(const std::string ops, OpTable());
  TG_ASSIGN_OR_RETURN(const std::string tinygrad, TinygradTable());
  return StrCat(R"(# Ops and element types

This page is the reference of element types and operations for clients that build graphs. `telegrad-opt --ops-doc` writes
it from the tables `engine/ir/ops.def`, `engine/types/dtypes.def` and `engine/ir/tinygrad.def`; a test compares it.

## Element types

Storage types are read and written, cast, bitcast, moved and selected; they have no arithmetic. Types under 8 bits are
packed, the first element in the lowest bits of a byte.

)",
                DTypeTable(), R"(
## Ops

Levels: T tensor (what a client may send), K kernel, P program. Covered by (each op is tried on one example): T the
reference evaluator of tensor graphs, P that of programs, L the renderer of LLVM IR for CPUs; lowering replaces ops that
a renderer does not cover. "First source" has the types that the first source may have (without sources: the node).

)",
                ops, R"(
## tinygrad's ops

The table has the form that Telegrad gives to each op of tinygrad's tensor graphs.

)",
                tinygrad);
}

}  // namespace telegrad
