// Elementwise ops all have the same example but for their types; the others are written out.
#include "engine/tools/op_examples.h"

#include <optional>

#include "engine/base/status.h"
#include "engine/tools/op_example_texts.h"
#include "engine/tools/pieces.h"

namespace telegrad {
namespace {

DType TypeFor(Elements elements) {
  switch (elements) {
    case Elements::kIntOnly:
    case Elements::kI32Only:
    case Elements::kLogic:
      return DType::kInt32;
    case Elements::kBoolOnly:
      return DType::kBool;
    case Elements::kU64Only:
      return DType::kUInt64;
    case Elements::kAny:
    case Elements::kCompute:
    case Elements::kArith:
    case Elements::kFloatOnly:
      return DType::kFloat32;
  }
  return DType::kFloat32;
}

// The types of the sources, then that which a cast gives.
std::vector<DType> TypesFor(const OpInfo& info) {
  std::vector<DType> types(info.min_src, TypeFor(info.elements));
  for (int i = 1; info.type_rule == TypeRule::kSelect && i < info.min_src; ++i) {
    types[i] = DType::kFloat32;
  }
  types.push_back(DType::kInt32);
  return types;
}

constexpr int64_t kLanes = 4;

// slot 0 = op(slot 1, ...).
Piece ElementwiseGraph(const OpInfo& info) {
  Piece piece;
  piece.graph = std::make_shared<Graph>();
  Graph& g = *piece.graph;
  const std::vector<DType> types = TypesFor(info);
  std::vector<UOp> src;
  for (int i = 0; i < info.min_src; ++i) src.push_back(g.Param(i + 1, types[i], Shape{kLanes}));
  const UOp value = g.Make(info.op, types.back(), src);
  if (!value.valid()) return piece;
  const UOp target = g.Param(0, value.dtype(), Shape{kLanes});
  piece.root = g.Make(Op::kSink, {g.Make(Op::kStore, {target, value})});
  return piece;
}

Piece ElementwiseProgram(const OpInfo& info) {
  auto graph = std::make_shared<Graph>();
  Graph& g = *graph;
  auto program = std::make_shared<Program>();
  program->name = "elementwise";
  const std::vector<DType> types = TypesFor(info);
  const auto add = [&](UOp u) {
    if (u.valid()) program->order.push_back(u.id());
    return u;
  };
  const UOp lanes = add(g.Make(Op::kIota, DType::kInt64, {}, {kLanes}));
  const auto address = [&](int slot, DType dtype) {
    const UOp param = add(g.Param(slot, dtype, Shape{kLanes}));
    return add(g.Make(Op::kIndex, {param, lanes}));
  };
  std::vector<UOp> src;
  for (int i = 0; i < info.min_src; ++i) {
    src.push_back(add(g.Make(Op::kLoad, {address(i + 1, types[i])})));
  }
  const UOp value = add(g.Make(info.op, types.back(), src));
  Piece piece;
  piece.levels = kProgramLevel;
  if (!value.valid()) return piece;
  add(g.Make(Op::kStore, {address(0, value.dtype()), value}));
  program->arguments.push_back({value.dtype(), kLanes, false, true});
  for (int i = 0; i < info.min_src; ++i) {
    program->arguments.push_back({types[i], kLanes, true, false});
  }
  program->graph = std::move(graph);
  piece.arguments = program->arguments;
  piece.program = std::move(program);
  return piece;
}

bool IsNamed(std::string_view names, std::string_view name) {
  while (true) {
    const size_t end = names.find("__");
    if (names.substr(0, end) == name) return true;
    if (end == std::string_view::npos) return false;
    names.remove_prefix(end + 2);
  }
}

}  // namespace

absl::StatusOr<std::vector<OpExample>> AllOpExamples() {
  TG_ASSIGN_OR_RETURN(const std::vector<Piece> graphs, ParsePieces(kTensorExamples, -1));
  TG_ASSIGN_OR_RETURN(const std::vector<Piece> programs, ParsePieces(kProgramExamples, -1));
  std::vector<OpExample> examples;
  for (const OpInfo& info : AllOps()) {
    for (const Level level : {kTensorLevel, kProgramLevel}) {
      if (!IsAt(info.op, level)) continue;
      if (Is(info.op, kAlu)) {
        examples.push_back(
            {info.op, level,
             level == kTensorLevel ? ElementwiseGraph(info) : ElementwiseProgram(info)});
        continue;
      }
      const Piece* found = nullptr;
      for (const Piece& piece : level == kTensorLevel ? graphs : programs) {
        if (found == nullptr && IsNamed(piece.name, info.name)) found = &piece;
      }
      if (found == nullptr) {
        return Internal("no example of ", info.name, " on the ", LevelNames(level), " level");
      }
      examples.push_back({info.op, level, *found});
    }
  }
  return examples;
}

}  // namespace telegrad
