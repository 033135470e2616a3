#include "engine/tools/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/base/hash.h"
#include "engine/base/status.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/lower.h"
#include "engine/reference/program_eval.h"
#include "engine/reference/tensor_eval.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxElements = 1 << 24;

int64_t RandomWord(DType dtype, std::mt19937_64& random) {
  const auto small = static_cast<int64_t>(random() % 64);
  if (IsBool(dtype)) return small & 1;
  if (IsFloat(dtype)) {
    return ScalarFromDouble(dtype, static_cast<double>(random() % 4096) / 1024 - 2);
  }
  return ScalarFromInt(dtype, IsSigned(dtype) ? small - 8 : small);
}

absl::StatusOr<std::vector<uint8_t>> RandomBytes(DType dtype, int64_t elements, int64_t slot,
                                                 uint64_t seed) {
  if (elements > kMaxElements) {
    return absl::ResourceExhaustedError(
        StrCat("slot", slot, " has ", elements, " elements, at most ", kMaxElements, " are run"));
  }
  std::mt19937_64 random(seed * 1'000'003 + static_cast<uint64_t>(slot));
  std::vector<uint8_t> bytes(BytesOf(dtype, elements));
  if (IsPacked(dtype)) {  // every code is a value
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    return bytes;
  }
  const int64_t size = ByteSize(dtype);
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t raw = ScalarToMemory(dtype, RandomWord(dtype, random));
    std::memcpy(&bytes[i * size], &raw, size);
  }
  return bytes;
}

// One of the multiples between the bounds of a VAR.
int64_t VariableValue(UOp var, uint64_t seed) {
  const int64_t lo = var.var_min(), hi = var.var_max(), multiple = var.var_multiple();
  const int64_t first = lo + (multiple - lo % multiple) % multiple;
  const auto choices = static_cast<uint64_t>(std::max<int64_t>(0, (hi - first) / multiple));
  return first + static_cast<int64_t>(seed % (choices + 1)) * multiple;
}

std::string SlotName(int64_t slot) { return StrCat("slot", slot); }

absl::StatusOr<Outputs> EvaluateTensor(const Piece& piece, uint64_t seed, Budget* budget) {
  std::vector<std::vector<uint8_t>> slots;
  std::map<int64_t, DType> types;
  reference::Variables variables;
  for (uint32_t id : PostOrder(piece.root)) {
    const UOp u = piece.graph->at(id);
    if (u.is(Op::kVar) && u.num_src() == 0) {
      variables[u.var_id()] = VariableValue(u, seed);
    }
    if (!u.is(Op::kParam) || types.contains(u.slot())) continue;
    const int64_t slot = u.slot();
    if (static_cast<int64_t>(slots.size()) <= slot) slots.resize(slot + 1);
    TG_ASSIGN_OR_RETURN(slots[slot], RandomBytes(u.dtype(), NumElements(u.shape()), slot, seed));
    types[slot] = u.dtype();
  }
  TG_RETURN_IF_ERROR(reference::Evaluate(piece.root, slots, budget, variables));
  Outputs outputs;
  for (const auto& [slot, dtype] : types) outputs[SlotName(slot)] = {dtype, std::move(slots[slot])};
  return outputs;
}

// "slot3" is 3; -1 for anything else, which is memory between programs.
int64_t SlotOf(const std::string& binding) {
  int64_t slot;
  if (!binding.starts_with("slot") || !absl::SimpleAtoi(binding.substr(4), &slot)) return -1;
  return slot;
}

absl::Status RunProgram(const Piece& piece, uint64_t seed, Outputs* memory, Budget* budget) {
  std::vector<std::string> names = piece.bindings;
  const std::vector<Program::Argument>& arguments = piece.program->arguments;
  const std::vector<Program::Packing>& packings = piece.program->packings;
  for (size_t i = names.size(); i < arguments.size(); ++i) {
    const bool copy = std::ranges::any_of(
        packings, [&](const Program::Packing& p) { return p.copy == static_cast<int32_t>(i); });
    names.push_back(copy ? StrCat(piece.name, " copy", i) : SlotName(i));
  }
  std::vector<std::span<uint8_t>> buffers;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const DType dtype = arguments[i].dtype;
    const int64_t elements = arguments[i].elements;
    SlotValue& value = (*memory)[names[i]];
    const auto bytes = static_cast<size_t>(BytesOf(dtype, elements));
    if (value.bytes.size() < bytes) {
      const int64_t slot = SlotOf(names[i]);
      value.dtype = dtype;
      if (slot >= 0) {
        TG_ASSIGN_OR_RETURN(value.bytes, RandomBytes(dtype, elements, slot, seed));
      } else {
        value.bytes.resize(bytes);
      }
    }
  }
  // Only now, because a name may stand for two arguments.
  for (size_t i = 0; i < arguments.size(); ++i) buffers.push_back((*memory)[names[i]].bytes);
  for (const Program::Packing& packing : packings) {
    TG_ASSIGN_OR_RETURN(const Program packs, Lower(packing.kernel, Target(), "packs", budget));
    const std::span<uint8_t> both[] = {buffers[static_cast<size_t>(packing.copy)],
                                       buffers[static_cast<size_t>(packing.source)]};
    TG_RETURN_IF_ERROR(reference::Run(packs, both, 0, packs.iterations));
  }
  std::vector<int64_t> variables;
  for (uint32_t id : piece.program->order) {
    const UOp u = piece.program->graph->at(id);
    if (!u.is(Op::kVar)) continue;
    if (static_cast<int64_t>(variables.size()) <= u.var_id()) variables.resize(u.var_id() + 1);
    variables[u.var_id()] = VariableValue(u, seed);
  }
  return reference::Run(*piece.program, buffers, 0, piece.program->iterations,
                        {.variables = variables});
}

template <typename Word>
std::string Show(DType dtype, Word word) {
  if (IsFloat(dtype)) return StrCat(ScalarAsDouble(dtype, word));
  return StrCat(word);
}

bool Same(DType dtype, int64_t x, int64_t y, double tolerance) {
  if (x == y) return true;
  if (!IsFloat(dtype)) return false;
  const double a = ScalarAsDouble(dtype, x), b = ScalarAsDouble(dtype, y);
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::fabs(a - b) <= tolerance * std::max({std::fabs(a), std::fabs(b), 1.0});
}

}  // namespace

absl::StatusOr<std::optional<Outputs>> EvaluatePieces(const std::vector<Piece>& pieces,
                                                      uint64_t seed, Budget* budget) {
  if (pieces.size() == 1 && pieces[0].levels == kTensorLevel) {
    return EvaluateTensor(pieces[0], seed, budget);
  }
  const auto is_program = [](const Piece& p) { return p.program != nullptr; };
  if (!std::ranges::all_of(pieces, is_program)) return std::nullopt;
  Outputs memory;
  for (const Piece& piece : pieces) {
    TG_RETURN_IF_ERROR(budget->CheckTime());
    TG_RETURN_IF_ERROR(RunProgram(piece, seed, &memory, budget));
  }
  std::erase_if(memory, [](const auto& entry) { return SlotOf(entry.first) < 0; });
  return memory;
}

std::string FirstDifference(const Outputs& before, const Outputs& after, double tolerance) {
  for (const auto& [name, x] : before) {
    const auto it = after.find(name);
    if (it == after.end()) continue;  // a slot that no program names is not written
    const SlotValue& y = it->second;
    if (IsPacked(x.dtype)) {
      if (x.bytes != y.bytes) return StrCat(name, " of type ", Name(x.dtype), " differs");
      continue;
    }
    const int64_t size = ByteSize(x.dtype);
    const size_t bytes = std::min(x.bytes.size(), y.bytes.size());
    for (size_t at = 0; at + size <= bytes; at += size) {
      int64_t raw_x = 0, raw_y = 0;
      std::memcpy(&raw_x, &x.bytes[at], size);
      std::memcpy(&raw_y, &y.bytes[at], size);
      const int64_t word_x = ScalarFromMemory(x.dtype, raw_x);
      const int64_t word_y = ScalarFromMemory(x.dtype, raw_y);
      if (Same(x.dtype, word_x, word_y, tolerance)) continue;
      return StrCat(name, " differs at element ", at / size, " of type ", Name(x.dtype), ": ",
                    Show(x.dtype, word_x), " before, ", Show(x.dtype, word_y), " after");
    }
  }
  return "";
}

}  // namespace telegrad
