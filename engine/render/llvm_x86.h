// The CPU: one function that runs a part of the thread range.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/render/exponential.h"
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
  bool Rounds() const override { return true; }
  absl::Status Alu(UOp u) override;
  absl::StatusOr<std::string> LoadLanes(UOp u, const Address& at) override;
  absl::Status StoreLanes(UOp u, const Address& at, const std::string& value) override;

  // Of the widest vectors: the larger of two floats; a float times a power of two.
  absl::Status Larger(UOp u, int64_t lanes);
  absl::Status TimesPower(UOp u, const PowerOfTwo& power, int64_t lanes);

  std::string AliasMetadata() const;
  std::string PickGate(const Address& at, std::vector<int64_t> from);
  std::string LoadStrided(const Address& at);
  // Whether a reduction's loop holds so many accumulators that two of its iterations do not fit
  // into the registers.
  bool FillsRegisters(UOp range) const;
  // All loads of a rectangle, where `u`, the first of them, stands; all of its stores, where the
  // last of them does.
  void LoadTransposed(UOp u, const Address& at, const Transpose& rectangle);
  void StoreTransposed(UOp u, const Address& at, const Transpose& rectangle);
  // Of as many vectors as each has lanes: after it, vector i has element i of every one.
  void Exchange(const Address& at, std::vector<std::string>* rows);
  // The pointer to what lane `lane` has of a row of a rectangle; the mask of a row that is shorter
  // than a vector.
  std::string RowOf(UOp u, const Address& at, const Transpose& rectangle, int64_t lane);
  static std::string RowMask(const Address& at, const Transpose& rectangle);
  // Asks for what the next iteration of a loop reads of a packed weight, if `load` is from one.
  void FetchAheadOf(UOp load, const Address& at);
  bool IsPacked(int64_t slot) const;
  // For each vector that the loop loads.
  bool ComputesMuch(UOp loop);
  void FetchRowAhead(UOp load, const Address& at);
  void FetchTileAhead(UOp load, const Address& at);
  void FetchStreamAhead(UOp load, const Address& at);
  // Of all loads from the buffer.
  std::span<const UOp> IndicesOf(UOp buffer);
  // Beside each other inside of the same one, those loops that load from the argument, in order.
  std::span<const uint32_t> LoopsBeside(uint32_t outer, int64_t slot);
  void Prefetch(const std::string& pointer, std::string_view levels);
  // Whether stores to the argument go past the caches where it is aligned.
  bool Streams(int64_t slot) const;
  void StoreStreamed(UOp u, const Address& at, std::string_view value);

  std::vector<Transpose> rectangles_;
  absl::flat_hash_map<uint32_t, size_t> rectangle_;  // of a load or store: its index
  // Of a load, what it has loaded; of a store, what it stores once the others of its rectangle do.
  absl::flat_hash_map<uint32_t, std::string> transposed_;
  absl::flat_hash_map<std::pair<uint32_t, int64_t>, std::vector<uint32_t>> loops_beside_;
  absl::flat_hash_map<uint32_t, bool> computes_much_;
  absl::flat_hash_map<uint32_t, std::vector<UOp>> indices_;    // by what is loaded from
  absl::flat_hash_set<std::pair<uint32_t, int64_t>> fetched_;  // in which loop, of which argument
  size_t whole_loops_ = 0;                                     // that are not to be unrolled
  bool thread_seen_ = false;
  bool streamed_ = false;
};

}  // namespace telegrad
