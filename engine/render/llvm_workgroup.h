// A program for many threads as LLVM IR: one function that every thread of every workgroup runs.
// What is here holds for every GPU that LLVM knows; nvptx.h and amdgpu.h add their instructions.
//
// Workgroup x of the launch is iteration begin + x: the row-major position in the group ranges, as
// large as they can get. Those beyond the ranges do nothing. The thread number is the position in
// the workgroup's one dimension, x. All BUFFER(local) lies in one shared array that the launch
// provides. LLVM numbers the memories of both makers alike: 1 is global, 3 the workgroup's.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/render/llvm_kernel.h"

namespace telegrad {

class LlvmWorkgroupKernel : public LlvmKernel {
 public:
  using LlvmKernel::LlvmKernel;

 protected:
  // Threads of a workgroup, by number.
  struct Threads {
    int64_t first, count;
    friend auto operator<=>(const Threads&, const Threads&) = default;
  };

  // --- what a target adds ---

  // The first line of the text, and the number of its private memory.
  virtual std::string_view triple() const = 0;
  virtual int private_space() const { return 0; }
  // The numbers of a thread in its workgroup and of the workgroup in the launch, as i32.
  virtual std::string ThreadNumber() = 0;
  virtual std::string WorkgroupNumber() = 0;
  // How a kernel is called, the attributes of this one beside those of kernel_attributes.h, and
  // what stands behind it. !1 is an empty node.
  virtual std::string_view CallingConvention() const = 0;
  virtual std::string Attributes() const { return ""; }
  virtual std::string FunctionMetadata() const { return ""; }
  virtual std::string Metadata() const { return ""; }
  // BARRIER.
  virtual absl::Status Barrier(UOp u) = 0;
  // One 32-bit word of the lane `lane` of this warp; of any, where there is no such lane. Lanes of
  // a hardware's warp, at least those of the program's.
  virtual std::string ShuffleWord(std::string_view word, std::string_view lane) = 0;
  virtual int64_t HardwareLanes() const = 0;
  virtual absl::Status Mma(UOp u) { return LlvmKernel::ManyThreads(u); }
  virtual absl::Status LoadMatrix(UOp u) { return LlvmKernel::ManyThreads(u); }
  // The units of `unit` bytes of a COPY_ASYNC, and what follows the last of them, whether or not
  // its gate holds.
  virtual absl::Status CopyUnits(UOp copy, int64_t unit) = 0;
  virtual void FinishCopy(UOp) {}
  // WAIT. Nothing, where copies are complete as soon as they start.
  virtual absl::Status Wait(UOp u);

  // --- for targets ---

  // Those that run what is printed now.
  Threads Present() const;
  int64_t threads() const { return threads_; }
  int64_t local_bytes() const { return local_bytes_; }  // of a workgroup
  const std::string& thread() const { return thread_; }

  // Goes through the box of a COPY_ASYNC in steps of `step` elements. `body` is told where the next
  // ones go, where they come from, as the numbers of the elements, and how many elements are left
  // there; a number below 1: none, and empty: enough.
  using BoxBody =
      std::function<void(const std::string& to, const std::string& from, const std::string& left)>;
  void ForBox(UOp copy, int64_t step, const BoxBody& body);
  // The bytes of the copy's units, which are aligned on both sides; 0 where it has none.
  int64_t UnitOf(UOp copy) const;
  // Whether it is one unit, which lies inside of the source.
  bool IsOneUnitInside(UOp copy, int64_t unit) const;
  // Copies at once, element by element.
  void CopyElements(UOp copy);
  std::string PointerAt(const Address& at, const std::string& element);

 private:
  struct Table;

  absl::Status Begin() final;
  std::string Assemble() final;
  absl::Status OpenParallel(UOp u) final;
  absl::Status CloseParallel(UOp u) final;
  absl::Status ManyThreads(UOp u) final;
  absl::StatusOr<std::string> LoadLanes(UOp u, const Address& at) final;
  absl::Status StoreLanes(UOp u, const Address& at, const std::string& value) final;

  absl::Status ReadRanges();
  absl::Status PlaceBuffers();
  void NumberThreads();
  absl::Status OpenRole(UOp u);
  absl::Status CopyAsync(UOp u);
  absl::Status Shuffle(UOp u);
  std::string ShuffleValue(DType dtype, const std::string& value, std::string_view lane);

  // Lanes that one access can serve, from the lane `first` on.
  struct LaneGroup {
    int64_t first, lanes, align;
  };
  std::vector<LaneGroup> LaneGroups(const Address& at) const;
  std::string PointerTo(const Address& at, int64_t lane);
  // Executes `body` with the numbers 0 to count - 1.
  void ForEach(int64_t count, const std::function<void(const std::string&)>& body);

  std::vector<UOp> groups_, locals_;  // the ranges of their kind, outermost first; warps are locals
  int64_t workgroups_ = 1;            // as many as there can be
  int64_t threads_ = 1;               // of a workgroup
  int64_t local_bytes_ = 0;
  std::string group_, thread_;  // their numbers
  int64_t next_loop_ = 0;
};

}  // namespace telegrad
