// NVIDIA: the instructions of PTX (llvm_workgroup.h has the frame).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "engine/render/copy_groups.h"
#include "engine/render/llvm_workgroup.h"

namespace telegrad {

class NvptxKernel final : public LlvmWorkgroupKernel {
 public:
  using LlvmWorkgroupKernel::LlvmWorkgroupKernel;

 private:
  std::string_view triple() const override { return "nvptx64-nvidia-cuda"; }
  std::string ThreadNumber() override;
  std::string WorkgroupNumber() override;
  std::string_view CallingConvention() const override { return "ptx_kernel"; }
  std::string Metadata() const override;
  // CUDA's exp2f is this instruction (libdevice, __nv_exp2f), and at most 2 ulp from the true value
  // over its whole range (CUDA C++ Programming Guide, "Mathematical Functions"): subnormal results
  // included, which .ftz would not give. PTX ISA, "ex2": of 0 it is 1, of infinities +0 and +inf.
  std::string_view Exp2() const override { return "llvm.nvvm.ex2.approx.f"; }

  // nvptx_sync.cc: what threads do together.
  absl::Status Barrier(UOp u) override;
  absl::Status Mma(UOp u) override;
  absl::Status LoadMatrix(UOp u) override;
  std::string ShuffleWord(std::string_view word, std::string_view lane) override;
  int64_t HardwareLanes() const override;
  absl::Status Synchronize(Threads threads);
  absl::Status SynchronizeParts(int64_t width);
  // The number of a hardware barrier for these threads; below 0: there are no more. `several` are
  // as many numbers one after another, for as many equal parts.
  int64_t BarrierNumber(Threads threads, int64_t several = 1);
  std::string MaskOf(int64_t width);

  // nvptx_copy.cc: copies beside the threads.
  absl::Status CopyUnits(UOp copy, int64_t unit) override;
  absl::Status CopyOneUnit(UOp copy, std::string_view cache, int64_t unit);
  void FinishCopy(UOp copy) override;
  const CopyGroups& Groups();
  absl::Status Wait(UOp u) override;

  std::map<std::pair<Threads, int64_t>, int64_t> barriers_;
  int64_t next_barrier_ = 1;  // 0 is that of the whole workgroup
  std::optional<CopyGroups> groups_of_copies_;
};

}  // namespace telegrad
