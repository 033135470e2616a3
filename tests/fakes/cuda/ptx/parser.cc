// One pass over the tokens. Registers are resolved while parsing, because a block in braces opens a
// scope of names; labels and branch tables are collected by name, since they are used before they
// are declared.
#include "tests/fakes/cuda/ptx/parser.h"

#include <cstdlib>
#include <optional>

#include "tests/fakes/cuda/ptx/token_cursor.h"

namespace fakecuda {
namespace {

uint64_t AlignUp(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

class Parser : private TokenCursor {
 public:
  Parser(std::string_view text, Module* module) : TokenCursor(text), module_(module) {}

  bool Run() {
    while (!AtEnd()) {
      if (!TopLevel()) return false;
    }
    if (module_->version == 0) return Fail("there is no .version");
    if (module_->target.empty()) return Fail("there is no .target");
    return true;
  }
  using TokenCursor::error;

 private:
  bool TopLevel() {
    if (Take(".version")) {
      std::string version;
      if (!Word(&version)) return false;
      const size_t dot = version.find('.');
      if (dot == std::string::npos) return Fail("a version has a dot");
      module_->version = std::atoi(version.c_str()) * 10 + std::atoi(version.c_str() + dot + 1);
      return true;
    }
    if (Take(".target")) {
      if (!Word(&module_->target)) return false;
      std::string option;
      while (Take(",")) {
        if (!Word(&option)) return false;
        if (option != "debug") return Fail("unknown target option " + option);
      }
      return true;
    }
    if (Take(".address_size")) return Expect("64");
    if (Take(".pragma")) return SkipTo(";");
    if (Is(".file") || Is(".loc")) {
      const int line = Peek().line;
      while (!AtEnd() && Peek().line == line) Skip();
      return true;
    }
    if (Take(".section")) return SkipBlock();
    bool external = false;
    while (Is(".visible") || Is(".extern") || Is(".weak")) {
      external |= Is(".extern");
      Skip();
    }
    if (Take(".entry")) return Entry();
    if (Is(".func")) return Fail("functions are not supported: everything must be inlined");
    Variable variable;
    if (!Declaration(external, &variable)) return false;
    Place(variable.space == Space::kShared ? &module_->shared_bytes : &module_->global_bytes,
          &variable);
    module_->variables.push_back(std::move(variable));
    return true;
  }

  bool SkipTo(std::string_view text) {
    while (!AtEnd() && !Is(text)) Skip();
    return Expect(text);
  }
  bool SkipBlock() {
    while (!AtEnd() && !Is("{")) Skip();
    int depth = 0;
    do {
      depth += Is("{") ? 1 : Is("}") ? -1 : 0;
      Skip();
    } while (!AtEnd() && depth > 0);
    return depth == 0 || Fail("a section without an end");
  }

  static void Place(uint64_t* used, Variable* variable) {
    variable->offset = AlignUp(*used, variable->align);
    *used = variable->offset + variable->bytes;
  }

  // .space .align N .type name[N] = {...};
  bool Declaration(bool external, Variable* out) {
    static const std::map<std::string, Space> kSpaces = {{".global", Space::kGlobal},
                                                         {".const", Space::kConst},
                                                         {".shared", Space::kShared},
                                                         {".local", Space::kLocal},
                                                         {".param", Space::kParam}};
    const auto space = kSpaces.find(Peek().text);
    if (space == kSpaces.end()) return Fail("unknown directive or statement " + Peek().text);
    Skip();
    out->space = space->second;
    Type type = Type::kNone;
    if (!DeclaredType(out, &type)) return false;
    if (!Word(&out->name)) return false;
    out->bytes = static_cast<uint64_t>(Bytes(type));
    if (Take("[")) {
      uint64_t count = 0;
      if (!Is("]") && !Unsigned(&count)) return false;
      if (!Expect("]")) return false;
      if (count > (uint64_t{1} << 32)) return Fail("an array of more than 4 GiB");
      out->bytes *= count;
    }
    if (Take("=") && !Initializer(type, out)) return false;
    if (out->bytes == 0 && !external) return Fail(out->name + " has no size");
    if (external && out->space != Space::kShared) {
      return Fail("external " + out->name + ": only shared memory is given at launch");
    }
    if (external) out->bytes = 0;
    return Expect(";");
  }

  // The rest of a declaration up to the name: alignment, attributes of pointers, type.
  bool DeclaredType(Variable* out, Type* type) {
    out->align = 0;
    while (Peek().text.starts_with(".")) {
      std::string word;
      if (!Word(&word)) return false;
      if (word == ".align") {
        uint64_t align = 0;
        if (!Unsigned(&align)) return false;
        if (align == 0 || (align & (align - 1)) != 0 || align > 4096) {
          return Fail("an alignment that is no power of two");
        }
        if (*type == Type::kNone || out->align == 0) out->align = align;
      } else if (word == ".ptr") {
        // What a parameter points to says nothing about the parameter itself.
        while (Is(".global") || Is(".shared") || Is(".const") || Is(".local")) Skip();
        uint64_t ignored = 0;
        if (Take(".align") && !Unsigned(&ignored)) return false;
      } else if (const auto t = TypeNamed(std::string_view(word).substr(1))) {
        *type = *t;
      } else {
        return Fail("unknown type " + word);
      }
    }
    if (*type == Type::kNone || *type == Type::kPred) return Fail("a declaration without a type");
    if (out->align == 0) out->align = static_cast<uint64_t>(Bytes(*type));
    return true;
  }

  bool Initializer(Type type, Variable* out) {
    const bool list = Take("{");
    do {
      Operand number;
      if (!Number(&number)) return false;
      for (int i = 0; i < Bytes(type); ++i) {
        out->initial.push_back(static_cast<uint8_t>(number.bits >> (8 * i)));
      }
    } while (list && Take(","));
    if (list && !Expect("}")) return false;
    if (out->initial.size() > out->bytes) return Fail("more initial values than elements");
    out->initial.resize(out->bytes);
    return true;
  }

  bool Entry() {
    Function function;
    function_ = &function;
    function.line = Peek().line;
    scopes_.assign(1, {});
    if (!Word(&function.name)) return false;
    if (Take("(") && !Take(")")) {
      do {
        Variable parameter;
        Type type = Type::kNone;
        if (!Expect(".param") || !DeclaredType(&parameter, &type) || !Word(&parameter.name)) {
          return false;
        }
        parameter.space = Space::kParam;
        parameter.bytes = static_cast<uint64_t>(Bytes(type));
        uint64_t count = 1;
        if (Take("[") && (!Unsigned(&count) || !Expect("]"))) return false;
        parameter.bytes *= count;
        Place(&function.parameter_bytes, &parameter);
        function.parameters.push_back(std::move(parameter));
      } while (Take(","));
      if (!Expect(")")) return false;
    }
    if (function.parameter_bytes > 4096) return Fail("more than 4096 bytes of parameters");
    if (!Performance()) return false;
    if (!Block()) return false;
    module_->functions.push_back(std::move(function));
    return true;
  }

  bool Performance() {
    while (!Is("{")) {
      std::string word;
      if (!Word(&word)) return false;
      if (word == ".reqntid" || word == ".maxntid") {
        auto& out = word == ".reqntid" ? function_->required_threads : function_->maximal_threads;
        out = {1, 1, 1};
        size_t i = 0;
        do {
          uint64_t n = 0;
          if (i == 3 || !Unsigned(&n)) return Fail("up to three numbers of threads");
          out[i++] = static_cast<uint32_t>(n);
        } while (Take(","));
      } else if (word == ".minnctapersm" || word == ".maxnreg") {
        uint64_t ignored = 0;
        if (!Unsigned(&ignored)) return false;
      } else if (word == ".pragma") {
        if (!SkipTo(";")) return false;
      } else {
        return Fail("unknown directive " + word);
      }
    }
    return true;
  }

  // Blocks nest without recursion: scopes_ is the stack.
  bool Block() {
    if (!Expect("{")) return false;
    size_t depth = 1;
    while (depth > 0) {
      if (AtEnd()) return Fail("a body without an end");
      if (Take("{")) {
        scopes_.emplace_back();
        ++depth;
      } else if (Take("}")) {
        scopes_.pop_back();
        --depth;
      } else if (!BodyItem()) {
        return false;
      }
    }
    return true;
  }

  bool BodyItem() {
    if (Is(".loc") || Is(".pragma")) return TopLevel();
    if (Take(".reg")) return Registers();
    if (Peek(1).text == ":" && Peek().kind == Token::Kind::kWord) {
      std::string label;
      if (!Word(&label) || !Expect(":")) return false;
      if (Take(".branchtargets")) return Names(&function_->branch_targets[label]);
      const int at = static_cast<int>(function_->statements.size());
      return function_->labels.emplace(label, at).second || Fail("a second label " + label);
    }
    if (Peek().text.starts_with(".")) {
      Variable variable;
      if (!Declaration(false, &variable)) return false;
      if (variable.space == Space::kShared) {
        Place(&module_->shared_bytes, &variable);
      } else if (variable.space == Space::kLocal) {
        Place(&function_->local_bytes, &variable);
      } else {
        return Fail("a kernel declares only local and shared memory");
      }
      function_->variables.push_back(std::move(variable));
      return true;
    }
    return Instruction();
  }

  bool Names(std::vector<std::string>* out) {
    do {
      std::string name;
      if (!Word(&name)) return false;
      out->push_back(name);
    } while (Take(","));
    return Expect(";");
  }

  bool Registers() {
    std::string word;
    if (!Word(&word)) return false;
    const auto type = TypeNamed(std::string_view(word).substr(1));
    if (!type) return Fail("unknown register type " + word);
    do {
      std::string name;
      if (!Word(&name)) return false;
      if (Take("<")) {
        uint64_t count = 0;
        if (!Unsigned(&count) || !Expect(">")) return false;
        if (count > 1000000) return Fail("more than a million registers");
        for (uint64_t i = 0; i < count; ++i) AddRegister(name + std::to_string(i), *type);
      } else {
        AddRegister(name, *type);
      }
    } while (Take(","));
    return Expect(";");
  }
  void AddRegister(const std::string& name, Type type) {
    scopes_.back()[name] = static_cast<int>(function_->registers.size());
    function_->registers.push_back({name, type});
  }
  int FindRegister(const std::string& name) const {
    for (size_t i = scopes_.size(); i-- > 0;) {
      if (const auto it = scopes_[i].find(name); it != scopes_[i].end()) return it->second;
    }
    return -1;
  }

  bool Instruction() {
    Statement s;
    s.line = Peek().line;
    if (Take("@")) {
      s.guard_negated = Take("!");
      std::string name;
      if (!Word(&name)) return false;
      s.guard = FindRegister(name);
      if (s.guard < 0) return Fail("unknown register " + name);
      if (function_->registers[static_cast<size_t>(s.guard)].type != Type::kPred) {
        return Fail("a guard that is no predicate: " + name);
      }
    }
    if (!Word(&s.opcode)) return false;
    if (!Is(";")) {
      do {
        s.operands.emplace_back();
        if (!ParseOperand(&s.operands.back())) return false;
      } while (Take(","));
    }
    if (!Expect(";")) return false;
    function_->statements.push_back(std::move(s));
    return true;
  }

  bool ParseOperand(Operand* out) {
    if (Take("{")) {
      out->kind = Operand::Kind::kVector;
      return Elements(out);
    }
    if (Take("[")) {
      if (!Simple(out)) return false;
      out->kind = Operand::Kind::kAddress;
      if (Take(",") && !(Expect("{") && Elements(out))) return false;
      return Expect("]");
    }
    return Simple(out);
  }

  // Up to the closing brace.
  bool Elements(Operand* out) {
    do {
      out->elements.emplace_back();
      if (!Simple(&out->elements.back())) return false;
    } while (Take(","));
    return Expect("}");
  }

  // A register, number or name, with an offset where one may stand.
  bool Simple(Operand* out) {
    if (Take("!")) out->negated = true;
    const char first = Peek().text.empty() ? 0 : Peek().text[0];
    if (first == '-' || (first >= '0' && first <= '9')) {
      if (!Number(out)) return false;
      if (out->kind == Operand::Kind::kNumber) out->offset = static_cast<int64_t>(out->bits);
      return true;
    }
    std::string name;
    if (!Word(&name)) return false;
    if (name == "_") return true;
    out->reg = FindRegister(name);
    out->kind = out->reg >= 0 ? Operand::Kind::kRegister : Operand::Kind::kName;
    if (out->reg < 0) out->name = name;
    if (Take("|")) {
      if (!Word(&name)) return false;
      out->second = FindRegister(name);
      if (out->second < 0) return Fail("unknown register " + name);
    }
    if (Take("+")) {
      Operand number;
      if (!Number(&number)) return false;
      out->offset = static_cast<int64_t>(number.bits);
    } else if (Is("-")) {
      Operand number;
      if (!Number(&number)) return false;
      out->offset = static_cast<int64_t>(number.bits);
    }
    return true;
  }

  Module* module_;
  Function* function_ = nullptr;
  std::vector<std::map<std::string, int>> scopes_;
};

}  // namespace

bool Parse(std::string_view text, Module* module, std::string* error) {
  Parser parser(text, module);
  if (parser.Run()) return true;
  *error = parser.error();
  return false;
}

}  // namespace fakecuda
