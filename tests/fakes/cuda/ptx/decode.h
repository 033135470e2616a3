// Statements to instructions: everything that can be known before the kernel runs is decided here,
// and what is not understood is an error that names its line.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fakes/cuda/ptx/code.h"
#include "tests/fakes/cuda/ptx/module.h"

namespace fakecuda {

// The kernel `function` of `module`, whose .global and .const variables lie from `globals` on.
bool Decode(const Module& module, const Function& function, uint64_t globals, Kernel* kernel,
            std::string* error);

// One statement on its way to an instruction: what the families of instructions decode with. The
// first thing that is wrong is kept; the rest then does not matter.
class Decoder {
 public:
  Decoder(const Module& module, const Function& function, uint64_t globals, Kernel* kernel);

  bool Begin(const Statement& statement);
  // Whether all of it was understood.
  bool Finish(std::string* error);

  const std::string& mnemonic() const { return mnemonic_; }
  const Statement& statement() const { return *statement_; }
  size_t operands() const { return statement_->operands.size(); }
  Instruction& out() { return out_; }
  Kernel& kernel() { return *kernel_; }

  // Takes a modifier (without its dot); false if it is not there.
  bool Take(std::string_view modifier);
  // Takes the first of `choices` that is there; its index, or -1.
  int TakeOne(std::initializer_list<std::string_view> choices);
  // The last type among the modifiers, without taking it; kNone if there is none.
  Type LastType() const;
  // Takes the first modifier that is a type.
  Type TakeType();
  void Expect(bool holds, const std::string& what);
  void ExpectOperands(size_t count);

  // The slot of an operand to read or write as a value of `type`. `wider`: its register may have
  // more bits.
  uint32_t Source(size_t operand, Type type, bool wider = false);
  uint32_t SourceOf(const Operand& operand, Type type, bool wider = false);
  uint32_t Destination(size_t operand, Type type, bool wider = false);
  uint32_t DestinationOf(const Operand& operand, Type type, bool wider = false);
  // Fills slot[at] and offset of an address operand, without the coordinates behind it. A name must
  // be of `space`, if that is not generic.
  void Address(size_t operand, Space space, size_t at);
  Space TakeSpace();
  // The bits of a register operand; 0 if it is something else.
  int RegisterBits(const Operand& operand) const;
  uint32_t Constant(uint64_t bits);
  uint32_t Trash();
  uint32_t Flag();  // the carry flag
  // The statement that a label stands before.
  uint32_t Label(const std::string& name);
  // The kernel's table made from the labels of a .branchtargets.
  uint32_t BranchTable(const std::string& name);

 private:
  bool Symbol(const std::string& name, uint64_t* address, Space* space) const;
  bool SpecialNamed(const std::string& name, uint32_t* slot);
  uint32_t Named(const std::string& name);
  uint32_t Fresh() { return kernel_->slots++; }

  const Module& module_;
  const Function& function_;
  uint64_t globals_;
  Kernel* kernel_;
  uint64_t dynamic_shared_ = 0;  // offset of external shared memory
  std::map<uint64_t, uint32_t> constants_;
  std::map<std::string, uint32_t> specials_;
  std::map<std::string, uint32_t> named_;  // slots of no register: what is thrown away, the flag

  const Statement* statement_ = nullptr;
  std::string mnemonic_;
  std::vector<std::string> modifiers_;
  Instruction out_;
  std::string error_;
};

// The families. Each returns false for a mnemonic (with its types) that is not its own.
bool DecodeControl(Decoder& d);
bool DecodeMove(Decoder& d);
bool DecodeMemory(Decoder& d);
bool DecodeAtomic(Decoder& d);
bool DecodeConvert(Decoder& d);
bool DecodeCompare(Decoder& d);
bool DecodeInteger(Decoder& d);
bool DecodeBits(Decoder& d);
bool DecodeFloat(Decoder& d);
bool DecodeHalf(Decoder& d);
bool DecodeShuffle(Decoder& d);
bool DecodeMatrix(Decoder& d);
bool DecodeAsync(Decoder& d);
bool DecodePhaseBarrier(Decoder& d);

// The rest of cp.async.bulk.
bool DecodeBulkCopy(Decoder& d);

}  // namespace fakecuda
