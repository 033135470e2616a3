// Nodes never change and keep their ids, so a step needs only two handles; the texts are made when
// the page is. The page holds every distinct line once; a text is a list of line numbers, and what
// differs is found by the browser.
#include "engine/tools/trace.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"
#include "engine/base/strings.h"
#include "engine/ir/text.h"
#include "engine/tools/pieces.h"
#include "engine/tools/trace_page.h"

namespace telegrad {
namespace {

constexpr size_t kLinesOfAStep = 200;
constexpr size_t kLinesOfAPass = 4000;

std::string Cut(size_t left_out) { return StrCat("# ", left_out, " more nodes are not shown"); }

// The text of a piece, with ids as labels where it is a graph, so that a node keeps its line.
std::vector<std::string> LinesOf(const Piece& piece) {
  std::vector<std::string> lines;
  if (piece.program != nullptr) {
    lines = absl::StrSplit(Print(*piece.program), '\n', absl::SkipEmpty());
  } else {
    for (uint32_t id : PostOrder(piece.root)) lines.push_back(PrintNode(piece.graph->at(id)));
  }
  if (lines.size() > kLinesOfAPass) {
    const size_t left_out = lines.size() - kLinesOfAPass;
    lines.resize(kLinesOfAPass);
    lines.push_back(Cut(left_out));
  }
  return lines;
}

// The nodes nearest to `root` that it depends on, and itself last.
std::vector<std::string> LinesBelow(UOp root) {
  std::vector<uint32_t> near{root.id()};
  absl::flat_hash_set<uint32_t> seen{root.id()};
  size_t left_out = 0;
  for (size_t i = 0; i < near.size(); ++i) {
    for (uint32_t s : root.graph()->src(near[i])) {
      if (!seen.insert(s).second) continue;
      if (near.size() < kLinesOfAStep) {
        near.push_back(s);
      } else {
        ++left_out;
      }
    }
  }
  std::ranges::sort(near);
  std::vector<std::string> lines;
  if (left_out > 0) lines.push_back(Cut(left_out));
  for (uint32_t id : near) lines.push_back(PrintNode(root.graph()->at(id)));
  return lines;
}

// A JSON string that may stand within a script element.
std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      StrAppend(&out, "\\", std::string(1, c));
    } else if (c == '<' || c == '>' || c == '&' || static_cast<unsigned char>(c) < 0x20) {
      StrAppend(&out, "\\u00", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Distinct strings, numbered.
class Strings {
 public:
  size_t Number(const std::string& text) {
    const auto [it, added] = numbers_.emplace(text, numbers_.size());
    if (added) StrAppend(&json_, json_.empty() ? "" : ",\n", Quote(text));
    return it->second;
  }
  std::string Numbers(const std::vector<std::string>& texts) {
    std::string out = "[";
    for (const std::string& text : texts) {
      StrAppend(&out, out.size() > 1 ? "," : "", Number(text));
    }
    return out + "]";
  }
  std::string Json() const { return StrCat("[", json_, "]"); }

 private:
  absl::flat_hash_map<std::string, size_t> numbers_;
  std::string json_;
};

void ReplaceAll(std::string* text, std::string_view mark, std::string_view with) {
  for (size_t at = text->find(mark); at != std::string::npos;
       at = text->find(mark, at + with.size())) {
    text->replace(at, mark.size(), with);
  }
}

}  // namespace

void Trace::BeginPass(const PassRow& row, const Piece& piece) {
  passes_.push_back({StrCat(row.name, " ", piece.name), LinesOf(piece), {}});
  steps_.push_back({passes_.size() - 1, nullptr, nullptr, {}, {}});
  if (piece.graph != nullptr) graphs_.push_back(piece.graph);
}

void Trace::OnTry(const RuleTry& what) {
  if (!what.after.valid() || ++rewrites_ > limit_) return;
  steps_.push_back({passes_.size() - 1, what.table, what.rule, what.before, what.after});
}

void Trace::EndPass(const std::vector<Piece>& pieces) {
  PassStep& pass = passes_.back();
  for (const Piece& piece : pieces) {
    if (pieces.size() > 1) pass.after.push_back(StrCat("# ", piece.name));
    const std::vector<std::string> lines = LinesOf(piece);
    pass.after.insert(pass.after.end(), lines.begin(), lines.end());
  }
}

std::string Trace::Html(std::string_view title) const {
  Strings lines;
  std::string steps;
  for (const Step& step : steps_) {
    const PassStep& pass = passes_[step.pass];
    StrAppend(&steps, steps.empty() ? "" : ",\n", "[", lines.Number(pass.name), ",");
    if (step.rule == nullptr) {
      StrAppend(&steps, "-1,-1,", lines.Numbers(pass.before), ",", lines.Numbers(pass.after), "]");
      continue;
    }
    StrAppend(&steps, lines.Number(StrCat(step.table->file(), ":", step.rule->line)), ",",
              lines.Number(Text(*step.rule)), ",", lines.Numbers(LinesBelow(step.before)), ",",
              lines.Numbers(LinesBelow(step.after)), "]");
  }
  const int64_t left_out = std::max<int64_t>(0, rewrites_ - limit_);
  std::string html(kTracePage);
  ReplaceAll(&html, "@TITLE@", Quote(title));
  ReplaceAll(&html, "@LEFT_OUT@", StrCat(left_out));
  ReplaceAll(&html, "@STEPS@", StrCat("[", steps, "]"));
  ReplaceAll(&html, "@STRINGS@", lines.Json());
  return html;
}

}  // namespace telegrad
