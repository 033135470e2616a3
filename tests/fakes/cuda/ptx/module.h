// A PTX module as written: its header, variables and kernels. Register names are resolved, but
// instructions are not decoded yet (see decode.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/fakes/cuda/ptx/types.h"

namespace fakecuda {

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kParam, kConst };

struct Operand {
  enum class Kind : uint8_t {
    kRegister,  // reg; second: the q of p|q
    kNumber,    // bits
    kName,      // a special register, variable, label or function, plus an offset
    kAddress,   // [reg + offset] or [name + offset], before {elements} as coordinates
    kVector,    // {elements}
    kSink,      // _
  };
  Kind kind = Kind::kSink;
  int reg = -1;
  int second = -1;
  bool negated = false;  // !p
  uint64_t bits = 0;     // a number: an integer's two's complement, or a float's encoding
  int float_bits = 0;    // 32 for 0f, 64 for 0d
  std::string name;
  int64_t offset = 0;
  std::vector<Operand> elements;
};

struct Statement {
  int line = 0;
  int guard = -1;
  bool guard_negated = false;
  std::string opcode;
  std::vector<Operand> operands;
};

struct Variable {
  std::string name;
  Space space = Space::kGlobal;
  uint64_t align = 1;
  uint64_t bytes = 0;            // 0: external, sized at launch
  uint64_t offset = 0;           // in its function's or module's part of the space
  std::vector<uint8_t> initial;  // as long as `bytes`, or empty
};

struct Register {
  std::string name;
  Type type = Type::kB32;
};

struct Function {
  std::string name;
  int line = 0;
  std::vector<Variable> parameters;
  uint64_t parameter_bytes = 0;
  std::array<uint32_t, 3> required_threads = {0, 0, 0};  // .reqntid; 0: not given
  std::array<uint32_t, 3> maximal_threads = {0, 0, 0};   // .maxntid
  std::vector<Register> registers;
  std::vector<Statement> statements;
  std::map<std::string, int> labels;  // the statement that each stands before
  std::map<std::string, std::vector<std::string>> branch_targets;
  std::vector<Variable> variables;  // .local and .shared ones of its own
  uint64_t local_bytes = 0;
};

struct Module {
  int version = 0;  // 10 * major + minor
  std::string target;
  std::vector<Variable> variables;
  std::vector<Function> functions;
  uint64_t shared_bytes = 0;  // of all .shared variables with a size
  uint64_t global_bytes = 0;  // of all .global and .const variables
};

}  // namespace fakecuda
