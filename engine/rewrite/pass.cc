#include "engine/rewrite/pass.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/base/status.h"
#include "engine/ir/verify.h"

namespace telegrad {
namespace {

absl::Status In(const PassRow& row, const absl::Status& status) {
  return absl::Status(status.code(), StrCat(row.name, ": ", status.message()));
}

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

using Pieces = absl::StatusOr<std::vector<Piece>>;

Pieces One(Piece piece) {
  std::vector<Piece> pieces;
  pieces.push_back(std::move(piece));
  return pieces;
}

Pieces Run(const PassRow& row, PassContext& context, Piece piece) {
  const bool takes_program = std::holds_alternative<CheckPass>(row.run);
  if (takes_program != (piece.program != nullptr) || (piece.levels & ~row.from) != 0) {
    return InvalidArgument("works on ", takes_program ? "programs" : "graphs", " of the level ",
                           LevelNames(row.from), ", got a ",
                           piece.program != nullptr ? "program" : "graph", " of the level ",
                           LevelNames(piece.levels));
  }
  const auto replace_root = [&](UOp root) -> Pieces {
    TG_RETURN_IF_ERROR(context.graph()->status());
    TG_RETURN_IF_ERROR(context.SpendNodes());
    if (!root.valid()) return Internal("returned no node and no error");
    piece.root = root;
    return One(std::move(piece));
  };
  return std::visit(
      Overloaded{
          [&](Sweep) -> Pieces {
            return replace_root(context.rewriter(row.tables).Rewrite(piece.root));
          },
          [&](GraphPass run) -> Pieces { return replace_root(run(context, piece.root)); },
          [&](PiecePass run) -> Pieces {
            TG_ASSIGN_OR_RETURN(const UOp root, run(context, &piece));
            return replace_root(root);
          },
          [&](SplitPass run) -> Pieces { return run(context, piece); },
          [&](LinearPass run) -> Pieces {
            TG_ASSIGN_OR_RETURN(Program program, run(context, piece));
            piece.program = std::make_shared<const Program>(std::move(program));
            piece.root = {};
            return One(std::move(piece));
          },
          [&](CheckPass run) -> Pieces {
            TG_RETURN_IF_ERROR(run(context, *piece.program));
            return One(std::move(piece));
          },
      },
      row.run);
}

}  // namespace

Rewriter& PassContext::rewriter(RuleTables tables) {
  for (const Entry& entry : rewriters_) {
    if (std::ranges::equal(entry.tables, tables)) return *entry.rewriter;
  }
  rewriters_.push_back({{tables.begin(), tables.end()},
                        std::make_unique<Rewriter>(graph_, tables, budget_, shapes_)});
  rewriters_.back().rewriter->Observe(observer_);
  return *rewriters_.back().rewriter;
}

void PassContext::Observe(RewriteObserver* observer) {
  observer_ = observer;
  for (const Entry& entry : rewriters_) entry.rewriter->Observe(observer);
}

std::string LevelNames(uint8_t levels) {
  static constexpr std::pair<Level, std::string_view> kNames[] = {
      {kTensorLevel, "tensor"}, {kKernelLevel, "kernel"}, {kProgramLevel, "program"}};
  std::string text;
  for (const auto& [level, name] : kNames) {
    if ((levels & level) != 0) StrAppend(&text, text.empty() ? "" : "|", name);
  }
  return text;
}

absl::Status PassContext::SpendNodes() {
  const uint32_t made = graph_->size() - std::exchange(spent_, graph_->size());
  TG_RETURN_IF_ERROR(budget_->SpendNodes(made));
  return held_.GrowTo(graph_->bytes());
}

absl::Status Verify(const Piece& piece) {
  if (piece.program != nullptr) return Verify(*piece.program);
  if (std::has_single_bit(piece.levels)) {
    return Verify(piece.root, static_cast<Level>(piece.levels));
  }
  for (uint32_t id : PostOrder(piece.root)) {
    const Op op = piece.graph->op(id);
    if ((Info(op).levels & piece.levels) == 0) {
      return InvalidArgument("node ", id, " (", Name(op), "): belongs to another level");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Piece>> RunPass(const PassRow& row, PassContext& context, Piece piece,
                                           const PassOptions& options) {
  if (std::ranges::find(options.disabled, row.name) != options.disabled.end()) {
    return One(std::move(piece));
  }
  if (absl::Status status = context.budget()->CheckTime(); !status.ok()) return In(row, status);
  const auto begin = std::chrono::steady_clock::now();
  Pieces pieces = Run(row, context, std::move(piece));
  if (options.times != nullptr) {
    options.times->push_back({row.name, std::chrono::steady_clock::now() - begin});
  }
  if (!pieces.ok()) return In(row, pieces.status());
  for (Piece& p : *pieces) {
    if (row.to != row.from) p.levels = row.to;
    if (options.dump) options.dump(row, p);
    if (!options.verify) continue;
    if (absl::Status status = options.verify(p); !status.ok()) return In(row, status);
  }
  return pieces;
}

absl::StatusOr<Piece> RunPasses(std::span<const PassRow> rows, PassContext& context, Piece piece,
                                const PassOptions& options) {
  for (const PassRow& row : rows) {
    TG_ASSIGN_OR_RETURN(std::vector<Piece> pieces,
                        RunPass(row, context, std::move(piece), options));
    if (pieces.size() != 1) return Internal(row.name, ": split what it was to lower");
    piece = std::move(pieces.front());
  }
  return piece;
}

}  // namespace telegrad
