// One program on its way to LLVM IR: what is known of each node so far, and a printer per op. What
// processors have in common is here: loops, values, accesses. A subclass adds the frame of the
// function, the memory, parallel ranges, and the ops that only its target has.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ir/program.h"
#include "engine/render/kernel_text.h"
#include "engine/render/lane_offsets.h"
#include "engine/render/llvm_writer.h"
#include "engine/types/target.h"

namespace telegrad {

class LlvmKernel : public KernelText {
 public:
  LlvmKernel(const Program& program, const Target& target);

  absl::StatusOr<std::string> Render();

  // Whether there is a printer for `op`, on some target.
  static bool Prints(Op op);

 protected:
  // What an INDEX is into: a PARAM or BUFFER.
  struct Memory {
    std::string pointer;    // to its first element
    int space = 0;          // LLVM's address space
    int64_t align = 1;      // of the pointer, at least; a power of two
    std::string of_loads;   // metadata
    std::string of_stores;  // the same
    int64_t argument = -1;  // the slot of a PARAM
    int64_t elements = 0;
  };

  struct Address : Access {
    const Memory* memory = nullptr;
    std::string pointer;  // to the first lane's element; of kLanes a vector of pointers
    // But for kLanes: of each lane's element a power of two that divides its number.
    std::vector<int64_t> divisors;
    // Where AddsBytes: an i32, by so many bytes and by `constant` elements is `pointer` beyond the
    // beginning of the memory. Else empty.
    std::string bytes;
    int64_t constant = 0;
    int64_t stride = 0;  // of kSpread, where that is the same from lane to lane; else 0

    // Of the lane's address in bytes.
    int64_t align(int64_t lane = 0) const {
      return std::min(memory->align, divisors[lane] * ByteSize(dtype));
    }
    std::string type() const { return LlvmMemoryType(dtype, lanes); }
    std::string pointer_type() const { return LlvmPointer(memory->space); }
    std::string mask_type() const { return LlvmType(DType::kBool, lanes); }
    std::string mask() const { return lane_gate ? gate : LlvmLiteral(DType::kBool, 1, lanes); }
    // In the names of intrinsics. Bytes, where the values are bits.
    std::string suffix() const { return LlvmSuffix(IsBool(dtype) ? DType::kInt8 : dtype, lanes); }
  };

  // --- what a target adds ---

  // What comes before the first node: addresses of the arguments, memory of the BUFFERs.
  virtual absl::Status Begin() = 0;
  // The whole text, once the body is there.
  virtual std::string Assemble() = 0;
  // Opens and closes what is no loop of one thread: a parallel range, or a ROLE.
  virtual absl::Status OpenParallel(UOp u);
  virtual absl::Status CloseParallel(UOp u);
  // What the branch back to the beginning of a loop says to LLVM.
  virtual std::string LoopMetadata(UOp) { return ""; }
  // The ops of programs for many threads.
  virtual absl::Status ManyThreads(UOp u);
  // An elementwise node.
  virtual absl::Status Alu(UOp u);
  // LLVM's intrinsic that is the instruction of Target::exp2, of one f32.
  virtual std::string_view Exp2() const { return ""; }
  // Whether it has an instruction that rounds an f32 to the nearest i32.
  virtual bool Rounds() const { return false; }
  // Whether accesses of that memory add an unsigned i32 of bytes to a pointer by themselves.
  virtual bool AddsBytes(const Address&) const { return false; }
  // The access itself, inside of the gate if that is not one of lanes.
  virtual absl::StatusOr<std::string> LoadLanes(UOp u, const Address& at);
  virtual absl::Status StoreLanes(UOp u, const Address& at, const std::string& value);

  // --- for targets ---

  // -x of a float, after x or what it is computed from.
  absl::StatusOr<std::string> Negated(UOp x, int64_t lanes);
  void OpenLoop(UOp range, std::string_view begin, std::string_view end);
  void CloseLoop(UOp range);
  // The integer as an i64.
  std::string AsOffset(DType dtype, std::string_view text, int64_t lanes);
  // The address that the INDEX `u` is, or null.
  const Address* AddressOf(UOp u) const;
  // The addresses of all lanes as a vector.
  std::string Pointers(const Address& at);
  std::string Gather(const Address& at);
  void Scatter(const Address& at, const std::string& value);
  // The blocks around what is done only where `gate` holds; nothing where it is empty.
  void OpenGate(UOp u, std::string_view gate);
  void CloseGate(UOp u, std::string_view gate);
  // The BUFFERs of the order, each once.
  std::vector<UOp> Buffers() const;
  // Private memory for the BUFFER, which reads as 0 until it is written: LLVM may otherwise give
  // every use of such a load another value, past any check. Adds its bytes to `bytes`; `space` is
  // LLVM's number of such memory.
  absl::Status MakePrivate(UOp buffer, int64_t most, int64_t* bytes, int space = 0);

  LlvmWriter out_;
  std::vector<Memory> arguments_;       // by slot
  std::map<uint32_t, Memory> buffers_;  // by BUFFER

 private:
  struct Table;

  absl::Status Print(UOp u) final;
  bool HasAddress(UOp u) const final { return addresses_.contains(u.id()); }
  std::string Literal(DType dtype, int64_t word, int64_t lanes) const final {
    return LlvmLiteral(dtype, word, lanes);
  }
  std::string Splat(DType dtype, const std::string& scalar, int64_t lanes) final {
    return out_.Splat(dtype, scalar, lanes);
  }

  // Printers.
  absl::Status Iota(UOp u);
  absl::Status ReduceLanes(UOp u);
  absl::Status OpenRange(UOp u);
  absl::Status Close(UOp u);
  absl::Status Index(UOp u);
  absl::Status Load(UOp u);
  absl::Status Store(UOp u);

  const Memory* MemoryOf(UOp index) const;
  absl::Status PointTo(UOp index, Address* at);
  void PointByBytes(Address* at);
  // The address for an access inside of its gate.
  Address Inside(Address at);
  // The terms' sum, an i32 where it has a NarrowSum and else an i64; empty where there are none.
  absl::StatusOr<std::string> AddUp(const LaneOffsets& split);

  std::map<uint32_t, Address> addresses_;  // by INDEX
  std::string gate_from_;                  // the block in front of the open gate
};

}  // namespace telegrad
