#include "engine/tools/explain.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "engine/ir/text.h"
#include "engine/rewrite/match.h"
#include "engine/tools/pass_table.h"

namespace telegrad {
namespace {

struct Row {
  const RuleTable* table;
  const Rule* rule;
};

// Tables that are made for several types share their name.
absl::StatusOr<std::vector<Row>> FindRules(std::string_view name) {
  const size_t colon = name.rfind(':');
  const std::string_view table_name = name.substr(0, colon);
  int line = 0;
  if (colon != std::string_view::npos && !absl::SimpleAtoi(ToAbsl(name.substr(colon + 1)), &line)) {
    return InvalidArgument("\"", name, "\": expected a line number after the colon");
  }
  std::set<std::string> known;
  bool found = false;
  std::vector<Row> rows;
  for (const RuleTable* table : AllRuleTables()) {
    known.emplace(table->name());
    if (table->name() != table_name && table->file() != table_name) continue;
    found = true;
    for (const Rule& rule : table->rules()) {
      if (line == 0 || rule.line == line) rows.push_back({table, &rule});
    }
  }
  if (!found) {
    return InvalidArgument("there is no rule table \"", table_name, "\", expected one of ",
                           absl::StrJoin(known, ", "));
  }
  if (rows.empty()) return InvalidArgument(table_name, " has no row in line ", line);
  return rows;
}

// The nodes of `piece`, each at the id that is its label.
absl::StatusOr<std::vector<UOp>> LabelledNodes(const Piece& piece, Graph* graph) {
  const Graph& from = piece.program != nullptr ? *piece.program->graph : *piece.graph;
  const std::vector<uint32_t> order =
      piece.program != nullptr ? piece.program->order : PostOrder(piece.root);
  NodeMap<uint32_t> copied(from);
  std::vector<UOp> nodes, src;
  for (uint32_t id : order) {
    src.clear();
    for (uint32_t s : from.src(id)) src.push_back(graph->at(copied[s]));
    nodes.push_back(graph->Make(from.op(id), from.dtype(id), src, from.arg(id)));
    TG_RETURN_IF_ERROR(graph->status());
    copied[id] = nodes.back().id();
  }
  return nodes;
}

bool MayMatch(const Rule& rule, UOp u) {
  const Token& top = rule.lhs[0];
  return top.kind == Token::kVar ? Is(u.op(), kAlu) : top.kind == Token::kOp && top.op == u.op();
}

}  // namespace

absl::StatusOr<std::string> ExplainRules(const Piece& piece, std::string_view rules,
                                         std::optional<uint32_t> node, Budget* budget) {
  TG_ASSIGN_OR_RETURN(const std::vector<Row> rows, FindRules(rules));
  Graph graph;
  TG_ASSIGN_OR_RETURN(const std::vector<UOp> nodes, LabelledNodes(piece, &graph));
  if (node && *node >= nodes.size()) {
    return InvalidArgument("there is no node %", *node, ", the last is %", nodes.size() - 1);
  }
  std::string text;
  for (const UOp u : nodes) {
    if (node && u.id() != *node) continue;
    size_t others = 0;
    std::string said;
    for (const auto& [table, rule] : rows) {
      if (!MayMatch(*rule, u) && (!node || rows.size() > 1)) {
        ++others;
        continue;
      }
      Rewriter b(&graph, {table}, budget);
      StrAppend(&said, "  ", table->file(), ":", rule->line, "  ", Text(*rule), "\n      ",
                Explain(*rule, u, b), "\n");
      TG_RETURN_IF_ERROR(graph.status());
    }
    if (!said.empty() || node) StrAppend(&text, PrintNode(u), "\n", said);
    if (node && others > 0) StrAppend(&text, "  rows for other ops: ", others, "\n");
  }
  return text.empty() ? "no node has an op that the rows are for\n" : text;
}

}  // namespace telegrad
