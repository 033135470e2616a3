// AMD: the instructions of its GPUs (llvm_workgroup.h has the frame). Facts: LLVM's "User Guide for
// AMDGPU Backend".
#pragma once

#include <string>

#include "engine/render/llvm_workgroup.h"

namespace telegrad {

class AmdgpuKernel final : public LlvmWorkgroupKernel {
 public:
  using LlvmWorkgroupKernel::LlvmWorkgroupKernel;

 private:
  std::string_view triple() const override { return "amdgcn-amd-amdhsa"; }
  int private_space() const override;
  std::string ThreadNumber() override;
  std::string WorkgroupNumber() override;
  std::string_view CallingConvention() const override { return "amdgpu_kernel"; }
  std::string Attributes() const override;
  std::string FunctionMetadata() const override { return " !reqd_work_group_size !0"; }
  std::string Metadata() const override;
  // v_exp_f32, with an error of 1 ulp, neither takes nor gives subnormal numbers (AMD's instruction
  // set guides, "V_EXP_F32"). LLVM puts what is below 2^-126 into its range by adding 64 to the
  // operand, which is exact there, and multiplies the result by 2^-64: at most 1.5 ulp.
  std::string_view Exp2() const override { return "llvm.exp2.f32"; }
  absl::Status Barrier(UOp u) override;
  absl::Status Mma(UOp u) override;
  std::string ShuffleWord(std::string_view word, std::string_view lane) override;
  int64_t HardwareLanes() const override { return target_.warp; }
  absl::Status CopyUnits(UOp copy, int64_t unit) override;
  // To a base in scalar registers: the form SADDR of global loads and stores.
  bool AddsBytes(const Address& at) const override { return at.memory->argument >= 0; }

  // Orders the memory accesses of the threads that `scope` names on both sides of `barrier`.
  void Synchronize(std::string_view scope, std::string_view barrier);
};

}  // namespace telegrad
