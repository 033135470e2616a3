// From the text of an instruction to an Instruction: what the families of instructions decode with.
// The first thing that is not understood is kept as the error.
#pragma once

#include <string>
#include <string_view>

#include "tests/fakes/amd/code.h"
#include "tests/fakes/amd/row.h"
#include "tests/fakes/amd/text.h"

namespace fakeamd {

class Decoder {
 public:
  Decoder(const Target& target, uint32_t lanes, const Text& text, Instruction* out)
      : target_(target), lanes_(lanes), text_(text), out_(*out) {}

  const Target& target() const { return target_; }
  uint32_t lanes() const { return lanes_; }
  const Text& text() const { return text_; }
  Instruction& out() { return out_; }

  bool Fail(const std::string& what);  // false
  const std::string& error() const { return error_; }

  // An operand of the text, for a value of `type` or, with it kNone, of `words` registers.
  bool Read(std::string_view text, Type type, uint32_t words, Operand* operand);
  bool ReadSource(size_t at, Type type, uint32_t words = 0);
  bool ReadResult(size_t at, Type type, uint32_t words = 0);
  // Reads a modifier's number into `to`.
  bool ReadOffset(const std::string& name, int32_t* to);
  // Fails for a modifier that is not in the list, which is separated by spaces.
  bool OnlyModifiers(std::string_view known);
  bool Expect(size_t operands);

 private:
  bool Register(std::string_view name, Operand* operand, uint32_t* words);
  bool Constant(std::string_view text, Type type, uint32_t words, Operand* operand);

  const Target& target_;
  uint32_t lanes_;
  const Text& text_;
  Instruction& out_;
  std::string error_;
};

// The decode functions that several families share.
bool DecodeVector(Decoder& d, const Row& row);
bool DecodeScalar(Decoder& d, const Row& row);

// An instruction of a kernel for `target` from its text; an error that is empty if all was
// understood. A dual instruction becomes several.
std::string DecodeText(const Target& target, uint32_t lanes, std::string_view text,
                       std::vector<Instruction>* out);

}  // namespace fakeamd
