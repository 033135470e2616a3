// Parsing, line by line. A Cursor reads one line; every failure says the line, what was expected
// and what was found instead. Nodes go through Graph::Make, so the op table's rules are checked as
// for any other graph.
#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"

namespace telegrad {
namespace {

bool IsWordChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '+' || c == '-';
}

class Cursor {
 public:
  Cursor(std::string_view rest, int line) : rest_(rest), line_(line) {}

  bool AtEnd() {
    SkipSpace();
    return rest_.empty();
  }
  bool NextIs(char c) { return !AtEnd() && rest_[0] == c; }
  bool TryLiteral(std::string_view literal) {
    SkipSpace();
    if (!rest_.starts_with(literal)) return false;
    rest_.remove_prefix(literal.size());
    return true;
  }
  absl::Status Literal(std::string_view literal) {
    if (TryLiteral(literal)) return absl::OkStatus();
    return Expected(StrCat("'", literal, "'"));
  }
  // The next word, possibly empty; Peek does not consume it.
  std::string_view Peek() {
    SkipSpace();
    size_t n = 0;
    while (n < rest_.size() && IsWordChar(rest_[n])) ++n;
    return rest_.substr(0, n);
  }
  std::string_view Word() {
    const std::string_view word = Peek();
    rest_.remove_prefix(word.size());
    return word;
  }
  template <typename Number>
  absl::StatusOr<Number> ReadNumber(std::string_view what) {
    const std::string_view word = Peek();
    Number value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (word.empty() || error != std::errc() || end != word.data() + word.size()) {
      return Expected(what);
    }
    rest_.remove_prefix(word.size());
    return value;
  }
  absl::StatusOr<std::vector<int64_t>> List() {
    TG_RETURN_IF_ERROR(Literal("["));
    std::vector<int64_t> list;
    if (TryLiteral("]")) return list;
    do {
      TG_ASSIGN_OR_RETURN(const int64_t value, ReadNumber<int64_t>("an integer"));
      list.push_back(value);
    } while (TryLiteral(","));
    TG_RETURN_IF_ERROR(Literal("]"));
    return list;
  }
  absl::StatusOr<int64_t> OneOf(std::span<const std::string_view> names) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (Peek() == names[i]) {
        Word();
        return static_cast<int64_t>(i);
      }
    }
    std::string list;
    for (std::string_view name : names) StrAppend(&list, list.empty() ? "" : ", ", name);
    return Expected(StrCat("one of ", list));
  }

  absl::Status Expected(std::string_view what) {
    SkipSpace();
    return Error("expected ", what, ", got ",
                 rest_.empty() ? "the end of the line" : StrCat("'", rest_.substr(0, 24), "'"));
  }
  template <typename... Args>
  absl::Status Error(const Args&... args) const {
    return InvalidArgument("line ", line_, ": ", args...);
  }

 private:
  void SkipSpace() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\r')) {
      rest_.remove_prefix(1);
    }
  }

  std::string_view rest_;
  int line_;
};

// Splits text into lines without comments, skipping blank ones.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}

  std::optional<Cursor> Next() {
    while (!text_.empty()) {
      const size_t end = text_.find('\n');
      std::string_view line = text_.substr(0, end);
      text_ = end == std::string_view::npos ? std::string_view{} : text_.substr(end + 1);
      ++number_;
      line = line.substr(0, line.find('#'));
      Cursor cursor(line, number_);
      if (!cursor.AtEnd()) return cursor;
    }
    return std::nullopt;
  }
  int number() const { return number_; }

 private:
  std::string_view text_;
  int number_ = 0;
};

class NodeParser {
 public:
  explicit NodeParser(Graph* graph) : graph_(graph) {}

  absl::StatusOr<UOp> ParseLine(Cursor& in) {
    TG_RETURN_IF_ERROR(in.Literal("%"));
    TG_ASSIGN_OR_RETURN(const uint32_t label, in.ReadNumber<uint32_t>("a label"));
    if (labels_.contains(label)) return in.Error("%", label, " is defined twice");
    TG_RETURN_IF_ERROR(in.Literal("="));
    const std::optional<Op> op = OpFromName(in.Peek());
    if (!op) return in.Expected("the name of an op");
    in.Word();
    const OpInfo& info = Info(*op);

    DType dtype = DType::kVoid;
    std::vector<int64_t> shape;
    if (info.type_rule != TypeRule::kVoid) {
      const std::optional<DType> named = DTypeFromText(in.Peek());
      if (!named) return in.Expected("an element type");
      in.Word();
      dtype = *named;
      if (in.NextIs('[')) {
        TG_ASSIGN_OR_RETURN(shape, in.List());
      }
    }
    std::vector<UOp> src;
    while (in.TryLiteral("%")) {
      TG_ASSIGN_OR_RETURN(const uint32_t name, in.ReadNumber<uint32_t>("a label"));
      const auto it = labels_.find(name);
      if (it == labels_.end()) return in.Error("%", name, " is not defined above this line");
      src.push_back(it->second);
    }
    TG_ASSIGN_OR_RETURN(const std::vector<int64_t> arg, ParseArg(in, info, dtype, shape));
    if (!in.AtEnd()) return in.Expected("the end of the line");

    const UOp u = *op == Op::kConst && src.empty() ? graph_->ConstWord(dtype, arg[0])
                                                   : graph_->Make(*op, dtype, src, arg);
    if (!u.valid()) return in.Error(ToStd(graph_->TakeStatus().message()));
    if (u.dtype() != dtype || !std::ranges::equal(u.shape(), shape)) {
      return in.Error("expected ", Name(u.dtype()), " ", ToString(u.shape()), ", got ", Name(dtype),
                      " ", ToString(shape));
    }
    labels_.emplace(label, u);
    return u;
  }

 private:
  absl::StatusOr<std::vector<int64_t>> ParseArg(Cursor& in, const OpInfo& info, DType dtype,
                                                const std::vector<int64_t>& shape) {
    std::vector<int64_t> arg;
    for (const ArgField& field : ArgFields(info.arg)) {
      const std::string key = StrCat(field.name, "=");
      // What is left out where the rest of the line implies it.
      const bool optional = field.type == ArgField::kDevice || field.type == ArgField::kDims;
      if (field.type != ArgField::kScalar && !in.TryLiteral(key)) {
        if (!optional) return in.Expected(StrCat("'", key, "'"));
        if (field.type == ArgField::kDevice) arg.push_back(0);
        if (field.type == ArgField::kDims) arg.insert(arg.end(), shape.begin(), shape.end());
        continue;
      }
      switch (field.type) {
        case ArgField::kScalar: {
          TG_ASSIGN_OR_RETURN(const int64_t word, ParseScalar(in, dtype));
          arg.push_back(word);
          break;
        }
        case ArgField::kEnum: {
          TG_ASSIGN_OR_RETURN(const int64_t value, in.OneOf(field.names));
          arg.push_back(value);
          break;
        }
        case ArgField::kInt:
        case ArgField::kDevice: {
          TG_ASSIGN_OR_RETURN(const int64_t value, in.ReadNumber<int64_t>("an integer"));
          arg.push_back(value);
          break;
        }
        case ArgField::kList:
        case ArgField::kDims: {
          TG_ASSIGN_OR_RETURN(const std::vector<int64_t> list, in.List());
          arg.insert(arg.end(), list.begin(), list.end());
          break;
        }
      }
    }
    return arg;
  }

  // The word of a value as CONST carries it.
  absl::StatusOr<int64_t> ParseScalar(Cursor& in, DType dtype) {
    if (IsBool(dtype)) {
      const std::string_view word = in.Peek();
      if (word != "true" && word != "false") return in.Expected("true or false");
      in.Word();
      return word == "true";
    }
    if (dtype == DType::kUInt64) {
      TG_ASSIGN_OR_RETURN(const uint64_t value, in.ReadNumber<uint64_t>("a u64"));
      return static_cast<int64_t>(value);
    }
    if (!IsFloat(dtype)) {
      return in.ReadNumber<int64_t>(StrCat("an integer of type ", Name(dtype)));
    }
    if (dtype == DType::kFloat32) {  // read as float: by way of double it could round twice
      TG_ASSIGN_OR_RETURN(const float value, in.ReadNumber<float>("a number"));
      return ScalarFromDouble(dtype, static_cast<double>(value));
    }
    TG_ASSIGN_OR_RETURN(const double value, in.ReadNumber<double>("a number"));
    return ScalarFromDouble(dtype, value);
  }

  Graph* graph_;
  absl::flat_hash_map<uint32_t, UOp> labels_;
};

absl::Status ParseArguments(Cursor& in, Program* program) {
  TG_RETURN_IF_ERROR(in.Literal("["));
  if (in.TryLiteral("]")) return absl::OkStatus();
  do {
    Program::Argument& argument = program->arguments.emplace_back();
    const std::optional<DType> dtype = DTypeFromText(in.Peek());
    if (!dtype) return in.Expected("an element type");
    in.Word();
    argument.dtype = *dtype;
    TG_ASSIGN_OR_RETURN(argument.elements, in.ReadNumber<int64_t>("a number of elements"));
    argument.read = in.TryLiteral("read");
    argument.written = in.TryLiteral("write");
  } while (in.TryLiteral(","));
  return in.Literal("]");
}

absl::Status ParseHeader(Cursor& in, Program* program) {
  TG_RETURN_IF_ERROR(in.Literal("program"));
  program->name = std::string(in.Word());
  if (program->name.empty()) return in.Expected("a name");
  TG_RETURN_IF_ERROR(in.Literal("iterations="));
  TG_ASSIGN_OR_RETURN(program->iterations, in.ReadNumber<int64_t>("an integer"));
  TG_RETURN_IF_ERROR(in.Literal("flops="));
  TG_ASSIGN_OR_RETURN(program->flops, in.ReadNumber<double>("a number"));
  TG_RETURN_IF_ERROR(in.Literal("bytes="));
  TG_ASSIGN_OR_RETURN(program->bytes, in.ReadNumber<double>("a number"));
  if (in.TryLiteral("warp=")) {
    TG_ASSIGN_OR_RETURN(program->warp, in.ReadNumber<int64_t>("an integer"));
  }
  TG_RETURN_IF_ERROR(in.Literal("arguments="));
  TG_RETURN_IF_ERROR(ParseArguments(in, program));
  if (!in.AtEnd()) return in.Expected("the end of the line");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UOp> Parse(std::string_view text, Graph* graph) {
  TG_RETURN_IF_ERROR(graph->status());
  Lines lines(text);
  NodeParser parser(graph);
  UOp last;
  while (std::optional<Cursor> line = lines.Next()) {
    TG_ASSIGN_OR_RETURN(last, parser.ParseLine(*line));
  }
  if (!last.valid()) return InvalidArgument("line ", lines.number() + 1, ": expected a node");
  return last;
}

absl::StatusOr<Program> ParseProgram(std::string_view text) {
  Program program;
  Lines lines(text);
  std::optional<Cursor> line = lines.Next();
  if (!line) return InvalidArgument("line ", lines.number() + 1, ": expected 'program'");
  TG_RETURN_IF_ERROR(ParseHeader(*line, &program));
  auto graph = std::make_shared<Graph>();
  NodeParser parser(graph.get());
  while ((line = lines.Next())) {
    TG_ASSIGN_OR_RETURN(const UOp u, parser.ParseLine(*line));
    program.order.push_back(u.id());
  }
  program.graph = std::move(graph);
  return program;
}

}  // namespace telegrad
