// The frame of the kernel, loops and values. Nodes come in execution order, so each is printed when
// its sources have been; a value is a variable, declared where it is computed.
#include "engine/render/c_kernel.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_replace.h"
#include "engine/base/checked.h"
#include "engine/ir/scalar.h"
#include "engine/render/c_alu.h"
#include "engine/types/kernel_attributes.h"
#include "engine/types/program_signature.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxCThreadBytes = int64_t{16} << 10;  // of BUFFER(register)
constexpr size_t kDimensions = 3;

// How many values the range can have at most.
int64_t MostIterations(UOp range) { return std::max<int64_t>(range.src(0).vmax(), 1); }

}  // namespace

struct CKernel::Table {
  // What is not elementwise. CONST, PARAM and BUFFER print where they are used.
  static constexpr PrinterTable<CKernel> kPrinters{{
      {Op::kConst, &CKernel::Nothing},     {Op::kParam, &CKernel::Nothing},
      {Op::kBuffer, &CKernel::Nothing},    {Op::kIota, &CKernel::Iota},
      {Op::kReshape, &CKernel::Same},      {Op::kExpand, &CKernel::Same},
      {Op::kAfter, &CKernel::Same},        {Op::kReduce, &CKernel::ReduceLanes},
      {Op::kRange, &CKernel::OpenRange},   {Op::kEnd, &CKernel::Close},
      {Op::kIndex, &CKernel::Index},       {Op::kLoad, &CKernel::Load},
      {Op::kStore, &CKernel::Store},       {Op::kBarrier, &CKernel::Barrier},
      {Op::kRole, &CKernel::Missing},      {Op::kMBarrier, &CKernel::Missing},
      {Op::kArrive, &CKernel::Missing},    {Op::kWaitPhase, &CKernel::Missing},
      {Op::kCopyAsync, &CKernel::Missing}, {Op::kWait, &CKernel::Missing},
      {Op::kMma, &CKernel::Missing},       {Op::kMmaAsync, &CKernel::Missing},
      {Op::kShuffle, &CKernel::Missing},   {Op::kLoadMatrix, &CKernel::Missing},
  }};
  static_assert(kPrinters.Complete(), "an op of the program level has no printer");
};

absl::Status CKernel::Print(UOp u) {
  if (const auto print = Table::kPrinters[u.op()]) return (this->*print)(u);
  if (CAluPrinterOf(u.op()) != nullptr) return Alu(u);
  return Broken("node ", u.id(), " (", telegrad::Name(u.op()), ") is not of the program level");
}

CKernel::CKernel(const Program& program, const Target& target, const CDialect& dialect)
    : KernelText(program, target), dialect_(dialect) {}

absl::StatusOr<std::string> CKernel::Render() {
  TG_RETURN_IF_ERROR(CheckHeader());
  if (program_.warp != 1) return Lacks("warps of ", program_.warp, " threads");
  TG_RETURN_IF_ERROR(ReadRanges());
  TG_RETURN_IF_ERROR(PlaceBuffers());
  out_.Line("const ulong group = begin + ", dialect_.group, ";");
  out_.Open("if (group < ", workgroups_, "ul)");
  TG_RETURN_IF_ERROR(PrintNodes());
  out_.Close();
  return Assemble();
}

absl::Status CKernel::ReadRanges() {
  int64_t threads = 1;
  for (uint32_t id : program_.order) {
    const UOp u = program_.graph->at(id);
    if (!u.is(Op::kRange)) continue;
    const AxisType type = u.axis_type();
    if (type != AxisType::kGroup && type != AxisType::kLocal) continue;
    const bool group = type == AxisType::kGroup;
    int64_t& total = group ? workgroups_ : threads;
    if (!CheckedMul(total, MostIterations(u), &total)) return Broken("range ", id, " has no bound");
    (group ? groups_ : locals_).push_back(u);
  }
  if (locals_.size() > kDimensions) return Broken(locals_.size(), " ranges of threads");
  if (threads > target_.group_threads) {
    return Broken("a workgroup has ", threads, " threads, the target at most ",
                  target_.group_threads);
  }
  return absl::OkStatus();
}

// A register reads as 0 until it is written.
absl::Status CKernel::PlaceBuffers() {
  int64_t local = 0, registers = 0;
  for (uint32_t id : program_.order) {
    const UOp u = program_.graph->at(id);
    if (!u.is(Op::kBuffer) || buffers_.contains(id)) continue;
    const AddressSpace space = u.space();
    if (space == AddressSpace::kGlobal) return Broken("node ", id, " is a BUFFER in global memory");
    const bool is_local = space == AddressSpace::kLocal;
    const int64_t most = is_local ? target_.local_bytes : kMaxCThreadBytes;
    int64_t& bytes = is_local ? local : registers;
    bytes += (u.elements() * ByteSize(u.dtype()) + 63) / 64 * 64;
    if (bytes > most) {
      return Broken(is_local ? "a workgroup takes more local memory than the target's "
                             : "the BUFFERs of a thread take more than ",
                    most, " bytes");
    }
    buffers_[id] = NameOf(u);
    if (is_local) {
      out_.Line(dialect_.local, " ", CType(u.dtype(), 1), " ", NameOf(u), "[", u.elements(), "];");
    } else {
      const bool vectors = u.elements() > 1;
      out_.Line(CType(u.dtype(), 1), " ", NameOf(u), "[", u.elements(), "]",
                vectors ? " __attribute__((aligned(128)))" : "", " = {0};");
    }
  }
  return absl::OkStatus();
}

std::string CKernel::Assemble() {
  std::array<std::string, kDimensions> sizes = {"1", "1", "1"};
  for (size_t i = 0; i < locals_.size(); ++i) {
    sizes[i] = StrCat(MostIterations(locals_[locals_.size() - 1 - i]));
  }
  std::string text =
      StrCat("// ", kParametersAttribute, ": ",
             ParametersText(KernelParameters(program_.arguments.size())), "\n", dialect_.preamble);
  text += absl::StrReplaceAll(ToAbsl(dialect_.kernel),
                              {{"$0", sizes[0]}, {"$1", sizes[1]}, {"$2", sizes[2]}});
  StrAppend(&text, " ", program_.name, "(");
  std::string arguments;
  for (size_t i = 0; i < program_.arguments.size(); ++i) {
    const Program::Argument& argument = program_.arguments[i];
    const std::string pointer =
        StrCat(dialect_.global, argument.written ? " " : " const ", CType(argument.dtype, 1), "*");
    StrAppend(&text, pointer, " restrict p", i, ", ulong o", i, ", ");
    StrAppend(&arguments, "  ", pointer, " a", i, " = p", i, " + o", i, " / ",
              ByteSize(argument.dtype), ";\n");
  }
  StrAppend(&text, "ulong begin) {\n", arguments, out_.TakeBody(), "}\n");
  return text;
}

absl::StatusOr<int64_t> CKernel::Lanes(UOp u) const {
  TG_ASSIGN_OR_RETURN(const int64_t lanes, KernelText::Lanes(u));
  if (!IsCWidth(lanes)) return Lacks("vectors of ", lanes, " lanes");
  return lanes;
}

absl::Status CKernel::Missing(UOp u) { return Lacks(telegrad::Name(u.op())); }

absl::Status CKernel::Alu(UOp u) {
  if (!CAluComputes(u, target_)) {
    return Lacks("arithmetic for ", telegrad::Name(u.op()), " from ",
                 telegrad::Name(u.src(0).dtype()), " to ", telegrad::Name(u.dtype()));
  }
  TG_ASSIGN_OR_RETURN(const int64_t lanes, Lanes(u));
  TG_ASSIGN_OR_RETURN(const std::vector<std::string> x, Sources(u, lanes));
  values_[u] = CAluPrinterOf(u.op())(CAlu{out_, u, lanes, x});
  return absl::OkStatus();
}

absl::Status CKernel::Iota(UOp u) {
  TG_ASSIGN_OR_RETURN(const int64_t lanes, Lanes(u));
  std::string text = StrCat("((", CType(u.dtype(), lanes), ")(");
  for (int64_t i = 0; i < lanes; ++i) {
    StrAppend(&text, i == 0 ? "" : ", ", CLiteral(u.dtype(), ScalarFromInt(u.dtype(), i), 1));
  }
  values_[u] = text + "))";
  return absl::OkStatus();
}

// Halves are reduced with each other while they are such.
absl::Status CKernel::ReduceLanes(UOp u) {
  const UOp x = u.src(0);
  TG_ASSIGN_OR_RETURN(const int64_t lanes, Lanes(x));
  TG_ASSIGN_OR_RETURN(const std::string value, ValueOf(x, lanes));
  if (u.num_src() != 1) return Broken("node ", u.id(), " reduces over ranges");
  if (u.arg().size() == 1 || lanes == 1) {  // nothing to reduce
    values_[u] = value;
    return absl::OkStatus();
  }
  const auto kind = u.reduce_kind();
  const Op op = kind == ReduceKind::kAdd   ? Op::kAdd
                : kind == ReduceKind::kMul ? Op::kMul
                                           : Op::kMax;
  std::vector<std::string> parts;
  for (int64_t i = 0; i < lanes; ++i) parts.push_back(CLane(value, i, lanes));
  const auto fold = [&](const std::string& a, const std::string& b) {
    const std::array<std::string, 2> operands = {a, b};
    return CAluPrinterOf(op)(CAlu{out_, u, 1, operands});
  };
  while (parts.size() > 1) {
    const size_t half = (parts.size() + 1) / 2;
    for (size_t i = half; i < parts.size(); ++i) parts[i - half] = fold(parts[i - half], parts[i]);
    parts.resize(half);
  }
  values_[u] = parts[0];
  return absl::OkStatus();
}

absl::Status CKernel::OpenRange(UOp u) {
  if (Emitted(u)) return Broken("range ", u.id(), " is opened twice");
  const AxisType type = u.axis_type();
  if (type == AxisType::kGroup || type == AxisType::kLocal) return OpenParallel(u);
  if (type != AxisType::kLoop && type != AxisType::kReduce) {
    return Lacks("range of type ", telegrad::Name(type));
  }
  TG_ASSIGN_OR_RETURN(const std::string end, ValueOf(u.src(0), 1));
  const std::string name = NameOf(u);
  const auto side = [&](std::string_view x) {
    return IsSigned(u.dtype()) ? CSigned(u.dtype(), 1, x) : std::string(x);
  };
  out_.Open("for (", CType(u.dtype(), 1), " ", name, " = 0; ", side(name), " < ", side(end), "; ++",
            name, ")");
  values_[u] = name;
  open_.push_back(u);
  return absl::OkStatus();
}

absl::Status CKernel::OpenParallel(UOp u) {
  const bool group = u.axis_type() == AxisType::kGroup;
  const std::vector<UOp>& ranges = group ? groups_ : locals_;
  const auto at = std::ranges::find(ranges, u);
  const std::string type = CType(u.dtype(), 1), name = NameOf(u);
  if (group) {
    int64_t inner = 1;  // iterations of the ranges inside of this one
    for (auto it = at + 1; it != ranges.end(); ++it) inner *= MostIterations(*it);
    // Division is many times faster in 32 bits.
    std::string value = workgroups_ <= INT32_MAX ? "(uint)group" : "group";
    if (inner > 1) value += StrCat(" / ", inner, "u");
    if (at != ranges.begin()) value += StrCat(" % ", MostIterations(u), "u");
    out_.Line("const ", type, " ", name, " = (", type, ")(", value, ");");
  } else {
    out_.Line("const ", type, " ", name, " = (", type, ")", dialect_.thread, "(",
              ranges.end() - at - 1, ");");
  }
  values_[u] = name;
  open_.push_back(u);
  if (u.src(0).is_const()) return absl::OkStatus();
  TG_ASSIGN_OR_RETURN(const std::string end, ValueOf(u.src(0), 1));
  const auto side = [&](std::string_view x) {
    return IsSigned(u.dtype()) ? CSigned(u.dtype(), 1, x) : std::string(x);
  };
  out_.Open("if (", side(name), " < ", side(end), ")");
  return absl::OkStatus();
}

absl::Status CKernel::Close(UOp u) {
  TG_ASSIGN_OR_RETURN(const UOp opened, TakeInnermost(u));
  const AxisType type = opened.axis_type();
  const bool parallel = type == AxisType::kGroup || type == AxisType::kLocal;
  if (!parallel || !opened.src(0).is_const()) out_.Close();
  return absl::OkStatus();
}

// With warps of one thread, the scopes below the workgroup are one thread or several that run
// apart.
absl::Status CKernel::Barrier(UOp u) {
  switch (u.scope()) {
    case Scope::kThread:
    case Scope::kWarp:
      return absl::OkStatus();
    case Scope::kWorkgroup:
    case Scope::kCluster:
      out_.Line(dialect_.barrier);
      return absl::OkStatus();
    case Scope::kWarpgroup:
      return Lacks("barrier of a warpgroup");
  }
  return Broken("node ", u.id(), " has an unknown scope");
}

}  // namespace telegrad
