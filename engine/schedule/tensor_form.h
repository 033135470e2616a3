// The way back from IndexForm: an expression over RANGEs as a tensor, one axis for each RANGE, made
// of IOTA, arithmetic, views and GATHER. No value is larger than the axes it depends on.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/graph.h"
#include "engine/schedule/index_form.h"

namespace telegrad {

class TensorForm {
 public:
  // Tensors are made in `graph`, which the form's leaves are of. RANGE d goes to axis d, of size
  // dims[d].
  TensorForm(Graph* graph, IndexForm* form, Shape dims)
      : g_(*graph), form_(*form), dims_(std::move(dims)) {}

  // The expression with the axes in `axes` (bits) expanded, all others of size 1. It depends on no
  // others.
  UOp Make(UOp expression, uint32_t axes);

  const Shape& dims() const { return dims_; }
  // dims() where the bit is set, else 1.
  Shape DimsOf(uint32_t axes) const;

 private:
  // How an axis of a leaf is read.
  struct Access {
    enum Kind { kFixed, kWindow, kComputed } kind = kComputed;
    int axis = 0;        // of kWindow: the RANGE
    bool flips = false;  // of kWindow: -RANGE + offset
    int64_t offset = 0;  // of kFixed and kWindow
    UOp index;           // of kComputed
  };

  std::vector<Access> Plan(const IndexForm::Leaf& leaf);
  UOp Node(UOp u);  // as Make, but of size 1 along every axis that it does not depend on
  UOp LeafOf(UOp leaf);
  // The leaf's tensor with fixed axes cut and windows brought to their RANGE's size.
  UOp Cut(UOp tensor, std::span<const Access> plan);
  UOp Expand(UOp x, uint32_t axes);
  // From one dim for each bit of `order`, ascending within each set, to one for each axis.
  UOp ToAxes(UOp x, std::span<const uint32_t> sets);
  // The gate of a WHERE adds nothing to what a GATHER of one computed axis checks itself.
  bool IsOwnGate(UOp gate, UOp leaf);

  Graph& g_;
  IndexForm& form_;
  const Shape dims_;
  absl::flat_hash_map<uint32_t, UOp> made_;
};

}  // namespace telegrad
