// The CPU: one function that runs a part of the thread range.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/render/llvm_kernel.h"
#include "engine/render/transposes.h"

namespace telegrad {

class X86Kernel final : public LlvmKernel {
 public:
  using LlvmKernel::LlvmKernel;

 private:
  absl::Status Begin() override;
  std::string Assemble() override;
  absl::Status OpenParallel(UOp u) override;
  absl::Status CloseParallel(UOp u) override;
  std::string LoopMetadata(UOp range) override;
  absl::StatusOr<std::string> LoadLanes(UOp u, const Address& at) override;
  absl::Status StoreLanes(UOp u, const Address& at, const std::string& value) override;

  std::string AliasMetadata() const;
  std::string PickGate(const Address& at, std::vector<int64_t> from);
  std::string LoadStrided(const Address& at);
  // Whether a reduction's loop holds so many accumulators that two of its iterations do not fit
  // into the registers.
  bool FillsRegisters(UOp range) const;
  // All loads of a square, where `u`, the first of them, stands.
  void LoadTransposed(UOp u, const Address& at, const Transpose& square);
  // Asks for what the next iteration of a loop reads of a packed weight, if `load` is from one.
  void FetchAheadOf(UOp load, const Address& at);
  void FetchRowAhead(UOp load, const Address& at);
  void Prefetch(const std::string& pointer, std::string_view levels);
  // Whether stores to the argument go past the caches where it is aligned.
  bool Streams(int64_t slot) const;
  void StoreStreamed(UOp u, const Address& at, std::string_view value);

  std::vector<Transpose> squares_;
  absl::flat_hash_map<uint32_t, size_t> square_;  // of a load: its index
  absl::flat_hash_map<uint32_t, std::string> transposed_;
  absl::flat_hash_set<std::pair<uint32_t, int64_t>> fetched_;  // in which loop, of which argument
  size_t whole_loops_ = 0;                                     // that are not to be unrolled
  bool thread_seen_ = false;
  bool streamed_ = false;
};

}  // namespace telegrad
