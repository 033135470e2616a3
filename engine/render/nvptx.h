// NVIDIA: one function that every thread of every workgroup runs.
//
// Workgroup x of the launch is iteration begin + x: the row-major position in the group ranges, as
// large as they can get. Those beyond the ranges do nothing. The thread number is tid.x. All
// BUFFER(local) lies in one shared array that the launch provides.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/render/copy_groups.h"
#include "engine/render/llvm_kernel.h"

namespace telegrad {

class NvptxKernel final : public LlvmKernel {
 public:
  using LlvmKernel::LlvmKernel;

 private:
  struct Table;
  // Threads of a workgroup, by number.
  struct Threads {
    int64_t first, count;
    friend auto operator<=>(const Threads&, const Threads&) = default;
  };

  absl::Status Begin() override;
  std::string Assemble() override;
  absl::Status OpenParallel(UOp u) override;
  absl::Status CloseParallel(UOp u) override;
  absl::Status ManyThreads(UOp u) override;
  absl::StatusOr<std::string> LoadLanes(UOp u, const Address& at) override;
  absl::Status StoreLanes(UOp u, const Address& at, const std::string& value) override;

  absl::Status ReadRanges();
  absl::Status PlaceBuffers();
  void NumberThreads();
  absl::Status OpenRole(UOp u);

  // Lanes that one access can serve, from the lane `first` on.
  struct LaneGroup {
    int64_t first, lanes, align;
  };
  std::vector<LaneGroup> LaneGroups(const Address& at) const;
  std::string PointerTo(const Address& at, int64_t lane);

  // nvptx_sync.cc: what threads do together.
  absl::Status Barrier(UOp u);
  absl::Status Shuffle(UOp u);
  absl::Status Mma(UOp u);
  absl::Status Synchronize(Threads threads);
  absl::Status SynchronizeParts(int64_t width);
  std::string ShuffleWord(std::string_view word, std::string_view lane);
  std::string ShuffleValue(DType dtype, const std::string& value, std::string_view lane);
  // Those that run what is printed now.
  Threads Present() const;
  // The number of a hardware barrier for these threads; below 0: there are no more. `several` are
  // as many numbers one after another, for as many equal parts.
  int64_t BarrierNumber(Threads threads, int64_t several = 1);
  std::string MaskOf(int64_t width);

  // nvptx_copy.cc: copies beside the threads.
  using BoxBody =
      std::function<void(const std::string& to, const std::string& from, const std::string& left)>;
  absl::Status CopyAsync(UOp u);
  absl::Status Wait(UOp u);
  // Executes `body` with the numbers 0 to count - 1.
  void ForEach(int64_t count, const std::function<void(const std::string&)>& body);
  void ForBox(UOp copy, int64_t step, const BoxBody& body);
  int64_t UnitOf(UOp copy) const;
  void CopyUnits(UOp copy, int64_t unit);
  void CopyElements(UOp copy);
  std::string PointerAt(const Address& at, const std::string& element);

  std::vector<UOp> groups_, locals_;  // the ranges of their kind, outermost first; warps are locals
  int64_t workgroups_ = 1;            // as many as there can be
  int64_t threads_ = 1;               // of a workgroup
  int64_t local_bytes_ = 0;
  std::string group_, thread_;  // their numbers
  std::map<std::pair<Threads, int64_t>, int64_t> barriers_;
  int64_t next_barrier_ = 1;  // 0 is that of the whole workgroup
  int64_t next_loop_ = 0;
  std::optional<CopyGroups> groups_of_copies_;
};

}  // namespace telegrad
