#include "engine/render/llvm_writer.h"

#include <cstdio>

#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

std::string Vector(std::string element, int64_t lanes) {
  return lanes == 1 ? element : StrCat("<", lanes, " x ", element, ">");
}

std::string Element(DType dtype) {
  if (dtype == DType::kFloat32) return "float";
  if (dtype == DType::kFloat64) return "double";
  return IsBool(dtype) ? "i1" : StrCat("i", Info(dtype).bits);
}

}  // namespace

std::string LlvmType(DType dtype, int64_t lanes) { return Vector(Element(dtype), lanes); }

std::string LlvmMemoryType(DType dtype, int64_t lanes) {
  return Vector(IsBool(dtype) ? "i8" : Element(dtype), lanes);
}

std::string LlvmSuffix(DType dtype, int64_t lanes) {
  const std::string element =
      IsBool(dtype) ? "i1" : StrCat(IsLlvmFloat(dtype) ? "f" : "i", Info(dtype).bits);
  return lanes == 1 ? element : StrCat("v", lanes, element);
}

std::string LlvmPointer(int space) {
  return space == 0 ? "ptr" : StrCat("ptr addrspace(", space, ")");
}

std::string LlvmShuffle(const std::vector<int64_t>& from) {
  std::string out = StrCat("<", from.size(), " x i32> <");
  for (size_t i = 0; i < from.size(); ++i) {
    StrAppend(&out, i == 0 ? "" : ", ", "i32 ");
    from[i] < 0 ? StrAppend(&out, "poison") : StrAppend(&out, from[i]);
  }
  return out + ">";
}

std::string LlvmLiteral(DType dtype, int64_t word, int64_t lanes) {
  std::string text;
  if (IsLlvmFloat(dtype)) {
    // LLVM writes a float, too, as the bits of the double of the same value.
    char hex[32];
    std::snprintf(hex, sizeof hex, "0x%016llX", static_cast<unsigned long long>(word));
    text = hex;
  } else if (IsFloat(dtype)) {
    text = StrCat(ScalarToMemory(dtype, word));
  } else if (IsUnsigned(dtype)) {
    text = StrCat(static_cast<uint64_t>(word));
  } else {
    text = StrCat(word);
  }
  return lanes == 1 ? text : StrCat("splat (", Element(dtype), " ", text, ")");
}

std::string LlvmWriter::Declare(std::string_view intrinsic, std::string_view result,
                                const std::vector<Operand>& operands) {
  std::string types, arguments;
  for (const Operand& operand : operands) {
    const std::string_view comma = types.empty() ? "" : ", ";
    // "immarg" stays out of the types: LLVM knows its intrinsics.
    StrAppend(&types, comma, operand.type);
    StrAppend(&arguments, comma, operand.type, " ", operand.text);
  }
  declarations_.insert(StrCat("declare ", result, " @", intrinsic, "(", types, ")"));
  return StrCat("call ", result, " @", intrinsic, "(", arguments, ")");
}

std::string LlvmWriter::Call(std::string_view intrinsic, std::string_view result,
                             const std::vector<Operand>& operands, std::string_view flags,
                             std::string_view tail) {
  const std::string call = Declare(intrinsic, result, operands);
  return Let("call ", flags, std::string_view(call).substr(5), tail);
}

void LlvmWriter::CallVoid(std::string_view intrinsic, const std::vector<Operand>& operands,
                          std::string_view tail) {
  const std::string call = Declare(intrinsic, "void", operands);
  Line(call, tail);
}

std::string LlvmWriter::Splat(DType dtype, std::string_view text, int64_t lanes) {
  return Splat(LlvmType(dtype, 1), text, lanes);
}

std::string LlvmWriter::Splat(std::string_view scalar, std::string_view text, int64_t lanes) {
  if (lanes == 1) return std::string(text);
  const std::string type = StrCat("<", lanes, " x ", scalar, ">");
  const std::string first = Let("insertelement ", type, " poison, ", scalar, " ", text, ", i64 0");
  return Let("shufflevector ", type, " ", first, ", ", type, " poison, <", lanes,
             " x i32> zeroinitializer");
}

void LlvmWriter::Block(std::string_view label) {
  StrAppend(&body_, label, ":\n");
  block_ = label;
}

std::string LlvmWriter::Declarations() const {
  std::string out;
  for (const std::string& line : declarations_) StrAppend(&out, line, "\n");
  return out;
}

}  // namespace telegrad
