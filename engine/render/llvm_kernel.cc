// Loops and values. A loop is three blocks: vN.head tests, vN.body starts the work, vN.exit
// follows; the counter is a phi. Nodes come in execution order, so each is printed when its sources
// have been.
#include "engine/render/llvm_kernel.h"

#include <algorithm>
#include <array>

#include "engine/base/status.h"
#include "engine/ir/scalar.h"
#include "engine/render/float_range.h"
#include "engine/render/llvm_alu.h"

namespace telegrad {
namespace {

// Whether a thread runs the iterations one after another.
bool IsLoop(UOp range) {
  const AxisType type = range.axis_type();
  return type == AxisType::kLoop || type == AxisType::kReduce;
}

// A string that can stand between quotes in LLVM's text.
bool IsPlain(std::string_view text) {
  return std::ranges::all_of(
      text, [](unsigned char c) { return c >= 32 && c < 127 && c != '"' && c != '\\'; });
}

}  // namespace

struct LlvmKernel::Table {
  // What is not elementwise. CONST, PARAM and BUFFER print where they are used, AFTER is its
  // source.
  static constexpr PrinterTable<LlvmKernel> kPrinters{{
      {Op::kConst, &LlvmKernel::Nothing},
      {Op::kParam, &LlvmKernel::Nothing},
      {Op::kBuffer, &LlvmKernel::Nothing},
      {Op::kIota, &LlvmKernel::Iota},
      {Op::kReshape, &LlvmKernel::Same},
      {Op::kExpand, &LlvmKernel::Same},
      {Op::kAfter, &LlvmKernel::Same},
      {Op::kReduce, &LlvmKernel::ReduceLanes},
      {Op::kRange, &LlvmKernel::OpenRange},
      {Op::kEnd, &LlvmKernel::Close},
      {Op::kIndex, &LlvmKernel::Index},
      {Op::kLoad, &LlvmKernel::Load},
      {Op::kStore, &LlvmKernel::Store},
      {Op::kRole, &LlvmKernel::OpenParallel},
      {Op::kBarrier, &LlvmKernel::ManyThreads},
      {Op::kMBarrier, &LlvmKernel::ManyThreads},
      {Op::kArrive, &LlvmKernel::ManyThreads},
      {Op::kWaitPhase, &LlvmKernel::ManyThreads},
      {Op::kCopyAsync, &LlvmKernel::ManyThreads},
      {Op::kWait, &LlvmKernel::ManyThreads},
      {Op::kMma, &LlvmKernel::ManyThreads},
      {Op::kMmaAsync, &LlvmKernel::ManyThreads},
      {Op::kShuffle, &LlvmKernel::ManyThreads},
      {Op::kLoadMatrix, &LlvmKernel::ManyThreads},
  }};
  static_assert(kPrinters.Complete(), "an op of the program level has no printer");
};

bool LlvmKernel::Prints(Op op) {
  return Table::kPrinters[op] != nullptr || LlvmAluPrinterOf(op) != nullptr;
}

absl::Status LlvmKernel::Print(UOp u) {
  if (const auto print = Table::kPrinters[u.op()]) return (this->*print)(u);
  if (LlvmAluPrinterOf(u.op()) != nullptr) return Alu(u);
  return Broken("node ", u.id(), " (", telegrad::Name(u.op()), ") is not of the program level");
}

LlvmKernel::LlvmKernel(const Program& program, const Target& target)
    : KernelText(program, target) {}

absl::StatusOr<std::string> LlvmKernel::Render() {
  TG_RETURN_IF_ERROR(CheckHeader());
  if (!IsPlain(target_.cpu) || !IsPlain(target_.features)) return Broken("malformed target");
  TG_RETURN_IF_ERROR(Begin());
  TG_RETURN_IF_ERROR(PrintNodes());
  return Assemble();
}

absl::Status LlvmKernel::Alu(UOp u) {
  if (!LlvmAluComputes(u, target_)) {
    return Broken("node ", u.id(), " (", telegrad::Name(u.op()), ") computes in ",
                  telegrad::Name(u.src(0).dtype()), ", which the target does not");
  }
  TG_ASSIGN_OR_RETURN(const int64_t lanes, Lanes(u));
  const bool vectors = target_.has(ParallelLevel::kLanes);
  // A limit from above is spelled as one from below of the negated value.
  const UOp last = u.src(u.num_src() - 1);
  if (vectors && (u.is(Op::kNeg) || u.is(Op::kSub)) && IsNegatedLesser(last)) {
    TG_ASSIGN_OR_RETURN(const std::string lesser, Negated(last, lanes));
    values_[u] = lesser;
    if (u.is(Op::kNeg)) return absl::OkStatus();
    TG_ASSIGN_OR_RETURN(const std::string from, ValueOf(u.src(0), lanes));
    values_[u] = out_.Let("fadd ", LlvmType(u.dtype(), lanes), " ", from, ", ", lesser);
    return absl::OkStatus();
  }
  const Nearest nearest = Rounds() ? NearestOf(u) : Nearest();
  std::vector<std::string> x(u.num_src());
  for (int i = 0; i < u.num_src(); ++i) {
    if (nearest.negated) {
      TG_ASSIGN_OR_RETURN(x[i], Negated(nearest.x, lanes));
    } else {
      TG_ASSIGN_OR_RETURN(x[i], ValueOf(nearest.x.valid() ? nearest.x : u.src(i), lanes));
    }
  }
  const LlvmAlu alu{out_,   u,        lanes, x, vectors, target_.dots ? target_.vector_bytes : 0,
                    Exp2(), nearest.x};
  values_[u] = LlvmAluPrinterOf(u.op())(alu);
  return absl::OkStatus();
}

absl::StatusOr<std::string> LlvmKernel::Negated(UOp x, int64_t lanes) {
  const std::string type = LlvmType(x.dtype(), lanes);
  if (!IsNegatedLesser(x)) {
    TG_ASSIGN_OR_RETURN(const std::string value, ValueOf(x, lanes));
    return out_.Let("fneg ", type, " ", value);
  }
  TG_ASSIGN_OR_RETURN(const std::string value, ValueOf(x.src(0).src(0), lanes));
  const double limit = -ScalarAsDouble(x.dtype(), x.src(1).const_word());
  return out_.Call(
      StrCat("llvm.minimum.", LlvmSuffix(x.dtype(), lanes)), type,
      {{type, value}, {type, LlvmLiteral(x.dtype(), ScalarFromDouble(x.dtype(), limit), lanes)}});
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
  if (u.arg().size() == 1 || lanes == 1) {  // nothing to reduce
    values_[u] = value;
    return absl::OkStatus();
  }
  const DType dtype = u.dtype();
  const std::string element = LlvmType(dtype, 1), type = LlvmType(dtype, lanes);
  const auto call = [&](std::string_view name) {
    return StrCat("llvm.vector.reduce.", name, ".", LlvmSuffix(dtype, lanes));
  };
  // A deterministic target adds lanes in their order, as a loop would.
  const auto from = [&](std::string_view name, double start) {
    const std::string first = LlvmLiteral(dtype, ScalarFromDouble(dtype, start), 1);
    return out_.Call(call(name), element, {{element, first}, {type, value}},
                     target_.deterministic ? "" : "reassoc ");
  };
  const auto kind = u.reduce_kind();
  if (IsFloat(dtype) && kind == ReduceKind::kAdd) {
    values_[u] = from("fadd", target_.deterministic ? 0.0 : -0.0);
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
  if (Emitted(u)) return Broken("range ", u.id(), " is opened twice");
  if (!IsLoop(u)) return OpenParallel(u);
  TG_ASSIGN_OR_RETURN(const std::string end, ValueOf(u.src(0), 1));
  OpenLoop(u, "0", end);
  return absl::OkStatus();
}

void LlvmKernel::OpenLoop(UOp range, std::string_view begin, std::string_view end) {
  const DType dtype = range.dtype();
  const std::string name = NameOf(range), type = LlvmType(dtype, 1);
  const std::string before = out_.block();
  out_.Line("br label %", name, ".head");
  out_.Block(name + ".head");
  values_[range] = out_.Name(name, "phi ", type, " [ ", begin, ", %", before, " ], [ %", name,
                             ".next, %", name, ".latch ]");
  const std::string more =
      out_.Let("icmp ", IsSigned(dtype) ? "slt " : "ult ", type, " ", values_[range], ", ", end);
  out_.Line("br i1 ", more, ", label %", name, ".body, label %", name, ".exit");
  out_.Block(name + ".body");
  open_.push_back(range);
}

absl::Status LlvmKernel::Close(UOp u) {
  TG_ASSIGN_OR_RETURN(const UOp opened, TakeInnermost(u));
  if (!opened.is(Op::kRange) || !IsLoop(opened)) return CloseParallel(opened);
  CloseLoop(opened);
  return absl::OkStatus();
}

void LlvmKernel::CloseLoop(UOp range) {
  const std::string name = NameOf(range);
  out_.Line("br label %", name, ".latch");
  out_.Block(name + ".latch");
  // The counter is below its end here, so one more cannot wrap.
  out_.Name(name + ".next", IsSigned(range.dtype()) ? "add nuw nsw " : "add nuw ",
            LlvmType(range.dtype(), 1), " %", name, ", 1");
  out_.Line("br label %", name, ".head", LoopMetadata(range));
  out_.Block(name + ".exit");
}

absl::Status LlvmKernel::OpenParallel(UOp u) {
  if (u.is(Op::kRole)) return ManyThreads(u);
  return Lacks("range of type ", telegrad::Name(u.axis_type()));
}

absl::Status LlvmKernel::CloseParallel(UOp u) {
  return Broken("node ", u.id(), " closes what was never opened");
}

absl::Status LlvmKernel::ManyThreads(UOp u) { return Lacks(telegrad::Name(u.op())); }

}  // namespace telegrad
