// Loops and values. A loop is three blocks: vN.head tests, vN.body starts the work, vN.exit
// follows; the counter is a phi. Nodes come in execution order, so each is printed when its sources
// have been.
#include "engine/render/llvm_kernel.h"

#include <algorithm>
#include <array>

#include "engine/base/status.h"
#include "engine/ir/scalar.h"
#include "engine/render/llvm_alu.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxLanes = 1024;

bool IsThread(UOp range) { return range.arg(1) == static_cast<int64_t>(AxisType::kThread); }

}  // namespace

struct LlvmKernel::Table {
  using Printer = absl::Status (LlvmKernel::*)(UOp);
  struct Row {
    Op op;
    Printer print;
  };
  // What is not elementwise. CONST, PARAM and BUFFER print where they are used, AFTER is its
  // source.
  static constexpr Row kRows[] = {
      {Op::kConst, &LlvmKernel::Nothing},   {Op::kParam, &LlvmKernel::Nothing},
      {Op::kBuffer, &LlvmKernel::Nothing},  {Op::kIota, &LlvmKernel::Iota},
      {Op::kReshape, &LlvmKernel::Same},    {Op::kExpand, &LlvmKernel::Same},
      {Op::kAfter, &LlvmKernel::Same},      {Op::kReduce, &LlvmKernel::ReduceLanes},
      {Op::kRange, &LlvmKernel::OpenRange}, {Op::kEnd, &LlvmKernel::CloseRange},
      {Op::kIndex, &LlvmKernel::Index},     {Op::kLoad, &LlvmKernel::Load},
      {Op::kStore, &LlvmKernel::Store},
  };

  // What only programs for many threads have.
  static constexpr Op kManyThreads[] = {Op::kRole,      Op::kBarrier,   Op::kMBarrier, Op::kArrive,
                                        Op::kWaitPhase, Op::kCopyAsync, Op::kWait,     Op::kMma,
                                        Op::kMmaAsync,  Op::kShuffle,   Op::kVar};

  static constexpr std::array<Printer, kNumOps> Make() {
    std::array<Printer, kNumOps> table{};
    for (const Row& row : kRows) table[static_cast<size_t>(row.op)] = row.print;
    return table;
  }
  static constexpr bool Has(Op op) {
    for (const Row& row : kRows) {
      if (row.op == op) return true;
    }
    return std::ranges::find(kManyThreads, op) != std::end(kManyThreads);
  }
  static constexpr bool Complete() {
    [[maybe_unused]] constexpr int T = kTensorLevel, K = kKernelLevel, P = kProgramLevel;
    bool complete = true;
#define OP(name, text, wire, min_src, max_src, arg, traits, elements, type, shape, levels, doc) \
  if (((traits) & kAlu) == 0 && ((levels) & P) != 0 && !Has(Op::name)) complete = false;
#include "engine/ir/ops.def"
#undef OP
    return complete;
  }
  static Printer Of(Op op) {
    static constexpr std::array<Printer, kNumOps> kPrinters = Make();
    static_assert(Complete(), "an op of the program level has no printer");
    if (const Printer printer = kPrinters[static_cast<size_t>(op)]) return printer;
    return LlvmAluPrinterOf(op) != nullptr ? &LlvmKernel::Alu : nullptr;
  }
};

bool LlvmKernel::Prints(Op op) { return Table::Of(op) != nullptr; }

absl::StatusOr<std::string> LlvmKernel::Render() {
  TG_RETURN_IF_ERROR(CheckHeader());
  TG_RETURN_IF_ERROR(Prologue());
  for (uint32_t id : program_.order) {
    const UOp u = program_.graph->at(id);
    const Table::Printer print = Table::Of(u.op());
    if (print == nullptr) {
      return Broken("node ", id, " (", telegrad::Name(u.op()), ") is not of the program level");
    }
    // A value is what it was at its first appearance.
    const bool repeats = u.is(Op::kRange) || Is(u.op(), kEffect);
    if (!repeats && (Emitted(u) || addresses_.contains(id))) continue;
    TG_RETURN_IF_ERROR((this->*print)(u));
  }
  if (!open_.empty()) return Broken("range ", open_.back().id(), " is not closed");
  return Assemble();
}

absl::StatusOr<int64_t> LlvmKernel::Lanes(UOp u) const {
  const ShapeView shape = u.shape();
  if (shape.empty()) return 1;
  if (shape.size() == 1 && shape[0] >= 1 && shape[0] <= kMaxLanes) return shape[0];
  return Broken("node ", u.id(), " of shape ", ToString(shape),
                " is neither a scalar nor a vector");
}

absl::StatusOr<std::string> LlvmKernel::ValueOf(UOp u, int64_t lanes) {
  if (u.is_const()) return LlvmLiteral(u.dtype(), u.const_word(), lanes);
  TG_ASSIGN_OR_RETURN(const int64_t own, Lanes(u));
  if (!Emitted(u)) {
    return Broken("node ", u.id(), " (", telegrad::Name(u.op()), ") is used before it is computed");
  }
  if (own == lanes) return values_[u];
  if (own != 1) return Broken("node ", u.id(), " has ", own, " lanes, expected ", lanes);
  return out_.Splat(u.dtype(), values_[u], lanes);
}

UOp LlvmKernel::BehindOrder(UOp u) {
  while (u.is(Op::kAfter)) u = u.src(0);
  return u;
}

absl::Status LlvmKernel::Nothing(UOp) { return absl::OkStatus(); }

// RESHAPE and EXPAND only change how many lanes show the value; AFTER only orders. An AFTER of a
// buffer has no value: INDEX looks through it.
absl::Status LlvmKernel::Same(UOp u) {
  const UOp behind = BehindOrder(u);
  if (behind.is(Op::kParam) || behind.is(Op::kBuffer)) return absl::OkStatus();
  TG_ASSIGN_OR_RETURN(const int64_t lanes, Lanes(u));
  TG_ASSIGN_OR_RETURN(values_[u], ValueOf(u.src(0), lanes));
  return absl::OkStatus();
}

absl::Status LlvmKernel::Alu(UOp u) {
  if (!LlvmAluComputes(u, target_)) {
    return Broken("node ", u.id(), " (", telegrad::Name(u.op()), ") computes in ",
                  telegrad::Name(u.src(0).dtype()), ", which the target does not");
  }
  TG_ASSIGN_OR_RETURN(const int64_t lanes, Lanes(u));
  std::vector<std::string> x(u.num_src());
  for (int i = 0; i < u.num_src(); ++i) {
    TG_ASSIGN_OR_RETURN(x[i], ValueOf(u.src(i), lanes));
  }
  const LlvmAlu alu{out_, u, lanes, x};
  values_[u] = LlvmAluPrinterOf(u.op())(alu);
  return absl::OkStatus();
}

absl::Status LlvmKernel::Iota(UOp u) {
  TG_ASSIGN_OR_RETURN(const int64_t lanes, Lanes(u));
  if (lanes == 1) {
    values_[u] = LlvmLiteral(u.dtype(), 0, 1);
    return absl::OkStatus();
  }
  const std::string type = LlvmType(u.dtype(), 1);
  std::string text = "<";
  for (int64_t i = 0; i < lanes; ++i) {
    StrAppend(&text, i == 0 ? "" : ", ", type, " ",
              LlvmLiteral(u.dtype(), ScalarFromInt(u.dtype(), i), 1));
  }
  values_[u] = text + ">";
  return absl::OkStatus();
}

absl::Status LlvmKernel::ReduceLanes(UOp u) {
  const UOp x = u.src(0);
  TG_ASSIGN_OR_RETURN(const int64_t lanes, Lanes(x));
  TG_ASSIGN_OR_RETURN(const std::string value, ValueOf(x, lanes));
  if (u.num_src() != 1) return Broken("node ", u.id(), " reduces over ranges");
  if (u.arg().size() == 1 || lanes == 1) {  // nothing to fold
    values_[u] = value;
    return absl::OkStatus();
  }
  const DType dtype = u.dtype();
  const std::string element = LlvmType(dtype, 1), type = LlvmType(dtype, lanes);
  const auto call = [&](std::string_view name) {
    return StrCat("llvm.vector.reduce.", name, ".", LlvmSuffix(dtype, lanes));
  };
  const auto from = [&](std::string_view name, double start) {
    const std::string first = LlvmLiteral(dtype, ScalarFromDouble(dtype, start), 1);
    return out_.Call(call(name), element, {{element, first}, {type, value}}, "reassoc ");
  };
  const auto kind = static_cast<ReduceKind>(u.arg(0));
  if (IsFloat(dtype) && kind == ReduceKind::kAdd) {
    values_[u] = from("fadd", -0.0);
  } else if (IsFloat(dtype) && kind == ReduceKind::kMul) {
    values_[u] = from("fmul", 1.0);
  } else {
    const std::string_view name = kind == ReduceKind::kAdd   ? "add"
                                  : kind == ReduceKind::kMul ? "mul"
                                  : IsFloat(dtype)           ? "fmaximum"
                                  : IsSigned(dtype)          ? "smax"
                                                             : "umax";
    values_[u] = out_.Call(call(name), element, {{type, value}});
  }
  return absl::OkStatus();
}

absl::Status LlvmKernel::OpenRange(UOp u) {
  const DType dtype = u.dtype();
  const std::string name = NameOf(u), type = LlvmType(dtype, 1);
  if (Emitted(u)) return Broken("range ", u.id(), " is opened twice");
  TG_ASSIGN_OR_RETURN(std::string end, ValueOf(u.src(0), 1));
  std::string begin = "0";
  if (IsThread(u)) {
    if (thread_seen_ || !open_.empty()) {
      return Broken("range ", u.id(), " of threads is not the one outermost range");
    }
    thread_seen_ = true;
    // The launch's part of the range, cut to the range: the bounds of all indices rest on it.
    end = AsOffset(dtype, end, 1);
    begin = out_.Call("llvm.smax.i64", "i64", {{"i64", "%begin"}, {"i64", "0"}});
    end = out_.Call("llvm.smin.i64", "i64", {{"i64", "%end"}, {"i64", end}});
    begin = out_.Call("llvm.smin.i64", "i64", {{"i64", begin}, {"i64", end}});
    if (type != "i64") {
      // An empty part may end below 0, which a narrow unsigned counter cannot say.
      end = out_.Call("llvm.smax.i64", "i64", {{"i64", end}, {"i64", begin}});
      begin = out_.Let("trunc i64 ", begin, " to ", type);
      end = out_.Let("trunc i64 ", end, " to ", type);
    }
  }
  const std::string before = out_.block();
  out_.Line("br label %", name, ".head");
  out_.Block(name + ".head");
  values_[u] = out_.Name(name, "phi ", type, " [ ", begin, ", %", before, " ], [ %", name,
                         ".next, %", name, ".latch ]");
  const std::string more =
      out_.Let("icmp ", IsSigned(dtype) ? "slt " : "ult ", type, " ", values_[u], ", ", end);
  out_.Line("br i1 ", more, ", label %", name, ".body, label %", name, ".exit");
  out_.Block(name + ".body");
  open_.push_back(u);
  return absl::OkStatus();
}

absl::Status LlvmKernel::CloseRange(UOp u) {
  const UOp range = u.src(0);
  if (u.num_src() != 1 || open_.empty() || open_.back() != range) {
    return Broken("node ", u.id(), " does not close the innermost range");
  }
  open_.pop_back();
  const std::string name = NameOf(range);
  out_.Line("br label %", name, ".latch");
  out_.Block(name + ".latch");
  // The counter is below its end here, so one more cannot wrap.
  out_.Name(name + ".next", IsSigned(range.dtype()) ? "add nuw nsw " : "add nuw ",
            LlvmType(range.dtype(), 1), " %", name, ", 1");
  out_.Line("br label %", name, ".head");
  out_.Block(name + ".exit");
  return absl::OkStatus();
}

}  // namespace telegrad
