// What a kernel does in its innermost loops: the facts by which its moves are chosen.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/program.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"
#include "engine/types/target.h"

namespace telegrad {

inline constexpr int64_t kIrregular = std::numeric_limits<int64_t>::min();

// A LOAD's or STORE's address.
struct MemoryAccess {
  UOp address;
  bool store = false;
  // A load of a weight that no gate forbids and whose index comes from ranges alone: a program may
  // read it from a copy that is kept, see stage.h.
  bool weight = false;
  RangeSet ranges = 0;  // that the index depends on
  RangeSet gate = 0;    // that its gate depends on
  // A range whose remainder by `row` is what the gate tests, as of the joined rows of an image.
  int rows = -1;
  int64_t row = 0;
  std::vector<int64_t> stride;  // in elements, by range; kIrregular where it is not constant
  int64_t bytes = 1;            // of an element
  double buffer_bytes = 0;

  double elements() const { return buffer_bytes / static_cast<double>(bytes); }
};

// What is done for every value of some ranges: the body of a REDUCE, or STOREs.
struct Work {
  UOp root;          // of several STOREs, the first one
  RangeSet own = 0;  // a REDUCE's: reduced
  RangeSet all = 0;  // it is done for each value of these
  std::vector<MemoryAccess> accesses = {};
  struct Operation {
    RangeSet ranges;
    double cost;    // in those of an addition
    int64_t bytes;  // of an element of its result
  };
  std::vector<Operation> operations = {};

  bool is_reduce() const { return root.is(Op::kReduce); }
};

struct KernelShape {
  Dependence d;
  std::vector<int64_t> size;  // by range
  std::vector<Work> works;
  RangeSet loops = 0;      // of type LOOP
  std::vector<int> outer;  // LOOP ranges that all roots close, outermost first
  RangeSet parallel = 0;   // those of them that every store depends on
  size_t nodes = 0;
  // No move splits them: loops with private memory in each iteration, and ones whose end is
  // computed.
  RangeSet whole = 0;
  // Over which floats are added or multiplied, and those of them that are the only range of each
  // such REDUCE and whose terms are no products: see order_sums.h.
  RangeSet summed = 0, summed_alone = 0;
  RangeSet inner = 0;         // that ENDs close and that are not `outer`
  RangeSet around_nests = 0;  // around a nest that a later one of the same iteration waits for
  bool in_place = false;      // WritesWhatItReads
  bool once = false;          // OverwritesWhatItReads
  bool rereads = false;       // an argument is both written and read
  bool threads = false;       // an earlier pass has given the iterations to threads
  MatrixUnit matrix = MatrixUnit::kNone;  // of the target
  double copy_reads = 0;                  // of its row of costs (engine/types/machine_costs.h)

  double Iterations(RangeSet set) const;
  // Whether a copy of the weight with `a` in the order of the work's loops is worth keeping: about
  // as large as the weight, and read often.
  bool IsPackable(const Work& work, const MemoryAccess& a) const;
  // Whether a window steps over it, as over an image: no kernel need write it, and yet it is no
  // weight but what each run gives.
  bool IsImage(const Work& work, const MemoryAccess& a) const;
};

// Whether some memory is both read and written.
bool WritesWhatItReads(UOp sink);
// Whether some memory is read that the nest which writes it may already have written: then no
// element may be computed twice. What is read once a nest is complete may be.
bool OverwritesWhatItReads(UOp sink);

// nullopt: too many ranges. `target` says what operations cost, `arguments` which PARAMs are
// weights.
std::optional<KernelShape> ReadShape(UOp sink, const Target& target,
                                     std::span<const Program::Argument> arguments = {});

}  // namespace telegrad
