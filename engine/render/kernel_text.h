// What kernels in every language have in common. The nodes of a program come in execution order, so
// each is printed when its sources have been, and the text of a value is kept from then on. A
// subclass is a language: it has a printer for each op, and writes constants, vectors, loops and
// accesses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/status.h"
#include "engine/ir/program.h"
#include "engine/types/target.h"

namespace telegrad {

class KernelText {
 public:
  virtual ~KernelText() = default;

 protected:
  // Where an INDEX points to.
  struct Access {
    // kSpread: lanes `offsets` elements beyond `element`. kLanes: each lane has a number of its
    // own.
    enum Kind { kScalar, kContiguous, kSpread, kLanes } kind = kScalar;
    DType dtype = DType::kVoid;
    int64_t lanes = 1;
    std::string element;  // number of the first lane's
    std::vector<int64_t> offsets;
    std::string gate;        // empty: always
    bool lane_gate = false;  // the gate is a vector
  };

  KernelText(const Program& program, const Target& target)
      : program_(program), target_(target), values_(*program.graph) {}

  template <typename... Args>
  absl::Status Broken(const Args&... args) const {
    return absl::InternalError(StrCat("kernel ", program_.name, ": ", args...));
  }
  template <typename... Args>
  absl::Status Lacks(const Args&... args) const {
    return Unimplemented("kernel ", program_.name, ": ", target_.arch, " has no ", args...);
  }

  // --- what a language adds ---

  // Prints one node whose sources have been printed.
  virtual absl::Status Print(UOp u) = 0;
  // Whether the INDEX `u` has been printed; it has no value.
  virtual bool HasAddress(UOp u) const = 0;
  // A constant in all lanes, and a scalar in all lanes.
  virtual std::string Literal(DType dtype, int64_t word, int64_t lanes) const = 0;
  virtual std::string Splat(DType dtype, const std::string& scalar, int64_t lanes) = 0;
  // The number of lanes of a value, or an error for a shape that is no vector.
  virtual absl::StatusOr<int64_t> Lanes(UOp u) const;

  // --- for languages ---

  // An error unless the program has a name and its order is of nodes of its graph.
  absl::Status CheckHeader() const;
  // Prints the nodes of the order; a value is what it was at its first appearance.
  absl::Status PrintNodes();

  // Printers that need no language.
  absl::Status Nothing(UOp) { return absl::OkStatus(); }
  absl::Status Same(UOp u);

  // The rendered value of `u` in `lanes` lanes; `u` has as many or is a scalar.
  absl::StatusOr<std::string> ValueOf(UOp u, int64_t lanes);
  // The values of all sources in `lanes` lanes.
  absl::StatusOr<std::vector<std::string>> Sources(UOp u, int64_t lanes);
  // Takes what the END `u` closes out of `open_`, or an error if that is not the innermost.
  absl::StatusOr<UOp> TakeInnermost(UOp u);
  // Type, lanes and gate of the access that the INDEX `u` is.
  absl::Status ReadAccess(UOp u, Access* at);
  // Name of a node's value or label, without a sigil.
  static std::string NameOf(UOp u) { return StrCat("v", u.id()); }
  // What an AFTER orders.
  static UOp BehindOrder(UOp u);
  bool Emitted(UOp u) const { return !values_.at(u.id()).empty(); }

  const Program& program_;
  const Target& target_;
  NodeMap<std::string> values_;
  std::vector<UOp> open_;  // ranges and roles
};

// The printers of what is not elementwise, by op.
template <typename Kernel>
struct PrinterTable {
  using Printer = absl::Status (Kernel::*)(UOp);
  struct Row {
    Op op;
    Printer print;
  };

  template <size_t kRows>
  explicit constexpr PrinterTable(const Row (&rows)[kRows]) {
    for (const Row& row : rows) printers[static_cast<size_t>(row.op)] = row.print;
  }
  constexpr Printer operator[](Op op) const { return printers[static_cast<size_t>(op)]; }
  // Whether there is a row for every op of the program level that is not elementwise. A VAR is
  // bound before a kernel is lowered.
  constexpr bool Complete() const {
    [[maybe_unused]] constexpr int T = kTensorLevel, K = kKernelLevel, P = kProgramLevel;
    bool complete = true;
#define OP(name, text, wire, min_src, max_src, arg, traits, elements, type, shape, levels, doc) \
  if (((traits) & kAlu) == 0 && ((levels) & P) != 0 && Op::name != Op::kVar &&                  \
      (*this)[Op::name] == nullptr)                                                             \
    complete = false;
#include "engine/ir/ops.def"
#undef OP
    return complete;
  }

  std::array<Printer, kNumOps> printers{};
};

}  // namespace telegrad
