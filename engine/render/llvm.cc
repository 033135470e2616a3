// The frame of the function: what is checked before, what is declared around.
#include "engine/render/llvm.h"

#include <algorithm>
#include <cctype>

#include "engine/base/status.h"
#include "engine/render/llvm_kernel.h"

namespace telegrad {
namespace {

bool IsIdentifier(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
  return std::ranges::all_of(
      name, [](unsigned char c) { return c == '_' || (c < 128 && std::isalnum(c)); });
}

// A string that can stand between quotes in LLVM's text.
bool IsPlain(std::string_view text) {
  return std::ranges::all_of(
      text, [](unsigned char c) { return c >= 32 && c < 127 && c != '"' && c != '\\'; });
}

std::string Attributes(const Target& target) {
  // The processor's name is for tuning alone: what the code may use are the features, detected one
  // by one, because a name implies features that a virtual machine may hide. probe-stack: a large
  // frame touches each of its pages, so that it ends in the guard page and not beyond.
  std::string out =
      "attributes #0 = { nounwind \"target-cpu\"=\"x86-64\" \"probe-stack\"=\"inline-asm\"";
  if (!target.cpu.empty()) StrAppend(&out, " \"tune-cpu\"=\"", target.cpu, "\"");
  if (!target.features.empty()) StrAppend(&out, " \"target-features\"=\"", target.features, "\"");
  // LLVM would keep to 256 bits, half of what the machine can do.
  if (target.vector_bytes >= 64) out += " \"prefer-vector-width\"=\"512\"";
  return out + " }\n";
}

}  // namespace

LlvmKernel::LlvmKernel(const Program& program, const Target& target)
    : program_(program), target_(target), values_(*program.graph) {}

absl::Status LlvmKernel::CheckHeader() const {
  if (target_.arch != "x86-64") {
    return Unimplemented("no LLVM rendering for the architecture ", target_.arch,
                         "; expected x86-64");
  }
  if (!IsIdentifier(program_.name)) return Broken("the name is not an identifier");
  if (!IsPlain(target_.cpu) || !IsPlain(target_.features)) return Broken("malformed target");
  for (uint32_t id : program_.order) {
    if (id >= program_.graph->size()) return Broken("node ", id, " does not exist");
  }
  return absl::OkStatus();
}

// Loads the arguments' addresses and lays out private memory, which reads as 0 until it is written:
// LLVM may otherwise give every use of such a load another value, past any check.
absl::Status LlvmKernel::Prologue() {
  for (size_t slot = 0; slot < program_.arguments.size(); ++slot) {
    const std::string at = out_.Let("getelementptr ptr, ptr %buffers, i64 ", slot);
    out_.Name(StrCat("a", slot), "load ptr, ptr ", at, ", align 8");
    if (!Streams(static_cast<int64_t>(slot))) continue;
    const std::string address = out_.Let("ptrtoint ptr %a", slot, " to i64");
    const std::string beyond = out_.Let("and i64 ", address, ", 63");
    out_.Name(StrCat("s", slot), "icmp eq i64 ", beyond, ", 0");
  }
  int64_t bytes = 0;
  for (uint32_t id : program_.order) {
    const UOp u = program_.graph->at(id);
    if (!u.is(Op::kBuffer) || Emitted(u)) continue;
    if (u.arg(0) == static_cast<int64_t>(AddressSpace::kGlobal)) {
      return Broken("node ", id, " is a BUFFER in global memory");
    }
    const int64_t size = u.arg(2) * ByteSize(u.dtype());
    bytes += (size + 63) / 64 * 64;
    if (bytes > kMaxPrivateBytes) {
      return Broken("the BUFFERs take more than ", kMaxPrivateBytes, " bytes");
    }
    values_[u] = out_.Name(NameOf(u), "alloca [", u.arg(2), " x ", LlvmMemoryType(u.dtype(), 1),
                           "], align 64");
    out_.CallVoid("llvm.memset.p0.i64",
                  {{"ptr", values_[u]}, {"i8", "0"}, {"i64", StrCat(size)}, {"i1", "false"}});
  }
  return absl::OkStatus();
}

// Each argument is an alias scope of its own, and every access lies outside of all other scopes.
// That is true of written arguments by contract and harmless between arguments that are only read.
std::string LlvmKernel::AliasMetadata() const {
  std::string out = "!0 = distinct !{!0}\n";
  const size_t n = program_.arguments.size();
  for (size_t slot = 0; slot < n; ++slot) {
    StrAppend(&out, "!", 3 * slot + 1, " = distinct !{!", 3 * slot + 1, ", !0}\n");
    StrAppend(&out, "!", 3 * slot + 2, " = !{!", 3 * slot + 1, "}\n");
    StrAppend(&out, "!", 3 * slot + 3, " = !{");
    std::string_view comma = "";
    for (size_t other = 0; other < n; ++other) {
      if (other == slot) continue;
      StrAppend(&out, comma, "!", 3 * other + 1);
      comma = ", ";
    }
    out += "}\n";
  }
  StrAppend(&out, "!", 3 * n + 1, " = !{i32 1}\n");
  return out;
}

std::string LlvmKernel::Assemble() {
  // Such stores become visible in any order; what follows the launch must see them all.
  if (streamed_) out_.CallVoid("llvm.x86.sse.sfence", {});
  return StrCat("target triple = \"x86_64-unknown-linux-gnu\"\n\ndefine void @", program_.name,
                "(ptr noalias readonly %buffers, i64 %begin, i64 %end) #0 {\nentry:\n",
                out_.TakeBody(), "  ret void\n}\n\n", out_.Declarations(), "\n",
                Attributes(target_), "\n", AliasMetadata());
}

absl::StatusOr<std::string> RenderLlvm(const Program& program, const Target& target) {
  return LlvmKernel(program, target).Render();
}

}  // namespace telegrad
