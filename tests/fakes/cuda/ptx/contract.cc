// A sum or difference of f32 or f64 without rounding, one operand of which holds a product
// without rounding, becomes an fma of the factors of that product. Products are known only up to
// the next label.
#include "tests/fakes/cuda/ptx/contract.h"

#include <map>
#include <set>

namespace fakecuda {
namespace {

bool IsRegister(const Operand& o) {
  return o.kind == Operand::Kind::kRegister && !o.negated && o.offset == 0;
}

// Registers that a statement may write: its first operand's, and those of all vectors.
std::set<int> Written(const Statement& s) {
  std::set<int> registers;
  for (size_t i = 0; i < s.operands.size(); ++i) {
    const Operand& o = s.operands[i];
    if (i == 0 && o.reg >= 0) registers.insert(o.reg);
    if (o.second >= 0) registers.insert(o.second);
    for (const Operand& element : o.elements) registers.insert(element.reg);
  }
  return registers;
}

bool Uses(const Statement& s, const std::set<int>& registers) {
  for (const Operand& o : s.operands) {
    if (o.reg >= 0 && registers.contains(o.reg)) return true;
  }
  return false;
}

}  // namespace

std::vector<Statement> Contracted(const Function& function) {
  std::set<int> labels;
  for (const auto& [name, at] : function.labels) labels.insert(at);
  std::vector<Statement> result;
  std::map<int, Statement> products;  // by the register that holds one
  for (size_t i = 0; i < function.statements.size(); ++i) {
    Statement s = function.statements[i];
    if (labels.contains(static_cast<int>(i))) products.clear();
    for (const char* type : {".f32", ".f64"}) {
      const bool sum = s.opcode == std::string("add") + type;
      const bool difference = s.opcode == std::string("sub") + type;
      if ((!sum && !difference) || s.operands.size() != 3) continue;
      for (const size_t at : {size_t{1}, size_t{2}}) {
        const auto product = products.find(s.operands[at].reg);
        if (!IsRegister(s.operands[at]) || product == products.end()) continue;
        const auto& factors = product->second.operands;
        const Operand other = s.operands[3 - at];
        s.opcode = (sum ? "fma.rn" : at == 1 ? "fma-.rn" : "-fma.rn") + std::string(type);
        s.operands = {s.operands[0], factors[1], factors[2], other};
        break;
      }
    }
    const std::set<int> written = Written(s);
    std::erase_if(products, [&](const auto& p) {
      return written.contains(p.first) || Uses(p.second, written);
    });
    const bool product = s.opcode == "mul.f32" || s.opcode == "mul.f64";
    if (product && s.guard < 0 && s.operands.size() == 3 && IsRegister(s.operands[0]) &&
        s.operands[1].reg != s.operands[0].reg && s.operands[2].reg != s.operands[0].reg) {
      products[s.operands[0].reg] = s;
    }
    result.push_back(std::move(s));
  }
  return result;
}

}  // namespace fakecuda
