// The text of one LLVM function under construction: instructions, blocks, and the declarations that
// its intrinsics need. Knows the syntax, nothing of the IR's meaning.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/strings.h"
#include "engine/types/dtype.h"

namespace telegrad {

// A float under 32 bits is its code, an integer: LLVM's own such types would pull in a library's
// conversions.
inline bool IsLlvmFloat(DType dtype) { return IsFloat(dtype) && !IsNarrowFloat(dtype); }
// "float", "i64", "i1" for bool; "<16 x float>" for more than one lane.
std::string LlvmType(DType dtype, int64_t lanes);
// As LlvmType, but bool is a byte.
std::string LlvmMemoryType(DType dtype, int64_t lanes);
// The same in the names of intrinsics: "f32", "v16i1".
std::string LlvmSuffix(DType dtype, int64_t lanes);
// "ptr", or "ptr addrspace(3)" into an address space other than 0.
std::string LlvmPointer(int space);
// The mask of a shufflevector; below 0: any.
std::string LlvmShuffle(const std::vector<int64_t>& from);
// The literal of a CONST's word, in every lane.
std::string LlvmLiteral(DType dtype, int64_t word, int64_t lanes);

class LlvmWriter {
 public:
  struct Operand {
    std::string type;
    std::string text;
  };

  // Appends an instruction whose parts are concatenated.
  template <typename... Args>
  void Line(const Args&... args) {
    StrAppend(&body_, "  ", args..., "\n");
  }
  // Appends `%name = parts...` and returns "%name".
  template <typename... Args>
  std::string Name(std::string_view name, const Args&... args) {
    StrAppend(&body_, "  %", name, " = ", args..., "\n");
    return StrCat("%", name);
  }
  // The same under a fresh name.
  template <typename... Args>
  std::string Let(const Args&... args) {
    return Name(StrCat("t", next_++), args...);
  }

  // Calls an intrinsic, declaring it. `flags` are fast-math flags with a trailing space, `tail` is
  // metadata.
  std::string Call(std::string_view intrinsic, std::string_view result,
                   const std::vector<Operand>& operands, std::string_view flags = "",
                   std::string_view tail = "");
  void CallVoid(std::string_view intrinsic, const std::vector<Operand>& operands,
                std::string_view tail = "");

  // Every lane the scalar `text`.
  std::string Splat(DType dtype, std::string_view text, int64_t lanes);
  std::string Splat(std::string_view scalar, std::string_view text, int64_t lanes);

  // Starts a block; the one before must have ended with a branch.
  void Block(std::string_view label);
  const std::string& block() const { return block_; }

  std::string TakeBody() { return std::move(body_); }
  std::string Declarations() const;

 private:
  std::string Declare(std::string_view intrinsic, std::string_view result,
                      const std::vector<Operand>& operands);

  std::string body_;
  std::string block_ = "entry";
  std::set<std::string> declarations_;
  int64_t next_ = 0;
};

}  // namespace telegrad
