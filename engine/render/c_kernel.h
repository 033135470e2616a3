// One program on its way to a language like C: what is known of each node so far, and a printer per
// op. One function that every thread of every workgroup runs:
//
//   kernel name(global T0* restrict p0, ulong o0, ..., ulong begin)
//
// A line before it says its parameters (kernel_attributes.h), which nothing in it could.
//
// Argument i is what lies o_i bytes behind p_i. Workgroup x of the launch is iteration begin + x,
// the row-major position in the group ranges, as large as they can get; those beyond do nothing.
// Ranges of threads are the launch's dimensions, the innermost first. BUFFER(local) are arrays of
// the workgroup.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ir/program.h"
#include "engine/render/c_writer.h"
#include "engine/render/kernel_text.h"
#include "engine/types/target.h"

namespace telegrad {

class CKernel final : private KernelText {
 public:
  CKernel(const Program& program, const Target& target, const CDialect& dialect);

  absl::StatusOr<std::string> Render();

 private:
  struct Table;

  // Of kLanes, `element` is a vector.
  struct Address : Access {
    std::string memory;   // the array
    bool is_own = false;  // memory of the thread's own
    bool whole = false;   // there, an aligned vector

    std::string Element(int64_t lane) const;
    std::string Whole() const;
  };

  absl::Status Print(UOp u) override;
  bool HasAddress(UOp u) const override { return addresses_.contains(u.id()); }
  std::string Literal(DType dtype, int64_t word, int64_t lanes) const override {
    return CLiteral(dtype, word, lanes);
  }
  std::string Splat(DType dtype, const std::string& scalar, int64_t lanes) override {
    return StrCat("((", CType(dtype, lanes), ")(", scalar, "))");
  }
  absl::StatusOr<int64_t> Lanes(UOp u) const override;

  absl::Status ReadRanges();
  absl::Status PlaceBuffers();
  std::string Assemble();

  // Printers.
  absl::Status Alu(UOp u);
  absl::Status Iota(UOp u);
  absl::Status ReduceLanes(UOp u);
  absl::Status OpenRange(UOp u);
  absl::Status OpenParallel(UOp u);
  absl::Status Close(UOp u);
  absl::Status Barrier(UOp u);
  absl::Status Missing(UOp u);

  // c_memory.cc
  absl::Status Index(UOp u);
  absl::Status Load(UOp u);
  absl::Status Store(UOp u);
  absl::Status PointTo(UOp index, Address* at);
  const Address* AddressOf(UOp u) const;
  std::string LoadLanes(const Address& at) const;
  void StoreLanes(const Address& at, const std::string& value);
  std::string AsOffset(DType dtype, std::string_view x, int64_t lanes) const;

  const CDialect& dialect_;
  CWriter out_;
  std::map<uint32_t, Address> addresses_;    // by INDEX
  std::map<uint32_t, std::string> buffers_;  // by BUFFER
  std::vector<UOp> groups_, locals_;         // the ranges of their kind, outermost first
  int64_t workgroups_ = 1;                   // as many as there can be
};

}  // namespace telegrad
