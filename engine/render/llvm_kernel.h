// One program on its way to LLVM IR: what is known of each node so far, and a printer per op.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ir/program.h"
#include "engine/render/llvm_writer.h"
#include "engine/types/target.h"

namespace telegrad {

class LlvmKernel {
 public:
  LlvmKernel(const Program& program, const Target& target);

  absl::StatusOr<std::string> Render();

  // Whether there is a printer for `op`.
  static bool Prints(Op op);

 private:
  struct Table;

  // Where an INDEX points to.
  struct Address {
    // kStrided: lanes `stride` elements apart, from `pointer` on. kLanes: a vector of pointers.
    enum Kind { kScalar, kContiguous, kStrided, kLanes } kind = kScalar;
    DType dtype = DType::kVoid;
    int64_t lanes = 1;
    int64_t stride = 1;
    std::string pointer;
    std::string gate;        // empty: always
    bool lane_gate = false;  // the gate is a vector
    std::string alias;       // metadata
    std::string streams;     // whether its stores may go past the caches; empty: no
  };

  template <typename... Args>
  absl::Status Broken(const Args&... args) const {
    return absl::InternalError(StrCat("kernel ", program_.name, ": ", args...));
  }

  absl::Status CheckHeader() const;
  absl::Status Prologue();
  std::string Assemble();
  std::string AliasMetadata() const;

  // Printers.
  absl::Status Nothing(UOp u);
  absl::Status Same(UOp u);
  absl::Status Alu(UOp u);
  absl::Status Iota(UOp u);
  absl::Status ReduceLanes(UOp u);
  absl::Status OpenRange(UOp u);
  absl::Status CloseRange(UOp u);
  absl::Status Index(UOp u);
  absl::Status Load(UOp u);
  absl::Status Store(UOp u);

  // The rendered value of `u` in `lanes` lanes; `u` has as many or is a scalar.
  absl::StatusOr<std::string> ValueOf(UOp u, int64_t lanes);
  // The number of lanes of a value, or an error for a shape that is no vector.
  absl::StatusOr<int64_t> Lanes(UOp u) const;
  // Name of a node's value or label, without a sigil.
  static std::string NameOf(UOp u) { return StrCat("v", u.id()); }
  // What an AFTER orders.
  static UOp BehindOrder(UOp u);
  bool Emitted(UOp u) const { return !values_.at(u.id()).empty(); }

  // `index` as an i64 offset of its first lane if its lanes are a few elements apart; else empty.
  absl::StatusOr<std::string> LanesBase(UOp index, int64_t* stride);
  std::string PickGate(const Address& at, std::vector<int64_t> from);
  std::string LoadStrided(const Address& at, std::string_view suffix);
  std::string AsOffset(DType dtype, std::string_view text, int64_t lanes);
  // Whether stores to the argument go past the caches where it is aligned.
  bool Streams(int64_t slot) const;
  // Whether the scalar part of the contiguous `index` is a multiple of its lanes.
  static bool IsWholeVectors(UOp index);
  void StoreStreamed(UOp u, const Address& at, std::string_view type, std::string_view value);
  void OpenGate(UOp u, const Address& at);
  void CloseGate(UOp u, const Address& at);

  const Program& program_;
  const Target& target_;
  LlvmWriter out_;
  NodeMap<std::string> values_;
  std::map<uint32_t, Address> addresses_;  // by INDEX
  std::vector<UOp> open_;                  // ranges
  std::string gate_from_;                  // the block in front of the open gate
  bool thread_seen_ = false;
  bool streamed_ = false;
};

}  // namespace telegrad
