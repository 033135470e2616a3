// The text of one kernel in a language like C under construction: statements, and how types,
// literals and choices are spelled. Knows the syntax, nothing of the IR's meaning.
//
// Integers are held in unsigned types, whose arithmetic wraps; where the sign counts they are seen
// as signed. A bool is a byte, 0 or 1. A float under 32 bits is its code, an integer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/strings.h"
#include "engine/types/dtype.h"

namespace telegrad {

struct CDialect {
  std::string_view arch, preamble, kernel, global, local, group, thread, barrier;
};
// Null where the architecture has none.
const CDialect* FindCDialect(std::string_view arch);

inline bool IsCFloat(DType dtype) { return IsFloat(dtype) && !IsNarrowFloat(dtype); }
// Whether there are vectors of so many lanes, or it is a scalar.
bool IsCWidth(int64_t lanes);

// "float", "uint4", ...
std::string CType(DType dtype, int64_t lanes);
// The signed integer of the type's width: "int4".
std::string CSignedType(DType dtype, int64_t lanes);
// The literal of a CONST's word, in every lane.
std::string CLiteral(DType dtype, int64_t word, int64_t lanes);
// One lane of a vector.
std::string CLane(std::string_view value, int64_t lane, int64_t lanes);

// `x` seen as signed, and a signed result as the unsigned type that holds it. Integers only.
std::string CSigned(DType dtype, int64_t lanes, std::string_view x);
std::string CUnsigned(DType dtype, int64_t lanes, std::string_view x);

class CWriter {
 public:
  // Appends a line whose parts are concatenated.
  template <typename... Args>
  void Line(const Args&... args) {
    body_.append(2 * static_cast<size_t>(depth_), ' ');
    StrAppend(&body_, args..., "\n");
  }
  // A line that begins a block; Close ends it.
  template <typename... Args>
  void Open(const Args&... args) {
    Line(args..., " {");
    ++depth_;
  }
  void Close() {
    --depth_;
    Line("}");
  }
  // Declares a variable of the type with that value and returns its name.
  template <typename... Args>
  std::string Let(DType dtype, int64_t lanes, const Args&... value) {
    const std::string name = StrCat("t", next_++);
    Line(CType(dtype, lanes), " ", name, " = ", value..., ";");
    return name;
  }
  // The bool that `comparison` of operands of the type is.
  std::string Test(int64_t lanes, std::string_view comparison);
  // By a bool of as many lanes.
  std::string Select(DType dtype, int64_t lanes, std::string_view condition, std::string_view then,
                     std::string_view otherwise);

  std::string TakeBody() { return std::move(body_); }

 private:
  std::string body_;
  int depth_ = 1;
  int64_t next_ = 0;
};

}  // namespace telegrad
