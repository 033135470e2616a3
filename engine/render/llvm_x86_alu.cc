// Operations that AVX-512 has instructions for and LLVM has none in its own terms: each is several
// otherwise. Intel's SDM, volume 2.
#include "engine/base/status.h"
#include "engine/render/exponential.h"
#include "engine/render/llvm_x86.h"

namespace telegrad {
namespace {

constexpr std::string_view kNearestEven = "4";  // rounding, as the processor's control says

}  // namespace

absl::Status X86Kernel::Alu(UOp u) {
  const bool wide = StrCat(",", target_.features, ",").find(",+avx512dq,") != std::string::npos;
  if (!wide || !IsLlvmFloat(u.dtype())) return LlvmKernel::Alu(u);
  TG_ASSIGN_OR_RETURN(const int64_t lanes, Lanes(u));
  if (lanes * ByteSize(u.dtype()) != 64) return LlvmKernel::Alu(u);
  if (u.is(Op::kMax) && !u.src(0).is_const() && !u.src(1).is_const()) return Larger(u, lanes);
  const PowerOfTwo power = PowerOf(u);
  return power.valid() ? TimesPower(u, power, lanes) : LlvmKernel::Alu(u);
}

// VRANGE orders the zeros, but gives the number where one operand is NaN. With a constant LLVM's
// own maximum has fewer instructions.
absl::Status X86Kernel::Larger(UOp u, int64_t lanes) {
  TG_ASSIGN_OR_RETURN(const std::string x, ValueOf(u.src(0), lanes));
  TG_ASSIGN_OR_RETURN(const std::string y, ValueOf(u.src(1), lanes));
  constexpr std::string_view kMaximum = "5";  // of the two, with the sign of the one it takes
  const bool single = u.dtype() == DType::kFloat32;
  const std::string type = LlvmType(u.dtype(), lanes);
  const std::string larger =
      out_.Call(StrCat("llvm.x86.avx512.mask.range.", single ? "ps" : "pd", ".512"), type,
                {{type, x},
                 {type, y},
                 {"i32", std::string(kMaximum)},
                 {type, "zeroinitializer"},
                 {single ? "i16" : "i8", "-1"},
                 {"i32", std::string(kNearestEven)}});
  const std::string unordered = out_.Let("fcmp uno ", type, " ", x, ", ", y);
  const std::string nan = out_.Let("fadd ", type, " ", x, ", ", y);
  values_[u] = out_.Let("select ", LlvmType(DType::kBool, lanes), " ", unordered, ", ", type, " ",
                        nan, ", ", type, " ", larger);
  return absl::OkStatus();
}

// VSCALEF rounds once, as the last of the two products by which the power is spelled. Lanes that
// round to 0 are left out of it: an underflow takes a processor a hundred cycles.
absl::Status X86Kernel::TimesPower(UOp u, const PowerOfTwo& power, int64_t lanes) {
  TG_ASSIGN_OR_RETURN(const std::string value, ValueOf(power.value, lanes));
  TG_ASSIGN_OR_RETURN(const std::string exponent, ValueOf(power.exponent, lanes));
  constexpr double kZero = -151;  // of what is at most sqrt(2): less than half of the least f32
  const std::string type = LlvmType(u.dtype(), lanes);
  const std::string kept =
      out_.Let("fcmp ogt ", type, " ", exponent, ", ",
               LlvmLiteral(u.dtype(), ScalarFromDouble(u.dtype(), kZero), lanes));
  const std::string mask =
      out_.Let("bitcast ", LlvmType(DType::kBool, lanes), " ", kept, " to i16");
  values_[u] = out_.Call("llvm.x86.avx512.mask.scalef.ps.512", type,
                         {{type, value},
                          {type, exponent},
                          {type, "zeroinitializer"},
                          {"i16", mask},
                          {"i32", std::string(kNearestEven)}});
  return absl::OkStatus();
}

}  // namespace telegrad
