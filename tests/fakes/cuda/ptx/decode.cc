// The general part of decoding: modifiers, types and operands of a statement. What each family
// of instructions does with them is in a file of its own.
#include "tests/fakes/cuda/ptx/decode.h"

#include <algorithm>

#include "tests/fakes/cuda/ptx/contract.h"

namespace fakecuda {
namespace {

constexpr bool (*kFamilies[])(Decoder&) = {
    &DecodeControl, &DecodeMove,    &DecodeMemory, &DecodeAtomic,       &DecodeConvert,
    &DecodeCompare, &DecodeInteger, &DecodeBits,   &DecodeFloat,        &DecodeHalf,
    &DecodeShuffle, &DecodeMatrix,  &DecodeAsync,  &DecodePhaseBarrier,
};

uint64_t Truncated(uint64_t bits, Type type) {
  return Bits(type) == 64 ? bits : bits & ((uint64_t{1} << Bits(type)) - 1);
}

uint64_t AlignShared(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

}  // namespace

Decoder::Decoder(const Module& module, const Function& function, uint64_t globals, Kernel* kernel)
    : module_(module), function_(function), globals_(globals), kernel_(kernel) {
  kernel->name = function.name;
  kernel->slots = static_cast<uint32_t>(function.registers.size());
  for (const Register& r : function.registers) {
    kernel->register_bits.push_back(static_cast<uint8_t>(Bits(r.type)));
  }
  kernel->parameters = function.parameters;
  kernel->parameter_bytes = function.parameter_bytes;
  kernel->local_bytes = function.local_bytes;
  kernel->required_threads = function.required_threads;
  const auto& maximal = function.maximal_threads;
  if (maximal[0] != 0) kernel->maximal_threads = maximal[0] * maximal[1] * maximal[2];
  const auto& required = function.required_threads;
  if (required[0] != 0) kernel->maximal_threads = required[0] * required[1] * required[2];
  uint64_t align = 16;
  for (const Variable& v : module.variables) {
    if (v.space == Space::kShared && v.bytes == 0) align = std::max(align, v.align);
  }
  dynamic_shared_ = AlignShared(module.shared_bytes, align);
  kernel->shared_bytes = dynamic_shared_;
}

bool Decoder::Begin(const Statement& statement) {
  statement_ = &statement;
  out_ = {};
  out_.line = statement.line;
  out_.kind = KindOf(statement.opcode);
  out_.guard = statement.guard;
  out_.guard_negated = statement.guard_negated;
  modifiers_.clear();
  const std::string& text = statement.opcode;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t dot = std::min(text.find('.', begin), text.size());
    modifiers_.push_back(text.substr(begin, dot - begin));
    begin = dot + 1;
  }
  mnemonic_ = modifiers_.front();
  modifiers_.erase(modifiers_.begin());
  for (const auto& family : kFamilies) {
    if (family(*this)) return true;
  }
  Expect(false, "unknown instruction");
  return false;
}

bool Decoder::Finish(std::string* error) {
  if (error_.empty() && !modifiers_.empty()) {
    Expect(false, "unknown modifier ." + modifiers_.front());
  }
  if (!error_.empty()) {
    *error = "line " + std::to_string(statement_->line) + ": " + statement_->opcode + ": " + error_;
    return false;
  }
  kernel_->code.push_back(out_);
  return true;
}

bool Decoder::Take(std::string_view modifier) {
  const auto it = std::find(modifiers_.begin(), modifiers_.end(), modifier);
  if (it == modifiers_.end()) return false;
  modifiers_.erase(it);
  return true;
}

int Decoder::TakeOne(std::initializer_list<std::string_view> choices) {
  int at = 0;
  for (const auto choice : choices) {
    if (Take(choice)) return at;
    ++at;
  }
  return -1;
}

Type Decoder::LastType() const {
  for (size_t i = modifiers_.size(); i-- > 0;) {
    if (const auto type = TypeNamed(modifiers_[i])) return *type;
  }
  return Type::kNone;
}

Type Decoder::TakeType() {
  for (size_t i = 0; i < modifiers_.size(); ++i) {
    if (const auto type = TypeNamed(modifiers_[i])) {
      modifiers_.erase(modifiers_.begin() + static_cast<int64_t>(i));
      return *type;
    }
  }
  Expect(false, "a type is missing");
  return Type::kB32;
}

void Decoder::Expect(bool holds, const std::string& what) {
  if (!holds && error_.empty()) error_ = what;
}

void Decoder::ExpectOperands(size_t count) {
  Expect(operands() == count,
         "expected " + std::to_string(count) + " operands, found " + std::to_string(operands()));
}

uint32_t Decoder::Source(size_t operand, Type type, bool wider) {
  if (operand >= operands()) {
    Expect(false, "too few operands");
    return 0;
  }
  return SourceOf(statement_->operands[operand], type, wider);
}

uint32_t Decoder::SourceOf(const Operand& o, Type type, bool wider) {
  Expect(!o.negated, "an operand that cannot be negated");
  switch (o.kind) {
    case Operand::Kind::kRegister: {
      const Type reg = function_.registers[static_cast<size_t>(o.reg)].type;
      Expect(Agree(type, reg) || (wider && reg != Type::kPred && Bits(reg) >= Bits(type)),
             "register " + function_.registers[static_cast<size_t>(o.reg)].name +
                 " does not have the type of the instruction");
      Expect(o.offset == 0 && o.second < 0, "an operand that is no register");
      return static_cast<uint32_t>(o.reg);
    }
    case Operand::Kind::kNumber:
      Expect(o.float_bits == 0 || o.float_bits == Bits(type), "a float of another width");
      Expect(o.float_bits != 0 || Bits(type) < 32 || !IsFloat(type) || type == Type::kF16x2 ||
                 type == Type::kBF16x2,
             "an integer where a float is expected");
      return Constant(Truncated(o.bits, type));
    case Operand::Kind::kName: {
      uint32_t slot = 0;
      if (SpecialNamed(o.name, &slot)) return slot;
      uint64_t address = 0;
      Space space = Space::kGeneric;
      if (Symbol(o.name, &address, &space)) {
        Expect(Bits(type) == 64 || Bits(type) == 32, "an address needs 32 or 64 bits");
        return Constant(Truncated(address + static_cast<uint64_t>(o.offset), type));
      }
      Expect(false, "unknown name " + o.name);
      return 0;
    }
    default:
      Expect(false, "an operand of the wrong kind");
      return 0;
  }
}

uint32_t Decoder::Destination(size_t operand, Type type, bool wider) {
  if (operand >= operands()) {
    Expect(false, "too few operands");
    return 0;
  }
  const Operand& o = statement_->operands[operand];
  Expect(o.second < 0, "a pair of destinations");
  return DestinationOf(o, type, wider);
}

uint32_t Decoder::DestinationOf(const Operand& o, Type type, bool wider) {
  if (o.kind == Operand::Kind::kSink) return Trash();
  if (o.kind != Operand::Kind::kRegister || o.negated || o.offset != 0) {
    Expect(false, "a destination that is no register");
    return 0;
  }
  const Type reg = function_.registers[static_cast<size_t>(o.reg)].type;
  Expect(Agree(type, reg) || (wider && reg != Type::kPred && Bits(reg) >= Bits(type)),
         "register " + function_.registers[static_cast<size_t>(o.reg)].name +
             " does not have the type of the instruction");
  return static_cast<uint32_t>(o.reg);
}

void Decoder::Address(size_t operand, Space space, size_t at) {
  if (operand >= operands() || statement_->operands[operand].kind != Operand::Kind::kAddress) {
    Expect(false, "expected an address");
    return;
  }
  const Operand& o = statement_->operands[operand];
  out_.offset = o.offset;
  if (o.reg >= 0) {
    const Type reg = function_.registers[static_cast<size_t>(o.reg)].type;
    Expect(Agree(Type::kU64, reg) || (space == Space::kShared && Agree(Type::kU32, reg)),
           "an address in a register of the wrong type");
    out_.slot[at] = static_cast<uint32_t>(o.reg);
  } else if (!o.name.empty()) {
    uint64_t address = 0;
    Space of = Space::kGeneric;
    Expect(Symbol(o.name, &address, &of), "unknown name " + o.name);
    Expect(space == of, o.name + " lies in another space");
    out_.slot[at] = Constant(address);
  } else {
    out_.slot[at] = Constant(0);
  }
}

Space Decoder::TakeSpace() {
  if (Take("param")) return Space::kParam;
  if (Take("global")) return Space::kGlobal;
  if (Take("shared") || Take("shared::cta")) return Space::kShared;
  if (Take("local")) return Space::kLocal;
  if (Take("const")) return Space::kConst;
  return Space::kGeneric;
}

int Decoder::RegisterBits(const Operand& o) const {
  return o.kind == Operand::Kind::kRegister
             ? Bits(function_.registers[static_cast<size_t>(o.reg)].type)
             : 0;
}

uint32_t Decoder::Constant(uint64_t bits) {
  const auto [it, fresh] = constants_.emplace(bits, 0);
  if (fresh) {
    it->second = Fresh();
    kernel_->constants.emplace_back(it->second, bits);
  }
  return it->second;
}

uint32_t Decoder::Named(const std::string& name) {
  const auto [it, fresh] = named_.emplace(name, 0);
  if (fresh) it->second = Fresh();
  return it->second;
}
uint32_t Decoder::Trash() { return Named("trash"); }
uint32_t Decoder::Flag() { return Named("carry"); }

uint32_t Decoder::Label(const std::string& name) {
  const auto it = function_.labels.find(name);
  Expect(it != function_.labels.end(), "unknown label " + name);
  return it == function_.labels.end() ? 0 : static_cast<uint32_t>(it->second);
}

uint32_t Decoder::BranchTable(const std::string& name) {
  const auto it = function_.branch_targets.find(name);
  Expect(it != function_.branch_targets.end(), "unknown branch targets " + name);
  std::vector<uint32_t> table;
  if (it != function_.branch_targets.end()) {
    for (const std::string& label : it->second) table.push_back(Label(label));
  }
  kernel_->tables.push_back(std::move(table));
  return static_cast<uint32_t>(kernel_->tables.size() - 1);
}

bool Decoder::Symbol(const std::string& name, uint64_t* address, Space* space) const {
  const auto find = [&](const std::vector<Variable>& variables, uint64_t base) {
    for (const Variable& v : variables) {
      if (v.name != name) continue;
      *space = v.space;
      *address = v.offset + base;
      if (v.space == Space::kGlobal || v.space == Space::kConst) *address = v.offset + globals_;
      if (v.space == Space::kShared) {
        *address = kSharedBegin + (v.bytes == 0 ? dynamic_shared_ : v.offset);
      }
      return true;
    }
    return false;
  };
  return find(function_.parameters, 0) || find(function_.variables, 0) ||
         find(module_.variables, 0);
}

// PTX ISA, "Special Registers": those that do not change while a thread runs.
bool Decoder::SpecialNamed(const std::string& name, uint32_t* slot) {
  if (const auto it = specials_.find(name); it != specials_.end()) {
    *slot = it->second;
    return true;
  }
  static constexpr std::pair<std::string_view, Special> kVectors[] = {
      {"%tid", Special::kTid},
      {"%ntid", Special::kNtid},
      {"%ctaid", Special::kCtaid},
      {"%nctaid", Special::kNctaid},
  };
  static constexpr std::string_view kMasks[] = {"%lanemask_eq", "%lanemask_lt", "%lanemask_le",
                                                "%lanemask_gt", "%lanemask_ge"};
  SpecialSlot special;
  bool found = false;
  const size_t dot = name.find('.');
  for (const auto& [vector, what] : kVectors) {
    if (dot == std::string::npos || name.substr(0, dot) != vector || name.size() != dot + 2) {
      continue;
    }
    special.what = what;
    special.axis = name[dot + 1] - 'x';
    found = special.axis >= 0 && special.axis < 3;
  }
  for (int i = 0; i < 5; ++i) {
    if (name != kMasks[i]) continue;
    special = {.slot = 0, .what = Special::kLaneMask, .axis = i};
    found = true;
  }
  if (name == "%laneid" || name == "%warpid" || name == "%nwarpid") {
    special.what = name == "%laneid"   ? Special::kLane
                   : name == "%warpid" ? Special::kWarp
                                       : Special::kWarps;
    found = true;
  }
  if (name == "WARP_SZ") {
    *slot = Constant(kLanes);
    return true;
  }
  if (!found) return false;
  special.slot = *slot = specials_[name] = Fresh();
  kernel_->specials.push_back(special);
  return true;
}

bool Decode(const Module& module, const Function& function, uint64_t globals, Kernel* kernel,
            std::string* error) {
  Decoder decoder(module, function, globals, kernel);
  for (const Statement& statement : Contracted(function)) {
    decoder.Begin(statement);
    if (!decoder.Finish(error)) return false;
  }
  // A body may end without ret; labels may stand behind its last statement.
  Statement end;
  end.line = function.statements.empty() ? function.line : function.statements.back().line;
  end.opcode = "ret";
  decoder.Begin(end);
  return decoder.Finish(error);
}

}  // namespace fakecuda
